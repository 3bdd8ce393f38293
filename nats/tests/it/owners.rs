//! Partitions and their owners on three brokers.

use crate::rig::{Rig, Worker};
use expiry_nats::{Change, Held, Loss, NatsError, PartitionSet, Partitions};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const LEASE: Duration = Duration::from_secs(2);
const COUNT: u32 = 16;

fn set(worker: &Worker) -> PartitionSet {
    worker.nats.partitions("set", COUNT).lease(LEASE)
}

/// A worker that has joined, and the events that it has received.
struct Member {
    worker: Worker,
    partitions: Partitions,
    held: BTreeMap<u32, Held>,
    lost: Vec<Loss>,
    ended: Option<NatsError>,
    /// Whether it releases at once what it is losing.
    lets_go: bool,
}

impl Member {
    fn join(rig: &Rig, name: &str) -> Member {
        let worker = rig.worker(name);
        let partitions = crate::joined(&worker, || set(&worker).join());
        Member {
            worker,
            partitions,
            held: BTreeMap::new(),
            lost: Vec::new(),
            ended: None,
            lets_go: true,
        }
    }

    /// Takes the events that it has received by now.
    fn look(&mut self) {
        let now = Duration::from_millis(1);
        let next = |partitions: &mut Partitions| {
            self.worker
                .runtime
                .block_on(async { tokio::time::timeout(now, partitions.next()).await })
        };
        while let Ok(Some(change)) = next(&mut self.partitions) {
            match change {
                Change::Gained(held) => {
                    let before = self.held.insert(held.partition(), held.clone());
                    assert!(before.is_none_or(|before| before.epoch() < held.epoch()));
                }
                Change::Losing(partition) if self.lets_go => {
                    self.held.remove(&partition);
                    self.partitions.release(partition);
                }
                Change::Lost(partition, why) => {
                    self.lost.push(why);
                    self.held.remove(&partition);
                }
                Change::Ended(error) => self.ended = Some(error),
                _ => {}
            }
        }
    }

    fn acting(&self) -> impl Iterator<Item = &Held> {
        self.held.values().filter(|held| held.may_act())
    }

