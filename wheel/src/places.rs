//! Which places of a slab are free: a bit each, and a bit for each word of bits that has one, and
//! so on up.
//!
//! Which free place is used next decides what scheduling costs. After a mass expiry, the order in
//! which places were freed is random, and a list through it is one cache miss for each place. So
//! places are handed out by address, a word's worth at a time, lowest first; only the one freed
//! last comes in front of them, because it is warm.
//!
//! A bitmap of a million places has 125 KB and stays in the cache. Giving and taking are O(1): a
//! word on each level. The taker searches the last level in order, which has one word for each
//! 16.7 million places. With fewer levels the search is long where few places are free.

/// Log of the bits of a word.
const BITS: u32 = 6;

/// Levels of words. The last has 256 words for the places of 32 bits.
const LEVELS: usize = 4;

const NONE: u32 = u32::MAX;

/// A set of free places, of those below a bound.
#[derive(Debug)]
pub(super) struct Places {
    /// Bits of places first. A bit above them is set if and only if its word below is not 0.
    levels: [Vec<u64>; LEVELS],
    /// The place that was given last, if it is free still. Not in the levels.
    warm: u32,
    /// The word that was taken out of the levels, whose places are handed out now, and its number.
    batch: u64,
    at: u32,
}

impl Places {
    pub(super) const fn new() -> Places {
        const NO_WORDS: Vec<u64> = Vec::new();
        Places { levels: [NO_WORDS; LEVELS], warm: NONE, batch: 0, at: 0 }
    }

    /// A free place, which is not any more.
    #[inline]
    pub(super) fn take(&mut self) -> Option<u32> {
        if self.warm != NONE {
            return Some(std::mem::replace(&mut self.warm, NONE));
        }
        if self.batch == 0 && !self.refill() {
            return None;
        }
        let lowest = self.batch.trailing_zeros();
        self.batch &= self.batch - 1;
        Some(self.at << BITS | lowest)
    }

    /// Frees a place that is not free, below the bound.
    #[inline]
    pub(super) fn give(&mut self, place: u32) {
        debug_assert!(place >> BITS < self.levels[0].len() as u32);
        let before = std::mem::replace(&mut self.warm, place);
        if before != NONE {
            self.put(before);
        }
    }

    #[inline]
    fn put(&mut self, place: u32) {
        let mut bit = place;
        for level in &mut self.levels {
            let word = &mut level[(bit >> BITS) as usize];
            let before = *word;
            *word |= 1 << (bit & 63);
            if before != 0 {
                return;
            }
            bit >>= BITS;
        }
    }

    /// Takes the first word that is not 0 out of the levels.
    #[cold]
    fn refill(&mut self) -> bool {
        let [words, above @ ..] = &mut self.levels;
        let Some(mut at) = above[LEVELS - 2].iter().position(|word| *word != 0) else {
            return false;
        };
        for level in above.iter().rev() {
            at = at << BITS | level[at].trailing_zeros() as usize;
        }
        self.batch = std::mem::take(&mut words[at]);
        // Fits: there are fewer words than places.
        self.at = at as u32;
        for level in above {
            let word = &mut level[at >> BITS];
            *word &= !(1 << (at & 63));
            if *word != 0 {
                break;
            }
            at >>= BITS;
        }
        true
    }

    /// Raises the bound from `from` to `to`, which ends in the same word. No place is free, and
    /// then all the new ones are but `from`.
    pub(super) fn add(&mut self, from: u32, to: u32) {
        debug_assert!(from >> BITS == (to - 1) >> BITS && self.warm == NONE && self.batch == 0);
        self.grow(to as usize);
        self.at = from >> BITS;
        let (below, above) = (u64::MAX >> (63 - (to - 1) % 64), u64::MAX << (from % 64) << 1);
        self.batch = below & above;
    }

    /// Raises the bound to `places`; the new ones are in use.
    pub(super) fn grow(&mut self, places: usize) {
        let mut bits = places;
        for level in &mut self.levels {
            bits = bits.div_ceil(64);
            if bits > level.len() {
                level.resize(bits, 0);
            }
        }
    }

    pub(super) fn reserve(&mut self, places: usize) {
        let mut bits = places;
        for level in &mut self.levels {
            bits = bits.div_ceil(64);
            level.reserve(bits.saturating_sub(level.len()));
        }
    }

    /// No places from here on. The memory is kept.
    pub(super) fn clear(&mut self) {
        self.warm = NONE;
        self.batch = 0;
        self.levels.iter_mut().for_each(Vec::clear);
    }

    /// All places below `places` are in use from here on, and memory for more is given back.
    pub(super) fn restart(&mut self, places: usize) {
        *self = Places::new();
        self.grow(places);
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn free(&self) -> Vec<u32> {
        for pair in self.levels.windows(2) {
            for (at, word) in pair[0].iter().enumerate() {
                let above = pair[1][at / 64] >> (at % 64) & 1 == 1;
                assert_eq!(above, *word != 0, "T-free: a bit above");
            }
        }
        let mut free: Vec<u32> = (self.warm != NONE).then_some(self.warm).into_iter().collect();
        let words = self.levels[0].iter().copied().enumerate();
        for (at, word) in words.chain([(self.at as usize, self.batch)]) {
            let set = (0..64).filter(|bit| word >> bit & 1 == 1);
            free.extend(set.map(|bit| at as u32 * 64 + bit));
        }
        free
    }
}

#[cfg(test)]
#[path = "../tests/unit/places.rs"]
mod tests;
