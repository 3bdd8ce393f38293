//! What may be true of a key on which threads have met, after all time has passed.

use super::contended::Update;
use crate::counts::counts;

/// What one thread did on a key.
#[derive(Debug, Clone, Copy, Default)]
pub struct Part {
    /// Updates that inserted it.
    pub inserted: u8,
    /// Removes that took it out.
    pub removed: u8,
    /// Updates without a timeout that were refused.
    pub refused: u8,
    /// Updates whose acceptance or refusal was a mistake.
    pub mistaken: u8,
    /// Updates that were accepted.
    pub updates: u8,
    /// When it was to expire by the last of them, in intervals.
    pub last: u64,
    /// Of meetings that are timed, when the thread began and when it was through.
    pub from: u64,
    pub to: u64,
}

impl Part {
    /// Counts an update with a timeout of so many intervals.
    pub fn updated(&mut self, timeout: u64, update: Option<Update>) {
        match update {
            Some(update) => {
                self.updates += 1;
                self.inserted += u8::from(update.inserted);
                self.last = update.tick;
                self.mistaken += u8::from(timeout == 0);
            }
            None => {
                self.refused += 1;
                self.mistaken += u8::from(timeout != 0);
            }
        }
    }
}

/// What became of a key.
#[derive(Debug, Clone, Copy, Default)]
pub struct Meeting {
    /// How often it was told as expired.
    pub expired: u8,
    /// When it was, in intervals: exact where time did not pass meanwhile.
    pub ended: u64,
    /// It was still there when all time had passed.
    pub stranded: bool,
}

/// What became of a batch.
#[derive(Debug)]
pub struct Batch {
    /// Key by key.
    pub meetings: Vec<Meeting>,
    /// Expiries of keys that are not of this batch.
    pub strangers: u64,
    /// Keys that were left, by the queue's own account.
    pub left: usize,
}

counts! {
    /// Counts of what was found.
    Judged {
        keys,
        /// Keys that at least two threads came to.
        shared,
        updates,
        inserted,
        removed,
        expired,
        /// Updates without a timeout that were refused.
        refused,
        /// Updates whose acceptance or refusal was a mistake.
        mistaken,
        /// Keys that were still there when all time had passed.
        stranded,
        /// Keys that the queue still counted then.
        left,
        /// Keys with a stay that has no end.
        lost,
        /// Keys with more ends than stays.
        twice,
        /// Keys that expired at a time that no last update had asked for.
        odd,
        /// Keys on which at least two threads were timed, and those where two were at once.
        timed,
        met,
        /// Quiet keys, and those where the results alone show that updates crossed.
        quiet,
        crossed,
    }
}

/// Judges a batch by what each thread did and what became of the keys. In a quiet one no time passed and nobody polled or
/// removed, so that the time of an expiry says whose update was the last.
pub fn judge(batch: &Batch, parts: &[&[Part]], quiet: bool) -> Judged {
    let mut judged = Judged {
        keys: batch.meetings.len() as u64,
        twice: batch.strangers,
        left: batch.left as u64,
        ..Judged::default()
    };
    for (at, meeting) in batch.meetings.iter().enumerate() {
        judge_key(&mut judged, meeting, parts.iter().map(|parts| &parts[at]), quiet);
    }
    judged
}

