//! Prints the published figures of `expiry`, as ratios of interleaved rounds.

use expiry_benches::figures::{
    child, expiry, growth, idle, keyed, lifecycle, memory, timeouts, topology, touch, wheel,
    Options,
};
use expiry_benches::report::Report;
use expiry_benches::window::Order;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: figures [lifecycle|expiry|touch|memory|growth|idle|wheel|keyed|topology|timeouts|all]... [options]
       keyed is all of keyed-maps keyed-queues keyed-expiry keyed-memory; timeouts has a second part, sleeps

  --rounds N            interleaved rounds of each table (default 5; a third of it at 10 M)
  --in-flight N,N,..    these loads in place of each figure's own
  --threads N,N,..      of the lifecycle, the keyed stores, the topology and the timeouts (default 1,2)
  --order fifo|random   of the lifecycle (default both)
  --only NAME           of the lifecycle, the wheel and the keyed stores, only those whose name contains this; for profiling
  --keys u64|String     of the keyed stores (default both)
  --seconds N           how long the reaper is watched (default 40, more than the timeout of 30)
  --hundred-million     with memory: 100 M live entries instead; needs 6 GB
  --json                print one object
  --strict              exit with 1 if a figure is short of what was asked";

struct Command {
    figures: Vec<String>,
    options: Options,
    hundred_million: bool,
    strict: bool,
}

fn list(value: &str) -> Option<Vec<usize>> {
    let list: Vec<usize> = value
        .split(',')
        .map(|n| n.replace('_', "").parse().ok().filter(|&n| n > 0))
        .collect::<Option<_>>()?;
    (!list.is_empty()).then_some(list)
}

fn parse(args: &[String]) -> Option<Command> {
    let mut command = Command {
        figures: Vec::new(),
        options: Options {
            rounds: 5,
            in_flight: None,
            threads: vec![1, 2],
            orders: vec![Order::Fifo, Order::Random],
            only: None,
            keys: None,
            watch: Duration::from_secs(40),
            json: false,
        },
        hundred_million: false,
        strict: false,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--rounds" => command.options.rounds = list(args.next()?)?[0],
            "--in-flight" => command.options.in_flight = Some(list(args.next()?)?),
            "--threads" => command.options.threads = list(args.next()?)?,
            "--order" => {
                command.options.orders = match args.next()?.as_str() {
                    "fifo" => vec![Order::Fifo],
                    "random" => vec![Order::Random],
                    _ => return None,
                }
            }
            "--only" => command.options.only = Some(args.next()?.clone()),
            "--keys" => match args.next()?.as_str() {
                keys @ ("u64" | "String") => command.options.keys = Some(keys.into()),
                _ => return None,
            },
            "--seconds" => {
                command.options.watch = Duration::from_secs(list(args.next()?)?[0] as u64);
            }
            "--hundred-million" => command.hundred_million = true,
            "--json" => command.options.json = true,
            "--strict" => command.strict = true,
            "lifecycle" | "expiry" | "touch" | "memory" | "growth" | "idle" | "wheel" | "keyed"
            | "topology" | "keyed-maps" | "keyed-queues" | "keyed-expiry" | "keyed-memory"
            | "all" => {
                command.figures.push(arg.clone());
            }
            _ => return None,
        }
    }
    if command.figures.is_empty() {
        command.figures.push("all".into());
    }
    Some(command)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "child") {
        let served = child::serve(&args[1..]);
        return if served {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(2)
        };
    }
    let Some(command) = parse(&args) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let wanted = |figure: &str| {
        command
            .figures
            .iter()
            .any(|name| name == figure || (name == "all" && !figure.starts_with("keyed-")))
    };
    let options = &command.options;
    let began = Instant::now();
    let mut report = Report::new(options.json);
    type Run = fn(&Options, &mut Report);
    let memory: Run = if command.hundred_million {
        memory::hundred_million
    } else {
        memory::run
    };
    let figures: [(&str, Run); 15] = [
        // First: once a clock of tokio's has been paused in this process, as those of `DelayQueue` are, its timers are slower.
        ("timeouts", timeouts::run),
        ("sleeps", timeouts::sleeps),
        ("lifecycle", lifecycle::run),
        ("expiry", expiry::run),
        ("touch", touch::run),
        ("memory", memory),
        ("growth", growth::run),
        ("idle", idle::run),
        ("wheel", wheel::run),
        ("keyed", keyed::run),
        ("keyed-maps", keyed::maps),
        ("keyed-queues", keyed::queues),
        ("keyed-expiry", keyed::expiry),
        ("keyed-memory", keyed::memory),
        ("topology", topology::run),
    ];
    for (name, run) in figures {
        if wanted(name) {
            run(options, &mut report);
        }
    }
    let reached = report.finish(began.elapsed().as_secs_f64());
    ExitCode::from(u8::from(command.strict && !reached))
}
