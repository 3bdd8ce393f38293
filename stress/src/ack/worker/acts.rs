//! The acts of a root's life, from its issue to the verdict on it.

use super::{acked, refused, Phase, Shared, Tenant, Worker, HANDED};
use crate::ack::law::{breaches, End, Life};
use crate::ack::ledger::{owner, Entry};
use crate::ack::ops::{ToAck, ToIssue};
use crate::ack::plan::{all_edges, edge, Kind};
use crate::options::Ids;
use expiry::{Ack, Done};
use rand::{Rng, RngCore};
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Worker<'_> {
    /// Schedules the acks of a root's plan.
    pub(super) fn act(&mut self, at: usize) {
        let Tenant { root, base, plan, was_early, .. } = self.tenants[at];
        let edges = self.shared.options.edges;
        let place = (self.first + at) as u32;
        let ack = |number| ToAck { place, root, xor: edge(base, number) };
        let first = u32::from(was_early);
        if plan.handoff {
            self.tally.handed_off += 1;
            // The thread counts the acks before another one can do them: while the count is above
            // zero, the place is not used again.
            self.shared
                .ledger
                .place(self.first + at)
                .elsewhere
                .fetch_add(edges - 1, Ordering::Relaxed);
            self.outbox.extend((1..edges).map(ack));
            if self.outbox.len() >= HANDED {
                self.send_outbox();
            }
            self.acks.extend((first..1).map(ack));
            return;
        }
        match plan.kind {
            Kind::Complete => self.acks.extend((first..edges).map(ack)),
            // These roots keep at least one edge outstanding.
            Kind::TimeOut | Kind::Fail => {
                let some = self.rng.random_range(0..edges);
                self.acks.extend((0..some).map(ack));
            }
            Kind::RepeatOther => {
                self.tally.repeated += 1;
                self.acks.extend((0..edges - 1).map(ack));
                self.acks.extend([ack(0), ack(edges - 1)]);
            }
            // Repeated once all of these are done.
            Kind::RepeatLast => {
                self.tally.repeated += 1;
                self.acks.extend((0..edges).map(ack));
            }
        }
    }

    /// The second half of a plan, after its acks: fails and repeats.
    pub(super) fn fail(&mut self, at: usize) {
        let tenant = &mut self.tenants[at];
        tenant.phase = Phase::Waiting;
        let root = self.ops.id(tenant.root);
        match tenant.plan.kind {
            Kind::Fail => {
                self.tally.fails += 1;
                match self.ops.tracker.fail(root) {
                    Ok(Done::Now) => {
                        tenant.fails_done += 1;
                        self.tally.fails_done += 1;
                    }
                    Ok(Done::Held) => self.tally.held_late += 1,
                    Err(error) => refused((&mut self.tally, self.shared.checks), error),
                }
            }
            Kind::RepeatLast => {
                let edges = self.shared.options.edges;
                let xor = edge(tenant.base, edges - 1);
                let place = (self.first + at) as u32;
                let ack = ToAck { place, root: tenant.root, xor };
                let done = self.ops.tracker.ack(root, xor);
                let Shared { options, ledger, checks, .. } = self.shared;
                checks.expect("late_harmless", !matches!(done, Ok(Ack::Completed)), || {
                    format!("a repeated ack completed {root}")
                });
                acked((&mut self.tally, ledger, checks, options.ids), &ack, done);
            }
            _ => {}
        }
    }

    /// Resets the timeout of a root that is left to it, if its plan says so and it is time.
    pub(super) fn renew(&mut self, at: usize) {
        let tenant = &mut self.tenants[at];
        if tenant.plan.reset == 0 {
            return;
        }
        let before = self.shared.ledger.now();
        let timeout = self.shared.promise.timeout.as_nanos() as u64;
        if before < tenant.before + timeout / 256 * u64::from(tenant.plan.reset) {
            return;
        }
        tenant.plan.reset = 0;
        self.tally.resets += 1;
        match self.ops.tracker.reset_timeout(self.ops.id(tenant.root)) {
            Ok(Done::Now) => {
                self.tally.resets_done += 1;
                tenant.before = before;
                tenant.after = self.shared.ledger.now();
            }
            Ok(Done::Held) => self.tally.held_late += 1,
            Err(error) => refused((&mut self.tally, self.shared.checks), error),
        }
    }

    /// The outcome of a root, once it has arrived and no other thread uses the root any more.
    #[inline]
    pub(super) fn ended(&self, at: usize) -> Option<Entry> {
        let place = self.shared.ledger.place(self.first + at);
        // Acquire: this reads what the others have noted of their acks.
        (place.elsewhere.load(Ordering::Acquire) == 0)
            .then(|| self.shared.ledger.entry(self.first + at))
            .flatten()
    }

    /// Judges a life that has ended, and frees its place.
    pub(super) fn close(&mut self, at: usize, entry: &Entry) {
        let tenant = self.tenants[at];
        let place = self.shared.ledger.place(self.first + at);
        let nanos = Duration::from_nanos;
        let life = Life {
            end: entry.end,
            init: all_edges(tenant.base, self.shared.options.edges),
            accepted: place.accepted.load(Ordering::Relaxed),
            completed: place.completed.load(Ordering::Relaxed),
            failed: u32::from(tenant.fails_done),
            early: tenant.was_early,
            // The early ack has the same timeout as the root.
            early_lost: tenant.was_early
                && nanos(tenant.issued - tenant.prepared) >= self.shared.promise.timeout,
            at_least: nanos(entry.at.saturating_sub(tenant.before)),
            at_most: nanos(entry.at.saturating_sub(tenant.after)),
            due_and_seen: entry.due_and_seen,
        };
        match entry.end {
            End::Acked => self.tally.acked += 1,
            End::Failed => self.tally.failed += 1,
            End::TimedOut => {
                self.tally.timed_out += 1;
                let late = life.at_most.saturating_sub(self.shared.promise.timeout);
                self.lateness.record(late);
            }
            End::Other => {}
        }
        self.judge(&tenant, entry, &life);
        self.tenants[at].phase = Phase::Free;
        self.occupied -= 1;
        let late_rate = self.shared.options.late_rate;
        if late_rate > 0.0 && self.rng.random_bool(late_rate) {
            self.too_late(&tenant);
        }
    }

    /// Holds a life against the law.
    fn judge(&self, tenant: &Tenant, entry: &Entry, life: &Life) {
        let checks = self.shared.checks;
        checks.expect("one_outcome_each", entry.root == tenant.root, || {
            format!("the outcome of {:#x} came for {:#x}", entry.root, tenant.root)
        });
        for (check, why) in breaches(life, &self.shared.promise) {
            checks.violated(check, || {
                format!("{:#x} {why}: {:?}, {life:?}", tenant.root, tenant.plan)
            });
        }
    }

    /// Calls the tracker for a root that has ended.
    pub(super) fn too_late(&mut self, tenant: &Tenant) {
        let root = self.ops.id(tenant.root);
        let tracker = self.ops.tracker;
        self.tally.after_end += 1;
        // The answer is whether the tracker held the call: `Some(true)` for held.
        let done = match self.rng.random_range(0..4) {
            0 => {
                self.tally.fails += 1;
                tracker.fail(root).map(|done| done == Done::Held)
            }
            1 => {
                self.tally.resets += 1;
                tracker.reset_timeout(root).map(|done| done == Done::Held)
            }
            _ => {
                self.tally.acks += 1;
                let number = self.rng.random_range(0..self.shared.options.edges);
                tracker.ack(root, edge(tenant.base, number)).map(|done| done == Ack::Held)
            }
        };
        match done {
            Ok(true) if self.shared.options.ids == Ids::Chosen => self.tally.held_late += 1,
            Ok(_) => self.shared.checks.violated("late_harmless", || {
                format!("something that came after the end of {root} took effect")
            }),
            Err(error) => refused((&mut self.tally, self.shared.checks), error),
        }
    }

    /// Makes a new root ready to be issued in a free place.
    pub(super) fn prepare(&mut self, at: usize, before: u64) {
        let Shared { options, ledger, checks, .. } = self.shared;
        let plan = self.planner.draw(&mut self.rng);
        let tenant = &mut self.tenants[at];
        *tenant = Tenant {
            // For a chosen root also its id: never used again, but for a chance of 2^-64 per pair.
            root: self.rng.next_u64(),
            base: self.rng.next_u64(),
            before,
            prepared: before,
            number: tenant.number.wrapping_add(1),
            step: tenant.step,
            plan,
            phase: Phase::Free,
            ..Tenant::default()
        };
        let place = self.first + at;
        ledger.begin(place, tenant.number);
        if plan.early {
            self.tally.acks += 1;
            let xor = edge(tenant.base, 0);
            match self.ops.tracker.ack(tenant.root, xor) {
                Ok(Ack::Held) => {
                    self.tally.early += 1;
                    tenant.was_early = true;
                    ledger.place(place).accepted.store(xor, Ordering::Relaxed);
                }
                Ok(_) => checks
                    .violated("late_harmless", || "an ack before the init was not held".into()),
                Err(error) => refused((&mut self.tally, checks), error),
            }
        }
        self.issues.push(ToIssue {
            place: at as u32,
            id: tenant.root,
            xor: all_edges(tenant.base, options.edges),
            owner: owner(place, tenant.number),
        });
    }

    pub(super) fn send_issues(&mut self) {
        let Shared { ledger, checks, .. } = self.shared;
        let before = self.tally.issued;
        let (tally, tenants, first) = (&mut self.tally, &mut self.tenants, self.first);
        self.ops.issue(&self.issues, |issue, done| match done {
            Ok(root) => {
                tally.issued += 1;
                let tenant = &mut tenants[issue.place as usize];
                (tenant.root, tenant.phase) = (root, Phase::Live);
            }
            Err(error) => {
                checks.violated("no_surprises", || format!("a root was refused: {error}"));
                let place = issue.place as usize;
                ledger.cancel(first + place, tenants[place].number);
            }
        });
        self.occupied += (self.tally.issued - before) as usize;
        let after = ledger.now();
        for issue in &self.issues {
            let tenant = &mut self.tenants[issue.place as usize];
            (tenant.after, tenant.issued) = (after, after);
            if let Some((_, times)) = &mut self.pace {
                times.record(Duration::from_nanos(after.saturating_sub(tenant.due)));
            }
        }
    }
}
