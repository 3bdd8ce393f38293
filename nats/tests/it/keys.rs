//! Idempotency keys and timers on three brokers.

use crate::joined;
use crate::rig::{worker_that_waits, Rig, Worker};
use bytes::Bytes;
use expiry_nats::{Claim, Guard, Incoming, Nats, NatsError, Once, Timers};
use expiry_topology::{sink, Derive, Topology, TopologyBuilder};
use futures_util::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

fn once(worker: &Worker) -> Once {
    joined(worker, || worker.nats.once("set").time(3 * SECOND).open())
}

fn wait<T>(worker: &Worker, future: impl Future<Output = Result<T, NatsError>>) -> T {
    worker.runtime.block_on(future).unwrap()
}

fn first(claim: Claim) -> Guard {
    match claim {
        Claim::First(guard) => guard,
        other => panic!("{other:?}"),
    }
}

fn answer(claim: Claim) -> Bytes {
    match claim {
        Claim::Done(answer) => answer,
        other => panic!("{other:?}"),
    }
}

fn in_progress(claim: &Claim) -> bool {
    matches!(claim, Claim::InProgress)
}

/// Compiles if other threads may run the futures.
fn _sends(nats: &Nats, once: &Once, timers: &Timers, guard: &mut Guard) {
    fn sends(_: impl Send) {}
    sends((nats.partitions("set", 1).join(), nats.once("set").open(), nats.timers("set").open()));
    sends((once.claim("key"), guard.done("answer")));
    sends((timers.after("key", SECOND, ""), timers.cancel("key")));
}

fn setting<T: Debug>(refused: Result<T, NatsError>) -> bool {
    matches!(refused, Err(NatsError::Setting { .. }))
}

#[test]
fn of_many_claimers_one_is_first_and_the_others_get_its_answer() {
    let rig = Rig::bare();
    let workers = ["a", "b"].map(|name| rig.worker(name));
    let sets = workers.each_ref().map(once);
    for n in 0..50_u8 {
        let key = [n, b'.', 0, 255, b'*'];
        let both = [0, 1, 0, 1].map(|w: usize| {
            let set = sets[w].clone();
            workers[w].runtime.spawn(async move { set.claim(key).await })
        });
        let claims = wait(&workers[0], async { Ok(join_all(both).await) });
        let claims = claims.into_iter().map(|claim| claim.unwrap().unwrap());
        let (mut guards, others): (Vec<_>, Vec<_>) =
            claims.partition(|claim| matches!(claim, Claim::First(_)));
        assert!(guards.len() == 1 && others.iter().all(in_progress), "{guards:?} {others:?}");
        let mut guard = first(guards.remove(0));
        if n % 2 == 0 {
            wait(&workers[0], guard.release());
            guard = first(wait(&workers[1], sets[1].claim(key)));
        }
        wait(&workers[0], guard.done(vec![n]));
        wait(&workers[0], guard.done("another answer"));
        wait(&workers[0], guard.release());
        assert_eq!(answer(wait(&workers[1], sets[1].claim(key))), vec![n]);
    }
    // What does not parse holds no key. An answer without its claimer is none.
    rig.put("it.once.set.key", "no record");
    let mut guard = first(wait(&workers[0], sets[0].claim("key")));
    let large = vec![0; workers[0].nats.client().max_payload() - 1000];
    assert!(setting(workers[0].runtime.block_on(guard.done(large))));
    wait(&workers[0], guard.done(""));
    assert_eq!(answer(wait(&workers[1], sets[1].claim("key"))), "");
    for key in ["", &"k".repeat(257)] {
        assert!(setting(workers[0].runtime.block_on(sets[0].claim(key))));
    }
    let asked = |set: expiry_nats::OnceSet| workers[0].runtime.block_on(set.open());
    assert!(setting(asked(workers[0].nats.once("set").time(SECOND / 2))));
    assert!(setting(asked(workers[0].nats.once("set").keep(Duration::MAX))));
    assert!(setting(asked(workers[0].nats.once("set").replicas(2))));
    let name = asked(workers[0].nats.once("a.b"));
    assert!(matches!(name, Err(NatsError::Name { .. })));
}

