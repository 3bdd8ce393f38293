//! Popping: what time has brought, one unit of work at a time.
//!
//! The head of [the module](super) has the steps ("Moving the cursor"), and says why each leaves
//! the wheel whole ("No callbacks").

use super::records::{self, Record};
use super::{Payload, Wheel, LATE, PENDING, READY};

/// What one step of [`Wheel::pop`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Pop {
    /// This id was due and is no longer scheduled.
    Due {
        /// The id given to [`Wheel::schedule`].
        id: u32,
        /// The deadline given to [`Wheel::schedule`].
        due: u64,
    },
    /// Nothing that is scheduled is due; all work that time had brought is done.
    Idle,
    /// The work allowance is used up and there is more to do. Nothing is lost: pop again.
    Budget,
}

impl<P: Payload> Wheel<P> {
    /// Moves the clock to `now` and takes one step: a due id, or the news that there is none.
    ///
    /// Call it with the same `now` until it says [`Pop::Idle`]; then everything due at `now` has
    /// been handed out. The caller may use the wheel freely between two pops. Never hands out
    /// an id before its due. A `now` earlier than one seen before fires nothing and moves
    /// nothing.
    ///
    /// **Budget.** Every id handed out, record dropped or refiled and bucket visited takes 1 from
    /// `work`; when there is none left and something to do, the answer is [`Pop::Budget`] and the
    /// next pop continues at that point. Any allowance above 0 makes progress.
    ///
    /// **Order.** Ids that were scheduled ahead of time come in ascending order of finest bucket
    /// (`due >> shift`), over all pops, whatever the budgets; with one unit per bucket that is the
    /// order of dues. In one bucket they come first in, first out, with two exceptions: what
    /// was scheduled during an interrupted cascade may overtake its elders, and one that is not
    /// due yet when its coarse bucket is looked at comes later. An id that was due when
    /// scheduled comes no later than the next bucket after the one being fired, or in its own
    /// turn if that is ahead.
    ///
    /// **Cost.** O(1) plus the work taken; O(levels) per visited bucket and for `Idle`.
    #[inline]
    pub fn pop(&mut self, now: u64, work: &mut usize) -> Pop {
        if self.clock.rests(now) {
            return Pop::Idle;
        }
        self.work(now, work)
    }

    /// [`pop`](Wheel::pop), where there may be something to do.
    fn work(&mut self, now: u64, work: &mut usize) -> Pop {
        if self.clock.is_past(now) {
            return Pop::Idle;
        }
        self.clock.advance(now);
        if self.len == 0 {
            if !self.lists.are_made() {
                self.clock.skip_to(now);
                return Pop::Idle;
            }
            self.lists.clear();
        }
        loop {
            if let Some(pop) = self.fire_ready(work) {
                return pop;
            }
            if let Some(pop) = self.file_pending(work) {
                return pop;
            }
            // The round is over. Late entries go first in the next one, but do not take the place
            // of the next bucket: otherwise a caller that schedules the past starves the present.
            self.lists.splice(LATE, READY);
            match self.next_visit() {
                Some((head, from)) if self.clock.reached(from) => {
                    if !take(work) {
                        return Pop::Budget;
                    }
                    self.visit(head);
                }
                next => {
                    self.clock.step_to_now();
                    if self.lists.is_empty(READY) {
                        if self.clock.now() == now {
                            self.clock.rest_until(next.map(|(_, from)| from));
                            return Pop::Idle;
                        }
                        self.clock.advance(now);
                    }
                }
            }
        }
    }

    /// Fires the next of what is known to be due. `None` if there is no more.
    #[inline]
    fn fire_ready(&mut self, work: &mut usize) -> Option<Pop> {
        while !self.lists.is_empty(READY) {
            if !take(work) {
                return Some(Pop::Budget);
            }
            if let Some(pop) = self.fire(READY) {
                return Some(pop);
            }
        }
        None
    }

    /// Files what was taken off a bucket, or fires it if it is due now. `None` when all is filed.
    #[inline]
    fn file_pending(&mut self, work: &mut usize) -> Option<Pop> {
        while let Some(first) = self.lists.first(PENDING) {
            if *work == 0 {
                return Some(Pop::Budget);
            }
            if !self.clock.is_now(first.due) {
                self.file_block(work);
                continue;
            }
            *work -= 1;
            if let Some(pop) = self.fire(PENDING) {
                return Some(pop);
            }
        }
        None
    }

    /// Files or drops the first pending block, as far as the work goes and up to what is due now.
    #[inline]
    fn file_block(&mut self, work: &mut usize) {
        // A copy: there is nothing to look up again between one record and the next.
        let Some(block) = self.lists.first_block(PENDING) else {
            return;
        };
        // Where most are dead, a look at each node costs less than filing them on every level.
        let sifts = self.lists.records() > 2 * self.len;
        if sifts {
            for record in block.records() {
                self.nodes.fetch(record.id);
            }
        }
        let mut filed = 0;
        for record in block.records().iter().take(*work) {
            if self.clock.is_now(record.due) {
                break;
            }
            filed += 1;
            if sifts && !self.nodes.is_live(record.id, record.generation) {
                continue;
            }
            let (head, _) = self.put(*record);
            if records::row(head) == 1 {
                // It is next looked at when it fires.
                self.nodes.fetch(record.id);
            }
        }
        *work -= filed;
        self.lists.drop_first(PENDING, filed);
    }

    /// Takes the first record of a list, which is due; unless it is dead, its id's schedule, too.
    #[inline]
    fn fire(&mut self, head: u32) -> Option<Pop> {
        if let Some(ahead) = self.lists.ahead(head) {
            self.nodes.fetch(ahead);
        }
        let Record { due, id, generation } = self.lists.pop(head)?;
        if !self.nodes.is_live(id, generation) {
            return None;
        }
        self.end(id);
        self.len -= 1;
        Some(Pop::Due { id, due })
    }

    /// The head of the earliest bucket, and when it has work. `None` if all buckets are empty.
    #[inline]
    fn next_visit(&self) -> Option<(u32, u64)> {
        let head = self.lists.first_head(1)?;
        Some((head, self.clock.begins(head, self.lists.bound(head))))
    }

    /// Steps the cursor to the bucket's bound or to now, the earlier one, and takes its list off.
    #[inline]
    fn visit(&mut self, head: u32) {
        let all_due = self.clock.step_to(head, self.lists.bound(head));
        self.lists.splice(head, if all_due { READY } else { PENDING });
    }
}

#[inline]
fn take(work: &mut usize) -> bool {
    match work.checked_sub(1) {
        Some(left) => {
            *work = left;
            true
        }
        None => false,
    }
}
