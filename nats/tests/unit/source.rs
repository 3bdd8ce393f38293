//! Tests of `src/source.rs`.

use super::*;
use expiry_topology::{sink, ManualClock, TopologyBuilder};

/// A panic of a grouping's closure is a failure of the message that it looked at. Each message has
/// one outcome, and the window stays as wide as it was.
#[test]
fn a_panic_while_a_message_is_emitted_loses_no_id() {
    let (outcomes, mut told) = mpsc::unbounded_channel();
    let given = (0..20).map(|sequence| {
        let id = MessageId { sequence, published: 0, epoch: None };
        (id, sequence, None)
    });
    let messages = Arc::new(Mutex::new(given.collect()));
    let link = Arc::new(Link { gauges: Arc::default(), messages, outcomes });
    let topology = TopologyBuilder::new();
    let numbers = topology.spout("numbers", move |context| StreamSpout {
        link: link.clone(),
        waker: context.waker(),
        source: "in.work".into(),
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
            _ => panic!("a message has another outcome"),
        }
    }
    ended.sort_unstable();
    assert_eq!(ended, (0..20).map(|n| (n, n % 2 == 1)).collect::<Vec<_>>());
    drop(told); // so that `close` waits for nothing
}

#[test]
fn a_stream_says_what_its_partitions_are() {
    use async_nats::jetstream::stream::{Config, SubjectTransform};
    let said = |subjects: &[&str], destination: Option<&str>| {
        let subject_transform = destination.map(|destination| SubjectTransform {
            source: "a.b.*".into(),
            destination: destination.into(),
        });
        let subjects = subjects.iter().map(ToString::to_string).collect();
        partitioned::partitions_of(&Config { subjects, subject_transform, ..Config::default() })
    };
    let some = |subject: &str, count| Some((subject.to_string(), count));
    let by = |destination| said(&["a.b.*"], Some(destination));
    assert_eq!(by("a.b.{{partition(16,1)}}.{{wildcard(1)}}"), some("a.b.*.>", 16));
    assert_eq!(by("c.{{ Partition( 2 ,1,2)}}.x"), some("c.*.>", 2));
    for other in ["a.{{wildcard(1)}}", "a.{{partition(16,1)}}", "a.{{split(1,-)}}.{{wildcard(1)}}"]
    {
        assert_eq!(by(other), None, "{other}");
    }
    assert_eq!(said(&["a.b.1.>", "a.b.0.>", "a.b.2.>"], None), some("a.b.*.>", 3));
    for others in [&["a.0.>", "a.2.>"][..], &["a.0.>", "b.1.>"], &["a.*"], &["a.0.>", "b"], &[]] {
        assert_eq!(said(others, None), None, "{others:?}");
    }
}
