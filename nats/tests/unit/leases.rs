//! Tests of `src/leases`. The simulation's workers hold leases of a partition's keys.

use super::holder::{Event, Holder};
use super::owner::Owner;
use super::wire::{Ask, Grant, Renewal, Renewed, Said, Tokens};
use crate::keep::sim::{random_bytes, run, Checked, Client, Request, Sim};
use crate::keep::sim::{LEASE, MS, TIME, WORKERS};
use crate::keep::{self, Action, Keeper, Wire};
use crate::partitions::Numbered;
use std::collections::HashMap;
use std::time::Duration;

const KEYS: u8 = 3;

struct Worker {
    holder: Holder<()>,
    held: Vec<(Grant, u64)>,
}

fn holding(sim: &mut Sim<Worker>, i: usize, event: Event) {
    let (now, mut out) = (sim.clock(i), Vec::new());
    sim.nodes[i].client.holder.on(now, event, &mut out);
    for renew in out {
        let ask = Ask::Renew(Renewal { leases: renew.leases });
        sim.ask(i, ask, renew.limit.as_micros() as u64, false);
    }
}

impl Client for Worker {
    type Keeper = Owner<usize>;
    /// The last token of each key, and the call that got it.
    type World = HashMap<Vec<u8>, (u64, u64)>;

    fn terms(_: &Self::World) {}

    fn new(_: Duration) -> Self {
        Self { holder: Holder::new(), held: Vec::new() }
    }

    /// Renews. Then comes what the worker's user does at times.
    fn tick(sim: &mut Sim<Self>, i: usize) -> Checked {
        holding(sim, i, Event::Tick);
        let (now, client) = (sim.clock(i), &mut sim.nodes[i].client);
        let (before, holder) = (client.held.len(), &client.holder);
        client.held.retain(|held| !holder.valid_for(now, (0, held.1)).is_zero());
        let lost = before - client.held.len();
        sim.counts[1] += lost as u64;
        if lost > 0 && sim.gentle {
            return Err(format!("{}: w{i} lost a lease", sim.net.now));
        }
        let (any, key) = (sim.net.below(32), vec![sim.net.below(KEYS.into()) as u8]);
        if any == 0 && !sim.stopping {
            let (id, millis) = (sim.net.below(u64::MAX), TIME / MS);
            let grant = Grant { key, id, millis, ..Grant::default() };
            sim.ask(i, Ask::Acquire(grant), LEASE, false);
        } else if (any == 1 && sim.net.below(8) == 0) || sim.stopping {
            if let Some((grant, token)) = sim.nodes[i].client.held.pop() {
                sim.nodes[i].client.holder.forget((0, token));
                sim.ask(i, Ask::Release(grant), LEASE, false);
            }
        }
        Ok(())
    }

    fn unanswered(sim: &mut Sim<Self>, i: usize, serial: usize) {
        let Request { sent_at, ask, .. } = &sim.requests[serial];
        let (partition, sent_at, ask) = (0, *sent_at, ask.clone());
        match ask {
            Ask::Renew(_) => holding(sim, i, Event::Answered { partition, sent_at, tokens: None }),
            Ask::Acquire(grant) if sim.net.below(8) == 0 => {
                sim.ask(i, Ask::Release(grant), LEASE, false);
            }
            again => sim.ask(i, again, LEASE, false),
        }
    }

    fn answered(sim: &mut Sim<Self>, serial: usize, said: &Said) -> Checked {
        if let (Ask::Release(grant), Said::Released(_)) = (&sim.requests[serial].ask, said) {
            let found = sim.records.get(&grant.key).and_then(|it| it.1.as_ref());
            if found.and_then(|it| Grant::of_record(it)).is_some_and(|it| it.id == grant.id) {
                return Err(format!("{}: released, but not free", sim.net.now));
            }
        }
        Ok(())
    }

