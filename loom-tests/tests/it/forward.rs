//! Replacement beside growth, expiry and reclamation: a map's forwarded slots, through its public
//! interface.

use expiry::model::stop_at;
use expiry::{ExpiringMap, ExpiringMapBuilder, Lifetimes, ManualClock};
use loom_tests::{after, aside, at_once, beside, bounded, costly, large, model, thread, TICK};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

type Builder = ExpiringMapBuilder<u64, u64>;

/// A map of one shard without a reaper.
#[derive(Clone)]
struct Rig {
    map: Arc<ExpiringMap<u64, u64>>,
    clock: ManualClock,
}

fn live(ticks: u32) -> Lifetimes {
    Lifetimes::new().live(after(ticks))
}

impl Rig {
    fn with(settings: impl FnOnce(Builder) -> Builder) -> Self {
        let clock = ManualClock::new();
        let builder = ExpiringMap::builder().interval(TICK).shards(1).seed(7);
        let builder = settings(builder.clock(clock.clone()));
        Rig { map: Arc::new(builder.build_manual().unwrap()), clock }
    }

    fn grown(keys: [u64; 3], ticks: u32) -> Self {
        let rig = Rig::with(|builder| builder);
        rig.fill(keys, ticks);
        rig
    }

    /// Three keys, of which two fill the first table: the last one is in a second table.
    fn fill(&self, keys: [u64; 3], ticks: u32) {
        for key in keys {
            self.put(key, 10 * key, ticks);
        }
        assert_eq!(self.tables(), 2);
    }

    /// Gives a key this value, for so many ticks. Drops the value that it had.
    fn put(&self, key: u64, value: u64, ticks: u32) {
        drop(self.map.insert_for(key, value, live(ticks)).unwrap());
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.map.get(&key).map(|value| *value)
    }

    fn tables(&self) -> u64 {
        self.map.metrics().total.tables
    }

    fn drive(&self) {
        while self.map.poll(usize::MAX).more {}
    }
}

// An inserting thread replaces a value while the migrating thread has a copy of its word in hand.
// The copy names the old slot, which waits to be freed. Guards: such a slot still leads to the new
// one, so a list of slots does not link it through its lease.
model!(a_value_replaced_beside_a_copy, costly(1, 2), || {
    let rig = at_once(|| Rig::grown([1, 2, 3], 20));
    let a = aside(&rig, |rig| {
        at_once(|| rig.put(1, 11, 20));
        assert_eq!(rig.get(1), Some(11));
    });
    rig.drive();
    a.join().unwrap();
    assert_eq!(rig.get(1), Some(11));
    assert_eq!(rig.tables(), 1);
});

// A value is replaced twice while the migrating thread has a copy of its word in hand. Then the
// migrating thread takes the old word, and stalls. The copy, the only word left, names the first
// value's slot. A look-up finds the third value by it, and a removal takes it away. Guards: a
// look-up follows all forwards, and a removal takes a word that leads to its slot.
model!(changes_beside_a_copy, bounded(2), || {
    let rig = at_once(|| Rig::grown([1, 2, 3], 20));
    let a = aside(&rig, |rig| {
        at_once(|| {
            rig.put(1, 11, 20);
            rig.put(1, 12, 20);
        });
        // This switch is no interruption.
        thread::yield_now();
        at_once(|| {
            assert_eq!(rig.get(1), Some(12));
            let removed = rig.map.remove(&1).map(|ended| *ended.value());
            assert_eq!(removed, Some(12));
        });
    });
    rig.drive();
    a.join().unwrap();
    assert_eq!(rig.get(1), None);
    assert_eq!(rig.tables(), 1);
});

// A walk while a value is replaced, and the migrating thread moves the keys of the old table to the
// young one. Guards: a walk follows forwards in old tables and in young ones.
model!(a_walk_beside_a_replacement_and_a_migration, bounded(1), || {
    let rig = at_once(|| Rig::grown([1, 2, 3], 20));
    let a = aside(&rig, |rig| at_once(|| rig.put(1, 11, 20)));
    let b = aside(&rig, |rig| rig.drive());
    let mut met: Vec<u64> = rig.map.iter().map(|entry| *entry.key()).collect();
    met.sort_unstable();
    assert_eq!(met, [1, 2, 3]);
    a.join().unwrap();
    b.join().unwrap();
});

