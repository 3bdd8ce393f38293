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
//! | delivered more often than `attempts` | no | held, a suspect |
//! | tree acked | yes | acked, remembered as acked |
//! | tree failed | yes | nak'ed with a pause, or buried after the last attempt |
//! | dead letter stored | buried | terminated |
//! | dead letter refused | buried or suspect | published again after a second |
//!
//! The broker counts the deliveries. A message that kills its worker takes along what else the
//! worker holds, so a count above `attempts` makes a message a *suspect* only: it has a trial. The
//! source stores its dead letter first, and gives it to the topology when that has nothing else. If
//! the worker dies, the next one finds that the letter is there already, and terminates the
//! message. If the message is acked, or not begun with, the letter is taken back. While there is a
//! suspect, nothing else is given.
//!
//! An event that names a message that is not held changes nothing.
//!
//! Times are durations on any clock of the caller that does not go back.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::time::Duration;

/// The number of acked messages that the source remembers, in case their ack was lost.
const REMEMBERED: usize = 1 << 16;

/// The messages that one source task holds. An id is never that of another message, also if the
/// stream is deleted and made again. `T` is what the caller needs to answer the broker.
pub(crate) struct Custody<Id, T> {
    ack_wait: Duration,
    attempts: u64,
    /// The first pause and the longest one.
    pauses: (Duration, Duration),
    held: HashMap<Id, Held<T>>,
    /// What is to be given to the topology.
    waiting: VecDeque<Id>,
    suspects: VecDeque<Id>,
    /// The suspect whose letter is on its way, or which the topology has.
    on_trial: Option<Id>,
    /// The number of messages that the topology has.
    given: usize,
    /// When a held message is next to be reported in progress. All waits are equal: a queue sorts
    /// them. An entry whose message has gone, or has another time, is skipped.
    extensions: VecDeque<(Duration, Id)>,
    /// Messages whose dead letter is to be published again.
    burials: VecDeque<(Duration, Id)>,
    acked: HashSet<Id>,
    acked_order: VecDeque<Id>,
}

struct Held<T> {
    message: T,
    deliveries: u64,
    extend_at: Duration,
    place: Place,
    /// Why the message becomes a dead letter, once that is decided.
    why: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// It is to be given to the topology, or to have its trial.
    Waiting,
    Given,
    /// A suspect whose letter is on its way.
    Accused,
    /// A suspect that the topology has. The letter has this sequence.
    Tried(u64),
    /// The letter is on its way, and the topology is done with it.
    Buried,
}

/// What the caller does with a delivered message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Delivered<T> {
    /// Nothing for now: see [`Custody::next_step`].
    Kept,
    /// Nothing: the message was held already.
    HeldAlready,
    /// The caller acks it.
    AckAgain(T),
}

/// What the caller does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step<Id> {
    /// The topology gets the message.
    Give(Id),
    /// The caller publishes the dead letter.
    Bury(Id),
}

/// What the caller does with a message that the topology has failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failed<T> {
    /// The broker is to deliver it again after the pause.
    Nak(T, Duration),
    /// The caller publishes the dead letter.
    Bury,
    /// The dead letter is stored: the caller terminates the message.
    Term(T),
    /// The message is not held, or is buried already.
    Nothing,
}

/// What the caller does when a dead letter is stored.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stored<T> {
    /// The message is terminated at the broker.
    Term(T),
    /// The topology gets the message, for its trial.
    Try,
    /// The message is not held any more.
    Nothing,
}

/// A message that leaves the source, and its dead letter, which the caller takes back.
pub(crate) type Released<T> = (T, Option<u64>);

impl<Id: Copy + Eq + Hash, T> Custody<Id, T> {
    /// A message becomes a dead letter after `attempts` deliveries.
    pub(crate) fn new(ack_wait: Duration, attempts: u64, pauses: (Duration, Duration)) -> Self {
        Custody {
            ack_wait,
            attempts,
            pauses,
            held: HashMap::new(),
            waiting: VecDeque::new(),
            suspects: VecDeque::new(),
            on_trial: None,
            given: 0,
            extensions: VecDeque::new(),
            burials: VecDeque::new(),
            acked: HashSet::new(),
            acked_order: VecDeque::new(),
        }
    }

