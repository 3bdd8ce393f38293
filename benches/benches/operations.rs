//! The main operations, beside the peers that `figures` has in its tables, which also judges their
//! ratios.
//!
//! `cargo bench -p expiry-benches -- 'lifecycle/1000000/Random/1'` runs a part. One iteration is a
//! tree (issued or begun, and acked three times), a renewal of one, an entry that expires, or an
//! operation on a keyed store.

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use expiry::CoarseClock;
use expiry_benches::expire::{Due, Expiry};
use expiry_benches::keyed::{Dash, Key, Map, Papaya, Setup, Store, Time, INTERVAL};
use expiry_benches::lab::{Lab, Load};
use expiry_benches::peers::{Chosen, DashRemoveIf, Issued, Nothing, Peer, Touch};
use expiry_benches::window::{Order, GROUP};
use std::cell::OnceCell;
use std::time::{Duration, Instant};

/// `cargo test --benches` is to see that it works, not to measure.
fn size() -> usize {
    if std::env::args().any(|arg| arg == "--test") {
        10_000
    } else {
        1_000_000
    }
}

/// Times `run`, which gets how many iterations to do, at least.
fn bench(c: &mut Criterion, group: &str, name: &str, mut run: impl FnMut(u64) -> Duration) {
    let mut group = c.benchmark_group(group);
    // Short enough that nothing which is in flight times out.
    group
        .throughput(Throughput::Elements(1))
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3));
    group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
        bencher.iter_custom(&mut run);
    });
    group.finish();
}

/// What `iters` of `done` iterations have taken.
fn scaled(took: Duration, iters: u64, done: u64) -> Duration {
    took.mul_f64(iters as f64 / done as f64)
}

/// Work on trees. The peer is filled only if the filter lets it run.
fn trees<P: Peer>(
    c: &mut Criterion,
    what: &str,
    load: &Load,
    work: impl Fn(&mut Lab<P>, usize) -> Duration,
) {
    let group = format!("{what}/{}/{:?}/{}", load.in_flight, load.order, load.threads);
    let mut lab = OnceCell::new();
    bench(c, &group, P::NAME, |iters| {
        lab.get_or_init(|| Lab::<P>::new(load));
        let lab = lab.get_mut().expect("set above");
        let step = (GROUP * load.threads) as u64;
        let trees = iters.div_ceil(step) * step;
        scaled(work(lab, usize::try_from(trees).expect("fits")), iters, trees)
    });
}

fn lifecycles(c: &mut Criterion) {
    fn one<P: Touch>(c: &mut Criterion, load: &Load) {
        trees::<P>(c, "lifecycle", load, |lab, trees| lab.run(trees, false));
        if load.threads == 1 {
            trees::<P>(c, "touch", load, Lab::touch);
        }
    }
    for (threads, order) in
        [(1, Order::Fifo), (1, Order::Random), (2, Order::Fifo), (2, Order::Random)]
    {
        let load = &Load::standard(size(), threads, order);
        one::<Issued>(c, load);
        one::<Chosen>(c, load);
        one::<DashRemoveIf>(c, load);
        one::<Nothing>(c, load);
    }
}

fn expiry(c: &mut Criterion) {
    let (entries, interval) = (size(), Duration::from_millis(100));
    for due in [Due::Mass, Due::Spread] {
        for (chosen, name) in [(false, "issued"), (true, "chosen")] {
            let expiry = Expiry { entries, due, chosen, interval };
            let group = format!("expiry/{entries}/{due:?}");
            bench(c, &group, name, |iters| scaled(expiry.run(), iters, entries as u64));
        }
    }
}

/// `insert`, `get`, `touch` and `remove` of one key after the other, in a store that has as many.
fn stores(c: &mut Criterion) {
    fn each<S: Store<u64, u64, Handle = ()>>(c: &mut Criterion) {
        let (time, entries) = (&Time::Real(CoarseClock::new()), size() as u64);
        let hour = Duration::from_secs(3600);
        let timeout = 3_600_000_000_000;
        let setup = Setup { time, entries: size(), timeout: hour, interval: INTERVAL };
        type Call<S> = fn(&S, u64, &Time, u64) -> bool;
        let insert: Call<S> = |store, n, time, timeout| {
            store.insert(u64::make(n), n, time.now(), timeout);
            true
        };
        let calls: [(&str, Call<S>); 4] = [
            ("insert", insert),
            ("get", |store, n, time, _| store.get(&u64::make(n), time.now()).is_some()),
            ("touch", |store, n, time, timeout| {
                store.touch(&u64::make(n), (), n, time.now(), timeout)
            }),
            ("remove", |store, n, time, _| store.remove(&u64::make(n), time.now())),
        ];
        for (name, call) in calls {
            let group = format!("keyed/{entries}/{name}");
            bench(c, &group, S::NAME, |iters| {
                let (mut took, mut left) = (Duration::ZERO, iters);
                while left > 0 {
                    let store = S::new(&setup);
                    if name != "insert" {
                        (0..entries).for_each(|n| _ = insert(&store, n, time, timeout));
                    }
                    let pass = left.min(entries);
                    let began = Instant::now();
                    let done = (0..pass).filter(|&n| call(&store, n, time, 2 * timeout)).count();
                    took += began.elapsed();
                    assert_eq!(done as u64, pass, "{}: {name}", S::NAME);
                    left -= pass;
                }
                took
            });
        }
    }
    each::<Map<u64, u64>>(c);
    each::<Dash<u64, u64>>(c);
    each::<Papaya<u64, u64>>(c);
}

criterion_group!(benches, lifecycles, expiry, stores);
criterion_main!(benches);
