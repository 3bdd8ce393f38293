//! The direct count: one thread reads one byte after the other. It shares nothing with the pipeline
//! but the definition of a word.

use super::files::Files;
use super::words::{add, is_word, Counts, LONGEST_WORD};
use crate::checks::Checks;
use std::fs::File;
use std::io::{BufReader, Read};

/// What is in the files.
#[derive(Debug, Default)]
pub struct Direct {
    pub counts: Counts,
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

    /// Counts one text, as far as it can be read; returns that length.
    pub fn text(&mut self, text: impl Read) -> u64 {
        let bytes = BufReader::with_capacity(64 << 10, text).bytes();
        let (mut word, mut length, mut last) = (Vec::with_capacity(LONGEST_WORD), 0, b'\n');
        for byte in bytes.map_while(Result::ok) {
            if is_word(byte) {
                word.push(byte);
            }
            if !is_word(byte) || word.len() == LONGEST_WORD {
                self.word(&mut word);
            }
            self.lines += u64::from(byte == b'\n');
            (length, last) = (length + 1, byte);
        }
        self.word(&mut word);
        self.lines += u64::from(last != b'\n');
        length
    }
}

/// Counts every file that the pipeline has read, and checks that it is still the same length.
pub fn count(files: &Files, checks: &Checks) -> Direct {
    let mut direct = Direct::default();
    for (number, source) in (0..).zip(&files.list) {
        crate::watch::moved(number);
        let Some(&read) = source.read.get() else {
            continue;
        };
        let length = File::open(&source.path).map_or(0, |file| direct.text(file));
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
    fn a_file_that_has_changed_is_a_violation() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"one two\n").unwrap();
        let files = Files::list(Some(file.path())).unwrap();
        files.list[0].read.set(8).unwrap();
        let checks = Checks::new(&["same_input"]);
        assert_eq!(count(&files, &checks).words, 2);
        assert!(checks.holds("same_input"));
        file.write_all(b"three\n").unwrap();
        count(&files, &checks);
        assert!(!checks.holds("same_input"));
    }
}
