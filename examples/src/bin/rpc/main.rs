//! Calls over one connection, with timeouts; the server loses some of them and answers others too
//! late.
//!
//! ```sh
//! cargo run -p expiry-examples --bin rpc
//! ```

mod client;
mod in_flight;
mod server;

use clap::Parser;
use client::{CallError, Client, Replies};
use expiry::Timeouts;
use expiry_examples::{at_least_one, exit, Done};
use humantime::parse_duration;
use server::{serve, Faults, Served};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinSet;

/// A client whose server loses requests: each call ends once, with a reply or a timeout; late
/// replies are counted by themselves.
#[derive(Parser)]
struct Options {
    #[arg(long, default_value_t = 10_000)]
    calls: u64,
    /// Tasks that call, one call at a time each.
    #[arg(long, default_value_t = 100, value_parser = at_least_one())]
    callers: usize,
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
    // Two channels are the connection.
    let (to_server, requests) = unbounded_channel();
    let (to_client, replies) = unbounded_channel();
    let client = Arc::new(Client::new(to_server, replies, options.timeout)?);
    let (timeouts, delay) = (Arc::new(Timeouts::new()?), 2 * options.timeout);
    let server = tokio::spawn(serve(requests, to_client, options.faults, delay, timeouts));

    let mut callers = JoinSet::new();
    for caller in 0..options.callers {
        let numbers = (caller as u64..options.calls).step_by(options.callers);
        callers.spawn(call_all(client.clone(), numbers));
    }
    let (mut answered, mut timed_out) = (0, 0);
    while let Some(done) = callers.join_next().await {
        let (more_answered, more_timed_out) = done??;
        answered += more_answered;
        timed_out += more_timed_out;
    }
    let client = Arc::into_inner(client).ok_or("a caller is left")?;
    let replies = client.close().await?;
    let served = server.await?;

    println!("calls:   {answered} answered, {timed_out} timed out");
    let Replies { in_time, late, unknown, .. } = replies;
    println!("replies: {in_time} in time, {late} late, {unknown} to nobody");
    let Served { received, lost, delayed } = served;
    println!("server:  {received} received, {lost} lost, {delayed} delayed");
    // Callers, table, reader and server have each counted. The counts must agree.
    let books = [
        (answered + timed_out == options.calls, "calls have no end, or two"),
        (timed_out == replies.timed_out, "timeouts told and timeouts had"),
        (answered == in_time, "replies told and replies in time"),
        (received == options.calls, "calls made and requests received"),
        (received - lost == in_time + late, "replies sent and replies received"),
        (late >= delayed, "a delayed reply was in time"),
        (unknown == 0, "a reply to nobody"),
    ];
    if let Some((_, what)) = books.iter().find(|(agree, _)| !agree) {
        return Err(format!("the books do not agree: {what}").into());
    }
    println!("verdict: ok: each call has ended once");
    Ok(())
}

/// Returns how many calls were answered, and how many timed out.
async fn call_all(client: Arc<Client>, numbers: impl Iterator<Item = u64>) -> Done<(u64, u64)> {
    let (mut answered, mut timed_out) = (0, 0);
    for number in numbers {
        match client.call(number).await {
            Ok(square) if square == number.wrapping_mul(number) => answered += 1,
            Ok(square) => return Err(format!("{number} squared is not {square}").into()),
            Err(CallError::TimedOut) => timed_out += 1,
            Err(error) => return Err(format!("a call was refused: {error}").into()),
        }
    }
    Ok((answered, timed_out))
}