    /// The number of messages that are held.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// The broker has delivered a message for the `deliveries`th time.
    pub(crate) fn deliver(
        &mut self,
        now: Duration,
        id: Id,
        deliveries: u64,
        message: T,
    ) -> Delivered<T> {
        // A first delivery is one of a consumer that was made anew, to read all again.
        if deliveries > 1 && self.acked.contains(&id) {
            return Delivered::AckAgain(message);
        }
        let extend_at = now + self.ack_wait / 3;
        self.extensions.push_back((extend_at, id));
        if let Some(held) = self.held.get_mut(&id) {
            (held.message, held.deliveries, held.extend_at) = (message, deliveries, extend_at);
            return Delivered::HeldAlready;
        }
        let (place, mut why) = (Place::Waiting, String::new());
        if deliveries > self.attempts {
            why = format!("no worker finished it in {} deliveries", self.attempts);
            self.suspects.push_back(id);
        } else {
            self.waiting.push_back(id);
        }
        self.held.insert(id, Held { message, deliveries, extend_at, place, why });
        Delivered::Kept
    }

    /// What is to be done next, if anything. To be asked until it is nothing, after every event.
    pub(crate) fn next_step(&mut self) -> Option<Step<Id>> {
        if self.on_trial.is_some() {
            return None;
        }
        while let Some(&id) = self.suspects.front() {
            if self.given > 0 {
                return None;
            }
            self.suspects.pop_front();
            if let Some(held) = self.held.get_mut(&id) {
                held.place = Place::Accused;
                self.on_trial = Some(id);
                return Some(Step::Bury(id));
            }
        }
        while let Some(id) = self.waiting.pop_front() {
            if let Some(held) = self.held.get_mut(&id) {
                held.place = Place::Given;
                self.given += 1;
                return Some(Step::Give(id));
            }
        }
        None
    }

    /// A held message.
    pub(crate) fn message(&self, id: Id) -> Option<(&T, u64)> {
        self.held.get(&id).map(|held| (&held.message, held.deliveries))
    }

    /// The topology has acked a message. Returns what is to be acked at the broker.
    pub(crate) fn acked(&mut self, id: Id) -> Option<Released<T>> {
        let released = self.take_back(id)?;
        if self.acked_order.len() == REMEMBERED {
            let oldest = self.acked_order.pop_front()?;
            self.acked.remove(&oldest);
        }
        if self.acked.insert(id) {
            self.acked_order.push_back(id);
        }
        Some(released)
    }

    /// The topology has failed a message. `is_hopeless` says that no attempt can succeed.
    pub(crate) fn failed(&mut self, id: Id, why: &str, is_hopeless: bool) -> Failed<T> {
        let Some(held) = self.held.get_mut(&id) else {
            return Failed::Nothing;
        };
        let deliveries = held.deliveries;
        let place = held.place;
        if place == Place::Given && (is_hopeless || deliveries >= self.attempts) {
            (held.place, held.why) = (Place::Buried, why.to_string());
            self.given -= 1;
            return Failed::Bury;
        }
        let Some((message, _)) = self.take_back(id) else {
            return Failed::Nothing;
        };
        if place != Place::Given {
            return Failed::Term(message);
        }
        let doublings = u32::try_from(deliveries.clamp(1, 32) - 1).unwrap_or(0);
        let (first, longest) = self.pauses;
        Failed::Nak(message, first.saturating_mul(1 << doublings).min(longest))
    }

    /// Gives back a message that the topology has not begun with.
    pub(crate) fn take_back(&mut self, id: Id) -> Option<Released<T>> {
        let letter = match self.held.get(&id)?.place {
            Place::Given => {
                self.given -= 1;
                None
            }
            Place::Tried(letter) => {
                self.on_trial = None;
                Some(letter)
            }
            Place::Waiting | Place::Accused | Place::Buried => return None,
        };
        self.held.remove(&id).map(|held| (held.message, letter))
    }

