//! Who is compared with whom, in what. Workloads and peers are those of `expiry-benches`.

use super::contest::{Contest, Part, Peer, Tooks};
use crate::checks::Check;
use crate::error::Error;
use crate::options::{self, Compare, Group};
use expiry_benches::figures::count;
use expiry_benches::keyed::course::{self, Kind, Op};
use expiry_benches::keyed::{self, expire, Counted, Store};
use expiry_benches::lab;
use expiry_benches::peers::{self, Peer as Tracker};
use expiry_benches::process::Took;
use expiry_benches::shared::{self, SharedTimers};
use expiry_benches::timeouts::{self, Guard};
use expiry_benches::timers::{BTree, CompactingHeap, Wheel};
use expiry_benches::window::{Keys, Order};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Every tree completes, with its owner.
const TREES_COMPLETE: Check = "trees_complete";
/// What is put in is found, renewed and removed, as often as it should be.
const ENTRIES_KEPT: Check = "entries_kept";
/// Everything that is put in expires, nothing early.
const ENTRIES_EXPIRE: Check = "entries_expire";
/// Timers that are cancelled are gone, the others fire once.
const TIMERS_FIRE: Check = "timers_fire";
/// Futures give what they give, or time out.
const FUTURES_END: Check = "futures_end";

/// By the number of threads.
type Loads<L> = Arc<BTreeMap<usize, L>>;

/// How much there is to do.
struct Size {
    threads: Vec<usize>,
    entries: usize,
    operations: usize,
}

impl Size {
    fn of(options: &Compare) -> Self {
        let entries = if options.full { 1_000_000 } else { 100_000 };
        let entries = options.entries.unwrap_or(entries) as usize;
        let operations = options.operations.map(|n| n as usize);
        let mut threads: Vec<usize> = options.threads.iter().map(|&n| n as usize).collect();
        if threads.is_empty() {
            let cores = options::threads(None);
            let doubled = std::iter::successors(Some(1), |n| Some(n * 2));
            threads.extend(doubled.take_while(|&n| n < cores));
            threads.push(cores);
        }
        threads.sort_unstable();
        threads.dedup();
        Size {
            threads,
            entries,
            operations: operations.unwrap_or(entries * 10),
        }
    }

    fn loads<L>(&self, load: impl Fn(usize) -> L) -> Loads<L> {
        let loads = self.threads.iter().map(|&threads| (threads, load(threads)));
        Arc::new(loads.collect())
    }
}

/// The contests that are asked for.
///
/// # Errors
///
/// If there is no such peer in them.
pub fn contests(options: &Compare) -> Result<Vec<Contest>, Error> {
    let size = Size::of(options);
    let order = match options.order {
        options::Order::Fifo => Order::Fifo,
        options::Order::Shuffled => Order::Random,
    };
    // Timeouts first: once a clock of tokio's has been paused in this process, as that of a `DelayQueue` is, its timers are slower.
    let mut all = vec![timeouts(&size), maps(&size, order)];
    all.extend([timers(&size), stores(&size), expiry(&size)]);
    let groups = &options.group;
    all.retain(|contest| groups.is_empty() || groups.contains(&contest.group));
    only(&mut all, &options.peers)?;
    Ok(all)
}

/// Leaves those peers that are asked for, ours, and who is alone.
fn only(all: &mut Vec<Contest>, names: &[String]) -> Result<(), Error> {
    let theirs = |peer: &&Peer| peer.part == Part::Theirs;
    let known: Vec<&str> = all
        .iter()
        .flat_map(|contest| contest.peers.iter().filter(theirs).map(|peer| peer.name))
        .collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        let mut known = known;
        known.sort_unstable();
        known.dedup();
        return Err(Error::Option {
            option: "--peers",
            why: format!(
                "{name} is nobody there; those that are: {}",
                known.join(", ")
            ),
        });
    }
    if !names.is_empty() {
        let is_asked = |peer: &Peer| names.iter().any(|name| name == peer.name);
        for contest in all.iter_mut() {
            let beside: Vec<&str> = contest
                .beside
                .iter()
                .map(|&at| contest.peers[at].name)
                .collect();
            contest
                .peers
                .retain(|peer| peer.part != Part::Theirs || is_asked(peer));
            let place = |name: &str| contest.peers.iter().position(|peer| peer.name == name);
            contest.beside = beside.into_iter().filter_map(place).collect();
        }
        all.retain(|contest| contest.peers.iter().any(|peer| theirs(&peer)));
    }
    Ok(())
}