#[test]
fn a_claimer_that_dies_is_replaced_and_a_late_one_is_refused() {
    let rig = Rig::bare();
    let (dead, worker) = (rig.worker("dead"), rig.worker("a"));
    let (of_dead, set) = (once(&dead), once(&worker));
    let keys = ["late", "alone"];
    let mut late = keys.map(|key| first(wait(&dead, of_dead.claim(key))));
    let mut extended = first(wait(&worker, set.claim("extended")));
    let began = Instant::now();
    let mut successor = None;
    while successor.is_none() || began.elapsed() < 7 * SECOND {
        wait(&worker, extended.extend());
        assert!(in_progress(&wait(&dead, of_dead.claim("extended"))));
        match wait(&worker, set.claim("late")) {
            Claim::First(guard) => {
                assert!(began.elapsed() > SECOND, "{:?}", began.elapsed());
                successor = Some(guard);
            }
            Claim::InProgress => assert!(began.elapsed() < 15 * SECOND),
            Claim::Done(answer) => panic!("{answer:?}"),
        }
        if let Some(successor) = &mut successor {
            assert!(successor.token() > late[0].token());
            wait(&worker, successor.extend());
        }
        std::thread::sleep(SECOND / 10);
    }
    for (late, key) in late.iter_mut().zip(keys) {
        let expired = Err(NatsError::ClaimExpired { key: key.into() });
        assert_eq!(dead.runtime.block_on(late.done("late")), expired);
        assert_eq!(dead.runtime.block_on(late.extend()), expired);
    }
    for late in late {
        wait(&dead, late.release());
    }
    assert!(in_progress(&wait(&worker, set.claim("late"))));
    wait(&worker, successor.unwrap().done("in time"));
    wait(&worker, extended.done("in time"));
    assert_eq!(answer(wait(&dead, of_dead.claim("late"))), "in time");
    let short = wait(&worker, worker.nats.once("set").keep(SECOND).open());
    wait(&worker, first(wait(&worker, set.claim("short"))).done("no more"));
    assert_eq!(answer(wait(&worker, short.claim("short"))), "no more");
    wait(&worker, first(wait(&worker, short.claim("forgotten"))).done("soon"));
    rig.until("an answer is forgotten", || {
        matches!(wait(&worker, short.claim("forgotten")), Claim::First(_))
    });
}

/// The brokers take what they were sent before they stopped, and their answers reach no worker.
#[test]
fn a_claim_and_an_answer_whose_replies_are_lost_are_found_again() {
    let rig = Rig::bare();
    // A call gives up after four of its timeouts: three of them are for the brokers' recovery.
    let timeout = 5 * SECOND;
    let worker = worker_that_waits(&rig.brokers, "a", timeout);
    let set = joined(&worker, || worker.nats.once("set").time(60 * SECOND).open());
    let stop = |time: Duration| {
        (0..3).for_each(|n| rig.brokers.pause(n));
        std::thread::sleep(time);
        (0..3).for_each(|n| rig.brokers.go_on(n));
    };
    let mut key = first(wait(&worker, set.claim("answer")));
    std::thread::scope(|scope| {
        scope.spawn(|| stop(timeout + SECOND / 2));
        std::thread::sleep(SECOND / 4);
        let (claim, done) = worker
            .runtime
            .block_on(async { tokio::join!(set.claim("claim"), key.done("it is stored")) });
        done.unwrap();
        wait(&worker, first(claim.unwrap()).done("and this"));
    });
    assert_eq!(answer(wait(&worker, set.claim("answer"))), "it is stored");
    assert_eq!(answer(wait(&worker, set.claim("claim"))), "and this");
}

fn timers(worker: &Worker) -> Timers {
    joined(worker, || worker.nats.timers("set").open())
}

type Seen = Arc<Mutex<BTreeMap<String, u32>>>;

/// Counts what comes out, by key and payload.
fn reader(worker: &Worker, timers: &Timers) -> (Topology, Seen) {
    let decode = |timers: Timers| {
        move |due: &Incoming<'_>| -> Result<String, String> {
            let key = timers.key(due.subject).ok_or("it has no key")?;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            Ok(text(&key) + "=" + &text(due.payload))
        }
    };
    let source = joined(worker, || worker.nats.source(timers.due(), decode(timers.clone())));
    let seen = Seen::default();
    let into = seen.clone();
    let topology = TopologyBuilder::new();
    let due = topology.spout("due", move |context| source.spout(context));
    let bolt = move |due: &String, _: &mut Derive<'_, '_, ()>| {
        *into.lock().unwrap().entry(due.clone()).or_default() += 1;
    };
    topology.bolt("seen", move |_| sink(bolt.clone())).shuffle(&due);
    (topology.start().unwrap(), seen)
}