    fn said(sim: &mut Sim<Self>, i: usize, serial: usize, said: Said) -> Checked {
        let Request { sent_at, ask, .. } = &sim.requests[serial];
        let (sent_at, ask) = (*sent_at, ask.clone());
        match (ask, said) {
            (Ask::Acquire(grant), Said::Granted(token)) if token > 0 => {
                sim.counts[0] += 1;
                let (now, key, time) = (sim.clock(i), grant.key.clone(), grant.time());
                let holder = &mut sim.nodes[i].client.holder;
                if !holder.granted(now, (0, token), key, time, sent_at, ()) {
                    sim.ask(i, Ask::Acquire(grant), LEASE, false);
                    return Ok(());
                }
                let last = sim.world.entry(grant.key.clone()).or_default();
                if token < last.0 || (token == last.0 && grant.id != last.1) {
                    return Err(format!("{}: token {token} after {last:?}", sim.net.now));
                }
                *last = (token, grant.id);
                let held = |j: usize| sim.nodes[j].client.held.iter().map(move |it| (j, it));
                let mut others = (0..WORKERS).flat_map(held).filter(|it| it.1 .0.key == grant.key);
                let valid = others.find(|&(j, it)| {
                    !sim.nodes[j].client.holder.valid_for(sim.clock(j), (0, it.1)).is_zero()
                });
                if let Some((j, _)) = valid {
                    return Err(format!("{}: w{i} and w{j} hold {:?}", sim.net.now, grant.key));
                }
                sim.nodes[i].client.held.push((grant, token));
            }
            (Ask::Renew(_), Said::Renewed(tokens)) => {
                let tokens = Some(tokens);
                holding(sim, i, Event::Answered { partition: 0, sent_at, tokens });
            }
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn no_two_hold_a_key_and_what_is_released_is_free() {
    let counts = run::<Worker>(100, false, |_| Ok(()));
    assert!(counts[0] > 2_000 && counts[1] > 100 && counts[2] > 100);
}

#[test]
fn an_owners_failure_ends_no_lease() {
    run::<Worker>(50, true, |_| Ok(()));
}

#[test]
fn what_does_not_parse_is_none() {
    let grant = Grant { key: b"k".to_vec(), id: 7, millis: 9_000, ..Grant::default() };
    let ask = Ask::Acquire(grant.clone());
    // A later version's field is skipped.
    for more in [vec![], vec![0x7a, 1, 0]] {
        let bytes = [ask.clone().into_bytes(), more].concat();
        assert_eq!(Ask::of_bytes(&bytes), Some(ask.clone()));
    }
    for (key, millis) in [(&b"k"[..], 0), (b"k", u64::MAX), (b"", 9_000)] {
        let wrong = Ask::Release(Grant { key: key.to_vec(), millis, ..grant.clone() });
        assert_eq!(Ask::of_bytes(&wrong.into_bytes()), None);
    }
    assert_eq!(Grant::of_record(&grant.record("w")).map(|it| it.worker), Some("w".into()));
    random_bytes(|bytes| {
        assert_eq!((Ask::of_bytes(bytes), Grant::of_record(bytes)), (None, None));
        assert_eq!(Said::of_bytes(bytes), None);
    });
}

#[test]
fn a_lease_counts_from_when_its_request_was_sent_and_never_comes_back() {
    let at = Duration::from_secs;
    let (mut holder, mut out, lease) = (Holder::new(), Vec::new(), (3, 7));
    assert!(!holder.granted(at(9), lease, vec![1], at(12), at(0), ()));
    assert!(holder.granted(at(2), lease, vec![1], at(12), at(0), ()));
    assert_eq!(holder.valid_for(at(2), lease), at(7));
    holder.on(at(4), Event::Tick, &mut out);
    let (sent_at, renewed) = (out[0].sent_at, |sent_at, gone| {
        let (partition, tokens) = (3, Some(Tokens { kept: vec![7], gone }));
        Event::Answered { partition, sent_at, tokens }
    });
    assert_eq!((out.len(), sent_at, out[0].limit), (1, at(4), at(1)));
    holder.on(at(8), renewed(sent_at, vec![]), &mut out);
    assert_eq!(holder.valid_for(at(8), lease), at(5));
    holder.on(at(13), renewed(at(12), vec![]), &mut out);
    assert_eq!(holder.valid_for(at(13), lease), at(0));
    assert!(holder.granted(at(13), lease, vec![1], at(12), at(13), ()));
    holder.on(at(14), renewed(at(13), vec![7]), &mut out);
    assert_eq!(holder.valid_for(at(14), lease), at(0));
}

#[test]
fn a_grant_is_answered_when_it_is_stored_and_an_end_is_undecided_until_then() {
    let at = Duration::from_secs;
    let (mut owner, _) = Owner::new((), at(0), Numbered::new(), at(1));
    let grant = |id| Grant { key: vec![7], id, millis: 10_000, ..Grant::default() };
    let mut on = |now, event| {
        let mut out = Vec::new();
        owner.on(at(now), event, &mut out);
        let describe = |action| match action {
            Action::Write(records) => (None, records[0].1.is_some().into(), records.len()),
            Action::Answer(reply, said) => (Some(said), None, reply),
        };
        out.into_iter().map(describe).collect::<Vec<_>>()
    };
    let ask = |worker: &str, ask, reply| keep::Event::Asked { worker: worker.into(), ask, reply };
    let renew = |worker, token, reply| {
        let leases = vec![Renewed { key: vec![7], token }];
        ask(worker, Ask::Renew(Renewal { leases }), reply)
    };
    let renewed = |kept: &[u64], gone: &[u64]| {
        Some(Said::Renewed(Tokens { kept: kept.to_vec(), gone: gone.to_vec() }))
    };
    assert_eq!(on(1, ask("a", Ask::Acquire(grant(1)), 1)), [(None, Some(true), 1)]);
    // A grant that is not stored yet has no token, and no other call gets the key.
    assert_eq!(on(1, renew("a", 0, 2)), [(renewed(&[], &[0]), None, 2)]);
    assert_eq!(on(1, ask("a", Ask::Acquire(grant(2)), 3)), [(Some(Said::Granted(0)), None, 3)]);
    // The call asks again: the later reply is answered.
    assert_eq!(on(2, ask("a", Ask::Acquire(grant(1)), 4)), []);
    assert_eq!(on(3, keep::Event::Written(9)), [(Some(Said::Granted(9)), None, 4)]);
    assert_eq!(on(3, renew("b", 9, 5)), [(renewed(&[], &[9]), None, 5)]);
    let foreign = ask("b", Ask::Release(grant(1)), 6);
    assert_eq!(on(3, foreign), [(Some(Said::Released(true)), None, 6)]);
    assert_eq!(on(12, renew("a", 9, 7)), [(renewed(&[9], &[]), None, 7)]);
    assert_eq!(on(21, keep::Event::Tick), []);
    assert_eq!(on(23, keep::Event::Tick), [(None, Some(false), 1)]);
    assert_eq!(on(23, renew("a", 9, 8)), [(renewed(&[], &[]), None, 8)]);
    assert_eq!(on(23, ask("a", Ask::Acquire(grant(2)), 9)), [(Some(Said::Granted(0)), None, 9)]);
    assert_eq!(on(24, keep::Event::Written(10)), []);
    assert_eq!(on(24, renew("a", 9, 10)), [(renewed(&[], &[9]), None, 10)]);
    assert_eq!(on(24, ask("a", Ask::Acquire(grant(2)), 11)), [(None, Some(true), 1)]);
}
