//! What a `PendingTable` allocates, and what a burst leaves behind. It measures the process.

use super::heap;
#[cfg(target_os = "linux")]
use super::memory;
use crate::support::HOUR;
use expiry::{ManualClock, PendingTable, Ticket};
use std::time::Duration;

pub fn a_warm_table_allocates_nothing() {
    let clock = ManualClock::new();
    let table = PendingTable::builder().clock(clock.clone()).build_manual().unwrap();
    let mut tickets: Vec<Ticket> = Vec::with_capacity(1000);
    let mut expired: Vec<u64> = Vec::with_capacity(1000);
    let mut before = 0;
    for round in 0..150 {
        if round == 50 {
            before = heap::calls();
        }
        for value in 0..1000 {
            let timeout = if value % 10 == 0 { Duration::from_millis(1) } else { HOUR };
            tickets.push(table.insert(value, timeout).unwrap());
        }
        clock.advance(Duration::from_millis(2));
        while table.poll_into(&mut expired, 1000).more {}
        let taken = tickets.drain(..).filter_map(|ticket| table.take(ticket)).count();
        assert_eq!((taken, expired.drain(..).count()), (900, 100));
    }
    // The wheel's lists grow when a coarser level is met for the first time.
    let calls = heap::calls() - before;
    assert!(calls <= 4, "{calls} allocations for 100,000 values");
}

/// A ticket of before names nothing after the memory of its slot was given back.
#[cfg(target_os = "linux")]
pub fn a_burst_gives_its_memory_back_but_for_four_bytes_a_slot() {
    const BURST: usize = 1_000_000;
    rustix::thread::disable_transparent_huge_pages(true).unwrap();
    let clock = ManualClock::new();
    let table = PendingTable::builder().shards(2).clock(clock.clone()).build_manual().unwrap();
    let mut tickets = vec![Ticket::from(1); BURST];
    let before = heap::statm(1);
    for (value, ticket) in (0_u64..).zip(&mut tickets) {
        *ticket = table.insert(value, HOUR).unwrap();
    }
    let peak = heap::statm(1) - before;
    println!("{} bytes a value", peak / BURST);
    assert!(peak / BURST <= 24, "{} bytes a value", peak / BURST);
    assert!(tickets.iter().all(|&ticket| table.take(ticket).is_some()));
    memory::rest(&clock, || table.poll_into(&mut Vec::new(), 100_000));
    let left = heap::statm(1).saturating_sub(before);
    assert!(left < 4 * BURST + peak / 4, "{left} bytes of {peak} are left");
    assert!((table.metrics().slots as usize) < BURST / 8);
    for (value, &stale) in (0_u64..1000).zip(&tickets) {
        let ticket = table.insert(value, HOUR).unwrap();
        assert!(table.take(stale).is_none() && table.contains(ticket));
    }
}
