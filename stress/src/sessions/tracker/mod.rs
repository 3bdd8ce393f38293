//! `sessions --tracker`: a session tracker under load from all threads, and each session's events held against the law.
//!
//! A run is a row of rounds, each with a tracker of its own. In each, all threads create sessions, touch them (by id, by handle,
//! in batches), close, move, upgrade and remove them, which expire meanwhile; a collector takes the touches for a leader. Then all stop,
//! time passes, and only what is being closed may be left. Then they create again, until the tracker is shut down.

mod law;
mod worker;

use super::{lock, PATIENCE, SECONDS};
use crate::checks::{Check, Checks};
use crate::error::Error;
use crate::interrupt;
use crate::latency::{human, Latency};
use crate::live::{Gauge, Live};
use crate::options::{threads, Sessions};
use crate::report::Report;
use crate::timeline::{Reading, Timeline};
use expiry::{SessionId, SessionInfo, SessionTracker};
use law::{judge, judge_ids, Did, End, Event, Promise};
use rand::rngs::SmallRng;
use rand::SeedableRng;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use worker::{Shared, Worker};

const NAMES: [Check; 16] = [
    "every_session_ends",
    "ends_once",
    "none_immortal",
    "none_late",
    "none_expires_while_closing",
    "renewed_is_renewed",
    "closing_is_final",
    "ended_is_ended",
    "refusals_true",
    "touches_reported",
    "reports_true",
    "owners_right",
    "upgrades_right",
    "ids_in_order",
    "ids_unique",
    "no_surprises",
];

/// How many sessions are created before the shutdown, after time has passed.
const MORE: u64 = 100;

/// What is told as expired, by the handler or a poller.
type Told = Mutex<Vec<(SessionInfo, Event)>>;

/// Events, each with its session.
type Log = Vec<(SessionId, Event)>;

/// Takings of touches: when each began and ended, and the clock's reading then.
type Takings = Vec<(u64, u64, u64)>;

/// A run.
struct Run<'a> {
    options: &'a Sessions,
    time: Timeline,
    pollers: usize,
    sessions: u64,
    checks: Checks,
    threads: Vec<SmallRng>,
    tally: Tally,
}

/// What has been counted, and measured.
#[derive(Default)]
struct Tally {
    rounds: u64,
    sessions: u64,
    events: u64,
    counts: BTreeMap<&'static str, u64>,
    driven: Duration,
    lateness: Latency,
    operation: Latency,
}

/// What an event is counted as.
fn name(did: &Did) -> &'static str {
    match did {
        Did::Created { .. } => "created",
        Did::Touched => "touched",
        Did::Closing => "closings",
        Did::Moved { .. } => "moved",
        Did::Owned { .. } => "owners_told",
        Did::Upgraded(_) => "upgraded",
        Did::Unknown | Did::NotMoved { .. } => "unknown",
        Did::FoundClosing => "found_closing",
        Did::Reported => "reported",
        Did::Ended(End::Expired, _) => "expired",
        Did::Ended(End::Removed, _) => "removed",
        Did::Ended(End::Left, _) => "left",
    }
}

/// Runs the scenario.
///
/// # Errors
///
/// If the options make no sense.
pub fn run(options: &Sessions) -> Result<Report, Error> {
    let mut run = Run {
        options,
        time: Timeline::new(options.simulated),
        pollers: super::pollers(options)?,
        sessions: super::keys(options)?.into(),
        checks: Checks::new(&NAMES),
        threads: (0..threads(options.threads) as u64)
            .map(|at| SmallRng::seed_from_u64(options.seed.wrapping_mul(64) + at))
            .collect(),
        tally: Tally::default(),
    };
    let length = Duration::from_secs_f64(options.seconds.unwrap_or(SECONDS));
    let began = Instant::now();
    let mut live = Live::new("sessions --tracker", Some(length.as_millis() as u64));
    let mut seen = Latency::new();
    while run.round()? && began.elapsed() < length && !interrupt::asked() {
        let tally = &run.tally;
        live.show(began.elapsed().as_millis() as u64, || Gauge {
            done: tally.events,
            latency: Some(tally.operation.since(&mut seen)),
            violations: run.checks.violations(),
            text: format!(
                "{} rounds, {} sessions judged, lateness max {}",
                tally.rounds,
                tally.sessions,
                human(tally.lateness.percentiles().max),
            ),
            ..Gauge::default()
        });
    }
    let series = live.finish();
    let tally = &run.tally;
    let mut report = Report::new(
        "sessions --tracker",
        ("events", tally.events),
        tally.driven,
        options.seed,
        &run.checks,
        options,
    );
    report.series = series;
    report.counts.extend(&tally.counts);
    report.counts.extend([
        ("threads", run.threads.len() as u64),
        ("pollers", run.pollers as u64),
        ("rounds", tally.rounds),
        ("sessions", tally.sessions),
    ]);
    report.latency.extend([
        ("operation", tally.operation.percentiles()),
        ("expiry_lateness", tally.lateness.percentiles()),
    ]);
    Ok(report)
}

