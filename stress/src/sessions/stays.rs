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
    /// When the thread began a timed meeting, and when it was through.
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
pub struct Fate {
    /// How often it was reported as expired.
    pub expired: u8,
    /// When it was, in intervals: exact where time did not pass meanwhile.
    pub ended: u64,
    /// It was still there when all time had passed.
    pub stranded: bool,
}

impl Fate {
    pub fn expires(&mut self, tick: u64) {
        self.expired = self.expired.saturating_add(1);
        self.ended = tick;
    }
}

counts! {
    /// Counts of what was found.
    Found {
        keys,
        /// Keys that at least two threads visited.
        shared,
        updates,
        removed,
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
    }
}

impl Found {
    /// Judges a key by what each thread did on it and what became of it. If it is a quiet one, no
    /// time passed and no thread polled or removed: the time of its expiry says whose update was
    /// the last.
    pub fn judge<'a>(
        &mut self,
        fate: Fate,
        parts: impl Iterator<Item = &'a Part> + Clone,
        quiet: bool,
    ) {
        let sum = |of: fn(&Part) -> u8| parts.clone().map(|part| u64::from(of(part))).sum::<u64>();
        let (inserted, removed) = (sum(|part| part.inserted), sum(|part| part.removed));
        let came = |part: &&Part| part.updates + part.refused > 0;
        self.keys += 1;
        self.shared += u64::from(parts.clone().filter(came).count() > 1);
        self.updates += sum(|part| part.updates);
        self.refused += sum(|part| part.refused);
        self.mistaken += sum(|part| part.mistaken);
        self.removed += removed;
        let ended = removed + u64::from(fate.expired) + u64::from(fate.stranded);
        self.stranded += u64::from(fate.stranded);
        self.lost += u64::from(inserted > ended);
        self.twice += u64::from(ended > inserted);
        if quiet && fate.expired == 1 && inserted == 1 {
            let mut active = parts.clone().filter(|part| part.updates > 0);
            self.odd += u64::from(!active.any(|part| part.last == fate.ended));
        }
        let timed = parts.filter(|part| part.to > 0);
        let met = |(at, one): (usize, &Part)| {
            let mut others = timed.clone().skip(at + 1);
            others.any(|other| one.from < other.to && other.from < one.to)
        };
        self.timed += u64::from(timed.clone().count() > 1);
        self.met += u64::from(timed.clone().enumerate().any(met));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result for a key that the first of two threads inserted and the second updated last. The
    /// key expired as it should, but for the changes that `spoil` makes.
    fn found(spoil: fn(&mut Fate, &mut Part, &mut Part)) -> Found {
        let mut fate = Fate { expired: 1, ended: 3, stranded: false };
        let mut second = Part { updates: 2, last: 3, from: 10, to: 20, ..Part::default() };
        let mut first = Part { inserted: 1, last: 2, ..second };
        spoil(&mut fate, &mut first, &mut second);
        let mut found = Found::default();
        found.judge(fate, [first, second].iter(), true);
        found
    }

    #[test]
    fn threads_met_if_both_were_there_at_once() {
        let meetings = |spoil| {
            let Found { shared, timed, met, .. } = found(spoil);
            (shared, timed, met)
        };
        assert_eq!(meetings(|_, _, _| {}), (1, 1, 1));
        let apart = meetings(|_, _, second| (second.from, second.to) = (20, 30));
        assert_eq!(apart, (1, 1, 0));
        let alone = meetings(|_, _, second| (second.updates, second.to) = (0, 0));
        assert_eq!(alone, (0, 0, 0));
        let untimed = meetings(|_, _, second| second.to = 0);
        assert_eq!(untimed, (1, 0, 0));
    }
}
