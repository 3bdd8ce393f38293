//! A history without an explanation, for people.

use model::linear::{Bad, Call, Model};
use std::fmt::{Debug, Write};

/// The widest drawing, in characters.
const WIDTH: usize = 60;

/// The most calls up to the one that has no explanation.
const MOST: usize = 40;

/// A line for each call, with its interval. Columns are beginnings and ends in their order, not to
/// scale.
pub fn show<M: Model>(bad: &Bad<M>) -> String {
    let left_out = (bad.culprit + 1).saturating_sub(MOST);
    let end = (bad.culprit + MOST / 2).min(bad.calls.len());
    let calls = &bad.calls[left_out..end];
    let all = || bad.before.iter().chain(calls);
    let mut times: Vec<u64> = all().flat_map(|call| [call.at.began, call.at.ended]).collect();
    times.sort_unstable();
    times.dedup();
    let drawing = Drawing { scale: times.len().div_ceil(WIDTH).max(1), times };
    let why = if bad.gave_up {
        "  <- too much is under way to be searched"
    } else {
        "  <- no order explains this"
    };
    let mut text = String::from("in nanoseconds");
    for call in &bad.before {
        drawing.line(call, "", &mut text);
    }
    let states: Vec<_> = bad.states.iter().map(|state| format!("{state:?}")).collect();
    let _ = write!(text, "\n  it is {}", states.join(", or "));
    if left_out > 0 {
        let _ = write!(text, "; {left_out} calls are left out");
    }
    for (at, call) in calls.iter().enumerate() {
        let is_culprit = left_out + at == bad.culprit;
        drawing.line(call, if is_culprit { why } else { "" }, &mut text);
    }
    text
}

/// The columns at which times are drawn.
struct Drawing {
    times: Vec<u64>,
    /// How many times there are to a column.
    scale: usize,
}

impl Drawing {
    fn column(&self, time: u64) -> usize {
        self.times.partition_point(|&other| other < time) / self.scale
    }

    fn line<D: Debug>(&self, Call { at, did }: &Call<D>, why: &str, text: &mut String) {
        let (from, to) = (self.column(at.began), self.column(at.ended));
        let length = to.saturating_sub(from + 1);
        let bar = format!("{:from$}[{:=<length$}]", "", "");
        let ticks = match at.from {
            from if from == at.to => from.to_string(),
            from => format!("{from}-{}", at.to),
        };
        let first = self.times.first().copied().unwrap_or(0);
        let room = self.column(u64::MAX) + 2;
        let _ = write!(
            text,
            "\n  {:>9} to {:>9}  thread {}  tick {ticks:<9} |{bar:<room$}| {did:?}{why}",
            at.began.saturating_sub(first),
            at.ended.saturating_sub(first),
            at.thread,
        );
    }
}
