//! The log of a soak: a line of JSON for each finished run and each cycle. A soak that was killed
//! goes on from it.

use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{Error as IoError, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Line {
    /// The first one: the soak that this is the log of, with how many runs a cycle has.
    Soak { seed: u64, runs: usize },
    /// A run has finished.
    Run(Run),
    /// The process with this number has finished a cycle, with this resident memory after
    /// everything was dropped.
    Cycle { cycle: u64, process: u64, resident: u64 },
}

/// A run that has finished.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub cycle: u64,
    /// The how manyeth of its cycle.
    pub place: usize,
    /// The arguments of the run; these alone repeat it.
    pub arguments: String,
    pub passed: bool,
    /// Operations whose outcomes were checked.
    pub operations: u64,
    /// How long it took in all.
    pub seconds: f64,
    /// Resident memory after it.
    pub resident: u64,
    pub violations: Vec<String>,
}

/// A log, in memory and in a file if there is one.
#[derive(Debug, Default)]
pub struct Log {
    lines: Vec<Line>,
    file: Option<(PathBuf, File)>,
}

impl Log {
    /// The log of a new soak, or of one that goes on in `path`. It leaves out an incomplete last
    /// line: the killed soak was writing that line.
    pub fn open(path: Option<&Path>, seed: u64, runs: usize) -> Result<Self, Error> {
        let mut log = Log::default();
        if let Some(path) = path {
            let unwritable = Error::unwritable(path);
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create(true).truncate(false);
            let mut file = options.open(path).map_err(&unwritable)?;
            let mut text = Vec::new();
            file.read_to_end(&mut text).map_err(&unwritable)?;
            let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
            log.lines = lines(&text[..whole]).map_err(&unwritable)?;
            file.set_len(whole as u64).map_err(&unwritable)?;
            file.seek(SeekFrom::End(0)).map_err(&unwritable)?;
            log.file = Some((path.into(), file));
        }
        let soak = Line::Soak { seed, runs };
        match log.lines.first() {
            None => log.add(soak)?,
            Some(first) if *first == soak => {}
            Some(other) => {
                let other = serde_json::to_string(other).unwrap_or_default();
                let why = format!("is the log of another soak ({other}); go on with its options, or name another file");
                return Err(Error::Option { option: "--log", why });
            }
        }
        Ok(log)
    }

    /// Adds a line, which is in the file when this returns.
    pub fn add(&mut self, line: Line) -> Result<(), Error> {
        if let Some((path, file)) = &mut self.file {
            // Plain structs, which always have a JSON form.
            let text = serde_json::to_string(&line).unwrap_or_default() + "\n";
            let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
            written.map_err(Error::unwritable(path))?;
        }
        self.lines.push(line);
        Ok(())
    }

    /// All runs.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.lines.iter().filter_map(|line| match line {
            Line::Run(run) => Some(run),
            _ => None,
        })
    }

    /// Cycle and place of the run that comes next, of so many in a cycle.
    pub fn next(&self, runs: usize) -> (u64, usize) {
        match self.runs().last() {
            None => (0, 0),
            Some(last) if last.place + 1 < runs => (last.cycle, last.place + 1),
            Some(last) => (last.cycle + 1, 0),
        }
    }

    /// The number of the process that goes on with it.
    pub fn next_process(&self) -> u64 {
        let processes = self.lines.iter().filter_map(|line| match line {
            Line::Cycle { process, .. } => Some(process + 1),
            _ => None,
        });
        processes.max().unwrap_or(0)
    }

    /// Resident memory after each cycle, process by process.
    pub fn resident(&self) -> Vec<Vec<u64>> {
        let mut all = vec![Vec::new(); self.next_process() as usize];
        for line in &self.lines {
            if let Line::Cycle { process, resident, .. } = line {
                all[*process as usize].push(*resident);
            }
        }
        all
    }
}

/// The lines of a log's text.
fn lines(text: &[u8]) -> Result<Vec<Line>, IoError> {
    let line = |(number, text): (usize, &[u8])| {
        serde_json::from_slice(text).map_err(|_| {
            let what = String::from_utf8_lossy(text).trim_end().to_string();
            let why = format!("line {} is none of a soak's log: {what}", number + 1);
            IoError::new(ErrorKind::InvalidData, why)
        })
    };
    text.split_inclusive(|&byte| byte == b'\n').enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(cycle: u64, place: usize) -> Line {
        Line::Run(Run {
            cycle,
            place,
            arguments: "ack".into(),
            passed: true,
            operations: 7,
            seconds: 1.5,
            resident: 1,
            violations: Vec::new(),
        })
    }

    #[test]
    fn it_goes_on_where_it_was_killed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("soak.jsonl");
        let mut log = Log::open(Some(&path), 1, 2).unwrap();
        assert_eq!((log.next(2), log.next_process()), ((0, 0), 0));
        log.add(run(0, 0)).unwrap();
        assert_eq!(log.next(2), (0, 1));
        log.add(run(0, 1)).unwrap();
        log.add(Line::Cycle { cycle: 0, process: 0, resident: 5 }).unwrap();
        drop(log);
        // Killed in the middle of a line.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(br#"{"kind":"run","cycle":1,"#).unwrap();
        drop(file);
        let mut log = Log::open(Some(&path), 1, 2).unwrap();
        assert_eq!((log.runs().count(), log.next(2)), (2, (1, 0)));
        assert_eq!((log.next_process(), log.resident()), (1, vec![vec![5]]));
        log.add(run(1, 0)).unwrap();
        drop(log);
        let log = Log::open(Some(&path), 1, 2).unwrap();
        assert_eq!((log.runs().count(), log.next(2)), (3, (1, 1)));
        assert!(Log::open(Some(&path), 2, 2).is_err(), "another seed");
        assert!(Log::open(Some(&path), 1, 3).is_err(), "other runs");
    }

    #[test]
    fn what_is_no_log_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        std::fs::write(&path, "dear diary\nyours\n").unwrap();
        assert!(Log::open(Some(&path), 1, 2).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "dear diary\nyours\n");
    }
}
