//! How threads wait, and what wakes them.

use crate::common::*;
use expiry_topology::{TopologyBuilder, WaitStrategy};

/// All messages come through, however the threads wait. Each waits for the other one.
#[test]
fn threads_wait_in_each_way() {
    use WaitStrategy::{Park, Progressive};
    let progressive = Progressive { spins: 2, yields: 1 };
    let longest = Progressive { spins: u32::MAX, yields: u32::MAX };
    for strategy in [progressive, longest, Park] {
        let (told, builder) = (Log::new(), TopologyBuilder::new());
        builder.wait(strategy);
        let numbers = builder.spout("numbers", numbers(0..100, &told)).max_pending(1);
        acks_all(&builder, "sink", &numbers);
        let topology = builder.start().unwrap();
        topology.wait(SECOND * 60).unwrap();
        topology.kill();
        assert_eq!(acks(&told).len(), 100, "{strategy:?}");
    }
}
