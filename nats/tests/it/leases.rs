//! Leases on three brokers.

use crate::rig::{Rig, Worker};
use expiry_nats::{Lease, LeaseSet, Leases, NatsError};
use std::time::{Duration, Instant};

const OWNERS: Duration = Duration::from_secs(1);
const TIME: Duration = Duration::from_secs(8);
const COUNT: u32 = 8;

fn set(worker: &Worker) -> LeaseSet {
    worker.nats.leases("set", COUNT).partition_lease(OWNERS)
}

/// A worker that has joined.
struct Member {
    worker: Worker,
    leases: Leases,
}

impl Member {
    fn join(rig: &Rig, name: &str) -> Member {
        let worker = rig.worker(name);
        let leases = crate::joined(&worker, || set(&worker).join());
        Member { worker, leases }
    }

    fn acquire(&self, key: &str) -> Option<Lease> {
        self.worker.runtime.block_on(self.leases.acquire(key, TIME)).unwrap()
    }

    fn until_acquired(&self, rig: &Rig, key: &str) -> Lease {
        let mut lease = None;
        rig.until("the key is free", || {
            lease = self.acquire(key);
            lease.is_some()
        });
        lease.unwrap()
    }

    fn owns(&self) -> usize {
        self.leases.stats().partitions
    }

    fn release(&self, lease: Lease) -> Result<(), NatsError> {
        self.worker.runtime.block_on(lease.release())
    }

    /// Kills the worker: nothing of it goes on.
    fn kill(self) {
        drop(self.worker.runtime);
    }
}

/// Members who own some partitions each, and all of them together.
fn members<const N: usize>(rig: &Rig, names: [&str; N]) -> [Member; N] {
    let members = names.map(|name| Member::join(rig, name));
    rig.until("each owns some", || {
        let owned = members.each_ref().map(Member::owns);
        owned.iter().all(|n| *n > 0) && owned.iter().sum::<usize>() == COUNT as usize
    });
    members
}

