//! What ids of 64 bits have in common: their text, and how they are read back.

use std::fmt;

/// A text that is no id. Ids are read as they are displayed.
///
/// ```
/// use expiry::SessionId;
///
/// let id: SessionId = "0x00ab00000000001f".parse()?;
/// assert_eq!(id.to_string(), "0x00ab00000000001f");
/// assert_eq!("1f".parse::<SessionId>().unwrap_err().to_string(), "an id is 0x and 16 hexadecimal digits");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseIdError(());

impl fmt::Display for ParseIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id is 0x and 16 hexadecimal digits")
    }
}

impl std::error::Error for ParseIdError {}

/// Reads what `{:#018x}` has written.
pub(crate) fn parse(text: &str) -> Result<u64, ParseIdError> {
    let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 16);
    // `from_str_radix` takes a sign.
    let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).ok_or(ParseIdError(()))
}

/// `Display`, `Debug` and `FromStr` of a newtype of an id; with `bits`, also the conversions from
/// and to its bits.
macro_rules! text_of_id {
    ($id:ident, bits) => {
        $crate::kit::id::text_of_id!($id);

        impl From<u64> for $id {
            fn from(bits: u64) -> Self {
                $id(bits)
            }
        }

        impl From<$id> for u64 {
            fn from(id: $id) -> Self {
                id.0
            }
        }
    };
    ($id:ident) => {
        impl std::fmt::Display for $id {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{:#018x}", self.0)
            }
        }

        impl std::fmt::Debug for $id {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({self})", stringify!($id))
            }
        }

        impl std::str::FromStr for $id {
            type Err = $crate::ParseIdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $crate::kit::id::parse(text).map($id)
            }
        }
    };
}

pub(crate) use text_of_id;
