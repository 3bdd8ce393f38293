//! Tests of `src/source.rs`.

use super::*;
use expiry_topology::{sink, ManualClock, TopologyBuilder};

/// A panic of a grouping's closure is a failure of the message that it looked at. Each message has
/// one outcome, and the window stays as wide as it was.
#[test]
fn a_panic_while_a_message_is_emitted_loses_no_id() {
    let (give, messages) = mpsc::unbounded_channel();
    let (outcomes, mut told) = mpsc::unbounded_channel();
    let link = Arc::new(Link { held: Arc::default(), messages: Mutex::new(messages), outcomes });
    for sequence in 0..20 {
        give.send((MessageId { sequence, published: 0 }, sequence)).unwrap();
    }
    let topology = TopologyBuilder::new();
    let numbers = topology.spout("numbers", move |context| StreamSpout {
        link: link.clone(),
        waker: context.waker(),
        stream: "in".into(),
    });
    let numbers = numbers.replay(Replay::once());
    let key = |n: &u64| match n % 2 {
        0 => std::panic::resume_unwind(Box::new("it was to panic")),
        _ => *n,
    };
    let sinks = topology.bolt("sink", |_| sink(|_: &u64, _| ())).parallelism(2);
    sinks.key_by(&numbers.max_pending(4), key);
    let mut topology = topology.simulate(&ManualClock::new()).unwrap();
    assert!(topology.settle(10_000));
    let mut ended = Vec::new();
    while let Ok(outcome) = told.try_recv() {
        match outcome {
            Outcome::Acked(id) => ended.push((id.sequence, true)),
            Outcome::Failed(id, why, is_final) => {
                assert!(why.contains("it was to panic") && !is_final, "{why}");
                ended.push((id.sequence, false));
            }
            Outcome::Active(active) => assert!(active.is_some()),
            _ => panic!("a message was given back"),
        }
    }
    ended.sort_unstable();
    assert_eq!(ended, (0..20).map(|n| (n, n % 2 == 1)).collect::<Vec<_>>());
    drop(told); // so that `close` waits for nothing
}
