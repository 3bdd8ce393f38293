//! What rewritten sources call (`sites.rs`). `EXPIRY_MUTANT` chooses mutants by their numbers, for the
//! whole process; without it all is as it was written.
//!
//! With `EXPIRY_MUTANT_SEEN` the process writes each number that it comes to into that file, once,
//! as `-n`; and as `n` if the mutant would have made a difference: always, but for a
//! compare-and-swap that never failed.
#![cfg(expiry_loom)]
#![allow(missing_docs)]

use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::fs::File;
use std::io::Write;
use std::sync::atomic::AtomicU8;
use std::sync::OnceLock;

const MOST: usize = 1 << 14;
const CAME_TO: u8 = 1;
const DIFFERS: u8 = 2;
static SEEN: [AtomicU8; MOST] = [const { AtomicU8::new(0) }; MOST];

struct Settings {
    chosen: Vec<usize>,
    seen: Option<File>,
}

fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| Settings {
        chosen: std::env::var("EXPIRY_MUTANT").map_or(Vec::new(), |numbers| {
            numbers.split(',').map(|one| one.parse().unwrap()).collect()
        }),
        seen: std::env::var_os("EXPIRY_MUTANT_SEEN")
            .map(|path| File::options().append(true).create(true).open(path).unwrap()),
    })
}

/// Whether this mutant was chosen.
fn is(number: usize) -> bool {
    settings().chosen.contains(&number)
}

fn seen(number: usize, differs: bool) {
    let (Some(mut file), true) = (settings().seen.as_ref(), number != 0) else {
        return;
    };
    let what = if differs { CAME_TO | DIFFERS } else { CAME_TO };
    let new = what & !SEEN[number].fetch_or(what, Ordering::Relaxed);
    for (bit, sign) in [(CAME_TO, "-"), (DIFFERS, "")] {
        if new & bit != 0 {
            file.write_all(format!("{sign}{number}\n").as_bytes())
                .unwrap();
        }
    }
}

pub fn order(number: usize, written: Ordering) -> Ordering {
    seen(number, true);
    if is(number) {
        Ordering::Relaxed
    } else {
        written
    }
}

pub fn stays(number: usize) -> bool {
    seen(number, true);
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

    fn read(&self, ordering: Ordering) -> Self::Value;

    fn weak_fetch_update(
        &self,
        number: usize,
        set: Ordering,
        fetch: Ordering,
        mut new: impl FnMut(Self::Value) -> Option<Self::Value>,
    ) -> Result<Self::Value, Self::Value> {
        let mut now = self.read(fetch);
        while let Some(new) = new(now) {
            match self.weak_compare_exchange(number, now, new, set, fetch) {
                Ok(before) => return Ok(before),
                Err(other) => now = other,
            }
        }
        Err(now)
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
                seen(number, result.is_err());
                result
            }

            fn read(&self, ordering: Ordering) -> $value {
                self.load(ordering)
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
