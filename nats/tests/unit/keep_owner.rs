//! Tests of the machine of `src/keep/owner.rs`, and of `src/keep/wire.rs`.

use super::owner::{Action, Event, Owner};
use super::sim::{begin, end, Asked};
use super::wire::Answer::{Begun, No, Unsure, Yes};
use super::wire::{self, Answer, Entry, Request, Write};
use super::Terms;
use crate::partitions::Numbered;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use std::sync::Arc;
use std::time::Duration;

/// Answers, as their place and answers, and the writes: for each whether it begins an entry.
type Out = Vec<(usize, Vec<Answer>, Vec<bool>)>;

/// An owner of leases that a script drives.
struct Script(Owner<usize>);

impl Script {
    fn on(&mut self, seconds: u64, event: Event<usize>) -> Out {
        let mut out = Vec::new();
        self.0.on(Duration::from_secs(seconds), event, &mut out);
        let describe = |action| match action {
            Action::Write(records) => {
                (0, vec![], records.iter().map(|it| it.1.is_some()).collect())
            }
            Action::Answer(reply, answers) => (reply, answers, vec![]),
        };
        out.into_iter().map(describe).collect()
    }

    fn ask(&mut self, seconds: u64, worker: &str, reply: usize, request: Request) -> Out {
        self.on(seconds, Event::Asked { worker: worker.into(), request, reply })
    }
}

#[test]
fn a_begin_is_answered_when_it_is_stored_and_an_end_is_undecided_until_then() {
    let report = Arc::new(|_| ());
    let terms = Terms { timeout: None, report };
    let (owner, _) = Owner::new(terms, Duration::ZERO, Numbered::new(), Duration::from_secs(1));
    let mut owner = Script(owner);
    let lease = |id, key| Entry::new(id, vec![key], Duration::from_secs(10));
    let writes = |asks: &[Asked]| {
        let write = |ask: &Asked| match ask {
            Asked::Write(write) => write.clone(),
            Asked::Adopt(_) => unreachable!(),
        };
        Request::new(vec![], asks.iter().map(write).collect())
    };
    let (first, second) = (writes(&[begin(lease(1, 7))]), writes(&[begin(lease(2, 7))]));
    let touch = |id| Request::new(vec![id], vec![]);
    assert_eq!(owner.ask(1, "a", 1, first.clone()), [(0, vec![], vec![true])]);
    // A begin that is not stored yet is neither there nor not, and no other call gets the key.
    assert_eq!(owner.ask(1, "a", 2, touch(1)), [(2, vec![Unsure], vec![])]);
    assert_eq!(owner.ask(1, "a", 3, second.clone()), [(3, vec![No], vec![])]);
    assert_eq!(owner.ask(2, "a", 4, first.clone()), [(4, vec![Unsure], vec![])]);
    assert_eq!(owner.on(3, Event::Written(9)), [(1, vec![Begun(9)], vec![])]);
    // The call asks again. Another worker neither touches nor ends the lease.
    assert_eq!(owner.ask(3, "a", 5, first.clone()), [(5, vec![Begun(9)], vec![])]);
    assert_eq!(owner.ask(3, "b", 6, first), [(6, vec![No], vec![])]);
    assert_eq!(owner.ask(3, "b", 7, touch(1)), [(7, vec![No], vec![])]);
    assert_eq!(owner.ask(3, "b", 8, writes(&[end(1)])), [(8, vec![Yes], vec![])]);
    assert_eq!(owner.ask(12, "a", 9, touch(1)), [(9, vec![Yes], vec![])]);
    assert_eq!(owner.on(21, Event::Tick), []);
    assert_eq!(owner.on(23, Event::Tick), [(0, vec![], vec![false])]);
    // Its end is not stored yet.
    assert_eq!(owner.ask(23, "a", 10, touch(1)), [(10, vec![Unsure], vec![])]);
    assert_eq!(owner.ask(23, "a", 11, second), [(11, vec![No], vec![])]);
    assert_eq!(owner.on(24, Event::Written(10)), []);
    assert_eq!(owner.ask(24, "a", 12, touch(1)), [(12, vec![No], vec![])]);
    // Requests share a batch, and have the tokens of their own records.
    let many = writes(&[begin(lease(3, 3)), begin(lease(3, 3)), end(9), begin(lease(4, 4))]);
    assert_eq!(owner.ask(25, "a", 13, many), [(0, vec![], vec![true, true])]);
    for (id, key, reply) in [(5, 5, 14), (6, 6, 15), (7, 6, 16)] {
        let out = owner.ask(25, "a", reply, writes(&[begin(lease(id, key))]));
        let refused = [(16, vec![No], vec![])];
        assert_eq!(out, if id == 7 { &refused[..] } else { &[] });
    }
    let first = (13, vec![Begun(11), Unsure, Yes, Begun(12)], vec![]);
    assert_eq!(owner.on(26, Event::Written(12)), [first, (0, vec![], vec![true, true])]);
    let both = [(14, vec![Begun(13)], vec![]), (15, vec![Begun(14)], vec![])];
    assert_eq!(owner.on(26, Event::Written(14)), both);
}

