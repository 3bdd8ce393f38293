//! `PendingTable`: each value leaves once, by value, and a ticket reaches no other. What threads do
//! beside each other is asserted by `stress histories`.

use crate::drops::census::{Census, Counted};
use crate::support::{wait_for, GENEROUS, HOUR, MS, SECOND};
use expiry::{
    LifetimeError, ManualClock, PendingTable, PendingTableBuilder, StoreError, Ticket, WhenFull,
};
use std::sync::{mpsc, Arc, Mutex};
use std::time::Duration;

fn manual<T: Send + 'static>(clock: &ManualClock) -> PendingTableBuilder<T> {
    PendingTable::builder().interval(MS).clock(clock.clone())
}

#[test]
fn numbers_that_are_no_tickets_name_nothing() {
    let (table, other) =
        (PendingTable::builder().build().unwrap(), PendingTable::builder().build().unwrap());
    let tickets: Vec<Ticket> = (0..1000_u64).map(|n| table.insert(n, SECOND).unwrap()).collect();
    for &ticket in &tickets {
        let bits = u64::from(ticket);
        assert_eq!(ticket.to_string().parse(), Ok(ticket));
        let _ = other.insert(0_u64, SECOND).unwrap();
        assert!(other.take(ticket).is_none());
        for bit in 0..64 {
            assert!(!table.contains(Ticket::from(bits ^ 1 << bit)));
        }
        for no_ticket in [0, u64::MAX, bits + 1, bits - 1, bits.swap_bytes()] {
            assert!(table.take(Ticket::from(no_ticket)).is_none() || no_ticket == bits);
        }
    }
    let taken: Vec<_> = table.take_many(&tickets).collect();
    assert!(taken.into_iter().eq((0..1000).map(Some)));
}

#[test]
fn what_is_refused_comes_back() {
    let clock = ManualClock::new();
    let table = manual(&clock).capacity(2).build_manual().unwrap();
    let mut tickets = Vec::new();
    let mut values = 1..=5_u64;
    let refused = table.insert_many(values.by_ref(), SECOND, &mut tickets).unwrap_err();
    assert_eq!((refused.error, refused.value, tickets.len()), (StoreError::Full, 3, 2));
    assert!(values.eq(4..=5));
    let error = |timeout| table.insert(0, timeout).unwrap_err().error;
    assert_eq!(error(Duration::ZERO), StoreError::Lifetime(LifetimeError::Zero));
    assert_eq!(error(Duration::MAX), StoreError::Lifetime(LifetimeError::TooLong));
    // What is due makes room.
    clock.advance(SECOND);
    let ticket = table.insert(6, SECOND).unwrap();
    assert!(table.contains(ticket));
    let mut left = table.shutdown();
    left.sort_unstable();
    assert_eq!(left, [1, 2, 6]);
    assert_eq!(table.insert(7, SECOND).unwrap_err().error, StoreError::Closed);
}

#[test]
fn what_expires_goes_to_the_listener_or_the_channel_by_value() {
    let (sender, told) = mpsc::channel();
    let table = PendingTable::builder()
        .interval(MS)
        .expiry_listener(move |value: u64| sender.send(value).unwrap())
        .build()
        .unwrap();
    table.insert(7, 2 * MS).unwrap();
    assert_eq!(told.recv_timeout(GENEROUS), Ok(7));
    let (table, expired) =
        PendingTable::builder().interval(MS).build_with_channel(1, WhenFull::Spill).unwrap();
    for n in 0..10 {
        table.insert(n, 2 * MS).unwrap();
    }
    wait_for("ten", || expired.len() == 10);
    table.insert(10, SECOND).unwrap();
    drop(table); // what is left is dropped, not expired
    let mut all: Vec<u64> = expired.collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..10));
}

/// A value that is counted, larger than that by so many bytes.
fn sized<const SIZE: usize>(census: &Arc<Census>) -> (Counted, [u8; SIZE]) {
    (Counted::new(census), [7; SIZE])
}

/// In the slot, and in a box.
fn every_value_is_dropped_once<const SIZE: usize>() {
    let census = Census::new();
    let count = || census.left();
    let clock = ManualClock::new();
    let table = manual(&clock).build_manual().unwrap();
    let tickets: Vec<Ticket> = (1..=100_u64)
        .map(|n| table.insert(sized::<SIZE>(&census), n as u32 * SECOND).unwrap())
        .collect();
    assert_eq!(count(), 100);
    drop(table.take(tickets[99]));
    clock.advance(50 * SECOND);
    assert_eq!(table.poll().len(), 50);
    assert_eq!(count(), 49);
    assert_eq!(table.cancel_all().len(), 49);
    assert_eq!((count(), table.len()), (0, 0));
    let _ = table.insert(sized::<SIZE>(&census), SECOND).unwrap();
    drop(table);
    assert_eq!(count(), 0);
}

