//! Which bits of a time are which level of the wheel.

use std::{error, fmt};

/// Log of the most buckets a level can have: one bitmap word.
pub(super) const ROW_BITS: u32 = 6;

/// Log of the longest period. Two bits are left: one for what is past and what is future, one for
/// how far the wheel's cursor may be behind its clock.
const MAX_BITS: u32 = 62;

/// The most levels below the overflow.
pub(super) const MAX_LEVELS: usize = 8;

/// The shape of a wheel: how wide a finest bucket is, and how many buckets each level has.
///
/// A bucket of a level is as wide as the whole level below it. What does not fit below the top of
/// the coarsest level goes to the overflow, which any wheel has.
///
/// # Examples
///
/// ```
/// use expiry_wheel::{Geometry, TimerWheel};
///
/// for geometry in [Geometry::NANOS_1MS, Geometry::CAFFEINE] {
///     let mut wheel = TimerWheel::new(geometry, 0); // nanoseconds, in buckets of 1 ms and of 1 s
///     wheel.schedule(30_000_000_007, "reply");
///     assert!(wheel.pop(30_000_000_006).is_none()); // what fires does not depend on it
///     assert!(wheel.pop(30_000_000_007).is_some());
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Row (1 is the finest level) of the digit that a bit belongs to.
    row_of_bit: [u8; 64],
    /// Lowest bit of each row's digit; the overflow's is where the period begins. Row 0 is unused.
    shift: [u8; MAX_LEVELS + 2],
    /// Buckets of each row, less one; 0 for the overflow.
    mask: [u8; MAX_LEVELS + 2],
    levels: u8,
}

impl Geometry {
    /// Buckets of one unit, 7 levels of 64. For ticks of any length: 42 bits of them are 139 years
    /// of milliseconds.
    pub const TICKS: Geometry = preset(0, &[6, 6, 6, 6, 6, 6, 6]);

    /// Nanoseconds as Caffeine cuts them: 64 buckets of 1.07 s (2^30 ns), 64 of 1.14 min, 32 of
    /// 1.22 h, 4 of 1.63 days, and the overflow beyond 6.5 days.
    pub const CAFFEINE: Geometry = preset(30, &[6, 6, 5, 2]);

    /// Nanoseconds in finest buckets of 1.05 ms (2^20 ns), 7 levels of 64 up to 146 years.
    pub const NANOS_1MS: Geometry = preset(20, &[6, 6, 6, 6, 6, 6, 6]);

    /// Nanoseconds in finest buckets of 1.02 us (2^10 ns), 8 levels of 64 up to 9.1 years.
    pub const MICROS: Geometry = preset(10, &[6, 6, 6, 6, 6, 6, 6, 6]);

    /// Finest buckets of `2^shift` units, and `2^bits[n]` buckets on level *n*, finest first.
    ///
    /// # Errors
    /// Unless there are 1 to 8 levels of 1 to 6 bits each, and `shift` and `bits` sum to at most
    /// 62: the rest stays to the overflow, through which time runs on when it wraps.
    pub const fn new(shift: u32, bits: &[u32]) -> Result<Geometry, GeometryError> {
        if bits.is_empty() || bits.len() > MAX_LEVELS {
            return Err(GeometryError::Levels);
        }
        if shift > MAX_BITS {
            return Err(GeometryError::Width);
        }
        let mut geometry = Geometry {
            row_of_bit: [1; 64],
            shift: [0; MAX_LEVELS + 2],
            mask: [0; MAX_LEVELS + 2],
            levels: bits.len() as u8,
        };
        let mut low = shift;
        let mut row = 1;
        while row <= bits.len() {
            let wide = bits[row - 1];
            if wide < 1 || wide > ROW_BITS {
                return Err(GeometryError::Bits);
            }
            if low + wide > MAX_BITS {
                return Err(GeometryError::Width);
            }
            geometry.shift[row] = low as u8;
            geometry.mask[row] = (1u8 << wide) - 1;
            let mut bit = low;
            while bit < low + wide {
                geometry.row_of_bit[bit as usize] = row as u8;
                bit += 1;
            }
            low += wide;
            row += 1;
        }
        geometry.shift[row] = low as u8;
        while low < 64 {
            geometry.row_of_bit[low as usize] = row as u8;
            low += 1;
        }
        Ok(geometry)
    }