    fn write(
        &self,
        held: &Held,
        records: &[(&str, Option<&'static str>)],
    ) -> Result<(), NatsError> {
        let records = records.iter().map(|(key, value)| (key, value.map(Into::into)));
        self.worker.runtime.block_on(held.write(records))
    }

    fn load(&self, held: &Held) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let found = self.worker.runtime.block_on(held.load()).unwrap();
        found.iter().map(|(key, value)| (text(key), text(value))).collect()
    }
}

/// Whether each partition has one owner that acts, and each worker has some.
fn shared_out(members: &mut [Member]) -> bool {
    members.iter_mut().for_each(Member::look);
    let mut owners = vec![0; COUNT as usize];
    for held in members.iter().flat_map(Member::acting) {
        owners[held.partition() as usize] += 1;
    }
    assert!(owners.iter().all(|n| *n <= 1), "{owners:?}");
    owners.iter().all(|n| *n == 1) && members.iter().all(|m| m.acting().next().is_some())
}

/// Waits until no partition has changed hands for a lease. While workers share out, each partition
/// may have an owner between two handovers. Returns what each worker has.
fn until_settled(rig: &Rig, members: &mut [Member]) -> Vec<Vec<u32>> {
    let (mut settled, mut since) = (Vec::new(), Instant::now());
    rig.until("no partition changes hands", || {
        let is_shared_out = shared_out(members);
        let now: Vec<Vec<u32>> = members.iter().map(|m| m.held.keys().copied().collect()).collect();
        if !is_shared_out || now != settled {
            (settled, since) = (now, Instant::now());
        }
        since.elapsed() >= LEASE
    });
    settled
}

#[test]
fn what_an_owner_wrote_its_successor_reads_and_the_late_one_is_refused() {
    let rig = Rig::bare();
    let mut members = vec![Member::join(&rig, "a"), Member::join(&rig, "b")];
    rig.until("both have some", || shared_out(&mut members));
    let old: Vec<Held> = members[0].acting().cloned().collect();
    for held in &old {
        let many = [("one", Some("1")), ("a.b *>", Some("2")), ("gone", Some("3"))];
        members[0].write(held, &many).unwrap();
        members[0].write(held, &[("gone", None)]).unwrap();
        members[0].write(held, &[("one", Some("4")), ("gone again", None)]).unwrap();
    }
    // The other worker has all two leases after one has stopped.
    let stopped = Instant::now();
    let go_on = members[0].worker.pause();
    let alone = std::slice::from_mut(&mut members[1]);
    rig.until("the other has all", || shared_out(alone));
    assert!(stopped.elapsed() < 2 * LEASE + LEASE / 2, "{:?}", stopped.elapsed());
    for held in &old {
        let new = &members[1].held[&held.partition()];
        assert!(new.epoch() > held.epoch() && !held.may_act());
        let expected = [("a.b *>", "2"), ("one", "4")].map(|(k, v)| (k.into(), v.into()));
        assert_eq!(members[1].load(new), expected);
        members[1].write(new, &[("one", Some("5"))]).unwrap();
    }
    drop(go_on);
    let (partition, epoch) = (old[0].partition(), old[0].epoch());
    let late = members[0].write(&old[0], &[("one", Some("late"))]);
    let is_own = |p, e| (p, e) == (partition, epoch);
    assert!(matches!(late, Err(NatsError::Fenced { partition: p, epoch: e, .. }) if is_own(p, e)));
    rig.until("both have some again", || shared_out(&mut members));
    // One member leaves: the other has all partitions at once.
    members[0].partitions.leave();
    rig.until("it has left", || {
        members[0].look();
        members[1].look();
        members[0].held.is_empty() && members[1].acting().count() == COUNT as usize
    });
    assert_eq!(members[0].ended, None);
}

#[test]
fn an_engine_that_was_away_makes_no_owner_lose_anything() {
    let rig = Rig::bare();
    let mut members = vec![Member::join(&rig, "a"), Member::join(&rig, "b")];
    let before = until_settled(&rig, &mut members);
    rig.brokers.kill(0);
    rig.brokers.kill(1);
    std::thread::sleep(3 * LEASE);
    members.iter_mut().for_each(Member::look);
    assert!(members.iter().all(|m| m.acting().next().is_none()), "a lease has run out");
    rig.brokers.restart(0).unwrap();
    rig.brokers.restart(1).unwrap();
    rig.until("both act again", || shared_out(&mut members));
    let after: Vec<Vec<u32>> = members.iter().map(|m| m.held.keys().copied().collect()).collect();
    assert_eq!(before, after);
    assert!(members.iter().all(|m| m.lost.is_empty()));
    // The beats' stream is deleted: both begin anew.
    rig.delete_stream("it+set+beats");
    rig.until("both have lost all", || {
        members.iter_mut().for_each(Member::look);
        members.iter().all(|m| !m.lost.is_empty())
    });
    assert!(members.iter().flat_map(|m| &m.lost).all(|why| *why == Loss::Deleted));
    rig.until("both act again", || shared_out(&mut members));
    // The stream goes with all that was stored.
    rig.delete_stream("it+set");
    rig.until("both have lost all again", || {
        members.iter_mut().for_each(Member::look);
        members.iter().all(|m| m.lost.len() > COUNT as usize / 2 || m.held.is_empty())
    });
    rig.until("both act once more", || shared_out(&mut members));
}

#[test]
fn a_set_that_cannot_be_made_again_is_tried_again_after_a_pause() {
    let rig = Rig::bare();
    let mut members = [Member::join(&rig, "a")];
    rig.until("it has all", || shared_out(&mut members));
    let go_on = members[0].worker.pause();
    rig.delete_stream("it+set+beats");
    rig.stream("other", "it.partitions.set.beat.>");
    drop(go_on);
    rig.until("it has lost all", || {
        members[0].look();
        members[0].held.is_empty()
    });
    let (began, before) = (Instant::now(), members[0].partitions.stats());
    let stats = || members[0].partitions.stats();
    rig.until("it has tried ten times", || stats().watches >= before.watches + 10);
    assert!(began.elapsed() >= LEASE / 16 * 9, "{:?}", began.elapsed());
    assert!(stats().failures >= before.failures + 9, "{:?}", stats());
    rig.delete_stream("other");
    rig.until("it has all again", || shared_out(&mut members));
}

#[test]
fn what_cannot_be_is_refused() {
    let rig = Rig::bare();
    let mut first = Member::join(&rig, "a");
    rig.until("it has all", || shared_out(std::slice::from_mut(&mut first)));
    let asked = |set: PartitionSet| first.worker.runtime.block_on(set.join()).unwrap_err();
    let nats = &first.worker.nats;
    let setting = |error| matches!(error, NatsError::Setting { .. });
    assert!(setting(asked(nats.partitions("set", COUNT).lease(LEASE / 4))));
    assert!(setting(asked(nats.partitions("set", COUNT).lease(Duration::MAX))));
    assert!(setting(asked(nats.partitions("set", COUNT).replicas(0))));
    assert!(setting(asked(nats.partitions("set", 0))));
    assert!(setting(asked(nats.partitions("set", 1025))));
    assert!(matches!(asked(nats.partitions("a.b", 1)), NatsError::Name { .. }));
    let (set_name, found) = ("set".to_string(), COUNT.to_string());
    let (what, seventeen) = ("partitions", "17".to_string());
    let other = NatsError::OtherTerms { set: set_name, what, found, asked: seventeen };
    assert_eq!(asked(nats.partitions("set", 17)), other);
    let worker = "a".to_string();
    assert_eq!(asked(set(&first.worker)), NatsError::NameTaken { worker });
    first.look();
    assert_eq!((first.ended.clone(), first.lost.len()), (None, 0));
    let held = first.acting().next().unwrap();
    let write = |records: Vec<(String, Option<bytes::Bytes>)>| {
        first.worker.runtime.block_on(held.write(records))
    };
    let many = (0..1001).map(|n| (n.to_string(), Some("x".into()))).collect::<Vec<_>>();
    assert!(setting(write(many.clone()).unwrap_err()));
    assert!(setting(write(vec![(String::new(), None)]).unwrap_err()));
    assert!(setting(write(vec![("k".repeat(257), None)]).unwrap_err()));
    let large = vec![0; first.worker.nats.client().max_payload()];
    assert!(setting(write(vec![("k".into(), Some(large.into()))]).unwrap_err()));
    write(many[..1000].to_vec()).unwrap();
    assert_eq!(first.load(held).len(), 1000);
    write(Vec::new()).unwrap();
    // A new epoch defeats what was written under the old one and is still on its way.
    let held = held.clone();
    held.claim_anew();
    rig.until("it has a new epoch", || {
        first.look();
        first.held[&held.partition()].epoch() > held.epoch()
    });
    let (partition, epoch) = (held.partition(), held.epoch());
    let fenced = Err(NatsError::Fenced { partition, epoch, why: Loss::Claimed });
    assert_eq!(first.write(&held, &[("one", Some("late"))]), fenced);
    first.write(&first.held[&partition], &[("one", Some("new"))]).unwrap();
}

#[test]
fn a_worker_that_names_other_terms_or_cannot_read_a_record_has_no_part() {
    let rig = Rig::bare();
    let mut first = Member::join(&rig, "a");
    rig.until("it has all", || shared_out(std::slice::from_mut(&mut first)));
    let second = rig.worker("b");
    let shorter = second.nats.partitions("set", COUNT).lease(LEASE / 2);
    let refused = second.runtime.block_on(shorter.join()).unwrap_err().to_string();
    assert!(refused.contains("lease"), "{refused}");
    let sessions = |seconds: u32| {
        let set = second.nats.sessions("set", 1).timeout(Duration::from_secs(seconds.into()));
        second.runtime.block_on(set.join()).map(drop).map_err(|error| error.to_string())
    };
    rig.until("the first sets the timeout", || sessions(30).is_ok());
    let refused = sessions(31).unwrap_err();
    assert!(refused.contains("timeout"), "{refused}");
    // A record of a version that this worker does not know.
    rig.put_with("it.partitions.set.own.0", &[("Expiry-Version", "2")], &[]);
    rig.until("it has ended", || {
        first.look();
        first.ended.is_some()
    });
    let ended = first.ended.clone().unwrap().to_string();
    assert!(ended.contains("version 2"), "{ended}");
    assert!(first.acting().next().is_none());
}

#[test]
fn many_batches_at_once_and_writes_that_are_dropped_are_all_stored() {
    let rig = Rig::bare();
    let worker = rig.worker("a");
    let set = worker.nats.partitions("many", 64).lease(4 * LEASE).replicas(1);
    let batch = |n: usize| (0..300).map(move |k| (format!("{n}-{k}"), Some("v".into())));
    worker.runtime.block_on(async {
        let mut partitions = set.join().await.unwrap();
        let mut held = Vec::new();
        while held.len() < 64 {
            if let Some(Change::Gained(one)) = partitions.next().await {
                held.push(one);
            }
        }
        let writes = held.iter().map(|held| held.write(batch(0)));
        let written = futures_util::future::join_all(writes).await;
        assert_eq!(written, vec![Ok(()); 64]);
        for n in 1..60 {
            let soon = Duration::from_micros(n as u64 * 50);
            let _ = tokio::time::timeout(soon, held[0].write(batch(n % 3))).await;
        }
        held[1].write(batch(1)).await.unwrap();
        held[0].write(batch(2)).await.unwrap();
        assert_eq!(held[0].load().await.unwrap().len(), 900);
        assert_eq!(held[1].load().await.unwrap().len(), 600);
    });
}
