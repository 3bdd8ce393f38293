//! What a word is, and how a line is taken apart.

use std::collections::HashMap;
use std::ops::Range;

/// The longest word, in bytes. Longer runs are cut into pieces of this length, counted from the
/// run's start.
pub const LONGEST_WORD: usize = 256;

/// How often each word occurs.
pub type Counts = HashMap<Box<[u8]>, u64, foldhash::fast::RandomState>;

/// Whether a byte belongs to a word: ASCII letters and digits, the underscore, and everything above
/// ASCII.
#[inline]
pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// The places of the words in a line, in order.
pub fn words(line: &[u8]) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + line[at..].iter().position(|&byte| is_word(byte))?;
        let rest = &line[start..line.len().min(start + LONGEST_WORD)];
        at = start + rest.iter().position(|&byte| !is_word(byte)).unwrap_or(rest.len());
        Some(start..at)
    })
}

/// Adds `more` to the count of `word`.
#[inline]
pub fn add(counts: &mut Counts, word: &[u8], more: u64) {
    if let Some(count) = counts.get_mut(word) {
        *count += more;
    } else {
        counts.insert(word.into(), more);
    }
}

/// A word for people.
pub fn show(word: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &[u8]) -> Vec<&[u8]> {
        words(line).map(|place| &line[place]).collect()
    }

    #[test]
    fn words_are_runs_and_long_ones_are_cut() {
        let naive = "naïve café".as_bytes();
        let cases: [(&[u8], &[&[u8]]); 4] = [
            (b"", &[]),
            (b" \t+-", &[]),
            (b"let x_1 = f(y);", &[b"let", b"x_1", b"f", b"y"]),
            (naive, &["naïve".as_bytes(), "café".as_bytes()]),
        ];
        for (line, words) in cases {
            assert_eq!(split(line), words);
        }
        let line = vec![b'a'; 2 * LONGEST_WORD + 3];
        let lengths: Vec<usize> = split(&line).iter().map(|word| word.len()).collect();
        assert_eq!(lengths, [LONGEST_WORD, LONGEST_WORD, 3]);
        assert_eq!(split(&line[..LONGEST_WORD]).len(), 1);
    }
}
