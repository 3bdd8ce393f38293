//! Tests of `src/run/assemble.rs`.

use crate::{Bolt, BoltCollector, ManualClock, TopologyBuilder, Tuple, VecSpout};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

/// Notes the edges of what comes, and sends it on.
struct Edges(Arc<Mutex<Vec<u64>>>);

impl Bolt<u64, u64> for Edges {
    fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
        let edges = tuple.anchors.iter().map(|anchor| anchor.xor.get());
        self.0.lock().unwrap().extend(edges);
        out.emit(&tuple, *tuple);
        out.ack(tuple);
    }
}

/// The edges that a topology's tasks draw: a spout's, and those of two bolts.
fn edges(seed: Option<u64>) -> Vec<u64> {
    let edges = Arc::new(Mutex::new(Vec::new()));
    let topology = TopologyBuilder::new();
    seed.map(|seed| topology.seed(seed));
    let few = topology.spout("few", |_| VecSpout::new(0..20)).parallelism(2);
    let mut source = few.stream();
    for name in ["first", "second", "third"] {
        let edges = edges.clone();
        source = topology.bolt(name, move |_| Edges(edges.clone())).shuffle(source).stream();
    }
    drop(source);
    let mut topology = topology.simulate(&ManualClock::new()).unwrap();
    assert!(topology.settle(10_000) && topology.is_finished());
    let mut edges = edges.lock().unwrap().clone();
    assert_eq!(edges.len(), 2 * 20 * 3);
    // Time is real: batches may be sent on in another order.
    edges.sort_unstable();
    edges
}

/// Without a seed each topology, and each of its tasks, draws edges that no other one draws.
#[test]
fn two_topologies_draw_different_edges() {
    let all = [edges(None), edges(None)].concat();
    let distinct: HashSet<u64> = all.iter().copied().collect();
    assert_eq!(distinct.len(), all.len());
    assert!(!distinct.contains(&0));
    assert_eq!(edges(Some(7)), edges(Some(7)), "of one seed");
}
