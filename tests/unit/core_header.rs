//! Unit tests of `src/core/header.rs`.

use super::*;

#[test]
fn the_next_expiration_only_ever_comes_nearer_until_it_is_taken() {
    let next = NextExpiration::never();
    assert_eq!(next.get(), None);
    assert_eq!(next.lower(10), Lowered::Yes);
    assert_eq!(next.lower(11), Lowered::No);
    assert_eq!(next.lower(9), Lowered::Yes);
    assert_eq!(next.get(), Some(9));
    let look = |next, news| Some(Look { next, news });
    assert_eq!(next.take(), look(9, true));
    assert_eq!(next.take(), None);
    next.put_back(20);
    assert_eq!(next.take(), look(20, false));
    next.put_back(20);
    assert_eq!(next.lower(30), Lowered::No);
    next.put_back(15);
    assert_eq!(next.take(), look(15, true));
    assert_eq!(next.lower(u64::MAX), Lowered::No, "never is no deadline");
    assert_eq!(next.get(), None);
    assert_eq!(next.lower(0), Lowered::Yes);
    assert_eq!(next.take(), look(1, true));
    next.put_back(5);
    next.close();
    assert_eq!(next.lower(1), Lowered::Closed);
    assert_eq!(next.take(), None);
}