#[test]
fn values_of_every_size_are_dropped_once() {
    every_value_is_dropped_once::<40>();
    every_value_is_dropped_once::<1000>();
}

#[test]
fn panics_of_listeners_and_drops_are_counted() {
    let (clock, census) = (ManualClock::new(), Census::new());
    let panics = || (Counted::armed(&census, 0), [7_u8; 40]);
    let table = manual(&clock).expiry_listener(drop).build_manual().unwrap();
    for _ in 0..3 {
        table.insert(panics(), SECOND).unwrap();
    }
    clock.advance(SECOND);
    assert!(table.poll().is_empty());
    assert_eq!((table.metrics().listener_panics, table.metrics().expired), (3, 3));
    table.insert(panics(), SECOND).unwrap();
    drop(table);
}

/// What waits for a poll, and what a shutdown whose future was dropped has ended, goes with the
/// table. Each value is dropped, and no panic of a drop gets out.
#[test]
fn what_no_call_has_taken_is_dropped_with_its_table() {
    let (clock, census) = (ManualClock::new(), Census::new());
    let table = manual(&clock).capacity(2).build_manual().unwrap();
    (0..2).for_each(|id| _ = table.insert(Counted::armed(&census, id), SECOND).unwrap());
    clock.advance(SECOND);
    // Each of these makes room.
    (2..4).for_each(|id| _ = table.insert(Counted::armed(&census, id), SECOND).unwrap());
    drop(table.shutdown_async());
    drop(table);
    assert_eq!((census.made(), census.left()), (4, 0));
}

#[test]
fn a_listener_may_use_its_table() {
    let clock = ManualClock::new();
    let place: Arc<Mutex<Option<PendingTable<u64>>>> = Arc::default();
    let here = place.clone();
    let table = manual(&clock)
        .expiry_listener(move |value: u64| {
            let table = here.lock().unwrap().clone().unwrap();
            if value > 0 {
                let ticket = table.insert(value - 1, SECOND).unwrap();
                assert_eq!(table.take(ticket), Some(value - 1));
                table.insert(value - 1, SECOND).unwrap();
            } else {
                assert!(table.shutdown().is_empty() && !table.drain(SECOND));
            }
        })
        .build_manual()
        .unwrap();
    *place.lock().unwrap() = Some(table.clone());
    table.insert(2, SECOND).unwrap();
    table.insert(100, HOUR).unwrap();
    for _ in 0..3 {
        clock.advance(2 * SECOND);
        let _ = table.poll();
    }
    assert_eq!((table.metrics().expired, table.shutdown()), (3, vec![100]));
    assert!(place.lock().unwrap().take().is_some());
}

mod by_key {
    //! `PendingMap`: the same under the caller's keys.

    use super::{sized, SECOND};
    use crate::drops::census;
    use crate::support::{each_once, on_threads, wait_for, Told, GENEROUS, HOUR, MS};
    use expiry::{ManualClock, PendingMap, PendingMapBuilder, WhenFull};
    use std::collections::HashSet;
    use std::hash::Hash;
    use std::sync::mpsc;
    use std::time::Duration;

    fn manual<K, T>(clock: &ManualClock) -> PendingMapBuilder<K, T>
    where
        K: Hash + Eq + Send + Sync + 'static,
        T: Send + 'static,
    {
        PendingMap::builder().interval(MS).clock(clock.clone())
    }

    #[test]
    fn keys_come_back_by_value_once() {
        let (clock, census) = (ManualClock::new(), census::Census::new());
        let counted = |id| census::Counted::of(&census, id);
        let entry = |id| (counted(id), counted(10 + id));
        let map = manual(&clock).capacity(3).build_manual().unwrap();
        for id in 0..3 {
            let (key, value) = entry(id);
            assert!(map.insert(key, value, SECOND).is_ok());
        }
        let (key, value) = entry(3);
        let refused = map.insert(key, value, SECOND).unwrap_err();
        clock.advance(SECOND);
        let mut entries = map.poll();
        entries.push(refused.entry);
        let (key, value) = entry(4);
        assert!(map.insert(key, value, SECOND).is_ok());
        entries.extend(map.shutdown());
        let pairs: Vec<_> =
            entries.into_iter().map(|entry| entry.try_into_pair().unwrap()).collect();
        assert!(pairs.iter().all(|(key, value)| key.id() + 10 == value.id()));
        assert_eq!((pairs.len(), census.left()), (5, 10));
        drop((pairs, map));
        assert_eq!(census.left(), 0);
    }

