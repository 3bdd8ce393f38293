//! Tests of `src/leases`. The simulation's workers hold leases of a partition's keys.

use super::holder::Holder;
use crate::keep::sim::{begin, end, run, Asked, Checked, Client, Sim, TIME, WORKERS};
use crate::keep::{Answer, Entry, Front, Terms};
use crate::Loss;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const KEYS: u8 = 3;

struct Worker {
    held: Vec<Entry>,
}

impl Client for Worker {
    type Front = Holder<()>;
    const LOSES: bool = false;
    /// The last token of each key, and the call that got it.
    type World = HashMap<Vec<u8>, (u64, u64)>;

    fn terms(_: &Self::World) -> Terms {
        Terms { timeout: None, report: Arc::new(|_| ()) }
    }

    fn new(_: Duration) -> (Self, Holder<()>) {
        (Self { held: Vec::new() }, Holder::new())
    }

    fn tick(sim: &mut Sim<Self>, i: usize) -> Checked {
        let (now, mut held) = (sim.clock(i), std::mem::take(&mut sim.nodes[i].client.held));
        let before = held.len();
        held.retain(|held| !sim.nodes[i].front().valid_for(now, held.id).is_zero());
        let lost = before - held.len();
        sim.nodes[i].client.held = held;
        sim.counts[1] += lost as u64;
        if lost > 0 && sim.gentle {
            return Err(format!("{}: w{i} lost a lease", sim.net.now));
        }
        let (any, key) = (sim.net.below(32), vec![sim.net.below(KEYS.into()) as u8]);
        if any == 0 && !sim.stopping {
            let (id, time) = (sim.net.below(u64::MAX), Duration::from_micros(TIME));
            sim.nodes[i].asks.push(begin(Entry::new(id, key, time)));
        } else if (any == 1 && sim.net.below(8) == 0) || sim.stopping {
            if let Some(entry) = sim.nodes[i].client.held.pop() {
                sim.nodes[i].front().forget(entry.id);
                sim.nodes[i].asks.push(end(entry.id));
            }
        }
        Ok(())
    }

    fn again(sim: &mut Sim<Self>, ask: Asked) -> Asked {
        match ask {
            Asked::Write(write) if !write.ends && sim.net.below(8) == 0 => end(write.entry.id),
            ask => ask,
        }
    }

    fn answered(sim: &mut Sim<Self>, ask: Asked, answer: Answer) -> Checked {
        let Asked::Write(write) = ask else { return Ok(()) };
        let records = sim.records.values().filter_map(|it| it.1.as_ref());
        let mut ids = records.filter_map(|it| Entry::of_record(it, true)).map(|it| it.id);
        if write.ends && answer == Answer::Yes && ids.any(|id| id == write.entry.id) {
            return Err(format!("{}: released, but not free", sim.net.now));
        }
        Ok(())
    }

    fn sure(
        sim: &mut Sim<Self>,
        i: usize,
        sent_at: Duration,
        ask: Asked,
        answer: Answer,
    ) -> Checked {
        let Asked::Write(write) = ask else { unreachable!("a lease is not adopted") };
        let Answer::Begun(token) = answer else { return Ok(()) };
        sim.counts[0] += 1;
        let (now, entry) = (sim.clock(i), write.entry);
        if !sim.nodes[i].front().granted(now, entry.id, entry.time(), sent_at, ()) {
            sim.nodes[i].asks.push(begin(entry));
            return Ok(());
        }
        let last = sim.world.entry(entry.key.clone()).or_default();
        if token < last.0 || (token == last.0 && entry.id != last.1) {
            return Err(format!("{}: token {token} after {last:?}", sim.net.now));
        }
        *last = (token, entry.id);
        for j in 0..WORKERS {
            let (now, held) = (sim.clock(j), sim.nodes[j].client.held.clone());
            let mut others = held.iter().filter(|it| it.key == entry.key);
            if others.any(|it| !sim.nodes[j].front().valid_for(now, it.id).is_zero()) {
                return Err(format!("{}: w{i} and w{j} hold {:?}", sim.net.now, entry.key));
            }
        }
        sim.nodes[i].client.held.push(entry);
        Ok(())
    }
}

#[test]
fn no_two_hold_a_key_and_what_is_released_is_free() {
    let counts = run::<Worker>(60, false, |_| Ok(()));
    assert!(counts[0] > 1_500 && counts[1] > 60 && counts[2] > 60);
}

#[test]
fn an_owners_failure_ends_no_lease() {
    run::<Worker>(20, true, |_| Ok(()));
}

#[test]
fn a_lease_counts_from_when_its_request_was_sent_and_never_comes_back() {
    let at = Duration::from_secs;
    let (mut holder, mut due, mut gone) = (Holder::new(), Vec::new(), Vec::new());
    assert!(!holder.granted(at(9), 7, at(12), at(0), ()));
    assert!(holder.granted(at(2), 7, at(12), at(0), ()));
    assert_eq!(holder.valid_for(at(2), 7), at(7));
    holder.tick(at(3), &mut due, &mut gone);
    assert!(due.is_empty());
    holder.tick(at(4), &mut due, &mut gone);
    // Not again, until there is an answer.
    holder.tick(at(5), &mut due, &mut gone);
    assert_eq!(due, [7]);
    holder.touched(at(6), at(4), 7, Answer::Unsure, &mut gone);
    assert_eq!(holder.valid_for(at(6), 7), at(3));
    holder.tick(at(6), &mut due, &mut gone);
    assert_eq!(due, [7, 7]);
    holder.touched(at(8), at(4), 7, Answer::Yes, &mut gone);
    assert_eq!(holder.valid_for(at(8), 7), at(5));
    holder.touched(at(13), at(12), 7, Answer::Yes, &mut gone);
    assert_eq!((holder.valid_for(at(13), 7), gone.len()), (at(0), 0));
    holder.tick(at(13), &mut due, &mut gone);
    assert_eq!((holder.len(), gone.len(), holder.loss(7)), (0, 1, Loss::Unanswered));
    assert!(holder.granted(at(13), 7, at(12), at(13), ()));
    holder.touched(at(14), at(13), 7, Answer::No, &mut gone);
    assert_eq!((holder.valid_for(at(14), 7), gone.len()), (at(0), 2));
    assert_eq!((holder.loss(7), holder.forget(7)), (Loss::Expired, None));
    assert_eq!(holder.loss(7), Loss::Unanswered); // no trace is left
}
