//! The figures as tables for people, and as charts.

use super::contest::{Outcome, Part, Row};
use crate::page::{Chart, Kind, Unit};
use crate::report::{thousands, Table};
use expiry_benches::report::Spread;

/// A number with about three digits.
fn digits(figure: f64) -> String {
    match figure.abs() {
        size if size >= 99.95 => format!("{figure:.0}"),
        size if size >= 9.995 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

fn spread(Spread { median, min, max }: Spread) -> String {
    format!("{} [{} .. {}]", digits(median), digits(min), digits(max))
}

fn or_none<T>(figure: Option<T>, show: impl Fn(T) -> String) -> String {
    figure.map_or_else(|| "-".into(), show)
}

/// A table for each operation.
pub fn tables(outcome: &Outcome) -> Vec<Table> {
    let contest = &outcome.contest;
    let mut head = vec![
        String::new(),
        "threads".into(),
        if contest.added { "ns added" } else { "ns" }.into(),
    ];
    let beside = contest.beside.iter();
    head.extend(beside.map(|&at| format!("over {}", contest.peers[at].name)));
    head.extend(["op/s", "efficiency", "bytes"].map(String::from));
    let cells = |row: &Row| {
        let peer = &contest.peers[row.peer];
        // Once for all numbers of threads.
        let is_first = Some(&row.threads) == contest.threads.first();
        let mut cells = vec![if is_first {
            peer.title.into()
        } else {
            String::new()
        }];
        cells.extend([row.threads.to_string(), spread(row.ns)]);
        cells.extend(row.over.iter().map(|over| or_none(*over, spread)));
        cells.push(thousands(row.per_s.median));
        let share = |spread: Spread| digits(spread.median);
        cells.push(or_none(row.efficiency.filter(|_| row.threads > 1), share));
        let bytes = or_none(outcome.bytes[row.peer], digits);
        cells.push(if is_first { bytes } else { String::new() });
        cells
    };
    let table = |(at, operation): (usize, &&'static str)| Table {
        title: format!(
            "{}: {operation} ({}; {} rounds)",
            outcome.name(),
            contest.work,
            outcome.rounds.len()
        ),
        head: head.clone(),
        rows: outcome.rows(at).iter().map(cells).collect(),
    };
    let all = contest.operations.iter().enumerate().map(table);
    all.filter(|table| !table.rows.is_empty()).collect()
}

/// What everybody takes for each operation; of one of them, by threads; and bytes.
pub fn charts(outcome: &Outcome) -> Vec<Chart> {
    let contest = &outcome.contest;
    let name = outcome.name();
    let (first, last) = (
        contest.threads[0],
        contest.threads[contest.threads.len() - 1],
    );
    let mut charts = Vec::new();
    for (at, operation) in contest.operations.iter().enumerate() {
        let rows = outcome.rows(at);
        let mut shown = vec![first];
        shown.extend((last != first && at == contest.drawn).then_some(last));
        charts.extend(
            shown
                .into_iter()
                .map(|threads| taken(outcome, operation, threads, &rows)),
        );
    }
    let rows = outcome.rows(contest.drawn);
    let operation = contest.operations[contest.drawn];
    let by_threads = |what: &str, unit, of: fn(&Row) -> Option<f64>| {
        let title = format!("{name}: {operation}, {what}");
        let chart = Chart::new(&title, ("threads", Unit::Count), ("", unit), Kind::Lines);
        let peers = contest.peers.iter().enumerate();
        let drawn = peers.filter(|(_, peer)| peer.part != Part::Alone);
        drawn.fold(chart, |chart, (at, peer)| {
            let own = rows.iter().filter(|row| row.peer == at);
            #[allow(clippy::cast_precision_loss)] // few threads
            let points = own.filter_map(|row| Some((row.threads as f64, of(row)?)));
            chart.with(peer.title, points)
        })
    };
    charts.push(by_threads("throughput", Unit::PerSecond, |row| {
        Some(row.per_s.median)
    }));
    charts.push(by_threads("efficiency", Unit::Share, |row| {
        row.efficiency.map(|share| share.median)
    }));
    let title = format!("{name}: bytes an entry");
    let weights = Chart::new(&title, ("", Unit::Share), ("", Unit::Bytes), Kind::Ranges);
    let peers = contest.peers.iter().zip(&outcome.bytes);
    charts.push(peers.fold(weights, |chart, (peer, bytes)| {
        chart.with(peer.title, bytes.map(|bytes| (0.5, bytes)))
    }));
    charts
}

/// What everybody takes for an operation: by the share of the rounds that took less.
fn taken(outcome: &Outcome, operation: &str, threads: usize, rows: &[Row]) -> Chart {
    let added = if outcome.contest.added { " added" } else { "" };
    let many = if threads == 1 { "thread" } else { "threads" };
    let title = format!(
        "{}: {operation}, ns{added}, {threads} {many}",
        outcome.name()
    );
    let chart = Chart::new(
        &title,
        ("rounds", Unit::Share),
        ("", Unit::LinearNanos),
        Kind::Ranges,
    );
    let peers = outcome.contest.peers.iter().enumerate();
    // Who is alone is what they add to.
    let drawn = peers.filter(|(_, peer)| !outcome.contest.added || peer.part != Part::Alone);
    drawn.fold(chart, |chart, (at, peer)| {
        let row = rows
            .iter()
            .find(|row| row.peer == at && row.threads == threads);
        let points = row.map(|row| [(0.0, row.ns.min), (0.5, row.ns.median), (1.0, row.ns.max)]);
        chart.with(peer.title, points.into_iter().flatten())
    })
}
