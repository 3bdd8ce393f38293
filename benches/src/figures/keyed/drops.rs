//! How long large values stay in memory after an idle process has removed or replaced them.

use super::super::{numbers, Options};
use crate::keyed::INTERVAL;
use crate::process::resident;
use crate::report::{Report, Target};
use expiry::ExpiringMap;
use serde_json::{json, Value as Json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const VALUES: usize = 40;

const BYTES: usize = 8 << 20;

/// How long the values get. Values that are still there count as dropped then.
const PATIENCE: Duration = Duration::from_secs(3);

static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// A value that counts its drop, after which its memory is free.
struct Large(Vec<u8>);

impl Drop for Large {
    fn drop(&mut self) {
        drop(std::mem::take(&mut self.0));
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// The child's side: ends `values` values as `how` says, then makes no call and waits for drops.
pub fn serve(how: &str, values: usize) -> Option<Json> {
    let map = ExpiringMap::builder()
        .time_to_live(Duration::from_secs(3600))
        .interval(INTERVAL)
        .build()
        .expect("valid settings");
    let refused = "room in the map";
    let before = resident();
    for key in 0..values {
        // Ones: the kernel maps a page of zeros only when it is written to.
        assert!(map.insert(key, Large(vec![1; BYTES])).expect(refused).is_none());
    }
    let filled = resident();
    for key in 0..values {
        let ended = match how {
            "removed" => map.remove(&key),
            "replaced" => map.insert(key, Large(Vec::new())).expect(refused),
            _ => return None,
        };
        assert!(ended.is_some());
    }
    let began = Instant::now();
    while DROPPED.load(Ordering::Relaxed) < values && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_micros(500));
    }
    let took = began.elapsed();
    Some(json!({
        "ms": took.as_secs_f64() * 1e3,
        "left": values - DROPPED.load(Ordering::Relaxed).min(values),
        "filled_mib": (filled - before) >> 20,
        "left_mib": resident().saturating_sub(before) >> 20,
    }))
}

/// Milliseconds until 40 values of 8 MiB are dropped; at most an interval and 10 ms are asked.
pub fn drops(options: &Options, report: &mut Report) {
    let mut table = report.table(
        format!("{VALUES} values of {} MiB in an idle process", BYTES >> 20),
        &format!(
            "{} round(s), a process each; ms until the last value is dropped, at most {} ms; \
             interval {INTERVAL:?}",
            options.rounds,
            PATIENCE.as_millis()
        ),
    );
    let hows = ["removed", "replaced"];
    let answers = options.ask_in_turn(options.rounds, "drops", &hows, VALUES);
    for (how, answers) in hows.into_iter().zip(answers) {
        let of = |field| numbers(&answers, field);
        let load = json!({
            "values_left": of("left").median,
            "filled_MiB": of("filled_mib").median,
            "left_MiB": of("left_mib").median,
        });
        table.loaded(how, "ms", of("ms"), &load);
        let limit = (INTERVAL + Duration::from_millis(10)).as_secs_f64() * 1e3;
        table.check(how, "ms", of("ms"), Target::AtMost(limit));
    }
}
