//! Which files are read, which are skipped and why, and how text becomes lines.

use super::words::{is_word, LONGEST_WORD};
use crate::error::Error;
use crate::interrupt;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Mutex;
use walkdir::WalkDir;

/// How much of a file decides whether it is text.
const HEAD: usize = 8 << 10;
/// The longest line, in bytes: longer ones are cut after a word. A multiple of the longest word, so that even
/// a line that is one long run is cut where the words of the run are.
pub const LONGEST_LINE: usize = LONGEST_WORD << 8;
/// How many skipped files of each kind are named in the report.
const NAMED: u64 = 5;

/// A file to be read.
#[derive(Debug)]
pub struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// How many bytes the pipeline has read from it; [`UNREAD`] if it was skipped.
    pub read: AtomicU64,
}

/// [`Source::read`] of a file that has not been read.
pub const UNREAD: u64 = u64::MAX;

/// Why a file is skipped.
#[derive(Debug)]
pub enum Skip {
    /// Its head holds a zero byte.
    Binary,
    /// Its head is not UTF-8.
    NotUtf8,
    /// It is no regular file.
    Special,
    /// The system refused, with this reason.
    Unreadable(String),
}

impl Skip {
    fn name(&self) -> &'static str {
        match self {
            Skip::Binary => "binary",
            Skip::NotUtf8 => "not UTF-8",
            Skip::Special => "no regular file",
            Skip::Unreadable(_) => "unreadable",
        }
    }
}

/// What was skipped.
#[derive(Debug, Default)]
pub struct Skipped {
    /// How many, by kind of reason.
    pub counts: BTreeMap<&'static str, u64>,
    /// The first ones, with their reasons.
    pub named: Vec<String>,
}

/// The files under a path.
#[derive(Debug)]
pub struct Files {
    /// The path.
    pub root: PathBuf,
    /// Regular files, in an order that depends on their names only.
    pub list: Vec<Source>,
    /// What they hold together, as far as the file system says.
    pub bytes: u64,
    skipped: Mutex<Skipped>,
    next: AtomicUsize,
}

impl Files {
    /// Lists the files under `path`, or under the crates in Cargo's home.
    ///
    /// # Errors
    ///
    /// If the path cannot be read or nothing is there.
    pub fn list(path: Option<&Path>) -> Result<Self, Error> {
        let root = match path {
            Some(path) => path.to_path_buf(),
            None => sources_of_crates()?,
        };
        let unreadable =
            |error: io::Error| Error::Unreadable { path: root.clone(), why: error.to_string() };
        let metadata = std::fs::metadata(&root).map_err(unreadable)?;
        if metadata.is_dir() {
            std::fs::read_dir(&root).map_err(unreadable)?;
        } else if metadata.is_file() {
            File::open(&root).map_err(unreadable)?;
        }
        let mut files = Files {
            root: root.clone(),
            list: Vec::new(),
            bytes: 0,
            skipped: Mutex::default(),
            next: AtomicUsize::new(0),
        };
        for entry in WalkDir::new(&root).sort_by_file_name() {
            match entry {
                Ok(entry) if entry.file_type().is_dir() => {}
                // The path itself may be a link to a file.
                Ok(entry)
                    if entry.file_type().is_file() || entry.depth() == 0 && metadata.is_file() =>
                {
                    files.bytes += entry.metadata().map_or(0, |metadata| metadata.len());
                    files
                        .list
                        .push(Source { path: entry.into_path(), read: AtomicU64::new(UNREAD) });
                }
                // Opening a pipe could wait for ever; following links could go round in circles.
                Ok(entry) => files.skip(entry.path(), &Skip::Special),
                Err(error) => {
                    let path = error.path().unwrap_or(&root).to_path_buf();
                    files.skip(&path, &Skip::Unreadable(error.to_string()));
                }
            }
        }
        if files.list.is_empty() {
            return Err(files.no_text());
        }
        Ok(files)
    }

    /// Notes that a file is skipped.
    pub fn skip(&self, path: &Path, why: &Skip) {
        let mut skipped = self.lock();
        let count = skipped.counts.entry(why.name()).or_default();
        *count += 1;
        if *count <= NAMED {
            let reason = match why {
                Skip::Unreadable(reason) => reason,
                other => other.name(),
            };
            skipped.named.push(format!("skipped {}: {reason}", path.display()));
        }
    }