// A thread frees a slot while another thread looks for one. Guards: the payload is out of the slot
// before the slot is free.
model!(a_slot_is_free_once_its_payload_is_out, bounded(1), || {
    let rig = at_once(|| Rig::with(|builder| builder));
    let other = rig.clone();
    let a = thread::spawn(move || {
        at_once(|| {
            // The only two slots of the only chunk.
            (1..=2).for_each(|key| other.put(key, 10 * key, 20));
            drop(other.map.remove(&1));
        });
        thread::yield_now();
        at_once(|| other.put(3, 30, 20));
    });
    // The other thread begins.
    thread::yield_now();
    rig.map.flush(Duration::ZERO);
    a.join().unwrap();
    assert_eq!(rig.get(3), Some(30));
});

/// A replacing thread stalls after its swap of the lease, and the driver comes to the new value,
/// which is due. The driver stalls at `step`. The replacing thread goes on, frees the old slot if
/// it may, and inserts the key once more. Then the driver goes on. `fill` inserts key 1, for five
/// ticks. The next slot is in the same slot block, so that the driver comes to it.
fn an_expiry_beside_a_replacement(step: &'static str, fill: fn(&Rig)) {
    // Threads take turns only where they yield.
    loom::stop_exploring();
    let stops = ["forwarded", step];
    let stopped = Cell::new(0);
    stop_at(move |step| {
        let stops = stops.get(stopped.get()) == Some(&step);
        stopped.set(stopped.get() + usize::from(stops));
        stops
    });
    let rig = Rig::with(|builder| builder);
    let a = aside(&rig, move |rig| {
        fill(rig);
        rig.put(1, 11, 5);
        // Whether it sees that the driver is not pinned is left to the checker.
        loom::explore();
        rig.map.flush(Duration::ZERO);
        loom::stop_exploring();
        rig.put(1, 12, 20);
    });
    thread::yield_now();
    rig.clock.advance(TICK * 5);
    rig.map.poll(usize::MAX);
    a.join().unwrap();
    stop_at(|_| false);
    assert_eq!(rig.get(1), Some(12));
}

// Guards: the driver swings the word before it ends the entry. The replacing thread swings no word
// to a slot that has ended: the old slot would be free while the word names it.
model!(an_entry_expires_under_its_own_word, bounded(1), || {
    // With a second table no thread knows the place of the word.
    an_expiry_beside_a_replacement("expired", |rig| rig.fill([2, 3, 1], 5));
});

// Guards: the driver is pinned while it swings the word. The old slot could have the key's next
// value by then, and the word would name the ended one.
model!(the_driver_is_pinned_as_it_swings, bounded(1), || {
    // The old slot is the first one that is free again.
    an_expiry_beside_a_replacement("led", |rig| rig.put(1, 10, 5));
});

// A thread has filled a slot, and the index has not named it, when the driver comes to its block
// and another thread has the key's entry. The filling thread takes key and value out again. Guards:
// the driver, which ends a block as one, leaves alone what the index does not name.
model!(a_block_ends_beside_an_insertion_in_vain, bounded(1), || {
    let rig = at_once(|| Rig::with(|builder| builder));
    let a = aside(&rig, |rig| {
        // The driver looks at the block for this key's sake.
        at_once(|| rig.put(2, 20, 5));
        rig.put(1, 10, 5);
    });
    thread::yield_now();
    rig.put(1, 11, 20);
    rig.clock.advance(TICK * 5);
    rig.drive();
    a.join().unwrap();
    loom::stop_exploring();
    rig.drive();
    let there = [1, 2].into_iter().filter(|&key| rig.get(key).is_some()).count();
    assert_eq!(rig.map.len(), there, "what never was an entry has ended");
});

// The driver hands over a block's slots as one chain, while another thread takes the list. Guards:
// the last slot of the chain leads to what the list held before.
model!(a_chain_handed_over_beside_a_flush, large, || {
    let rig = at_once(|| {
        let rig = Rig::with(|builder| builder);
        rig.put(1, 10, 5);
        rig.put(2, 20, 5);
        rig.put(3, 30, 20);
        drop(rig.map.remove(&3));
        rig.clock.advance(TICK * 5);
        rig
    });
    let flush = |rig: &Rig| rig.map.flush(Duration::ZERO);
    beside(&rig, |rig| rig.map.poll(usize::MAX), flush);
    loom::stop_exploring();
    for _ in 0..4 {
        rig.clock.advance(TICK * 16);
        rig.drive();
    }
    let metrics = rig.map.metrics();
    assert_eq!((rig.map.len(), metrics.unreclaimed), (0, 0), "no driver knows of it");
});
