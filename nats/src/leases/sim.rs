//! The simulation's workers hold leases of a partition's keys.

use super::holder::{Event, Holder};
use super::owner::Owner;
use super::wire::{Ask, Grant, Renewal, Said};
use crate::keep::sim::{run, Checked, Client, Request, Sim, LEASE, MS, TIME, WORKERS};
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
            return Err(format!("{}: w{i} lost a lease", sim.now));
        }
        let (any, key) = (sim.below(32), vec![sim.below(KEYS.into()) as u8]);
        if any == 0 && !sim.stopping {
            let (id, millis) = (sim.below(u64::MAX), TIME / MS);
            let grant = Grant { key, id, millis, ..Grant::default() };
            sim.ask(i, Ask::Acquire(grant), LEASE, false);
        } else if (any == 1 && sim.below(8) == 0) || sim.stopping {
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
            Ask::Renew(_) => holding(sim, i, Event::Unanswered { partition, sent_at }),
            Ask::Acquire(grant) if sim.below(8) == 0 => {
                sim.ask(i, Ask::Release(grant), LEASE, false);
            }
            again => sim.ask(i, again, LEASE, false),
        }
    }

    fn answered(sim: &mut Sim<Self>, serial: usize, said: &Said) -> Checked {
        if let (Ask::Release(grant), Said::Released(_)) = (&sim.requests[serial].ask, said) {
            let found = sim.records.get(&grant.key).and_then(|it| it.1.as_ref());
            if found.and_then(|it| Grant::of_record(it)).is_some_and(|it| it.id == grant.id) {
                return Err(format!("{}: released, but not free", sim.now));
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
                    return Err(format!("{}: token {token} after {last:?}", sim.now));
                }
                *last = (token, grant.id);
                let held = |j: usize| sim.nodes[j].client.held.iter().map(move |it| (j, it));
                let mut others = (0..WORKERS).flat_map(held).filter(|it| it.1 .0.key == grant.key);
                let valid = others.find(|&(j, it)| {
                    !sim.nodes[j].client.holder.valid_for(sim.clock(j), (0, it.1)).is_zero()
                });
                if let Some((j, _)) = valid {
                    return Err(format!("{}: w{i} and w{j} hold {:?}", sim.now, grant.key));
                }
                sim.nodes[i].client.held.push((grant, token));
            }
            (Ask::Renew(_), Said::Renewed(tokens)) => {
                let (kept, gone) = (tokens.kept, tokens.gone);
                holding(sim, i, Event::Renewed { partition: 0, sent_at, kept, gone });
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
