//! Filing: a record goes to the end of the list that due and cursor name (W-place, W-bound).

use super::records::Record;
use super::{Payload, Wheel, LATE};

impl<P: Payload> Wheel<P> {
    /// Puts a new record where it belongs.
    #[inline]
    pub(super) fn enter(&mut self, record: Record) {
        self.clock.catch_up();
        if self.clock.has_come(record.due) {
            self.enter_due(record);
        } else {
            self.file(record);
        }
        if self.lists.records() > self.most {
            self.sweep();
        }
    }

    /// [`enter`](Wheel::enter), for a record that is due already.
    #[cold]
    fn enter_due(&mut self, record: Record) {
        // Between the cursor's bucket and now there may be a backlog: there a record has its
        // regular place although it is due. In the cursor's own bucket it has not: a caller that
        // keeps scheduling for that bucket would keep it from ever becoming empty.
        if self.clock.is_in_backlog(record.due) {
            self.file(record);
        } else {
            self.lists.push(LATE, record);
            self.clock.stay_awake();
        }
    }

    /// Files a new record, and keeps W-wake.
    #[inline]
    fn file(&mut self, record: Record) {
        let (head, first) = self.put(record);
        if first {
            self.clock.wake_by(self.clock.begins(head, record.due));
        }
    }

    /// Puts a record where its due and the cursor say, and keeps W-bound. Returns the head, and
    /// whether it is the first due there.
    #[inline]
    pub(super) fn put(&mut self, record: Record) -> (u32, bool) {
        let due = record.due;
        let head = self.clock.head(due);
        let first = self.lists.push(head, record)
            || self.clock.ahead(due) < self.clock.ahead(self.lists.bound(head));
        if first {
            self.lists.set_bound(head, due);
        }
        (head, first)
    }
}
