//! Sizes. Under the model checker they shrink, so that a model with a handful of operations still
//! fills blocks, spills, grows and gives memory back, in the real code.

/// Slots in a block: what one entry of a wheel stands for, and what one look of the reaper covers.
#[cfg(not(expiry_loom))]
pub(crate) const BLOCK: usize = 16;
#[cfg(expiry_loom)]
pub(crate) const BLOCK: usize = 2;

/// The same, to count slots' ids by.
#[allow(clippy::cast_possible_truncation)]
pub(crate) const BLOCK_U32: u32 = BLOCK as u32;

/// Blocks in a chunk: what a thread walks through in search of free slots, and what memory is
/// given back in. With ack trees, 256 blocks of 16 slots make 128 KiB of slots, 32 KiB of birth
/// stamps and 4 KiB of block headers. Slots have whole words, so a chunk's slots are whole pages
/// whatever the payload.
#[cfg(not(expiry_loom))]
pub(crate) const CHUNK_BLOCKS: usize = 256;
#[cfg(expiry_loom)]
pub(crate) const CHUNK_BLOCKS: usize = 1;

/// How many blocks a thread owns at a time, at most, for entries that fall due at different times.
#[cfg(not(expiry_loom))]
pub(crate) const CELLS: usize = 128;
#[cfg(expiry_loom)]
pub(crate) const CELLS: usize = 2;

/// How many blocks a thread opens before it has more than one cell for them.
#[cfg(not(expiry_loom))]
pub(crate) const ALONE: u64 = 64;
#[cfg(expiry_loom)]
pub(crate) const ALONE: u64 = 3;

/// Slots in a chunk.
pub(crate) const CHUNK: usize = BLOCK * CHUNK_BLOCKS;

/// How many slots in a row a thread looks at before it asks for a better chunk.
#[cfg(not(expiry_loom))]
pub(crate) const LONG_WALK: u64 = 64;
#[cfg(expiry_loom)]
pub(crate) const LONG_WALK: u64 = 2;

/// Index words in a home line, beside its header: together one cache line.
#[cfg(not(expiry_loom))]
pub(crate) const HOME: usize = 7;
#[cfg(expiry_loom)]
pub(crate) const HOME: usize = 1;

/// Index words in an overflow bucket: one cache line.
#[cfg(not(expiry_loom))]
pub(crate) const OVER: usize = 8;
#[cfg(expiry_loom)]
pub(crate) const OVER: usize = 1;

/// How many keys may share all bits of their hash: a quarter of a home's words, its overflow
/// buckets' included.
#[cfg(not(expiry_loom))]
pub(crate) const ALIKE: usize = HOME + 1;
#[cfg(expiry_loom)]
pub(crate) const ALIKE: usize = 3;

/// Homes that share an overflow bucket.
#[cfg(not(expiry_loom))]
pub(crate) const GROUP: usize = 2;
#[cfg(expiry_loom)]
pub(crate) const GROUP: usize = 1;

/// Base-2 logarithm of the number of homes in the smallest index table: 64 homes, 6 KiB.
#[cfg(not(expiry_loom))]
pub(crate) const MIN_CLASS: u32 = 6;
#[cfg(expiry_loom)]
pub(crate) const MIN_CLASS: u32 = 0;

/// Size classes of index tables, each twice the one before.
#[cfg(not(expiry_loom))]
pub(crate) const CLASSES: usize = 26;
#[cfg(expiry_loom)]
pub(crate) const CLASSES: usize = 4;

/// Tables of classes below this one, of less than 400 KB, grow fourfold: a store that fills up
/// migrates its keys half as often.
#[cfg(not(expiry_loom))]
pub(crate) const SMALL_CLASSES: usize = 6;
#[cfg(expiry_loom)]
pub(crate) const SMALL_CLASSES: usize = 0;

/// Segments of the slot store, each twice the one before: enough for every 32-bit slot id.
#[cfg(not(expiry_loom))]
pub(crate) const SEGMENTS: usize = 20;
#[cfg(expiry_loom)]
pub(crate) const SEGMENTS: usize = 4;

/// How many slots of a chunk are looked at to tell whether it has room: a quarter of them free.
pub(crate) const SAMPLES: usize = 16;

/// How many chunks are looked at from a ring's position on, and how many elsewhere, before one is
/// added.
#[cfg(not(expiry_loom))]
pub(crate) const LOOKS: u32 = 8;
#[cfg(expiry_loom)]
pub(crate) const LOOKS: u32 = 1;
