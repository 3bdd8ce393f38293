//! Replacement beside growth: an index whose words are swung from slot to slot while they are
//! migrated. The slots are a model's own; the index is the real one.

use expiry::model::{Index, Inserted, Seen};
use loom::sync::atomic::{AtomicU32, Ordering};
use loom_tests::{aside, at_once, beside, bounded, costly, deep, large, light, model, thread};
use std::sync::{Arc, Mutex};

/// The hash of the one key that there is, in all models but one.
const HASH: u32 = 5;

/// The hash of another key, which has the same index bucket in each table.
const NEIGHBOUR: u32 = HASH + (1 << 16);

/// A slot that has ended.
const DEAD: u32 = u32::MAX;

/// An index with one key, whose entry is in slot 1, and the leases of the slots. A lease of 0 is
/// live; another number is the slot that this one is forwarded to.
#[derive(Clone)]
struct Rig {
    index: Arc<Index>,
    leases: Arc<[AtomicU32; 5]>,
}

impl Rig {
    fn new() -> Self {
        Rig::with(|_| ())
    }

    /// As [`new`](Self::new), but `prepare` runs on the index before the key is put in.
    fn with(prepare: impl FnOnce(&Index)) -> Self {
        let rig = Rig {
            index: Arc::new(Index::new()),
            leases: Arc::new(std::array::from_fn(|_| AtomicU32::new(0))),
        };
        prepare(&rig.index);
        assert_eq!(rig.index.insert(HASH, 1, |_| false), Inserted::Done);
        rig
    }

    /// A former occupant of a slot has left this lease.
    fn leave(&self, slot: u32, lease: u32) {
        self.leases[slot as usize].store(lease, Ordering::Release);
    }

    /// Puts a live entry into a slot that only the calling thread uses.
    fn fill(&self, slot: u32) {
        self.leases[slot as usize].store(0, Ordering::Release);
    }

    fn lease(&self, slot: u32) -> u32 {
        self.leases[slot as usize].load(Ordering::Acquire)
    }

    /// The slot that a slot leads to, and the lease that ends the way there.
    fn end(&self, mut slot: u32) -> (u32, u32) {
        loop {
            match self.lease(slot) {
                lease @ (0 | DEAD) => return (slot, lease),
                next => slot = next,
            }
        }
    }

    fn tail(&self, slot: u32) -> u32 {
        self.end(slot).0
    }

    fn is_live(&self, slot: u32) -> bool {
        self.lease(slot) == 0
    }

