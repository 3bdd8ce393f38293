//! Unit tests of `src/sync/asymmetric.rs`.

use super::*;

#[test]
fn what_is_not_wanted_is_off() {
    let barrier = Barrier::new(false);
    barrier.heavy();
    assert!(!barrier.is_on() && !barrier.was_on());
}

#[test]
fn a_system_that_refuses_later_turns_it_off_for_good() {
    let barrier = Barrier { on: true.into(), was_on: true, off: OnceLock::new() };
    barrier.heavy_by(|| true);
    assert!(barrier.is_on());
    barrier.heavy_by(|| false);
    assert!(!barrier.is_on() && barrier.was_on());
    barrier.heavy_by(|| unreachable!("it is off"));
}

/// Of several at the heavy side the first may be turning it off.
#[test]
fn who_comes_while_it_is_turned_off_waits_too() {
    let barrier = Barrier { on: false.into(), was_on: true, off: Instant::now().into() };
    barrier.heavy();
    assert!(barrier.off.get().unwrap().elapsed() >= GRACE);
}
