//! Tests of `src/custody.rs`.

use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const SECOND: Duration = Duration::from_secs(1);

fn custody() -> Custody<u64, &'static str> {
    Custody::new(9 * SECOND, 3, 9 * SECOND)
}

fn letter(sequence: u64) -> Letter {
    Letter { stream: "dead".into(), sequence }
}

/// Holds two suspects and another message, and wants the first one's letter stored.
fn accused() -> Custody<u64, &'static str> {
    let mut custody = custody();
    custody.deliver(SECOND, 1, 7, "a");
    custody.deliver(SECOND, 2, 7, "b");
    custody.deliver(SECOND, 3, 1, "c");
    assert_eq!(custody.next_step(), Some(Action::Bury(1)));
    custody
}

/// Delivers a message, and gives it to the topology.
fn give(custody: &mut Custody<u64, &'static str>, id: u64, deliveries: u64, text: &'static str) {
    assert_eq!(custody.deliver(SECOND, id, deliveries, text), None);
    assert_eq!(custody.next_step(), Some(Action::Give(id)));
}

#[test]
fn a_redelivery_of_a_held_message_replaces_its_reply_and_is_not_given_again() {
    let mut custody = custody();
    give(&mut custody, 1, 1, "a");
    assert_eq!(custody.deliver(SECOND, 1, 2, "b"), None);
    assert_eq!(custody.next_step(), None);
    assert_eq!(custody.acked(1), Some(("b", None)));
    assert_eq!((custody.acked(1), custody.len()), (None, 0));
    // What was given back while it waited is given once when it comes again.
    custody.deliver(SECOND, 2, 1, "c");
    assert_eq!(custody.take_all().collect::<Vec<_>>(), ["c"]);
    give(&mut custody, 2, 2, "d");
    assert_eq!(custody.next_step(), None);
}

#[test]
fn a_message_whose_ack_was_lost_is_acked_again() {
    let mut custody = custody();
    give(&mut custody, 1, 1, "a");
    custody.acked(1);
    assert_eq!(custody.deliver(SECOND, 1, 2, "b"), Some(Action::AckAgain("b")));
    // A consumer that was made anew reads all again: what it acked before is not acked.
    give(&mut custody, 1, 1, "c");
    assert!(matches!(custody.failed(1, "no", Some(SECOND)), Some(Action::Nak("c", _))));
    give(&mut custody, 1, 2, "d");
    custody.acked(1);
    for id in 2..2 + REMEMBERED as u64 {
        give(&mut custody, id, 1, "x");
        custody.acked(id);
        // However many come and go before the first is reported in progress.
        assert!(custody.extensions.len() <= 65);
    }
    give(&mut custody, 1, 2, "b");
    assert_eq!(custody.acked.len(), REMEMBERED);
}

#[test]
fn the_last_attempt_leads_to_a_dead_letter_which_stays_until_it_is_stored() {
    let mut custody = custody();
    give(&mut custody, 1, 2, "a");
    let pause = 6 * SECOND; // that after the first delivery was 3 s
    assert_eq!(custody.failed(1, "no", Some(3 * SECOND)), Some(Action::Nak("a", pause)));
    give(&mut custody, 1, 3, "b");
    assert_eq!(custody.failed(1, "no", Some(9 * SECOND)), Some(Action::Bury(1)));
    assert_eq!(custody.letter(1), Some((&"b", 3, "no")));
    assert_eq!((custody.acked(1), custody.take_back(1)), (None, None));
    assert_eq!(custody.not_stored(SECOND, 1, true), [Action::Nak("b", LETTER_PAUSE)]);
    assert_eq!((custody.not_stored(SECOND, 1, true), custody.len()), (Vec::new(), 0));
    give(&mut custody, 1, 3, "b");
    assert_eq!(custody.failed(1, "no", Some(9 * SECOND)), Some(Action::Bury(1)));
    assert_eq!((custody.stored(1, letter(7), true), custody.len()), (Some(Action::Term("b")), 0));
    assert_eq!((custody.stored(1, letter(7), true), custody.letter(1)), (None, None));
}

