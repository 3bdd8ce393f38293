//! Counts the words of some text: `cargo run -p expiry-topology --example words < README.md`.

use expiry_topology::{
    basic, Bolt, BoltCollector, Next, Spout, SpoutCollector, TopologyBuilder, Tuple,
};
use std::collections::BTreeMap;
use std::io::stdin;
use std::time::Duration;

/// The lines of the input. Its token for a message is the number of the line.
struct Input(u64);

impl Spout<String> for Input {
    fn next(&mut self, out: &mut SpoutCollector<'_, String>) -> Next {
        let mut line = String::new();
        if !matches!(stdin().read_line(&mut line), Ok(1..)) {
            return Next::Done;
        }
        self.0 += 1;
        // It is asked only while there is room for a message.
        out.emit(line, self.0).expect("there is room");
        Next::Ready
    }
}

/// How often each word has come to this task. The topology prints nothing before it is drained.
#[derive(Default)]
struct Count(BTreeMap<String, u64>);

impl Bolt<String> for Count {
    fn execute(&mut self, word: Tuple<String>, out: &mut BoltCollector<'_>) {
        *self.0.entry(word.message().clone()).or_default() += 1;
        out.ack(word);
    }

    fn cleanup(&mut self) {
        self.0.iter().for_each(|(word, count)| println!("{count:6} {word}"));
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let topology = TopologyBuilder::new();
    let input = topology.spout("input", |_| Input(0));
    let split = topology
        .bolt("split", |_| {
            basic(|line: &String, out| {
                line.split_whitespace().for_each(|word| out.emit(word.to_string()))
            })
        })
        .shuffle(&input);
    topology.bolt("count", |_| Count::default()).parallelism(2).fields(&split, |word| word);
    let topology = topology.start()?;
    // This waits until the input is at its end, and every line has been acked.
    topology.wait(Duration::MAX)?;
    topology.drain(Duration::from_secs(1))?;
    Ok(())
}
