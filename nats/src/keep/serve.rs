//! Serves the partitions that the worker owns: one task for each gives requests to an [`Owner`],
//! and its batches to the brokers.

use super::owner::{Action, Event, Owner};
use super::wire::{self, Request};
use super::{Served, Terms};
use crate::base::{count, ticks, Task};
use crate::partitions::{PAUSE, READS};
use crate::{clock, Change, Held, NatsError, Partitions};
use async_nats::{Message, Subject};
use futures_util::StreamExt;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Serves until the partitions end, or until `leave` changes or is dropped and the brokers know.
pub(super) async fn serve(
    terms: Terms,
    mut partitions: Partitions,
    served: Arc<Served>,
    mut leave: watch::Receiver<()>,
) {
    let mut tasks = BTreeMap::new();
    let mut until = None;
    loop {
        let limit = until.unwrap_or_else(Instant::now);
        let change = tokio::select! {
            change = partitions.next() => change,
            _ = leave.changed(), if until.is_none() => {
                partitions.leave();
                until = Some(Instant::now() + 2 * served.lease);
                continue;
            }
            () = tokio::time::sleep_until(limit), if until.is_some() => None,
        };
        match change {
            Some(Change::Gained(held)) => {
                let partition = held.partition();
                tasks.remove(&partition);
                let keep = keep(terms.clone(), held, served.clone());
                tasks.insert(partition, Task::new(keep));
            }
            // A batch that is under way is stored before the next owner's claim, or refused.
            Some(Change::Losing(partition)) => {
                tasks.remove(&partition);
                partitions.release(partition);
            }
            Some(Change::Lost(partition, _)) => drop(tasks.remove(&partition)),
            Some(Change::Ended(why)) => drop(served.ended.set(why)),
            None => return served.partitions.store(0, Ordering::Relaxed),
        }
        served.partitions.store(tasks.len(), Ordering::Relaxed);
    }
}

/// Serves a partition under one epoch.
async fn keep(terms: Terms, held: Held, served: Arc<Served>) {
    if serve_one(terms, &held, &served).await.is_none() {
        // The brokers failed, or a batch has no known outcome. The claim counts when they are back.
        tokio::time::sleep(PAUSE).await;
        held.claim_anew();
    }
}

/// Serves until something fails: always returns `None`.
async fn serve_one(terms: Terms, held: &Held, served: &Served) -> Option<()> {
    let client = held.set().nats.client();
    let subject = format!("{}.{}.*", served.prefix, held.partition());
    let records = held.load_numbered().await.ok()?;
    let versions = records.values().flat_map(|(_, record)| record).map(|it| wire::version(it));
    if let Some(version) = versions.max().filter(|version| *version > READS) {
        held.refuse(version);
        return std::future::pending().await; // the end of the partitions ends this task
    }
    let mut requests = client.subscribe(subject).await.ok()?;
    let of_leases = terms.timeout.is_none();
    let (mut owner, malformed) = Owner::new(terms, clock::now(), records, served.lease);
    served.malformed.fetch_add(malformed, Ordering::Relaxed);
    let mut ticks = ticks(served.lease / 16);
    let (mut out, mut writing): (_, Writing) = (Vec::new(), None);
    loop {
        let event = tokio::select! {
            biased;
            last = outcome(&mut writing), if writing.is_some() => {
                writing = None;
                Event::Written(last?)
            }
            _ = ticks.tick() => Event::Tick,
            message = requests.next() => match asked(message?, of_leases) {
                Some(asked) => asked,
                None => {
                    count(&served.malformed);
                    continue;
                }
            }
        };
        // What was stored is answered in any case.
        if !matches!(event, Event::Written(_)) && !held.may_act() {
            continue;
        }
        owner.on(clock::now(), event, &mut out);
        for action in out.drain(..) {
            match action {
                Action::Write(records) => {
                    let held = held.clone();
                    let write = async move { held.write_numbered(records).await };
                    writing = Some(tokio::spawn(write));
                }
                Action::Answer(reply, answers) => {
                    client.publish(reply, wire::reply(answers).into()).await.ok()?;
                }
            }
        }
    }
}

type Writing = Option<JoinHandle<Result<u64, NatsError>>>;

/// The sequence of the batch's last record. None: it may be stored or not.
async fn outcome(writing: &mut Writing) -> Option<u64> {
    writing.as_mut()?.await.ok()?.ok()
}

fn asked(message: Message, of_leases: bool) -> Option<Event<Subject>> {
    let worker = message.subject.rsplit('.').next()?.to_string();
    let request = Request::of_bytes(&message.payload, of_leases)?;
    Some(Event::Asked { worker, request, reply: message.reply? })
}
