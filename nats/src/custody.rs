//! The life of a message at a source, without any I/O.
//!
//! A message is *held* from its delivery until it has left the stream: the topology acked it, or
//! its dead letter is stored. Meanwhile the source reports to the broker every third of `ack_wait`
//! that work is in progress, so that the broker does not deliver the message again.
//!
//! | event | held before | then |
//! |---|---|---|
//! | delivered, first time | no | held, given to the topology |
//! | delivered again | yes | held with the new reply subject, not given again |
//! | delivered again, acked here lately | no | acked again: the first ack was lost |
//! | delivered more often than `most` | no | held, a suspect |
//! | tree acked | yes | acked, remembered as acked |
//! | tree failed | yes | nak'ed with a pause; last attempt: buried; after a trial: terminated |
//! | source deactivated | not emitted | nak'ed |
//! | dead letter stored | buried | terminated |
//! | dead letter refused | buried or suspect | nak'ed with a pause, as all suspects are |
//! | dead letter unanswered | suspect | published again after a second |
//! | dead letter unanswered | buried | as if it were refused |
//!
//! The broker counts the deliveries, also those in which nothing failed: the worker died, or the
//! source was closed or deactivated. So from the `attempts`th delivery on a failure is the last one
//! only if the process has seen the message fail for `at_least`. What it has not seen that long,
//! it buries after `most` deliveries, twice `attempts`. Whichever `attempts` of these have failed
//! nothing, the pauses after the others add up to `at_least`.
//!
//! A message that kills its worker takes along what else the worker holds, so a count above `most`
//! makes a message a *suspect* only: it has a trial. The source stores its dead letter first, and
//! gives it to the topology when that has nothing else. If the worker dies or closes the source,
//! the next one finds that the letter is there already, and terminates the message. The letter
//! proves nothing to the source that sent it, where its ack was lost, or where the spout was
//! deactivated before the trial: the trial follows. The letter is taken back if the message is
//! acked, and only then: within its duplicate window the stream would not store it again. While
//! there is a suspect, nothing else is given.
//!
//! An event that names a message that is not held changes nothing. What the source may answer no
//! more, because another worker owns its partition, is forgotten: the broker delivers it again.
//!
//! Times are durations on any clock of the caller that does not go back.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::time::Duration;

/// The number of acked messages that the source remembers, in case their ack was lost.
const REMEMBERED: usize = 1 << 16;
/// The pause after a dead letter that was not stored.
const LETTER_PAUSE: Duration = Duration::from_secs(5);

/// The messages that one source task holds. An id is never that of another message, also if the
/// stream is deleted and made again. `T` is what the caller needs to answer the broker.
pub(crate) struct Custody<Id, T> {
    ack_wait: Duration,
    attempts: u64,
    /// The deliveries after which a failed message is buried however long it has failed.
    most: u64,
    /// The least time between a message's first and last failure.
    at_least: Duration,
    held: HashMap<Id, Delivered<T>>,
    /// What is to be given to the topology, and what is to have its trial: all of it is held.
    waiting: VecDeque<Id>,
    suspects: VecDeque<Id>,
    /// The letter of a suspect is on its way, or the topology has the suspect.
    has_trial: bool,
    /// The number of messages that the topology has.
    given: usize,
    /// When a held message is next to be reported in progress. All waits are equal: a queue sorts
    /// them. An entry whose message has gone, or has another time, is skipped; when more than half
    /// of the entries are such, they are removed.
    extensions: VecDeque<(Duration, Id)>,
    /// When suspects are taken again: a dead letter was not stored.
    letters_at: Duration,
    /// The suspect whose letter has no answer, and when it is published again.
    again: Option<(Duration, Id)>,
    /// The suspect that was taken back in its trial, before the topology began with it.
    untried: Option<Id>,
    acked: HashSet<Id>,
    /// The oldest of `acked` first, and ids that a first delivery has removed from there. Such an
    /// entry may forget a later ack of its message early.
    acked_order: VecDeque<Id>,
}

struct Delivered<T> {
    message: T,
    deliveries: u64,
    extend_at: Duration,
    place: Place,
    /// Why the message becomes a dead letter, once that is decided.
    why: String,
    /// This source has sent the letter before, and the trial has not begun.
    was_sent: bool,
    /// Where the letter of a suspect that has its trial is stored.
    letter: Option<Letter>,
}

/// Where a dead letter is stored, as the publish's answer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Letter {
    pub(crate) stream: String,
    pub(crate) sequence: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// It is to be given to the topology, or to have its trial.
    Waiting,
    Given,
    /// A suspect whose letter is on its way.
    Accused,
    /// A suspect that the topology has. Its letter is stored.
    Tried,
    /// The letter is on its way, and the topology is done with it.
    Buried,
}

/// What the caller does.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action<Id, T> {
    /// The topology gets the message.
    Give(Id),
    /// The caller publishes the dead letter.
    Bury(Id),
    /// The message has gone already: the first ack was lost.
    AckAgain(T),
    /// The broker is to deliver the message again after the pause.
    Nak(T, Duration),
    /// The dead letter is stored: the message is terminated at the broker.
    Term(T),
}

