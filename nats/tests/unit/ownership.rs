//! Tests of `src/ownership.rs`: a seeded simulation of workers, brokers and what goes wrong between
//! them.

use super::{Action, Bugs, Event, Ownership};
use crate::keep::sim::{Checked, Net, MS};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const LEASE: u64 = 10_000_000;

enum Ev {
    Tick,
    /// A request arrives at the brokers.
    Request(Action),
    /// A fenced write of the partition arrives.
    Write(u32, u64),
    /// The worker gets an event. Those of a watch name its generation.
    Deliver(Option<u64>, Event),
    Restart,
}

#[derive(Default)]
struct Node {
    /// Its name. The last node is an impostor, under the name of another one.
    name: usize,
    /// The partitions for which it got `Losing`.
    losing: BTreeSet<u32>,
    leaving: bool,
    machine: Ownership,
    incarnation: u64,
    alive: bool,
    rate: u64,
    paused_until: u64,
    cut_until: u64,
    slow_until: u64,
    watch: u64,
    watching: bool,
    /// The last delivery of each of the two watches, which keep their order.
    last: [u64; 2],
}

struct Sim {
    net: Net<Ev>,
    bugs: Bugs,
    /// The store compares the epoch of a write.
    fenced: bool,
    partitions: u32,
    revision: u64,
    nodes: Vec<Node>,
    beats: BTreeMap<usize, (u64, u64, bool, u64)>,
    records: Vec<(Option<usize>, u64, u64)>,
    out_until: u64,
    written: Vec<u64>,
    swaps: u64,
    claims: u64,
    writes: u64,
    takeovers: u64,
    /// Takeovers are wrong now: only the engine was away.
    frozen: bool,
}

impl Sim {
    fn new(seed: u64, bugs: Bugs, workers: usize, partitions: u32) -> Self {
        let mut sim = Self {
            net: Net::new(seed),
            bugs,
            fenced: true,
            partitions,
            revision: 0,
            nodes: Vec::new(),
            beats: BTreeMap::new(),
            records: vec![(None, 0, 0); partitions as usize],
            out_until: 0,
            written: vec![0; partitions as usize],
            swaps: 0,
            claims: 0,
            writes: 0,
            takeovers: 0,
            frozen: false,
        };
        for i in 0..workers {
            let node = sim.node(i);
            sim.nodes.push(node);
            sim.start(i);
        }
        sim
    }

    fn node(&mut self, name: usize) -> Node {
        let incarnation = self.net.below(u64::MAX);
        let lease = Duration::from_micros(LEASE);
        let mut machine =
            Ownership::new(&format!("w{name}"), incarnation, self.partitions, lease, false);
        machine.bugs = self.bugs;
        let rate = 990 + self.net.below(21);
        Node { name, machine, incarnation, alive: true, rate, ..Node::default() }
    }

    fn start(&mut self, i: usize) {
        let at = self.net.now + self.net.below(LEASE / 16);
        self.push(at, i, Ev::Deliver(None, Event::Start));
        self.push(at + 1, i, Ev::Tick);
    }

    fn push(&mut self, at: u64, i: usize, ev: Ev) {
        self.net.put(at, i, self.nodes[i].incarnation, ev);
    }

    fn clock(&self, i: usize) -> Duration {
        self.net.at_rate(self.nodes[i].rate)
    }

    fn acts(&self, i: usize, partition: u32) -> Option<u64> {
        let node = &self.nodes[i];
        let running = node.alive && node.paused_until <= self.net.now;
        node.machine.may_act(partition, self.clock(i)).filter(|_| running)
    }

    fn run_until(&mut self, end: u64) -> Checked {
        while let Some((i, incarnation, ev)) = self.net.next(end) {
            self.step(i, incarnation, ev)?;
        }
        Ok(())
    }

