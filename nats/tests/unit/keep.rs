//! A seeded simulation of workers that own a partition in turn, and ask its owner. The owners are a
//! script: the tests of `src/ownership.rs` show that no two workers may act at once.

use super::front::Touches;
use super::owner::{Action, Event, Owner};
pub(crate) use super::wire::session_of;
use super::wire::{Answer, Entry, Request, Write};
use super::{Front, Terms};
use crate::partitions::Numbered;
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) const LEASE: u64 = 1_000_000;
pub(crate) const TIME: u64 = 8 * LEASE;
pub(crate) const MS: u64 = 1_000;
pub(crate) const WORKERS: usize = 3;

pub(crate) type Checked = Result<(), String>;
type Records = Vec<(Vec<u8>, Option<Bytes>)>;

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

type Gone<C> = <<C as Client>::Front as Front>::Gone;

/// What a worker does beside owning, and what the simulation checks.
pub(crate) trait Client: Sized {
    type Front: Front;
    /// A few of the front's requests are lost.
    const LOSES: bool;
    /// What the checks remember.
    type World: Default;
    fn terms(world: &Self::World) -> Terms;
    /// A process that has just begun.
    fn new(now: Duration) -> (Self, Self::Front);
    /// Does what the worker's user does at times: asks by the `writes` of its node, or by `adopt`.
    fn tick(sim: &mut Sim<Self>, i: usize) -> Checked;
    /// The front has reported something.
    fn gone(_: &mut Sim<Self>, _i: usize, _gone: Gone<Self>) -> Checked {
        Ok(())
    }
    /// The owner is sure of an entry that was to begin or to end, or was adopted.
    fn sure(
        sim: &mut Sim<Self>,
        i: usize,
        sent_at: Duration,
        ask: Asked,
        answer: Answer,
    ) -> Checked;
    /// What the worker asks for, when the owner was unsure or has not answered.
    fn again(_: &mut Sim<Self>, ask: Asked) -> Asked {
        ask
    }
    /// An owner has taken a request; has answered a question of it.
    fn taken(_: &mut Sim<Self>, _ask: Asked) {}
    fn answered(_: &mut Sim<Self>, _ask: Asked, _answer: Answer) -> Checked {
        Ok(())
    }
    /// A new owner has read the records.
    fn loaded(_: &mut Sim<Self>) {}
    /// An owner has handled an event, and sends a batch. The store has taken a record.
    fn handled(_: &mut Sim<Self>) -> Checked {
        Ok(())
    }
    fn written(_: &mut Sim<Self>, _: &[(Vec<u8>, Option<Bytes>)]) -> Checked {
        Ok(())
    }
    fn stored(_: &mut Sim<Self>, _key: &[u8], _lives: bool, _lived: bool) -> Checked {
        Ok(())
    }
}

/// What a worker asks for, beside the touches of its front.
#[derive(Clone)]
pub(crate) enum Asked {
    Write(Write),
    Adopt(u64),
}

pub(crate) fn begin(entry: Entry) -> Asked {
    Asked::Write(Write { entry, ends: false })
}

pub(crate) fn end(id: u64) -> Asked {
    Asked::Write(Write { entry: Entry::new(id, Vec::new(), Duration::ZERO), ends: true })
}

pub(crate) enum Ev {
    Tick,
    /// A request arrives at a worker, which may be the owner.
    Asked(usize),
    Said(usize, Vec<Answer>),
    Timeout(usize),
    /// A batch of an epoch, with its number, arrives at the store.
    Write((u64, u64), Records),
    /// The outcome of a batch. None: unknown.
    Written((u64, u64), Option<u64>),
    Claim,
    Loaded(u64),
}

struct Sent {
    from: usize,
    life: u64,
    sent_at: Duration,
    request: Request,
    /// The request is of the front.
    touches: bool,
    open: bool,
}

impl Sent {
    fn asked(&self) -> Vec<Asked> {
        let Request { touched, writes, .. } = self.request.clone();
        touched.into_iter().map(Asked::Adopt).chain(writes.into_iter().map(Asked::Write)).collect()
    }
}

pub(crate) struct Node<C: Client> {
    /// Counts the processes that have used its name.
    life: u64,
    rate: u64,
    paused_until: u64,
    /// The worker may act as the owner until then.
    acts_until: u64,
    /// The owner's epoch, the number of its last batch, and the machine.
    owner: Option<((u64, u64), Owner<usize>)>,
    touches: Touches<C::Front>,
    /// The requests of the front in a row that were lost.
    lost: u64,
    /// What goes with the next tick, in one request.
    pub(crate) asks: Vec<Asked>,
    pub(crate) client: C,
}

impl<C: Client> Node<C> {
    pub(crate) fn front(&mut self) -> &mut C::Front {
        &mut self.touches.front
    }
}

