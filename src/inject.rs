//! Seeded bugs, in builds with `--cfg expiry_inject` only: places of the data path at which the engine can be made to do the
//! wrong thing, so that it can be seen which check around it finds out (`cargo xtask inject`).
//!
//! A process has one bug, [chosen](choose) once by its name, which strikes one time in so many that its place is passed. In
//! every other build [`hit`] is a constant and nothing of this is left.

macro_rules! bugs {
    ($($(#[doc = $what:literal])+ $bug:ident = $name:literal,)*) => {
        /// What can be made to go wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Bug {
            $($(#[doc = $what])+ $bug,)*
        }

        #[cfg(expiry_inject)]
        impl Bug {
            const fn name(self) -> &'static str {
                match self {
                    $(Bug::$bug => $name,)*
                }
            }
        }

        /// All of them: the name of each, and what it does.
        #[cfg(expiry_inject)]
        pub const BUGS: &[(&str, &str)] = &[$(($name, concat!($($what),+)),)*];
    };
}

bugs! {
    /// An ack of a live root is answered as counted, and is not.
    LostAck = "lost-ack",
    /// A fail of a live root is answered as done, and the root lives on.
    LostFail = "lost-fail",
    /// A touch, a reset or a renewing update is answered as done, and the deadline stays.
    LateTouch = "late-touch",
    /// A renewal sets a deadline that it took before it looked at the lease, and held for a while.
    HeldDeadline = "held-deadline",
    /// What was put in, and answered as in, is not there.
    LostInsert = "lost-insert",
    /// What was taken out of a queue or a session tracker is still there.
    LostRemove = "lost-remove",
    /// An insertion is refused as full, though there is room.
    FalseFull = "false-full",
    /// An insertion is accepted, though the capacity is used up.
    OverCapacity = "over-capacity",
    /// A key that is there is not found.
    MissedLookUp = "missed-look-up",
    /// An init of a root that is in flight is answered as done, and changes nothing.
    DuplicateInit = "duplicate-init",
    /// Early acks are held, however many there are.
    UnboundedEarly = "unbounded-early",
    /// An end is told twice.
    DoubleOutcome = "double-outcome",
    /// An end is told to nobody.
    LostOutcome = "lost-outcome",
    /// An end is told to have another cause.
    WrongCause = "wrong-cause",
    /// An end is not counted.
    LostCount = "lost-count",
    /// A panic of a handler is not counted.
    LostPanic = "lost-panic",
    /// What has no room in a channel is counted as spilled, and is gone.
    LostSpill = "lost-spill",
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
    /// A deadline is counted from a reading of the clock that is eight intervals old.
    StaleClock = "stale-clock",
    /// A deadline is 4096 intervals later than it was asked for.
    LateDeadline = "late-deadline",
    /// A timeout of zero is taken.
    ZeroTimeout = "zero-timeout",
    /// A jump of the clock by years is not noticed.
    UnseenJump = "unseen-jump",
    /// What is due in the next eight ticks expires in this one.
    EarlyExpiry = "early-expiry",
    /// The driver goes by a clock that is eight ticks ahead, always.
    FastDriver = "fast-driver",
    /// The driver passes over an entry that is due, and does not come back to it.
    NeverExpires = "never-expires",
    /// The driver puts an entry off that is due, by 4096 intervals.
    LateExpiry = "late-expiry",
    /// What is being closed expires as if it were not (Q7).
    ClosingExpires = "closing-expires",
    /// A touch brings back what is being closed (Q7).
    Reopened = "reopened",
    /// A touch is collected for nobody (Q14).
    LostReport = "lost-report",
    /// A session is reported as touched that was created.
    FalseReport = "false-report",
    /// The free slots of a bucket are passed over, but for the first.
    SkippedSlots = "skipped-slots",
    /// An insertion waits until nobody drives the shard of its slot.
    WaitingInsert = "waiting-insert",
    /// What expires is not counted against the budget of its round.
    BoundlessPoll = "boundless-poll",
    /// A session's move to another owner is answered as done, and it stays with the one that it had.
    LostMove = "lost-move",
    /// An upgrade of a session that is global says that it has made it so.
    DoubleUpgrade = "double-upgrade",
    /// An id of a session is issued that was issued before.
    IdAgain = "id-again",
    /// A slot is not freed.
    LeakSlot = "leak-slot",
    /// The memory of what has ended is not freed.
    LeakNode = "leak-node",
    /// What a thread has owned is not used again after its end.
    DeadThread = "dead-thread",
    /// Growth that is refused its memory is told as a shutdown.
    WrongRefusal = "wrong-refusal",
    /// The driver is not told of a bucket.
    LostNews = "lost-news",
    /// The reaper is not woken for an earlier deadline.
    LostWakeup = "lost-wakeup",
    /// A shard stays its driver's when that one leaves.
    KeptShard = "kept-shard",
    /// A poll beside a reaper finds nothing.
    IdlePoll = "idle-poll",
    /// A poll in a handler waits for the round that has called it.
    SelfWait = "self-wait",
    /// A reaper that is asked to stop ends nothing that there still is.
    LostClose = "lost-close",
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

/// If `bug` strikes here and now: gives what `take` takes, when others have gone on for a while.
#[cfg(not(expiry_inject))]
#[inline(always)]
pub(crate) fn held<T>(_: Bug, _: impl FnOnce() -> T) -> Option<T> {
    None
}

#[cfg(expiry_inject)]
pub use chosen::{choose, hits, strikes};
#[cfg(expiry_inject)]
pub(crate) use chosen::{held, hit, is, stall};

#[cfg(expiry_inject)]
mod chosen {
    use super::Bug;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::sync::OnceLock;

    static CHOSEN: OnceLock<(String, u32)> = OnceLock::new();
    static HITS: AtomicU64 = AtomicU64::new(0);

    /// From here on this process has the bug of that name, one of [`BUGS`](super::BUGS) or of another crate's, which strikes one
    /// time in `one_in`. False if one has been chosen before.
    pub fn choose(name: &str, one_in: u32) -> bool {
        CHOSEN.set((name.to_owned(), one_in.max(1))).is_ok()
    }

    /// How often it has struck.
    pub fn hits() -> u64 {
        HITS.load(Relaxed)
    }

    /// Whether the bug of that name strikes here and now.
    #[inline]
    pub fn strikes(name: &str) -> bool {
        let mine = CHOSEN.get().filter(|(chosen, _)| chosen == name);
        mine.is_some_and(|&(_, one_in)| is_unlucky(one_in))
    }

    /// Whether `bug` strikes here and now.
    #[inline]
    pub(crate) fn hit(bug: Bug) -> bool {
        strikes(bug.name())
    }

    /// Whether this process has `bug`, be it that it does not strike now.
    #[inline]
    pub(crate) fn is(bug: Bug) -> bool {
        CHOSEN.get().is_some_and(|(chosen, _)| chosen == bug.name())
    }

    /// Holds this thread up for a moment if this process has `bug`, so that what it is about meets often enough.
    pub(crate) fn stall(bug: Bug) {
        if is(bug) {
            (0..100).for_each(|_| std::hint::spin_loop());
        }
    }

    /// If `bug` strikes here and now: gives what `take` takes, when others have gone on for a
    /// while.
    pub(crate) fn held<T>(bug: Bug, take: impl FnOnce() -> T) -> Option<T> {
        hit(bug).then(|| {
            let taken = take();
            (0..16).for_each(|_| std::thread::yield_now());
            taken
        })
    }

    /// One time in so many, at random, by this thread's own luck.
    fn is_unlucky(one_in: u32) -> bool {
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
