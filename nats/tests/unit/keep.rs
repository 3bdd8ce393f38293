//! A seeded simulation of workers that own a partition in turn, and ask its owner. The owners are a
//! script: the tests of `src/ownership.rs` show that no two workers may act at once.

use super::{Action, Event, Keeper};
use crate::partitions::Numbered;
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) const LEASE: u64 = 1_000_000;
pub(crate) const TIME: u64 = 8 * LEASE;
pub(crate) const MS: u64 = 1_000;
pub(crate) const WORKERS: usize = 3;

pub(crate) type Checked = Result<(), String>;
pub(crate) type Ask<C> = <<C as Client>::Keeper as Keeper<usize>>::Ask;
pub(crate) type Said<C> = <<C as Client>::Keeper as Keeper<usize>>::Said;
type Records = Vec<(Vec<u8>, Option<Bytes>)>;

/// Calls `check` with bytes that mean nothing.
pub(crate) fn random_bytes(check: impl Fn(&[u8])) {
    let mut random = SmallRng::seed_from_u64(1);
    for length in (0..64).cycle().take(100_000) {
        let mut bytes = vec![0; length];
        random.fill_bytes(&mut bytes);
        check(&bytes);
    }
}

/// Chance, and what is to happen when, to which node and in which of its lives. Times are
/// microseconds of true time; each node's clock runs at its own rate, in thousandths.
pub(crate) struct Net<E> {
    pub(crate) now: u64,
    random: SmallRng,
    serial: u64,
    queue: BTreeMap<(u64, u64), (usize, u64, E)>,
}

impl<E> Net<E> {
    pub(crate) fn new(seed: u64) -> Self {
        let (random, queue) = (SmallRng::seed_from_u64(seed), BTreeMap::new());
        Net { now: 1, random, serial: 0, queue }
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.random.random_range(0..limit.max(1))
    }

    pub(crate) fn at_rate(&self, rate: u64) -> Duration {
        Duration::from_micros(self.now * rate / 1000)
    }

    pub(crate) fn put(&mut self, at: u64, i: usize, life: u64, event: E) {
        self.serial += 1;
        self.queue.insert((at, self.serial), (i, life, event));
    }

    /// The next event until `end`. None: it is `end` now.
    pub(crate) fn next(&mut self, end: u64) -> Option<(usize, u64, E)> {
        let Some(first) = self.queue.first_entry().filter(|it| it.key().0 <= end) else {
            self.now = end;
            return None;
        };
        self.now = self.now.max(first.key().0);
        Some(first.remove())
    }
}

/// What a worker does beside owning, and what the simulation checks.
pub(crate) trait Client: Sized {
    type Keeper: Keeper<usize, Ask: Clone>;
    /// What the checks remember.
    type World: Default;
    fn terms(world: &Self::World) -> <Self::Keeper as Keeper<usize>>::Terms;
    /// A process that has just begun.
    fn new(now: Duration) -> Self;
    fn tick(sim: &mut Sim<Self>, i: usize) -> Checked;
    fn said(sim: &mut Sim<Self>, i: usize, serial: usize, said: Said<Self>) -> Checked;
    fn unanswered(sim: &mut Sim<Self>, i: usize, serial: usize);
    /// An owner has taken a request; has answered it.
    fn taken(_: &mut Sim<Self>, _serial: usize) {}
    fn answered(_: &mut Sim<Self>, _serial: usize, _said: &Said<Self>) -> Checked {
        Ok(())
    }
    /// A new owner has read the records.
    fn loaded(_: &mut Sim<Self>) {}
    /// An owner has handled an event, and sends a batch. The store has taken a record.
    fn handled(_: &mut Sim<Self>) -> Checked {
        Ok(())
    }
    fn written(_: &mut Sim<Self>, _: &Records) -> Checked {
        Ok(())
    }
    fn stored(_: &mut Sim<Self>, _key: &[u8], _lives: bool, _lived: bool) -> Checked {
        Ok(())
    }
}

pub(crate) enum Ev<C: Client> {
    Tick,
    /// A request arrives at a worker, which may be the owner.
    Asked(usize),
    Said(usize, Said<C>),
    Timeout(usize),
    /// A batch of an epoch, with its number, arrives at the store.
    Write((u64, u64), Records),
    /// The outcome of a batch. None: unknown.
    Written((u64, u64), Option<u64>),
    Claim,
    Loaded(u64),
}

pub(crate) struct Request<A> {
    pub(crate) from: usize,
    life: u64,
    pub(crate) sent_at: Duration,
    pub(crate) ask: A,
    open: bool,
}

pub(crate) struct Node<C: Client> {
    /// Counts the processes that have used its name.
    life: u64,
    rate: u64,
    paused_until: u64,
    /// The worker may act as the owner until then.
    acts_until: u64,
    /// The owner's epoch, the number of its last batch, and the machine.
    owner: Option<((u64, u64), C::Keeper)>,
    pub(crate) client: C,
}

