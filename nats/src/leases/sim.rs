//! A seeded simulation of workers that own a partition in turn, and hold leases of its keys. Times
//! are microseconds of true time; each worker's clock runs at its own rate. The owners
//! are a script: `ownership/sim.rs` shows that no two workers may act at once.

use super::holder::{Event as Held, Holder};
use super::owner::{Action, Event, Keeper, Owner};
use super::wire::{Ask, Grant, Renewal, Said};
use crate::partitions::Numbered;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

const LEASE: u64 = 1_000_000;
const TIME: u64 = 8 * LEASE;
const MS: u64 = 1_000;
const WORKERS: usize = 3;
const KEYS: u8 = 3;

enum Ev {
    Tick,
    /// A request arrives at a worker, which may be the owner.
    Asked(usize, Ask),
    Said(usize, Said),
    Timeout(usize),
    /// A batch of an epoch, with its number, arrives at the store.
    Write((u64, u64), Vec<(Vec<u8>, Option<bytes::Bytes>)>),
    /// The outcome of a batch. None: unknown.
    Written((u64, u64), Option<u64>),
    Claim,
    Loaded(u64),
}

struct Request {
    from: usize,
    life: u64,
    sent_at: Duration,
    ask: Ask,
    open: bool,
}

struct Node {
    /// Counts the processes that have used its name.
    life: u64,
    rate: u64,
    paused_until: u64,
    /// The worker may act as the owner until then.
    acts_until: u64,
    /// The owner's epoch, the number of its last batch, and the machine.
    owner: Option<((u64, u64), Owner<usize>)>,
    holder: Holder<()>,
    held: Vec<(Grant, u64)>,
}

struct Sim {
    now: u64,
    random: SmallRng,
    /// Only owners fail: no lease may be lost.
    gentle: bool,
    stopping: bool,
    queue: BTreeMap<(u64, u64), (usize, u64, Ev)>,
    serial: u64,
    nodes: Vec<Node>,
    requests: Vec<Request>,
    owner: usize,
    epoch: u64,
    sequence: u64,
    records: Numbered,
    tokens: HashMap<Vec<u8>, (u64, u64)>,
    /// Grants, leases lost, late batches.
    counts: [u64; 3],
}

type Checked = Result<(), String>;

impl Sim {
    fn new(seed: u64, gentle: bool) -> Self {
        let (queue, nodes, requests) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut sim = Sim {
            random: SmallRng::seed_from_u64(seed),
            now: 1,
            serial: 0,
            owner: 0,
            epoch: 0,
            sequence: 0,
            records: Numbered::new(),
            tokens: HashMap::new(),
            stopping: false,
            counts: [0; 3],
            gentle,
            queue,
            nodes,
            requests,
        };
        for i in 0..WORKERS {
            let node = sim.node(0);
            sim.nodes.push(node);
            sim.push(1, i, Ev::Tick);
        }
        sim.push(1, 0, Ev::Claim);
        sim
    }

