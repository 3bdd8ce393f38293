//! Where messages come from, and come from again until all that was derived from them is done.

use expiry::{AckError, AckTracker, Outcome, Tuple};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A message's work, or a part of it. When it is acked the tracker has heard of all parts derived from it.
pub type Share = Tuple<Arc<AckTracker>>;

/// A line on its way. Its number is its token: what comes back with the outcome, and the same in each attempt.
#[derive(Debug)]
pub struct Line {
    pub number: u64,
    pub text: Arc<str>,
    pub share: Share,
}

/// What the source has been told.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    pub acked: u64,
    pub failed: u64,
    pub timed_out: u64,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    #[error("the tracker refused a line: {0}")]
    Refused(#[from] AckError),
    #[error("line {0} was tried {1} times")]
    Attempts(u64, u32),
    #[error("an outcome for line {0}, which is not under way")]
    NotPending(u64),
    #[error("the tracker has been shut down")]
    Cancelled,
}

pub struct Source<L> {
    tracker: Arc<AckTracker>,
    lines: L,
    /// How many may be under way.
    most: usize,
    attempts: u32,
    /// The lines under way, and which attempt that is.
    pending: BTreeMap<u64, (Arc<str>, u32)>,
    read: u64,
    told: Told,
}

impl<L: Iterator<Item = String>> Source<L> {
    /// At most `most` lines are under way at once, and each is tried so often.
    pub fn new(tracker: Arc<AckTracker>, lines: L, most: usize, attempts: u32) -> Self {
        Source {
            tracker,
            lines,
            most,
            attempts,
            pending: BTreeMap::new(),
            read: 0,
            told: Told::default(),
        }
    }

    /// The next line, unless there is none or enough are under way.
    pub fn next(&mut self) -> Result<Option<Line>, SourceError> {
        if self.pending.len() >= self.most {
            return Ok(None);
        }
        let Some(text) = self.lines.next() else {
            return Ok(None);
        };
        self.read += 1;
        self.emit(self.read, text.into(), 1).map(Some)
    }

    /// What became of an attempt. The line once more, if that is not what it should be.
    pub fn outcome(&mut self, outcome: &Outcome) -> Result<Option<Line>, SourceError> {
        let number = outcome.owner;
        let pending = self.pending.remove(&number);
        let (text, attempt) = pending.ok_or(SourceError::NotPending(number))?;
        if outcome.is_acked() {
            self.told.acked += 1;
            return Ok(None);
        } else if outcome.is_failed() {
            self.told.failed += 1;
        } else if outcome.is_timed_out() {
            self.told.timed_out += 1;
        } else {
            return Err(SourceError::Cancelled);
        }
        if attempt == self.attempts {
            return Err(SourceError::Attempts(number, attempt));
        }
        self.emit(number, text, attempt + 1).map(Some)
    }

    /// An attempt of its own: a root of its own, which late acks of an earlier attempt cannot touch.
    fn emit(&mut self, number: u64, text: Arc<str>, attempt: u32) -> Result<Line, SourceError> {
        let share = Tuple::root(self.tracker.clone(), number)?;
        self.pending.insert(number, (text.clone(), attempt));
        Ok(Line { number, text, share })
    }

    /// Whether nothing is under way.
    pub fn is_at_rest(&self) -> bool {
        self.pending.is_empty()
    }

    pub fn read(&self) -> u64 {
        self.read
    }

    pub fn told(&self) -> Told {
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expiry::ManualClock;
    use std::sync::mpsc::{channel, Receiver};
    use std::time::Duration;

    const TIMEOUT: Duration = Duration::from_secs(30);

    struct Scene {
        clock: ManualClock,
        tracker: Arc<AckTracker>,
        outcomes: Receiver<Outcome>,
    }

    impl Scene {
        fn set() -> Self {
            let clock = ManualClock::new();
            let (told, outcomes) = channel();
            let builder = AckTracker::builder().timeout(TIMEOUT).clock(clock.clone());
            let builder = builder.on_outcome(move |outcome: &Outcome| told.send(*outcome).unwrap());
            Scene { clock, tracker: Arc::new(builder.build_manual().unwrap()), outcomes }
        }

        fn source(&self, lines: u64) -> Source<impl Iterator<Item = String>> {
            let lines = (1..=lines).map(|line| format!("line {line}"));
            Source::new(self.tracker.clone(), lines, 2, 3)
        }

        fn outcome(&self) -> Outcome {
            while self.tracker.poll(1000).more {}
            self.outcomes.try_recv().unwrap()
        }
    }

    #[test]
    fn a_line_is_under_way_until_all_its_parts_are_done() {
        let scene = Scene::set();
        let mut source = scene.source(3);
        let [mut first, second] = [(); 2].map(|()| source.next().unwrap().unwrap());
        assert!(source.next().unwrap().is_none(), "two are enough");
        let word = first.share.emit();
        first.share.ack().unwrap();
        assert!(scene.outcomes.try_recv().is_err(), "a word is not done");
        word.ack().unwrap();
        assert_eq!(source.outcome(&scene.outcome()).map(|line| line.is_none()), Ok(true));
        let third = source.next().unwrap().unwrap();
        assert_eq!((third.number, &*third.text), (3, "line 3"));
        for line in [second, third] {
            line.share.ack().unwrap();
        }
        for _ in 0..2 {
            assert!(source.outcome(&scene.outcome()).unwrap().is_none());
        }
        assert!(source.is_at_rest() && source.next().unwrap().is_none());
        assert_eq!((source.read(), source.told().acked), (3, 3));
    }

    #[test]
    fn what_fails_or_is_lost_comes_again_and_the_attempt_before_has_no_say_any_more() {
        let scene = Scene::set();
        let mut source = scene.source(1);
        let mut first = source.next().unwrap().unwrap();
        let late = first.share.emit();
        first.share.fail().unwrap();
        let mut second = source.outcome(&scene.outcome()).unwrap().unwrap();
        assert_eq!((second.number, &*second.text), (1, "line 1"));
        assert_eq!(late.ack(), Err(AckError::NotLive));

        let lost = second.share.emit();
        second.share.ack().unwrap();
        drop(lost);
        scene.clock.advance(TIMEOUT + Duration::from_secs(1));
        let third = source.outcome(&scene.outcome()).unwrap().unwrap();
        third.share.fail().unwrap();
        let error = source.outcome(&scene.outcome()).unwrap_err();
        assert_eq!(error, SourceError::Attempts(1, 3));
        let told = source.told();
        assert_eq!((told.acked, told.failed, told.timed_out), (0, 2, 1));
    }
}