/// The broker counts deliveries to workers that died, closed or were deactivated.
#[test]
fn deliveries_that_failed_nothing_bring_no_dead_letter_forward() {
    let fails = |attempts, deliveries, time| {
        let mut custody = Custody::new(9 * SECOND, attempts, 12 * SECOND);
        custody.deliver(SECOND, 1, deliveries, ());
        assert_eq!(custody.next_step(), Some(Action::Give(1)));
        match custody.failed(1, "no", time) {
            Some(Action::Nak((), pause)) => Some(pause),
            buried => {
                assert_eq!(buried, Some(Action::Bury(1)));
                None
            }
        }
    };
    for attempts in [1, 2, 3, 5] {
        let first = |deliveries| fails(attempts, deliveries, Some(Duration::ZERO));
        let pauses: Vec<Duration> = (1..).map_while(first).collect();
        // Whichever of the deliveries have failed nothing.
        let left: Duration = pauses[..pauses.len() - attempts as usize].iter().sum();
        assert!(left >= 12 * SECOND && pauses.is_sorted(), "{attempts}: {pauses:?}");
        let known = Some(12 * SECOND);
        assert_eq!((fails(attempts, attempts, known), fails(attempts, 1, None)), (None, None));
        assert!(attempts == 1 || fails(attempts, attempts - 1, known).is_some());
    }
}

#[test]
fn a_suspect_that_a_deactivated_source_takes_back_has_its_trial_later() {
    let mut custody = accused();
    assert_eq!(custody.stored(1, letter(7), false), Some(Action::Give(1)));
    assert_eq!(custody.take_unused([1].into_iter()), ["a", "c", "b"]);
    assert_eq!((custody.len(), custody.next_step()), (0, None));
    custody.deliver(SECOND, 1, 8, "d");
    assert_eq!(custody.next_step(), Some(Action::Bury(1)));
    assert_eq!(custody.stored(1, letter(7), true), Some(Action::Give(1)));
    assert_eq!(custody.acked(1), Some(("d", Some(letter(7)))));
}

#[test]
fn a_suspect_is_tried_alone_after_its_letter_is_stored() {
    let mut custody = custody();
    give(&mut custody, 1, 1, "a");
    custody.deliver(SECOND, 2, 7, "b");
    custody.deliver(SECOND, 3, 1, "c");
    assert_eq!(custody.next_step(), None);
    custody.acked(1);
    assert_eq!(custody.next_step(), Some(Action::Bury(2)));
    assert_eq!(custody.letter(2), Some((&"b", 7, "no worker finished it in 6 deliveries")));
    assert_eq!(
        (custody.stored(2, letter(7), false), custody.next_step()),
        (Some(Action::Give(2)), None)
    );
    assert_eq!(custody.acked(2), Some(("b", Some(letter(7)))));
    assert_eq!(custody.next_step(), Some(Action::Give(3)));
    // One that fails has its letter; one whose letter was there has killed its worker.
    custody.deliver(SECOND, 4, 7, "d");
    custody.acked(3);
    assert_eq!(custody.next_step(), Some(Action::Bury(4)));
    assert_eq!(custody.stored(4, letter(8), false), Some(Action::Give(4)));
    assert_eq!(custody.failed(4, "no", Some(SECOND)), Some(Action::Term("d")));
    custody.deliver(SECOND, 5, 8, "e");
    assert_eq!(custody.next_step(), Some(Action::Bury(5)));
    assert_eq!((custody.stored(5, letter(9), true), custody.len()), (Some(Action::Term("e")), 0));
    give(&mut custody, 6, 1, "f");
}

#[test]
fn suspects_whose_letters_are_refused_hold_up_nothing() {
    let mut custody = accused();
    // The letter may be stored: the suspect keeps its turn.
    assert_eq!((custody.not_stored(SECOND, 1, true), custody.next_step()), (Vec::new(), None));
    assert_eq!(custody.next_burial(SECOND), None);
    assert_eq!(custody.next_burial(2 * SECOND), Some(1));
    let back = ["b", "a"].map(|text| Action::Nak(text, LETTER_PAUSE));
    assert_eq!(custody.not_stored(2 * SECOND, 1, false), back);
    assert_eq!(custody.next_step(), Some(Action::Give(3)));
    let pause = LETTER_PAUSE - SECOND;
    assert_eq!(custody.deliver(3 * SECOND, 1, 8, "d"), Some(Action::Nak("d", pause)));
    custody.acked(3);
    custody.deliver(2 * SECOND + LETTER_PAUSE, 1, 9, "e");
    assert_eq!(custody.next_step(), Some(Action::Bury(1)));
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
    /// When it failed first.
    failed_at: Option<Duration>,
    /// The number of deliveries after which it was given back at once.
    given_back: u64,
}

