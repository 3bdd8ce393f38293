//! A history without an explanation, for people.

use super::check::{Bad, Model};
use std::fmt::Write;

/// The widest drawing, in characters.
const WIDTH: usize = 60;

/// The most calls up to the one that has no explanation.
const MOST: usize = 40;

/// A line for each call, with its interval: columns are beginnings and ends in their order, not to scale.
pub fn show<M: Model>(bad: &Bad<M>) -> String {
    let left_out = (bad.culprit + 1).saturating_sub(MOST);
    let end = (bad.culprit + MOST / 2).min(bad.calls.len());
    let calls = &bad.calls[left_out..end];
    let mut times: Vec<u64> = calls
        .iter()
        .flat_map(|call| [call.began, call.ended])
        .collect();
    times.sort_unstable();
    times.dedup();
    let first = times.first().copied().unwrap_or(0);
    let scale = times.len().div_ceil(WIDTH).max(1);
    let column = |time: u64| times.partition_point(|&other| other < time) / scale;
    let width = column(u64::MAX) + 1;
    let why = if bad.gave_up {
        "  <- too much is under way to be searched"
    } else {
        "  <- no order explains this"
    };
    let mut text = format!("it was {:?}", bad.states[0]);
    for state in &bad.states[1..] {
        let _ = write!(text, ", or {state:?}");
    }
    if left_out > 0 {
        let _ = write!(text, ", and after {left_out} calls that are left out");
    }
    text.push_str(", in nanoseconds:");
    for (at, call) in calls.iter().enumerate() {
        let (from, to) = (column(call.began), column(call.ended));
        let bar = format!(
            "{:from$}[{:=<length$}]",
            "",
            "",
            length = to.saturating_sub(from + 1)
        );
        let ticks = if call.from == call.to {
            call.from.to_string()
        } else {
            format!("{}-{}", call.from, call.to)
        };
        let _ = write!(
            text,
            "\n  {:>9} to {:>9}  thread {}  tick {ticks:<12} |{bar:<room$}| {:?}{}",
            call.began - first,
            call.ended - first,
            call.thread,
            call.did,
            if left_out + at == bad.culprit {
                why
            } else {
                ""
            },
            room = width + 2,
        );
    }
    text
}