    fn step(&mut self, i: usize, incarnation: u64, ev: Ev) -> Checked {
        let node = &self.nodes[i];
        let current = node.incarnation == incarnation;
        match ev {
            Ev::Restart => {
                self.nodes[i] = self.node(node.name);
                self.start(i);
                Ok(())
            }
            // Requests on their way arrive even if the worker has died.
            Ev::Request(action) => self.request(i, incarnation, action),
            Ev::Write(partition, epoch) => self.write(i, incarnation, partition, epoch),
            _ if !current || !node.alive => Ok(()),
            ev if node.paused_until > self.net.now => {
                self.push(node.paused_until, i, ev);
                Ok(())
            }
            Ev::Tick => {
                self.push(self.net.now + LEASE / 16, i, Ev::Tick);
                self.give(i, Event::Tick);
                if self.net.below(2) == 0 {
                    let partition = self.net.below(self.partitions.into()) as u32;
                    if let Some(epoch) = self.acts(i, partition) {
                        // Some writes are long on their way, past the owner's time.
                        let late = if self.net.below(8) == 0 { 2 * LEASE } else { 20 * MS };
                        let at = self.net.now + self.net.below(late);
                        self.push(at, i, Ev::Write(partition, epoch));
                    }
                }
                Ok(())
            }
            Ev::Deliver(watch, event) => {
                if watch.is_none_or(|watch| watch == node.watch) {
                    self.give(i, event);
                }
                Ok(())
            }
        }
    }

    fn give(&mut self, i: usize, event: Event) {
        let (now, mut out) = (self.clock(i), Vec::new());
        match &event {
            Event::Leave => self.nodes[i].leaving = true,
            Event::Released { partition } => drop(self.nodes[i].losing.remove(partition)),
            _ => {}
        }
        self.nodes[i].machine.on(now, event, &mut out);
        for action in out {
            match action {
                Action::Losing { partition } => {
                    let node = &mut self.nodes[i];
                    node.losing.insert(partition);
                    let eighth = (self.partitions as usize / 8).max(1);
                    assert!(node.leaving || node.losing.len() <= eighth);
                    let at = self.net.now + self.net.below(LEASE / 4);
                    self.push(at, i, Ev::Deliver(None, Event::Released { partition }));
                }
                Action::NameTaken | Action::Left => {
                    self.nodes[i].alive = false;
                    let at = self.net.now + LEASE / 4;
                    let impostor = (0..i).any(|j| self.nodes[j].name == self.nodes[i].name);
                    if !impostor {
                        self.push(at, i, Ev::Restart);
                    }
                }
                Action::Lost { partition } => drop(self.nodes[i].losing.remove(&partition)),
                Action::Gained { .. } => {}
                request => {
                    if request == Action::Resync {
                        self.nodes[i].watch += 1;
                        self.nodes[i].watching = false;
                    }
                    let at = self.net.now + MS + self.net.below(20 * MS);
                    self.push(at, i, Ev::Request(request));
                }
            }
        }
    }

    fn write(&mut self, i: usize, inc: u64, partition: u32, epoch: u64) -> Checked {
        let p = partition as usize;
        if self.net.now < self.out_until || (self.fenced && self.records[p].2 != epoch) {
            return Ok(());
        }
        self.writes += 1;
        let (owner, incarnation, revision) = self.records[p];
        let name = self.nodes[i].name;
        if revision != epoch || owner != Some(name) || incarnation != inc || epoch < self.written[p]
        {
            return Err(format!("{}: late write of w{i} to {p}, epoch {epoch}", self.net.now));
        }
        self.written[p] = epoch;
        Ok(())
    }

    fn answer(&mut self, i: usize, incarnation: u64, event: Event, unanswered: Event) {
        if self.nodes[i].incarnation != incarnation {
            return;
        }
        let slow = self.net.now < self.nodes[i].slow_until;
        let lost = self.net.below(100) == 0 && !self.frozen;
        let delay = MS + self.net.below(if slow { LEASE * 6 / 10 } else { 20 * MS });
        let (event, delay) = if lost { (unanswered, LEASE / 8) } else { (event, delay) };
        self.push(self.net.now + delay, i, Ev::Deliver(None, event));
    }

