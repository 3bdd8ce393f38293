//! What an expired entry costs: all due at once, and spread over random deadlines.

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use expiry_benches::expire::{Due, Expiry};
use std::time::Duration;

fn all(c: &mut Criterion) {
    let loads: &[usize] = if std::env::args().any(|arg| arg == "--test") {
        &[10_000]
    } else {
        &[1_000_000, 10_000_000]
    };
    for &entries in loads {
        for due in [Due::Mass, Due::Spread] {
            let mut group = c.benchmark_group(format!("expiry/{due:?}"));
            group
                .throughput(Throughput::Elements(entries as u64))
                .sample_size(10)
                .warm_up_time(Duration::from_millis(1));
            for chosen in [false, true] {
                let expiry = Expiry { entries, due, chosen, interval: Duration::from_millis(100) };
                let ids = if chosen { "chosen" } else { "issued" };
                group.bench_function(BenchmarkId::new(ids, entries), |bencher| {
                    bencher.iter_custom(|iters| (0..iters).map(|_| expiry.run()).sum());
                });
            }
            group.finish();
        }
    }
}

criterion_group!(benches, all);
criterion_main!(benches);
