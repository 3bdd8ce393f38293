//! The event of an engine that gets no memory: once, until there is some again. Alone in its
//! process, whose address space it limits.

use crate::events::Seen;
use crate::heap;
use expiry::expiring_map::Entry;
use expiry::{edge, AckError, AckTracker, ExpiringMap};
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

pub fn no_memory_is_said_once_until_there_is_some() {
    let free = getrlimit(Resource::As);
    let limit = |room: Option<u64>| {
        let current = room.map_or(free.current, |room| Some(heap::statm(0) as u64 + room));
        let limits = Rlimit { current, maximum: free.maximum };
        setrlimit(Resource::As, limits).unwrap();
    };
    let (seen, events) = Seen::new(|| ());
    tracing::subscriber::set_global_default(seen).unwrap();
    let said = || events.lock().unwrap().len();
    let tracker = AckTracker::builder().shards(1).build_manual().unwrap();
    let mut ids = 0..;
    let mut next = |chosen: bool| match ids.next().filter(|_| chosen) {
        Some(id) => tracker.init(id, edge(), 1),
        None => tracker.issue(edge(), 1).map(drop),
    };
    for (nth, chosen) in [(1, false), (2, true)] {
        limit(Some(4 << 20));
        let refused = loop {
            if let Err(refused) = next(chosen) {
                break refused;
            }
        };
        // Of chosen ids another one may find a place in the index, where this one's bucket is full.
        let again = (0..10).map(|_| next(chosen)).find(|next| next.is_ok() && !chosen);
        limit(None);
        assert_eq!((refused, again), (AckError::OutOfMemory, None));
        assert_eq!(said(), nth);
        // A chunk more: there is memory.
        for _ in 0..10_000 {
            next(false).unwrap();
        }
    }
    assert!(events.lock().unwrap().iter().all(|event| event.starts_with("ERROR")));
}

/// A value that its store has to drop.
struct Dropped;

impl Drop for Dropped {
    fn drop(&mut self) {}
}

/// Replacing calls reuse slots that wait to be freed, where there is no memory for more.
pub fn a_replacement_without_memory_frees_what_waits() {
    let map = ExpiringMap::builder().shards(1).build_manual().unwrap();
    map.insert(1, Dropped).unwrap();
    let free = getrlimit(Resource::As);
    let limits = Rlimit { current: Some(heap::statm(0) as u64 + (4 << 20)), maximum: free.maximum };
    setrlimit(Resource::As, limits).unwrap();
    let replace = |nth| {
        if nth % 2 == 0 {
            return map.upsert(1, |_| (Dropped, ())).is_ok();
        }
        match map.entry(1) {
            Entry::Occupied(entry) => entry.insert(Dropped).is_ok(),
            Entry::Vacant(_) => unreachable!("it is there"),
        }
    };
    let calls = (0..1_000_000).take_while(|&nth| replace(nth));
    let calls = calls.count();
    setrlimit(Resource::As, free).unwrap();
    assert_eq!(calls, 1_000_000, "{} wait", map.metrics().unreclaimed);
}
