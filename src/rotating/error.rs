//! Why a map could not be made.

use std::fmt;

/// Why a [`RotatingMap`](crate::RotatingMap) could not be made.
///
/// # Examples
///
/// ```
/// use expiry::{GenerationsError, RotatingMap};
///
/// let refused = RotatingMap::<u64, u64>::with_generations(1).unwrap_err();
/// assert_eq!(refused, GenerationsError::TooFew { generations: 1 });
/// assert_eq!(refused.to_string(), "1 generations are too few; use at least 2");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GenerationsError {
    /// Fewer than two generations: an entry could die the moment it was put.
    TooFew {
        /// The number that was asked for.
        generations: usize,
    },
    /// More than [`RotatingMap::MAX_GENERATIONS`](crate::RotatingMap::MAX_GENERATIONS).
    TooMany {
        /// The number that was asked for.
        generations: usize,
    },
}

impl fmt::Display for GenerationsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GenerationsError::TooFew { generations } => {
                write!(f, "{generations} generations are too few; use at least 2")
            }
            GenerationsError::TooMany { generations } => write!(
                f,
                "{generations} generations are too many; use at most {MAX_GENERATIONS}, and rotate less often"
            ),
        }
    }
}

impl std::error::Error for GenerationsError {}

/// See [`RotatingMap::MAX_GENERATIONS`](super::RotatingMap::MAX_GENERATIONS).
pub(super) const MAX_GENERATIONS: usize = 1 << 16;
