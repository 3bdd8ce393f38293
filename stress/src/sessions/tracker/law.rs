//! The law of a session: what may have been told of it, by what was asked and when.
//!
//! Each check looks at one promise, and is sure: where operations overlap it takes the order that excuses most.

use expiry::SessionInfo;

/// What was done to a session, or became of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Did {
    /// It was created, by this owner, global or local.
    Created { owner: u64, global: bool },
    /// A touch said `Ok`.
    Touched,
    /// It is being closed from here on, by whoever did this.
    Closing,
    /// It was given to `owner`, and was `before`'s.
    Moved { owner: u64, before: u64 },
    /// It was to be given to `owner`, who was refused, but may have been told.
    NotMoved { owner: u64 },
    /// It was said to be this owner's.
    Owned { owner: u64 },
    /// It was upgraded; `true`: by this.
    Upgraded(bool),
    /// An operation found no such session.
    Unknown,
    /// An operation found that it is being closed.
    FoundClosing,
    /// A taking of touches named it.
    Reported,
    /// It ended, and was told to be this.
    Ended(End, SessionInfo),
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Expired,
    Removed,
    /// A shutdown returned it.
    Left,
}

/// An event in a session's life, as of a queue's key.
pub type Event = super::super::history::Event<Did>;

impl Event {
    fn is_before(&self, other: &Event) -> bool {
        self.ended < other.began
    }

    fn renews(&self) -> bool {
        matches!(self.did, Did::Created { .. } | Did::Touched)
    }

    fn end(&self) -> Option<End> {
        match self.did {
            Did::Ended(end, _) => Some(end),
            _ => None,
        }
    }
}

/// What the tracker has promised, and what the collector did.
#[derive(Debug, Clone, Copy)]
pub struct Promise<'a> {
    /// By how much a deadline may be rounded up.
    pub rounding: u64,
    /// How much later than its deadline a session may be told, if that is promised at all.
    pub late: Option<u64>,
    /// All takings of touches, in order: when each began and ended, and the clock's reading then.
    pub takings: &'a [(u64, u64, u64)],
}

/// What was found: violations, each a check's name and the reason; and how late the expiry was.
#[derive(Debug, Default)]
pub struct Found {
    pub wrong: Vec<(&'static str, &'static str)>,
    pub lateness: Option<u64>,
}

impl Found {
    fn expect(&mut self, check: &'static str, holds: bool, why: &'static str) {
        if !holds {
            self.wrong.push((check, why));
        }
    }
}

/// Judges a session by all its events.
pub fn judge(events: &[Event], promise: &Promise<'_>) -> Found {
    let mut found = Found::default();
    let created = |event: &&Event| matches!(event.did, Did::Created { .. });
    let mut ends = events.iter().filter(|event| event.end().is_some());
    let (Some(created), Some(end)) = (events.iter().find(created), ends.next()) else {
        let known = events.iter().any(|event| created(&event));
        found.expect("ends_once", known, "it ended, and nobody created it");
        found.expect("every_session_ends", !known, "nobody was told of its end");
        return found;
    };
    found.expect("ends_once", ends.next().is_none(), "it ended twice");
    let (earliest, latest) = due(events);
    if end.end() == Some(End::Expired) {
        let renewed = "it expired before the time that its last touch had set";
        found.expect("renewed_is_renewed", end.to >= earliest, renewed);
        let late = promise.late.unwrap_or(u64::MAX);
        let punctual = end.to <= latest.saturating_add(promise.rounding).saturating_add(late);
        found.expect("none_late", punctual, "it expired later than promised");
        found.lateness = Some(end.to.saturating_sub(earliest));
    }
    closing(events, end, &mut found);
    refusals(events, end, earliest, &mut found);
    reports(events, end, earliest, promise, &mut found);
    owners(events, &mut found);
    upgrades(events, created, end, &mut found);
    found
}

/// Between which clock readings the last deadline is, but for its rounding: of what may have renewed it last.
///
/// The last renewal does not take back what another one reported. It read the clock after that one
/// did, or left a deadline that was no nearer; so it sets none before that one's beginning and the
/// shorter timeout.
fn due(events: &[Event]) -> (u64, u64) {
    let renewals = || events.iter().filter(|event| event.renews());
    let last = |event: &&Event| !renewals().any(|other| event.is_before(other));
    let due = |at: u64, event: &Event| at.saturating_add(event.timeout);
    let earliest = renewals().filter(last).map(|event| {
        let kept = renewals().map(|other| other.from + other.timeout.min(event.timeout));
        kept.max().unwrap_or(0)
    });
    let latest = renewals().filter(last).map(|event| due(event.to, event));
    (earliest.min().unwrap_or(0), latest.max().unwrap_or(u64::MAX))
}

/// Who is told `Ok` by the closing has it: nobody else is, no touch succeeds from then on, and it does not expire.
fn closing(events: &[Event], end: &Event, found: &mut Found) {
    let mut closings = events.iter().filter(|event| event.did == Did::Closing);
    if let Did::Ended(End::Removed | End::Left, session) = end.did {
        let told = session.remaining.is_none() == closings.clone().next().is_some();
        found.expect("closing_is_final", told, "what its end was told of its closing is wrong");
    }
    let Some(closing) = closings.next() else {
        return;
    };
    let once = closings.next().is_none();
    found.expect("closing_is_final", once, "two were told to close it");
    let touched = events.iter().any(|event| event.did == Did::Touched && closing.is_before(event));
    found.expect("closing_is_final", !touched, "it was touched while it was being closed");
    let expired = end.end() == Some(End::Expired);
    found.expect("none_expires_while_closing", !expired, "it was being closed, and expired");
}

