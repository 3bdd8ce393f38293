//! Lifecycles of trees (init and three acks, full expiry on) beside maps that do the same without any expiry.
//!
//! `cargo bench -p expiry-benches --bench lifecycle -- '1000000/Random/1'` runs a part. One iteration is a tree.
//! Ratios, and what is asked of them, are the business of `figures lifecycle`.

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use expiry_benches::lab::{Lab, Load};
use expiry_benches::peers::{
    Chosen, DashEntry, DashRemoveIf, Floor, Issued, Nothing, Papaya, Peer, Scc, Sharded,
};
use expiry_benches::window::{Keys, Order, GROUP};
use std::cell::OnceCell;
use std::time::Duration;

fn one<P: Peer>(c: &mut Criterion, load: &Load, keys: Keys, batch: bool) {
    let mut group = c
        .benchmark_group(format!("lifecycle/{}/{:?}/{}", load.in_flight, load.order, load.threads));
    // Short enough that nothing which is in flight times out.
    group
        .throughput(Throughput::Elements(1))
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3));
    let how = if batch { "batches of 16" } else { "single" };
    let id = BenchmarkId::new(format!("{}, {keys:?} keys", P::NAME), how);
    // Filled only if the filter lets it run.
    let mut lab = OnceCell::new();
    group.bench_function(id, |bencher| {
        bencher.iter_custom(|iters| {
            if lab.get().is_none() {
                let mut fresh = Lab::<P>::new(load, keys);
                fresh.run(load.warm, batch);
                let _ = lab.set(fresh);
            }
            let lab = lab.get_mut().expect("set above");
            let step = (GROUP * load.threads) as u64;
            let trees = iters.div_ceil(step) * step;
            let took = lab.run(usize::try_from(trees).expect("fits"), batch);
            #[allow(clippy::cast_precision_loss)]
            took.mul_f64(iters as f64 / trees as f64)
        });
    });
    group.finish();
}

fn all(c: &mut Criterion) {
    // `cargo test --benches` is to see that it works, not to measure.
    let loads: &[usize] = if std::env::args().any(|arg| arg == "--test") {
        &[10_000]
    } else {
        &[100_000, 1_000_000, 10_000_000]
    };
    for &in_flight in loads {
        for threads in [1, 2] {
            for order in [Order::Fifo, Order::Random] {
                let load = &Load::standard(in_flight, threads, order);
                for batch in [false, true] {
                    one::<Issued>(c, load, Keys::Random, batch);
                    one::<Chosen>(c, load, Keys::Random, batch);
                }
                for keys in [Keys::Random, Keys::Sequential] {
                    one::<DashRemoveIf>(c, load, keys, false);
                    one::<DashEntry>(c, load, keys, false);
                }
                one::<Papaya>(c, load, Keys::Random, false);
                one::<Scc>(c, load, Keys::Random, false);
                one::<Sharded>(c, load, Keys::Random, false);
                one::<Floor>(c, load, Keys::Random, false);
                one::<Nothing>(c, load, Keys::Random, false);
            }
        }
    }
}

criterion_group!(benches, all);
criterion_main!(benches);
