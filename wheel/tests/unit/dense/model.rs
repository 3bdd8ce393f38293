//! The oracle: deadlines on an endless line of `i128`, sorted in a tree, and a wheel beside it.
//!
//! The line has no wrap and the tree has no levels, so what it says about which ids are due is
//! independent of how the wheel finds out. Bits of the clock are made from the line only when the
//! wheel is called.

use super::{keeps_up, validate, Geometry, Pop, Wheel};
use std::collections::{BTreeMap, BTreeSet};

struct Entry {
    due: i128,
    /// Was due already when it was scheduled: exempt from the order.
    late: bool,
}

pub(super) struct Model {
    pub(super) wheel: Wheel,
    origin: u64,
    granularity: i128,
    pub(super) now: i128,
    entries: BTreeMap<u32, Entry>,
    by_due: BTreeSet<(i128, u32)>,
    /// Finest bucket of the latest entry that was fired in its turn.
    reached: i128,
    pub(super) fired: usize,
    pub(super) removals: usize,
    pub(super) work: usize,
}

impl Model {
    pub(super) fn new(geometry: Geometry, origin: u64) -> Model {
        Model {
            wheel: Wheel::new(geometry, origin),
            origin,
            granularity: i128::from(geometry.granularity()),
            now: 0,
            entries: BTreeMap::new(),
            by_due: BTreeSet::new(),
            reached: i128::MIN,
            fired: 0,
            removals: 0,
            work: 0,
        }
    }

    /// The clock's bits for a point of the line.
    fn bits(&self, t: i128) -> u64 {
        self.origin.wrapping_add(t as u64)
    }

    pub(super) fn schedule(&mut self, id: u32, due: i128) {
        self.forget(id);
        self.by_due.insert((due, id));
        let late = due <= self.now;
        self.entries.insert(id, Entry { due, late });
        self.wheel.schedule(id, self.bits(due));
        self.check(id);
    }

    pub(super) fn cancel(&mut self, id: u32) {
        let expected = self.forget(id);
        assert_eq!(self.wheel.cancel(id), expected);
        assert!(!self.wheel.cancel(id), "descheduling is idempotent");
        self.check(id);
    }

    fn forget(&mut self, id: u32) -> bool {
        match self.entries.remove(&id) {
            Some(entry) => {
                self.removals += 1;
                self.by_due.remove(&(entry.due, id))
            }
            None => false,
        }
    }

    /// One pop at `now`, which may be in the past, checked against the tree.
    pub(super) fn pop(&mut self, now: i128, allowance: usize) -> Pop {
        let backwards = now < self.now;
        self.now = self.now.max(now);
        let mut work = allowance;
        let pop = self.wheel.pop(self.bits(now), &mut work);
        self.work += allowance - work;
        match pop {
            Pop::Due { id, due } => {
                assert!(!backwards, "fired while time went backwards");
                assert!(work < allowance, "an id is work");
                let entry = self.entries.remove(&id).expect("fired twice or unknown");
                self.by_due.remove(&(entry.due, id));
                assert_eq!(due, self.bits(entry.due));
                assert!(entry.due <= self.now, "early");
                if !entry.late {
                    let low = i128::from(due) % self.granularity;
                    let bucket = entry.due - low;
                    assert!(bucket >= self.reached, "out of order");
                    self.reached = bucket;
                }
                self.fired += 1;
                self.check(id);
            }
            Pop::Idle if backwards => assert_eq!(work, allowance),
            Pop::Idle => {
                let first = self.by_due.first();
                assert!(first.map_or(true, |&(due, _)| due > self.now), "left over");
                assert!(keeps_up(&self.wheel));
                self.check(0);
            }
            Pop::Budget => {
                assert_eq!(work, 0, "stopped before the budget was used up");
                assert!(!self.wheel.is_empty());
                self.check(0);
            }
        }
        pop
    }

    pub(super) fn drain(&mut self, now: i128) {
        while self.pop(now, usize::MAX) != Pop::Idle {}
    }

    fn check(&self, id: u32) {
        let wheel = &self.wheel;
        validate(wheel);
        let due = self.entries.get(&id).map(|entry| self.bits(entry.due));
        assert_eq!(wheel.due(id), due);
        assert_eq!(wheel.len(), self.entries.len());
        assert_eq!(wheel.is_empty(), self.entries.is_empty());
        assert_eq!(wheel.now(), self.bits(self.now));
        let first = self.by_due.first().map(|&(due, _)| due);
        let next = self.next_expiration();
        assert_eq!(next.is_some(), first.is_some());
        if let (Some(next), Some(first)) = (next, first) {
            assert!(next >= self.now, "a wake-up in the past");
            assert!(next <= first.max(self.now), "a wake-up too late");
        }
    }

    /// The wheel's answer as a point of the line.
    pub(super) fn next_expiration(&self) -> Option<i128> {
        let next = self.wheel.next_expiration()?;
        let ahead = next.wrapping_sub(self.wheel.now());
        Some(self.now + i128::from(ahead as i64))
    }

    /// How many different deadlines there are.
    pub(super) fn distinct(&self) -> usize {
        let dues: BTreeSet<_> = self.by_due.iter().map(|&(due, _)| due).collect();
        dues.len()
    }

    pub(super) fn first_due(&self) -> Option<i128> {
        self.by_due.first().map(|&(due, _)| due)
    }
}
