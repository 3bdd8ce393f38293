//! The parts of the example `tail`, over real files: rotation, bad lines, new lines as they come,
//! restarts.

#[path = "../../examples/tail/logs.rs"]
mod logs;

use expiry_topology::{Replay, Topology};
use logs::{offsets, parse, topology, Counts, Settings};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// A directory of its own for a test, which is removed at the end.
struct Logs {
    directory: PathBuf,
    written: Counts,
    /// Bad lines, with their offsets.
    bad: Vec<(u64, String)>,
    lines: u64,
}

impl Drop for Logs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Logs {
    fn new(test: &str) -> Self {
        let name = format!("expiry-tail-{test}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        Logs { directory, written: Counts::new(), bad: Vec::new(), lines: 0 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Appends so many lines, of which one in 50 cannot be parsed.
    fn write(&mut self, name: &str, lines: u64) {
        let mut text = String::new();
        let length = self.path(name).metadata().map_or(0, |log| log.len());
        for _ in 0..lines {
            let at = self.lines;
            self.lines += 1;
            let minute = format!("2026-11-22 06:{:02}", at / 100 % 60);
            if at % 50 == 13 {
                let bad = format!("{minute}:{:02} NONSENSE {at}", at % 60);
                self.bad.push((length + text.len() as u64, bad.clone()));
                text.push_str(&format!("{bad}\n"));
                continue;
            }
            let level = ["INFO", "DEBUG", "WARN", "ERROR"][at as usize * 7 % 11 % 4];
            text.push_str(&format!("{minute}:{:02}Z {level} message {at}\n", at % 60));
            *self.written.entry((minute, level)).or_default() += 1;
        }
        self.append(name, &text);
    }

    fn append(&self, name: &str, text: &str) {
        let mut options = OpenOptions::new();
        let mut file = options.append(true).create(true).open(self.path(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Rotates as `logrotate` does: the last first.
    fn rotate(&self, name: &str) {
        for nth in (1..9).rev() {
            let _ = fs::rename(
                self.path(&format!("{name}.{nth}")),
                self.path(&format!("{name}.{}", nth + 1)),
            );
        }
        fs::rename(self.path(name), self.path(&format!("{name}.1"))).unwrap();
    }

    fn settings(&self) -> Settings {
        Settings {
            look_every: Duration::from_millis(1),
            tick_every: Duration::from_millis(5),
            replay: Replay::default().attempts(3).base(Duration::from_millis(1)),
            ..Settings::new(&self.directory)
        }
    }

    fn until_idle(&self) -> Settings {
        Settings { until_idle: true, ..self.settings() }
    }

    /// Checks that the state has each log's length in the end.
    fn assert_settled(&self) {
        let mut settled: Vec<u64> = offsets(&self.path(".tail")).unwrap().into_values().collect();
        let logs = fs::read_dir(&self.directory).unwrap();
        let logs = logs.map(|log| log.unwrap().path());
        let logs = logs.filter(|path| path.to_string_lossy().contains(".log"));
        let mut lengths: Vec<u64> = logs.map(|path| path.metadata().unwrap().len()).collect();
        settled.sort_unstable();
        lengths.sort_unstable();
        assert_eq!(settled, lengths);
    }
}

/// What has been handed out.
#[derive(Debug, Clone, Default)]
struct Seen {
    counts: Arc<Mutex<Counts>>,
    dead: Arc<Mutex<Vec<(u64, String)>>>,
}

impl Seen {
    fn start(&self, settings: Settings) -> Topology {
        let (counts, dead) = (self.counts.clone(), self.dead.clone());
        let on_counts = move |new: &Counts| {
            let mut counts = counts.lock().unwrap();
            for (key, count) in new {
                *counts.entry(key.clone()).or_default() += count;
            }
        };
        topology(settings, on_counts, move |line, why| {
            assert_eq!(why, "it has an unknown level");
            assert!(line.file.contains(".log"));
            dead.lock().unwrap().push((line.offset, line.text.clone()));
        })
        .start()
        .unwrap()
    }

    fn lines(&self) -> u64 {
        let counted: u64 = self.counts.lock().unwrap().values().sum();
        counted + self.dead.lock().unwrap().len() as u64
    }

    /// Waits until so many lines have been handed out.
    fn wait(&self, lines: u64) {
        let began = Instant::now();
        while self.lines() < lines {
            assert!(began.elapsed() < LIMIT, "{} of {lines}", self.lines());
            std::thread::yield_now();
        }
    }

    fn assert_is(&self, logs: &Logs) {
        assert_eq!(*self.counts.lock().unwrap(), logs.written);
        let mut dead = self.dead.lock().unwrap().clone();
        let mut bad = logs.bad.clone();
        dead.sort();
        bad.sort();
        assert_eq!(dead, bad);
    }
}

#[test]
fn lines_are_parsed_or_refused_with_a_reason() {
    for line in [
        "2026-11-22T06:30:01.5Z INFO all is well",
        "2026-11-22 06:30:01 [info] all is well",
        "2026-11-22 06:30:01,120 INFO: all is well",
    ] {
        let entry = parse(line).unwrap();
        let parts = (&*entry.minute, entry.level, &*entry.message);
        assert_eq!(parts, ("2026-11-22 06:30", "INFO", "all is well"));
    }
    for (line, why) in [
        ("", "it does not begin with a time"),
        ("2026-11-22 06:3", "it does not begin with a time"),
        ("2026-11-22 06-30:00 INFO", "it does not begin with a time"),
        ("2026-11-22 06:3é:00 INFO", "it does not begin with a time"),
        ("2026-11-22 06:30:00", "it has no level"),
        ("2026-11-22 06:30:00 GOOD day", "it has an unknown level"),
    ] {
        assert_eq!(parse(line), Err(why), "{line:?}");
    }
}

/// Reads existing logs, rotated ones among them: each line once, each bad one with its reason. Then
/// nothing is left to be read.
#[test]
fn all_is_counted_once_and_the_offsets_are_the_lengths() {
    let (mut logs, seen) = (Logs::new("all"), Seen::default());
    for _ in 0..3 {
        logs.write("a.log", 1000);
        logs.rotate("a.log");
    }
    logs.write("a.log", 1000);
    logs.write("b.log", 500);
    logs.append("c.log", "no whole line");
    logs.append("not a log.txt", "nonsense\n");
    logs.append("d.log.gz", "nonsense\n");
    for _ in 0..2 {
        let topology = seen.start(logs.until_idle());
        topology.wait(LIMIT).unwrap();
        topology.drain(LIMIT).unwrap();
        seen.assert_is(&logs);
    }
    fs::remove_file(logs.path("c.log")).unwrap();
    fs::remove_file(logs.path("d.log.gz")).unwrap();
    logs.assert_settled();
}

/// Follows logs: new lines, new logs and rotations as they come, and lines that come in two pieces.
/// Then the topology is drained, and another one goes on where it was, though a rotation came in
/// between.
#[test]
fn a_restart_goes_on_where_it_was() {
    let (mut logs, seen) = (Logs::new("restart"), Seen::default());
    let topology = seen.start(logs.settings());
    for round in 0..5 {
        logs.write("a.log", 300);
        logs.write("b.log", 100);
        if round % 2 == 1 {
            logs.rotate("a.log");
            logs.write("a.log", 50);
        }
        if round == 2 {
            logs.write("new.log", 77);
            logs.append("new.log", "2026-11-22 06:59:00 WARN two ");
        }
        seen.wait(logs.lines);
    }
    logs.append("new.log", "pieces\n");
    logs.written.insert(("2026-11-22 06:59".into(), "WARN"), 1);
    logs.lines += 1;
    seen.wait(logs.lines);
    let metrics = topology.drain(LIMIT).unwrap();
    assert_eq!(metrics[0].acked + metrics[0].dead_letters, logs.lines);
    seen.assert_is(&logs);
    logs.assert_settled();

    logs.write("a.log", 10);
    logs.rotate("a.log");
    logs.write("a.log", 20);
    let topology = seen.start(logs.until_idle());
    topology.wait(LIMIT).unwrap();
    topology.drain(LIMIT).unwrap();
    seen.assert_is(&logs);
    logs.assert_settled();
}

/// The topology is killed before the counts were handed out. No line before the end of the log is
/// settled, but for those that were given up.
#[test]
fn what_was_not_handed_out_is_read_again() {
    let (mut logs, seen) = (Logs::new("kill"), Seen::default());
    logs.write("a.log", 500);
    let topology = seen.start(Settings { tick_every: LIMIT * 100, ..logs.settings() });
    // All is counted, or given up, and no tick has come.
    let began = Instant::now();
    loop {
        let metrics = topology.metrics();
        if metrics[2].executed + metrics[3].executed == logs.lines {
            break;
        }
        assert!(began.elapsed() < LIMIT, "{metrics:?}");
        std::thread::yield_now();
    }
    topology.kill();
    assert!(seen.counts.lock().unwrap().is_empty());
    assert_eq!(seen.dead.lock().unwrap().len(), logs.bad.len());
    assert_eq!(offsets(&logs.path(".tail")).unwrap().into_values().collect::<Vec<_>>(), [0]);

    // The bad ones come again: they lie behind lines that were not settled.
    seen.dead.lock().unwrap().clear();
    let topology = seen.start(logs.until_idle());
    topology.wait(LIMIT).unwrap();
    topology.drain(LIMIT).unwrap();
    seen.assert_is(&logs);
    logs.assert_settled();
}

/// One log is truncated in place after all was read, and a log with the same first line takes the
/// place of another.
#[test]
fn a_log_is_known_by_more_than_its_name_and_its_first_line() {
    let (mut logs, seen) = (Logs::new("names"), Seen::default());
    logs.append("a.log", "2026-11-22 06:00:00 INFO begun\n");
    logs.append("b.log", "2026-11-22 06:00:00 INFO begun\n");
    logs.written.insert(("2026-11-22 06:00".into(), "INFO"), 2);
    logs.lines = 100;
    logs.write("a.log", 100);
    let written = 102;
    let topology = seen.start(logs.settings());
    seen.wait(written);
    File::create(logs.path("a.log")).unwrap();
    logs.write("a.log", 200);
    seen.wait(written + 200);
    topology.drain(LIMIT).unwrap();
    seen.assert_is(&logs);
}
