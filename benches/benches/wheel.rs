//! Timers: one operation at a time, and lives of which one in a hundred fires.
//!
//! `cargo bench -p expiry-benches --bench wheel -- 'timers/1000000/Random/cancel'` runs a part. One iteration is an operation,
//! a timer that fires, or a life. Ratios, and what is asked of them, are the business of `figures wheel`.

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use expiry_benches::timers::{BTree, CompactingHeap, DelayQueue, HashWheel, Heap, Timers, Wheel};
use expiry_benches::wheel::{lives, operations, Due, Lives, Load, Op};
use std::time::Duration;

/// A sample is a whole course, however few iterations are asked for: what they would take is told.
fn scaled(nanos: f64, iters: u64) -> Duration {
    #[allow(clippy::cast_precision_loss)]
    Duration::from_secs_f64(nanos * iters as f64 / 1e9)
}

fn each<T: Timers>(c: &mut Criterion, load: &Load) {
    for op in Op::ALL {
        let name = format!("timers/{}/{:?}/{}", load.entries, load.due, op.name());
        let mut group = c.benchmark_group(name);
        group
            .throughput(Throughput::Elements(1))
            .sample_size(10)
            .warm_up_time(Duration::from_millis(1));
        group.bench_function(BenchmarkId::from_parameter(T::NAME), |bencher| {
            bencher.iter_custom(|iters| scaled(operations::<T>(load, &[op]).nanos(op), iters));
        });
        group.finish();
    }
}

fn together<T: Timers>(c: &mut Criterion, load: &Lives) {
    let mut group = c.benchmark_group(format!("timers/{}/lives", load.window));
    group
        .throughput(Throughput::Elements(1))
        .sample_size(10)
        .warm_up_time(Duration::from_millis(1));
    group.bench_function(BenchmarkId::from_parameter(T::NAME), |bencher| {
        bencher.iter_custom(|iters| scaled(lives::<T>(load), iters));
    });
    group.finish();
}

fn all(c: &mut Criterion) {
    // `cargo test --benches` is to see that it works, not to measure.
    let loads: &[usize] = if std::env::args().any(|arg| arg == "--test") {
        &[1000]
    } else {
        &[1000, 1_000_000, 10_000_000]
    };
    for &entries in loads {
        for due in [Due::Uniform, Due::Random] {
            let load = &Load::new(entries, due);
            each::<Wheel>(c, load);
            each::<DelayQueue>(c, load);
            each::<HashWheel>(c, load);
            each::<Heap>(c, load);
            each::<CompactingHeap>(c, load);
            each::<BTree>(c, load);
        }
        let load = &Lives::new(entries);
        together::<Wheel>(c, load);
        together::<DelayQueue>(c, load);
        together::<HashWheel>(c, load);
        together::<Heap>(c, load);
        together::<CompactingHeap>(c, load);
        together::<BTree>(c, load);
    }
}

criterion_group!(benches, all);
criterion_main!(benches);
