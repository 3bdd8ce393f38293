//! `sessions --contended`: the drive of `contended` on this crate's queue and, if wanted, on another's algorithm; the report.

use super::contended::{drive, Driven, Manner, Ours, Plan, INTERVAL};
use super::keys::Key;
use super::stays::Judged;
use super::zookeeper::ZooKeeper;
use crate::checks::{Check, Checks};
use crate::crowd::{crowd, Work};
use crate::error::Error;
use crate::live::{Gauge, Live, Series};
use crate::options::{Peer, Sessions};
use crate::report::Report;
use expiry::ManualClock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const NAMES: [Check; 7] = [
    "none_stranded",
    "none_lost",
    "told_once",
    "ends_when_asked",
    "zero_refused",
    "queue_empty",
    "threads_met",
];
/// The check that the drive finds strandings where there are some.
const PEER_STRANDS: Check = "peer_strands";

/// Keys if the options do not say.
const KEYS: u64 = 2_000_000;
/// The most keys of a peer, and the longest that it is driven: enough to see its rate.
const PEER: (u64, Duration) = (500_000, Duration::from_secs(30));

/// So long threads that have not met are given for it, however busy the machine is: that is thousands of batches.
const PATIENCE: Duration = Duration::from_secs(600);

/// The share of removes where the options do not say.
const REMOVES: f64 = 0.25;

/// The manners that the options ask for: with and without what they leave open.
fn manners(options: &Sessions) -> Vec<Manner> {
    let polled = match options.pollers {
        Some(pollers) => vec![pollers > 0],
        None => vec![false, true],
    };
    let removes = match options.removes {
        Some(rate) => vec![rate],
        None => vec![0.0, REMOVES],
    };
    let mut manners = Vec::new();
    for &polled in &polled {
        for &removes in &removes {
            let name = match (polled, removes > 0.0) {
                (false, false) => "quiet",
                (false, true) => "removes",
                (true, false) => "polled",
                (true, true) => "polled_removes",
            };
            manners.push(Manner { name, polled, removes });
        }
    }
    manners
}

/// Runs the scenario.
///
/// # Errors
///
/// If the options make no sense.
pub fn run<K: Key>(options: &Sessions) -> Result<Report, Error> {
    let plan = Plan {
        threads: options.threads.unwrap_or(2) as usize,
        pollers: options.pollers.unwrap_or(1) as usize,
        manners: manners(options),
        keys: options.keys.unwrap_or(KEYS),
        longest: match (options.seconds, options.keys) {
            (None, Some(_)) => Duration::MAX,
            (seconds, _) => Duration::from_secs_f64(seconds.unwrap_or(super::SECONDS)),
        },
        patience: PATIENCE,
        seed: options.seed,
    };
    if plan.threads < 2 {
        return Err(Error::Option {
            option: "--threads",
            why: "is 1, and nobody meets alone; with --contended use at least 2".into(),
        });
    }
    let clock = ManualClock::new();
    let queue = Ours::new(clock.clone(), options.seed)?;
    let (judged, took, series) = watched::<K, _>("", &queue, &clock, &plan);

    let mut names = NAMES.to_vec();
    names.extend(options.peer.map(|_| PEER_STRANDS));
    let checks = Checks::new(&names);
    verdict(&plan, &judged, &checks);
    let peer = options.peer.map(|Peer::Zookeeper| {
        let clock = ManualClock::new();
        let queue = ZooKeeper::new(clock.clone(), INTERVAL.as_nanos() as u64);
        let plan =
            Plan { keys: plan.keys.min(PEER.0), longest: plan.longest.min(PEER.1), ..plan.clone() };
        watched::<K, _>("ZooKeeper's: ", &queue, &clock, &plan)
    });
    if let Some((judged, ..)) = &peer {
        let stranded: u64 = judged.iter().map(|one| one.stranded).sum();
        checks.expect(PEER_STRANDS, stranded > 0, || {
            "no key of the peer was stranded: the drive would not have found ours".into()
        });
    }
    let sum = total(&judged);
    let mut report = Report::new(
        "sessions --contended",
        ("keys", sum.keys),
        took,
        options.seed,
        &checks,
        options,
    );
    report.series = series;
    report.counts.extend([
        ("keys", sum.keys),
        ("keys_shared", sum.shared),
        ("updates", sum.updates),
        ("inserted", sum.inserted),
        ("removed", sum.removed),
        ("expired", sum.expired),
        ("refused_zero", sum.refused),
        ("stranded", sum.stranded),
        ("meetings_timed", sum.timed),
        ("meetings_met", sum.met),
        ("crossed_by_results", sum.crossed),
    ]);
    report.figures.extend([
        ("met_percent", percent(sum.met, sum.timed)),
        ("crossed_percent", percent(sum.crossed, sum.quiet)),
    ]);
    for (at, (manner, judged)) in plan.manners.iter().zip(&judged).enumerate() {
        let peer = peer.as_ref().map(|(judged, ..)| &judged[at]);
        report.notes.push(line(manner, judged, peer));
    }
    if let Some((judged, took, _)) = &peer {
        let sum = total(judged);
        report.counts.extend([("peer_keys", sum.keys), ("peer_stranded", sum.stranded)]);
        report.figures.extend([
            ("peer_met_percent", percent(sum.met, sum.timed)),
            ("peer_one_stranded_in", one_in(&sum)),
            ("peer_seconds", took.as_secs_f64()),
        ]);
    }
    Ok(report)
}

