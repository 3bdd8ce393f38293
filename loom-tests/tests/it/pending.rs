//! Values under tickets: each leaves once, and a stale ticket reaches no other value.

use expiry::{ManualClock, PendingEntry, PendingMap, PendingTable, Ticket};
use loom_tests::{beside, bounded, light, model, TICK};

/// A table without a reaper, of one shard, on a manual clock. One value is due after a tick.
#[derive(Clone)]
struct Rig {
    table: PendingTable<u64>,
    clock: ManualClock,
    ticket: Ticket,
}

impl Rig {
    fn new() -> Self {
        let clock = ManualClock::new();
        let builder = PendingTable::builder().interval(TICK).shards(1).seed(7);
        let table = builder.clock(clock.clone()).build_manual().unwrap();
        let ticket = table.insert(1, TICK).unwrap();
        Rig { table, clock, ticket }
    }

    fn take(&self) -> u64 {
        self.table.take(self.ticket).unwrap_or(0)
    }

    fn poll(&self) -> u64 {
        self.table.poll().into_iter().sum()
    }

    /// The sum of what a round finds, and whatever the table has left.
    fn end(&self) -> u64 {
        self.clock.advance(TICK * 100);
        let left = self.poll() + self.table.shutdown().into_iter().sum::<u64>();
        let metrics = self.table.metrics();
        let ended = metrics.taken + metrics.expired + metrics.closed;
        assert_eq!((metrics.live, metrics.inserted), (0, ended));
        left
    }
}

// Two threads take one value. Guards: the swap of the lease gives it to one of them.
model!(g1_take_and_take, || {
    let rig = Rig::new();
    let (there, here) = beside(&rig, Rig::take, Rig::take);
    assert_eq!(there + here + rig.end(), 1);
});

// A value is taken beside the round in which it expires. Guards: one swap, and the one that makes
// it reads the value that the inserting thread has written.
model!(g1_take_and_expire, || {
    let rig = Rig::new();
    rig.clock.advance(TICK);
    let (there, here) = beside(&rig, Rig::take, Rig::poll);
    assert_eq!(there + here + rig.end(), 1);
});

// An insertion beside a round. Guards: the round finds the lease, or the next one does, as the
// inserting thread finds the block taken (W5); the value expires once its time has come.
model!(g1_insert_and_poll, light, || {
    let rig = Rig::new();
    rig.clock.advance(TICK);
    let inserts = |rig: &Rig| assert!(rig.table.insert(2, TICK).is_ok());
    let ((), found) = beside(&rig, inserts, Rig::poll);
    rig.clock.advance(TICK * 2);
    assert_eq!((found + rig.poll(), rig.end()), (3, 0));
});

// A value is inserted, and another one taken, beside a shutdown. Guards: each is refused, taken or
// returned by the shutdown (W8).
model!(g1_insert_and_take_beside_a_shutdown, || {
    let rig = Rig::new();
    let uses = |rig: &Rig| {
        let refused = rig.table.insert(2, TICK).map_or_else(|refused| refused.value, |_| 0);
        refused + rig.take()
    };
    let shuts = |rig: &Rig| rig.table.shutdown().into_iter().sum::<u64>();
    let (there, here) = beside(&rig, uses, shuts);
    assert_eq!(there + here + rig.end(), 3);
});

// The generations of every slot come round, beside a thread that has the ticket of a first
// occupant. Guards: the inserting thread raises the slot's round before it stores the lease, and
// the taking thread loads the lease before the round.
model!(g1_a_generation_comes_round, || {
    let rig = Rig::new();
    assert_eq!(rig.take(), 1);
    // The block's other slot: the next insertion begins with the first one again.
    let other = rig.table.insert(2, TICK).unwrap();
    assert_eq!(rig.table.take(other), Some(2));
    rig.table.age((1 << 16) - 1, 0);
    let inserts = |rig: &Rig| assert!(rig.table.insert(3, TICK).is_ok());
    // By the thread that owns the block.
    let (stale, ()) = beside(&rig, Rig::take, inserts);
    assert_eq!((stale, rig.end()), (0, 3));
});

