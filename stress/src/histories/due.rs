//! When something is due, as far as its history says.
//!
//! A renewal does not take back what an earlier one reported: with as long a timeout or a longer
//! one it never sets a nearer deadline, and with a shorter one it counts from a reading of the
//! clock that is no earlier than the one of the renewal before it. See [`Due::renewed`], and
//! "Renewals" in the engine's `deadline`.

use super::check::Call;

/// Between which ticks a deadline lies, and when the call had ended that set it.
///
/// A call reads the clock somewhere between its beginning and its end, so what it sets is known up to the ticks that have gone by
/// meanwhile: mostly none. What others see of it later narrows that down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Due {
    first: u32,
    last: u32,
    set: u64,
    /// Lifetime that the call asked for.
    timeout: u32,
}

impl Due {
    /// The deadline of what the call has put in: so many ticks after the call, which reads the
    /// clock when it has ended whatever was in its way, and a listener has returned that was told
    /// of that.
    pub fn after<D>(call: &Call<D>, ticks: u32) -> Self {
        Due { first: call.since + ticks, last: call.to + ticks, set: call.ended, timeout: ticks }
    }

    /// The deadline that the call has set in place of this one.
    pub fn renewed<D>(self, call: &Call<D>, ticks: u32) -> Option<Self> {
        let fresh = Due::after(call, ticks);
        let first = if ticks >= self.timeout {
            self.first
        } else {
            // The clock has not gone back since this one was made of a reading and a timeout.
            self.first.saturating_sub(self.timeout) + ticks
        };
        fresh.between(first, u32::MAX)
    }

    /// The call has asked for so many ticks, and found that it had this deadline. It has written nothing: a renewal under way that asks
    /// for less may have read the clock before this one, and set its deadline after this one had looked.
    pub fn unchanged<D>(self, call: &Call<D>, ticks: u32) -> Option<Self> {
        self.left(call, ticks)
    }

    fn between(self, first: u32, last: u32) -> Option<Self> {
        let (first, last) = (self.first.max(first), self.last.min(last));
        (first <= last).then_some(Due { first, last, ..self })
    }

    /// This very tick was told.
    pub fn at(self, tick: u32) -> Option<Self> {
        self.between(tick, tick)
    }

    /// So many ticks were told to be left when the call looked.
    pub fn left<D>(self, call: &Call<D>, ticks: u32) -> Option<Self> {
        self.between(call.from + ticks, call.to + ticks)
    }

    /// The call found that it is yet to come.
    pub fn is_to_come<D>(self, call: &Call<D>) -> Option<Self> {
        self.between(call.from + 1, u32::MAX)
    }

    /// The call found that it has come.
    pub fn has_come<D>(self, call: &Call<D>) -> Option<Self> {
        self.between(0, call.to)
    }

    /// A poll has gone by and left it: so it was yet to come when that began, or the driver could not know of it: who says so
    /// may still have been at it then, or somebody else who was to tell of its bucket. All who were at something have begun
    /// after `since`.
    pub fn is_left<D>(self, poll: &Call<D>, since: u64) -> Option<Self> {
        if self.set < since {
            // From now on so are all polls. Forgotten: what differs in nothing else is then the same.
            Due { set: 0, ..self }.is_to_come(poll)
        } else {
            Some(self)
        }
    }
}

impl std::fmt::Display for Due {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.first == self.last {
            write!(f, "due at {}", self.first)
        } else {
            write!(f, "due at {} to {}", self.first, self.last)
        }
    }
}
