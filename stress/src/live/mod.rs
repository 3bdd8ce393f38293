//! What a run shows of itself while it goes on, on standard error: a view that is redrawn on a terminal, a line per second
//! elsewhere. What was shown is kept as a series, for the report.

mod gauge;
mod series;
mod view;

pub use gauge::Gauge;
pub use series::{Sample, Series};

use crate::report::thousands;
use crate::watch;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use view::View;

/// How often a reading is taken, and a terminal redrawn.
const REDRAW: Duration = Duration::from_millis(250);
/// How often a line is printed elsewhere.
const LINE: Duration = Duration::from_secs(1);

/// A run as it is shown.
pub struct Live {
    view: Option<View>,
    /// How far it will go, if that is known.
    length: Option<u64>,
    began: Instant,
    read: Instant,
    said: Instant,
    /// Operations when the last line was printed.
    before: u64,
    series: Series,
    /// Nothing is read.
    blind: bool,
}

impl Live {
    /// Begins. `length` is the last position, if that is known.
    pub fn new(scenario: &'static str, length: Option<u64>) -> Self {
        let now = Instant::now();
        let terminal = std::io::stderr().is_terminal();
        Live {
            view: terminal.then(|| View::open(scenario, length.is_some())),
            length,
            began: now,
            read: now,
            said: now,
            before: 0,
            series: Series::default(),
            blind: false,
        }
    }

    /// One that reads and shows nothing.
    pub fn without_readings(self) -> Self {
        Live { blind: true, ..self }
    }

    /// How long to wait before the next [`show`](Self::show).
    pub fn pause(&self) -> Duration {
        REDRAW.saturating_sub(self.read.elapsed())
    }

    /// Takes a reading, if it is time to, and shows it.
    pub fn show(&mut self, position: u64, gauge: impl FnOnce() -> Gauge) {
        if self.read.elapsed() < REDRAW {
            return;
        }
        self.read = Instant::now();
        if self.blind {
            return watch::moved(position);
        }
        let (at, gauge) = (self.began.elapsed(), gauge());
        watch::moved(position.rotate_left(32) ^ gauge.done);
        self.series.read(at, &gauge);
        let Some(view) = &self.view else {
            self.line(at, gauge.done, &gauge.text);
            return;
        };
        #[allow(clippy::cast_precision_loss)] // positions below 2^53
        let share = self.length.map(|length| position as f64 / length.max(1) as f64);
        view.draw(at, share, &gauge, self.series.samples());
    }

    #[allow(clippy::cast_precision_loss)] // counts below 2^53
    fn line(&mut self, at: Duration, done: u64, text: &str) {
        let since = self.said.elapsed();
        if since < LINE {
            return;
        }
        let rate = done.saturating_sub(self.before) as f64 / since.as_secs_f64();
        self.said = Instant::now();
        self.before = done;
        let rate = thousands(rate);
        eprintln!("{:>6.1} s  {rate}/s  {text}", at.as_secs_f64());
    }

    /// Clears what is redrawn, and hands over what was read.
    pub fn finish(mut self) -> Series {
        if let Some(view) = self.view.take() {
            view.close();
        }
        self.series
    }
}