/// A map of one key, whose value 1 is due after a tick.
#[derive(Clone)]
struct ByKey {
    map: PendingMap<u64, u64>,
    clock: ManualClock,
}

impl ByKey {
    fn new() -> Self {
        let clock = ManualClock::new();
        let builder = PendingMap::builder().interval(TICK).shards(1).seed(7);
        let map = builder.clock(clock.clone()).build_manual().unwrap();
        assert!(map.insert(7, 1, TICK).unwrap().is_none());
        clock.advance(TICK);
        ByKey { map, clock }
    }

    fn take(&self) -> u64 {
        self.map.take(&7).unwrap_or(0)
    }

    /// What an insertion of 2 replaces, and what it gives back.
    fn insert(&self) -> u64 {
        match self.map.insert(7, 2, TICK * 10) {
            Ok(replaced) => replaced.unwrap_or(0),
            Err(refused) => refused.entry.into_value() + refused.replaced.unwrap_or(0),
        }
    }

    fn poll(&self) -> u64 {
        sum(self.map.poll())
    }

    fn shut(&self) -> u64 {
        sum(self.map.shutdown())
    }

    fn end(&self) -> u64 {
        self.clock.advance(TICK * 100);
        self.poll() + self.shut()
    }
}

fn sum(entries: Vec<PendingEntry<u64, u64>>) -> u64 {
    entries.into_iter().map(PendingEntry::into_value).sum()
}

// The value of a key is taken while another thread replaces it. Guards: each of the two values
// leaves once, by the thread that has ended its entry.
model!(g2_take_and_replace, || {
    let rig = ByKey::new();
    let (there, here) = beside(&rig, ByKey::take, ByKey::insert);
    assert_eq!(there + here + rig.end(), 3);
});

// A value is replaced beside the round in which it expires. Guards: as above.
model!(g2_replace_and_expire, bounded(1), || {
    let rig = ByKey::new();
    let (there, here) = beside(&rig, ByKey::insert, ByKey::poll);
    assert_eq!(there + here + rig.end(), 3);
});

// A value is replaced beside a shutdown. Guards: the new value is refused, or returned by the
// shutdown.
model!(g2_replace_beside_a_shutdown, || {
    let rig = ByKey::new();
    let (there, here) = beside(&rig, ByKey::insert, ByKey::shut);
    assert_eq!(there + here + rig.end(), 3);
});

// An insertion gives key and value back beside the shutdown, and a look-up that compares the key.
// Guards: the key is taken only where no thread is pinned that may have found the slot.
model!(g2_a_refused_key_beside_a_look_up, light, || {
    let rig = ByKey::new();
    let inserts = |rig: &ByKey| match rig.map.insert(8, 2, TICK * 10) {
        Ok(_) => 0,
        Err(refused) => {
            assert_eq!(*refused.entry.key(), 8);
            let pair = refused.entry.try_into_pair().or_else(|looked_at| looked_at.try_into_pair());
            pair.map_or_else(PendingEntry::into_value, |(key, value)| value + key - 8)
        }
    };
    let shuts = |rig: &ByKey| {
        let left = rig.shut();
        rig.map.contains_key(&8);
        left
    };
    let (there, here) = beside(&rig, inserts, shuts);
    assert_eq!(there + here + rig.end(), 3);
});

// All values are taken while a thread renews one. Guards: a renewal in between makes the taking
// thread look again.
model!(g2_cancel_all_beside_a_touch, || {
    let rig = ByKey::new();
    let touches = |rig: &ByKey| rig.map.touch(&7, TICK * 10).unwrap();
    let (_, taken) = beside(&rig, touches, |rig| sum(rig.map.cancel_all()));
    assert_eq!((taken, rig.end()), (1, 0));
});
