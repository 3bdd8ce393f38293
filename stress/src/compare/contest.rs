//! A contest: who takes part, what the rounds came to, and the figures that are made of them.

use crate::checks::Check;
use crate::options::Group;
use expiry_benches::process::Took;
use expiry_benches::report::Spread;
use serde_json::{json, Map, Value};

/// What each operation of a contest took; none where it is not one that a peer does.
pub type Tooks = Vec<Option<Took>>;

/// What somebody is in a contest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// This crate's.
    Ours,
    /// Somebody else's.
    Theirs,
    /// The harness, or what the others add to.
    Alone,
}

/// Somebody who takes part.
pub struct Peer {
    /// The name that options know.
    pub name: &'static str,
    /// What it is called in tables.
    pub title: &'static str,
    pub part: Part,
    /// Does the work of a round on so many threads; panics if it is not done as it should be.
    pub run: Box<dyn Fn(usize) -> Tooks + Send + Sync>,
    /// What it is weighed as, in a process of its own.
    pub weighed: Option<&'static str>,
}

impl Peer {
    /// One that is not weighed.
    pub fn new(
        (name, title, part): (&'static str, &'static str, Part),
        run: impl Fn(usize) -> Tooks + Send + Sync + 'static,
    ) -> Self {
        Peer {
            name,
            title,
            part,
            run: Box::new(run),
            weighed: None,
        }
    }

    /// With what it is weighed as.
    pub fn weighed(self, weighed: Option<&'static str>) -> Self {
        Peer { weighed, ..self }
    }
}

/// The same work for several peers.
pub struct Contest {
    pub group: Group,
    /// What the work is, in words.
    pub work: String,
    /// That everybody does it.
    pub check: Check,
    pub operations: Vec<&'static str>,
    /// The operation whose scaling is drawn.
    pub drawn: usize,
    pub threads: Vec<usize>,
    pub peers: Vec<Peer>,
    /// Those whom the others are set beside.
    pub beside: Vec<usize>,
    /// Whether nanoseconds are what is added to those of who is [alone](Part::Alone).
    pub added: bool,
    /// Operations that a peer is timed at in a round, all kinds together.
    pub timed: u64,
    /// The task of a process that weighs, and how many entries it does that with.
    pub weighing: (&'static str, usize),
}

/// A round: for each number of threads what each peer took. None for who has not done the work.
pub type Round = Vec<Vec<Option<Tooks>>>;

/// What came of a contest.
pub struct Outcome {
    pub contest: Contest,
    /// Those that are complete.
    pub rounds: Vec<Round>,
    /// Of each peer, the bytes of an entry.
    pub bytes: Vec<Option<f64>>,
}

/// A peer's figures in one operation on one number of threads.
pub struct Row {
    pub peer: usize,
    pub threads: usize,
    /// Of processor time.
    pub ns: Spread,
    /// How many times that of those whom it is set beside.
    pub over: Vec<Option<Spread>>,
    /// Operations a second, all threads together.
    pub per_s: Spread,
    /// Of that, what it is of so many times the throughput of one thread.
    pub efficiency: Option<Spread>,
}

fn spread(rounds: impl Iterator<Item = f64>) -> Option<Spread> {
    let mut rounds = rounds.filter(|figure| figure.is_finite()).peekable();
    rounds.peek()?;
    Some(Spread::of(rounds))
}

impl Outcome {
    /// What a peer took in a round.
    fn took(&self, round: &Round, at: usize, peer: usize, operation: usize) -> Option<Took> {
        *round[at][peer].as_ref()?.get(operation)?
    }

    /// Its nanoseconds.
    fn ns(&self, round: &Round, at: usize, peer: usize, operation: usize) -> Option<f64> {
        let took = self.took(round, at, peer, operation)?;
        let peers = &self.contest.peers;
        let alone = peers.iter().position(|peer| peer.part == Part::Alone);
        match alone.filter(|_| self.contest.added && peers[peer].part != Part::Alone) {
            Some(alone) => Some(took.cpu - self.took(round, at, alone, operation)?.cpu),
            None => Some(took.cpu),
        }
    }

    /// The rows of one operation: peer by peer, and of each by threads.
    #[allow(clippy::cast_precision_loss)] // few threads
    pub fn rows(&self, operation: usize) -> Vec<Row> {
        let threads = &self.contest.threads;
        let one = threads.iter().position(|&threads| threads == 1);
        let each = (0..self.contest.peers.len())
            .flat_map(|peer| (0..threads.len()).map(move |at| (peer, at)));
        let row = |(peer, at): (usize, usize)| {
            let of = |f: &dyn Fn(&Round) -> Option<f64>| spread(self.rounds.iter().filter_map(f));
            let wall = |round: &Round, at| Some(self.took(round, at, peer, operation)?.wall);
            let over = |&beside: &usize| {
                let is_other = peer != beside && self.contest.peers[peer].part != Part::Alone;
                is_other
                    .then(|| {
                        of(&|round| {
                            let ours = self.ns(round, at, beside, operation)?;
                            Some(self.ns(round, at, peer, operation)? / ours)
                        })
                    })
                    .flatten()
            };
            let n = threads[at] as f64;
            Some(Row {
                peer,
                threads: threads[at],
                ns: of(&|round| self.ns(round, at, peer, operation))?,
                over: self.contest.beside.iter().map(over).collect(),
                per_s: of(&|round| Some(n * 1e9 / wall(round, at)?))?,
                efficiency: one
                    .and_then(|one| of(&|round| Some(wall(round, one)? / wall(round, at)?))),
            })
        };
        each.filter_map(row).collect()
    }

