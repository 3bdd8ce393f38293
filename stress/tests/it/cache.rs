//! `stress cache`, end to end through the binary, about a second each.

use crate::common::{run, with_all};

#[test]
fn a_backend_that_fails_behind_a_map() {
    let counts = ["evicted", "expired", "removed", "replaced", "failed_for_others"];
    for seed in 3..6 {
        with_all(&counts, 0.5, |seconds| {
            run(&format!("cache --seconds {seconds} --threads 4 --allowance 1m --seed {seed}"))
        });
    }
}