    /// Gives back all that is held, because the source closes.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Released<T>> + '_ {
        (self.on_trial, self.given) = (None, 0);
        self.held.drain().map(|(_, held)| match held.place {
            Place::Tried(letter) => (held.message, Some(letter)),
            _ => (held.message, None),
        })
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

    /// A dead letter is stored, with this sequence. `before` says that it was there already.
    pub(crate) fn stored(&mut self, id: Id, sequence: u64, before: bool) -> Stored<T> {
        match self.held.get_mut(&id) {
            Some(held) if held.place == Place::Accused && !before => {
                held.place = Place::Tried(sequence);
                return Stored::Try;
            }
            Some(held) if held.place == Place::Accused => self.on_trial = None,
            Some(held) if held.place == Place::Buried => {}
            _ => return Stored::Nothing,
        }
        self.held.remove(&id).map_or(Stored::Nothing, |held| Stored::Term(held.message))
    }

    /// A dead letter could not be stored. The message stays held, and the caller tries again later.
    pub(crate) fn not_buried(&mut self, now: Duration, id: Id) {
        self.burials.push_back((now + Duration::from_secs(1), id));
    }

    /// The next message whose dead letter is to be published again.
    pub(crate) fn next_burial(&mut self, now: Duration) -> Option<Id> {
        let &(_, id) = self.burials.front().filter(|(at, _)| *at <= now)?;
        self.burials.pop_front();
        Some(id)
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
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    const SECOND: Duration = Duration::from_secs(1);

    fn custody() -> Custody<u64, &'static str> {
        Custody::new(9 * SECOND, 3, (SECOND / 10, SECOND))
    }

    /// Delivers a message, and gives it to the topology.
    fn give(
        custody: &mut Custody<u64, &'static str>,
        id: u64,
        deliveries: u64,
        text: &'static str,
    ) {
        assert_eq!(custody.deliver(SECOND, id, deliveries, text), Delivered::Kept);
        assert_eq!(custody.next_step(), Some(Step::Give(id)));
    }

    #[test]
    fn a_redelivery_of_a_held_message_replaces_its_reply_and_is_not_given_again() {
        let mut custody = custody();
        give(&mut custody, 1, 1, "a");
        assert_eq!(custody.deliver(SECOND, 1, 2, "b"), Delivered::HeldAlready);
        assert_eq!(custody.next_step(), None);
        assert_eq!(custody.acked(1), Some(("b", None)));
        assert_eq!((custody.acked(1), custody.len()), (None, 0));
    }

    #[test]
    fn a_message_whose_ack_was_lost_is_acked_again() {
        let mut custody = custody();
        give(&mut custody, 1, 1, "a");
        custody.acked(1);
        assert_eq!(custody.deliver(SECOND, 1, 2, "b"), Delivered::AckAgain("b"));
        give(&mut custody, 1, 1, "c");
        custody.acked(1);
        for id in 2..2 + REMEMBERED as u64 {
            give(&mut custody, id, 1, "x");
            custody.acked(id);
        }
        give(&mut custody, 1, 2, "b");
        assert_eq!(custody.acked.len(), REMEMBERED);
    }

    #[test]
    fn the_last_attempt_leads_to_a_dead_letter_which_stays_until_it_is_stored() {
        let mut custody = custody();
        give(&mut custody, 1, 2, "a");
        let pause = Duration::from_millis(200);
        assert_eq!(custody.failed(1, "no", false), Failed::Nak("a", pause));
        give(&mut custody, 1, 3, "b");
        assert_eq!(custody.failed(1, "no", false), Failed::Bury);
        assert_eq!(custody.letter(1), Some((&"b", 3, "no")));
        assert_eq!((custody.acked(1), custody.take_back(1)), (None, None));
        custody.not_buried(SECOND, 1);
        assert_eq!(custody.next_burial(SECOND), None);
        assert_eq!(custody.next_burial(2 * SECOND), Some(1));
        assert_eq!(custody.next_burial(2 * SECOND), None);
        assert_eq!((custody.stored(1, 7, true), custody.len()), (Stored::Term("b"), 0));
        assert_eq!((custody.stored(1, 7, true), custody.letter(1)), (Stored::Nothing, None));
    }

