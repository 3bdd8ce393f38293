//! A worker process: a topology whose spout reads the stream `lines`, whose bolt counts the words
//! of a line, and whose sink publishes the counts to the stream `counts` under the line's number.

use super::{decode, failed, Counts, Line, APP};
use crate::error::Error;
use expiry_nats::{Incoming, Nats, Options, Outgoing, SourceOptions};
use expiry_topology::{basic, Derive, TopologyBuilder};
use std::io::Read;
use std::time::Duration;

/// How long a message stays with a worker that says nothing.
pub const ACK_WAIT: Duration = Duration::from_secs(3);
/// How often a message is delivered before it may be a dead letter: half as often as a line that
/// kills its workers.
pub const ATTEMPTS: u64 = 2;
/// A line that kills the worker which counts it.
pub const POISON: &str = "a line that kills its worker";

fn count(line: &Line, out: &mut Derive<'_, '_, Line>) {
    if line.text == POISON {
        std::process::abort();
    }
    let mut counts = Counts::new();
    super::count(&line.text, &mut counts);
    let counts = counts.iter().map(|(word, n)| format!("{word} {n}"));
    let text = counts.collect::<Vec<_>>().join(" ");
    let number = line.number;
    out.emit(Line { number, text });
}

/// Works until its input ends, which it does when the first process dies, too.
pub async fn run(name: &str, servers: &str) -> Result<(), Error> {
    let options = Options::new(APP, name).servers(servers.split(','));
    let nats = Nats::connect(options).await.map_err(failed)?;
    let options =
        SourceOptions::new("lines", "count").ack_wait(ACK_WAIT).attempts(ATTEMPTS).window(512);
    let decode = |incoming: &Incoming<'_>| decode(incoming.payload);
    let source = loop {
        match nats.source(options.clone(), decode).await {
            Err(expiry_nats::NatsError::Unanswered { .. }) => {}
            source => break source.map_err(failed)?,
        }
    };
    let sinks = nats.sink(|line: &Line| -> Result<Outgoing, String> {
        Ok(Outgoing {
            subject: "counts.line".into(),
            payload: format!("{} {}", line.number, line.text).into(),
            id: Some(line.number.to_string()),
            ..Outgoing::default()
        })
    });
    let topology = TopologyBuilder::new();
    let lines = topology.spout("lines", move |context| source.spout(context));
    let count = topology.bolt("count", |_| basic(count)).shuffle(&lines);
    topology.bolt("out", move |context| sinks.bolt(context)).shuffle(&count);
    let _topology = topology.start()?;
    let input = || std::io::stdin().read_to_end(&mut Vec::new());
    let _ = tokio::task::spawn_blocking(input).await;
    std::process::exit(0)
}
