//! Numbers that look random and are functions of others.

/// What consecutive numbers are apart before they are mixed: 2^64 by the golden ratio.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of splitmix64: one to one, and every bit of the input moves every bit of the
/// output.
#[inline]
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(STEP);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
