//! Events for operators (feature `tracing`): what is rare, and worth a line in a log. Without the
//! feature nothing is left of them.
//!
//! A subscriber is the user's code, as handlers are. So events are where handlers are called, or
//! might be: the store is consistent and unlocked there, because the subscriber may call it. The
//! driver reports on its next visit what happens elsewhere, in the midst of an index's growth. A
//! subscriber's panic is caught and not reported: the report would be an event.
//!
//! `docs/guide/operations.md` lists them.

/// An event with a level, a message and fields, for the target `expiry`.
#[cfg(feature = "tracing")]
macro_rules! event {
    ($level:ident, $message:literal $(, $field:ident = $value:expr)*) => {
        $crate::kit::panics::quietly(|| {
            ::tracing::event!(target: "expiry", ::tracing::Level::$level, $($field = $value,)* $message);
        })
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! event {
    ($level:ident, $message:literal $(, $field:ident = $value:expr)*) => {{
        // Never called: the fields are used, and cost nothing.
        let _ = || ($($value,)*);
    }};
}

pub(crate) use event;
