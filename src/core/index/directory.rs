//! The directory: which tables there are, in one word.

/// The directory: classes by age, the youngest last, five bits each from the low end; then their
/// number (4 bits); then a version that every change counts up.
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

    /// The only class, if there is one only.
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

    pub(super) fn build(classes: &[usize], version: u64) -> Self {
        let mut word = (classes.len() as u64) << 40 | version << 44;
        for (at, &class) in classes.iter().enumerate() {
            word |= (class as u64) << (5 * at);
        }
        Directory(word)
    }

    pub(super) fn with(self, class: usize) -> Self {
        let classes: Vec<usize> = self.classes().chain([class]).collect();
        Self::build(&classes, (self.0 >> 44).wrapping_add(1) & 0xF_FFFF)
    }

    pub(super) fn without(self, class: usize) -> Self {
        let classes: Vec<usize> = self.classes().filter(|&listed| listed != class).collect();
        Self::build(&classes, (self.0 >> 44).wrapping_add(1) & 0xF_FFFF)
    }
}
