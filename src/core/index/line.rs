//! One line of eight words: which of them have a hash.

use super::table::wanted;
use crate::sync::{AtomicU64, Ordering};

/// The positions whose bits are set.
#[inline(always)]
pub(super) fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let position = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(position)
    })
}

/// The positions of the words that have this hash. Loads each word with Acquire.
#[allow(dead_code)] // where there are vectors
#[inline(always)]
pub(super) fn matching_in(words: &[AtomicU64], hash: u32) -> u64 {
    let wanted = wanted(hash);
    let mut matching = 0;
    for word in words.iter().rev() {
        // A compare and an addition with carry.
        matching = matching + matching + u64::from(wanted(word.load(Ordering::Acquire)));
    }
    matching
}

/// [`matching_in`] for a line's eight words, a home's header among them, by vectors of four.
///
/// The instructions stand for an Acquire load of each word: each half of an aligned load of 16
/// bytes is atomic on this architecture, and no load passes another one.
///
/// # Safety
///
/// At `line` there are eight words, aligned to 64 bytes.
#[cfg(all(target_arch = "x86_64", not(miri), not(expiry_loom)))]
#[inline(always)]
pub(super) unsafe fn matching(line: *const AtomicU64, hash: u32) -> u64 {
    let matching: u32;
    // SAFETY: this reads the line; SSE2 is part of x86_64.
    unsafe {
        std::arch::asm!(
            "movd {hash}, {half:e}",
            "pshufd {hash}, {hash}, 0",
            // The upper halves of two words, and of the next two.
            "movdqa {a}, xmmword ptr [{line}]",
            "shufps {a}, xmmword ptr [{line} + 16], 0xDD",
            "movdqa {b}, xmmword ptr [{line} + 32]",
            "shufps {b}, xmmword ptr [{line} + 48], 0xDD",
            "pcmpeqd {a}, {hash}",
            "pcmpeqd {b}, {hash}",
            // From 32 bits for each word to 8, and to one.
            "packssdw {a}, {b}",
            "packsswb {a}, {a}",
            "pmovmskb {matching:e}, {a}",
            line = in(reg) line,
            half = in(reg) hash | 1 << 31,
            hash = out(xmm_reg) _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            matching = out(reg) matching,
            options(nostack, readonly, preserves_flags),
        );
    }
    // `packsswb` has written the eight bytes twice.
    u64::from(matching & 0xFF)
}

#[cfg(all(test, target_arch = "x86_64", not(miri), not(expiry_loom)))]
#[path = "../../../tests/unit/core_index_line.rs"]
mod tests;
