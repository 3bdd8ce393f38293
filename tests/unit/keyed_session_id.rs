//! Unit tests of `src/keyed/session/id.rs`.

use super::*;

#[test]
fn the_count_does_not_run_into_the_server() {
    let issuer = Issuer::new(1, Some(ISSUED));
    assert_eq!(issuer.issue(), SessionId(1 << 56 | ISSUED));
    // Begins anew, without the number that is none.
    assert_eq!(issuer.issue(), SessionId(1 << 56 | 1));
    let issuer = Issuer::new(255, Some(u64::MAX));
    assert_eq!(issuer.issue().server(), 255);
    assert_eq!(issuer.issue().server(), 255);
}

#[test]
fn the_time_is_in_the_middle() {
    let id = Issuer::new(255, None).issue();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let begun = (id.0 & ISSUED) >> COUNT_BITS;
    let now = since.as_millis() as u64 & ((1 << 40) - 1);
    assert!(now.wrapping_sub(begun) < 60_000, "{id}");
    assert_eq!((id.server(), id.0 & 0xFFFF), (255, 0));
}