fn tree<P: Tracker>(
    loads: &Loads<lab::Load>,
    name: &'static str,
    part: Part,
    weighed: Option<&'static str>,
) -> Peer {
    let loads = loads.clone();
    let run = move |threads: usize| -> Tooks {
        let took = lab::lifecycle::<P>(&loads[&threads], Keys::Random, false).took;
        vec![Some(Took {
            cpu: took.cpu / 4.0,
            wall: took.wall / 4.0,
        })]
    };
    Peer::new((name, P::NAME, part), run).weighed(weighed)
}

fn maps(size: &Size, order: Order) -> Contest {
    let trees = size.operations / 4;
    let warm = size.entries.min(trees);
    let loads = size.loads(|threads| lab::Load::new(size.entries, threads, order, trees, warm));
    let peers = vec![
        tree::<peers::Issued>(&loads, "issued", Part::Ours, Some("issued")),
        tree::<peers::Chosen>(&loads, "chosen", Part::Ours, Some("chosen")),
        tree::<peers::DashRemoveIf>(&loads, "dashmap", Part::Theirs, Some("dashmap")),
        tree::<peers::Papaya>(&loads, "papaya", Part::Theirs, Some("papaya")),
        tree::<peers::Scc>(&loads, "scc", Part::Theirs, Some("scc")),
        tree::<peers::Sharded>(&loads, "sharded", Part::Theirs, Some("sharded")),
        tree::<peers::Nothing>(&loads, "harness", Part::Alone, None),
    ];
    let order = match order {
        Order::Fifo => "the oldest first",
        Order::Random => "in random order",
    };
    Contest {
        group: Group::Maps,
        work: format!(
            "trees of an init and three acks, {order}, {} in flight; the maps have no expiry",
            count(size.entries)
        ),
        check: TREES_COMPLETE,
        operations: vec!["init or ack"],
        drawn: 0,
        threads: size.threads.clone(),
        peers,
        beside: vec![0, 1],
        added: false,
        timed: trees as u64 * 4,
        weighing: ("weight", size.entries),
    }
}

fn store<S: Store<u64, u64> + 'static>(
    loads: &Loads<course::Load>,
    name: &'static str,
    part: Part,
    weighed: Option<&'static str>,
) -> Peer {
    let loads = loads.clone();
    let run = move |threads: usize| -> Tooks {
        let course = course::run::<u64, u64, S>(&loads[&threads]);
        let ops = Op::MAPS.iter();
        ops.map(|&op| Some(course[op as usize])).collect()
    };
    Peer::new((name, S::NAME, part), run).weighed(weighed)
}

fn stores(size: &Size) -> Contest {
    type Papaya = keyed::Papaya<u64, u64>;
    let loads = size.loads(|threads| course::Load::new(size.entries, threads, Kind::Maps));
    let mut papaya = store::<Papaya>(&loads, "papaya", Part::Theirs, None);
    let all = papaya.run;
    papaya.run = Box::new(move |threads| {
        let tooks = all(threads).into_iter().zip(Op::MAPS);
        let get = tooks.map(|(took, op)| took.filter(|_| op == Op::Get));
        get.collect()
    });
    let theirs = Part::Theirs;
    let peers = vec![
        store::<keyed::Map<u64, u64>>(&loads, "map", Part::Ours, Some("map/u64")),
        store::<keyed::Moka<u64, u64>>(&loads, "moka", theirs, Some("moka/u64")),
        store::<keyed::MiniMoka<u64, u64>>(&loads, "mini-moka", theirs, Some("mini-moka/u64")),
        store::<keyed::DelayQueue<u64, u64>>(
            &loads,
            "delay-queue",
            theirs,
            Some("delay-queue-map/u64"),
        ),
        store::<keyed::Sharded<u64, u64>>(&loads, "sharded", theirs, Some("sharded-map/u64")),
        papaya,
        store::<keyed::Nothing>(&loads, "harness", Part::Alone, None),
    ];
    let operations: Vec<_> = Op::MAPS.iter().map(|op| op.name()).collect();
    Contest {
        group: Group::Expiring,
        work: format!(
            "{} entries that live for an hour, each a number",
            count(size.entries)
        ),
        check: ENTRIES_KEPT,
        drawn: operations.len() - 1,
        timed: (size.entries * operations.len()) as u64,
        operations,
        threads: size.threads.clone(),
        peers,
        beside: vec![0],
        added: false,
        weighing: ("keyed", size.entries),
    }
}

