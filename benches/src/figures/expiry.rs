//! What an expired entry costs the reaper: all at once, and spread over random deadlines.

use super::{count, Options};
use crate::expire::{Due, Expiry};
use crate::report::{Report, Spread, Target};
use serde_json::json;
use std::time::Duration;

/// The coarse interval is the default for a timeout of 30 s. At the fine one hardly two deadlines
/// of a slot block fall together, and the driver visits every slot block 16 times.
const COARSE: Duration = Duration::from_millis(100);
const FINE: Duration = Duration::from_millis(1);

pub fn run(options: &Options, report: &mut Report) {
    for entries in options.loads(&[1_000_000, 10_000_000]) {
        let rounds = options.rounds_at(entries);
        let title = format!("expiry, {} entries", count(entries));
        let mut table = report.table(title, &format!("{rounds} rounds, one thread, poll by hand"));
        let kinds = [(Due::Mass, COARSE), (Due::Spread, COARSE), (Due::Spread, FINE)];
        let cell =
            |(due, interval)| [false, true].map(|chosen| Expiry { entries, due, chosen, interval });
        let cells: Vec<Expiry> = kinds.into_iter().flat_map(cell).collect();
        let run = |expiry: &Expiry| expiry.run().as_nanos() as f64 / entries as f64;
        let nanos = options.in_turn(rounds, &cells, |expiry| format!("{expiry:?}"), run);
        for (Expiry { due, chosen, interval, .. }, nanos) in cells.into_iter().zip(nanos) {
            let ids = if chosen { "chosen" } else { "issued" };
            let name = format!("{due:?}, {ids}, interval {interval:?}");
            let (unit, nanos) = ("ns/entry", Spread::of(nanos));
            match due {
                Due::Mass => table.loaded(&name, unit, nanos, &json!({ "entries": entries })),
                Due::Spread => table.check(&name, unit, nanos, Target::AtMost(150.0)),
            }
        }
    }
}
