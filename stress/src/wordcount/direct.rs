//! The direct count: one thread, one byte after the other, sharing nothing with the pipeline but the
//! definition of a word.

use super::files::{Files, UNREAD};
use super::words::{add, is_word, Counts, LONGEST_WORD};
use crate::checks::Checks;
use std::fs::File;
use std::io::Read;
use std::sync::atomic::Ordering;

/// What is in the files.
#[derive(Debug, Default)]
pub struct Direct {
    /// How often each word occurs.
    pub counts: Counts,
    /// How many words there are.
    pub words: u64,
    /// How many lines, uncut.
    pub lines: u64,
}

impl Direct {
    fn word(&mut self, word: &mut Vec<u8>) {
        if !word.is_empty() {
            add(&mut self.counts, word, 1);
            self.words += 1;
            word.clear();
        }
    }

    /// Counts one text; returns its length and what ended the reading if it was not the text's end.
    pub fn text(&mut self, mut text: impl Read) -> (u64, Option<std::io::Error>) {
        let mut chunk = vec![0; 64 << 10];
        let mut word = Vec::with_capacity(LONGEST_WORD);
        let mut length = 0;
        let mut last = b'\n';
        let error = loop {
            let got = match text.read(&mut chunk) {
                Ok(0) => break None,
                Ok(got) => got,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => break Some(error),
            };
            length += got as u64;
            for &byte in &chunk[..got] {
                if is_word(byte) {
                    word.push(byte);
                    if word.len() == LONGEST_WORD {
                        self.word(&mut word);
                    }
                } else {
                    self.word(&mut word);
                    self.lines += u64::from(byte == b'\n');
                }
            }
            last = chunk[got - 1];
        };
        self.word(&mut word);
        self.lines += u64::from(last != b'\n');
        (length, error)
    }
}

/// Counts every file that the pipeline has read, and checks that it is still the same length.
pub fn count(files: &Files, checks: &Checks) -> Direct {
    let mut direct = Direct::default();
    for (number, source) in (0..).zip(&files.list) {
        crate::watch::moved(number);
        let read = source.read.load(Ordering::Relaxed);
        if read == UNREAD {
            continue;
        }
        let length = match File::open(&source.path) {
            Ok(file) => direct.text(file).0,
            Err(_) => 0,
        };
        checks.expect("same_input", length == read, || {
            format!("{} changed during the run: {read} bytes, then {length}", source.path.display())
        });
    }
    direct
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn counts_words_and_lines() {
        let mut direct = Direct::default();
        let long = "y".repeat(LONGEST_WORD + 1);
        direct.text(format!("a b a\n\n{long} c").as_bytes());
        direct.text(&b""[..]);
        direct.text(&b"a\n"[..]);
        assert_eq!((direct.lines, direct.words), (4, 7));
        assert_eq!(direct.counts[&b"a"[..]], 3);
        assert_eq!(direct.counts[&b"y"[..]], 1);
        assert_eq!(direct.counts[&long.as_bytes()[1..]], 1);
    }

    #[test]
    fn a_file_that_has_changed_is_a_violation() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"one two\n").unwrap();
        let files = Files::list(Some(file.path())).unwrap();
        files.list[0].read.store(8, Ordering::Relaxed);
        let checks = Checks::new(&["same_input"]);
        assert_eq!(count(&files, &checks).words, 2);
        assert!(checks.holds("same_input"));
        file.write_all(b"three\n").unwrap();
        count(&files, &checks);
        assert!(!checks.holds("same_input"));
    }
}