    #[test]
    fn a_hopeless_failure_is_buried_at_once() {
        let mut custody = custody();
        give(&mut custody, 1, 1, "a");
        assert_eq!(custody.failed(1, "too large", true), Failed::Bury);
        assert_eq!(custody.failed(1, "again", true), Failed::Nothing);
    }

    #[test]
    fn a_suspect_is_tried_alone_after_its_letter_is_stored() {
        let mut custody = custody();
        give(&mut custody, 1, 1, "a");
        custody.deliver(SECOND, 2, 4, "b");
        custody.deliver(SECOND, 3, 1, "c");
        assert_eq!(custody.next_step(), None);
        custody.acked(1);
        assert_eq!(custody.next_step(), Some(Step::Bury(2)));
        assert_eq!(custody.letter(2), Some((&"b", 4, "no worker finished it in 3 deliveries")));
        assert_eq!((custody.stored(2, 7, false), custody.next_step()), (Stored::Try, None));
        assert_eq!(custody.acked(2), Some(("b", Some(7))));
        assert_eq!(custody.next_step(), Some(Step::Give(3)));
        // One that fails has its letter; one whose letter was there has killed its worker.
        custody.deliver(SECOND, 4, 4, "d");
        custody.acked(3);
        assert_eq!(custody.next_step(), Some(Step::Bury(4)));
        assert_eq!(custody.stored(4, 8, false), Stored::Try);
        assert_eq!(custody.failed(4, "no", false), Failed::Term("d"));
        custody.deliver(SECOND, 5, 5, "e");
        assert_eq!(custody.next_step(), Some(Step::Bury(5)));
        assert_eq!((custody.stored(5, 9, true), custody.len()), (Stored::Term("e"), 0));
        give(&mut custody, 6, 1, "f");
    }

    #[test]
    fn each_held_message_is_reported_every_third_of_the_wait() {
        let mut custody = custody();
        give(&mut custody, 1, 1, "a");
        custody.deliver(2 * SECOND, 2, 1, "b");
        custody.next_step();
        assert_eq!(custody.next_extension(3 * SECOND), None);
        assert_eq!(custody.next_extension(4 * SECOND), Some(&"a"));
        assert_eq!(custody.next_extension(4 * SECOND), None);
        custody.acked(2);
        custody.deliver(6 * SECOND, 1, 2, "c");
        assert_eq!(custody.next_extension(8 * SECOND), None);
        assert_eq!(custody.next_extension(9 * SECOND), Some(&"c"));
        assert_eq!(custody.next_extension(9 * SECOND), None);
    }

    /// The broker's side of a message.
    #[derive(Default)]
    struct AtBroker {
        deliveries: u64,
        lapses_at: Duration,
        has_tree: bool,
        was_done: bool,
        has_letter: bool,
        is_gone: bool,
    }

