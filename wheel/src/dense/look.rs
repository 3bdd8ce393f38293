//! What the wheel holds, and when the next pop is worthwhile. These calls change nothing.

use super::records::{self, Record};
use super::{Payload, Wheel, LATE, PENDING, READY};

/// How many small buckets [`Wheel::next_expiration`] looks through at most for a living record.
const LOOKS: usize = 8;

impl<P: Payload> Wheel<P> {
    /// When the next pop is worthwhile. `None` if nothing is scheduled; [`now`](Wheel::now) if
    /// an id is due, or a bucket is half done. Otherwise a time after `now` and not after the
    /// earliest due. O(levels).
    ///
    /// It is the earliest due exactly, on whatever level that lies. There is one exception: the
    /// earliest entry of its bucket was descheduled or moved since the bucket was last visited.
    /// Then it may be earlier, and a pop at that time makes it exact again. With one unit per
    /// finest bucket it is always exact if the next event is on the finest level. A caller that
    /// sleeps until then and pops, over and over, wakes at most once per distinct due and once per
    /// removal.
    #[must_use]
    pub fn next_expiration(&self) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        if self.lists.any_in_row(0) {
            return Some(self.clock.now());
        }
        let mut head = self.lists.first_head(1)?;
        for _ in 0..LOOKS {
            let live = |record: &Record| self.nodes.is_live(record.id, record.generation);
            match self.lists.only_block(head) {
                Some(few) if !few.iter().any(live) => {}
                _ => break,
            }
            head = self.lists.first_head_from(head + 1)?;
        }
        let bound = self.lists.bound(head);
        Some(if self.clock.reached(bound) { self.clock.now() } else { bound })
    }

    /// Every scheduled id, its due, and whether it is due whatever the clock says: first what time
    /// has brought and pops have not taken yet, then the buckets in order. All of a bucket is due
    /// before all of the next.
    pub fn all(&self) -> impl Iterator<Item = (u32, u64, bool)> + '_ {
        let heads = std::iter::successors(self.lists.first_head_from(records::FIRST), |head| {
            self.lists.first_head_from(head + 1)
        });
        let lists = [(READY, true), (LATE, true), (PENDING, false)].into_iter();
        lists.chain(heads.map(|head| (head, false))).flat_map(|(head, due)| {
            let live = |record: &&Record| self.nodes.is_live(record.id, record.generation);
            let records = self.lists.iter(head).filter(live);
            records.map(move |record| (record.id, record.due, due))
        })
    }
}
