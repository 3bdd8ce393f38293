//! What rewritten sources call (`sites.rs`). `EXPIRY_MUTANT` chooses one mutant by its number, for
//! the whole process. Without it, the code works as written.
//!
//! With `EXPIRY_MUTANT_SEEN` the process writes the number of each mutant that would have made a
//! difference into that file, once. A compare-and-swap makes a difference only if it failed.
#![cfg(expiry_loom)]
#![allow(missing_docs)]

use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::collections::HashSet;
use std::io::Write;
use std::sync::{Mutex, OnceLock};

/// The number of the mutant that this process has.
fn is(number: usize) -> bool {
    static CHOSEN: OnceLock<Option<usize>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var("EXPIRY_MUTANT").ok()?.parse().ok());
    *chosen == Some(number)
}

fn differs(number: usize) {
    type Seen = (std::fs::File, Mutex<HashSet<usize>>);
    static SEEN: OnceLock<Option<Seen>> = OnceLock::new();
    let seen = SEEN.get_or_init(|| {
        let path = std::env::var_os("EXPIRY_MUTANT_SEEN")?;
        Some((std::fs::File::create(path).unwrap(), Mutex::default()))
    });
    if let Some((file, numbers)) = seen {
        if numbers.lock().unwrap().insert(number) {
            (&*file).write_all(format!("{number}\n").as_bytes()).unwrap();
        }
    }
}

pub fn order(number: usize, written: Ordering) -> Ordering {
    differs(number);
    if is(number) {
        Ordering::Relaxed
    } else {
        written
    }
}

pub fn stays(number: usize) -> bool {
    differs(number);
    !is(number)
}

/// Compare-and-swaps that can forget what they expect.
pub trait Cas {
    type Value: Copy;

    fn weak_compare_exchange(
        &self,
        number: usize,
        expected: Self::Value,
        new: Self::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Self::Value, Self::Value>;

    fn weak_compare_exchange_weak(
        &self,
        number: usize,
        expected: Self::Value,
        new: Self::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Self::Value, Self::Value> {
        self.weak_compare_exchange(number, expected, new, success, failure)
    }
}

macro_rules! cas {
    ($atomic:ty, $value:ty $(, $t:ident)?) => {
        impl $(<$t>)? Cas for $atomic {
            type Value = $value;

            fn weak_compare_exchange(
                &self,
                number: usize,
                expected: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                if is(number) {
                    return Ok(self.swap(new, success));
                }
                let result = <$atomic>::compare_exchange(self, expected, new, success, failure);
                if result.is_err() {
                    differs(number);
                }
                result
            }
        }
    };
}

cas!(AtomicBool, bool);
cas!(AtomicU32, u32);
cas!(AtomicU64, u64);
cas!(AtomicUsize, usize);
cas!(AtomicPtr<T>, *mut T, T);
// Statistics, and clocks, which the checker does not see.
cas!(std::sync::atomic::AtomicU32, u32);
cas!(std::sync::atomic::AtomicU64, u64);
cas!(std::sync::atomic::AtomicUsize, usize);
cas!(std::sync::atomic::AtomicPtr<T>, *mut T, T);
