//! The validator of what the module's head promises: tests and fuzzer run it after every step.

use super::{Geometry, Payload, Record, Wheel, LATE, PENDING, READY};
use std::collections::HashSet;

/// Checks the invariants of the module's head, for all records, dead or alive. Works places out by
/// division, level by level, not by the function under test.
pub(crate) fn validate<P: Payload>(wheel: &Wheel<P>) {
    let (nodes, lists, geometry) = (&wheel.nodes, &wheel.lists, wheel.geometry());
    lists.check();
    let rows = geometry.rows();
    let (cursor, now) = (wheel.clock.cursor(), wheel.now());
    assert_eq!(cursor % geometry.granularity(), 0, "cursor is not a start");
    let lag = now.wrapping_sub(cursor);
    assert!(lag < 1 << 62, "W-order: the cursor");
    let wake = wheel.clock.wake().wrapping_sub(cursor);
    assert!(lag <= wake && wake < 1 << 62, "W-wake");
    let mut live = HashSet::new();
    for row in 0..rows {
        let heads = if row + 1 == rows { 1 } else { 64 };
        for bucket in 0..heads {
            let head = (row as u32) * 64 + bucket;
            let records: Vec<Record> = lists.iter(head).copied().collect();
            let bit = lists.bits(row) >> bucket & 1;
            assert_eq!(bit == 1, !records.is_empty(), "W-bits {row}:{bucket}");
            for record in &records {
                assert!(nodes.has(record.id), "W-live: no node");
                assert_eq!(record.generation % 2, 1, "W-live: of nothing");
                if nodes.is_live(record.id, record.generation) {
                    assert_eq!(nodes.due(record.id), Some(record.due), "W-live: due");
                    assert!(live.insert(record.id), "W-live: twice");
                }
            }
            if records.is_empty() {
                continue;
            }
            if row == 0 {
                assert!([READY, PENDING, LATE].contains(&head));
                assert_eq!(wheel.clock.wake(), now, "W-wake: {head}");
                continue;
            }
            let bound = lists.bound(head);
            for record in &records {
                let ahead = record.due.wrapping_sub(cursor);
                assert!(ahead <= (1 << 63) + lag, "W-order");
                assert_eq!(place(geometry, record.due, cursor), (row, bucket), "W-place");
                assert!(bound.wrapping_sub(cursor) <= ahead, "W-bound");
            }
            if row + 1 < rows {
                assert_eq!(place(geometry, bound, cursor), (row, bucket), "W-bound");
            } else {
                assert_eq!(place(geometry, bound, cursor).0, row, "W-bound");
            }
            let begins = match row {
                1 => bound,
                _ => bound - bound % geometry.bucket_width(row),
            };
            assert!(wake <= begins.wrapping_sub(cursor).max(lag), "W-wake");
        }
        assert_eq!(lists.bits(row) >> (heads - 1) >> 1, 0, "W-bits {row}");
    }
    for record in lists.iter(PENDING) {
        let ahead = record.due.wrapping_sub(cursor);
        assert!(ahead <= (1 << 63) + lag, "W-order, pending");
    }
    let scheduled = (0..nodes.len() as u32).filter(|id| nodes.is_scheduled(*id));
    assert_eq!(scheduled.count(), wheel.len(), "W-live: len");
    assert_eq!(live.len(), wheel.len(), "W-live: lost");
    assert_eq!(wheel.most, super::most(nodes.len()), "W-dead");
    // A circle of the broom may be needed before anything is thrown out.
    let most = wheel.most + wheel.most / 8 + 2 * 577;
    assert!(lists.records() <= most, "W-dead: too many");
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