#[test]
fn timers_that_are_due_without_brokers_come_out_when_they_are_back() {
    let rig = Rig::bare();
    rig.stream("dead", "it.dead.>");
    let setter = rig.worker("setter");
    let set = timers(&setter);
    let hour = 3600 * SECOND;
    for n in 0..20 {
        joined(&setter, || set.after(format!("k.{n}"), 3 * SECOND, "due"));
    }
    joined(&setter, || set.after("at once", Duration::ZERO, "due"));
    joined(&setter, || set.after("later", hour, "due"));
    joined(&setter, || set.after("replaced", 2 * SECOND, "old"));
    joined(&setter, || set.after("replaced", 3 * SECOND, "due"));
    joined(&setter, || set.after("deferred", 2 * SECOND, "old"));
    joined(&setter, || set.after("deferred", hour, "due"));
    let large = vec![0; setter.nats.client().max_payload() - 1000];
    assert!(setting(setter.runtime.block_on(set.after("k", SECOND, large))));
    assert!(setting(setter.runtime.block_on(set.after("", SECOND, ""))));
    assert!(setting(setter.runtime.block_on(set.after("k", Duration::MAX, ""))));
    assert!(setting(setter.runtime.block_on(set.cancel("k".repeat(257)))));
    assert_eq!((set.key("it.timers.set.due.=4"), set.key("x")), (None, None));
    drop(setter);
    (0..3).for_each(|n| rig.brokers.kill(n));
    std::thread::sleep(4 * SECOND);
    std::thread::scope(|scope| {
        for n in 0..3 {
            let brokers = &rig.brokers;
            scope.spawn(move || brokers.restart(n).unwrap());
        }
    });
    let worker = rig.worker("reader");
    let set = timers(&worker);
    let (topology, seen) = reader(&worker, &set);
    rig.until("all have come out", || seen.lock().unwrap().len() >= 22);
    assert!(joined(&worker, || set.cancel("later")));
    assert!(joined(&worker, || set.cancel("deferred")));
    assert!(!wait(&worker, set.cancel("deferred")) && !wait(&worker, set.cancel("k.0")));
    rig.until("nothing is left", || rig.messages("it+set+timers") == 0);
    topology.kill();
    // The leader may have died while it was at one, which then comes out twice.
    let mut expected: BTreeSet<_> = (0..20).map(|n| format!("k.{n}=due")).collect();
    expected.extend(["at once=due", "replaced=due"].map(String::from));
    assert_eq!(seen.lock().unwrap().keys().cloned().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn a_timer_that_is_due_comes_out_or_is_cancelled_and_its_successor_is_not_lost() {
    const COUNT: u64 = 3000;
    let rig = Rig::bare();
    rig.stream("dead", "it.dead.>");
    // Two thousand calls come within two seconds, while the leader is at the timers. A busy machine
    // answers the last of them late.
    let worker = worker_that_waits(&rig.brokers, "a", 30 * SECOND);
    let set = timers(&worker);
    let (topology, seen) = reader(&worker, &set);
    // Not all at once: on a busy machine the last would wait for longer than an answer may take.
    let set_500 = |first: u64, due: Instant| {
        let after = |n: u64| {
            let left = due.saturating_duration_since(Instant::now());
            set.after(n.to_string(), left, "old")
        };
        let done = wait(&worker, async { Ok(join_all((first..first + 500).map(after)).await) });
        done.into_iter().for_each(|done| done.unwrap());
    };
    // All are due at once, and the leader takes a while for them. A first attempt says how long
    // this machine takes to set them.
    let began = Instant::now();
    set_500(0, began + 3600 * SECOND);
    let due = Instant::now() + 6 * SECOND + 12 * began.elapsed();
    (0..COUNT).step_by(500).for_each(|first| set_500(first, due));
    assert!(Instant::now() < due, "the timers are set in time");
    // A third is cancelled from a second before to a second after, and a third replaced while the
    // leader is at it.
    let until = async |n: u64, from: Duration, within: Duration| {
        let moment = due - from + within * n as u32 / COUNT as u32;
        tokio::time::sleep_until(moment.into()).await;
    };
    let cancel = async |n: u64| {
        until(n, SECOND, 2 * SECOND).await;
        (n, set.cancel(n.to_string()).await)
    };
    let replace = async |n: u64| {
        until(n, SECOND / 10, SECOND / 2).await;
        (n, set.after(n.to_string(), SECOND, "new").await)
    };
    let each = |first: u64| (first..COUNT).step_by(3);
    let both = async {
        let (cancels, replaces) = (each(0).map(cancel), each(1).map(replace));
        Ok(tokio::join!(join_all(cancels), join_all(replaces)))
    };
    let (cancelled, replaced) = wait(&worker, both);
    rig.until("nothing is left", || rig.messages("it+set+timers") == 0);
    topology.kill();
    let seen = seen.lock().unwrap();
    assert!(seen.values().all(|times| *times == 1));
    let comes = |n: u64, what| seen.contains_key(&format!("{n}={what}"));
    // Of a call that is not answered nothing is known.
    let (mut early, mut late) = (0, 0);
    for one in cancelled {
        let (n, Ok(is_cancelled)) = one else { continue };
        assert_ne!(comes(n, "old"), is_cancelled, "{n}");
        *(if is_cancelled { &mut early } else { &mut late }) += 1;
    }
    assert!(early > 0 && late > 0, "{early} cancelled, {late} not");
    let set: Vec<u64> = replaced.iter().filter(|it| it.1.is_ok()).map(|it| it.0).collect();
    let lost: Vec<_> = set.iter().filter(|n| !comes(**n, "new")).collect();
    assert!(lost.is_empty(), "successors that were set are lost: {lost:?}");
    assert!(set.len() > 100, "only {} calls that set a successor have an answer", set.len());
}