    fn node(&mut self, life: u64) -> Node {
        Node {
            rate: 950 + self.below(101),
            paused_until: 0,
            acts_until: 0,
            owner: None,
            holder: Holder::new(),
            held: Vec::new(),
            life,
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.random_range(0..limit)
    }

    fn push(&mut self, at: u64, i: usize, ev: Ev) {
        self.serial += 1;
        self.queue.insert((at, self.serial), (i, self.nodes[i].life, ev));
    }

    /// When something sent now arrives. Some things take long.
    fn arrival(&mut self, long: u64) -> u64 {
        let late = !self.gentle && self.below(25) == 0;
        self.now + MS + self.below(if late { long } else { 20 * MS })
    }

    fn clock(&self, i: usize) -> Duration {
        Duration::from_micros(self.now * self.nodes[i].rate / 1000)
    }

    fn run_until(&mut self, end: u64) -> Checked {
        while let Some((&(at, serial), _)) =
            self.queue.first_key_value().filter(|it| it.0 .0 <= end)
        {
            let (i, life, ev) = self.queue.remove(&(at, serial)).expect("it is there");
            self.now = self.now.max(at);
            let node = &self.nodes[i];
            match ev {
                Ev::Write(batch, records) => self.store(i, batch, records),
                _ if life != node.life && !matches!(ev, Ev::Claim | Ev::Tick) => {}
                ev if node.paused_until > self.now => self.push(node.paused_until, i, ev),
                ev => self.step(i, ev)?,
            }
        }
        self.now = end;
        Ok(())
    }

    fn step(&mut self, i: usize, ev: Ev) -> Checked {
        match ev {
            Ev::Tick => {
                self.push(self.now + LEASE / 16, i, Ev::Tick);
                self.holding(i, Held::Tick);
                self.wants(i)?;
                self.keeping(i, Event::Tick)
            }
            Ev::Asked(serial, ask) => {
                let worker = self.requests[serial].from.to_string();
                self.keeping(i, Event::Asked { worker, ask, reply: serial })
            }
            Ev::Said(serial, said) => self.said(i, serial, said),
            Ev::Timeout(serial) => {
                let Request { open, sent_at, ask, .. } = &mut self.requests[serial];
                if !std::mem::take(open) {
                    return Ok(());
                }
                let (sent_at, ask) = (*sent_at, ask.clone());
                match ask {
                    Ask::Renew(_) => self.holding(i, Held::Unanswered { partition: 0, sent_at }),
                    Ask::Acquire(grant) if self.below(8) == 0 => {
                        self.ask(i, Ask::Release(grant), LEASE);
                    }
                    again => self.ask(i, again, LEASE),
                }
                Ok(())
            }
            Ev::Written(batch, outcome) => match (&mut self.nodes[i].owner, outcome) {
                (Some((found, _)), Some(last)) if *found == batch => {
                    found.1 += 1;
                    self.keeping(i, Event::Written(last))
                }
                (owner @ Some(_), None) if owner.as_ref().is_some_and(|it| it.0 == batch) => {
                    *owner = None;
                    self.push(self.now + MS, i, Ev::Claim);
                    Ok(())
                }
                _ => Ok(()),
            },
            Ev::Claim if self.owner == i => {
                self.sequence += 1;
                self.epoch = self.sequence;
                let at = self.now + MS + self.below(LEASE / 4);
                (self.nodes[i].acts_until, self.nodes[i].owner) = (u64::MAX, None);
                self.push(at, i, Ev::Loaded(self.epoch));
                Ok(())
            }
            Ev::Loaded(epoch) if self.owner == i && self.epoch == epoch => {
                let grace = Duration::from_micros(LEASE);
                let (owner, malformed) = Owner::new(self.clock(i), self.records.clone(), grace);
                self.nodes[i].owner = Some(((epoch, 0), owner));
                assert_eq!(malformed, 0);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What the worker's user does at times.
    fn wants(&mut self, i: usize) -> Checked {
        let (now, node) = (self.clock(i), &mut self.nodes[i]);
        let (before, holder) = (node.held.len(), &node.holder);
        node.held.retain(|held| !holder.valid_for(now, (0, held.1)).is_zero());
        let lost = before - node.held.len();
        self.counts[1] += lost as u64;
        if lost > 0 && self.gentle {
            return Err(format!("{}: w{i} lost a lease", self.now));
        }
        let (any, key) = (self.below(32), vec![self.below(KEYS.into()) as u8]);
        if any == 0 && !self.stopping {
            let (id, millis) = (self.below(u64::MAX), TIME / MS);
            let grant = Grant { key, id, millis, ..Grant::default() };
            self.ask(i, Ask::Acquire(grant), LEASE);
        } else if (any == 1 && self.below(8) == 0) || self.stopping {
            if let Some((grant, token)) = self.nodes[i].held.pop() {
                self.nodes[i].holder.forget((0, token));
                self.ask(i, Ask::Release(grant), LEASE);
            }
        }
        Ok(())
    }

    fn ask(&mut self, i: usize, ask: Ask, limit: u64) {
        let (serial, sent_at) = (self.requests.len(), self.clock(i));
        let life = self.nodes[i].life;
        self.requests.push(Request { from: i, life, sent_at, ask: ask.clone(), open: true });
        self.push(self.now + limit, i, Ev::Timeout(serial));
        // A pause between a request and its answer makes the answer old. Or the request is lost.
        if !self.gentle && self.below(12) == 0 {
            let long = [TIME / 2, 2 * TIME][self.below(2) as usize];
            self.nodes[i].paused_until = self.now + self.below(long);
            if self.below(2) == 0 {
                return;
            }
        }
        for j in 0..WORKERS {
            let copies = [1, 0, 2].get(self.below(50) as usize).filter(|_| !self.gentle);
            for _ in 0..*copies.unwrap_or(&1) {
                let at = self.arrival(TIME / 2);
                self.push(at, j, Ev::Asked(serial, ask.clone()));
            }
        }
    }

    fn holding(&mut self, i: usize, event: Held) {
        let (now, mut out) = (self.clock(i), Vec::new());
        self.nodes[i].holder.on(now, event, &mut out);
        for renew in out {
            let ask = Ask::Renew(Renewal { leases: renew.leases });
            self.ask(i, ask, renew.limit.as_micros() as u64);
        }
    }

    fn keeping(&mut self, i: usize, event: Event<Ask, usize>) -> Checked {
        let (now, mut out) = (self.clock(i), Vec::new());
        let may_act = self.now < self.nodes[i].acts_until || matches!(event, Event::Written(_));
        let Some((batch, owner)) = self.nodes[i].owner.as_mut().filter(|_| may_act) else {
            return Ok(());
        };
        let batch = *batch;
        owner.on(now, event, &mut out);
        for action in out {
            match action {
                Action::Write(records) => {
                    let at = self.arrival(3 * LEASE);
                    self.push(at, i, Ev::Write(batch, records));
                    self.push(self.now + LEASE, i, Ev::Written(batch, None));
                }
                Action::Answer(serial, said) => {
                    let Request { from, life, ask, .. } = &self.requests[serial];
                    let to = (*from, *life);
                    if let (Ask::Release(grant), Said::Released(_)) = (ask, &said) {
                        let found = self.records.get(&grant.key);
                        let found = found.and_then(|it| Grant::of_record(&it.1));
                        if found.is_some_and(|found| found.id == grant.id) {
                            return Err(format!("{}: released, but not free", self.now));
                        }
                    }
                    let at = self.arrival(TIME / 2);
                    if (self.gentle || self.below(50) > 0) && self.nodes[to.0].life == to.1 {
                        self.push(at, to.0, Ev::Said(serial, said));
                    }
                }
            }
        }
        Ok(())
    }

    fn said(&mut self, i: usize, serial: usize, said: Said) -> Checked {
        let Request { sent_at, ask, open, .. } = &mut self.requests[serial];
        let (sent_at, ask) = (*sent_at, ask.clone());
        // A paused worker may find the answer and the end of its wait at once.
        if !std::mem::take(open) {
            return Ok(());
        }
        match (ask, said) {
            (Ask::Acquire(grant), Said::Granted(token)) if token > 0 => {
                self.counts[0] += 1;
                let (now, key, time) = (self.clock(i), grant.key.clone(), grant.time());
                if !self.nodes[i].holder.granted(now, (0, token), key, time, sent_at, ()) {
                    self.ask(i, Ask::Acquire(grant), LEASE);
                    return Ok(());
                }
                let last = self.tokens.entry(grant.key.clone()).or_default();
                if token < last.0 || (token == last.0 && grant.id != last.1) {
                    return Err(format!("{}: token {token} after {last:?}", self.now));
                }
                *last = (token, grant.id);
                let others =
                    (0..WORKERS).flat_map(|j| self.nodes[j].held.iter().map(move |it| (j, it)));
                let mut others = others.filter(|(_, it)| it.0.key == grant.key);
                let valid = others.find(|&(j, it)| {
                    let (node, now) = (&self.nodes[j], self.clock(j));
                    !node.holder.valid_for(now, (0, it.1)).is_zero()
                });
                if let Some((j, _)) = valid {
                    return Err(format!("{}: w{i} and w{j} hold {:?}", self.now, grant.key));
                }
                self.nodes[i].held.push((grant, token));
            }
            (Ask::Renew(_), Said::Renewed(tokens)) => {
                let (kept, gone) = (tokens.kept, tokens.gone);
                self.holding(i, Held::Renewed { partition: 0, sent_at, kept, gone });
            }
            _ => {}
        }
        Ok(())
    }

    fn store(
        &mut self,
        i: usize,
        batch: (u64, u64),
        records: Vec<(Vec<u8>, Option<bytes::Bytes>)>,
    ) {
        if self.epoch != batch.0 {
            self.counts[2] += 1;
            return;
        }
        for (key, record) in records {
            self.sequence += 1;
            match record {
                Some(record) => drop(self.records.insert(key, (self.sequence, record))),
                None => drop(self.records.remove(&key)),
            }
        }
        if self.gentle || self.below(50) > 0 {
            let at = self.arrival(LEASE / 2);
            self.push(at, i, Ev::Written(batch, Some(self.sequence)));
        }
    }

    /// Another worker is to own the partition. It claims within two leases.
    fn depose(&mut self) {
        let next = (self.owner + 1) % WORKERS;
        let old = &mut self.nodes[self.owner];
        old.acts_until = old.acts_until.min(self.now);
        self.owner = next;
        let at = self.now + self.below(2 * LEASE);
        self.push(at, next, Ev::Claim);
    }
}

fn run(seed: u64, gentle: bool) -> Result<Sim, String> {
    let mut sim = Sim::new(seed, gentle);
    for _ in 0..40 {
        let next = sim.now + sim.below(TIME);
        sim.run_until(next)?;
        let i = sim.below(WORKERS as u64) as usize;
        match sim.below(if gentle { 1 } else { 3 }) {
            0 => sim.depose(),
            1 => {
                // It is killed, and another process starts under its name.
                let (life, pause) = (sim.nodes[i].life + 1, sim.below(2 * LEASE));
                sim.nodes[i] = sim.node(life);
                sim.nodes[i].paused_until = sim.now + pause;
                if sim.owner == i {
                    sim.depose();
                }
            }
            _ => {}
        }
        let settle = sim.now + if gentle { TIME } else { 3 * LEASE };
        sim.run_until(settle)?;
    }
    sim.stopping = true;
    sim.run_until(sim.now + 6 * TIME)?;
    match sim.records.len() {
        0 => Ok(sim),
        n => Err(format!("{n} keys are not free")),
    }
}

#[test]
fn no_two_hold_a_key_and_what_is_released_is_free() {
    let mut counts = [0; 3];
    for seed in 0..100 {
        let sim = run(seed, false).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        counts.iter_mut().zip(sim.counts).for_each(|(sum, count)| *sum += count);
    }
    println!("{counts:?}");
    assert!(counts[0] > 2_000 && counts[1] > 100 && counts[2] > 100);
}

#[test]
fn an_owners_failure_ends_no_lease() {
    for seed in 0..50 {
        run(seed, true).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}
