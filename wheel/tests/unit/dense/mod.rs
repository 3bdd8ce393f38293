//! The wheel against a validator of its structure, and against the bugs that wheels before it had.

mod named;
mod random;

use super::{Geometry, Pop, Wheel, LATE, READY};
use crate::GeometryError;

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

/// The presets, and shapes in which carries, single buckets and overflows are frequent. Miri gets
/// the small ones.
fn geometries() -> Vec<Geometry> {
    let mut all = vec![
        geometry(0, &[1]),
        geometry(0, &[2, 2]),
        geometry(3, &[1, 2, 1]),
        geometry(1, &[1, 1, 1, 1, 1, 1, 1, 1]),
        geometry(61, &[1]),
    ];
    if !cfg!(miri) {
        let presets = [Geometry::TICKS, Geometry::CAFFEINE, Geometry::MICROS, Geometry::NANOS_1MS];
        all.extend(presets);
        all.push(geometry(14, &[6, 6, 6, 6, 6, 6, 6, 6]));
    }
    all
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
    wheel.lists.bits(0) == 0 && wheel.clock.wake() != wheel.now()
}

/// The invariants, and: what is known to be due is due. (True only while the clock keeps to its
/// half of the circle; these tests do.)
fn validate(wheel: &Wheel) {
    super::validate::validate(wheel);
    for head in [READY, LATE] {
        for record in wheel.lists.iter(head) {
            assert!(wheel.now().wrapping_sub(record.due) as i64 >= 0, "not due");
        }
    }
}
