//! The life of a message at a source, without any I/O.
//!
//! A message is *held* from its delivery until it has left the stream: the topology acked it, or
//! its dead letter is stored. Meanwhile the source tells the broker every third of `ack_wait` that
//! work is in progress, so that the broker does not deliver the message again.
//!
//! | event | held before | then |
//! |---|---|---|
//! | delivered, first time | no | held, given to the topology |
//! | delivered again | yes | held with the new reply subject, not given again |
//! | delivered again, acked here lately | no | acked again: the first ack was lost |
//! | delivered more often than `attempts` | no | held, buried |
//! | tree acked | yes | acked, remembered as acked |
//! | tree failed | yes | nak'ed with a pause, or buried after the last attempt |
//! | dead letter stored | buried | terminated |
//! | dead letter refused | buried | buried again after a second |
//!
//! The broker counts the deliveries, so a message that kills its workers is buried, too. An event
//! that names a message that is not held changes nothing.
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
    /// Why the message becomes a dead letter, once that is decided.
    buried: Option<String>,
}

/// What the caller does with a delivered message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Delivered<T> {
    /// The topology gets it.
    Give,
    /// Nothing: the topology has it already.
    Kept,
    /// The caller acks it.
    AckAgain(T),
    /// The caller publishes the dead letter.
    Bury,
}

/// What the caller does with a message that the topology has failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failed<T> {
    /// The broker is to deliver it again after the pause.
    Nak(T, Duration),
    /// The caller publishes the dead letter.
    Bury,
    /// The message is not held, or is buried already.
    Nothing,
}

impl<Id: Copy + Eq + Hash, T> Custody<Id, T> {
    /// A message becomes a dead letter after `attempts` deliveries.
    pub(crate) fn new(ack_wait: Duration, attempts: u64, pauses: (Duration, Duration)) -> Self {
        Custody {
            ack_wait,
            attempts,
            pauses,
            held: HashMap::new(),
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
            return Delivered::Kept;
        }
        let worn_out = deliveries > self.attempts;
        let held = Held {
            message,
            deliveries,
            extend_at,
            buried: worn_out
                .then(|| format!("no worker finished it in {} deliveries", self.attempts)),
        };
        self.held.insert(id, held);
        if worn_out {
            Delivered::Bury
        } else {
            Delivered::Give
        }
    }

    /// The topology has acked a message. Returns what is to be acked at the broker.
    pub(crate) fn acked(&mut self, id: Id) -> Option<T> {
        if self.held.get(&id)?.buried.is_some() {
            return None;
        }
        if self.acked_order.len() == REMEMBERED {
            let oldest = self.acked_order.pop_front()?;
            self.acked.remove(&oldest);
        }
        if self.acked.insert(id) {
            self.acked_order.push_back(id);
        }
        self.held.remove(&id).map(|held| held.message)
    }

    /// The topology has failed a message. `is_hopeless` says that no attempt can succeed.
    pub(crate) fn failed(&mut self, id: Id, why: &str, is_hopeless: bool) -> Failed<T> {
        let Some(held) = self.held.get_mut(&id).filter(|held| held.buried.is_none()) else {
            return Failed::Nothing;
        };
        if is_hopeless || held.deliveries >= self.attempts {
            held.buried = Some(why.to_string());
            return Failed::Bury;
        }
        let doublings = u32::try_from(held.deliveries.clamp(1, 32) - 1).unwrap_or(0);
        let (first, longest) = self.pauses;
        let pause = first.saturating_mul(1 << doublings).min(longest);
        match self.held.remove(&id) {
            Some(held) => Failed::Nak(held.message, pause),
            None => Failed::Nothing,
        }
    }

    /// Gives back a message that the topology has not begun with.
    pub(crate) fn take_back(&mut self, id: Id) -> Option<T> {
        self.held.get(&id).filter(|held| held.buried.is_none())?;
        self.held.remove(&id).map(|held| held.message)
    }

