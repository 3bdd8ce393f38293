//! Unit tests of `src/hash.rs`.

use super::*;
use std::hash::Hash;

/// What is hashed through it is what foldhash would have made of it.
#[test]
fn it_is_foldhash() {
    fn same(state: &RandomState, key: impl Hash) {
        assert_eq!(state.hash_one(&key), state.0.hash_one(&key));
    }
    let state = RandomState::default();
    for i in [0, 1, 77, u64::MAX] {
        #[allow(clippy::cast_possible_truncation)]
        same(&state, (i as u8, i as u16, i as u32, i, u128::from(i) << 3));
        #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
        same(&state, (i as i8, i as i16, i as i32, i as i64, i as usize));
        same(&state, format!("key {i}").repeat(3));
    }
}

#[test]
fn two_maps_hash_in_two_ways() {
    let (one, other) = (RandomState::default(), RandomState::default());
    assert!((0..8_u64).any(|key| one.hash_one(key) != other.hash_one(key)));
    assert_eq!(one.hash_one(7), one.clone().hash_one(7));
}

#[test]
fn its_seed_is_not_told() {
    let text = format!("{:?}", RandomState::default());
    assert!(!text.contains(char::is_numeric), "{text}");
}