/// Drives a queue, and shows how far it is.
fn watched<K: Key, Q: Driven<K>>(
    whose: &str,
    queue: &Q,
    clock: &ManualClock,
    plan: &Plan,
) -> (Vec<Judged>, Duration, Series) {
    let (done, began) = (AtomicU64::new(0), Instant::now());
    let mut live = Live::new("sessions --contended", Some(plan.keys));
    let work: Work<'_, _> = Box::new(|| drive::<K, Q>(queue, clock, plan, &done));
    let judged = crowd(vec![work], &mut live, |live| {
        let keys = done.load(Relaxed);
        live.show(keys, || Gauge {
            done: keys,
            text: format!("{whose}{keys} keys shared"),
            ..Gauge::default()
        });
    });
    (judged.concat(), began.elapsed(), live.finish())
}

fn total(judged: &[Judged]) -> Judged {
    let mut sum = Judged::default();
    judged.iter().for_each(|one| sum.add(one));
    sum
}

#[allow(clippy::cast_precision_loss)] // counts below 2^53
fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

#[allow(clippy::cast_precision_loss)] // counts below 2^53
fn one_in(judged: &Judged) -> f64 {
    judged.shared as f64 / judged.stranded.max(1) as f64
}

/// What came of a manner, in words.
fn line(manner: &Manner, judged: &Judged, peer: Option<&Judged>) -> String {
    let rate = |judged: &Judged| match judged.stranded {
        0 => "none".into(),
        stranded => format!("{stranded}, one in {:.0}", one_in(judged)),
    };
    let mut line = format!(
        "{}: {} keys, {} shared, stranded {}, met {:.0} %",
        manner.name,
        judged.keys,
        judged.shared,
        rate(judged),
        percent(judged.met, judged.timed)
    );
    if let Some(peer) = peer {
        line += &format!("; peer: {} keys, stranded {}", peer.shared, rate(peer));
    }
    line
}

/// Holds what was found against what may be.
fn verdict(plan: &Plan, judged: &[Judged], checks: &Checks) {
    for (manner, judged) in plan.manners.iter().zip(judged) {
        for (check, what, is) in [
            ("none_stranded", "keys still there", judged.stranded),
            ("none_lost", "keys with a stay without an end", judged.lost),
            ("told_once", "keys with more ends than stays", judged.twice),
            ("ends_when_asked", "keys that ended at another time", judged.odd),
            ("zero_refused", "mistaken refusals or acceptances", judged.mistaken),
            ("queue_empty", "keys that the queue still counts", judged.left),
        ] {
            checks.equal(check, &format!("{}: {what}", manner.name), is, 0);
        }
    }
    // Without meetings nothing has been shown.
    let sum = total(judged);
    checks.expect("threads_met", sum.met > 0, || {
        format!("of {} keys that were timed, none was a meeting", sum.timed)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(spoil: impl FnOnce(&mut Judged)) -> Vec<Check> {
        let mut judged = Judged { keys: 100, timed: 100, met: 50, ..Judged::default() };
        spoil(&mut judged);
        let plan = Plan {
            threads: 2,
            pollers: 0,
            manners: vec![Manner { name: "quiet", polled: false, removes: 0.0 }],
            keys: 100,
            longest: Duration::MAX,
            patience: Duration::ZERO,
            seed: 1,
        };
        let checks = Checks::new(&NAMES);
        verdict(&plan, &[judged], &checks);
        checks.failing()
    }

    #[test]
    fn each_finding_fails_its_check() {
        assert!(failing(|_| {}).is_empty());
        assert_eq!(failing(|judged| judged.stranded = 1), ["none_stranded"]);
        assert_eq!(failing(|judged| judged.lost = 1), ["none_lost"]);
        assert_eq!(failing(|judged| judged.twice = 1), ["told_once"]);
        assert_eq!(failing(|judged| judged.odd = 1), ["ends_when_asked"]);
        assert_eq!(failing(|judged| judged.mistaken = 1), ["zero_refused"]);
        assert_eq!(failing(|judged| judged.left = 1), ["queue_empty"]);
        assert_eq!(failing(|judged| judged.met = 0), ["threads_met"]);
    }
}
