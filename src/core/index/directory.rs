//! The directory: which tables there are, in one word.

/// The directory: classes by age, the youngest last, five bits each from the low end; then their
/// number (4 bits); then a version (20 bits) that every change counts up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Directory(pub(super) u64);

pub(super) const LISTED: usize = 8;

impl Directory {
    pub(super) fn len(self) -> usize {
        (self.0 >> 40 & 15) as usize
    }

    /// The class at place `at`, 0 being the oldest.
    #[inline]
    pub(super) fn class(self, at: usize) -> usize {
        (self.0 >> (5 * at) & 31) as usize
    }

    #[inline(always)]
    pub(super) fn single(self) -> Option<usize> {
        (self.len() == 1).then(|| self.class(0))
    }

    pub(super) fn youngest(self) -> usize {
        self.class(self.len() - 1)
    }

    pub(super) fn classes(self) -> impl Iterator<Item = usize> {
        (0..self.len()).map(move |at| self.class(at))
    }

    /// Allocates nothing: it is called where memory may be short.
    pub(super) fn of(classes: impl Iterator<Item = usize>, version: u64) -> Self {
        let (mut word, mut listed) = (version << 44, 0);
        for class in classes {
            word |= (class as u64) << (5 * listed);
            listed += 1;
        }
        Directory(word | listed << 40)
    }

    fn next_version(self) -> u64 {
        (self.0 >> 44).wrapping_add(1) & 0xF_FFFF
    }

    pub(super) fn with(self, class: usize) -> Self {
        Self::of(self.classes().chain([class]), self.next_version())
    }

    pub(super) fn without(self, class: usize) -> Self {
        let others = self.classes().filter(|&listed| listed != class);
        Self::of(others, self.next_version())
    }
}
