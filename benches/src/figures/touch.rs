//! Touches: `reset_timeout` on trees in flight, beside a store in dashmap's value and the harness alone.

use super::{count, Options};
use crate::lab::{self, Load, Round};
use crate::peers::{Chosen, DashRemoveIf, Issued, Nothing, Touch};
use crate::report::{Report, Spread};
use crate::window::{Keys, Order};
use serde_json::json;

type Run = fn(&Load, Keys) -> Round;

fn entry<P: Touch>() -> (&'static str, Run, Vec<f64>) {
    (P::NAME, lab::touch::<P>, Vec::new())
}

/// Runs the figure: 1 M in flight, one thread.
pub fn run(options: &Options, report: &mut Report) {
    for in_flight in options.loads(&[1_000_000]) {
        for order in [Order::Fifo, Order::Random] {
            let table = format!("touch, {} in flight, {order:?}", count(in_flight));
            let load = Load::standard(in_flight, 1, order);
            let rounds = options.rounds_at(in_flight);
            report.head(
                &table,
                &format!("{} in flight, {rounds} rounds of {} touches", load.in_flight, load.trees),
            );
            let mut all =
                [entry::<Issued>(), entry::<Chosen>(), entry::<DashRemoveIf>(), entry::<Nothing>()];
            for _ in 0..rounds {
                for (_, run, nanos) in &mut all {
                    nanos.push(run(&load, Keys::Random).took.wall);
                }
            }
            for (name, _, nanos) in all {
                let load = json!({ "in_flight": load.in_flight });
                report.figure(&table, name, "ns/touch", Spread::of(nanos), &load);
            }
        }
    }
}
