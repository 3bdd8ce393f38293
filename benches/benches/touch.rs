//! Touches: `reset_timeout` on trees in flight.

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use expiry_benches::lab::{Lab, Load};
use expiry_benches::peers::{Chosen, DashRemoveIf, Issued, Nothing, Touch};
use expiry_benches::window::{Keys, Order, GROUP};
use std::cell::OnceCell;

fn one<P: Touch>(c: &mut Criterion, load: &Load) {
    let mut group = c.benchmark_group(format!("touch/{}/{:?}", load.in_flight, load.order));
    group.throughput(Throughput::Elements(1)).sample_size(10);
    // Filled only if the filter lets it run.
    let mut lab = OnceCell::new();
    group.bench_function(BenchmarkId::from_parameter(P::NAME), |bencher| {
        bencher.iter_custom(|iters| {
            if lab.get().is_none() {
                let _ = lab.set(Lab::<P>::new(load, Keys::Random));
            }
            let lab = lab.get_mut().expect("set above");
            let touches = iters.div_ceil(GROUP as u64) * GROUP as u64;
            let took = lab.touch(usize::try_from(touches).expect("fits"));
            #[allow(clippy::cast_precision_loss)]
            took.mul_f64(iters as f64 / touches as f64)
        });
    });
    group.finish();
}

fn all(c: &mut Criterion) {
    let in_flight = if std::env::args().any(|arg| arg == "--test") { 10_000 } else { 1_000_000 };
    for order in [Order::Fifo, Order::Random] {
        let load = &Load::standard(in_flight, 1, order);
        one::<Issued>(c, load);
        one::<Chosen>(c, load);
        one::<DashRemoveIf>(c, load);
        one::<Nothing>(c, load);
    }
}

criterion_group!(benches, all);
criterion_main!(benches);