pub(crate) struct Sim<C: Client> {
    pub(crate) net: Net<Ev>,
    /// Only owners fail.
    pub(crate) gentle: bool,
    pub(crate) stopping: bool,
    pub(crate) nodes: Vec<Node<C>>,
    requests: Vec<Sent>,
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
        let (client, front) = C::new(self.net.at_rate(rate));
        let (touches, asks) = (Touches::new(front, 1, 1 << 20), Vec::new());
        let (paused_until, acts_until, lost, owner) = (0, 0, 0, None);
        Node { life, rate, paused_until, acts_until, owner, touches, lost, asks, client }
    }

    fn push(&mut self, at: u64, i: usize, ev: Ev) {
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

    fn step(&mut self, i: usize, ev: Ev) -> Checked {
        match ev {
            Ev::Tick => {
                self.push(self.net.now + LEASE / 16, i, Ev::Tick);
                self.touch(i, |touches, now, gone| touches.tick(now, gone))?;
                C::tick(self, i)?;
                let asks = std::mem::take(&mut self.nodes[i].asks);
                if !asks.is_empty() {
                    let mut request = Request::new(Vec::new(), Vec::new());
                    for ask in asks {
                        match ask {
                            Asked::Write(write) => request.writes.push(write),
                            Asked::Adopt(id) => request.touched.push(id),
                        }
                    }
                    self.ask(i, request, LEASE, false);
                }
                self.keeping(i, Event::Tick)
            }
            Ev::Asked(serial) => {
                let Sent { from, request, .. } = &self.requests[serial];
                let (worker, request) = (from.to_string(), request.clone());
                self.keeping(i, Event::Asked { worker, request, reply: serial })
            }
            // A paused worker may find the answer and the end of its wait at once.
            Ev::Said(serial, answers) => self.said(i, serial, Some(answers)),
            Ev::Timeout(serial) => self.said(i, serial, None),
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
                let (owner, malformed) = Owner::new(terms, self.clock(i), records, grace);
                self.nodes[i].owner = Some(((epoch, 0), owner));
                assert_eq!(malformed, 0);
                C::loaded(self);
                C::handled(self)
            }
            _ => Ok(()),
        }
    }

    /// Lets a front act, and sends its requests. Some are lost, but not three in a row.
    fn touch<I: IntoIterator<Item = super::Touch>>(
        &mut self,
        i: usize,
        act: impl FnOnce(&mut Touches<C::Front>, Duration, &mut Vec<Gone<C>>) -> I,
    ) -> Checked {
        let (now, mut gone) = (self.clock(i), Vec::new());
        for touch in act(&mut self.nodes[i].touches, now, &mut gone) {
            let lost = C::LOSES && self.net.below(4) == 0 && self.nodes[i].lost < 2;
            self.nodes[i].lost = if lost { self.nodes[i].lost + 1 } else { 0 };
            self.ask(i, Request::new(touch.ids, Vec::new()), LEASE / 2, lost);
            self.requests.last_mut().expect("it is sent").touches = true;
        }
        gone.into_iter().try_for_each(|gone| C::gone(self, i, gone))
    }

    fn said(&mut self, i: usize, serial: usize, answers: Option<Vec<Answer>>) -> Checked {
        let sent = &mut self.requests[serial];
        if !std::mem::take(&mut sent.open) {
            return Ok(());
        }
        let sent_at = sent.sent_at;
        if sent.touches {
            let answers = answers.as_deref();
            return self.touch(i, |touches, now, gone| touches.answered(now, 0, answers, gone));
        }
        let asked = sent.asked();
        let answers = answers.unwrap_or_else(|| vec![Answer::Unsure; asked.len()]);
        for (ask, answer) in asked.into_iter().zip(answers) {
            if answer == Answer::Unsure {
                let again = C::again(self, ask);
                self.nodes[i].asks.push(again);
            } else {
                C::sure(self, i, sent_at, ask, answer)?;
            }
        }
        Ok(())
    }

    /// Sends a request, unless it is to be lost.
    fn ask(&mut self, i: usize, request: Request, limit: u64, lost: bool) {
        let (serial, sent_at) = (self.requests.len(), self.clock(i));
        let life = self.nodes[i].life;
        let sent = Sent { from: i, life, sent_at, request, touches: false, open: true };
        self.requests.push(sent);
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

    fn keeping(&mut self, i: usize, event: Event<usize>) -> Checked {
        let (now, mut out) = (self.clock(i), Vec::new());
        let may_act = self.net.now < self.nodes[i].acts_until || matches!(event, Event::Written(_));
        if self.nodes[i].owner.is_none() || !may_act {
            return Ok(());
        }
        if let Event::Asked { reply, .. } = event {
            let asked = self.requests[reply].asked().into_iter();
            asked.for_each(|ask| C::taken(self, ask));
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
                Action::Answer(serial, answers) => {
                    let asked = self.requests[serial].asked();
                    assert_eq!(answers.len(), asked.len());
                    let asked = asked.into_iter().zip(&answers);
                    for (ask, answer) in asked.filter(|(_, answer)| **answer != Answer::Unsure) {
                        C::answered(self, ask, *answer)?;
                    }
                    let Sent { from, life, .. } = self.requests[serial];
                    let at = self.arrival(TIME / 2);
                    if (self.gentle || self.net.below(50) > 0) && self.nodes[from].life == life {
                        self.push(at, from, Ev::Said(serial, answers));
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
