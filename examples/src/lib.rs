//! What the programs share: how each ends, how it runs threads, and how its tests wait.

use clap::builder::RangedU64ValueParser;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// A result whose error only has to be printed.
pub type Done<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Prints the error, if there is one. The exit code is 1 then.
pub fn exit(done: Done) -> ExitCode {
    let Err(error) = done else {
        return ExitCode::SUCCESS;
    };
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

/// Accepts the number of an option if it is at least 1.
pub fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// The path with more at its end: another place for each other path.
pub fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Runs `work` on that many threads, each with its number. Returns their results or an error.
pub fn on_threads<T: Send>(threads: usize, work: impl Fn(usize) -> Done<T> + Sync) -> Done<Vec<T>> {
    let work = &work;
    thread::scope(|scope| {
        let start = |number| scope.spawn(move || work(number));
        let started: Vec<_> = (0..threads).map(start).collect();
        let ends = started.into_iter().map(|thread| thread.join());
        ends.map(|end| end.map_err(|_| "a thread has panicked")?).collect()
    })
}

/// Looks until `look` finds something, which a reaper or another thread brings about. Panics after
/// a minute.
pub fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "it does not happen");
        thread::yield_now();
    }
}
