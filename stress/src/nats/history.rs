//! What the processes of a soak wrote down, and the rules that hold for all of it together.
//!
//! A record is a line of JSON: a time and an event. Times are readings of one monotonic
//! clock of the host, in milliseconds. An event's time was read before the call that it is about,
//! so that a process which is stopped in between has claimed too little and never too much.

use crate::checks::{Check, Checks};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

pub const NAMES: [Check; 6] = [
    "one_holder_at_a_time",
    "tokens_rise",
    "no_touched_session_ends",
    "each_end_is_told",
    "first_once_in_a_claim",
    "one_answer_to_a_key",
];

/// What the soak's sets are set to, in milliseconds.
pub struct Terms {
    /// A session's timeout.
    pub timeout: u64,
    /// The time of a claim.
    pub claim: u64,
}

/// What happened to a lease, a session or a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The lease of the key with this token is valid until then. The first one is its grant.
    Valid {
        key: u64,
        token: u64,
        until: u64,
    },
    /// The holder is about to release the lease, or finds it lost.
    Over {
        key: u64,
        token: u64,
    },
    Begun {
        session: u64,
    },
    Touched {
        session: u64,
    },
    /// The session is left alone from now on, or is ended by its front-end.
    Left {
        session: u64,
    },
    Told {
        session: u64,
    },
    /// A claim that was sent at the record's time found the key free; its answer came then.
    First {
        key: u64,
        token: u64,
        answered: u64,
    },
    /// An answer to the key was stored, or found: the token of the claim that gave it.
    Answer {
        key: u64,
        token: u64,
    },
}

pub fn line(at: u64, event: Event) -> String {
    serde_json::to_string(&(at, event)).expect("numbers have a form") + "\n"
}

/// A line that a killed process has not finished is none.
pub fn parse(line: &str) -> Option<(u64, Event)> {
    serde_json::from_str(line.strip_suffix('\n')?).ok()
}

/// A lease as its holder saw it.
#[derive(Clone, Copy)]
struct Holding {
    from: u64,
    until: u64,
    over: u64,
}

#[derive(Default)]
struct Session {
    touches: Vec<u64>,
    left: bool,
    told: bool,
}

/// Judges the records of all processes. At their end, sessions had time to end without faults.
pub fn judge(mut records: Vec<(u64, Event)>, terms: &Terms, checks: &Checks) {
    // Within a millisecond an end may be told that a front-end has just asked for.
    records.sort_by_key(|(at, event)| (*at, matches!(event, Event::Told { .. })));
    let mut leases: HashMap<u64, BTreeMap<u64, Holding>> = HashMap::new();
    let mut sessions: HashMap<u64, Session> = HashMap::new();
    let mut claims: HashMap<u64, BTreeMap<u64, (u64, u64)>> = HashMap::new();
    let mut answers: HashMap<u64, u64> = HashMap::new();
    for (at, event) in records {
        match event {
            Event::Valid { key, token, until } => {
                let new = Holding { from: at, until: 0, over: u64::MAX };
                let one = leases.entry(key).or_default().entry(token).or_insert(new);
                one.until = one.until.max(until);
            }
            Event::Over { key, token } => {
                if let Some(one) = leases.get_mut(&key).and_then(|key| key.get_mut(&token)) {
                    one.over = one.over.min(at);
                }
            }
            Event::Begun { session } | Event::Touched { session } => {
                sessions.entry(session).or_default().touches.push(at);
            }
            Event::Left { session } => sessions.entry(session).or_default().left = true,
            Event::Told { session } => told(at, session, &mut sessions, terms, checks),
            Event::First { key, token, answered } => {
                claims.entry(key).or_default().insert(token, (at, answered));
            }
            Event::Answer { key, token } => {
                let first = *answers.entry(key).or_insert(token);
                checks.expect("one_answer_to_a_key", first == token, || {
                    format!("key {key}: answers of the claims {first} and {token}")
                });
            }
        }
    }
    for (key, holdings) in leases {
        holders(key, &holdings, checks);
    }
    for (key, claims) in claims {
        // The brokers stored the claims in the order of their tokens.
        let all: Vec<_> = claims.into_iter().collect();
        for pair in all.windows(2) {
            let [(_, (sent, _)), (_, (_, answered))] = [pair[0], pair[1]];
            let apart = answered >= sent + terms.claim;
            checks.expect("first_once_in_a_claim", apart, || format!("key {key}: {pair:?}"));
        }
    }
    let untold =
        sessions.iter().filter(|(_, session)| !session.told && !session.touches.is_empty());
    let untold: Vec<&u64> = untold.map(|(id, _)| id).collect();
    checks.expect("each_end_is_told", untold.is_empty(), || format!("never told: {untold:?}"));
}

