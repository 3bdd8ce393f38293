//! The wheel against an oracle that knows nothing of buckets, against a validator of its structure,
//! and against the bugs that wheels before it had.

mod model;
mod named;
mod random;

use super::{Geometry, GeometryError, Pop, Wheel, LATE, PENDING, READY};

/// Marsaglia's xorshift: deterministic, and no dependency.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// In `0..n`.
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// At most `bits` bits, lengths being equally likely.
    fn spread(&mut self, bits: u64) -> u64 {
        let length = self.below(bits + 1);
        self.next() & ((1 << length) - 1)
    }
}

fn geometry(shift: u32, bits: &[u32]) -> Geometry {
    Geometry::new(shift, bits).unwrap()
}

/// The presets, and shapes in which carries, single buckets and overflows are frequent.
fn geometries() -> Vec<Geometry> {
    vec![
        Geometry::TICKS,
        Geometry::CAFFEINE,
        Geometry::MILLIS,
        geometry(0, &[1]),
        geometry(0, &[2, 2]),
        geometry(3, &[1, 2, 1]),
        geometry(1, &[1, 1, 1, 1, 1, 1, 1, 1]),
        geometry(15, &[6, 6, 6, 6, 6, 6, 6, 6]),
        geometry(62, &[1]),
    ]
}

const ORIGINS: [u64; 6] = [
    0,
    u64::MAX - 5,
    i64::MIN as u64,
    i64::MIN as u64 - 3,
    i64::MAX as u64 - 40,
    0x1234_5678_9abc_def0,
];

/// All the work a test could want.
fn plenty() -> usize {
    usize::MAX
}

/// Pops at `now` until nothing is left; the ids in order.
fn drain(wheel: &mut Wheel, now: u64) -> Vec<u32> {
    let mut fired = Vec::new();
    while let Pop::Due { id, due } = wheel.pop(now, &mut plenty()) {
        assert!(now.wrapping_sub(due) as i64 >= 0, "{id} fired early");
        fired.push(id);
    }
    validate(wheel);
    assert!(keeps_up(wheel));
    fired
}

/// Whether nothing of what time has brought is left to do.
fn keeps_up(wheel: &Wheel) -> bool {
    wheel.links.bits(0) == 0 && wheel.cursor == wheel.geometry.floor(wheel.now)
}

/// Checks the invariants of the module's head. Places are worked out from shifts and remainders,
/// one level after the other, not by the function under test.
fn validate(wheel: &Wheel) {
    let (links, geometry) = (&wheel.links, &wheel.geometry);
    let rows = geometry.rows();
    let (cursor, now) = (wheel.cursor, wheel.now);
    assert_eq!(cursor % geometry.granularity(), 0, "cursor is not a start");
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
                continue;
            }
            let bound = links.due(head);
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
        let due = links.due(node);
        assert!(due.wrapping_sub(cursor) as i64 >= 0, "W-order, pending");
    }
    for &node in links.ring(READY).iter().chain(&links.ring(LATE)) {
        assert!(now.wrapping_sub(links.due(node)) as i64 >= 0, "not due");
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
