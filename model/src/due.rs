//! When something is due, as far as its history says.
//!
//! A renewal does not take back what an earlier one reported. With as long a timeout or a longer
//! one it never sets a nearer deadline. With a shorter one it counts from a clock reading that is
//! no earlier than that of the renewal before it which has changed the lease. See
//! [`Due::renewed`] and [`Due::touched`], and the engine's `renewal`.

use crate::linear::{Span, Then};

/// The ticks between which a deadline lies, and when the call that set it had ended.
///
/// A call reads the clock somewhere between its beginning and its end. So its deadline is known up
/// to the ticks that have gone by meanwhile: mostly none. What other calls see of it later narrows
/// that down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Due {
    first: u32,
    last: u32,
    set: u64,
    /// The earliest clock reading that it may have been made of, and the longest lifetime that may
    /// have been added to that.
    reading: u32,
    timeout: u32,
}

impl Due {
    /// The deadline of an entry that the call has inserted: so many ticks after the call's clock
    /// reading. The call reads the clock after it has ended an expired predecessor, and after the
    /// listener of that end has returned.
    pub fn after(call: &Span, ticks: u32) -> Self {
        Due {
            first: call.since + ticks,
            last: call.to + ticks,
            set: call.ended,
            reading: call.since,
            timeout: ticks,
        }
    }

    /// The deadline that the call has set in place of this one.
    pub fn renewed(self, call: &Span, ticks: u32) -> Option<Self> {
        let fresh = Due::after(call, ticks);
        let first = if ticks >= self.timeout {
            self.first
        } else {
            // The clock has not gone back since this one was made of a reading and a timeout.
            self.reading + ticks
        };
        fresh.between(first, u32::MAX)
    }

    /// The deadline after a call that has [renewed](Self::renewed) it, or has found the very
    /// deadline that it asked for. Such a call changes nothing: another one that asks for less may
    /// have read the clock before it, and set its deadline after it.
    pub fn touched(self, call: &Span, ticks: u32) -> Option<Self> {
        let renewed = self.renewed(call, ticks)?;
        let Some(found) = self.left(call, ticks) else {
            return Some(renewed);
        };
        let reading = renewed.reading.min(found.reading);
        Some(Due { reading, timeout: ticks.max(found.timeout), ..renewed })
    }

    fn between(self, first: u32, last: u32) -> Option<Self> {
        let (first, last) = (self.first.max(first), self.last.min(last));
        let reading = self.reading.max(first.saturating_sub(self.timeout));
        (first <= last).then_some(Due { first, last, reading, ..self })
    }

    /// A call reported this very tick.
    pub fn at(self, tick: u32) -> Option<Self> {
        self.between(tick, tick)
    }

    /// The call reported so many ticks left.
    pub fn left(self, call: &Span, ticks: u32) -> Option<Self> {
        self.between(call.from + ticks, call.to + ticks)
    }

    /// The call found that it is yet to come.
    pub fn is_to_come(self, call: &Span) -> Option<Self> {
        self.between(call.from + 1, u32::MAX)
    }

    /// The call found that it has come.
    pub fn has_come(self, call: &Span) -> Option<Self> {
        self.between(0, call.to)
    }

    /// A poll has gone by and left the entry. So the deadline was yet to come when the poll began,
    /// or the driver could not know of it. The setting call may still have been under way then, or
    /// another call that was to notify the driver of the same slot block. All calls under way then
    /// began after `since`.
    pub fn is_left(self, poll: &Span, since: u64) -> Option<Self> {
        if self.set < since {
            // From now on every poll decides it. `set` is forgotten, so that states that differ in
            // nothing else are the same.
            Due { set: 0, ..self }.is_to_come(poll)
        } else {
            Some(self)
        }
    }
}

/// The state after a poll that has left the entry, whose deadline `due` finds in the state. See
/// [`Due::is_left`].
pub fn left_by_poll<S>(
    mut state: S,
    due: impl Fn(&mut S) -> Option<&mut Due>,
    poll: &Span,
    since: u64,
) -> Option<(S, Then)> {
    if let Some(due) = due(&mut state) {
        *due = due.is_left(poll, since)?;
    }
    Some((state, Then::Done))
}
