//! Seeded bugs: places at which the engine or the executor can be made to do the wrong thing.
//!
//! `cargo xtask inject` puts this file into a copy of the workspace, as the module `seeded` of the
//! library, and adds those places (`xtask/bugs/`). The variable `EXPIRY_BUG` gives a process at
//! most one bug: `lost-ack/1000` strikes one time in a thousand that a thread passes its place, at
//! random. `lost-ack` strikes each time.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::OnceLock;

/// The bug that this process has.
struct Chosen {
    name: String,
    one_in: u32,
}

impl Chosen {
    fn parse(asked: &str) -> Self {
        let (name, one_in) = asked.split_once('/').unwrap_or((asked, "1"));
        Chosen { name: name.to_owned(), one_in: one_in.parse().unwrap_or(1) }
    }
}

/// Returns whether the bug `name` strikes here and now.
#[inline]
pub fn strikes(name: &str) -> bool {
    mine(name).is_some_and(|chosen| is_unlucky(chosen.one_in) && told(name))
}

/// Returns whether this process has the bug `name`.
#[inline]
pub fn chosen(name: &str) -> bool {
    mine(name).is_some() && told(name)
}

#[inline]
fn mine(name: &str) -> Option<&'static Chosen> {
    static CHOSEN: OnceLock<Option<Chosen>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let asked = std::env::var("EXPIRY_BUG").ok()?;
        Some(Chosen::parse(&asked))
    });
    chosen.as_ref().filter(|chosen| chosen.name == name)
}

thread_local! {
    /// The state of this thread's generator of random numbers.
    static STATE: Cell<u64> = Cell::new(RandomState::new().build_hasher().finish() | 1);
}

/// Returns true one time in `one_in`, at random.
fn is_unlucky(one_in: u32) -> bool {
    // An xorshift generator.
    let drawn = STATE.with(|state| {
        let mut drawn = state.get();
        drawn ^= drawn << 13;
        drawn ^= drawn >> 7;
        drawn ^= drawn << 17;
        state.set(drawn);
        drawn
    });
    (drawn >> 32) % u64::from(one_in.max(1)) == 0
}

/// Says once that the bug has struck. Returns true.
fn told(name: &str) -> bool {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.load(Relaxed) && !TOLD.swap(true, Relaxed) {
        eprintln!("the seeded bug {name} strikes");
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bug_is_chosen_by_its_name_and_rate() {
        let chosen = |asked| {
            let Chosen { name, one_in } = Chosen::parse(asked);
            (name, one_in)
        };
        assert_eq!(chosen("lost-ack/1000"), ("lost-ack".into(), 1000));
        assert_eq!(chosen("lost-ack"), ("lost-ack".into(), 1));
    }

    #[test]
    fn a_rate_is_kept() {
        assert!(!strikes("lost-ack") && !chosen("lost-ack"));
        assert!((0..100).all(|_| is_unlucky(1)));
        let struck = (0..100_000).filter(|_| is_unlucky(100)).count();
        assert!((500..2000).contains(&struck), "{struck}");
    }
}