#[test]
fn what_does_not_parse_is_none() {
    let lease = Entry::new(7, b"k".to_vec(), Duration::from_secs(9));
    let write = |entry: &Entry, ends| Write { entry: entry.clone(), ends };
    let parsed = |touched: &[u64], writes: Vec<Write>, of_leases| {
        let request = Request::new(touched.to_vec(), writes);
        // A later version's field is skipped.
        let bytes = [prost::Message::encode_to_vec(&request), vec![0x7a, 1, 0]].concat();
        let found = Request::of_bytes(&bytes, of_leases);
        assert!(found.iter().all(|found| *found == request));
        found.is_some()
    };
    assert!(parsed(&[7; 1000], vec![], true) && parsed(&[], vec![write(&lease, false)], true));
    assert!(parsed(&[7], vec![write(&Entry::default(), true); 1000], false));
    assert!(!parsed(&[], vec![], true) && !parsed(&[], vec![write(&lease, false)], false));
    assert!(!parsed(&[], vec![write(&lease, true); 1001], true));
    for (key, millis) in [(&b"k"[..], 0), (b"k", u64::MAX), (b"", 9_000), (&[b'k'; 257], 9_000)] {
        let mut wrong = lease.clone();
        (wrong.key, wrong.millis) = (key.to_vec(), millis);
        assert!(!parsed(&[], vec![write(&wrong, false)], true));
        assert_eq!(Entry::of_record(&wrong.record(), true), None);
    }
    let session = Entry::new(u64::MAX, Vec::new(), Duration::from_secs(9));
    for (entry, of_leases) in [(lease, true), (session, false)] {
        let found = Entry::of_record(&entry.record(), of_leases);
        assert_eq!(found.map(|found| found.record_key()), Some(entry.record_key()));
        assert_eq!(Entry::of_record(&entry.record(), !of_leases), None);
    }
    assert_eq!(wire::session_of(&wire::session_key(3)), Some(3));
    assert_eq!(wire::session_of(b"?"), None);
    // The number 2 is a token where the question was a begin.
    let write = |ends| Write { entry: Entry::default(), ends };
    let request = Request::new(vec![7, 8], vec![write(true), write(false), write(false)]);
    let answers = vec![No, Yes, Yes, Begun(2), Begun(3)];
    assert_eq!(wire::answers(&wire::reply(answers.clone()), &request), Some(answers));
    let request = Request::new(vec![7], vec![]);
    assert_eq!(wire::answers(&wire::reply(vec![No, Yes]), &request), None);
    let mut random = SmallRng::seed_from_u64(1);
    for length in (0..64).cycle().take(100_000) {
        let mut bytes = vec![0; length];
        random.fill_bytes(&mut bytes);
        assert_eq!(
            (Request::of_bytes(&bytes, true), wire::answers(&bytes, &request)),
            (None, None)
        );
        assert_eq!(Entry::of_record(&bytes, false), None);
    }
}

#[test]
fn what_expires_at_once_ends_in_batches_that_the_store_takes() {
    let terms = Terms { timeout: None, report: Arc::new(|_| ()) };
    let lease = |id: u64, millis: u64| {
        Entry::new(id, id.to_be_bytes().to_vec(), Duration::from_millis(millis))
    };
    let records = (0..4_000).map(|id| lease(id, 1 + id * 7919 % 60_000));
    let records = records.map(|it| (it.record_key(), (it.id, Some(it.record().into()))));
    let (owner, _) = Owner::new(terms, Duration::ZERO, records.collect(), Duration::ZERO);
    let (mut owner, mut ended, mut last) = (Script(owner), 0, 0);
    let mut begins = (4..).map(|n: u64| {
        let write = |id| Write { entry: lease(id, 1 << 20), ends: false };
        Request::new(vec![], (n * 1000..(n + 1) * 1000).map(write).collect())
    });
    // Others ask for as much as the store takes, all the time.
    let mut out = owner.ask(100, "a", 1, begins.next().unwrap());
    for reply in 2..30 {
        let batch = std::mem::take(&mut out.last_mut().expect("it writes").2);
        assert!(batch.len() <= 1000, "{}", batch.len());
        ended += batch.iter().filter(|begins| !**begins).count();
        last += batch.len() as u64;
        owner.ask(100, "a", reply, begins.next().unwrap());
        out = owner.on(100, Event::Written(last));
    }
    assert_eq!(ended, 4_000);
}
