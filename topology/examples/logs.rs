//! Follows a log and loses nothing over a restart: `cargo run -p expiry-topology --example logs --
//! FOLDER` reads `FOLDER/app.log`. The guide `docs/guide/logs.md` says why nothing is lost.

use expiry_topology::{
    basic, sink, Bolt, BoltCollector, DeadLetter, Failure, Next, Replay, Spout, SpoutCollector,
    TopologyBuilder, Tuple,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::{path::PathBuf, time::Duration};

struct Log {
    lines: BufReader<File>,
    /// What has been read of the next line.
    line: Vec<u8>,
    /// Where it begins.
    next: u64,
    pending: BTreeSet<u64>,
    state: PathBuf,
}

impl Log {
    fn open(log: &str, state: PathBuf) -> std::io::Result<Self> {
        let next = fs::read_to_string(&state).map_or(0, |text| text.parse().unwrap_or(0));
        let mut file = File::open(log)?;
        file.seek(SeekFrom::Start(next))?;
        let (lines, line, pending) = (BufReader::new(file), Vec::new(), BTreeSet::new());
        Ok(Log { lines, line, next, pending, state })
    }
}

impl Spout<Vec<u8>> for Log {
    fn next(&mut self, out: &mut SpoutCollector<'_, Vec<u8>>) -> Next {
        match self.lines.read_until(b'\n', &mut self.line) {
            Ok(_) if self.line.ends_with(b"\n") => {
                let (line, offset) = (std::mem::take(&mut self.line), self.next);
                self.next += line.len() as u64;
                self.pending.insert(offset);
                // A spout is asked only while there is room.
                out.emit(line, offset).map_or(Next::Idle, |()| Next::Ready)
            }
            Ok(_) => Next::Done, // `Next::Idle` to follow the log: it is asked again soon
            Err(error) => {
                out.report(&error);
                Next::Idle
            }
        }
    }

    fn ack(&mut self, offset: u64) {
        self.pending.remove(&offset);
    }

    // The line is in `bad.txt` by now.
    fn fail(&mut self, offset: u64, _: &Failure) {
        self.pending.remove(&offset);
    }

    fn tick(&mut self) {
        let settled = self.pending.first().copied().unwrap_or(self.next);
        let draft = self.state.with_extension("new");
        // The file is the old one or the new one, whenever the process dies.
        let saved =
            fs::write(&draft, settled.to_string()).and_then(|()| fs::rename(draft, &self.state));
        saved.unwrap_or_else(|error| eprintln!("the offset is not saved: {error}"));
    }

    fn close(&mut self) {
        self.tick();
    }
}

/// What a line says.
#[derive(Clone)]
struct Entry {
    level: String,
}

fn parse(line: &[u8]) -> Result<Entry, &'static str> {
    let line = std::str::from_utf8(line).map_err(|_| "it is not UTF-8")?;
    let level = line.split_whitespace().nth(1).ok_or("it has no level")?;
    Ok(Entry { level: level.to_string() })
}

/// Counts entries. It acks them when the counts are in the file.
struct Count {
    path: PathBuf,
    counts: BTreeMap<String, u64>,
    counted: Vec<Tuple<Entry>>,
}

impl Bolt<Entry> for Count {
    fn execute(&mut self, entry: Tuple<Entry>, _: &mut BoltCollector<'_>) {
        *self.counts.entry(entry.level.clone()).or_default() += 1;
        self.counted.push(entry);
    }

    fn tick(&mut self, out: &mut BoltCollector<'_>) {
        match fs::write(&self.path, format!("{:?}", self.counts)) {
            Ok(()) => self.counted.drain(..).for_each(|entry| out.ack(entry)),
            Err(error) => out.report(&error), // the next tick tries again
        }
    }
}

/// Reads the log of a folder to its end.
pub fn run(folder: PathBuf) -> Result<(), Box<dyn std::error::Error>> {
    let second = Duration::from_secs(1);
    let file = move |name: &str| folder.join(name);
    let topology = TopologyBuilder::new();
    let (log, state) = (file("app.log").display().to_string(), file("offset"));
    let lines = topology
        .try_spout("log", move |_| Log::open(&log, state.clone()))
        .max_pending(1 << 14) // lines between two ticks of `count`
        .replay(Replay::default())
        .tick_every(second);
    let entries = topology
        .bolt("parse", |_| {
            basic(|line: &Vec<u8>, out| match parse(line) {
                Ok(entry) => out.emit(entry),
                Err(why) => out.reject(why), // no attempt can succeed
            })
        })
        .shuffle(&lines);
    let counts = file("counts.txt");
    topology
        .bolt("count", move |_| Count {
            path: counts.clone(),
            counts: BTreeMap::new(),
            counted: Vec::new(),
        })
        .shuffle(&entries)
        .tick_every(second / 10);
    let bad = file("bad.txt");
    topology
        .bolt("bad", move |_| {
            let bad = bad.clone();
            sink(move |letter: &DeadLetter<Vec<u8>>, _| {
                let mut file = OpenOptions::new().create(true).append(true).open(&bad)?;
                write!(file, "{}: {}", letter.failure, String::from_utf8_lossy(&letter.message))
            })
        })
        .shuffle(lines.dead_letters());
    let topology = topology.start()?;
    topology.wait(Duration::from_secs(60))?;
    topology.drain(second)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    run(std::env::args().nth(1).ok_or("which folder?")?.into())
}