    /// Number of levels, without the overflow.
    #[must_use]
    pub const fn levels(&self) -> usize {
        self.levels as usize
    }

    /// Width of a finest bucket in units.
    #[inline]
    #[must_use]
    pub const fn granularity(&self) -> u64 {
        1 << self.shift[1]
    }

    /// Width of the coarsest level in units: the period of the wheel.
    #[must_use]
    pub const fn period(&self) -> u64 {
        1 << self.shift[self.levels as usize + 1]
    }

    /// Rows of lists: the levels, the overflow, and the one outside the levels.
    pub(super) const fn rows(&self) -> usize {
        self.levels as usize + 2
    }

    /// The start of the finest bucket that has `t`.
    #[inline]
    pub(super) const fn floor(&self, t: u64) -> u64 {
        self.bucket_start(1, t)
    }

    /// The start of the bucket that has `t` on the level of `row`; of the period, for the overflow.
    #[inline]
    pub(super) const fn bucket_start(&self, row: usize, t: u64) -> u64 {
        t >> self.shift[row] << self.shift[row]
    }

    /// The head under which `due` is filed: its row is that of the highest digit in which the two
    /// differ, its bucket the value of `due` there.
    #[inline]
    pub(super) const fn head(&self, due: u64, cursor: u64) -> u32 {
        let highest = ((due ^ cursor) | 1).ilog2();
        let row = self.row_of_bit[highest as usize];
        let digit = (due >> self.shift[row as usize]) as u8 & self.mask[row as usize];
        (row as u32) << ROW_BITS | digit as u32
    }
}

/// For the validator, which works places out by division.
#[cfg(any(test, fuzzing))]
impl Geometry {
    pub(super) fn bucket_width(&self, row: usize) -> u64 {
        1 << self.shift[row]
    }

    #[cfg(test)]
    pub(super) fn mask_of(&self, row: usize) -> u8 {
        self.mask[row]
    }
}

/// A geometry for a constant: what is wrong with it shows when compiling.
const fn preset(shift: u32, bits: &[u32]) -> Geometry {
    match Geometry::new(shift, bits) {
        Ok(geometry) => geometry,
        Err(_) => panic!("a preset keeps the rules of Geometry::new"),
    }
}

impl fmt::Debug for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let buckets = self.mask[1..=self.levels()].iter();
        f.debug_struct("Geometry")
            .field("granularity", &self.granularity())
            .field("buckets", &buckets.map(|&m| m + 1).collect::<Vec<_>>())
            .finish()
    }
}

/// Why a [`Geometry`] cannot be.
///
/// # Examples
///
/// ```
/// use expiry_wheel::{Geometry, GeometryError};
///
/// assert_eq!(Geometry::new(0, &[]), Err(GeometryError::Levels));
/// assert_eq!(Geometry::new(0, &[6, 7]), Err(GeometryError::Bits)); // 128 buckets
/// assert_eq!(Geometry::new(40, &[6, 6, 6, 6]), Err(GeometryError::Width));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GeometryError {
    /// There must be 1 to 8 levels.
    Levels,
    /// Each level must have 1 to 6 bits.
    Bits,
    /// Shift and bits must sum to at most 62.
    Width,
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GeometryError::Levels => "the levels of a wheel must be 1 to 8",
            GeometryError::Bits => "the bits of each level of a wheel must be 1 to 6",
            GeometryError::Width => "shift and bits of a wheel must sum to at most 62",
        })
    }
}

impl error::Error for GeometryError {}
