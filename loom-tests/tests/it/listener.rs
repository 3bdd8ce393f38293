//! Removed entries that wait for a listener thread: two holders of one slot, and the thread's end. The model does the listener
//! thread's work, as the checker sees no channel.

use expiry::model::stop_at;
use expiry::{ExpiringMap, ManualClock, RemovalCause, Removed, WhenFull};
use loom_tests::{aside, beside, model, thread, TICK};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A value that counts how often it is dropped.
struct Counted(u64, Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// A map with a listener thread, and value 10 under key 1.
#[derive(Clone)]
struct Rig {
    map: Arc<ExpiringMap<u64, Counted>>,
    told: Arc<Mutex<Vec<(u64, RemovalCause)>>>,
    dropped: Arc<AtomicUsize>,
}

impl Rig {
    fn new() -> Self {
        let told = Arc::new(Mutex::new(Vec::new()));
        let into = told.clone();
        let map = ExpiringMap::builder()
            .interval(TICK)
            .shards(1)
            .seed(7)
            .clock(ManualClock::new())
            .removal_listener(move |_: &u64, value: &Counted, cause| {
                if value.0 == 10 {
                    thread::yield_now(); // a slow call
                }
                into.lock().unwrap().push((value.0, cause));
            })
            .listener_thread(1, WhenFull::Spill)
            .build_manual()
            .unwrap();
        let rig = Rig { map: Arc::new(map), told, dropped: Arc::new(AtomicUsize::new(0)) };
        assert!(rig.map.insert(1, rig.value(10)).unwrap().is_none());
        rig
    }

    fn value(&self, number: u64) -> Counted {
        Counted(number, self.dropped.clone())
    }

    fn told(&self) -> Vec<(u64, RemovalCause)> {
        self.told.lock().unwrap().clone()
    }

    fn dropped(&self) -> usize {
        self.dropped.load(Ordering::Relaxed)
    }

    /// The first value has been delivered once, and dropped once.
    fn check(&self) {
        assert!(!self.map.deliver_next());
        let told = self.told();
        assert!(matches!(told[..], [(10, RemovalCause::Removed | RemovalCause::Replaced)]));
        assert!((0..10).any(|_| self.map.flush(Duration::ZERO)));
        assert_eq!(self.dropped(), 1);
        assert_eq!(self.map.metrics().unreclaimed, 0);
    }
}

/// A call that ends the entry and returns it.
type Ends = fn(&Rig) -> Removed<'_, u64, Counted>;

/// The slot of a replaced value is forwarded: its lease has a link.
const ENDS: [(&str, Ends); 2] = [
    ("removed", |rig| rig.map.remove(&1).unwrap()),
    ("replaced", |rig| rig.map.insert(1, rig.value(20)).unwrap().unwrap()),
];

/// Two holders of an ended slot let go of it at the same time: the caller, to which the call has returned the entry, and the listener
/// thread. The caller then drives the map. Guards: the last one to let go frees the slot, and no other.
#[test]
fn two_holders_let_go() {
    for (what, ends) in ENDS {
        model(&format!("two_holders_let_go, {what}"), move || {
            let rig = Rig::new();
            let listener = rig.clone();
            let ended = ends(&rig);
            let a = thread::spawn(move || assert!(listener.map.deliver_next()));
            drop(ended);
            // Until the value has been dropped, if the listener thread has let go before.
            let _ = (0..4).any(|_| rig.map.flush(Duration::ZERO) && rig.dropped() > 0);
            a.join().unwrap();
            rig.check();
        });
    }
}

/// The caller takes the value out while the listener may be looking at it. Guards: it gets the handle back unless the listener
/// thread has let go, and all that this has read comes before.
#[test]
fn a_value_taken_out_beside_its_listener() {
    for (what, ends) in ENDS {
        model(&format!("a_value_taken_out_beside_its_listener, {what}"), move || {
            let rig = Rig::new();
            let ended = ends(&rig);
            beside(&rig, |rig| assert!(rig.map.deliver_next()), |_| drop(ended.try_into_value()));
            rig.check();
        });
    }
}

// A thread has ended an entry, and comes to its listener beside the listener thread's last look. Guards: each of the two looks
// after it has done its part, so one of them delivers the end.
model!(an_end_beside_the_end_of_the_listener_thread, || {
    let rig = Rig::new();
    beside(&rig, |rig| rig.map.finish_listener(), |rig| drop(rig.map.remove(&1)));
    rig.check();
});

// As before, and another end is in the channel, by a call that has returned before the shutdown.
// Guards: the listener thread empties the channel before it says that it is over, so that it has
// told that end itself when it ends.
model!(an_end_before_a_shutdown_beside_one_that_overtakes_it, || {
    let rig = Rig::new();
    assert!(rig.map.insert(2, rig.value(20)).unwrap().is_none());
    drop(rig.map.remove(&1));
    stop_at(|step| step == "over");
    let a = aside(&rig, |rig| {
        rig.map.finish_listener();
        assert!(rig.told().contains(&(10, RemovalCause::Removed)), "it goes before");
    });
    drop(rig.map.remove(&2));
    a.join().unwrap();
    stop_at(|_| false);
    let mut told = rig.told();
    told.sort_unstable_by_key(|&(value, _)| value);
    assert_eq!(told, [(10, RemovalCause::Removed), (20, RemovalCause::Removed)]);
});