pub(crate) struct Sim<C: Client> {
    pub(crate) net: Net<Ev<C>>,
    /// Only owners fail.
    pub(crate) gentle: bool,
    pub(crate) stopping: bool,
    pub(crate) nodes: Vec<Node<C>>,
    pub(crate) requests: Vec<Request<Ask<C>>>,
    owner: usize,
    epoch: u64,
    sequence: u64,
    pub(crate) records: Numbered,
    pub(crate) world: C::World,
    /// Late batches come last.
    pub(crate) counts: [u64; 3],
}

impl<C: Client> Sim<C> {
    fn new(seed: u64, gentle: bool) -> Self {
        let mut sim = Sim {
            net: Net::new(seed),
            owner: 0,
            epoch: 0,
            sequence: 0,
            records: Numbered::new(),
            world: C::World::default(),
            counts: [0; 3],
            stopping: false,
            gentle,
            nodes: Vec::new(),
            requests: Vec::new(),
        };
        for i in 0..WORKERS {
            let node = sim.node(0);
            sim.nodes.push(node);
            sim.push(1, i, Ev::Tick);
        }
        sim.push(1, 0, Ev::Claim);
        sim
    }

    fn node(&mut self, life: u64) -> Node<C> {
        let rate = 950 + self.net.below(101);
        let client = C::new(self.net.at_rate(rate));
        Node { rate, paused_until: 0, acts_until: 0, owner: None, client, life }
    }

    fn push(&mut self, at: u64, i: usize, ev: Ev<C>) {
        let life = self.nodes[i].life;
        self.net.put(at, i, life, ev);
    }

    /// When something sent now arrives. Some things take long.
    fn arrival(&mut self, long: u64) -> u64 {
        let late = !self.gentle && self.net.below(25) == 0;
        self.net.now + MS + self.net.below(if late { long } else { 20 * MS })
    }

    pub(crate) fn clock(&self, i: usize) -> Duration {
        self.net.at_rate(self.nodes[i].rate)
    }

    fn run_until(&mut self, end: u64) -> Checked {
        while let Some((i, life, ev)) = self.net.next(end) {
            let node = &self.nodes[i];
            match ev {
                Ev::Write(batch, records) => self.store(i, batch, records)?,
                _ if life != node.life && !matches!(ev, Ev::Claim | Ev::Tick) => {}
                ev if node.paused_until > self.net.now => self.push(node.paused_until, i, ev),
                ev => self.step(i, ev)?,
            }
        }
        Ok(())
    }

    fn step(&mut self, i: usize, ev: Ev<C>) -> Checked {
        match ev {
            Ev::Tick => {
                self.push(self.net.now + LEASE / 16, i, Ev::Tick);
                C::tick(self, i)?;
                self.keeping(i, Event::Tick)
            }
            Ev::Asked(serial) => {
                let Request { from, ask, .. } = &self.requests[serial];
                let (worker, ask) = (from.to_string(), ask.clone());
                self.keeping(i, Event::Asked { worker, ask, reply: serial })
            }
            // A paused worker may find the answer and the end of its wait at once.
            Ev::Said(serial, said) => match std::mem::take(&mut self.requests[serial].open) {
                true => C::said(self, i, serial, said),
                false => Ok(()),
            },
            Ev::Timeout(serial) => {
                if std::mem::take(&mut self.requests[serial].open) {
                    C::unanswered(self, i, serial);
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
                    self.push(self.net.now + MS, i, Ev::Claim);
                    Ok(())
                }
                _ => Ok(()),
            },
            Ev::Claim if self.owner == i => {
                self.sequence += 1;
                self.epoch = self.sequence;
                let at = self.net.now + MS + self.net.below(LEASE / 4);
                (self.nodes[i].acts_until, self.nodes[i].owner) = (u64::MAX, None);
                self.push(at, i, Ev::Loaded(self.epoch));
                Ok(())
            }
            Ev::Loaded(epoch) if self.owner == i && self.epoch == epoch => {
                let (terms, grace) = (C::terms(&self.world), Duration::from_micros(LEASE));
                let records = self.records.clone();
                let (owner, malformed) = C::Keeper::new(terms, self.clock(i), records, grace);
                self.nodes[i].owner = Some(((epoch, 0), owner));
                assert_eq!(malformed, 0);
                C::loaded(self);
                C::handled(self)
            }
            _ => Ok(()),
        }
    }

