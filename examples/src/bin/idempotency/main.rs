//! Payments with idempotency keys: clients send each several times, at once and again later, and none is made twice within a day. The
//! day is simulated; the threads are not.
//!
//! ```sh
//! cargo run -p expiry-examples --bin idempotency
//! ```

mod idempotent;

use clap::Parser;
use expiry::ManualClock;
use humantime::parse_duration;
use idempotent::{Answer, CallError, Idempotent, Meanwhile};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Calls with idempotency keys: duplicates within the window get the first answer, and are not executed.
#[derive(Parser)]
struct Options {
    /// Each sends every payment.
    #[arg(long, default_value_t = 8)]
    clients: usize,
    #[arg(long, default_value_t = 1000)]
    payments: usize,
    /// How long an answer is kept.
    #[arg(long, value_parser = parse_duration, default_value = "1day")]
    window: Duration,
}

#[derive(Debug, thiserror::Error)]
enum PaymentError {
    #[error(transparent)]
    Build(#[from] expiry::BuildError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("a client has panicked")]
    Client,
    #[error("{what}: payment {payment} was made {times} times, and not {wanted}")]
    Times { what: &'static str, payment: usize, times: u64, wanted: u64 },
    #[error("payment {payment} has receipt {receipt} and receipt {other}")]
    Receipts { payment: usize, receipt: u64, other: u64 },
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
    /// What a client asks for: once, however often it asks. Or it is asked to ask again.
    fn pay(&self, payment: usize, meanwhile: Meanwhile) -> Result<Answer<Receipt>, CallError> {
        let key = format!("payment {payment}");
        self.calls.call(&key, meanwhile, || {
            self.made[payment].fetch_add(1, Relaxed);
            // The money takes its way, and others their chance to ask meanwhile.
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
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("idempotency: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), PaymentError> {
    let clock = ManualClock::new();
    let bank = Bank {
        calls: Idempotent::new(options.window, clock.clone())?,
        made: (0..options.payments).map(|_| AtomicU64::new(0)).collect(),
        receipts: AtomicU64::new(0),
    };
    round("at once", &bank, options, 1)?;
    clock.advance(options.window / 2);
    round("half a window later", &bank, options, 1)?;
    clock.advance(options.window);
    println!("after the window: {} answers are kept", bank.calls.len());
    round("after the window", &bank, options, 2)?;
    println!("verdict: ok: no payment was made twice within the window");
    Ok(())
}

/// All clients send all payments; each has then been made so often in all.
fn round(
    what: &'static str,
    bank: &Bank,
    options: &Options,
    wanted: u64,
) -> Result<(), PaymentError> {
    let answers = thread::scope(|scope| {
        let start = |client| {
            // Every other one would rather be told than wait.
            let meanwhile = [Meanwhile::Wait, Meanwhile::Refuse][client % 2];
            scope.spawn(move || pay_all(bank, options.payments, meanwhile))
        };
        let clients: Vec<_> = (0..options.clients).map(start).collect();
        let ends = clients.into_iter().map(|client| client.join());
        ends.map(|end| end.map_err(|_| PaymentError::Client)?).collect::<Result<Vec<_>, _>>()
    })?;
    for (payment, made) in bank.made.iter().enumerate() {
        let times = made.load(Relaxed);
        if times != wanted {
            return Err(PaymentError::Times { what, payment, times, wanted });
        }
        let mut receipts = answers.iter().map(|answers| answers.receipts[payment]);
        let Some(receipt) = receipts.next() else {
            continue;
        };
        if let Some(other) = receipts.find(|other| *other != receipt) {
            return Err(PaymentError::Receipts { payment, receipt, other });
        }
    }
    println!(
        "{what}: {} calls, {} executed, {} told to ask again",
        answers.iter().map(|one| one.receipts.len()).sum::<usize>(),
        answers.iter().map(|one| one.executed).sum::<usize>(),
        answers.iter().map(|one| one.in_progress).sum::<usize>()
    );
    Ok(())
}

fn pay_all(bank: &Bank, payments: usize, meanwhile: Meanwhile) -> Result<Answers, PaymentError> {
    let mut answers = Answers::default();
    for payment in 0..payments {
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
