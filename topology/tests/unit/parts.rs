//! Tests of `src/parts.rs`.

use super::*;
use crate::{sink, TopologyBuilder};
use std::time::Duration;

/// Tasks that share a spout emit each message once, and tasks that share a bolt keep all.
#[test]
fn instances_share_messages_and_notes() {
    let (spout, bolt) = (VecSpout::new(0..1_000_u64), Collect::new());
    let topology = TopologyBuilder::new();
    let numbers = topology.spout("numbers", spout.instances()).parallelism(3);
    topology
        .bolt("picky", |_| sink(|n: &u64, _| if *n == 500 { Err("no") } else { Ok(()) }))
        .shuffle(&numbers);
    topology.bolt("kept", bolt.instances()).parallelism(3).shuffle(&numbers);
    topology.start().unwrap().wait(Duration::from_secs(60)).unwrap();
    let (mut kept, mut ended) = (bolt.take(), spout.acked());
    let failed: Vec<u64> = spout.failed().into_iter().map(|(id, _)| id).collect();
    assert_eq!(failed, [500]);
    ended.extend(failed);
    kept.sort_unstable();
    ended.sort_unstable();
    assert!(kept.into_iter().eq(0..1_000) && ended.into_iter().eq(0..1_000));
    assert_eq!(bolt.all(), []);
}
