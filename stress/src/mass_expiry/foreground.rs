//! A thread that goes on. It fills its part, and then inserts, renews and removes keys of its own.
//! It also renews and removes some of the entries that are about to expire.

use super::books::Books;
use super::{Shared, BEFORE, FILLING, FOREGROUND, LIFE, OVER};
use crate::crowd::part;
use crate::interrupt;
use crate::latency::Recorder;
use expiry::{Clock, ExpiryQueue, Handle, Updated};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// How many keys of its own a thread has, about.
const OWN: usize = 1024;
/// One entry in this many is renewed or removed before.
const RENEWED: u32 = 10;
/// One operation in this many is on an entry that is about to expire.
const ENTRIES: u32 = 64;

pub struct Foreground<'a> {
    shared: &'a Shared<'a>,
    queue: &'a ExpiryQueue<u64>,
    books: &'a Books,
    thread: usize,
    rng: SmallRng,
    /// Its part of the entries.
    part: Range<u64>,
    own: VecDeque<(u64, Handle)>,
    numbers: u64,
    /// Times before and during the expiry.
    times: [Recorder; 2],
    /// Operations before and during.
    did: [u64; 2],
}

impl<'a> Foreground<'a> {
    pub fn new(shared: &'a Shared<'a>, thread: usize, times: [Recorder; 2]) -> Self {
        let seed = shared.options.seed.wrapping_mul(256) + thread as u64;
        Foreground {
            shared,
            queue: shared.queue,
            books: shared.books,
            thread,
            rng: SmallRng::seed_from_u64(seed),
            part: part(shared.options.entries.into(), (thread, shared.threads)),
            own: VecDeque::with_capacity(OWN + 1),
            numbers: 0,
            times,
            did: [0; 2],
        }
    }

    /// Fills its part, goes on until the expiry has ended, and takes out what is left. Returns the
    /// number of operations before and during.
    pub fn run(mut self) -> [u64; 2] {
        self.fill();
        self.shared.ready.fetch_add(1, AcqRel);
        loop {
            let phase = self.shared.phase.load(Acquire);
            match phase {
                FILLING => std::thread::yield_now(),
                OVER => break,
                _ => (0..16).for_each(|_| self.step(usize::from(phase != BEFORE))),
            }
        }
        self.clear();
        self.did
    }

    fn wrong(&self, text: impl FnOnce() -> String) {
        self.books.checks.violated("foreground_right", text);
    }

    /// Inserts its entries, and renews or removes some of them.
    fn fill(&mut self) {
        for entry in self.part.clone() {
            let before = self.books.time.now();
            let timeout = Duration::from_nanos(self.books.due(entry) - before);
            let done = self.queue.update(entry, timeout);
            let slip = self.books.time.now() - before;
            if slip > self.books.slip.load(Relaxed) {
                self.books.slip.fetch_max(slip, Relaxed);
            }
            if !matches!(done, Ok(Updated::Inserted { .. })) {
                self.wrong(|| format!("entry {entry} was not inserted: {done:?}"));
            }
            // A refused entry is missed like a lost one.
            self.books.ledger.accepted(entry);
            self.shared.filled[self.thread].store(entry + 1 - self.part.start, Release);
            if interrupt::asked() {
                // An entry that is not in does not expire.
                self.part.end = entry + 1;
                break;
            }
        }
        let chosen =
            (self.part.clone()).filter(|_| self.rng.random_ratio(1, RENEWED)).collect::<Vec<_>>();
        for entry in chosen {
            self.take(entry);
        }
    }

    /// Renews or removes an entry, unless it has expired.
    fn take(&mut self, entry: u64) {
        let books = self.books;
        let done = if self.rng.random_ratio(1, 8) {
            let gone = self.queue.remove(&entry).is_some();
            if gone {
                books.removed(entry);
            }
            gone
        } else {
            let renewed = self.queue.touch(&entry, LIFE);
            if let Err(why) = renewed {
                self.wrong(|| format!("entry {entry} cannot be renewed: {why}"));
            }
            let renewed = renewed == Ok(true);
            if renewed {
                books.renewed(entry);
            }
            renewed
        };
        let now = books.time.now();
        if !done && now < books.due(entry) {
            self.wrong(|| format!("entry {entry} was not found before it was due"));
        }
    }

    /// One operation.
    fn step(&mut self, during: usize) {
        if during == 1 && self.rng.random_ratio(1, ENTRIES) && !self.part.is_empty() {
            let entry = self.rng.random_range(self.part.clone());
            // The odd ones are left to expire: one that never does would be renewed sooner or
            // later.
            if entry.is_multiple_of(2) && self.books.ledger.story(entry).is_open() {
                self.take(entry);
            }
        }
        let began = Instant::now();
        match self.rng.random_range(0..10) {
            0..=3 if self.own.len() < OWN => self.insert(),
            0..=6 if !self.own.is_empty() => self.renew(),
            _ => self.remove(),
        }
        self.times[during].record(began.elapsed());
        self.did[during] += 1;
        self.books.operations[self.thread].fetch_add(1, AcqRel);
    }

    fn insert(&mut self) {
        let key = FOREGROUND + ((self.thread as u64) << 40) + self.numbers;
        self.numbers += 1;
        match self.queue.update(key, LIFE) {
            Ok(Updated::Inserted { handle, .. }) => self.own.push_back((key, handle)),
            other => self.wrong(|| format!("key {key:#x} was not inserted: {other:?}")),
        }
    }

    fn renew(&mut self) {
        let (key, handle) = self.own[self.rng.random_range(0..self.own.len())];
        let done = self.queue.touch_by(handle, LIFE);
        if done != Ok(true) {
            self.wrong(|| format!("key {key:#x} was not renewed: {done:?}"));
        }
    }

    fn remove(&mut self) {
        let Some((key, _)) = self.own.pop_front() else {
            return;
        };
        if self.queue.remove(&key).is_none() {
            self.wrong(|| format!("key {key:#x} was not there to be removed"));
        }
    }

    /// Takes out its own keys, and the entries that were renewed and must be there.
    fn clear(&mut self) {
        while !self.own.is_empty() {
            self.remove();
        }
        for entry in self.part.clone() {
            if !self.books.ledger.story(entry).stays() {
                continue;
            }
            if self.queue.remove(&entry).is_some() {
                self.books.removed(entry);
            } else {
                self.books.checks.violated("renewed_stay", || {
                    format!("entry {entry} was renewed, and is not there")
                });
            }
        }
    }
}