    fn request(&mut self, i: usize, inc: u64, action: Action) -> Checked {
        let away = self.net.now < self.out_until || self.net.now < self.nodes[i].cut_until;
        let unanswered = match &action {
            &Action::SendBeat { sent_at, .. } => Some(Event::Beaten { sent_at, revision: None }),
            &Action::Claim { partition, .. } | &Action::GiveUp { partition, .. } => {
                Some(Event::Claimed { partition, revision: None })
            }
            _ => None,
        };
        if away {
            let (after, ev) = match unanswered {
                Some(event) => (LEASE / 8, Ev::Deliver(None, event)),
                None => (LEASE / 16, Ev::Request(action)),
            };
            if self.nodes[i].incarnation == inc {
                self.push(self.net.now + after, i, ev);
            }
            return Ok(());
        }
        let event = match action {
            Action::SendBeat { expected, beat, leaving, sent_at } => {
                self.swaps += 1;
                let name = self.nodes[i].name;
                let swaps = self.beats.get(&name).map_or(0, |beat| beat.3) == expected;
                if swaps {
                    self.revision += 1;
                    self.beats.insert(name, (inc, beat, leaving, self.revision));
                    let event = self.beat(name);
                    self.publish(0, &event);
                }
                Event::Beaten { sent_at, revision: swaps.then_some(self.revision) }
            }
            Action::Claim { partition, expected } | Action::GiveUp { partition, expected } => {
                self.swaps += 1;
                self.claims += 1;
                // The server sometimes refuses although no other worker wrote.
                let spurious = self.net.below(50) == 0;
                let swaps = self.records[partition as usize].2 == expected && !spurious;
                if swaps {
                    let name = self.nodes[i].name;
                    let owner = matches!(action, Action::Claim { .. }).then_some(name);
                    self.take_over(i, inc, partition)?;
                    self.revision += 1;
                    self.records[partition as usize] = (owner, inc, self.revision);
                    let event = self.record(partition);
                    self.publish(1, &event);
                }
                Event::Claimed { partition, revision: swaps.then_some(self.revision) }
            }
            _ => {
                self.resync(i, inc);
                return Ok(());
            }
        };
        self.answer(i, inc, event, unanswered.unwrap_or(Event::Tick));
        Ok(())
    }

    /// The lease's own safety: no owner that may act loses its partition to another worker.
    fn take_over(&mut self, i: usize, inc: u64, partition: u32) -> Checked {
        let (Some(owner), incarnation, _) = self.records[partition as usize] else {
            return Ok(());
        };
        if (owner, incarnation) == (self.nodes[i].name, inc) {
            return Ok(());
        }
        self.takeovers += 1;
        let acting = (0..self.nodes.len()).find(|&j| {
            (j != i || self.nodes[j].incarnation != inc) && self.acts(j, partition).is_some()
        });
        match acting {
            Some(j) => Err(format!("{}: w{i} took {partition} from acting w{j}", self.net.now)),
            None if self.frozen => Err(format!("{}: w{i} took {partition}", self.net.now)),
            None => Ok(()),
        }
    }

    fn beat(&self, i: usize) -> Event {
        let (incarnation, beat, leaving, revision) = self.beats[&i];
        Event::Watched { worker: format!("w{i}"), incarnation, beat, leaving, revision }
    }

    fn record(&self, partition: u32) -> Event {
        let (owner, incarnation, revision) = self.records[partition as usize];
        let owner = owner.map(|owner| format!("w{owner}"));
        Event::Record { partition, owner, incarnation, revision }
    }

    fn publish(&mut self, stream: usize, event: &Event) {
        for i in 0..self.nodes.len() {
            if self.nodes[i].watching && self.nodes[i].alive {
                self.deliver(i, stream, event.clone());
            }
        }
    }

    fn deliver(&mut self, i: usize, stream: usize, event: Event) {
        let slow = self.net.below(100) == 0;
        let delay = MS + self.net.below(if slow { LEASE / 8 } else { 20 * MS });
        let node = &mut self.nodes[i];
        let at = (self.net.now + delay).max(node.last[stream]);
        node.last[stream] = at;
        let watch = Some(node.watch);
        self.push(at, i, Ev::Deliver(watch, event));
    }

    fn resync(&mut self, i: usize, inc: u64) {
        if self.nodes[i].incarnation != inc {
            return;
        }
        self.nodes[i].watching = true;
        let beats: Vec<usize> = self.beats.keys().copied().collect();
        beats.into_iter().for_each(|j| self.deliver(i, 0, self.beat(j)));
        (0..self.partitions).for_each(|p| self.deliver(i, 1, self.record(p)));
        let at = self.nodes[i].last.into_iter().max().expect("two");
        let watch = Some(self.nodes[i].watch);
        self.push(at, i, Ev::Deliver(watch, Event::Synced));
    }