impl Run<'_> {
    fn tracker(&self, told: &Arc<Told>) -> Result<SessionTracker, Error> {
        let builder = SessionTracker::builder()
            .interval(self.options.interval)
            .collect_touches()
            .clock(self.time.clock());
        if self.pollers > 0 {
            return Ok(builder.build()?);
        }
        let (told, time) = (told.clone(), self.time.clone());
        Ok(builder.build_with_handler(move |session| {
            // It has no reading from before the expiry.
            let ever = Reading { real: 0, clock: 0 };
            tell(&told, session, ever, time.after());
        })?)
    }

    /// A round. False if something is left that will never expire: then there is no point in another one.
    fn round(&mut self) -> Result<bool, Error> {
        let told = Arc::new(Told::default());
        let sessions = self.tracker(&told)?;
        let (told, goal, stop) = (&*told, self.sessions, &AtomicBool::new(false));
        let shared = &Shared::new(&sessions, &self.time, &self.checks, self.options);
        let (threads, tally) = (&mut self.threads, &mut self.tally);
        let (mut log, mut takings) = (Log::new(), Takings::new());
        let whole = std::thread::scope(|scope| {
            for _ in 0..self.pollers {
                scope.spawn(|| poll(shared, told, stop));
            }
            let collector = scope.spawn(|| collect(shared, stop));
            let began = Instant::now();
            let mut work = |sessions, meanwhile: &dyn Fn() -> Log| {
                std::thread::scope(|scope| {
                    let workers = threads
                        .iter_mut()
                        .map(|rng| scope.spawn(move || Worker::new(shared, rng).work(sessions)));
                    let workers: Vec<_> = workers.collect();
                    let mut log = meanwhile();
                    for worker in workers {
                        // A panic in a worker is a bug in this program: pass it on.
                        log.extend(worker.join().expect("a worker panicked"));
                    }
                    log
                })
            };
            log = work(goal, &Log::new);
            tally.driven += began.elapsed();
            let longest = shared.interval * (shared.longest + 2);
            shared.time.advance(longest);
            let whole = wait(shared, longest + self.options.allowance + PATIENCE);
            log.extend(work(u64::MAX, &|| shut_down(shared, goal)));
            stop.store(true, Release);
            let collected = collector.join().expect("the collector panicked");
            log.extend(collected.0);
            takings = collected.1;
            whole
        });
        let (what, left) = ("sessions left by the shutdown", sessions.len() as u64);
        self.checks.equal("every_session_ends", what, left, 0);
        let told = std::mem::take(&mut *lock(told)).into_iter();
        log.extend(told.map(|(session, event)| (session.id, event)));
        self.judge(log, &takings);
        self.tally.rounds += 1;
        Ok(whole)
    }

    /// Judges each session by its events.
    fn judge(&mut self, mut log: Log, takings: &Takings) {
        let interval = self.options.interval.as_nanos() as u64;
        let promise = Promise {
            rounding: interval + self.time.lag(interval),
            late: (!self.options.simulated).then_some(self.options.allowance.as_nanos() as u64),
            takings,
        };
        log.sort_unstable_by_key(|(id, event)| (*id, event.began, event.ended));
        let (tally, checks) = (&mut self.tally, &self.checks);
        let mut issued = Vec::new();
        for of_one in log.chunk_by(|(one, _), (other, _)| one == other) {
            let id = of_one[0].0;
            let events: Vec<Event> = of_one.iter().map(|(_, event)| *event).collect();
            let found = judge(&events, &promise);
            for (check, why) in found.wrong {
                checks.violated(check, || format!("session {id}: {why}: {events:?}"));
            }
            if let Some(late) = found.lateness {
                tally.lateness.record_nanos(late);
            }
            for event in &events {
                *tally.counts.entry(name(&event.did)).or_default() += 1;
                match event.did {
                    Did::Created { .. } => issued.push((id.0, event.began, event.ended)),
                    Did::Reported | Did::Ended(End::Expired | End::Left, _) => continue,
                    _ => {}
                }
                tally.operation.record_nanos(event.ended - event.began);
            }
            tally.events += events.len() as u64;
            tally.sessions += 1;
        }
        for (check, why) in judge_ids(&mut issued) {
            checks.violated(check, || format!("in round {}: {why}", tally.rounds));
        }
    }
}

