//! Sessions and their front-ends on three brokers.

use crate::rig::{Rig, Worker};
use expiry_nats::brokers::Brokers;
use expiry_nats::{Ended, NatsError, SessionId, SessionSet, Sessions};
use futures_util::{future, stream, StreamExt};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

const OWNERS: Duration = Duration::from_secs(1);
const TIME: Duration = Duration::from_secs(8);
const COUNT: u32 = 8;

fn set(worker: &Worker) -> SessionSet {
    worker.nats.sessions("set", COUNT).timeout(TIME).partition_lease(OWNERS)
}

/// A worker that has joined.
struct Member {
    worker: Worker,
    sessions: Sessions,
    ended: Ended,
}

impl Member {
    fn join(rig: &Rig, name: &str) -> Member {
        let worker = rig.worker(name);
        let (sessions, ended) = crate::joined(&worker, || set(&worker).join());
        Member { worker, sessions, ended }
    }

    fn begin(&self, count: usize) -> Vec<SessionId> {
        let one = |_| async { self.sessions.begin().await.unwrap() };
        let all = stream::iter(0..count).map(one).buffer_unordered(2000).collect();
        self.worker.runtime.block_on(all)
    }

    fn adopt(&self, id: SessionId) -> bool {
        self.worker.runtime.block_on(self.sessions.adopt(id)).unwrap()
    }

    /// The ends that it received, and how often.
    fn reported(&mut self, ends: &mut HashMap<SessionId, usize>) {
        while let Some(Some(id)) = future::FutureExt::now_or_never(self.ended.next()) {
            *ends.entry(id).or_default() += 1;
        }
    }

    /// Touches sessions that it serves.
    fn touch(&self, ids: &[SessionId]) {
        ids.iter().for_each(|id| assert!(self.sessions.touch(*id), "{id}"));
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
        let owned = members.each_ref().map(|it| it.sessions.stats().partitions);
        owned.iter().all(|n| *n > 0) && owned.iter().sum::<usize>() == COUNT as usize
    });
    members
}

#[test]
fn touched_sessions_outlive_owners_and_a_dead_front_ends_sessions_end() {
    let rig = Rig::bare();
    let [mut a, b, mut c] = members(&rig, ["a", "b", "c"]);
    let began = Instant::now();
    let (live, dead) = (a.begin(5_000), b.begin(2_000));
    println!("began after {:?}", began.elapsed());
    let (adopted, dead) = dead.split_at(500);
    a.touch(&live);
    // b owns partitions, and serves sessions. Of these, a takes over some.
    let killed = Instant::now();
    b.kill();
    let sessions = &a.sessions;
    let all = stream::iter(adopted).map(|id| async { sessions.adopt(*id).await.unwrap() });
    let adopting = all.buffer_unordered(500).all(future::ready);
    assert!(a.worker.runtime.block_on(adopting));
    let mut ends = HashMap::new();
    rig.until("the others have ended", || {
        a.touch(&live);
        a.touch(adopted);
        [&mut a, &mut c].into_iter().for_each(|it| it.reported(&mut ends));
        ends.len() == dead.len()
    });
    let took = killed.elapsed();
    println!("ended {took:?} after the death");
    assert!(took > TIME * 3 / 4 && took < TIME + 6 * OWNERS, "{took:?}");
    let expected: HashSet<&SessionId> = dead.iter().collect();
    assert_eq!(ends.keys().collect::<HashSet<_>>(), expected);
    // No owner has died since: each end is reported once.
    assert!(ends.values().all(|times| *times == 1));
    assert!(dead[..20].iter().all(|id| !a.adopt(*id) && !a.sessions.touch(*id)));
    // The next owner dies too. Its successor reports the ends of the last minute again.
    c.kill();
    let began = Instant::now();
    let mut again = HashMap::new();
    rig.until("it is beyond their time", || {
        a.touch(&live);
        a.touch(adopted);
        a.reported(&mut again);
        began.elapsed() > TIME + 3 * OWNERS
    });
    assert!(!again.is_empty() && again.keys().all(|id| expected.contains(id)));
    let stats = a.sessions.stats();
    println!("{stats:?}");
    assert_eq!((stats.served, stats.partitions), (5_500, COUNT as usize));
    assert!(stats.touches >= 2 * 5_000);
    a.worker.runtime.block_on(a.sessions.end(live[0])).unwrap();
    assert!(!a.sessions.touch(live[0]) && !a.adopt(live[0]));
    rig.until("the end is reported", || {
        a.reported(&mut again);
        again.contains_key(&live[0])
    });
}