/// Whoever was told that there is no such session came after the end, and whoever was told `Ok` did not; and "closing" is told
/// after a closing has begun.
fn refusals(events: &[Event], end: &Event, earliest: u64, found: &mut Found) {
    let closing = events.iter().find(|event| event.did == Did::Closing);
    for event in events {
        match event.did {
            Did::Unknown | Did::NotMoved { .. } => {
                // When it expired, nobody knows; but when it was due.
                let after = match end.end() {
                    Some(End::Expired) => event.to >= earliest,
                    _ => event.ended >= end.began,
                };
                found.expect("refusals_true", after, "it was unknown before it had ended");
            }
            Did::FoundClosing => {
                let begun = closing.is_some_and(|closing| !event.is_before(closing));
                found.expect("refusals_true", begun, "nobody had begun to close it");
            }
            Did::Touched
            | Did::Closing
            | Did::Moved { .. }
            | Did::Upgraded(_)
            | Did::Owned { .. } => {
                let before = !end.is_before(event);
                found.expect("ended_is_ended", before, "it was there after its end was told");
            }
            _ => {}
        }
    }
}

/// Q14: a touch of a global session is in a report: of a taking under way, or of the next one; or, where it has met another touch
/// of the same session, of the next one after that.
fn reports(events: &[Event], end: &Event, earliest: u64, promise: &Promise<'_>, found: &mut Found) {
    let reports = || events.iter().filter(|event| event.did == Did::Reported);
    let touches = || events.iter().filter(|event| event.did == Did::Touched);
    let global = |event: &Event, touch: &Event| match event.did {
        Did::Created { global, .. } => global,
        Did::Upgraded(_) => event.is_before(touch),
        _ => false,
    };
    for touch in touches().filter(|touch| events.iter().any(|event| global(event, touch))) {
        let met = touches().filter(|other| !touch.is_before(other) && !other.is_before(touch));
        let over = met.map(|other| other.ended).max().unwrap_or(touch.ended);
        let next = promise.takings.partition_point(|taking| taking.0 <= over);
        let Some(&(began, ended, now)) = promise.takings.get(next) else {
            continue;
        };
        // What has ended by then, or is being closed, is left out.
        let gone = match end.end() {
            Some(End::Expired) => now >= earliest,
            _ => end.began <= ended,
        };
        let closing = |event: &Event| event.did == Did::Closing && event.began <= ended;
        let told = reports().any(|report| touch.began <= report.ended && report.began <= began);
        let reported = told || gone || events.iter().any(closing);
        found.expect("touches_reported", reported, "a touch is in no report");
    }
    for report in reports() {
        let cause = touches().any(|touch| touch.began <= report.ended);
        found.expect("reports_true", cause, "it was reported, and nobody had touched it");
    }
}

/// An owner that was told had been given the session, and nobody else had been since. (All owners of a round differ.)
fn owners(events: &[Event], found: &mut Found) {
    let given = |event: &Event| match event.did {
        Did::Created { owner, .. } | Did::Moved { owner, .. } | Did::NotMoved { owner } => {
            Some(owner)
        }
        _ => None,
    };
    for event in events {
        let told = match event.did {
            Did::Moved { before, .. } => before,
            Did::Owned { owner } => owner,
            Did::Ended(_, session) => session.owner,
            _ => continue,
        };
        let giving = events.iter().find(|other| given(other) == Some(told));
        let right = giving.is_some_and(|giving| {
            let between = |other: &Event| {
                matches!(other.did, Did::Moved { .. })
                    && giving.is_before(other)
                    && other.is_before(event)
            };
            !event.is_before(giving) && !events.iter().any(between)
        });
        found.expect("owners_right", right, "an owner was told who was not");
    }
}

/// One upgrade makes a local session global, and whoever is told of its end is told so.
fn upgrades(events: &[Event], created: &Event, end: &Event, found: &mut Found) {
    let (Did::Created { global, .. }, Did::Ended(_, session)) = (created.did, end.did) else {
        return;
    };
    let upgrades = |by: bool| events.iter().filter(|event| event.did == Did::Upgraded(by)).count();
    let (first, others) = (upgrades(true), upgrades(false));
    let right = if global { first == 0 } else { first == usize::from(first + others > 0) };
    found.expect("upgrades_right", right, "not exactly one upgrade made it global");
    let told = session.is_global == (global || first > 0);
    found.expect("upgrades_right", told, "its end was told of another kind of session");
}

/// Holds the ids that were issued, each with when that began and ended, against their order. Two reasons at most.
pub fn judge_ids(issued: &mut [(u64, u64, u64)]) -> Vec<(&'static str, &'static str)> {
    issued.sort_unstable();
    let mut found = Found::default();
    let unique = issued.windows(2).all(|two| two[0].0 != two[1].0);
    found.expect("ids_unique", unique, "an id was issued twice");
    let mut first_end = u64::MAX;
    // From the largest: who began after one of the larger ids was there should have a larger one itself.
    let in_order = issued.iter().rev().all(|&(_, began, ended)| {
        let overtaken = first_end < began;
        first_end = first_end.min(ended);
        !overtaken
    });
    found.expect("ids_in_order", in_order, "an id is smaller than one issued before");
    found.wrong
}

#[cfg(test)]
#[path = "law_tests.rs"]
mod tests;