/// Notes that a session was told as expired.
fn tell(told: &Told, session: &SessionInfo, before: Reading, after: Reading) {
    let did = Did::Ended(End::Expired, *session);
    lock(told).push((*session, Event::between(did, before, after, 0)));
}

/// Polls until it is told to stop, and then once more.
fn poll(shared: &Shared<'_>, told: &Told, stop: &AtomicBool) {
    loop {
        let last = stop.load(Acquire);
        let before = shared.time.before();
        let expired = shared.sessions.poll();
        let after = shared.time.after();
        expired.iter().for_each(|session| tell(told, session, before, after));
        if last {
            return;
        }
        if expired.is_empty() {
            std::thread::yield_now();
        }
    }
}

/// Takes the touches, for a leader that is not there, until it is told to stop.
fn collect(shared: &Shared<'_>, stop: &AtomicBool) -> (Log, Takings) {
    let (mut log, mut takings) = (Log::new(), Takings::new());
    while !stop.load(Acquire) {
        let before = shared.time.before();
        let touched = shared.sessions.take_touched();
        let after = shared.time.after();
        takings.push((before.real, after.real, after.clock));
        let reported = |(id, _)| (id, Event::between(Did::Reported, before, after, 0));
        log.extend(touched.into_iter().map(reported));
        std::thread::yield_now();
    }
    (log, takings)
}

/// Waits until nothing is left but what is being closed. False if that does not happen.
fn wait(shared: &Shared<'_>, patience: Duration) -> bool {
    let began = Instant::now();
    while shared.sessions.len() > shared.sessions.closing().len() {
        if began.elapsed() > patience {
            shared.checks.violated("none_immortal", || {
                let mut left = Vec::new();
                shared.sessions.for_each(|session| left.push(*session));
                format!("sessions that do not expire: {left:?}")
            });
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    true
}

/// Shuts the tracker down as soon as some more sessions than `before` have been created.
fn shut_down(shared: &Shared<'_>, before: u64) -> Log {
    let began = Instant::now();
    while shared.created.load(Relaxed) < before + MORE && began.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
    let before = shared.time.before();
    let left = shared.sessions.shutdown();
    let after = shared.time.after();
    let left = left.into_iter().map(|session| {
        (session.id, Event::between(Did::Ended(End::Left, session), before, after, 0))
    });
    left.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{parsed, Scenario};

    /// The checks that fail when `story` is told of a tracker in simulated time, with room for so many sessions.
    fn failing(capacity: usize, story: impl FnOnce(&Shared<'_>)) -> Vec<Check> {
        let Scenario::Sessions(options) = parsed("sessions --tracker --simulated") else {
            unreachable!("it was asked for")
        };
        let (time, checks) = (Timeline::new(true), Checks::new(&NAMES));
        let builder = SessionTracker::builder().interval(options.interval);
        let sessions = builder.capacity(capacity).clock(time.clock()).build().unwrap();
        story(&Shared::new(&sessions, &time, &checks, &options));
        checks.failing()
    }

    #[test]
    fn a_session_that_stays_is_seen() {
        let wrong = failing(9, |shared| {
            let create = || shared.sessions.create(shared.interval, 1).unwrap();
            shared.sessions.set_closing(create().id()).unwrap();
            assert!(wait(shared, Duration::ZERO));
            create();
            // Its time is up, and nobody polls.
            shared.time.advance(shared.interval * 2);
            assert!(!wait(shared, Duration::ZERO));
        });
        assert_eq!(wrong, ["none_immortal"]);
    }

    #[test]
    fn a_creation_that_is_refused_is_seen() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut work = |capacity| {
            failing(capacity, |shared| {
                Worker::new(shared, &mut rng).work(5);
            })
        };
        assert_eq!(work(5), [""; 0]);
        assert_eq!(work(4), ["no_surprises"]);
    }
}
