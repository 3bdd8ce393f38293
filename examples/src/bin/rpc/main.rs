//! Calls over one connection, with timeouts; the server loses some of them and answers others too
//! late.
//!
//! ```sh
//! cargo run -p expiry-examples --bin rpc
//! ```

mod by_hand;
mod client;
mod in_flight;
mod load;
mod server;

use by_hand::ByHand;
use clap::Parser;
use client::{Client, InFlight, Replies};
use expiry::{CoarseClock, Timeouts};
use expiry_examples::{at_least_one, exit, Done};
use humantime::parse_duration;
use in_flight::Requests;
use server::{serve, Faults, Served};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::unbounded_channel;

/// A client whose server loses requests: each call ends once, with a reply or a timeout; late
/// replies are counted by themselves.
#[derive(Parser)]
struct Options {
    #[arg(long, default_value_t = 10_000)]
    calls: u64,
    /// Tasks that call, one call at a time each.
    #[arg(long, default_value_t = 100, value_parser = at_least_one())]
    callers: usize,
    /// Begins so many calls a second instead, each in a task of its own.
    #[arg(long, value_parser = at_least_one(), conflicts_with = "callers")]
    rate: Option<usize>,
    #[arg(long, value_parser = parse_duration, default_value = "200ms")]
    timeout: Duration,
    /// With a map under a lock and a timer for each call, in place of `PendingTable`.
    #[arg(long)]
    by_hand: bool,
    #[command(flatten)]
    faults: Faults,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    exit(if options.by_hand {
        run(ByHand::new(options.timeout), options).await
    } else {
        match Requests::new(options.timeout, CoarseClock::new()) {
            Ok(requests) => run(requests, options).await,
            Err(error) => Err(error.into()),
        }
    })
}

async fn run(requests: impl InFlight, options: Options) -> Done {
    // Two channels are the connection.
    let (to_server, received) = unbounded_channel();
    let (to_client, replies) = unbounded_channel();
    let client = Arc::new(Client::new(requests, to_server, replies));
    let (timeouts, delay) = (Arc::new(Timeouts::new()?), 2 * options.timeout);
    let server = tokio::spawn(serve(received, to_client, options.faults, delay, timeouts));

    let began = Instant::now();
    let ended = match options.rate {
        Some(rate) => load::at_rate(&client, options.calls, rate as u64).await?,
        None => load::one_by_one(&client, options.calls, options.callers).await?,
    };
    let rate = options.calls as f64 / began.elapsed().as_secs_f64();
    let client = Arc::into_inner(client).ok_or("a caller is left")?;
    let Replies { in_time, late, timed_out: expired } = client.close().await?;
    let Served { received, lost, delayed } = server.await?;

    let (answered, timed_out) = (ended.answered.count(), ended.timed_out.count());
    println!("calls:   {answered} answered, {timed_out} timed out, {rate:.0} a second");
    println!("         answered:  {}", ended.answered.sorted());
    println!("         timed out: {}", ended.timed_out.sorted());
    println!("replies: {in_time} in time, {late} late");
    println!("server:  {received} received, {lost} lost, {delayed} delayed");
    // Callers, table, reader and server have each counted. The counts must agree.
    let books = [
        (answered + timed_out == options.calls, "calls have no end, or two"),
        (timed_out == expired, "timeouts that callers had, and those of the table"),
        (answered == in_time, "answers that callers had, and replies in time"),
        (received == options.calls, "calls made, and requests received"),
        (received - lost == in_time + late, "replies sent, and replies received"),
        (timed_out == lost + late, "calls without an answer, and replies lost or late"),
        (late >= delayed, "a delayed reply was in time"),
    ];
    if let Some((_, what)) = books.iter().find(|(agree, _)| !agree) {
        return Err(format!("the books do not agree: {what}").into());
    }
    println!("verdict: ok: each call has ended once");
    Ok(())
}
