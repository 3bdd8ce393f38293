//! Touches: `reset_timeout` on trees in flight, beside a store in dashmap's value and the harness alone.

use super::{count, Options};
use crate::lab::{self, Load, Round};
use crate::peers::{Chosen, DashRemoveIf, Issued, Nothing, Touch};
use crate::report::{Report, Spread};
use crate::window::{Keys, Order};
use serde_json::json;

fn entry<P: Touch>() -> (&'static str, fn(&Load, Keys) -> Round) {
    (P::NAME, lab::touch::<P>)
}

/// Runs the figure: 1 M in flight, one thread.
pub fn run(options: &Options, report: &mut Report) {
    let all = [entry::<Issued>(), entry::<Chosen>(), entry::<DashRemoveIf>(), entry::<Nothing>()];
    for in_flight in options.loads(&[1_000_000]) {
        for order in [Order::Fifo, Order::Random] {
            let load = Load::standard(in_flight, 1, order);
            let rounds = options.rounds_at(in_flight);
            let mut table = report.table(
                format!("touch, {} in flight, {order:?}", count(in_flight)),
                &format!("{} in flight, {rounds} rounds of {} touches", load.in_flight, load.trees),
            );
            let touch = |one: &(_, fn(&Load, Keys) -> Round)| one.1(&load, Keys::Random).0;
            let nanos = options.in_turn(rounds, &all, |one| one.0.to_string(), touch);
            for ((name, _), nanos) in all.iter().zip(nanos) {
                let load = json!({ "in_flight": load.in_flight });
                table.loaded(name, "ns/touch", Spread::of(nanos), &load);
            }
        }
    }
}