fn expires<S: Store<u64, Counted> + 'static>(
    entries: usize,
    name: &'static str,
    part: Part,
) -> Peer {
    let run = move |_: usize| -> Tooks {
        let nanos = expire::run::<u64, Counted, S>(entries, expire::Due::Mass).nanos;
        vec![Some(Took {
            cpu: nanos,
            wall: nanos,
        })]
    };
    Peer::new((name, S::NAME, part), run)
}

fn expiry(size: &Size) -> Contest {
    let n = size.entries;
    let theirs = Part::Theirs;
    let peers = vec![
        expires::<keyed::Map<u64, Counted>>(n, "map", Part::Ours),
        expires::<keyed::Moka<u64, Counted>>(n, "moka", theirs),
        expires::<keyed::MiniMoka<u64, Counted>>(n, "mini-moka", theirs),
        expires::<keyed::DelayQueue<u64, Counted>>(n, "delay-queue", theirs),
        expires::<keyed::Sharded<u64, Counted>>(n, "sharded", theirs),
    ];
    Contest {
        group: Group::Expiring,
        work: format!(
            "{} entries expire at once and are dropped, by one thread",
            count(n)
        ),
        check: ENTRIES_EXPIRE,
        operations: vec!["expire"],
        drawn: 0,
        threads: vec![1],
        peers,
        beside: vec![0],
        added: false,
        timed: n as u64,
        weighing: ("keyed", n),
    }
}

fn timer<T: SharedTimers>(loads: &Loads<shared::Load>, name: &'static str, part: Part) -> Peer {
    let loads = loads.clone();
    let run = move |threads| vec![Some(shared::run::<T>(&loads[&threads]))];
    let weighed = (part != Part::Alone).then_some(name);
    Peer::new((name, T::NAME, part), run).weighed(weighed)
}

fn timers(size: &Size) -> Contest {
    let lives = size.operations / 2;
    let loads = size.loads(|threads| shared::Load::new(size.entries, threads, lives));
    let peers = vec![
        timer::<shared::Roots>(&loads, "roots", Part::Ours),
        timer::<shared::HashWheelThread>(&loads, "hash-wheel", Part::Theirs),
        timer::<shared::Locked<BTree>>(&loads, "btree", Part::Theirs),
        timer::<shared::Locked<CompactingHeap>>(&loads, "heap", Part::Theirs),
        timer::<shared::Locked<Wheel>>(&loads, "wheel", Part::Theirs),
        timer::<shared::Nothing>(&loads, "harness", Part::Alone),
    ];
    Contest {
        group: Group::Timers,
        work: format!(
            "{} timers, one cancelled and one scheduled in turn; one in 64 fires",
            count(size.entries)
        ),
        check: TIMERS_FIRE,
        operations: vec!["schedule or cancel"],
        drawn: 0,
        threads: size.threads.clone(),
        peers,
        beside: vec![0],
        added: false,
        timed: 2 * lives as u64,
        weighing: ("shared", size.entries),
    }
}

fn timeout<G: Guard>(loads: &Loads<timeouts::Load>, name: &'static str, part: Part) -> Peer {
    let loads = loads.clone();
    let run = move |threads| vec![Some(timeouts::run::<G>(&loads[&threads]))];
    Peer::new((name, G::NAME, part), run).weighed(Some(name))
}

/// Timeouts that a task awaits one after the other.
const EACH: usize = 64;

fn timeouts(size: &Size) -> Contest {
    let tasks = (size.operations / EACH).clamp(1, size.entries);
    let each = (size.operations / tasks).max(1);
    let loads = size.loads(|threads| timeouts::Load {
        tasks,
        threads,
        each,
    });
    let peers = vec![
        timeout::<timeouts::Ours>(&loads, "expiry", Part::Ours),
        timeout::<timeouts::Tokio>(&loads, "tokio", Part::Theirs),
        timeout::<timeouts::TokioSleep>(&loads, "tokio-sleep", Part::Theirs),
        timeout::<timeouts::Pingora>(&loads, "pingora", Part::Theirs),
        timeout::<timeouts::PingoraTokio>(&loads, "pingora-tokio", Part::Theirs),
        timeout::<timeouts::Bare>(&loads, "bare", Part::Alone),
    ];
    Contest {
        group: Group::Timeouts,
        work: format!(
            "{} tasks that await futures which yield once, under a timeout of a minute; what it adds to the future alone",
            count(tasks)
        ),
        check: FUTURES_END,
        operations: vec!["await"],
        drawn: 0,
        threads: size.threads.clone(),
        peers,
        beside: vec![0],
        added: true,
        timed: (tasks * each) as u64,
        weighing: ("timeouts", size.entries),
    }
}
