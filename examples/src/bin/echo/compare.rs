//! What the timeouts cost: the server with and without them, in turn.

use crate::clients::{load, ClientError};
use crate::server::{Limits, Server};
use expiry::Timeouts;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;

/// One server under load, clients included.
#[derive(Debug, Clone, Copy)]
struct Sample {
    per_second: f64,
    /// Processor time of the process, in microseconds. It does not count what else the machine is doing.
    cpu_per_line: f64,
}

/// Of some numbers, the least, the quartiles and the greatest.
pub struct Spread([f64; 5]);

impl Spread {
    fn of(numbers: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = numbers.collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        let at = |quarter: usize| sorted.get(last * quarter / 4).copied().unwrap_or(f64::NAN);
        Spread([0, 1, 2, 3, 4].map(at))
    }

    pub fn median(&self) -> f64 {
        self.0[2]
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [least, lower, median, upper, greatest] = self.0;
        write!(f, "{median:10.2}   [{lower:.2} .. {upper:.2}]   {least:.2} .. {greatest:.2}")
    }
}

/// By how many percent the server is slower with timeouts, and by how many it takes more processor time.
pub struct Comparison {
    rounds: Vec<[Sample; 2]>,
}

impl Comparison {
    /// In each round both are measured once, and the next round begins with the other one.
    pub async fn run(
        rounds: usize,
        connections: usize,
        time: Duration,
        limits: Limits,
    ) -> Result<Self, ClientError> {
        let timeouts = Timeouts::new().map_err(std::io::Error::other)?;
        let timeouts = Arc::new(timeouts);
        let mut done = Vec::new();
        // The first run finds everything cold, and is not counted.
        sample(&timeouts, None, connections, time / 4).await?;
        for round in 0..rounds {
            let mut pair = [None, Some(limits)];
            if round % 2 == 1 {
                pair.reverse();
            }
            let first = sample(&timeouts, pair[0], connections, time).await?;
            let second = sample(&timeouts, pair[1], connections, time).await?;
            let mut samples = [first, second];
            if round % 2 == 1 {
                samples.reverse();
            }
            done.push(samples);
        }
        Ok(Comparison { rounds: done })
    }

    /// Loss of throughput, in percent.
    pub fn loss(&self) -> Spread {
        let loss = |[without, with]: &[Sample; 2]| 1.0 - with.per_second / without.per_second;
        Spread::of(self.rounds.iter().map(|round| 100.0 * loss(round)))
    }

    fn cost(&self) -> Spread {
        let cost = |[without, with]: &[Sample; 2]| with.cpu_per_line / without.cpu_per_line - 1.0;
        Spread::of(self.rounds.iter().map(|round| 100.0 * cost(round)))
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |part: usize, number: fn(&Sample) -> f64| {
            Spread::of(self.rounds.iter().map(|round| number(&round[part])))
        };
        let rows = [
            ("lines/s, no timeouts", of(0, |it| it.per_second)),
            ("lines/s, timeouts", of(1, |it| it.per_second)),
            ("loss by round, %", self.loss()),
            ("cpu us/line, no timeouts", of(0, |it| it.cpu_per_line)),
            ("cpu us/line, timeouts", of(1, |it| it.cpu_per_line)),
            ("more cpu by round, %", self.cost()),
        ];
        writeln!(f, "{:25} {:>10}   [quartiles]   all", "", "median")?;
        for (name, spread) in rows {
            writeln!(f, "{name:25} {spread}")?;
        }
        Ok(())
    }
}

async fn sample(
    timeouts: &Arc<Timeouts>,
    limits: Option<Limits>,
    connections: usize,
    time: Duration,
) -> Result<Sample, ClientError> {
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::bind(anywhere, timeouts.clone(), limits).await?;
    let address = server.address()?;
    let (told, mut ends) = unbounded_channel();
    let server = tokio::spawn(server.run(told));
    let cpu = cpu_time();
    let load = load(address, connections, time).await?;
    let cpu = cpu_time().saturating_sub(cpu);
    for _ in 0..connections {
        if let Some((peer, Err(error))) = ends.recv().await {
            eprintln!("{peer}: {error}");
        }
    }
    server.abort();
    Ok(Sample {
        per_second: load.per_second(),
        cpu_per_line: cpu.as_secs_f64() * 1e6 / load.lines.max(1) as f64,
    })
}

/// What this process has had of the processors; nothing where that is not known.
fn cpu_time() -> Duration {
    #[cfg(unix)]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::try_from(time).unwrap_or_default()
    }
    #[cfg(not(unix))]
    Duration::ZERO
}