    /// The error that there is no text, with what there is instead.
    pub fn no_text(&self) -> Error {
        let skipped = self.lock();
        let kinds: Vec<String> =
            skipped.counts.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        let found = match (self.list.is_empty() && kinds.is_empty(), kinds.is_empty()) {
            (true, _) => "no file there".into(),
            (_, true) => "all files are empty".into(),
            (_, false) => format!("skipped: {}", kinds.join(", ")),
        };
        Error::NoText { path: self.root.clone(), found }
    }

    /// What has been skipped so far.
    pub fn lock(&self) -> std::sync::MutexGuard<'_, Skipped> {
        match self.skipped.lock() {
            Ok(skipped) => skipped,
            // Counting cannot have stopped halfway.
            Err(poisoned) => poisoned.into_inner(),
        }
    }

    /// How many files have been come to.
    pub fn begun(&self) -> u64 {
        self.next.load(Ordering::Relaxed) as u64
    }

    /// The next file that is text, with its number, for one of several readers. Skips the others. After Ctrl-C there is none.
    pub fn next_text(&self) -> Option<(usize, Lines<Text>)> {
        while !interrupt::asked() {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let source = self.list.get(number)?;
            match open_text(&source.path) {
                Ok(text) => return Some((number, Lines::new(text))),
                Err(why) => self.skip(&source.path, &why),
            }
        }
        None
    }
}

/// Where Cargo keeps the sources of crates.
fn sources_of_crates() -> Result<PathBuf, Error> {
    #[allow(deprecated)] // its one flaw, on Windows, has been mended
    let home = std::env::home_dir().map(|home| home.join(".cargo"));
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from).or(home).unwrap_or_default();
    let path = cargo.join("registry").join("src");
    if path.is_dir() {
        Ok(path)
    } else {
        Err(Error::NoSources { path })
    }
}

/// A text file from its beginning.
pub type Text = BufReader<Chain<Cursor<Vec<u8>>, File>>;

/// Opens a file if its head looks like text.
pub fn open_text(path: &Path) -> Result<Text, Skip> {
    let unreadable = |error: io::Error| Skip::Unreadable(error.to_string());
    let file = File::open(path).map_err(unreadable)?;
    let mut head = Vec::with_capacity(HEAD);
    (&file).take(HEAD as u64).read_to_end(&mut head).map_err(unreadable)?;
    if head.contains(&0) {
        return Err(Skip::Binary);
    }
    match std::str::from_utf8(&head) {
        Ok(_) => {}
        // The head may end within a character.
        Err(error) if error.error_len().is_none() && head.len() == HEAD => {}
        Err(_) => return Err(Skip::NotUtf8),
    }
    Ok(BufReader::with_capacity(64 << 10, Cursor::new(head).chain(file)))
}

/// Lines of a text, cut to a bounded length.
#[derive(Debug)]
pub struct Lines<R> {
    text: R,
    /// What was cut off the line before.
    rest: Vec<u8>,
    /// Whether the next line continues the one before.
    cut: bool,
    /// How many bytes have been read.
    pub bytes: u64,
    /// How many lines were continuations.
    pub cuts: u64,
}

impl<R: BufRead> Lines<R> {
    /// Lines of `text`.
    pub fn new(text: R) -> Self {
        Lines { text, rest: Vec::new(), cut: false, bytes: 0, cuts: 0 }
    }

    /// Reads the next line, without its end; false after the last one.
    ///
    /// # Errors
    ///
    /// What the system reports, and then the line that it happened in is lost.
    pub fn next_line(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        line.clear();
        line.append(&mut self.rest);
        let room = LONGEST_LINE - line.len();
        let more = self.text.by_ref().take(room as u64).read_until(b'\n', line)?;
        self.bytes += more as u64;
        if line.is_empty() {
            return Ok(false);
        }
        self.cuts += u64::from(std::mem::take(&mut self.cut));
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if line.len() == LONGEST_LINE {
            self.cut = true;
            if let Some(at) = line.iter().rposition(|&byte| !is_word(byte)) {
                self.rest = line.split_off(at + 1);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