    /// All figures, as they are in the JSON.
    pub fn json(&self) -> Value {
        let Contest {
            group,
            work,
            operations,
            peers,
            beside,
            added,
            ..
        } = &self.contest;
        let row = |row: &Row| {
            let over = beside.iter().zip(&row.over);
            let over: Map<String, Value> = over
                .filter_map(|(&beside, over)| Some((peers[beside].name.into(), (*over)?.json())))
                .collect();
            json!({
                "peer": peers[row.peer].name,
                "threads": row.threads,
                "ns": row.ns.json(),
                "over": over,
                "per_s": row.per_s.json(),
                "efficiency": row.efficiency.map(Spread::json),
            })
        };
        let tables = operations.iter().enumerate().map(|(at, operation)| {
            let rows: Vec<Value> = self.rows(at).iter().map(row).collect();
            json!({ "operation": operation, "rows": rows })
        });
        let each = peers.iter().zip(&self.bytes).map(|(peer, bytes)| {
            let part = match peer.part {
                Part::Ours => "ours",
                Part::Theirs => "theirs",
                Part::Alone => "alone",
            };
            json!({ "name": peer.name, "title": peer.title, "part": part, "bytes": bytes })
        });
        json!({
            "group": group,
            "work": work,
            "added": added,
            "rounds": self.rounds.len(),
            "peers": each.collect::<Vec<_>>(),
            "operations": tables.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &'static str, part: Part) -> Peer {
        Peer {
            name,
            title: name,
            part,
            run: Box::new(|_| Vec::new()),
            weighed: None,
        }
    }

    fn took(cpu: f64, wall: f64) -> Option<Tooks> {
        Some(vec![Some(Took { cpu, wall })])
    }

    fn outcome(added: bool, rounds: Vec<Round>) -> Outcome {
        let peers = vec![
            peer("ours", Part::Ours),
            peer("theirs", Part::Theirs),
            peer("alone", Part::Alone),
        ];
        Outcome {
            contest: Contest {
                group: Group::Maps,
                work: String::new(),
                check: "x",
                operations: vec!["o"],
                drawn: 0,
                threads: vec![1, 2],
                peers,
                beside: vec![0],
                added,
                timed: 1,
                weighing: ("x", 1),
            },
            rounds,
            bytes: vec![None; 3],
        }
    }

    fn is(spread: Spread, median: f64, min: f64, max: f64) -> bool {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        close(spread.median, median) && close(spread.min, min) && close(spread.max, max)
    }

    #[test]
    fn ratios_are_of_the_same_round_and_efficiency_is_of_one_thread() {
        let round = |slow: f64| {
            vec![
                vec![
                    took(10.0 * slow, 10.0 * slow),
                    took(30.0 * slow, 30.0 * slow),
                    took(1.0, 1.0),
                ],
                vec![took(20.0, 20.0), took(40.0, 60.0), took(1.0, 1.0)],
            ]
        };
        let rows = outcome(false, vec![round(1.0), round(2.0), round(5.0)]).rows(0);
        let of = |peer, threads| {
            let mut rows = rows.iter();
            rows.find(|row| (row.peer, row.threads) == (peer, threads))
                .unwrap()
        };
        // However slow a round was: three times as much.
        assert!(is(of(1, 1).over[0].unwrap(), 3.0, 3.0, 3.0));
        assert!(is(of(1, 1).ns, 60.0, 30.0, 150.0));
        assert!(is(of(1, 2).over[0].unwrap(), 2.0, 2.0, 2.0));
        assert!(of(0, 1).over[0].is_none() && of(2, 1).over[0].is_none());
        assert!(is(of(1, 2).efficiency.unwrap(), 1.0, 0.5, 2.5));
        assert!(is(of(0, 1).efficiency.unwrap(), 1.0, 1.0, 1.0));
        // Two threads, 20 ns each.
        assert!(is(of(0, 2).per_s, 1e8, 1e8, 1e8));
    }

    #[test]
    fn what_is_added_is_beyond_who_is_alone() {
        let round = vec![
            vec![took(110.0, 1.0), took(130.0, 1.0), took(100.0, 1.0)],
            vec![took(110.0, 1.0), None, took(100.0, 1.0)],
        ];
        let rows = outcome(true, vec![round]).rows(0);
        assert!(is(rows[0].ns, 10.0, 10.0, 10.0));
        assert!(is(rows[2].over[0].unwrap(), 3.0, 3.0, 3.0));
        assert!(is(rows[3].ns, 100.0, 100.0, 100.0), "alone, as it is");
        // Who has not done the work has no figure.
        assert_eq!(rows.len(), 5);
    }
}