    #[test]
    fn what_expires_goes_to_the_listener_or_the_channel_by_value() {
        let (sender, told) = mpsc::channel();
        let map = PendingMap::builder()
            .interval(MS)
            .expiry_listener(move |key: &u64, value: u64| sender.send((*key, value)).unwrap())
            .build()
            .unwrap();
        map.insert(1, 7, 2 * MS).unwrap();
        assert_eq!(told.recv_timeout(GENEROUS), Ok((1, 7)));
        let (map, expired) =
            PendingMap::builder().interval(MS).build_with_channel(1, WhenFull::Spill).unwrap();
        for n in 0..10_u64 {
            map.insert(n, n, 2 * MS).unwrap();
        }
        wait_for("ten", || expired.len() == 10);
        map.insert(10, 10, SECOND).unwrap();
        drop(map);
        let all: HashSet<u64> = expired
            .map(|entry| {
                assert_eq!(entry.key(), entry.value());
                entry.into_value()
            })
            .collect();
        assert_eq!(all, (0..10).collect());
    }

    fn every_value_is_dropped_once<const SIZE: usize>() {
        let census = census::Census::new();
        let count = || census.left();
        let clock = ManualClock::new();
        let map = manual(&clock).build_manual().unwrap();
        for round in 0..2 {
            for n in 1..=100_u64 {
                let old = map.insert(n, sized::<SIZE>(&census), Duration::from_secs(n)).unwrap();
                assert_eq!(old.is_some(), round == 1);
            }
        }
        assert_eq!(count(), 100);
        drop(map.take(&100));
        clock.advance(50 * SECOND);
        // Entries keep their slots, not their values.
        let expired: Vec<_> = map.poll().into_iter().map(|e| (*e.key(), e.into_value())).collect();
        assert_eq!((expired.len(), count()), (50, 99));
        drop(expired);
        assert_eq!(map.cancel_all().len(), 49);
        assert_eq!(count(), 0);
        map.insert(1, sized::<SIZE>(&census), SECOND).unwrap();
        drop(map);
        assert_eq!(count(), 0);
    }

    #[test]
    fn values_of_every_size_are_dropped_once() {
        every_value_is_dropped_once::<40>();
        every_value_is_dropped_once::<1000>();
    }

    /// Threads insert, replace and take beside a reaper and readers: each value leaves once.
    #[test]
    fn every_value_leaves_once() {
        const THREADS: u64 = 4;
        const EACH: u64 = if cfg!(miri) { 50 } else { 10_000 };
        let left = Told::default();
        let expires = left.handler();
        let map = PendingMap::builder()
            .interval(MS)
            .expiry_listener(move |_: &u64, value: u64| expires(value))
            .build()
            .unwrap();
        let mut all = on_threads(THREADS, |thread| {
            let mut mine = Vec::new();
            for n in 0..EACH {
                let (value, key) = (n * THREADS + thread, n % 16);
                let timeout = if n % 4 == 0 { MS } else { HOUR };
                mine.extend(map.insert(key, value, timeout).unwrap());
                let _ = (map.contains_key(&key), map.touch(&(n % 7), 2 * MS));
                if n % 3 == 0 {
                    mine.extend(map.take(&((n + 5) % 16)));
                }
                if n % 1000 == 999 {
                    mine.extend(map.cancel_all().into_iter().map(|entry| entry.into_value()));
                }
            }
            mine
        })
        .concat();
        all.extend(map.shutdown().into_iter().map(|entry| entry.into_value()));
        all.append(&mut left.take());
        each_once(all, THREADS * EACH);
    }

    #[test]
    fn a_panic_of_a_listener_is_counted() {
        let clock = ManualClock::new();
        let map = manual(&clock)
            .expiry_listener(|_: &u64, _: u64| panic!("a listener's own"))
            .build_manual()
            .unwrap();
        map.insert(1, 1, SECOND).unwrap();
        clock.advance(SECOND);
        assert!(map.poll().is_empty());
        assert_eq!(map.metrics().listener_panics, 1);
    }
}
