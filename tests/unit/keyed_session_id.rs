//! Unit tests of `src/keyed/session/id.rs`.

use super::*;

#[test]
fn ids_go_up_by_one_below_the_server() {
    let issuer = Issuer::new(0xAB, Some(7));
    let ids: Vec<u64> = (0..3).map(|_| issuer.issue().0).collect();
    assert_eq!(ids, [7, 8, 9].map(|n| 0xAB << 56 | n));
    assert_eq!(issuer.issue().server(), 0xAB);
}

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

#[test]
fn sixteen_digits() {
    assert_eq!(SessionId(0x1F).to_string(), "0x000000000000001f");
    assert_eq!(format!("{:?}", SessionId(u64::MAX)), "SessionId(0xffffffffffffffff)");
}