    fn lose_watch(&mut self, i: usize, after: u64) {
        self.nodes[i].watching = false;
        self.push(self.net.now + after, i, Ev::Deliver(None, Event::WatchLost));
    }

    fn kill(&mut self, i: usize) {
        self.nodes[i].alive = false;
    }

    fn settled(&self) -> Checked {
        for partition in 0..self.partitions {
            let owners: Vec<_> =
                (0..self.nodes.len()).filter_map(|i| self.acts(i, partition)).collect();
            if owners != [self.records[partition as usize].2] {
                let record = self.records[partition as usize];
                return Err(format!("{}: {partition} has {owners:?}, {record:?}", self.net.now));
            }
        }
        Ok(())
    }
}

fn run(seed: u64, bugs: Bugs, fenced: bool) -> Result<Sim, String> {
    let mut sim = Sim::new(seed, bugs, 4, 8);
    sim.fenced = fenced;
    let impostor = sim.node(0);
    sim.nodes.push(impostor);
    sim.kill(4);
    sim.run_until(6 * LEASE)?;
    for _ in 0..10 {
        let i = sim.net.below(4) as usize;
        let long = sim.net.below(3 * LEASE);
        match sim.net.below(9) {
            0 => sim.nodes[i].paused_until = sim.net.now + long,
            1 => {
                sim.kill(i);
                let at = sim.net.now + sim.net.below(2 * LEASE);
                sim.push(at, i, Ev::Restart);
            }
            2 => sim.lose_watch(i, long / 3),
            3 => sim.nodes[i].cut_until = sim.net.now + long,
            4 => {
                sim.nodes[i].slow_until = sim.net.now + LEASE;
                sim.nodes[i].cut_until = 0;
                let at = sim.net.now + LEASE / 4 + sim.net.below(LEASE / 2);
                sim.run_until(at)?;
                sim.nodes[i].cut_until = at + 2 * LEASE;
            }
            5 => sim.out_until = sim.net.now + long,
            6 => {
                sim.nodes[4].name = i;
                sim.kill(4);
                sim.push(sim.net.now, 4, Ev::Restart);
            }
            7 => (0..8).for_each(|partition| {
                if let Some(epoch) = sim.acts(i, partition) {
                    sim.give(i, Event::Doubted { partition, epoch });
                }
            }),
            _ => sim.push(sim.net.now, i, Ev::Deliver(None, Event::Leave)),
        }
        let next = sim.net.now + sim.net.below(2 * LEASE);
        sim.run_until(next)?;
    }
    sim.kill(4);
    // A worker that left, or that failed, starts again; then nothing fails any more.
    sim.out_until = 0;
    for i in 0..4 {
        (sim.nodes[i].cut_until, sim.nodes[i].paused_until, sim.nodes[i].slow_until) = (0, 0, 0);
        sim.kill(i);
        sim.push(sim.net.now + LEASE / 4, i, Ev::Restart);
    }
    sim.run_until(sim.net.now + 12 * LEASE)?;
    sim.settled()?;
    // The engine is away for several leases: no owner changes.
    sim.frozen = true;
    sim.out_until = sim.net.now + 2 * LEASE + sim.net.below(2 * LEASE);
    let long = 9 * LEASE;
    sim.run_until(sim.net.now + long)?;
    sim.settled()?;
    sim.frozen = false;
    sim.kill(seed as usize % 4);
    sim.run_until(sim.net.now + 2 * LEASE)?;
    sim.settled()?;
    Ok(sim)
}

#[test]
fn nothing_breaks_the_rules() {
    let (mut takeovers, mut writes) = (0, 0);
    for seed in 0..100 {
        let sim =
            run(seed, Bugs::default(), true).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        takeovers += sim.takeovers;
        writes += sim.writes;
    }
    println!("{takeovers} takeovers, {writes} writes");
    assert!(takeovers > 100 && writes > 1000);
}

