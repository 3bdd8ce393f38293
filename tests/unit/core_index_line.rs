//! Unit tests of `src/core/index/line.rs`.

use super::*;
use crate::core::index::table::word;

#[repr(align(64))]
struct Line([AtomicU64; 8]);

#[test]
fn vectors_and_scalars_find_the_same_words() {
    let hashes = [1, 0x7FFF_FFFF, 0xABCD_1234];
    for pattern in 0..4_u32.pow(8) {
        let words = std::array::from_fn(|at| {
            let nth = (pattern >> (2 * at) & 3) as usize;
            let hash = hashes.get(nth).copied();
            AtomicU64::new(hash.map_or(0, |hash| word(hash, u32::MAX << at)))
        });
        let line = Line(words);
        for hash in hashes {
            // SAFETY: eight words, aligned.
            let by_vectors = unsafe { matching(line.0.as_ptr(), hash) };
            assert_eq!(by_vectors, matching_in(&line.0, hash));
        }
    }
}
