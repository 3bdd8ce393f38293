//! Names that become part of a subject or of a stream's name.

use crate::NatsError;

/// Checks a name: 1 to 64 letters, digits, `_` or `-`. Such a name is one token of a subject.
pub(crate) fn check(what: &'static str, name: &str) -> Result<(), NatsError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if (1..=64).contains(&name.len()) && name.bytes().all(fits) {
        return Ok(());
    }
    let name = name.to_string();
    Err(NatsError::Name { what, name })
}