#[test]
fn seeded_bugs_are_found() {
    let (none, mut reply, mut anew) = (Bugs::default(), Bugs::default(), Bugs::default());
    (reply.count_from_reply, anew.wait_not_anew) = (true, true);
    for (what, bugs, fenced) in [
        ("a lease is counted from the reply", reply, true),
        ("a wait does not begin anew", anew, true),
        ("there is no fence", none, false),
    ] {
        let found = (0..200).find_map(|seed| run(seed, bugs, fenced).err());
        println!("{what}: {}", found.unwrap_or_else(|| panic!("no seed finds that {what}")));
    }
}

#[test]
fn a_worker_whose_beat_has_expired_beats_again() {
    let mut sim = Sim::new(3, Bugs::default(), 3, 64);
    sim.run_until(6 * LEASE).unwrap();
    sim.nodes[0].paused_until = sim.net.now + 5 * LEASE;
    sim.run_until(10 * LEASE).unwrap();
    sim.beats.remove(&0);
    sim.run_until(11 * LEASE).unwrap();
    sim.lose_watch(0, LEASE / 4);
    sim.run_until(20 * LEASE).unwrap();
    sim.settled().unwrap();
    assert!((0..64).any(|partition| sim.acts(0, partition).is_some()));
}

#[test]
fn a_dead_worker_is_forgotten_when_its_beat_has_expired() {
    let lease = Duration::from_micros(LEASE);
    let mut machine = Ownership::new("w", 7, 2, lease, false);
    let mut out = Vec::new();
    let watched = |worker: &str, beat| Event::Watched {
        worker: worker.into(),
        incarnation: 7,
        beat,
        leaving: false,
        revision: beat,
    };
    let mut beat = |machine: &mut Ownership, beat, sent_at| {
        let confirmed = Event::Beaten { sent_at, revision: Some(beat) };
        for event in [Event::Tick, confirmed, watched("w", beat)] {
            machine.on(sent_at, event, &mut out);
        }
    };
    let mut start = Vec::new();
    for event in [Event::Start, watched("x", 1), watched("owner", 1), Event::Synced] {
        machine.on(lease, event, &mut start);
    }
    let owner = Some("owner".to_string());
    let record = Event::Record { partition: 0, owner, incarnation: 7, revision: 1 };
    machine.on(lease, record, &mut start);
    (1..=8).for_each(|n| beat(&mut machine, n, lease + lease / 4 * n as u32));
    assert!(machine.peers.len() == 2 && machine.peers.values().all(|peer| peer.dead));
    beat(&mut machine, 9, super::beat_life(lease) * 2 + 4 * lease);
    assert!(machine.peers.keys().eq(["owner"])); // a record names it
}

#[test]
fn a_worker_alone_claims_a_limited_number_at_a_time() {
    let lease = Duration::from_micros(LEASE);
    let mut machine = Ownership::new("w", 7, 256, lease, false);
    let (now, mut out) = (lease, Vec::new());
    let sent_at = now;
    let beat =
        Event::Watched { worker: "w".into(), incarnation: 7, beat: 1, leaving: false, revision: 1 };
    let confirmed = Event::Beaten { sent_at, revision: Some(1) };
    for event in [Event::Start, Event::Synced, Event::Tick, confirmed, beat] {
        machine.on(now, event, &mut out);
    }
    let is_claim = |it: &&Action| matches!(it, Action::Claim { .. });
    let claims = |out: &[Action]| out.iter().filter(is_claim).count();
    assert_eq!(claims(&out), super::claims::UNDER_WAY);
    let answer = Event::Claimed { partition: 0, revision: Some(2) };
    machine.on(now, answer, &mut out);
    assert_eq!(claims(&out), super::claims::UNDER_WAY + 1);
}

#[test]
fn half_of_two_hundred_workers_die() {
    let mut sim = Sim::new(1, Bugs::default(), 200, 256);
    sim.run_until(5 * LEASE).expect("starts");
    sim.settled().expect("one owner each");
    (0..100).for_each(|i| sim.kill(2 * i));
    (sim.swaps, sim.claims) = (0, 0);
    let killed = sim.net.now;
    sim.run_until(killed + 2 * LEASE).expect("no rule is broken");
    let each_second = sim.swaps * 1_000_000 / (2 * LEASE);
    println!("{each_second} swaps/s, {} claims, of 256 partitions", sim.claims);
    sim.settled().expect("one owner each");
    assert!(each_second < 200, "{each_second}");
}
