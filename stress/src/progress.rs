//! Live progress on standard error: one line that is redrawn on a terminal, a line per second elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How often a terminal is redrawn.
const REDRAW: Duration = Duration::from_millis(100);
/// How often a line is printed elsewhere.
const LINE: Duration = Duration::from_secs(1);

/// Where progress goes.
pub struct Progress {
    bar: Option<ProgressBar>,
    began: Instant,
    last: Instant,
    /// Completions at `last`, for the rate.
    before: u64,
    rate: f64,
}

impl Progress {
    /// Begins. `length` is how far it will go, if that is known.
    pub fn new(length: Option<u64>) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let (bar, style) = match length {
                Some(length) => (
                    ProgressBar::new(length),
                    "{elapsed_precise} {bar:24} {percent:>3}% {msg}",
                ),
                None => (
                    ProgressBar::new_spinner(),
                    "{elapsed_precise} {spinner} {msg}",
                ),
            };
            bar.set_style(
                ProgressStyle::with_template(style)
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            bar
        });
        let now = Instant::now();
        Progress {
            bar,
            began: now,
            last: now,
            before: 0,
            rate: 0.0,
        }
    }

    /// How long to wait before the next [`show`](Self::show).
    pub fn pause(&self) -> Duration {
        match self.bar {
            Some(_) => REDRAW,
            None => LINE.saturating_sub(self.last.elapsed()),
        }
    }

    /// Shows where things stand, if it is time to. `done` counts completions; `text` gets their rate per
    /// second.
    #[allow(clippy::cast_precision_loss)] // counts below 2^53
    pub fn show(&mut self, position: u64, done: u64, text: impl FnOnce(f64) -> String) {
        crate::watch::moved(position.rotate_left(32) ^ done);
        let since = self.last.elapsed();
        let due = since >= LINE;
        if due {
            self.rate = (done - self.before.min(done)) as f64 / since.as_secs_f64();
            self.before = done;
            self.last = Instant::now();
        }
        match &self.bar {
            Some(bar) => {
                bar.set_position(position);
                bar.set_message(text(self.rate));
            }
            None if due => {
                eprintln!(
                    "{:>6.1} s  {}",
                    self.began.elapsed().as_secs_f64(),
                    text(self.rate)
                );
            }
            None => {}
        }
    }

    /// Clears the redrawn line.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
