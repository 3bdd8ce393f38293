//! A `BTreeMap` ordered by deadline, with a number to tell equal ones apart: the name of a timer is its key.

use super::Timers;
use std::collections::BTreeMap;

/// `BTreeMap<(deadline, number), value>`.
pub struct BTree {
    timers: BTreeMap<(u64, u64), u64>,
    next: u64,
}

impl Timers for BTree {
    const NAME: &'static str = "BTreeMap";
    type Id = (u64, u64);

    fn with<R>(f: impl FnOnce(Self) -> R) -> R {
        f(BTree { timers: BTreeMap::new(), next: 0 })
    }

    #[inline]
    fn schedule(&mut self, deadline: u64, value: u64) -> (u64, u64) {
        let id = (deadline, self.next);
        self.next += 1;
        self.timers.insert(id, value);
        id
    }

    #[inline]
    fn reschedule(&mut self, id: &mut (u64, u64), deadline: u64, _value: u64) {
        let value = self.timers.remove(id).expect("is there");
        id.0 = deadline;
        self.timers.insert(*id, value);
    }

    #[inline]
    fn cancel(&mut self, id: (u64, u64)) -> bool {
        self.timers.remove(&id).is_some()
    }

    #[inline]
    fn advance(&mut self, now: u64, mut fired: impl FnMut(u64)) {
        while let Some(first) = self.timers.first_entry() {
            if first.key().0 > now {
                break;
            }
            fired(first.remove());
        }
    }
}
