//! The Redis protocol: requests out of a stream of bytes, and replies into a buffer.

use expiry_examples::Done;
use memchr::memchr;
use std::ops::{Range, RangeBounds};

/// A longer bulk is refused, as soon as its length is known.
pub const MAX_BULK: usize = 512 << 20;
/// All bytes of one request.
pub const MAX_REQUEST: usize = 1 << 30;
const MAX_ARGUMENTS: i64 = 1 << 20;
/// The longest inline request, and the longest line with a length.
const MAX_LINE: usize = 64 << 10;
/// How much a connection reads at once, at least and at most.
const READ: (usize, usize) = (16 << 10, 64 << 10);
const QUOTES: &str = "unbalanced quotes in request";

/// One request: its command's name and arguments, lent from the buffer that they were read into.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    buffer: &'a [u8],
    words: &'a [Range<usize>],
}

impl<'a> Request<'a> {
    pub fn len(self) -> usize {
        self.words.len()
    }

    /// The word at this place; the command's name is at 0. Panics where there is none.
    pub fn word(self, at: usize) -> &'a [u8] {
        &self.buffer[self.words[at].clone()]
    }

    /// The words from this place on.
    pub fn from(self, at: usize) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.words[at..].iter().map(move |word| &self.buffer[word.clone()])
    }
}

/// What has been read of a client's requests. It goes on where it stopped when more has come, so
/// each byte is looked at once, however the network cuts them. Only an unfinished line, which has
/// at most 64 kB, is searched again for its end.
#[derive(Debug, Default)]
pub struct Requests {
    buffer: Vec<u8>,
    /// Where the request begins that is being read.
    begin: usize,
    /// Up to where it has been understood.
    at: usize,
    /// Its words so far, counted from `begin`, so that they stay as they are when the bytes before
    /// it go. Those of a whole request stay until the next one is asked for.
    words: Vec<Range<usize>>,
    /// Number of its words that have yet to come.
    missing: usize,
    /// Length of the bulk that is under way.
    bulk: Option<i64>,
}

impl Requests {
    /// The next whole request; `None` if more has to be read first. After an error the connection
    /// cannot go on: where the next request begins is unknown.
    pub fn next(&mut self) -> Done<Option<Request<'_>>> {
        if self.missing == 0 {
            self.words.clear();
        }
        while self.missing > 0 || self.words.is_empty() {
            if !(if self.missing > 0 { self.argument()? } else { self.head()? }) {
                return Ok(None);
            }
        }
        Ok(Some(Request { buffer: &self.buffer[self.begin..], words: &self.words }))
    }

    /// The buffer, for appending what is read next.
    pub fn room(&mut self) -> &mut Vec<u8> {
        let done = std::mem::take(&mut self.begin);
        self.buffer.drain(..done);
        self.at -= done;
        let expected = self.bulk.map_or(0, |bulk| self.at + bulk as usize + 2 - self.buffer.len());
        self.buffer.reserve(expected.clamp(READ.0, READ.1));
        &mut self.buffer
    }

    /// Gives the memory back if no request is under way, so that an idle connection has none.
    pub fn rest(&mut self) {
        if self.missing == 0 && self.at == self.buffer.len() {
            *self = Requests::default();
        }
    }

    /// Reads an inline request, or how many words the next one has. False if it is not all there.
    fn head(&mut self) -> Done<bool> {
        self.begin = self.at;
        match self.buffer.get(self.at) {
            None => Ok(false),
            Some(b'*') => {
                let count = self.number("mbulk count string", "multibulk", ..=MAX_ARGUMENTS)?;
                self.missing = count.unwrap_or(0).max(0) as usize;
                Ok(count.is_some())
            }
            Some(_) => match self.line("inline request")? {
                None => Ok(false),
                Some(line) => self.split(line).map(|()| true),
            },
        }
    }

    /// Reads a word: a bulk. False if it is not all there.
    fn argument(&mut self) -> Done<bool> {
        if self.bulk.is_none() {
            self.bulk = match self.buffer.get(self.at) {
                Some(b'$') => self.number("bulk count string", "bulk", 0..=MAX_BULK as i64)?,
                Some(&other) => {
                    return Err(format!("expected '$', got '{}'", char::from(other)).into());
                }
                None => None,
            };
        }
        let Some(length) = self.bulk else {
            return Ok(false);
        };
        let end = self.at + length as usize;
        if end - self.begin > MAX_REQUEST {
            return Err("too big request".into());
        }
        match self.buffer.get(end..end + 2) {
            None => return Ok(false),
            Some(b"\r\n") => {}
            Some(_) => return Err("expected CRLF after a bulk".into()),
        }
        self.words.push(self.at - self.begin..end - self.begin);
        (self.at, self.bulk, self.missing) = (end + 2, None, self.missing - 1);
        Ok(true)
    }

    /// The number after the mark with which the next line begins. `None` if it is not all there.
    fn number(
        &mut self,
        line: &str,
        kind: &str,
        range: impl RangeBounds<i64>,
    ) -> Done<Option<i64>> {
        let Some(line) = self.line(line)? else {
            return Ok(None);
        };
        let number = integer(&self.buffer[line.start + 1..line.end]);
        match number.filter(|number| range.contains(number)) {
            None => Err(format!("invalid {kind} length").into()),
            number => Ok(number),
        }
    }

    /// Where the next line is, without its end.
    fn line(&mut self, what: &str) -> Done<Option<Range<usize>>> {
        let rest = &self.buffer[self.at..];
        let end = memchr(b'\n', rest);
        if end.unwrap_or(rest.len()) > MAX_LINE {
            return Err(format!("too big {what}").into());
        }
        Ok(end.map(|end| {
            let (begin, cr) = (self.at, end > 0 && rest[end - 1] == b'\r');
            self.at += end + 1;
            begin..begin + end - usize::from(cr)
        }))
    }

    /// Splits an inline request at its spaces, but not those between quotes. It unquotes in place:
    /// a word is never longer than its quotation.
    fn split(&mut self, line: Range<usize>) -> Done {
        let text = &mut self.buffer[line];
        let mut at = 0;
        while let Some(begin) = (at..text.len()).find(|&at| !text[at].is_ascii_whitespace()) {
            let (mut end, mut quote) = (begin, None);
            at = begin;
            loop {
                let (byte, width) = match (quote, &text[at..]) {
                    (None, []) => break,
                    (None, [space, ..]) if space.is_ascii_whitespace() => break,
                    (None, [mark @ (b'"' | b'\''), ..]) => {
                        (quote, at) = (Some(*mark), at + 1);
                        continue;
                    }
                    (Some(mark), [byte, rest @ ..])
                        if *byte == mark && rest.first().is_none_or(u8::is_ascii_whitespace) =>
                    {
                        (quote, at) = (None, at + 1);
                        continue;
                    }
                    (Some(mark), [byte, ..]) if *byte == mark => return Err(QUOTES.into()),
                    (Some(_), []) => return Err(QUOTES.into()),
                    (Some(b'"'), [b'\\', b'x', high, low, ..])
                        if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
                    {
                        let digit = |digit: u8| char::from(digit).to_digit(16).unwrap_or(0) as u8;
                        (digit(*high) << 4 | digit(*low), 4)
                    }
                    (Some(b'"'), [b'\\', escaped, ..]) => {
                        let from = b"ntrba".iter().position(|from| from == escaped);
                        (from.map_or(*escaped, |at| b"\n\t\r\x08\x07"[at]), 2)
                    }
                    (Some(b'\''), [b'\\', b'\'', ..]) => (b'\'', 2),
                    (_, [byte, ..]) => (*byte, 1),
                };
                text[end] = byte;
                (end, at) = (end + 1, at + width);
            }
            self.words.push(begin..end);
        }
        Ok(())
    }
}

