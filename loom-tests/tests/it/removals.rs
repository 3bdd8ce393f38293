//! Two handles to one ended slot: a removing call returns one, and the map's channel has the other.

use expiry::{ExpiringMap, ManualClock, Receiver, RemovalCause, Removed, WhenFull};
use loom_tests::{beside, model, thread, TICK};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// A value that counts how often it is dropped.
struct Counted(u64, Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// A map with a channel, and value 10 under key 1.
#[derive(Clone)]
struct Rig {
    map: ExpiringMap<u64, Counted>,
    removals: Receiver<Removed<'static, u64, Counted>>,
    dropped: Arc<AtomicUsize>,
}

impl Rig {
    fn new() -> Self {
        let (map, removals) = ExpiringMap::builder()
            .interval(TICK)
            .shards(1)
            .seed(7)
            .clock(ManualClock::new())
            .build_manual_with_channel(1, WhenFull::Spill)
            .unwrap();
        let rig = Rig { map, removals, dropped: Arc::new(AtomicUsize::new(0)) };
        assert!(rig.map.insert(1, rig.value(10)).unwrap().is_none());
        rig
    }

    fn value(&self, number: u64) -> Counted {
        Counted(number, self.dropped.clone())
    }

    fn dropped(&self) -> usize {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Receives the first value, and reads it for a while.
    fn receive(&self) {
        let removed = self.removals.try_next().expect("it was sent before");
        thread::yield_now();
        assert_eq!(removed.value().0, 10);
        assert!(matches!(removed.cause(), RemovalCause::Removed | RemovalCause::Replaced));
    }

    /// The first value has been delivered once, and dropped once.
    fn check(&self) {
        assert!(self.removals.is_empty());
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

/// Two threads drop their handles to an ended slot at the same time: the caller, to which the call
/// has returned one, and the receiver. The caller then drives the map. Guards: the last handle to
/// go frees the slot, and no other.
#[test]
fn two_holders_let_go() {
    for (what, ends) in ENDS {
        model(&format!("two_holders_let_go, {what}"), move || {
            let rig = Rig::new();
            let receiver = rig.clone();
            let ended = ends(&rig);
            let a = thread::spawn(move || receiver.receive());
            drop(ended);
            // This loops until the value has been dropped, if the receiver has dropped its handle
            // before.
            let _ = (0..4).any(|_| rig.map.flush(Duration::ZERO) && rig.dropped() > 0);
            a.join().unwrap();
            rig.check();
        });
    }
}

/// The caller takes the value out while the receiver may be looking at it. Guards: the caller gets
/// its handle back unless the receiver has dropped its own. All that the receiver has read comes
/// before.
#[test]
fn a_value_taken_out_beside_its_receiver() {
    for (what, ends) in ENDS {
        model(&format!("a_value_taken_out_beside_its_receiver, {what}"), move || {
            let rig = Rig::new();
            let ended = ends(&rig);
            beside(&rig, Rig::receive, |_| drop(ended.try_into_value()));
            rig.check();
        });
    }
}