/// Runs a source against a broker that loses a tenth of all answers. `breaks` is a fault of the
/// source: its rule is not kept. With `killers` each seventh message kills its worker, and none
/// fails: those and no others become dead letters. Without them no message is buried for a failure
/// before its time.
fn simulate(seed: u64, killers: bool, breaks: Option<&str>) -> Result<(), String> {
    const MESSAGES: u64 = 20;
    let mut random = SmallRng::seed_from_u64(seed);
    let new = || Custody::new(9 * SECOND, 3, 9 * SECOND);
    let mut failing = HashMap::new();
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
                match custody.deliver(now, id, message.deliveries, id) {
                    Some(Action::AckAgain(_)) => message.is_gone |= arrives,
                    Some(Action::Nak(_, pause)) if arrives => message.lapses_at = now + pause,
                    _ => {}
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
                let first = *message.failed_at.get_or_insert(now);
                let known = (!random.random_bool(0.1)).then(|| match breaks {
                    Some("buried by the count alone") => Duration::MAX,
                    _ => now - *failing.entry(id).or_insert(now),
                });
                match custody.failed(id, "no", known) {
                    Some(Action::Nak(_, pause)) if arrives => message.lapses_at = now + pause,
                    Some(Action::Term(_)) => message.is_gone |= arrives,
                    Some(Action::Bury(_)) if known.is_some() && now - first < 9 * SECOND => {
                        if message.given_back <= 3 {
                            return Err(format!("buried too early at step {step}"));
                        }
                        letters.push(id);
                    }
                    Some(Action::Bury(id)) => letters.push(id),
                    _ => {}
                }
            }
            3 if message.has_tree && kills(id) => {
                custody = new();
                broker.iter_mut().for_each(|message| message.has_tree = false);
            }
            // Another worker has had a third of the messages' partitions.
            3 if !killers && random.random_bool(0.02) => {
                broker.iter_mut().step_by(3).for_each(|message| message.has_tree = false);
                if breaks != Some("what is another's stays held") {
                    custody.forget(|id| id.is_multiple_of(3));
                }
            }
            // The source is deactivated before the topology takes anything, or is another one.
            3 if !killers && random.random_bool(0.02) => {
                if random.random_bool(0.2) {
                    failing = HashMap::new();
                }
                let given: Vec<_> = (0..MESSAGES).filter(|id| broker[at(*id)].has_tree).collect();
                for id in custody.take_unused(given.into_iter()) {
                    let message = &mut broker[at(id)];
                    (message.has_tree, message.lapses_at) = (false, now);
                    message.given_back += 1;
                }
            }
            _ => {}
        }
        let beside_others = breaks == Some("a trial beside others");
        let others = if beside_others { std::mem::take(&mut custody.given) } else { 0 };
        letters.extend(custody.next_burial(now));
        while let Some(step) = custody.next_step() {
            match step {
                Action::Give(id) => given.push(id),
                Action::Bury(id) => letters.push(id),
                _ => unreachable!("the source has no event"),
            }
        }
        custody.given += others;
        for id in letters {
            let message = &mut broker[at(id)];
            let before = message.has_letter;
            let is_stored = before || step > 8_000 || random.random_bool(0.5);
            message.has_letter |= is_stored;
            // The stream may store a letter whose ack is lost.
            if !(is_stored && arrives) && breaks != Some("term before the letter") {
                for action in custody.not_stored(now, id, is_stored || !arrives) {
                    match action {
                        Action::Nak(id, pause) if arrives => broker[at(id)].lapses_at = now + pause,
                        Action::Nak(..) => {}
                        _ => unreachable!("they go back"),
                    }
                }
                continue;
            }
            let before = before || breaks == Some("no trial");
            match custody.stored(id, letter(id), before) {
                Some(Action::Term(_)) => message.is_gone |= arrives,
                Some(Action::Give(id)) => given.push(id),
                _ => {}
            }
        }
        for id in given {
            if std::mem::replace(&mut broker[at(id)].has_tree, true) {
                return Err("given twice".into());
            }
        }
        if custody.extensions.len() > 2 * MESSAGES as usize + 65 {
            return Err(format!("{} reports of progress wait", custody.extensions.len()));
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
        (false, "what is another's stays held"),
        (false, "buried by the count alone"),
        (true, "a trial beside others"),
        (true, "no trial"),
    ] {
        let found = (0..200).any(|seed| simulate(seed, killers, Some(fault)).is_err());
        assert!(found, "{fault}");
    }
}