/// A number in its one spelling: no sign but a minus, no leading zeros, no spaces.
pub fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let plain = digits.first()?.is_ascii_digit() && (digits[0] != b'0' || text == b"0");
    std::str::from_utf8(text).ok().filter(|_| plain)?.parse().ok()
}

/// Replies that have yet to be sent. A reply that finds more than the limit waiting is an error,
/// and the connection must end.
#[derive(Debug)]
pub struct Replies {
    pub bytes: Vec<u8>,
    /// The version of the protocol, 2 or 3, that the client has asked for.
    pub version: i64,
    limit: usize,
}

impl Replies {
    /// Replies of which at most about `limit` bytes wait.
    pub fn new(limit: usize) -> Self {
        Replies { bytes: Vec::new(), version: 2, limit }
    }

    pub fn overflows(&self) -> bool {
        self.bytes.len() > self.limit
    }

    pub fn simple(&mut self, text: &str) -> Done {
        self.line(b'+', text.as_bytes())
    }

    /// An error, with the code that follows a `-`, or else `ERR`. Its text may have words of the
    /// client, which could break the line.
    pub fn error(&mut self, text: &str) -> Done {
        let text = text.replace(['\r', '\n'], " ");
        match text.strip_prefix('-') {
            Some(coded) => self.line(b'-', coded.as_bytes()),
            None => self.line(b'-', format!("ERR {text}").as_bytes()),
        }
    }

    pub fn integer(&mut self, number: impl itoa::Integer) -> Done {
        self.number(b':', number)
    }

    pub fn bulk(&mut self, bytes: impl AsRef<[u8]>) -> Done {
        let bytes = bytes.as_ref();
        self.number(b'$', bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// A bulk, or the null where there is none.
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) -> Done {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None if self.version == 3 => self.line(b'_', b""),
            None => self.line(b'$', b"-1"),
        }
    }

    /// An array of bulks.
    pub fn bulks(&mut self, bulks: &[impl AsRef<[u8]>]) -> Done {
        self.array(bulks.len())?;
        bulks.iter().try_for_each(|bulk| self.bulk(bulk))
    }

    /// The next `length` replies are one.
    pub fn array(&mut self, length: usize) -> Done {
        self.number(b'*', length)
    }

    /// The next `pairs` pairs of replies are one.
    pub fn map(&mut self, pairs: usize) -> Done {
        match self.version {
            3 => self.number(b'%', pairs),
            _ => self.array(2 * pairs),
        }
    }

    /// As [`array`](Self::array), of a message that answers no request.
    pub fn push(&mut self, length: usize) -> Done {
        self.number(if self.version == 3 { b'>' } else { b'*' }, length)
    }

    fn number(&mut self, kind: u8, number: impl itoa::Integer) -> Done {
        self.line(kind, itoa::Buffer::new().format(number).as_bytes())
    }

    fn line(&mut self, kind: u8, text: &[u8]) -> Done {
        if self.overflows() {
            return Err("too many replies wait".into());
        }
        self.bytes.push(kind);
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests/protocol.rs"]
mod tests;
