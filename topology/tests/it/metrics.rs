//! Publishing through the facade `metrics`: each component's counters, set and never added.

use expiry_topology::publish::{describe, Labels};
use expiry_topology::{basic, sink, TopologyBuilder, VecSpout};
use metrics::{
    with_local_recorder, Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString,
    Unit,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Default)]
struct Kept {
    values: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    described: Mutex<Vec<String>>,
}

impl Kept {
    fn of(&self, key: &Key) -> Arc<AtomicU64> {
        let mut series = key.name().to_string();
        for label in key.labels() {
            series += &format!(" {}={}", label.key(), label.value());
        }
        self.values.lock().unwrap().entry(series).or_default().clone()
    }

    fn value(&self, series: &str) -> u64 {
        self.values.lock().unwrap()[series].load(SeqCst)
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().push(name.as_str().into());
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().push(name.as_str().into());
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        panic!("there are none");
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.of(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.of(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("what was counted once would be counted again");
    }
}

#[test]
fn components_are_published_by_their_names() {
    let topology = TopologyBuilder::new();
    let lines = topology.spout("lines", |_| VecSpout::new(["to be or", "not to be"]));
    let split = topology
        .bolt("split", |_| {
            basic(|line: &&str, out| line.split(' ').for_each(|word| out.emit(word.into())))
        })
        .shuffle(&lines);
    let words = |context: &expiry_topology::Context| {
        let letters = context.counter("letters");
        sink(move |word: &String, _| letters.add(word.len() as u64))
    };
    let or = split.stream().filter(|word| word == "or");
    topology.bolt("words", words).parallelism(3).shuffle(&split).all(or);
    let topology = topology.start().unwrap();
    topology.wait(Duration::from_secs(60)).unwrap();
    let kept = Kept::default();
    with_local_recorder(&kept, || {
        describe();
        for _ in 0..2 {
            for component in topology.metrics() {
                component.publish(Labels::new("text").with("language", "en"));
            }
        }
    });
    let of = |name: &str, component: &str| {
        kept.value(&format!("expiry_topology_{name} name=text language=en component={component}"))
    };
    assert_eq!((of("acked_total", "lines"), of("executed_total", "split")), (2, 2));
    assert_eq!((of("emitted_total", "split"), of("executed_total", "words")), (6, 9));
    assert_eq!(f64::from_bits(of("tasks", "words")), 3.0);
    assert_eq!(of("input_acked_total", "words source=split input=0"), 6);
    assert_eq!(of("input_acked_total", "words source=split input=1"), 3);
    assert_eq!(f64::from_bits(of("own", "words name=letters")), 19.0);
    assert_eq!(f64::from_bits(of("pending", "lines")), 0.0);
    let taken = topology.metrics()[0].latency.count();
    assert_eq!(of("latency_seconds_count", "lines"), taken);
    let described = kept.described.lock().unwrap();
    let values = kept.values.lock().unwrap();
    let name = |series: &String| series.split(' ').next().unwrap().to_string();
    let published: std::collections::BTreeSet<String> = values.keys().map(name).collect();
    assert!(published.iter().eq(described.iter().collect::<std::collections::BTreeSet<_>>()));
}
