//! Models of the block list, with the map's atomics under loom too:
//!
//! ```text
//! RUSTFLAGS="--cfg expiry_loom" cargo test --release -p loom-example
//! ```

#![cfg(expiry_loom)]

use expiry::{ExpiringMap, InsertError, ManualClock};
use loom::sync::Arc;
use loom::thread;
use loom_example::{Blocklist, Verdict};
use std::net::Ipv4Addr;
use std::time::Duration;

type Load = fn(&Blocklist, &[Ipv4Addr]) -> Result<(), InsertError<Ipv4Addr, ()>>;

const HOUR: Duration = Duration::from_secs(3600);
const ROGUE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// One thread loads the list, and another one asks it. Loom begins with the thread that asks, or
/// with the thread that loads: from one beginning alone it does not try every order.
fn load_and_ask(load: Load, spawned_first: bool) {
    loom::model(move || {
        let clock = ManualClock::new();
        let map = ExpiringMap::builder().time_to_live(HOUR).shards(1).seed(7).clock(clock.clone());
        let list = Arc::new(Blocklist::new(map.build_manual().unwrap()));
        let loading = list.clone();
        let loader = thread::spawn(move || load(&loading, &[ROGUE]).unwrap());
        if spawned_first {
            thread::yield_now();
        }
        assert_ne!(list.ask(ROGUE), Verdict::Allowed, "a blocked address was let in");
        loader.join().unwrap();
        assert_eq!(list.ask(ROGUE), Verdict::Blocked);
        clock.advance(HOUR);
        assert_eq!(list.ask(ROGUE), Verdict::Allowed);
    });
}

#[test]
fn no_blocked_address_is_let_in() {
    load_and_ask(Blocklist::load, false);
}

#[test]
fn no_blocked_address_is_let_in_spawned_first() {
    load_and_ask(Blocklist::load, true);
}

/// A check of the model: loom finds the mistake. Begun with the loading thread, it does not.
#[test]
#[should_panic(expected = "a blocked address was let in")]
fn loom_finds_the_mistake() {
    load_and_ask(Blocklist::load_by_mistake, false);
}
