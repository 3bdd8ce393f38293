//! Calls over one connection, with timeouts; the server loses some of them and answers others too late.
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

/// A client whose server loses requests: each call ends once, with a reply or a timeout, and late replies are told apart.
#[derive(Parser)]
struct Options {
    #[arg(long, default_value_t = 10_000)]
    calls: u64,
    /// Tasks that call, one call at a time each.
    #[arg(long, default_value_t = 100, value_parser = at_least_one())]
    callers: usize,
    #[arg(long, value_parser = parse_duration, default_value = "200ms")]
    timeout: Duration,
    /// The server loses every so manyth request; 0: none.
    #[arg(long, default_value_t = 100)]
    lose_every: u64,
    /// And answers every so manyth only after twice the timeout; 0: none.
    #[arg(long, default_value_t = 70)]
    delay_every: u64,
}

/// How the calls have ended, as the callers count.
#[derive(Debug, Default, Clone, Copy)]
struct Calls {
    answered: u64,
    timed_out: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    exit(run(Options::parse()).await)
}

async fn run(options: Options) -> Done {
    let faults = Faults {
        lose_every: options.lose_every,
        delay_every: options.delay_every,
        delay: 2 * options.timeout,
    };
    // Two channels are the connection.
    let (to_server, requests) = unbounded_channel();
    let (to_client, replies) = unbounded_channel();
    let client = Arc::new(Client::new(to_server, replies, options.timeout)?);
    let server = tokio::spawn(serve(requests, to_client, faults, Arc::new(Timeouts::new()?)));

    let mut callers = JoinSet::new();
    for caller in 0..options.callers {
        let numbers = (caller as u64..options.calls).step_by(options.callers);
        callers.spawn(call_all(client.clone(), numbers));
    }
    let mut calls = Calls::default();
    while let Some(done) = callers.join_next().await {
        let Calls { answered, timed_out } = done??;
        calls.answered += answered;
        calls.timed_out += timed_out;
    }
    let client = Arc::into_inner(client).ok_or("a caller is left")?;
    let replies = client.close().await?;
    let served = server.await?;

    println!("calls:   {} answered, {} timed out", calls.answered, calls.timed_out);
    println!(
        "replies: {} in time, {} late, {} to nobody",
        replies.in_time, replies.late, replies.unknown
    );
    println!(
        "server:  {} received, {} lost, {} delayed",
        served.received, served.lost, served.delayed
    );
    check(options.calls, &calls, &replies, &served)?;
    println!("verdict: ok: each call has ended once");
    Ok(())
}

async fn call_all(client: Arc<Client>, numbers: impl Iterator<Item = u64>) -> Done<Calls> {
    let mut calls = Calls::default();
    for number in numbers {
        match client.call(number).await {
            Ok(square) if square == number.wrapping_mul(number) => calls.answered += 1,
            Ok(square) => return Err(format!("{number} squared is not {square}").into()),
            Err(CallError::TimedOut) => calls.timed_out += 1,
            Err(error) => return Err(format!("a call was refused: {error}").into()),
        }
    }
    Ok(calls)
}

/// Callers, table, reader and server have each counted. The counts must agree.
fn check(made: u64, calls: &Calls, replies: &Replies, served: &Served) -> Done {
    let books = [
        (calls.answered + calls.timed_out == made, "calls have no end, or two"),
        (calls.timed_out == replies.timed_out, "timeouts told and timeouts had"),
        (calls.answered == replies.in_time, "replies told and replies in time"),
        (served.received == made, "calls made and requests received"),
        (
            served.received - served.lost == replies.in_time + replies.late,
            "replies sent and replies received",
        ),
        (replies.late >= served.delayed, "a delayed reply was in time"),
        (replies.unknown == 0, "a reply to nobody"),
    ];
    match books.iter().find(|(agree, _)| !agree) {
        Some((_, what)) => Err(format!("the books do not agree: {what}").into()),
        None => Ok(()),
    }
}
