//! Seeded bugs, in builds with `--cfg expiry_inject` only: places of the data path at which the engine can be made to do the
//! wrong thing, so that it can be seen which check around it finds out (`cargo xtask inject`).
//!
//! A process has one bug, [chosen](choose) once by its name, which strikes one time in so many that its place is passed. In
//! every other build [`hit`] is a constant and nothing of this is left.

macro_rules! bugs {
    ($($(#[$what:meta])* $bug:ident = $name:literal,)*) => {
        /// What can be made to go wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Bug {
            $($(#[$what])* $bug,)*
        }

        #[cfg(expiry_inject)]
        const ALL: &[(Bug, &str)] = &[$((Bug::$bug, $name),)*];
    };
}

bugs! {
    /// An ack of a live root is answered as counted, and is not.
    LostAck = "lost-ack",
    /// A fail of a live root is answered as done, and the root lives on.
    LostFail = "lost-fail",
    /// A touch, a reset or a renewing update is answered as done, and the deadline stays.
    LateTouch = "late-touch",
    /// What was put in, and answered as in, is not there.
    LostInsert = "lost-insert",
    /// What was taken out of a queue is still there.
    LostRemove = "lost-remove",
    /// An init of a root that is in flight is answered as done, and changes nothing.
    DuplicateInit = "duplicate-init",
    /// An end is told twice.
    DoubleOutcome = "double-outcome",
    /// An end is told to nobody.
    LostOutcome = "lost-outcome",
    /// Whoever ends a slot looks first and then stores: a claim that does not exclude another.
    TornEnd = "torn-end",
    /// An id of an earlier tenant of the slot is taken for the one of the present tenant.
    StaleGeneration = "stale-generation",
    /// A look-up gives the value whose place the present one has taken.
    StaleGet = "stale-get",
    /// An entry whose time is up is taken for a living one.
    Resurrect = "resurrect",
    /// An entry is told to be gone without being made so: a touch that looked at the clock before brings it back (M2).
    Unlapsed = "unlapsed",
    /// What is due in the next tick expires in this one.
    EarlyExpiry = "early-expiry",
    /// The driver passes over an entry that is due, and does not come back to it.
    NeverExpires = "never-expires",
    /// A slot is not freed.
    LeakSlot = "leak-slot",
    /// The driver is not told of a bucket.
    LostNews = "lost-news",
    /// The reaper is not woken for an earlier deadline.
    LostWakeup = "lost-wakeup",
}

/// Whether `bug` strikes here and now.
#[cfg(not(expiry_inject))]
#[inline(always)]
pub(crate) const fn hit(_: Bug) -> bool {
    false
}

/// Whether this process has `bug`, be it that it does not strike now.
#[cfg(not(expiry_inject))]
#[inline(always)]
pub(crate) const fn is(_: Bug) -> bool {
    false
}

/// Holds this thread up for a moment if this process has `bug`, so that what it is about meets often enough.
#[cfg(not(expiry_inject))]
#[inline(always)]
pub(crate) const fn stall(_: Bug) {}

#[cfg(expiry_inject)]
pub use chosen::{choose, hits, names};
#[cfg(expiry_inject)]
pub(crate) use chosen::{hit, is, stall};

#[cfg(expiry_inject)]
mod chosen {
    use super::{Bug, ALL};
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::sync::OnceLock;

    static CHOSEN: OnceLock<(Bug, u32)> = OnceLock::new();
    static HITS: AtomicU64 = AtomicU64::new(0);

    /// The names of all bugs.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ALL.iter().map(|(_, name)| *name)
    }

    /// From here on this process has the bug of that name, which strikes one time in `one_in`. False if there is none, or if
    /// one has been chosen before.
    pub fn choose(name: &str, one_in: u32) -> bool {
        let found = ALL.iter().find(|(_, known)| *known == name);
        found.is_some_and(|(bug, _)| CHOSEN.set((*bug, one_in.max(1))).is_ok())
    }

    /// How often it has struck.
    pub fn hits() -> u64 {
        HITS.load(Relaxed)
    }

    /// Whether `bug` strikes here and now.
    #[inline]
    pub(crate) fn hit(bug: Bug) -> bool {
        let mine = CHOSEN.get().filter(|(chosen, _)| *chosen == bug);
        mine.is_some_and(|&(_, one_in)| strikes(one_in))
    }

    /// Whether this process has `bug`, be it that it does not strike now.
    #[inline]
    pub(crate) fn is(bug: Bug) -> bool {
        CHOSEN.get().is_some_and(|(chosen, _)| *chosen == bug)
    }

    /// Holds this thread up for a moment if this process has `bug`, so that what it is about meets often enough.
    pub(crate) fn stall(bug: Bug) {
        if is(bug) {
            (0..100).for_each(|_| std::hint::spin_loop());
        }
    }

    /// One time in so many, at random, by this thread's own luck.
    fn strikes(one_in: u32) -> bool {
        thread_local!(static LUCK: RefCell<SmallRng> = RefCell::new(SmallRng::from_os_rng()));
        let strikes = LUCK.try_with(|luck| luck.borrow_mut().random_ratio(1, one_in));
        // A thread that is going away has no luck any more.
        let strikes = strikes.unwrap_or(false);
        if strikes {
            HITS.fetch_add(1, Relaxed);
        }
        strikes
    }
}