fn judge_key<'a>(
    judged: &mut Judged,
    meeting: &Meeting,
    parts: impl Iterator<Item = &'a Part> + Clone,
    quiet: bool,
) {
    let sum = |of: fn(&Part) -> u8| parts.clone().map(|part| u64::from(of(part))).sum::<u64>();
    let (inserted, removed) = (sum(|part| part.inserted), sum(|part| part.removed));
    let expired = u64::from(meeting.expired);
    let came = |part: &&Part| part.updates + part.refused > 0;
    judged.shared += u64::from(parts.clone().filter(came).count() > 1);
    judged.updates += sum(|part| part.updates);
    judged.refused += sum(|part| part.refused);
    judged.mistaken += sum(|part| part.mistaken);
    judged.inserted += inserted;
    judged.removed += removed;
    judged.expired += expired;
    let ended = removed + expired + u64::from(meeting.stranded);
    judged.stranded += u64::from(meeting.stranded);
    judged.lost += u64::from(inserted > ended);
    judged.twice += u64::from(ended > inserted);
    let timed = parts.clone().filter(|part| part.to > 0);
    let met = |at: usize, one: &Part| {
        let mut others = timed.clone().skip(at + 1);
        others.any(|other| one.from < other.to && other.from < one.to)
    };
    judged.timed += u64::from(timed.clone().count() > 1);
    judged.met += u64::from(timed.clone().enumerate().any(|(at, one)| met(at, one)));
    if quiet && expired == 1 && inserted == 1 {
        let mut active = parts.filter(|part| part.updates > 0);
        judged.quiet += 1;
        let asked = active.clone().any(|part| part.last == meeting.ended);
        judged.odd += u64::from(!asked);
        // Who inserted it was also the last, by the deadline: the updates of all others came between these two.
        let crossed = active.clone().count() > 1
            && active.all(|part| (part.last == meeting.ended) == (part.inserted == 1));
        judged.crossed += u64::from(crossed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key that the first of two threads inserted and the second updated last, which expired as it should.
    fn sound() -> (Meeting, [Part; 2]) {
        let meeting = Meeting { expired: 1, ended: 3, stranded: false };
        let part = Part { updates: 2, last: 3, from: 10, to: 20, ..Part::default() };
        let first = Part { inserted: 1, last: 2, ..part };
        (meeting, [first, part])
    }

    fn found(spoil: impl FnOnce(&mut Meeting, &mut [Part; 2])) -> Judged {
        let (mut meeting, mut parts) = sound();
        spoil(&mut meeting, &mut parts);
        let batch = Batch { meetings: vec![meeting], strangers: 0, left: 0 };
        judge(&batch, &[&parts[..1], &parts[1..]], true)
    }

    fn wrong(judged: &Judged) -> [u64; 5] {
        let Judged { stranded, lost, twice, odd, mistaken, .. } = *judged;
        [stranded, lost, twice, odd, mistaken]
    }

    #[test]
    fn a_sound_meeting_passes() {
        let judged = found(|_, _| {});
        assert_eq!(wrong(&judged), [0; 5]);
        assert_eq!((judged.shared, judged.timed, judged.met), (1, 1, 1));
        assert_eq!((judged.quiet, judged.crossed), (1, 0));
    }

    #[test]
    fn wrong_stays_are_seen() {
        let stranded = found(|meeting, _| (meeting.expired, meeting.stranded) = (0, true));
        assert_eq!(wrong(&stranded), [1, 0, 0, 0, 0]);
        let lost = found(|meeting, _| meeting.expired = 0);
        assert_eq!(wrong(&lost), [0, 1, 0, 0, 0]);
        let twice = found(|meeting, _| meeting.expired = 2);
        assert_eq!(wrong(&twice), [0, 0, 1, 0, 0]);
        let removed_too = found(|_, parts| parts[1].removed = 1);
        assert_eq!(wrong(&removed_too), [0, 0, 1, 0, 0]);
        let expired_and_there = found(|meeting, _| meeting.stranded = true);
        assert_eq!(wrong(&expired_and_there), [1, 0, 1, 0, 0]);
        let by_an_old_deadline = found(|meeting, _| meeting.ended = 1);
        assert_eq!(wrong(&by_an_old_deadline), [0, 0, 0, 1, 0]);
    }

    #[test]
    fn expiries_of_strangers_are_seen() {
        let batch = Batch { meetings: Vec::new(), strangers: 1, left: 2 };
        let judged = judge(&batch, &[], true);
        assert_eq!((judged.twice, judged.left), (1, 2));
    }

    #[test]
    fn refusals_are_right_or_mistaken() {
        let update = Some(Update { inserted: true, tick: 7 });
        let mut part = Part::default();
        part.updated(0, None);
        part.updated(3, update);
        assert_eq!((part.refused, part.mistaken, part.inserted, part.last), (1, 0, 1, 7));
        part.updated(3, None);
        part.updated(0, update);
        assert_eq!(part.mistaken, 2);
    }

    #[test]
    fn threads_met_if_both_were_there_at_once() {
        let apart = found(|_, parts| (parts[1].from, parts[1].to) = (20, 30));
        assert_eq!((apart.timed, apart.met), (1, 0));
        let alone = found(|_, parts| (parts[1].updates, parts[1].to) = (0, 0));
        assert_eq!((alone.shared, alone.timed, alone.met), (0, 0, 0));
        let untimed = found(|_, parts| parts[1].to = 0);
        assert_eq!((untimed.timed, untimed.met), (0, 0));
    }

    #[test]
    fn results_show_that_updates_crossed() {
        // The one that inserted it was the last, too.
        let crossed = found(|_, parts| (parts[0].last, parts[1].last) = (3, 2));
        assert_eq!((crossed.quiet, crossed.crossed), (1, 1));
        let same = found(|_, parts| parts[0].last = 3);
        assert_eq!(same.crossed, 0, "either may have been the last");
        let alone = found(|_, parts| (parts[0].last, parts[1].updates) = (3, 0));
        assert_eq!(alone.crossed, 0, "there was nobody to cross");
    }
}
