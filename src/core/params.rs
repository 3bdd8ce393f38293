//! Sizes. Under the model checker they shrink, so that a model with a handful of operations still
//! fills blocks, spills, grows and gives memory back, in the real code.

/// Slots in a block: what one entry of a wheel stands for, and what one look of the reaper covers.
pub(crate) const BLOCK: usize = if cfg!(expiry_loom) { 2 } else { 16 };

#[allow(clippy::cast_possible_truncation)]
pub(crate) const BLOCK_U32: u32 = BLOCK as u32;

/// Blocks in a chunk: what a thread walks through in search of free slots, and what memory is
/// given back in. With ack trees, 256 blocks of 16 slots make 128 KiB of slots, 32 KiB of birth
/// stamps and 4 KiB of block headers. Slots have whole words, so a chunk's slots are whole pages
/// whatever the payload.
pub(crate) const CHUNK_BLOCKS: usize = if cfg!(expiry_loom) { 1 } else { 256 };

/// How many blocks a thread owns at a time, at most, for entries that fall due at different times.
pub(crate) const CELLS: usize = if cfg!(expiry_loom) { 2 } else { 128 };

/// How many blocks a thread opens before it has more than one cell for them.
pub(crate) const ALONE: u64 = if cfg!(expiry_loom) { 3 } else { 64 };

pub(crate) const CHUNK: usize = BLOCK * CHUNK_BLOCKS;

/// How many slots in a row a thread looks at before it asks for a better chunk.
pub(crate) const LONG_WALK: u64 = if cfg!(expiry_loom) { 2 } else { 64 };

/// Index words in a home line, beside its header: together one cache line.
pub(crate) const HOME: usize = if cfg!(expiry_loom) { 1 } else { 7 };

/// Index words in an overflow bucket: one cache line.
pub(crate) const OVER: usize = if cfg!(expiry_loom) { 1 } else { 8 };

/// How many keys may share all bits of their hash: a quarter of a home's words, overflow included.
pub(crate) const ALIKE: usize = if cfg!(expiry_loom) { 3 } else { HOME + 1 };

/// Homes that share an overflow bucket.
pub(crate) const GROUP: usize = if cfg!(expiry_loom) { 1 } else { 2 };

/// Base-2 logarithm of the number of homes in the smallest index table: 64 homes, 6 KiB.
pub(crate) const MIN_CLASS: u32 = if cfg!(expiry_loom) { 0 } else { 6 };

/// Size classes of index tables, each twice the one before.
pub(crate) const CLASSES: usize = if cfg!(expiry_loom) { 4 } else { 26 };

/// Tables of classes below this one, of less than 400 KB, grow fourfold: a store that fills up
/// migrates its keys half as often.
pub(crate) const SMALL_CLASSES: usize = if cfg!(expiry_loom) { 0 } else { 6 };

/// Segments of the slot store, each twice the one before: enough for every 32-bit slot id.
pub(crate) const SEGMENTS: usize = if cfg!(expiry_loom) { 4 } else { 20 };

/// How many slots of a chunk are looked at to tell whether it has room: a quarter of them free.
pub(crate) const SAMPLES: usize = 16;

/// How many chunks are looked at from a ring's position on, and elsewhere, before one is added.
pub(crate) const LOOKS: u32 = if cfg!(expiry_loom) { 1 } else { 8 };
