//! Counts the words of a file in a pipeline that loses and fails some of its work, and replays what was not done:
//!
//! ```sh
//! cargo run -p expiry-examples --bin pipeline -- FILE
//! ```
//!
//! At least once: a word may be counted in more than one attempt, so who counts knows what has been counted. The crate `expiry-topology`
//! is all of this made ready.

mod source;

use clap::{builder::RangedU64ValueParser, value_parser, Parser};
use crossbeam_channel::{bounded, unbounded, Receiver, Sender};
use expiry::{AckError, AckTracker, Outcomes, WhenFull};
use humantime::parse_duration;
use rand::{rngs::SmallRng, Rng, SeedableRng};
use source::{Line, Share, Source, SourceError};
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// An at-least-once pipeline: words of a file are counted though work is lost, and each line is acked.
#[derive(Parser)]
struct Options {
    /// What to read; the repository's README if nothing is said.
    #[arg(default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md"), hide_default_value = true)]
    file: PathBuf,
    /// How long a line may take with all its words.
    #[arg(long, value_parser = parse_duration, default_value = "200ms")]
    timeout: Duration,
    /// The share of words that are lost on their way.
    #[arg(long, default_value_t = 0.005, value_parser = share)]
    lose: f64,
    /// The share of lines that fail.
    #[arg(long, default_value_t = 0.05, value_parser = share)]
    fail: f64,
    /// The share of words whose ack is lost though they were counted.
    #[arg(long, default_value_t = 0.005, value_parser = share)]
    forget: f64,
    /// How many lines may be under way.
    #[arg(long, default_value_t = 100, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    most: usize,
    /// How often a line is tried.
    #[arg(long, default_value_t = 20, value_parser = value_parser!(u32).range(1..))]
    attempts: u32,
    /// Decides what is lost.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A number from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().map_err(|error| format!("{error}"))?;
    if !(0.0..=1.0).contains(&share) {
        return Err("it is not between 0 and 1".into());
    }
    Ok(share)
}

#[derive(Debug, thiserror::Error)]
enum PipelineError {
    #[error("{0}: {1}")]
    Read(PathBuf, std::io::Error),
    #[error(transparent)]
    Build(#[from] expiry::BuildError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("a thread of the pipeline is gone")]
    Thread,
    #[error("{acked} of {lines} lines were acked")]
    Lines { acked: u64, lines: u64 },
    #[error("{word:?} was counted {counted} times, and is there {there} times")]
    Count { word: String, counted: u64, there: u64 },
}

/// A word of a line: which one, in which attempt's tree.
struct Word {
    at: (u64, usize),
    text: String,
    share: Share,
}

type Counts = BTreeMap<String, u64>;

/// What was done wrong on purpose.
#[derive(Debug, Default)]
struct Faults {
    lost: AtomicU64,
    failed: AtomicU64,
    forgotten: AtomicU64,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pipeline: {error}");
            ExitCode::FAILURE
        }
    }
}

fn words(line: &str) -> impl Iterator<Item = String> + '_ {
    line.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
}

fn run(options: &Options) -> Result<(), PipelineError> {
    let text = fs::read_to_string(&options.file);
    let text = text.map_err(|error| PipelineError::Read(options.file.clone(), error))?;
    let (tracker, outcomes) = AckTracker::builder()
        .timeout(options.timeout)
        .build_with_channel(options.most, WhenFull::Wait)?;
    let lines = text.lines().map(String::from);
    let source = Source::new(Arc::new(tracker), lines, options.most, options.attempts);
    let faults = Faults::default();

    let (source, counts) = thread::scope(|scope| {
        // There may be more lines than those under way: of attempts that have timed out.
        let (lines, to_split) = unbounded();
        let (words, to_count) = bounded(1000);
        let splitter = scope.spawn(|| split(to_split, words, options, &faults));
        let counter = scope.spawn(|| count(to_count, options, &faults));
        let fed = feed(source, outcomes, lines);
        splitter.join().map_err(|_| PipelineError::Thread)?;
        let counts = counter.join().map_err(|_| PipelineError::Thread)?;
        Ok::<_, PipelineError>((fed?, counts))
    })?;

    let told = source.told();
    println!(
        "{} lines: {} acked; {} attempts failed, {} timed out",
        source.read(),
        told.acked,
        told.failed,
        told.timed_out
    );
    println!(
        "injected: {} words lost, {} lines failed, {} acks forgotten",
        faults.lost.load(Relaxed),
        faults.failed.load(Relaxed),
        faults.forgotten.load(Relaxed)
    );
    if told.acked != source.read() {
        let (acked, lines) = (told.acked, source.read());
        return Err(PipelineError::Lines { acked, lines });
    }
    check(&counts, &text)?;
    println!("{} words, {} different ones", counts.values().sum::<u64>(), counts.len());
    println!("verdict: ok: each line was acked once, and each word counted once");
    Ok(())
}

/// The source's thread: lines, and those again that were not done, until all are.
fn feed<L: Iterator<Item = String>>(
    mut source: Source<L>,
    outcomes: Outcomes,
    lines: Sender<Line>,
) -> Result<Source<L>, PipelineError> {
    loop {
        while let Some(line) = source.next()? {
            lines.send(line).map_err(|_| PipelineError::Thread)?;
        }
        if source.is_at_rest() {
            return Ok(source);
        }
        // Each line that is under way has its outcome within the timeout.
        if let Some(outcome) = outcomes.next_within(Duration::from_secs(1)) {
            if let Some(again) = source.outcome(&outcome)? {
                lines.send(again).map_err(|_| PipelineError::Thread)?;
            }
        }
    }
}

/// Derives words from lines.
fn split(lines: Receiver<Line>, to: Sender<Word>, options: &Options, faults: &Faults) {
    let mut random = SmallRng::seed_from_u64(options.seed);
    for mut line in lines {
        if random.random_bool(options.fail) {
            if line.share.fail().is_ok() {
                faults.failed.fetch_add(1, Relaxed);
            }
            continue;
        }
        for (nth, text) in words(&line.text).enumerate() {
            let word = Word { at: (line.number, nth), text, share: line.share.emit() };
            if random.random_bool(options.lose) {
                // Nobody will ack it.
                faults.lost.fetch_add(1, Relaxed);
            } else if to.send(word).is_err() {
                return;
            }
        }
        settle(line.share);
    }
}

/// Counts words, each once, however often it comes.
fn count(words: Receiver<Word>, options: &Options, faults: &Faults) -> Counts {
    let mut random = SmallRng::seed_from_u64(options.seed + 1);
    let (mut counts, mut counted) = (Counts::new(), HashSet::new());
    for word in words {
        if counted.insert(word.at) {
            *counts.entry(word.text).or_default() += 1;
        }
        if random.random_bool(options.forget) {
            faults.forgotten.fetch_add(1, Relaxed);
        } else {
            settle(word.share);
        }
    }
    counts
}

fn settle(share: Share) {
    match share.ack() {
        // Its tree has failed, or taken too long: another attempt is under way.
        Ok(_) | Err(AckError::NotLive) => {}
        Err(error) => eprintln!("ack: {error}"),
    }
}

/// Counted as without a pipeline.
fn check(counts: &Counts, text: &str) -> Result<(), PipelineError> {
    let mut there = Counts::new();
    for word in words(text) {
        *there.entry(word).or_default() += 1;
    }
    for word in there.keys().chain(counts.keys()) {
        let [counted, there] = [counts, &there].map(|of| of.get(word).copied().unwrap_or(0));
        if counted != there {
            let word = word.clone();
            return Err(PipelineError::Count { word, counted, there });
        }
    }
    Ok(())
}