#[test]
#[ignore = "it takes a minute and a half: `cargo xtask nightly` runs it"]
fn killed_brokers_end_no_session_that_is_touched() {
    let rig = Rig::bare();
    let [mut a, mut b] = members(&rig, ["a", "b"]);
    let live = a.begin(1_000);
    let (sessions, touched) = (a.sessions.clone(), live.clone());
    let touching = a.worker.runtime.spawn(async move {
        loop {
            touched.iter().for_each(|id| assert!(sessions.touch(*id), "{id}"));
            tokio::time::sleep(TIME / 32).await;
        }
    });
    let mut ends = HashMap::new();
    let mut wait = |time: Duration| {
        let began = Instant::now();
        rig.until("it is beyond their time", || {
            [&mut a, &mut b].into_iter().for_each(|it| it.reported(&mut ends));
            assert!(ends.is_empty() && !touching.is_finished(), "{ends:?}");
            began.elapsed() > time
        });
    };
    for broker in 0..3 {
        rig.brokers.kill(broker);
        wait(TIME + 2 * OWNERS);
        rig.brokers.restart(broker).unwrap();
    }
    // No majority for longer than the timeout: nothing ends, and nothing begins.
    rig.brokers.kill(0);
    rig.brokers.kill(1);
    wait(2 * TIME);
    let refused = a.worker.runtime.block_on(a.sessions.begin());
    assert!(matches!(refused, Err(NatsError::Unanswered { .. })), "{refused:?}");
    rig.brokers.restart(0).unwrap();
    rig.brokers.restart(1).unwrap();
    rig.until("sessions begin again", || a.worker.runtime.block_on(b.sessions.begin()).is_ok());
    let began = Instant::now();
    rig.until("only what begins now ends", || {
        [&mut a, &mut b].into_iter().for_each(|it| it.reported(&mut ends));
        began.elapsed() > TIME + 4 * OWNERS
    });
    assert!(!touching.is_finished() && live.iter().all(|id| !ends.contains_key(id)));
    assert!(live.iter().step_by(50).all(|id| a.adopt(*id)));
}

#[test]
fn a_session_moves_and_its_old_front_end_does_no_harm() {
    let rig = Rig::bare();
    let [mut a, mut b] = members(&rig, ["a", "b"]);
    let ids = a.begin(10);
    assert!(ids.iter().all(|id| b.adopt(*id)));
    // Both serve them for a while. Then only the new one does.
    let (mut ends, began) = (HashMap::new(), Instant::now());
    rig.until("it is beyond their time", || {
        if began.elapsed() < TIME {
            a.touch(&ids);
        }
        b.touch(&ids);
        [&mut a, &mut b].into_iter().for_each(|it| it.reported(&mut ends));
        began.elapsed() > 2 * TIME + 3 * OWNERS
    });
    assert!(ends.is_empty());
    assert_eq!((a.sessions.stats().served, b.sessions.stats().served), (0, 10));
    // A front-end that was paused touches what has ended, and learns of it.
    let go_on = b.worker.pause();
    rig.until("they have ended", || {
        a.reported(&mut ends);
        ends.len() == ids.len()
    });
    drop(go_on);
    rig.until("none is served", || b.sessions.stats().served == 0);
    assert!(ids.iter().all(|id| !b.sessions.touch(*id) && !b.adopt(*id)));
    // A member leaves: its partitions are served at once.
    let left = Instant::now();
    a.worker.runtime.block_on(a.sessions.leave());
    b.touch(&b.begin(100));
    assert!(left.elapsed() < 2 * OWNERS, "{:?}", left.elapsed());
    let refused = |set: SessionSet| {
        matches!(b.worker.runtime.block_on(set.join()), Err(NatsError::Setting { .. }))
    };
    assert!(refused(set(&b.worker).timeout(TIME - OWNERS)));
    assert!(refused(set(&b.worker).timeout(Duration::MAX)));
    assert!(refused(set(&b.worker).partition_lease(OWNERS * 11)));
}

#[test]
fn a_runtime_that_ends_takes_no_other_callers_requests_along() {
    let rig = Rig::bare();
    let [a] = members(&rig, ["a"]);
    // So many runtimes end with a request of their own under way. One more for each whose thread
    // the system had stopped until its first look found the answer.
    let mut cut = 0;
    while cut < 16 * COUNT {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let call = a.sessions.begin();
        match runtime.block_on(async { future::FutureExt::now_or_never(call) }) {
            None => cut += 1,
            Some(begun) => assert!(begun.is_ok(), "{begun:?}"),
        }
    }
    let all = stream::iter(0..16 * COUNT).map(|_| a.sessions.begin()).buffer_unordered(500);
    let all = all.all(|begun| future::ready(begun.is_ok()));
    let all = a.worker.runtime.block_on(async { tokio::time::timeout(TIME, all).await });
    assert_eq!(all, Ok(true));
}

#[test]
fn a_request_is_no_larger_than_the_server_takes() {
    const MOST: usize = 32 << 10;
    // No session ends here, and no owner loses its partition, while the others begin.
    const OWNERS: Duration = Duration::from_secs(3);
    const TIME: Duration = Duration::from_secs(24);
    let brokers = Brokers::start_with(1, &format!("max_payload: {MOST}"));
    let brokers = brokers.unwrap_or_else(|error| panic!("{error}"));
    let worker = crate::rig::worker(&brokers, "a");
    let set = || worker.nats.sessions("set", 1).timeout(TIME).partition_lease(OWNERS).replicas(1);
    let (sessions, ended) = crate::joined(&worker, || set().join());
    let set = || worker.nats.leases("set", 1).partition_lease(OWNERS).replicas(1);
    let leases = crate::joined(&worker, || set().join());
    // Their ids, and the keys, together are longer.
    let member = Member { worker, sessions, ended };
    let ids = member.begin(MOST / 8 + 1000);
    member.touch(&ids);
    let began = Instant::now();
    while member.sessions.stats().touches < ids.len() as u64 {
        assert!(began.elapsed() < TIME, "{:?}", member.sessions.stats());
        std::thread::yield_now();
    }
    let calls = (0..1000).map(|n| leases.acquire(format!("{n:0256}"), TIME));
    let all = member.worker.runtime.block_on(future::join_all(calls));
    assert!(all.iter().all(|found| matches!(found, Ok(Some(_)))));
}