    /// Gives back all that is held, because the source closes.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = T> + '_ {
        self.held.drain().map(|(_, held)| held.message)
    }

    /// A message that is to become a dead letter, the count of its deliveries, and the reason.
    pub(crate) fn letter(&self, id: Id) -> Option<(&T, u64, &str)> {
        let held = self.held.get(&id)?;
        Some((&held.message, held.deliveries, held.buried.as_deref()?))
    }

    /// A dead letter is stored. Returns the message, which is to be terminated at the broker.
    pub(crate) fn buried(&mut self, id: Id) -> Option<T> {
        self.held.get(&id)?.buried.as_ref()?;
        self.held.remove(&id).map(|held| held.message)
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

    #[test]
    fn a_redelivery_of_a_held_message_replaces_its_reply_and_is_not_given_again() {
        let mut custody = custody();
        assert_eq!(custody.deliver(SECOND, 1, 1, "a"), Delivered::Give);
        assert_eq!(custody.deliver(SECOND, 1, 2, "b"), Delivered::Kept);
        assert_eq!(custody.acked(1), Some("b"));
        assert_eq!((custody.acked(1), custody.len()), (None, 0));
    }

    #[test]
    fn a_message_whose_ack_was_lost_is_acked_again() {
        let mut custody = custody();
        custody.deliver(SECOND, 1, 1, "a");
        custody.acked(1);
        assert_eq!(custody.deliver(SECOND, 1, 2, "b"), Delivered::AckAgain("b"));
        assert_eq!(custody.deliver(SECOND, 1, 1, "c"), Delivered::Give);
        custody.acked(1);
        for id in 2..2 + REMEMBERED as u64 {
            custody.deliver(SECOND, id, 1, "x");
            custody.acked(id);
        }
        assert_eq!(custody.deliver(SECOND, 1, 2, "b"), Delivered::Give);
        assert_eq!(custody.acked.len(), REMEMBERED);
    }

    #[test]
    fn the_last_attempt_leads_to_a_dead_letter_which_stays_until_it_is_stored() {
        let mut custody = custody();
        custody.deliver(SECOND, 1, 2, "a");
        let pause = Duration::from_millis(200);
        assert_eq!(custody.failed(1, "no", false), Failed::Nak("a", pause));
        custody.deliver(SECOND, 1, 3, "b");
        assert_eq!(custody.failed(1, "no", false), Failed::Bury);
        assert_eq!(custody.letter(1), Some((&"b", 3, "no")));
        assert_eq!((custody.acked(1), custody.take_back(1)), (None, None));
        custody.not_buried(SECOND, 1);
        assert_eq!(custody.next_burial(SECOND), None);
        assert_eq!(custody.next_burial(2 * SECOND), Some(1));
        assert_eq!(custody.next_burial(2 * SECOND), None);
        assert_eq!((custody.buried(1), custody.len()), (Some("b"), 0));
        assert_eq!((custody.buried(1), custody.letter(1)), (None, None));
    }

    #[test]
    fn a_hopeless_failure_and_a_message_that_kills_its_workers_are_buried_at_once() {
        let mut custody = custody();
        custody.deliver(SECOND, 1, 1, "a");
        assert_eq!(custody.failed(1, "too large", true), Failed::Bury);
        assert_eq!(custody.failed(1, "again", true), Failed::Nothing);
        assert_eq!(custody.deliver(SECOND, 2, 4, "b"), Delivered::Bury);
        let reason = "no worker finished it in 3 deliveries";
        assert_eq!(custody.letter(2), Some((&"b", 4, reason)));
    }

    #[test]
    fn each_held_message_is_reported_every_third_of_the_wait() {
        let mut custody = custody();
        custody.deliver(SECOND, 1, 1, "a");
        custody.deliver(2 * SECOND, 2, 1, "b");
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
    struct Stored {
        deliveries: u64,
        lapses_at: Duration,
        has_tree: bool,
        was_done: bool,
        has_letter: bool,
        is_gone: bool,
    }

    /// Runs a source against a broker that loses a tenth of all answers. `breaks` is a fault of the
    /// source: its rule is not kept.
    fn simulate(seed: u64, breaks: Option<&str>) -> Result<(), String> {
        const MESSAGES: u64 = 20;
        let mut random = SmallRng::seed_from_u64(seed);
        let mut custody = Custody::new(9 * SECOND, 3, (SECOND / 10, SECOND));
        let mut now = SECOND;
        let mut broker: Vec<Stored> = (0..MESSAGES).map(|_| Stored::default()).collect();
        for step in 0..6_000 {
            now += SECOND / 10;
            let arrives = step > 4_000 || random.random_bool(0.9);
            let id = random.random_range(0..MESSAGES);
            let message = &mut broker[usize::try_from(id).unwrap()];
            let mut letter = false;
            match random.random_range(0..4) {
                0 if !message.is_gone && now >= message.lapses_at => {
                    message.deliveries += 1;
                    message.lapses_at = now + 9 * SECOND;
                    match custody.deliver(now, id, message.deliveries, id) {
                        Delivered::Give if message.has_tree => return Err("given twice".into()),
                        Delivered::Give => message.has_tree = true,
                        Delivered::Kept => {}
                        Delivered::AckAgain(_) => message.is_gone |= arrives,
                        Delivered::Bury => letter = true,
                    }
                    if breaks == Some("ack before the tree") && custody.acked(id).is_some() {
                        message.is_gone = true;
                    }
                }
                1 if message.has_tree => {
                    (message.has_tree, message.was_done) = (false, true);
                    message.is_gone |= custody.acked(id).is_some() && arrives;
                }
                2 if message.has_tree => {
                    message.has_tree = false;
                    match custody.failed(id, "no", random.random_bool(0.1)) {
                        Failed::Nak(_, pause) if arrives => message.lapses_at = now + pause,
                        Failed::Bury => letter = true,
                        Failed::Nak(..) | Failed::Nothing => {}
                    }
                }
                _ => {}
            }
            let again = custody.next_burial(now);
            for id in again.into_iter().chain(letter.then_some(id)) {
                let message = &mut broker[usize::try_from(id).unwrap()];
                let is_stored = step > 4_000 || random.random_bool(0.5);
                message.has_letter |= is_stored;
                if is_stored || breaks == Some("term before the letter") {
                    message.is_gone |= custody.buried(id).is_some() && arrives;
                } else {
                    custody.not_buried(now, id);
                }
            }
            while let Some(&id) = custody.next_extension(now) {
                if arrives {
                    broker[usize::try_from(id).unwrap()].lapses_at = now + 9 * SECOND;
                }
            }
            if broker.iter().any(|m| m.is_gone && !m.was_done && !m.has_letter) {
                return Err(format!("lost at step {step}"));
            }
        }
        let left = broker.iter().filter(|message| !message.is_gone).count();
        (left == 0).then_some(()).ok_or(format!("{left} left, {} held", custody.len()))
    }

    #[test]
    fn no_message_is_lost_or_stays_for_ever_whatever_answers_are_lost() {
        for seed in 0..200 {
            assert_eq!(simulate(seed, None), Ok(()), "seed {seed}");
        }
    }

    #[test]
    fn the_simulation_finds_an_ack_before_the_tree_and_a_term_before_the_letter() {
        for fault in ["ack before the tree", "term before the letter"] {
            let found = (0..20).any(|seed| simulate(seed, Some(fault)).is_err());
            assert!(found, "{fault}");
        }
    }
}