/// A session that was touched each half of its timeout, up to now, does not end.
fn told(at: u64, id: u64, sessions: &mut HashMap<u64, Session>, terms: &Terms, checks: &Checks) {
    let session = sessions.entry(id).or_default();
    let since = at.saturating_sub(2 * terms.timeout);
    let recent = session.touches.iter().filter(|touch| **touch >= since);
    let recent: Vec<u64> = recent.copied().chain([at]).collect();
    let in_time = recent.windows(2).all(|pair| pair[1] - pair[0] <= terms.timeout / 2);
    let is_touched = recent.len() > 1 && in_time;
    session.told = true;
    checks.expect("no_touched_session_ends", session.left || !is_touched, || {
        format!("session {id} is told at {at}, and was touched at {recent:?}")
    });
}

/// The holders of a key, in the order of their tokens.
fn holders(key: u64, holdings: &BTreeMap<u64, Holding>, checks: &Checks) {
    let (mut latest, mut end) = (0, 0);
    for (token, one) in holdings {
        checks.expect("tokens_rise", one.from >= latest, || {
            format!("key {key}: token {token} from {}, a lower one from {latest}", one.from)
        });
        checks.expect("one_holder_at_a_time", one.from < latest || one.from >= end, || {
            format!("key {key}: token {token} from {}, a lower one until {end}", one.from)
        });
        latest = latest.max(one.from);
        end = end.max(one.until.min(one.over));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(records: &[(u64, Event)]) -> Vec<Check> {
        for (at, event) in records {
            assert_eq!(parse(&line(*at, *event)), Some((*at, *event)));
        }
        let checks = Checks::new(&NAMES);
        judge(records.to_vec(), &Terms { timeout: 100, claim: 30 }, &checks);
        checks.failing()
    }

    fn valid(at: u64, token: u64, until: u64) -> (u64, Event) {
        (at, Event::Valid { key: 1, token, until })
    }

    fn first(at: u64, token: u64) -> (u64, Event) {
        (at, Event::First { key: 1, token, answered: at + 1 })
    }

    #[test]
    fn a_history_without_fault_passes_and_a_cut_line_is_none() {
        let (session, key) = (7, 1);
        let records = [
            valid(0, 5, 20),
            valid(10, 5, 30),
            (12, Event::Over { key, token: 5 }),
            valid(13, 8, 40),
            valid(40, 9, 60),
            (0, Event::Begun { session }),
            (50, Event::Touched { session }),
            (140, Event::Told { session }),
            (200, Event::Told { session }),
            (210, Event::Told { session: 8 }),
            (209, Event::Begun { session: 8 }),
            (210, Event::Left { session: 8 }),
            first(0, 3),
            first(31, 4),
            // It was sent before the others, and stored after them.
            (0, Event::First { key, token: 5, answered: 70 }),
            (35, Event::Answer { key, token: 4 }),
            (90, Event::Answer { key, token: 4 }),
        ];
        assert_eq!(failing(&records), [""; 0]);
        assert_eq!(parse(line(12, Event::Told { session }).trim_end()), None);
    }

    #[test]
    fn each_rule_finds_its_fault() {
        let (session, key) = (7, 1);
        let overlap = [valid(0, 5, 20), valid(19, 6, 40)];
        assert_eq!(failing(&overlap), ["one_holder_at_a_time"]);
        let falls = [valid(0, 6, 20), valid(20, 5, 40)];
        assert_eq!(failing(&falls), ["tokens_rise"]);
        let touched = [
            (0, Event::Begun { session }),
            (50, Event::Touched { session }),
            (100, Event::Told { session }),
        ];
        assert_eq!(failing(&touched), ["no_touched_session_ends"]);
        assert_eq!(failing(&touched[..2]), ["each_end_is_told"]);
        assert_eq!(failing(&[first(0, 3), first(28, 4)]), ["first_once_in_a_claim"]);
        let answers = [3, 4].map(|token| (9, Event::Answer { key, token }));
        assert_eq!(failing(&answers), ["one_answer_to_a_key"]);
    }
}
