//! The structural validator: what the head of the module promises, checked after every step of the tests
//! and of the fuzzer.

use super::{Geometry, Wheel, LATE, PENDING, READY};

/// Checks the invariants of the module's head. Places are worked out from shifts and remainders,
/// one level after the other, not by the function under test.
pub(in crate::wheel) fn validate<P: Default>(wheel: &Wheel<P>) {
    let (links, geometry) = (&wheel.links, &wheel.geometry);
    let rows = geometry.rows();
    let (cursor, now) = (wheel.cursor, wheel.now);
    assert_eq!(cursor % geometry.granularity(), 0, "cursor is not a start");
    assert!(now.wrapping_sub(cursor) < 1 << 62, "W-order: the cursor");
    let wake = wheel.wake.wrapping_sub(cursor);
    assert!(now.wrapping_sub(cursor) <= wake && wake < 1 << 62, "W-wake");
    let mut nodes = 0;
    for row in 0..rows {
        let heads = if row + 1 == rows { 1 } else { 64 };
        for bucket in 0..heads {
            let head = (row as u32) * 64 + bucket;
            let ring = links.ring(head);
            nodes += ring.len();
            let bit = links.bits(row) >> bucket & 1;
            assert_eq!(bit == 1, !ring.is_empty(), "W-bits {row}:{bucket}");
            if row == 0 {
                assert!(ring.is_empty() || [READY, PENDING, LATE].contains(&head));
                assert!(ring.is_empty() || wheel.wake == now, "W-wake: {head}");
                continue;
            }
            let bound = links.due(head);
            if !ring.is_empty() {
                let from = match row {
                    1 => bound,
                    _ => bound - bound % geometry.bucket_width(row),
                };
                assert!(
                    wake <= from.wrapping_sub(cursor).max(now.wrapping_sub(cursor)),
                    "W-wake"
                );
            }
            for &node in &ring {
                let due = links.due(node);
                let ahead = due.wrapping_sub(cursor);
                let lag = now.wrapping_sub(cursor);
                assert!(ahead <= (1 << 63) + lag, "W-order");
                assert_eq!(place(geometry, due, cursor), (row, bucket), "W-place");
                assert!(bound.wrapping_sub(cursor) <= ahead, "W-bound");
            }
            if !ring.is_empty() && row + 1 < rows {
                assert_eq!(place(geometry, bound, cursor), (row, bucket), "W-bound");
            }
            if !ring.is_empty() && row + 1 == rows {
                assert_eq!(place(geometry, bound, cursor).0, row, "W-bound");
            }
        }
        assert_eq!(links.bits(row) >> (heads - 1) >> 1, 0, "W-bits {row}");
    }
    for &node in &links.ring(PENDING) {
        let ahead = links.due(node).wrapping_sub(cursor);
        assert!(
            ahead <= (1 << 63) + now.wrapping_sub(cursor),
            "W-order, pending"
        );
    }
    assert_eq!(nodes, wheel.len(), "W-links: len");
    assert_eq!(nodes, links.linked(), "W-links: nodes outside the lists");
}

/// Row and bucket in which `due` belongs, by dividing from the coarsest level down.
fn place(geometry: &Geometry, due: u64, cursor: u64) -> (usize, u32) {
    let mut width = geometry.period();
    if due / width != cursor / width {
        return (geometry.levels() + 1, 0);
    }
    for row in (1..=geometry.levels()).rev() {
        let outer = width;
        width = geometry.bucket_width(row);
        let (a, b) = (due % outer / width, cursor % outer / width);
        if a != b || row == 1 {
            return (row, a as u32);
        }
    }
    unreachable!("a geometry has a level")
}