    fn swap(&self, slot: u32, to: u32) -> bool {
        let lease = &self.leases[slot as usize];
        lease.compare_exchange(0, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn swing(&self, target: u32) {
        self.swing_seen(None, target);
    }

    fn swing_seen(&self, seen: Option<Seen<'_>>, target: u32) {
        let tail = |slot| self.tail(slot);
        self.index.swing(HASH, seen, target, tail, || self.is_live(target));
    }

    /// The slot that the index names, once that is a live one: as the keyed stores look a key up.
    fn find(&self) -> Option<u32> {
        loop {
            let mut forwarded = None;
            let found = self.index.find(HASH, |slot| {
                let (tail, lease) = self.end(slot);
                forwarded = (tail != slot).then_some(tail);
                lease == 0
            });
            match forwarded.filter(|_| found.is_some()) {
                Some(tail) => self.swing(tail),
                None => return found,
            }
        }
    }

    /// Gives the entry a new value in slot `new`, if it is there.
    fn replace(&self, new: u32) -> bool {
        self.fill(new);
        while let Some(old) = self.find() {
            if self.swap(old, new) {
                self.swing(new);
                return true;
            }
        }
        false
    }

    /// As [`replace`](Self::replace), as a store does it that has seen the word in its index
    /// bucket.
    fn replace_seen(&self, new: u32) -> bool {
        let pin = self.index.pin();
        self.fill(new);
        while let Some(old) = self.find() {
            let seen = self.index.seen(&pin, HASH, old);
            if self.swap(old, new) {
                self.swing_seen(seen, new);
                return true;
            }
        }
        false
    }

    /// Removes the entry, if it is there.
    fn remove(&self) -> bool {
        while let Some(slot) = self.find() {
            if self.swap(slot, DEAD) {
                self.index.remove_forwarded(HASH, slot, None, |slot| self.tail(slot));
                return true;
            }
        }
        false
    }

    /// As [`remove`](Self::remove), as a store does it that has seen the word in its index bucket.
    fn remove_seen(&self) -> bool {
        let pin = self.index.pin();
        while let Some(slot) = self.find() {
            let seen = self.index.seen(&pin, HASH, slot);
            if self.swap(slot, DEAD) {
                self.index.remove_forwarded(HASH, slot, seen, |slot| self.tail(slot));
                return true;
            }
        }
        false
    }

    /// Makes the index name a live slot, as the driver does before it ends the entry there. Returns
    /// whether the index leads to that slot.
    fn reach(&self, slot: u32) -> bool {
        let pin = self.index.pin();
        let found = self.index.find(HASH, |id| self.tail(id) == slot);
        if found.is_some_and(|id| id != slot) {
            self.swing(slot);
        }
        drop(pin);
        found.is_some()
    }

    fn migrate(&self, budget: usize) -> bool {
        self.index.migrate_forwarded(budget, |slot| self.tail(slot))
    }

    /// All slots that the index names, of tables that are listed.
    fn all(&self) -> Vec<u32> {
        let mut all = Vec::new();
        self.index.find(HASH, |slot| {
            all.push(slot);
            false
        });
        all
    }
}

/// The index grows, and a thread does something while another one migrates the word.
fn beside_a_migration<T: 'static>(rig: &Rig, does: impl FnOnce(&Rig) -> T + 'static) -> T {
    rig.index.grow();
    let (done, _) = beside(rig, does, |rig| rig.migrate(100));
    while rig.migrate(100) {}
    done
}

// A word is swung while it is migrated. Guards: the migrating thread takes the old word by a swap,
// and corrects its copy.
model!(a_swing_beside_a_migration, || {
    let rig = Rig::new();
    assert!(beside_a_migration(&rig, |rig| rig.replace(2)));
    assert_eq!(rig.all(), [2]);
    assert_eq!(rig.index.tables(), 1);
});

/// A replacing thread swings the word where it saw it, while the index begins to grow. Guards: it
/// swaps the word by a compare-and-swap, which fails where the migrating thread has taken the word.
#[test]
fn a_swing_at_home_beside_a_migration() {
    for replaces_again in [false, true] {
        costly("a_swing_at_home_beside_a_migration", 1, 3, move || {
            let rig = Rig::new();
            let a = aside(&rig, move |rig| {
                assert!(rig.replace_seen(2));
                assert!(!replaces_again || rig.replace_seen(3));
            });
            rig.index.grow();
            rig.migrate(100);
            a.join().unwrap();
            while rig.migrate(100) {}
            assert_eq!(rig.all(), [rig.tail(1)]);
            assert_eq!(rig.index.tables(), 1);
        });
    }
}

/// A thread takes the word away where it saw it, in the old table or the young one, while another
/// thread migrates it once or twice. Guards: it takes the word by a swap of the header, which fails
/// where the migrating thread has closed the home or taken the bit.
#[test]
fn a_removal_at_home_beside_a_migration() {
    for times in [1, 2] {
        costly("a_removal_at_home_beside_a_migration", 1, 3, move || {
            let rig = Rig::new();
            rig.index.grow();
            let a = aside(&rig, |rig| rig.remove_seen());
            rig.migrate(100);
            if times == 2 {
                rig.index.grow();
                rig.migrate(100);
            }
            assert!(a.join().unwrap());
            while rig.migrate(100) {}
            assert_eq!(rig.all(), []);
            assert_eq!(rig.index.tables(), 1);
        });
    }
}

/// A replacing thread swings the word where it saw it, while another thread replaces the value once
/// more, or removes it. Guards: it swaps the word by a compare-and-swap with the slot that it saw.
#[test]
fn a_swing_at_home_beside_another_change() {
    model("a_swing_at_home_beside_a_replacement", || {
        let rig = Rig::new();
        let (a, _) = beside(&rig, |rig| rig.replace_seen(2), |rig| assert!(rig.replace_seen(3)));
        assert!(a);
        assert_eq!(rig.all(), [rig.tail(1)]);
    });
    model("a_swing_at_home_beside_a_removal", || {
        let rig = Rig::new();
        let (replaced, removed) = beside(&rig, |rig| rig.replace_seen(2), |rig| rig.remove());
        assert!(removed);
        assert_eq!((rig.all(), replaced), (vec![], rig.tail(1) == 2));
    });
}

// The same twice. Guards: the migrating thread corrects the copy until it names the slot that it
// leads to.
model!(two_swings_beside_a_migration, deep(1), || {
    let rig = Rig::new();
    rig.index.grow();
    let a = aside(&rig, |rig| rig.replace(2));
    let (b, _) = beside(&rig, |rig| rig.replace(3), |rig| rig.migrate(100));
    assert!(a.join().unwrap() && b);
    while rig.migrate(100) {}
    assert_eq!(rig.all(), [rig.tail(1)]);
});

// An entry is replaced and removed while its word is migrated. Guards: a copy is withdrawn by its
// place; a removal takes the word that leads to its slot; a swing asks after each table whether its
// target is live.
model!(a_swing_and_a_removal_beside_a_migration, deep(1), || {
    let rig = Rig::new();
    rig.index.grow();
    let a = aside(&rig, |rig| rig.replace(2));
    let b = aside(&rig, |rig| rig.remove());
    rig.migrate(100);
    a.join().unwrap();
    assert!(b.join().unwrap());
    while rig.migrate(100) {}
    assert_eq!(rig.all(), []);
    assert_eq!(rig.index.tables(), 1);
});

// A look-up beside a replacement and a migration finds one of the two values. Guards: a look-up
// reads the word again after the look into its slot.
model!(a_look_up_beside_a_swing_and_a_migration, deep(1), || {
    let rig = Rig::new();
    rig.index.grow();
    let a = aside(&rig, |rig| rig.replace(2));
    let b = aside(&rig, |rig| rig.find());
    rig.migrate(100);
    assert!(a.join().unwrap());
    assert!(matches!(b.join().unwrap(), Some(1 | 2)));
});

// Two replacements and a removal, without growth. Guards: the lease decides, and only one word
// leads to an entry.
model!(two_replacements_and_a_removal, bounded(1), || {
    let rig = Rig::new();
    let a = aside(&rig, |rig| rig.replace(2));
    beside(&rig, |rig| rig.replace(3), |rig| assert!(rig.remove()));
    a.join().unwrap();
    assert_eq!(rig.all(), []);
});

// One of two replacing threads is late with its swing: the index names the other thread's slot
// already. Guards: a swing changes only a word that leads to its target, and by a compare-and-swap.
model!(a_late_swing, || {
    let rig = Rig::new();
    let (a, _) = beside(&rig, |rig| rig.replace(2), |rig| assert!(rig.replace(3)));
    assert!(a);
    assert_eq!(rig.all(), [rig.tail(1)]);
});

// As [`a_late_swing`]. A former occupant of slot 3 was forwarded to slot 2. The late thread looks
// for its word while another value moves into slot 3. Guards: a swing reads the word with Acquire,
// so it sees the lease of the slot's present occupant.
//
// An older table, which is empty, is in the directory too. After it the late thread looks whether
// slot 2 is live. There both threads change `met`, so loom tries the other thread first. (After a
// `yield_now` loom shows the late thread no old value that it has seen before.)
model!(a_late_swing_beside_a_reused_slot, || {
    let rig = Rig::with(|index| assert!(index.grow()));
    rig.leave(3, 2);
    assert_eq!(rig.index.tables(), 2);
    let met = Arc::new(AtomicU32::new(0));
    let (other, meets) = (rig.clone(), met.clone());
    let a = thread::spawn(move || {
        other.fill(2);
        if other.swap(1, 2) {
            let is_live = || {
                meets.fetch_add(1, Ordering::Relaxed);
                other.is_live(2)
            };
            let tail = |slot| other.tail(slot);
            other.index.swing(HASH, None, 2, tail, is_live);
        }
    });
    assert!(rig.replace(3));
    met.fetch_add(1, Ordering::Relaxed);
    a.join().unwrap();
    assert_eq!(rig.all(), [3]);
});

// An entry is replaced twice while its word is migrated. A former occupant of slot 3 was forwarded
// to slot 4. The migrating thread may find slot 3 in its copy. Guards: it reads the copy with
// Acquire, also by a swap that fails, so it sees the lease of that slot's present occupant.
model!(a_copy_is_mended_beside_a_reused_slot, || {
    let rig = Rig::new();
    rig.leave(3, 4);
    beside_a_migration(&rig, |rig| {
        assert!(rig.replace(2));
        // This switch is no preemption.
        thread::yield_now();
        assert!(rig.replace(3));
    });
    assert_eq!(rig.all(), [3]);
});

// As [`a_look_up_beside_a_swing_and_a_migration`], and slot 2 was free before. The look-up may read
// as old a lease as it likes. Guards: the migrating thread corrects its copy with Release, so a
// look-up that finds slot 2 in the copy finds the slot filled.
model!(a_look_up_of_a_mended_copy, bounded(1), || {
    let rig = Rig::new();
    rig.leave(2, DEAD);
    rig.index.grow();
    let a = aside(&rig, |rig| at_once(|| rig.replace(2)));
    let b = aside(&rig, |rig| rig.find());
    rig.migrate(100);
    assert!(a.join().unwrap());
    assert!(matches!(b.join().unwrap(), Some(1 | 2)));
});

// An entry is replaced and then removed while its word is migrated, and another key's word takes
// the copy's place. Guards: the migrating thread corrects its copy by a compare-and-swap, which
// fails where the copy has gone.
model!(a_copy_is_removed_before_it_is_mended, || {
    let rig = Rig::new();
    beside_a_migration(&rig, |rig| {
        assert!(rig.replace(2));
        // This switch is no preemption.
        thread::yield_now();
        assert!(rig.remove());
        assert_eq!(rig.index.insert(NEIGHBOUR, 3, |_| false), Inserted::Done);
    });
    assert_eq!(rig.all(), []);
    assert_eq!(rig.index.find(NEIGHBOUR, |_| true), Some(3));
});

/// One thread replaces an entry and removes it, or replaces it twice, while its word is migrated.
/// Guards: as [`a_swing_and_a_removal_beside_a_migration`] and [`two_swings_beside_a_migration`],
/// which have one more thread.
#[test]
fn two_changes_beside_a_migration() {
    large("two_changes_beside_a_migration, removed", || {
        let rig = Rig::new();
        assert!(beside_a_migration(&rig, |rig| rig.replace(2) && rig.remove()));
        assert_eq!(rig.all(), []);
        assert_eq!(rig.index.tables(), 1);
    });
    model("two_changes_beside_a_migration, replaced", || {
        let rig = Rig::new();
        assert!(beside_a_migration(&rig, |rig| rig.replace(2) && rig.replace(3)));
        assert_eq!(rig.all(), [3]);
    });
}

// A look-up beside two replacements finds a value. Guards: the look-up judges a forwarded slot by
// the lease that ended the way there.
//
// The thread that looks up is the spawned one: loom finds little to interrupt where the main thread
// only reads (`docs/verification.md`).
model!(a_look_up_beside_a_swing, || {
    let rig = Rig::new();
    let (a, _) = beside(&rig, |rig| rig.find(), |rig| assert!(rig.replace(2) && rig.replace(3)));
    assert!(matches!(a, Some(1..=3)));
});

// A replacing thread retires slot 1 while the migrating thread has a copy of its word in hand. The
// driver looks slot 2 up by that copy, and stalls in its swing, pinned. The entry is then replaced
// once more. If slot 1 were free by then, the third value could lie in it. The driver's swing would
// succeed, and leave a word that names slot 2, which leads nowhere once it is free.
//
// Guards: no thread gathers slot 1 while another one copies. The driver has pinned before the
// migrating thread is done, so a wait that begins later waits for it.
model!(a_slot_retired_beside_a_copy, bounded(3), || {
    let rig = Rig::new();
    rig.index.grow();
    let retired = Arc::new(Mutex::new(None));
    let (other, hand_over) = (rig.clone(), retired.clone());
    let a = thread::spawn(move || {
        // Other models interrupt a replacement.
        loom::stop_exploring();
        assert!(other.replace(2));
        *hand_over.lock().unwrap() = Some(other.index.retire());
        loom::explore();
        // This switch is no preemption.
        thread::yield_now();
        other.reach(2);
    });
    while rig.migrate(100) {}
    let replaced = retired.lock().unwrap().take();
    let waits = replaced.and_then(|waits| waits.or_else(|| rig.index.retire()));
    let reused = waits.is_some_and(|waits| {
        let is_over = (0..3).any(|_| rig.index.is_over(&waits));
        is_over && rig.replace(1)
    });
    a.join().unwrap();
    assert_eq!(rig.all(), [if reused { 1 } else { 2 }]);
});

// A replacing thread retires slot 1 while the migrating thread has a copy of its word in hand. Slot
// 1 then gets another key's entry, if it is free. The migrating thread would take that entry for
// the copy's own, and leave the copy as it is.
//
// Guards: no thread gathers slot 1 while another one copies.
model!(a_slot_freed_beside_a_copy, light, || {
    let rig = Rig::new();
    rig.index.grow();
    let a = aside(&rig, |rig| {
        assert!(rig.replace(2));
        let waits = rig.index.retire();
        if waits.is_some_and(|waits| (0..3).any(|_| rig.index.is_over(&waits))) {
            rig.fill(1);
        }
    });
    rig.migrate(100);
    a.join().unwrap();
    assert_eq!(rig.all(), [2]);
});
