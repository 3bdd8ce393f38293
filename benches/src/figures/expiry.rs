//! What an expired entry costs the reaper: all at once, and spread over random deadlines.

use super::{count, Options};
use crate::expire::{Due, Expiry};
use crate::report::{Report, Spread, Target};
use serde_json::json;
use std::time::Duration;

/// The coarse interval is the default for a timeout of 30 s; at the fine one hardly two deadlines of a
/// bucket fall together, and every bucket is looked at 16 times.
const INTERVALS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(1)];

/// Runs the figure at 1 M and 10 M.
#[allow(clippy::cast_precision_loss)]
pub fn run(options: &Options, report: &mut Report) {
    for entries in options.loads(&[1_000_000, 10_000_000]) {
        let rounds = options.rounds_at(entries);
        let table = format!("expiry, {} entries", count(entries));
        report.head(&table, &format!("{rounds} rounds, one thread, poll by hand"));
        let mut cells = Vec::new();
        for due in [Due::Mass, Due::Spread] {
            for interval in INTERVALS {
                for chosen in [false, true] {
                    if due == Due::Mass && interval != INTERVALS[0] {
                        continue;
                    }
                    let expiry = Expiry { entries, due, chosen, interval };
                    cells.push((expiry, Vec::new()));
                }
            }
        }
        for _ in 0..rounds {
            for (expiry, nanos) in &mut cells {
                options.say(&format!("{expiry:?}"));
                nanos.push(expiry.run().as_nanos() as f64 / entries as f64);
            }
        }
        for (expiry, nanos) in cells {
            let ids = if expiry.chosen { "chosen" } else { "issued" };
            let due = expiry.due;
            let name = format!("{due:?}, {ids}, interval {:?}", expiry.interval);
            let spread = Spread::of(nanos);
            match due {
                Due::Mass => {
                    report.figure(
                        &table,
                        &name,
                        "ns/entry",
                        spread,
                        &json!({ "entries": entries }),
                    );
                }
                Due::Spread => {
                    report.check(&table, &name, "ns/entry", spread, Target::AtMost(150.0));
                }
            }
        }
    }
}
