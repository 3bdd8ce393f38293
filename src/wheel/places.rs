//! Which places of a slab are free: a bit each, and a bit for each word of bits that has one, and
//! so on up.
//!
//! Which free place is used next decides what scheduling costs. After a mass expiry, the order in
//! which places were freed is random, and a list through it is one cache miss for each place. So
//! places are handed out by address, a word's worth at a time, lowest first; only the one freed
//! last comes in front of them, because it is warm.
//!
//! A bitmap of a million places has 125 KB and stays in the cache. Giving and taking are O(log64
//! places), which is six words at most.

/// Log of the bits of a word.
const BITS: u32 = 6;

/// Words of words that it takes for the places of 32 bits.
const LEVELS: usize = 6;

/// No place.
const NONE: u32 = u32::MAX;

/// A set of free places, of those below a bound.
#[derive(Debug)]
pub(super) struct Places {
    /// Bits of places first. A bit above them is set if and only if its word below is not 0.
    levels: [Vec<u64>; LEVELS],
    /// The place that was given last, if it is free still. Not in the levels.
    warm: u32,
    /// Places that are handed out now, lowest first: a word that was taken out of the levels, and
    /// its number.
    batch: u64,
    at: u32,
}

impl Places {
    /// No places.
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
            if before != 0 || level.len() == 1 {
                return;
            }
            bit >>= BITS;
        }
    }

    /// Takes the first word that is not 0 out of the levels.
    #[cold]
    fn refill(&mut self) -> bool {
        let Some(top) = self.levels.iter().rposition(|level| !level.is_empty()) else {
            return false;
        };
        let mut at = 0;
        for level in self.levels[1..=top].iter().rev() {
            match level[at] {
                0 => return false,
                word => at = at << BITS | word.trailing_zeros() as usize,
            }
        }
        self.batch = std::mem::take(&mut self.levels[0][at]);
        // Fits: there are fewer words than places.
        self.at = at as u32;
        for level in &mut self.levels[1..=top] {
            let word = &mut level[at >> BITS];
            *word &= !(1 << (at & 63));
            if *word != 0 {
                break;
            }
            at >>= BITS;
        }
        self.batch != 0
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
    #[inline]
    pub(super) fn grow(&mut self, places: usize) {
        if places > self.levels[0].len() << BITS {
            self.add_words(places);
        }
    }

    #[cold]
    fn add_words(&mut self, places: usize) {
        let mut below = places;
        let mut filled = false;
        for at in 0..LEVELS {
            let words = (below + 63) >> BITS;
            let level = &mut self.levels[at];
            let new = level.is_empty();
            level.resize(words, 0);
            if new && at > 0 && filled {
                // The level below was the top so far.
                level[0] |= 1;
            }
            filled = level[0] != 0;
            if words == 1 {
                break;
            }
            below = words;
        }
    }

    /// Allocates for `places`.
    pub(super) fn reserve(&mut self, places: usize) {
        let mut below = places;
        for level in &mut self.levels {
            let words = (below.saturating_add(63)) >> BITS;
            level.reserve(words.saturating_sub(level.len()));
            if words <= 1 {
                break;
            }
            below = words;
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
        self.reserve(places);
        self.grow(places);
    }

    /// Every free place, once.
    #[cfg(any(test, fuzzing))]
    pub(super) fn free(&self) -> Vec<u32> {
        let mut free: Vec<u32> = (self.warm != NONE).then_some(self.warm).into_iter().collect();
        let bits = |at: usize, word: u64| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at as u32 * 64 + bit)
        };
        free.extend(bits(self.at as usize, self.batch));
        for (at, word) in self.levels[0].iter().enumerate() {
            free.extend(bits(at, *word));
        }
        for pair in self.levels.windows(2) {
            for (at, word) in pair[0].iter().enumerate() {
                if let Some(above) = pair[1].get(at / 64) {
                    assert_eq!(above >> (at % 64) & 1 == 1, *word != 0, "T-free: a bit above");
                }
            }
            assert!(pair[0].len() < 2 || !pair[1].is_empty(), "T-free: no top");
        }
        free
    }
}

#[cfg(test)]
#[path = "../../tests/unit/wheel_places.rs"]
mod tests;