    /// Sends a request, unless it is to be lost.
    pub(crate) fn ask(&mut self, i: usize, ask: Ask<C>, limit: u64, lost: bool) {
        let (serial, sent_at) = (self.requests.len(), self.clock(i));
        let life = self.nodes[i].life;
        self.requests.push(Request { from: i, life, sent_at, ask, open: true });
        self.push(self.net.now + limit, i, Ev::Timeout(serial));
        // A pause between a request and its answer makes the answer old. Or the request is lost.
        let mut lost = lost;
        if !self.gentle && !self.stopping && self.net.below(12) == 0 {
            let long = [TIME / 2, 2 * TIME][self.net.below(2) as usize];
            self.nodes[i].paused_until = self.net.now + self.net.below(long);
            lost |= self.net.below(2) == 0;
        }
        if lost {
            return;
        }
        for j in 0..WORKERS {
            let copies = [1, 0, 2].get(self.net.below(50) as usize).filter(|_| !self.gentle);
            for _ in 0..*copies.unwrap_or(&1) {
                let at = self.arrival(TIME / 2);
                self.push(at, j, Ev::Asked(serial));
            }
        }
    }

    fn keeping(&mut self, i: usize, event: Event<Ask<C>, usize>) -> Checked {
        let (now, mut out) = (self.clock(i), Vec::new());
        let may_act = self.net.now < self.nodes[i].acts_until || matches!(event, Event::Written(_));
        if self.nodes[i].owner.is_none() || !may_act {
            return Ok(());
        }
        if let Event::Asked { reply, .. } = event {
            C::taken(self, reply);
        }
        let (batch, owner) = self.nodes[i].owner.as_mut().expect("it is some");
        let batch = *batch;
        owner.on(now, event, &mut out);
        C::handled(self)?;
        for action in out {
            match action {
                Action::Write(records) => {
                    // The store refuses a late one.
                    if self.epoch == batch.0 {
                        C::written(self, &records)?;
                    }
                    let at = self.arrival(3 * LEASE);
                    self.push(at, i, Ev::Write(batch, records));
                    self.push(self.net.now + LEASE, i, Ev::Written(batch, None));
                }
                Action::Answer(serial, said) => {
                    C::answered(self, serial, &said)?;
                    let Request { from, life, .. } = self.requests[serial];
                    let at = self.arrival(TIME / 2);
                    if (self.gentle || self.net.below(50) > 0) && self.nodes[from].life == life {
                        self.push(at, from, Ev::Said(serial, said));
                    }
                }
            }
        }
        Ok(())
    }

    fn store(&mut self, i: usize, batch: (u64, u64), records: Records) -> Checked {
        if self.epoch != batch.0 {
            self.counts[2] += 1;
            return Ok(());
        }
        for (key, record) in records {
            self.sequence += 1;
            let lives = record.is_some();
            let before = self.records.insert(key.clone(), (self.sequence, record));
            C::stored(self, &key, lives, before.is_some_and(|it| it.1.is_some()))?;
        }
        if self.gentle || self.net.below(50) > 0 {
            let at = self.arrival(LEASE / 2);
            self.push(at, i, Ev::Written(batch, Some(self.sequence)));
        }
        Ok(())
    }

    /// Another worker is to own the partition. It claims within two leases.
    fn depose(&mut self) {
        let next = (self.owner + 1) % WORKERS;
        let old = &mut self.nodes[self.owner];
        old.acts_until = old.acts_until.min(self.net.now);
        self.owner = next;
        let at = self.net.now + self.net.below(2 * LEASE);
        self.push(at, next, Ev::Claim);
    }
}

fn run_one<C: Client>(seed: u64, gentle: bool) -> Result<Sim<C>, String> {
    let mut sim = Sim::new(seed, gentle);
    for _ in 0..40 {
        let next = sim.net.now + sim.net.below(TIME);
        sim.run_until(next)?;
        let i = sim.net.below(WORKERS as u64) as usize;
        match sim.net.below(if gentle { 1 } else { 3 }) {
            0 => sim.depose(),
            1 => {
                // It is killed, and another process starts under its name.
                let (life, pause) = (sim.nodes[i].life + 1, sim.net.below(2 * LEASE));
                sim.nodes[i] = sim.node(life);
                sim.nodes[i].paused_until = sim.net.now + pause;
                if sim.owner == i {
                    sim.depose();
                }
            }
            _ => {}
        }
        let settle = sim.net.now + if gentle { TIME } else { 3 * LEASE };
        sim.run_until(settle)?;
    }
    sim.stopping = true;
    sim.run_until(sim.net.now + 6 * TIME)?;
    match sim.records.values().filter(|(_, record)| record.is_some()).count() {
        0 => Ok(sim),
        n => Err(format!("{n} records are left")),
    }
}

/// Runs the simulation with so many seeds, and checks each at its end. Returns the sums of the
/// counts.
pub(crate) fn run<C: Client>(
    seeds: u64,
    gentle: bool,
    check: impl Fn(&Sim<C>) -> Checked,
) -> [u64; 3] {
    let mut counts = [0; 3];
    for seed in 0..seeds {
        let sim = run_one::<C>(seed, gentle).and_then(|sim| check(&sim).map(|()| sim));
        let sim = sim.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        counts.iter_mut().zip(sim.counts).for_each(|(sum, count)| *sum += count);
    }
    println!("{counts:?}");
    counts
}