impl<Id: Copy + Eq + Hash, T> Custody<Id, T> {
    /// A message becomes a dead letter after `attempts` deliveries or more, when it has failed for
    /// as long as `at_least`.
    pub(crate) fn new(ack_wait: Duration, attempts: u64, at_least: Duration) -> Self {
        Custody {
            ack_wait,
            attempts,
            // At least 4: a single attempt has a pause after it, too.
            most: 2 * attempts.max(2),
            at_least,
            held: HashMap::new(),
            waiting: VecDeque::new(),
            suspects: VecDeque::new(),
            has_trial: false,
            given: 0,
            extensions: VecDeque::new(),
            letters_at: Duration::ZERO,
            again: None,
            untried: None,
            acked: HashSet::new(),
            acked_order: VecDeque::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// The broker has delivered a message for the `deliveries`th time. One that is held already
    /// gets the new reply subject.
    pub(crate) fn deliver(
        &mut self,
        now: Duration,
        id: Id,
        deliveries: u64,
        message: T,
    ) -> Option<Action<Id, T>> {
        if deliveries == 1 {
            // A consumer that was made anew reads all again: none of its deliveries is acked yet.
            self.acked.remove(&id);
        } else if self.acked.contains(&id) {
            return Some(Action::AckAgain(message));
        }
        let is_suspect = deliveries > self.most;
        if is_suspect && now < self.letters_at && !self.held.contains_key(&id) {
            return Some(Action::Nak(message, self.letters_at - now));
        }
        let extend_at = now + self.ack_wait / 3;
        if self.extensions.len() > 2 * self.held.len() + 64 {
            let held = &self.held;
            self.extensions
                .retain(|(at, id)| held.get(id).is_some_and(|held| held.extend_at == *at));
        }
        self.extensions.push_back((extend_at, id));
        if let Some(held) = self.held.get_mut(&id) {
            (held.message, held.deliveries, held.extend_at) = (message, deliveries, extend_at);
            return None;
        }
        let queue = if is_suspect { &mut self.suspects } else { &mut self.waiting };
        queue.push_back(id);
        let was_sent = self.untried.take_if(|untried| *untried == id).is_some();
        let (place, why, letter) = (Place::Waiting, String::new(), None);
        let held = Delivered { message, deliveries, extend_at, place, why, was_sent, letter };
        self.held.insert(id, held);
        None
    }

    /// What is to be done next, if anything. To be asked until it is nothing, after every event.
    pub(crate) fn next_step(&mut self) -> Option<Action<Id, T>> {
        if self.has_trial || (self.given > 0 && !self.suspects.is_empty()) {
            return None;
        }
        if let Some(id) = self.suspects.pop_front() {
            let held = self.held.get_mut(&id)?;
            held.place = Place::Accused;
            held.why = format!("no worker finished it in {} deliveries", self.most);
            self.has_trial = true;
            return Some(Action::Bury(id));
        }
        let id = self.waiting.pop_front()?;
        self.held.get_mut(&id)?.place = Place::Given;
        self.given += 1;
        Some(Action::Give(id))
    }

    pub(crate) fn message(&self, id: Id) -> Option<(&T, u64)> {
        self.held.get(&id).map(|held| (&held.message, held.deliveries))
    }

    /// The topology has acked a message. Returns what is to be acked at the broker, and its dead
    /// letter, which the caller takes back.
    pub(crate) fn acked(&mut self, id: Id) -> Option<(T, Option<Letter>)> {
        let letter = self.held.get_mut(&id)?.letter.take();
        let message = self.take_back(id)?;
        if self.acked_order.len() == REMEMBERED {
            let oldest = self.acked_order.pop_front()?;
            self.acked.remove(&oldest);
        }
        if self.acked.insert(id) {
            self.acked_order.push_back(id);
        }
        Some((message, letter))
    }

    /// The topology has failed a message. The process has seen it fail for as long as `fails_for`;
    /// `None` says that no attempt can succeed.
    pub(crate) fn failed(
        &mut self,
        id: Id,
        why: &str,
        fails_for: Option<Duration>,
    ) -> Option<Action<Id, T>> {
        let held = self.held.get_mut(&id)?;
        let (deliveries, place) = (held.deliveries, held.place);
        let is_last = fails_for.is_none_or(|time| {
            deliveries >= self.most || deliveries >= self.attempts && time >= self.at_least
        });
        if place == Place::Given && is_last {
            (held.place, held.why) = (Place::Buried, why.to_string());
            self.given -= 1;
            return Some(Action::Bury(id));
        }
        let message = self.take_back(id)?;
        if place != Place::Given {
            return Some(Action::Term(message));
        }
        // The nth pause is n parts of the time, up to the one before the `attempts`th delivery. The
        // broker counts the deliveries: so however many workers share them, these pauses add up to
        // the whole time.
        let number = |n: u64| u32::try_from(n.max(1)).unwrap_or(u32::MAX);
        let parts = number(self.attempts.saturating_mul(self.attempts - 1) / 2);
        let number = number(deliveries.min(self.attempts - 1));
        Some(Action::Nak(message, (self.at_least / parts).saturating_mul(number)))
    }

    /// Gives back what the topology has not begun with: what waits, and what was `given`.
    pub(crate) fn take_unused(&mut self, given: impl Iterator<Item = Id>) -> Vec<T> {
        let mut unused = Vec::new();
        for id in given {
            let is_tried = self.held.get(&id).is_some_and(|held| held.place == Place::Tried);
            self.untried = is_tried.then_some(id).or(self.untried);
            unused.extend(self.take_back(id));
        }
        let waiting = self.waiting.drain(..).chain(self.suspects.drain(..));
        unused.extend(waiting.filter_map(|id| self.held.remove(&id)).map(|held| held.message));
        unused
    }

    /// Takes a message back from the topology.
    fn take_back(&mut self, id: Id) -> Option<T> {
        match self.held.get(&id)?.place {
            Place::Given => self.given -= 1,
            Place::Tried => self.has_trial = false,
            Place::Waiting | Place::Accused | Place::Buried => return None,
        }
        self.held.remove(&id).map(|held| held.message)
    }

    /// Gives back all that is held, because the source closes.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = T> + '_ {
        (self.has_trial, self.given) = (false, 0);
        self.waiting.clear();
        self.suspects.clear();
        self.again = None;
        self.held.drain().map(|(_, held)| held.message)
    }

    /// Forgets the messages of which `is_gone` is true.
    pub(crate) fn forget(&mut self, mut is_gone: impl FnMut(&T) -> bool) {
        let gone = self.held.extract_if(|_, held| is_gone(&held.message));
        for (_, Delivered { place, .. }) in gone {
            self.given -= usize::from(place == Place::Given);
            self.has_trial &= !matches!(place, Place::Accused | Place::Tried);
        }
        let held = &self.held;
        self.waiting.retain(|id| held.contains_key(id));
        self.suspects.retain(|id| held.contains_key(id));
        self.again.take_if(|(_, id)| !held.contains_key(id));
    }

    pub(crate) fn messages(&self) -> impl Iterator<Item = &T> {
        self.held.values().map(|held| &held.message)
    }

    /// A message that is to become a dead letter, the count of its deliveries, and the reason.
    pub(crate) fn letter(&self, id: Id) -> Option<(&T, u64, &str)> {
        let held = self.held.get(&id)?;
        matches!(held.place, Place::Accused | Place::Buried).then_some((
            &held.message,
            held.deliveries,
            &held.why,
        ))
    }

    /// A dead letter is stored. `before` says that it was there already.
    pub(crate) fn stored(&mut self, id: Id, letter: Letter, before: bool) -> Option<Action<Id, T>> {
        let held = self.held.get_mut(&id)?;
        match held.place {
            Place::Accused if !before || held.was_sent => {
                (held.place, held.letter) = (Place::Tried, Some(letter));
                return Some(Action::Give(id));
            }
            Place::Accused => self.has_trial = false,
            Place::Buried => {}
            _ => return None,
        }
        self.held.remove(&id).map(|held| Action::Term(held.message))
    }

    /// A dead letter is not stored. Its message and all suspects go back to the broker for a pause,
    /// so that the source goes on. A suspect whose letter `may_be` stored keeps its turn: another
    /// source would find the letter, and take the message for one that had its trial.
    pub(crate) fn not_stored(&mut self, now: Duration, id: Id, may_be: bool) -> Vec<Action<Id, T>> {
        let Some(held) = self.held.get_mut(&id) else { return Vec::new() };
        match held.place {
            Place::Accused if may_be => {
                held.was_sent = true;
                self.again = Some((now + Duration::from_secs(1), id));
                return Vec::new();
            }
            Place::Accused => self.has_trial = false,
            Place::Buried => {}
            _ => return Vec::new(),
        }
        self.letters_at = now + LETTER_PAUSE;
        self.suspects.push_back(id);
        let back = self.suspects.drain(..).filter_map(|id| self.held.remove(&id));
        back.map(|held| Action::Nak(held.message, LETTER_PAUSE)).collect()
    }

    /// The suspect whose letter is to be published again.
    pub(crate) fn next_burial(&mut self, now: Duration) -> Option<Id> {
        self.again.take_if(|(at, _)| *at <= now).map(|(_, id)| id)
    }

    /// The next message whose work is to be reported in progress.
    pub(crate) fn next_extension(&mut self, now: Duration) -> Option<&T> {
        while let Some(&(at, id)) = self.extensions.front().filter(|(at, _)| *at <= now) {
            self.extensions.pop_front();
            let is_current = self.held.get(&id).is_some_and(|held| held.extend_at == at);
            if is_current {
                let held = self.held.get_mut(&id)?;
                held.extend_at = now + self.ack_wait / 3;
                self.extensions.push_back((held.extend_at, id));
                return Some(&held.message);
            }
        }
        None
    }
}

#[cfg(test)]
#[path = "../tests/unit/custody.rs"]
mod tests;
