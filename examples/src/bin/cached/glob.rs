//! Patterns of keys: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a byte that stands for itself.

/// Whether the whole text matches. Takes at most the product of both lengths: a `*` that was too
/// short is made longer, and an earlier one never again.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // After the last star, and where the text begins that comes after what the star stands for.
    let mut star = None;
    while from < text.len() {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, from));
        } else if let Some(next) = element(pattern, at, text[from]) {
            (at, from) = (next, from + 1);
        } else if let Some((after, begin)) = star {
            (at, from) = (after, begin + 1);
            star = Some((at, from));
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

/// Where the next element begins, if the one at this place matches the byte.
fn element(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match &pattern[at..] {
        [] => None,
        [b'?', ..] => Some(at + 1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(at + 2),
        [b'[', b'^', ..] => class(pattern, at + 2, byte, false),
        [b'[', ..] => class(pattern, at + 1, byte, true),
        [plain, ..] => (*plain == byte).then_some(at + 1),
    }
}

/// As `element`, of a class whose members begin here, and that the byte is to be in or not.
fn class(pattern: &[u8], mut at: usize, byte: u8, within: bool) -> Option<usize> {
    let mut found = false;
    loop {
        let (matches, width) = match &pattern[at..] {
            [] => return (found == within).then_some(at),
            [b']', ..] => return (found == within).then_some(at + 1),
            [b'\\', escaped, ..] => (*escaped == byte, 2),
            [low, b'-', high, ..] => ((*low.min(high)..=*low.max(high)).contains(&byte), 3),
            [plain, ..] => (*plain == byte, 1),
        };
        found |= matches;
        at += width;
    }
}

#[cfg(test)]
#[path = "tests/glob.rs"]
mod tests;