#[test]
fn a_key_has_one_holder_until_it_is_released() {
    let rig = Rig::bare();
    let [a, b] = members(&rig, ["a", "b"]);
    let mut tokens = Vec::new();
    for (one, other) in [(&a, &b), (&b, &a), (&a, &a)] {
        let lease = one.until_acquired(&rig, "a.b *>");
        tokens.push(lease.token());
        assert_eq!(lease.key(), b"a.b *>");
        let left = lease.valid_for();
        assert!(left > TIME / 2 && left <= TIME * 3 / 4, "{left:?}");
        assert!(one.acquire("a.b *>").is_none() && other.acquire("a.b *>").is_none());
        // It is released in the background: the next turn may come before that.
        drop(other.until_acquired(&rig, "another"));
        one.release(lease).unwrap();
        let lease = other.acquire("a.b *>").expect("a released key is free");
        tokens.push(lease.token());
        drop(lease);
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    // Many calls at once: each key has one of them.
    let calls = (0..400).map(|n| [&a, &b][n % 2].leases.acquire(format!("k{}", n / 4), TIME));
    let all = futures_util::future::join_all(calls);
    let all: Vec<Lease> =
        a.worker.runtime.block_on(all).into_iter().filter_map(|it| it.unwrap()).collect();
    assert_eq!((all.len(), a.leases.stats().held + b.leases.stats().held), (100, 100));
    // They are renewed.
    let began = Instant::now();
    rig.until("it is beyond their time", || {
        assert!(all.iter().all(|lease| !lease.valid_for().is_zero()));
        began.elapsed() > TIME + OWNERS
    });
    drop(all);
    rig.until("all are free", || (0..100).all(|n| b.acquire(&format!("k{n}")).is_some()));
    let refused = |key: &str, time| {
        let call = a.worker.runtime.block_on(a.leases.acquire(key, time));
        matches!(call, Err(NatsError::Setting { .. }))
    };
    assert!(refused("", TIME) && refused(&"k".repeat(257), TIME));
    assert!(refused("k", TIME - OWNERS) && refused("k", Duration::MAX));
    for time in [TIME - OWNERS, Duration::MAX] {
        let election = a.worker.nats.leader("chief").time(time).join();
        let found = a.worker.runtime.block_on(election);
        assert!(matches!(found, Err(NatsError::Setting { .. })), "{found:?}");
    }
    // One member leaves: its partitions are served at once.
    let left = Instant::now();
    a.worker.runtime.block_on(a.leases.leave());
    let calls = (0..100).map(|n| b.leases.acquire(format!("k{n}"), TIME));
    drop(b.worker.runtime.block_on(futures_util::future::join_all(calls)));
    assert!(left.elapsed() < 2 * OWNERS, "{:?}", left.elapsed());
}

#[test]
fn a_dead_holders_key_is_free_after_its_time_and_an_owners_death_ends_no_lease() {
    let rig = Rig::bare();
    let [a, b, c] = members(&rig, ["a", "b", "c"]);
    // Granted in batches: each token has to be that of its record.
    let held = (0..200).map(|n| a.leases.acquire(format!("a{n}"), TIME));
    let held = a.worker.runtime.block_on(futures_util::future::join_all(held));
    let held: Vec<Lease> = held.into_iter().map(|lease| lease.unwrap().unwrap()).collect();
    let asked = Instant::now();
    let dead: Vec<Lease> = (0..20).map(|n| b.until_acquired(&rig, &format!("b{n}"))).collect();
    let of_20 = asked.elapsed();
    let killed = Instant::now();
    b.kill();
    // All partitions are served again within two leases of theirs.
    for n in 0..40 {
        let _ = a.until_acquired(&rig, &format!("new{n}"));
    }
    let took = killed.elapsed();
    println!("served again after {took:?}; 20 leases take {of_20:?}");
    // What the leases themselves take is no matter of owners.
    assert!(took < 2 * OWNERS + OWNERS / 2 + 4 * of_20, "{took:?}, {of_20:?}");
    assert!(dead.iter().all(|lease| c.acquire(&String::from_utf8_lossy(lease.key())).is_none()));
    let next: Vec<Lease> = (0..20).map(|n| c.until_acquired(&rig, &format!("b{n}"))).collect();
    let took = killed.elapsed();
    println!("the dead holder's keys are free after {took:?}");
    assert!(took > TIME * 3 / 4 && took < TIME + 4 * OWNERS, "{took:?}");
    assert!(next.iter().zip(&dead).all(|(next, dead)| next.token() > dead.token()));
    assert!(next.iter().all(|next| held.iter().all(|held| held.key() != next.key())));
    // The next owner dies too: a's leases are the same as ever.
    c.kill();
    let began = Instant::now();
    rig.until("it is beyond their time", || {
        assert!(held.iter().all(|lease| !lease.valid_for().is_zero()));
        began.elapsed() > TIME
    });
    assert!(held.iter().all(|lease| a.acquire(&String::from_utf8_lossy(lease.key())).is_none()));
    held.into_iter().for_each(|lease| a.release(lease).unwrap());
}

#[test]
fn a_paused_holder_finds_its_lease_lost_and_its_token_lower() {
    let rig = Rig::bare();
    let [a, b] = members(&rig, ["a", "b"]);
    let old = a.until_acquired(&rig, "key");
    let go_on = a.worker.pause();
    let new = b.until_acquired(&rig, "key");
    assert!(old.valid_for().is_zero());
    assert!(new.token() > old.token());
    a.worker.runtime.block_on(async {
        tokio::time::timeout(OWNERS, old.lost()).await.expect("it is lost");
    });
    drop(go_on);
    rig.until("the paused worker goes on", || a.owns() > 0);
    // What it does late takes nothing from the new holder.
    a.release(old).unwrap();
    assert!(!new.valid_for().is_zero() && a.acquire("key").is_none());
    b.release(new).unwrap();
}

#[test]
fn what_dropped_calls_may_have_got_is_free_long_before_its_time() {
    let rig = Rig::bare();
    let [a] = members(&rig, ["a"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let acquire = |n: u64| {
        let leases = a.leases.clone();
        async move { leases.acquire(format!("cut{n}"), 1000 * TIME).await }
    };
    let calls = (0..1_000).map(|n| {
        let call = acquire(n);
        runtime.spawn(async move {
            let call = tokio::spawn(call);
            for _ in 0..n * 7919 % 211 {
                tokio::task::yield_now().await;
            }
            call.abort();
        })
    });
    drop(runtime.block_on(futures_util::future::join_all(calls)));
    let mut left: Vec<u64> = (0..1_000).collect();
    rig.until("all are free", || {
        let calls = left.iter().map(|n| acquire(*n));
        let found = runtime.block_on(futures_util::future::join_all(calls));
        let taken = left.iter().zip(found).filter(|(_, found)| !matches!(found, Ok(Some(_))));
        left = taken.map(|(n, _)| *n).collect();
        left.is_empty()
    });
}

#[test]
fn a_member_that_leaves_without_brokers_owns_nothing() {
    let rig = Rig::bare();
    let [a] = members(&rig, ["a"]);
    (1..=2).for_each(|n| rig.brokers.pause(n));
    std::thread::sleep(2 * OWNERS); // its own lease has expired
    a.worker.runtime.block_on(a.leases.leave());
    assert_eq!(a.owns(), 0);
    (1..=2).for_each(|n| rig.brokers.go_on(n));
    let b = Member::join(&rig, "b");
    rig.until("another member owns all", || b.owns() == COUNT as usize);
}

#[test]
fn bytes_that_do_not_parse_are_counted_and_dropped() {
    let rig = Rig::bare();
    let [a] = members(&rig, ["a"]);
    let lease = a.until_acquired(&rig, "key");
    let client = a.worker.nats.client().clone();
    let send = |payload: Vec<u8>, reply: bool| {
        let (client, payload) = (client.clone(), bytes::Bytes::from(payload));
        a.worker.runtime.block_on(async move {
            for partition in 0..COUNT {
                let subject = format!("it.leases.set.{partition}.hostile");
                let (inbox, payload) = (client.new_inbox(), payload.clone());
                match reply {
                    true => client.publish_with_reply(subject, inbox, payload).await.unwrap(),
                    false => client.publish(subject, payload).await.unwrap(),
                }
            }
            client.flush().await.unwrap();
        });
    };
    // An owner that claims its partition again misses some.
    rig.until("they are counted", || {
        let mut bytes = vec![8, 1, 18];
        for n in 0..64 {
            send(bytes.clone(), n % 2 == 0);
            bytes.push(0xff - n * 3);
        }
        send(vec![0xff; 500_000], true);
        a.leases.stats().malformed >= 65 * u64::from(COUNT)
    });
    // A record that does not parse holds no key.
    (0..COUNT).for_each(|p| rig.put(&format!("it.partitions.set+leases.data.{p}.bad"), "?"));
    let [b] = [Member::join(&rig, "b")];
    rig.until("both own some", || a.owns() > 0 && b.owns() > 0);
    let bad = b.until_acquired(&rig, "bad");
    assert!(a.acquire("bad").is_none() && b.acquire("key").is_none());
    rig.until("b counts them", || b.leases.stats().malformed > 0);
    assert!(!lease.valid_for().is_zero());
    [(&b, bad), (&a, lease)].into_iter().for_each(|(who, lease)| who.release(lease).unwrap());
}

#[test]
fn a_lease_of_a_later_version_is_not_taken_for_absent() {
    let rig = Rig::bare();
    let old = Member::join(&rig, "a");
    rig.until("it owns all", || old.owns() == COUNT as usize);
    old.kill();
    for partition in 0..COUNT {
        let version_2 = [0x28, 2];
        rig.put_with(&format!("it.partitions.set+leases.data.{partition}.k"), &[], &version_2);
    }
    let new = Member::join(&rig, "b");
    let granted = new.worker.runtime.block_on(new.leases.acquire("k", TIME));
    let refused = granted.unwrap_err().to_string();
    assert!(refused.contains("version 2"), "{refused}");
}
