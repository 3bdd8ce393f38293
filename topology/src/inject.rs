//! Seeded bugs of the executor, in builds with `--cfg expiry_inject` only: as `expiry::inject`, which has the one that was chosen.

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
    /// A tuple is acked without having been executed.
    SkippedTuple = "skipped-tuple",
    /// A batch of tuples is gone on its way.
    LostBatch = "lost-batch",
    /// An edge that is derived is not in the ack of what it was derived from.
    LostEdge = "lost-edge",
    /// What has failed or timed out is not emitted again.
    LostReplay = "lost-replay",
    /// A spout is told twice that a message was acked.
    DoubleAck = "double-ack",
    /// The place of a message that was acked stays taken.
    LeakPlace = "leak-place",
}

/// Whether `bug` strikes here and now.
#[cfg(not(expiry_inject))]
#[inline(always)]
pub(crate) const fn hit(_: Bug) -> bool {
    false
}

/// Whether `bug` strikes here and now.
#[cfg(expiry_inject)]
#[inline]
pub(crate) fn hit(bug: Bug) -> bool {
    expiry::inject::strikes(bug.name())
}
