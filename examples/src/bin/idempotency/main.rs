//! Payments with idempotency keys: clients send each several times, at once and again later, and
//! none is made twice within a day. The day is simulated; the threads are not.
//!
//! ```sh
//! cargo run -p expiry-examples --bin idempotency
//! ```

mod idempotent;

use clap::Parser;
use expiry::ManualClock;
use expiry_examples::{exit, on_threads, Done};
use humantime::parse_duration;
use idempotent::{Answer, CallError, Idempotent, Meanwhile};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Calls with idempotency keys: a duplicate within the window gets the first answer.
#[derive(Parser)]
struct Options {
    /// The number of clients. Each sends every payment.
    #[arg(long, default_value_t = 8)]
    clients: usize,
    #[arg(long, default_value_t = 1000)]
    payments: usize,
    /// How long an answer is kept.
    #[arg(long, value_parser = parse_duration, default_value = "1day")]
    window: Duration,
}

/// The number of a receipt.
type Receipt = u64;

struct Bank {
    calls: Idempotent<Receipt>,
    /// How often each payment was made.
    made: Vec<AtomicU64>,
    receipts: AtomicU64,
}

impl Bank {
    /// Makes the payment once, however often a client asks for it.
    fn pay(&self, payment: usize, meanwhile: Meanwhile) -> Result<Answer<Receipt>, CallError> {
        self.calls.call(&format!("payment {payment}"), meanwhile, || {
            self.made[payment].fetch_add(1, Relaxed);
            // Other clients get a chance to ask meanwhile.
            thread::yield_now();
            self.receipts.fetch_add(1, Relaxed)
        })
    }
}

/// One client's answers.
#[derive(Default)]
struct Answers {
    receipts: Vec<Receipt>,
    executed: usize,
    in_progress: usize,
}

fn main() -> ExitCode {
    exit(run(&Options::parse()))
}

fn run(options: &Options) -> Done {
    let clock = ManualClock::new();
    let bank = Bank {
        calls: Idempotent::new(options.window, |calls| calls.clock(clock.clone()).build_manual())?,
        made: (0..options.payments).map(|_| AtomicU64::new(0)).collect(),
        receipts: AtomicU64::new(0),
    };
    round("at once", &bank, options.clients, 1)?;
    clock.advance(options.window / 2);
    round("half a window later", &bank, options.clients, 1)?;
    clock.advance(options.window);
    println!("after the window: {} answers are kept", bank.calls.len());
    round("after the window", &bank, options.clients, 2)?;
    println!("verdict: ok: no payment was made twice within the window");
    Ok(())
}

/// Each client sends all payments. Each payment must then have been made `wanted` times in all.
fn round(when: &str, bank: &Bank, clients: usize, wanted: u64) -> Done {
    let answers = on_threads(clients, |client| {
        // Every other client asks again instead of waiting.
        pay_all(bank, [Meanwhile::Wait, Meanwhile::Refuse][client % 2])
    })?;
    for (payment, made) in bank.made.iter().enumerate() {
        let times = made.load(Relaxed);
        if times != wanted {
            let why = format!("{when}: payment {payment} was made {times} times, not {wanted}");
            return Err(why.into());
        }
        let receipts: Vec<_> = answers.iter().map(|answers| answers.receipts[payment]).collect();
        if receipts.windows(2).any(|two| two[0] != two[1]) {
            return Err(format!("{when}: payment {payment} has the receipts {receipts:?}").into());
        }
    }
    let sum = |count: fn(&Answers) -> usize| answers.iter().map(count).sum::<usize>();
    println!(
        "{when}: {} calls, {} executed, {} told to ask again",
        sum(|one| one.receipts.len()),
        sum(|one| one.executed),
        sum(|one| one.in_progress)
    );
    Ok(())
}

fn pay_all(bank: &Bank, meanwhile: Meanwhile) -> Done<Answers> {
    let mut answers = Answers::default();
    for payment in 0..bank.made.len() {
        let receipt = loop {
            match bank.pay(payment, meanwhile) {
                Ok(Answer::Executed(receipt)) => {
                    answers.executed += 1;
                    break receipt;
                }
                Ok(Answer::Again(receipt)) => break receipt,
                Err(CallError::InProgress) => {
                    answers.in_progress += 1;
                    thread::yield_now();
                }
                Err(error) => return Err(error.into()),
            }
        };
        answers.receipts.push(receipt);
    }
    Ok(answers)
}
