//! `RotatingMap`.

#[path = "../../src/rotating/tests/drive.rs"]
mod drive;

use crate::steps;
use arbitrary::{Result, Unstructured};
use drive::{Crowded, Step};
use expiry::RotatingMap;

fn step(bytes: &mut Unstructured<'_>) -> Result<Step> {
    let key = bytes.int_in_range(0..=23u8)?;
    Ok(match bytes.int_in_range(0..=24u8)? {
        0..=7 => Step::Put(key),
        8..=10 => Step::Touch(key),
        11..=14 => Step::Remove(key),
        15 | 16 => Step::Change(key),
        17 | 18 => Step::Rotate(bytes.int_in_range(0..=5)?, bytes.int_in_range(0..=3)?),
        19 | 20 => Step::RotateWith(bytes.int_in_range(0..=5)?),
        21 => Step::PopDead,
        22 => Step::Shrink,
        23 => Step::Reserve(bytes.int_in_range(0..=39)?),
        _ => Step::Clear,
    })
}

/// Runs a history of one `RotatingMap`.
pub(crate) fn rotating(bytes: &[u8]) {
    let bytes = &mut Unstructured::new(bytes);
    let generations = bytes.int_in_range(2..=5);
    let mask = bytes.choose(&[u64::MAX, 0, 3, u64::MAX << 60]).copied();
    let (Ok(generations), Ok(mask), Ok(steps)) = (generations, mask, steps(bytes, step)) else {
        return;
    };
    drive::run(generations, Crowded(mask), &steps, |_, _| ());
}
