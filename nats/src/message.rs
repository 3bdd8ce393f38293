//! Parts of messages: their headers, and keys in their subjects.

use crate::NatsError;
use async_nats::HeaderMap;

/// The longest key, in bytes.
const LONGEST_KEY: usize = 256;
/// A random number of the worker, or of the claim, that wrote the message.
pub(crate) const INCARNATION: &str = "Expiry-Incarnation";
/// The server takes the message only if this is the subject's last sequence.
pub(crate) const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";

pub(crate) fn header<'a>(headers: &'a Option<HeaderMap>, name: &str) -> Option<&'a str> {
    headers.as_ref()?.get(name).map(|value| value.as_str())
}

/// A key as one token of a subject.
pub(crate) fn token(key: &[u8]) -> Result<String, NatsError> {
    check_key(key).map(|()| encoded(key))
}

pub(crate) fn check_key(key: &[u8]) -> Result<(), NatsError> {
    NatsError::within("the length of a key", key.len(), 1..=LONGEST_KEY, "1 to 256 bytes")
}

/// What is not in `[A-Za-z0-9_-]` becomes `=XX`.
pub(crate) fn encoded(key: &[u8]) -> String {
    let mut token = String::with_capacity(key.len());
    for &byte in key {
        if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' {
            token.push(byte.into());
        } else {
            token += &format!("={byte:02X}");
        }
    }
    token
}

pub(crate) fn decoded(token: &str) -> Option<Vec<u8>> {
    let mut bytes = token.bytes();
    let mut key = Vec::with_capacity(token.len());
    while let Some(byte) = bytes.next() {
        key.push(if byte == b'=' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            u8::try_from(digit()? * 16 + digit()?).ok()?
        } else {
            byte
        });
    }
    Some(key)
}
