//! Which places of a slab are free: a bit each, and a bit for each word of bits that has one.
//!
//! Which free place is used next decides what scheduling costs. After a mass expiry, the order in
//! which places were freed is random, and a list through it is one cache miss for each place. So
//! places are handed out by address, a word's worth at a time, lowest first; only the one freed
//! last comes in front of them, because it is warm.
//!
//! A bitmap of a million places has 125 KB and stays in the cache. Giving is O(1). To take the next
//! word, the taker searches the bits above, 4,096 places a step: 245 steps at most for a
//! million places. Without those bits, the taker would search every word: in a nearly full slab
//! of a million, freeing and taking two to ten places at a time would be five times slower.

/// Log of the bits of a word.
const BITS: u32 = 6;

/// No place.
const NONE: u32 = u32::MAX;

/// A set of free places, of those below a bound.
#[derive(Debug)]
pub(super) struct Places {
    /// A place's bit is set if the place is free, and neither warm nor in the batch.
    words: Vec<u64>,
    /// A word's bit is set if the word is not 0.
    filled: Vec<u64>,
    /// All words of `filled` below this one are 0.
    low: usize,
    /// The place that was given last, if it is free still.
    warm: u32,
    /// Places that are handed out now, lowest first: a word that was taken out of the bitmap, and
    /// its number.
    batch: u64,
    at: u32,
}

impl Places {
    /// No places.
    pub(super) const fn new() -> Places {
        Places { words: Vec::new(), filled: Vec::new(), low: 0, warm: NONE, batch: 0, at: 0 }
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
        debug_assert!(place >> BITS < self.words.len() as u32);
        let before = std::mem::replace(&mut self.warm, place);
        if before != NONE {
            self.put(before);
        }
    }

    #[inline]
    fn put(&mut self, place: u32) {
        let at = (place >> BITS) as usize;
        self.words[at] |= 1 << (place & 63);
        self.filled[at >> BITS] |= 1 << (at & 63);
        self.low = self.low.min(at >> BITS);
    }

    /// Takes the first word that is not 0 out of the bitmap.
    #[cold]
    fn refill(&mut self) -> bool {
        while let Some(above) = self.filled.get_mut(self.low) {
            if *above != 0 {
                let at = self.low << BITS | above.trailing_zeros() as usize;
                *above &= *above - 1;
                self.batch = std::mem::take(&mut self.words[at]);
                // Fits: there are fewer words than places.
                self.at = at as u32;
                return true;
            }
            self.low += 1;
        }
        false
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
        let words = places.div_ceil(64);
        if words > self.words.len() {
            self.words.resize(words, 0);
            self.filled.resize(words.div_ceil(64), 0);
        }
    }

    /// Allocates for `places`.
    pub(super) fn reserve(&mut self, places: usize) {
        let words = places.div_ceil(64);
        self.words.reserve(words.saturating_sub(self.words.len()));
        self.filled.reserve(words.div_ceil(64).saturating_sub(self.filled.len()));
    }

    /// No places from here on. The memory is kept.
    pub(super) fn clear(&mut self) {
        (self.warm, self.batch, self.low) = (NONE, 0, 0);
        self.words.clear();
        self.filled.clear();
    }

    /// All places below `places` are in use from here on, and memory for more is given back.
    pub(super) fn restart(&mut self, places: usize) {
        *self = Places::new();
        self.grow(places);
    }

    /// Every free place, once.
    #[cfg(any(test, fuzzing))]
    pub(super) fn free(&self) -> Vec<u32> {
        for (at, word) in self.words.iter().enumerate() {
            let above = self.filled[at / 64] >> (at % 64) & 1 == 1;
            assert_eq!(above, *word != 0, "T-free: the bit of word {at}");
        }
        assert!(self.filled[..self.low].iter().all(|above| *above == 0), "T-free: low");
        let mut free: Vec<u32> = (self.warm != NONE).then_some(self.warm).into_iter().collect();
        let words = self.words.iter().copied().enumerate();
        for (at, word) in words.chain([(self.at as usize, self.batch)]) {
            let set = (0..64).filter(|bit| word >> bit & 1 == 1);
            free.extend(set.map(|bit| at as u32 * 64 + bit));
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn lowest_first_and_the_last_one_in_front() {
        let mut places = Places::new();
        places.grow(1);
        places.grow(300_000);
        assert_eq!(places.take(), None);
        for place in [299_999, 64, 5, 4096, 70_000, 63] {
            places.give(place);
        }
        let order: Vec<u32> = std::iter::from_fn(|| places.take()).collect();
        assert_eq!(order, [63, 5, 64, 4096, 70_000, 299_999]);
    }

    /// The last word of all, which is not whole.
    #[test]
    fn a_bound_within_a_word() {
        let mut places = Places::new();
        places.grow(64);
        places.add(64, 69);
        let order: Vec<u32> = std::iter::from_fn(|| places.take()).collect();
        assert_eq!(order, [65, 66, 67, 68]);
    }

    #[test]
    fn as_a_set() {
        let mut places = Places::new();
        let (mut free, mut bound) = (BTreeSet::new(), 0);
        let mut random = 88_172_645_463_325_252_u64;
        for step in 0..30_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            match random % 5 {
                0 | 1 if bound > 0 => {
                    let place = (random >> 8) as u32 % bound;
                    if free.insert(place) {
                        places.give(place);
                    }
                }
                2 => {
                    let taken = places.take();
                    assert_eq!(taken.is_some(), !free.is_empty());
                    assert!(taken.map_or(true, |place| free.remove(&place)));
                }
                3 if step % 7 == 0 => {
                    bound += (random >> 8) as u32 % 20;
                    places.grow(bound as usize);
                }
                _ => {}
            }
            if step % 100 == 0 {
                let found = places.free();
                assert_eq!(found.len(), free.len());
                assert!(found.iter().all(|place| free.contains(place)));
            }
        }
        assert!(bound > 5000);
        places.restart(77);
        assert_eq!((places.take(), places.words.len()), (None, 2));
    }
}
