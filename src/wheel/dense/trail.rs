//! Places along a list, so that walking it need not wait for one cache miss after the other.
//!
//! A list is a chain of dependent loads: the next node is known when this one has come from memory. But a
//! bucket is filled one node at a time, and who fills it can remember a few on the way. When the
//! bucket's turn comes, scouts walk on from each of these while the front is gone through, with
//! all of their misses at once; when the front gets to the first mark, the rest is in the cache.
//!
//! Marks are hints. What they point to may have left the list since; then a scout walks elsewhere and
//! fetches in vain. Scouts only look.

/// One push in so many is looked at, over all lists. Odd, so that lists which are filled in turns all get
/// some. Much shorter lists get no marks, and are not worth the trouble.
pub(super) const EVERY: u32 = 11;

/// How many places of a list are remembered.
const MARKS: usize = 7;

/// Log of how far apart they are at most, in pushes that were looked at.
const MOST: u8 = 15;

/// Up to seven nodes of a list, roughly evenly spaced. 32 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trail {
    marks: [u32; MARKS],
    /// Pushes to be looked at until one is marked.
    until: u16,
    /// Log of the distance between marks.
    apart: u8,
    filled: u8,
}

impl Trail {
    /// That of an empty list.
    pub(super) const EMPTY: Trail = Trail {
        marks: [0; MARKS],
        until: 1,
        apart: 0,
        filled: 0,
    };

    /// The list was empty until now.
    #[inline]
    pub(super) fn begin(&mut self) {
        if self.filled != 0 {
            *self = Trail::EMPTY;
        }
    }

    /// `node` is the end of the list.
    #[cold]
    #[inline(never)]
    pub(super) fn look_at(&mut self, node: u32) {
        self.until -= 1;
        if self.until > 0 {
            return;
        }
        if usize::from(self.filled) == MARKS {
            // Every other one stays: those at 2, 4 and 6 times the distance.
            self.marks = [self.marks[1], self.marks[3], self.marks[5], 0, 0, 0, 0];
            self.filled = 3;
            self.apart = MOST.min(self.apart + 1);
        }
        self.marks[usize::from(self.filled)] = node;
        self.filled += 1;
        self.until = 1 << self.apart;
    }
}

/// Where the scouts of one list are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scouts {
    at: [u32; MARKS],
    /// How many steps each has before it gets to where the next one began, more or less.
    steps: u32,
    count: u8,
}

impl Scouts {
    /// Nobody walks.
    pub(super) const NONE: Scouts = Scouts {
        at: [0; MARKS],
        steps: 0,
        count: 0,
    };

    /// One at each mark.
    pub(super) fn along(trail: &Trail) -> Scouts {
        Scouts {
            at: trail.marks,
            steps: if trail.filled == 0 {
                0
            } else {
                EVERY << trail.apart
            },
            count: trail.filled,
        }
    }

    /// Each goes a step, to what `next` says.
    #[inline]
    pub(super) fn step(&mut self, next: impl Fn(u32) -> Option<u32>) {
        if self.steps > 0 {
            self.steps -= 1;
            for at in &mut self.at[..usize::from(self.count)] {
                if let Some(next) = next(*at) {
                    *at = next;
                }
            }
        }
    }
}
