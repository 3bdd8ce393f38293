//! Calls over one connection, with timeouts; the server loses some of them and answers others too
//! late.
//!
//! ```sh
//! cargo run -p expiry-examples --bin rpc
//! ```

mod client;
mod in_flight;
mod load;
mod server;

use clap::Parser;
use client::{Client, Replies};
use expiry::Timeouts;
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
    /// Number of calls that begin each second, each in a task of its own.
    #[arg(long, default_value_t = 20_000, value_parser = at_least_one())]
    rate: usize,
    #[arg(long, value_parser = parse_duration, default_value = "200ms")]
    timeout: Duration,
    #[command(flatten)]
    faults: Faults,
}

#[tokio::main]
async fn main() -> ExitCode {
    exit(run(Options::parse()).await)
}

async fn run(options: Options) -> Done {
    let requests = Requests::new(options.timeout)?;
    // Two channels are the connection.
    let (to_server, received) = unbounded_channel();
    let (to_client, replies) = unbounded_channel();
    let client = Arc::new(Client::new(requests, to_server, replies));
    let (timeouts, delay) = (Arc::new(Timeouts::new()?), 2 * options.timeout);
    let server = tokio::spawn(serve(received, to_client, options.faults, delay, timeouts));

    let began = Instant::now();
    let ended = load::at_rate(&client, options.calls, options.rate as u64).await?;
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
