//! Which files are read, which are skipped and why, and how text becomes lines.

use super::held;
use super::words::{is_word, LONGEST_WORD};
use crate::error::Error;
use crate::interrupt;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use walkdir::WalkDir;

/// How much of a file decides whether it is text.
const HEAD: usize = 8 << 10;
/// The longest line, in bytes: longer ones are cut after a word. It is a multiple of the longest
/// word, so that even a line that is one long run is cut where the words of the run are.
pub const LONGEST_LINE: usize = LONGEST_WORD << 8;
/// How many skipped files of each kind are named in the report.
const NAMED: u64 = 5;

/// A file to be read.
#[derive(Debug)]
pub struct Source {
    pub path: PathBuf,
    /// How many bytes the pipeline has read from it; nothing if it was skipped.
    pub read: OnceLock<u64>,
}

/// Why a file is skipped: the kind of reason, and what the system said if it refused.
#[derive(Debug)]
pub struct Skip(&'static str, Option<String>);

impl Skip {
    pub fn unreadable(why: impl ToString) -> Self {
        Skip("unreadable", Some(why.to_string()))
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
    root: PathBuf,
    /// Regular files, in an order that depends on their names only.
    pub list: Vec<Source>,
    /// What they hold together, as far as the file system says.
    pub bytes: u64,
    pub skipped: Mutex<Skipped>,
    next: AtomicUsize,
}

impl Files {
    /// Lists the files under `path`, or under the crates in Cargo's home.
    pub fn list(path: Option<&Path>) -> Result<Self, Error> {
        let root = path.map_or_else(sources_of_crates, |path| Ok(path.to_path_buf()))?;
        let unreadable =
            |error: io::Error| Error::Unreadable { path: root.clone(), why: error.to_string() };
        let metadata = std::fs::metadata(&root).map_err(unreadable)?;
        if metadata.is_dir() {
            std::fs::read_dir(&root).map_err(unreadable)?;
        } else if metadata.is_file() {
            File::open(&root).map_err(unreadable)?;
        }
        let (mut list, mut bytes) = (Vec::new(), 0);
        let (skipped, next) = (Mutex::default(), AtomicUsize::new(0));
        let mut files = Files { root, list: Vec::new(), bytes: 0, skipped, next };
        for entry in WalkDir::new(&files.root).sort_by_file_name() {
            match entry {
                Ok(entry) if entry.file_type().is_dir() => {}
                // The path itself may be a link to a file.
                Ok(entry)
                    if entry.file_type().is_file() || entry.depth() == 0 && metadata.is_file() =>
                {
                    bytes += entry.metadata().map_or(0, |metadata| metadata.len());
                    list.push(Source { path: entry.into_path(), read: OnceLock::new() });
                }
                // Opening a pipe could wait for ever; following links could go round in circles.
                Ok(entry) => files.skip(entry.path(), &Skip("no regular file", None)),
                Err(error) => {
                    let path = error.path().unwrap_or(&files.root);
                    files.skip(path, &Skip::unreadable(&error));
                }
            }
        }
        (files.list, files.bytes) = (list, bytes);
        if files.list.is_empty() {
            return Err(files.no_text());
        }
        Ok(files)
    }

    /// Notes that a file is skipped.
    pub fn skip(&self, path: &Path, Skip(kind, why): &Skip) {
        let mut skipped = held(&self.skipped);
        let count = skipped.counts.entry(kind).or_default();
        *count += 1;
        if *count <= NAMED {
            let reason = why.as_deref().unwrap_or(kind);
            skipped.named.push(format!("skipped {}: {reason}", path.display()));
        }
    }

    /// The error that there is no text, with the files that there are instead.
    pub fn no_text(&self) -> Error {
        let skipped = held(&self.skipped);
        let kinds: Vec<_> = skipped.counts.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        let found = match (kinds.is_empty(), self.list.is_empty()) {
            (true, true) => "no file there".into(),
            (true, false) => "all files are empty".into(),
            (false, _) => format!("skipped: {}", kinds.join(", ")),
        };
        Error::NoText { path: self.root.clone(), found }
    }

    /// How many files have been come to.
    pub fn begun(&self) -> u64 {
        self.next.load(Relaxed).min(self.list.len()) as u64
    }

    /// The next text file, with its number, for one of several readers. It skips the other files.
    /// After Ctrl-C there is none.
    pub fn next_text(&self) -> Option<(usize, Lines<Text>)> {
        while !interrupt::asked() {
            let number = self.next.fetch_add(1, Relaxed);
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
    match path.is_dir() {
        true => Ok(path),
        false => Err(Error::NoSources { path }),
    }
}

/// A text file from its beginning.
pub type Text = BufReader<Chain<Cursor<Vec<u8>>, File>>;

/// Opens a file if its head looks like text.
fn open_text(path: &Path) -> Result<Text, Skip> {
    let file = File::open(path).map_err(Skip::unreadable)?;
    let mut head = Vec::with_capacity(HEAD);
    (&file).take(HEAD as u64).read_to_end(&mut head).map_err(Skip::unreadable)?;
    if head.contains(&0) {
        return Err(Skip("binary", None));
    }
    match std::str::from_utf8(&head) {
        // The head may end within a character.
        Err(error) if error.error_len().is_some() || head.len() < HEAD => {
            Err(Skip("not UTF-8", None))
        }
        _ => Ok(BufReader::with_capacity(64 << 10, Cursor::new(head).chain(file))),
    }
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
    pub fn new(text: R) -> Self {
        Lines { text, rest: Vec::new(), cut: false, bytes: 0, cuts: 0 }
    }

    /// Reads the next line, without its end. Returns false after the last one. The line in which an
    /// error happens is lost.
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
mod tests {
    use super::super::words::words;
    use super::*;

    fn lines(text: &[u8]) -> (Vec<Vec<u8>>, u64) {
        let mut lines = Lines::new(text);
        let (mut all, mut line) = (Vec::new(), Vec::new());
        while lines.next_line(&mut line).unwrap() {
            all.push(line.clone());
        }
        assert_eq!(lines.bytes, text.len() as u64);
        (all, lines.cuts)
    }

    #[test]
    fn lines_end_with_newlines_or_the_text_or_where_a_run_is_too_long() {
        assert_eq!(lines(b""), (vec![], 0));
        assert_eq!(lines(b"\n"), (vec![vec![]], 0));
        assert_eq!(lines(b"a\n\nb"), (vec![b"a".to_vec(), vec![], b"b".to_vec()], 0));
        let (all, cuts) = lines(&vec![b'x'; 2 * LONGEST_LINE + 10]);
        let lengths: Vec<usize> = all.iter().map(Vec::len).collect();
        assert_eq!((lengths, cuts), (vec![LONGEST_LINE, LONGEST_LINE, 10], 2));
        // Exactly full: nothing is continued, so nothing counts as cut.
        let (all, cuts) = lines(&vec![b'x'; LONGEST_LINE]);
        assert_eq!((all.len(), cuts), (1, 0));
    }

    #[test]
    fn long_lines_are_cut_after_a_word() {
        let mut text = b"word ".repeat(LONGEST_LINE / 5 * 2);
        text.extend(b"\nlast");
        let (all, cuts) = lines(&text);
        assert!(cuts >= 1);
        assert_eq!(all.len() as u64, 2 + cuts);
        assert!(all.iter().all(|line| line.len() <= LONGEST_LINE));
        for line in &all[..all.len() - 1] {
            assert!(words(line).all(|place| &line[place.clone()] == b"word"));
        }
        let found: usize = all.iter().map(|line| words(line).count()).sum();
        assert_eq!(found, LONGEST_LINE / 5 * 2 + 1);
    }

    #[test]
    fn other_files_are_skipped_with_their_reasons() {
        let dir = tempfile::tempdir().unwrap();
        let mut across = vec![b'a'; HEAD - 1];
        across.extend("é".as_bytes());
        for (name, bytes, skipped) in [
            ("text", "héllo\n".as_bytes(), None),
            ("zero", b"a\0b", Some("binary")),
            ("latin", b"caf\xe9 au lait", Some("not UTF-8")),
            // A character across the head's end is no reason to skip; half a character at the end
            // of the file is.
            ("across", &across, None),
            ("half", b"caf\xc3", Some("not UTF-8")),
        ] {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(open_text(&path).err().map(|skip| skip.0), skipped, "{name}");
        }
        let Skip(kind, why) = open_text(&dir.path().join("gone")).unwrap_err();
        assert!(kind == "unreadable" && why.is_some_and(|why| !why.is_empty()));
    }

    #[test]
    fn a_file_that_vanishes_is_counted_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "x\n").unwrap();
        std::fs::write(dir.path().join("b"), "y\n").unwrap();
        let files = Files::list(Some(dir.path())).unwrap();
        std::fs::remove_file(dir.path().join("a")).unwrap();
        let (number, mut lines) = files.next_text().unwrap();
        let mut line = Vec::new();
        assert!(lines.next_line(&mut line).unwrap());
        assert_eq!((number, line), (1, b"y".to_vec()));
        assert!(files.next_text().is_none());
        let skipped = held(&files.skipped);
        assert_eq!(skipped.counts["unreadable"], 1);
        assert!(skipped.named[0].contains("/a: "), "{:?}", skipped.named);
    }

    #[cfg(unix)]
    #[test]
    fn links_within_a_folder_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "x\n").unwrap();
        std::os::unix::fs::symlink(dir.path(), dir.path().join("loop")).unwrap();
        let files = Files::list(Some(dir.path())).unwrap();
        assert_eq!(files.list.len(), 1);
        assert_eq!(held(&files.skipped).counts["no regular file"], 1);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("a"), &link).unwrap();
        assert_eq!(Files::list(Some(&link)).unwrap().list.len(), 1);
    }
}