    /// Runs a source against a broker that loses a tenth of all answers. `breaks` is a fault of the
    /// source: its rule is not kept. With `killers` each seventh message kills its worker, and none
    /// fails: those and no others become dead letters.
    fn simulate(seed: u64, killers: bool, breaks: Option<&str>) -> Result<(), String> {
        const MESSAGES: u64 = 20;
        let mut random = SmallRng::seed_from_u64(seed);
        let new = || Custody::new(9 * SECOND, 3, (SECOND / 10, SECOND));
        let (mut custody, mut now) = (new(), SECOND);
        let mut broker: Vec<AtBroker> = (0..MESSAGES).map(|_| AtBroker::default()).collect();
        let at = |id: u64| usize::try_from(id).unwrap();
        let kills = |id: u64| killers && id.is_multiple_of(7);
        for step in 0..12_000 {
            now += SECOND / 10;
            let arrives = step > 8_000 || random.random_bool(0.9);
            let id = random.random_range(0..MESSAGES);
            let message = &mut broker[at(id)];
            let (mut letters, mut given) = (Vec::new(), Vec::new());
            match random.random_range(0..4) {
                0 if !message.is_gone && now >= message.lapses_at => {
                    message.deliveries += 1;
                    message.lapses_at = now + 9 * SECOND;
                    if let Delivered::AckAgain(_) = custody.deliver(now, id, message.deliveries, id)
                    {
                        message.is_gone |= arrives;
                    }
                    if breaks == Some("ack before the tree") {
                        custody.next_step();
                        message.is_gone |= custody.acked(id).is_some();
                    }
                }
                1 if message.has_tree && !kills(id) => {
                    (message.has_tree, message.was_done) = (false, true);
                    if let Some((_, letter)) = custody.acked(id) {
                        message.is_gone |= arrives;
                        message.has_letter &= letter.is_none();
                    }
                }
                2 if message.has_tree && !killers => {
                    message.has_tree = false;
                    match custody.failed(id, "no", random.random_bool(0.1)) {
                        Failed::Nak(_, pause) if arrives => message.lapses_at = now + pause,
                        Failed::Term(_) => message.is_gone |= arrives,
                        Failed::Bury => letters.push(id),
                        Failed::Nak(..) | Failed::Nothing => {}
                    }
                }
                3 if message.has_tree && kills(id) => {
                    custody = new();
                    broker.iter_mut().for_each(|message| message.has_tree = false);
                }
                _ => {}
            }
            let beside_others = breaks == Some("a trial beside others");
            let others = if beside_others { std::mem::take(&mut custody.given) } else { 0 };
            letters.extend(custody.next_burial(now));
            while let Some(step) = custody.next_step() {
                match step {
                    Step::Give(id) => given.push(id),
                    Step::Bury(id) => letters.push(id),
                }
            }
            custody.given += others;
            for id in letters {
                let message = &mut broker[at(id)];
                let is_stored = step > 8_000 || random.random_bool(0.5);
                let before = message.has_letter;
                message.has_letter |= is_stored;
                if !is_stored && breaks != Some("term before the letter") {
                    custody.not_buried(now, id);
                    continue;
                }
                let before = before || breaks == Some("no trial");
                match custody.stored(id, id, before) {
                    Stored::Term(_) => message.is_gone |= arrives,
                    Stored::Try => given.push(id),
                    Stored::Nothing => {}
                }
            }
            for id in given {
                if std::mem::replace(&mut broker[at(id)].has_tree, true) {
                    return Err("given twice".into());
                }
            }
            while let Some(&id) = custody.next_extension(now) {
                if arrives {
                    broker[at(id)].lapses_at = now + 9 * SECOND;
                }
            }
            if broker.iter().any(|m| m.is_gone && !m.was_done && !m.has_letter) {
                return Err(format!("lost at step {step}"));
            }
        }
        let left = broker.iter().filter(|message| !message.is_gone).count();
        let wrong = (0..MESSAGES).find(|&id| killers && broker[at(id)].has_letter != kills(id));
        match wrong {
            Some(id) => Err(format!("{id} is buried, or is not, and should")),
            None if left > 0 => Err(format!("{left} left, {} held", custody.len())),
            None => Ok(()),
        }
    }

    #[test]
    fn no_message_is_lost_or_stays_for_ever_whatever_answers_are_lost() {
        for seed in 0..200 {
            assert_eq!(simulate(seed, false, None), Ok(()), "seed {seed}");
            assert_eq!(simulate(seed, true, None), Ok(()), "seed {seed}, killers");
        }
    }

    #[test]
    fn the_simulation_finds_seeded_faults() {
        for (killers, fault) in [
            (false, "ack before the tree"),
            (false, "term before the letter"),
            (true, "a trial beside others"),
            (true, "no trial"),
        ] {
            let found = (0..20).any(|seed| simulate(seed, killers, Some(fault)).is_err());
            assert!(found, "{fault}");
        }
    }
}
