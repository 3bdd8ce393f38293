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
