//! Small generated programs on the whole tracker, without a reaper. Some sequential order of the
//! operations on a simple model must explain what every operation returned, and the outcomes that
//! were delivered.
//!
//! # The model
//!
//! Each root is an object by itself: a history is linearizable if it is so object by object. Orders
//! keep each thread's own order. The checker does not ask for the order of real time between
//! threads. An operation that has seen nothing of another thread's may be ordered before it, as the
//! memory model allows.
//!
//! An operation is one step, but for a completion, which is two, as the tracker's documentation has
//! it. The ack, or the init that merges, makes the edges cancel out. Then it ends the root, unless
//! another thread ends it first. So a duplicate ack in between counts, and a fail in between wins.
//! A poll may end every root that may be due, or not: the models in `wheel_inbox_reaper` check that
//! it must. In the end time passes, and nothing may be left.

use expiry::{Ack, AckError, Done, Reason, RootId};
use loom_tests::{aside, explore, preemptions, setting, Rig, TIMEOUT};
use std::collections::HashSet;
use std::sync::Arc;

/// The id of the chosen root.
const KEY: u64 = 1;

/// What a program operates on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Object {
    /// A root issued before the threads start, with edges 3 and 5.
    Issued,
    /// The root chosen as [`KEY`].
    Chosen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Op {
    Init(u64),
    Ack(Object, u64),
    Fail(Object),
    Reset(Object),
    /// Time passes, by so many ticks, and expiry is driven.
    Poll(u32),
    /// A root of the thread's own comes and goes: slots are reused.
    Guest,
}

/// What an operation did, or why it did nothing.
type Answer = Result<Did, AckError>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Did {
    Began,
    /// An ack was pending or held: one that comes while an init merges may be called either.
    Counted,
    Completed,
    /// A fail or a reset.
    Done(Done),
    Polled,
}

const NOT_LIVE: Answer = Err(AckError::NotLive);

/// An operation as it was seen, and the ticks at which it began and had ended.
#[derive(Debug, Clone, Copy)]
struct Seen {
    op: Op,
    answer: Answer,
    began: u32,
    ended: u32,
}

/// How a root ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum End {
    Acked,
    Failed,
    TimedOut,
}

#[derive(Debug, Clone)]
struct Program {
    /// What happens to the chosen root before the threads start.
    setup: Vec<Op>,
    threads: Vec<Vec<Op>>,
}

/// Splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_of<T: Copy>(&mut self, these: &[T]) -> T {
        these[usize::try_from(self.below(these.len() as u64)).unwrap()]
    }
}

impl Program {
    fn generate(seed: u64) -> Program {
        let mut random = Random(seed);
        let setup = random.one_of(&[
            [].as_slice(),
            &[Op::Init(3 ^ 5)],
            &[Op::Ack(Object::Chosen, 3)],
            &[Op::Fail(Object::Chosen)],
            &[Op::Init(3 ^ 5), Op::Ack(Object::Chosen, 3)],
        ]);
        let lengths =
            random.one_of(&[[1, 1, 0].as_slice(), &[2, 1, 0], &[2, 2, 0], &[3, 1, 0], &[1, 1, 1]]);
        // Most programs are about one object, or nothing would meet.
        let objects = random.one_of(&[
            [Object::Chosen].as_slice(),
            &[Object::Chosen],
            &[Object::Issued],
            &[Object::Chosen, Object::Issued],
        ]);
        let threads = lengths
            .iter()
            .filter(|length| **length > 0)
            .map(|length| (0..*length).map(|_| Op::generate(&mut random, objects)).collect())
            .collect();
        Program { setup: setup.to_vec(), threads }
    }
}

impl Op {
    fn generate(random: &mut Random, objects: &[Object]) -> Op {
        let object = random.one_of(objects);
        match random.below(12) {
            0..=2 if object == Object::Chosen => Op::Init(random.one_of(&[3 ^ 5, 3])),
            0..=5 => Op::Ack(object, random.one_of(&[3, 5, 3 ^ 5])),
            6..=7 => Op::Fail(object),
            8 => Op::Reset(object),
            9..=10 => Op::Poll(random.one_of(&[5, 10])),
            _ => Op::Guest,
        }
    }

    /// Whether it concerns `object`. Polls concern all.
    fn is_about(self, object: Object) -> bool {
        match self {
            Op::Init(_) => object == Object::Chosen,
            Op::Ack(about, _) | Op::Fail(about) | Op::Reset(about) => about == object,
            Op::Poll(_) => true,
            Op::Guest => false,
        }
    }

    fn run(self, rig: &Rig, issued: expiry::Root) -> Seen {
        let id = |object| match object {
            Object::Issued => RootId::Issued(issued),
            Object::Chosen => RootId::Chosen(KEY),
        };
        let began = rig.tick();
        let answer = match self {
            Op::Init(xor) => rig.init(KEY, xor, 1).map(|()| Did::Began),
            Op::Ack(object, xor) => rig.ack(id(object), xor).map(|ack| match ack {
                Ack::Completed => Did::Completed,
                Ack::Pending | Ack::Held => Did::Counted,
            }),
            Op::Fail(object) => rig.fail(id(object)).map(Did::Done),
            Op::Reset(object) => rig.reset_timeout(id(object)).map(Did::Done),
            Op::Poll(ticks) => {
                rig.advance(ticks);
                rig.poll(1000);
                Ok(Did::Polled)
            }
            Op::Guest => {
                let guest = rig.issue(9, 99).unwrap();
                let acked = rig.ack(guest, 9);
                // Alone with it, but time may pass.
                let ends = rig.outcomes(guest);
                match acked {
                    Ok(Ack::Completed) => assert_eq!(ends, [Reason::Acked]),
                    Err(AckError::NotLive) => assert!(ends.len() <= 1),
                    other => panic!("{other:?}"),
                }
                Ok(Did::Completed)
            }
        };
        Seen { op: self, answer, began, ended: rig.tick() }
    }
}

/// A root in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum State {
    Absent,
    There(Root),
    /// Only issued roots stay ended.
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Root {
    /// If not, signs of it have come, and its init has not.
    live: bool,
    word: u64,
    /// A fail has come before the init.
    failed: bool,
    due: u32,
}

use State::{Absent, Ended, There};

impl Object {
    /// What it is after its end.
    fn gone(self) -> State {
        if self == Object::Issued {
            Ended
        } else {
            Absent
        }
    }
}

/// A step of an operation: the next state, the end that it reports, and the answer. Without an
/// answer the operation has yet to end the root.
type Step = (State, Option<End>, Option<Answer>);

/// The steps that the model allows.
fn steps(object: Object, state: State, seen: &Seen) -> Vec<Step> {
    let due = seen.began + TIMEOUT;
    let plain = |state, did| (state, None, Some(Ok(did)));
    let sign = |word, failed| There(Root { live: false, word, failed, due });
    // The edges may have cancelled out.
    let summed = |root: Root, did| {
        let answer = (!root.live || root.word != 0).then_some(Ok(did));
        (There(root), None, answer)
    };
    let step = match (seen.op, state) {
        (Op::Poll(_) | Op::Guest, _) => plain(state, Did::Polled),
        (_, Ended) => (state, None, Some(NOT_LIVE)),
        (Op::Init(word), Absent) => {
            plain(There(Root { live: true, word, failed: false, due }), Did::Began)
        }
        (Op::Ack(_, xor), Absent) => plain(sign(xor, false), Did::Counted),
        (Op::Fail(_), Absent) => plain(sign(0, true), Did::Done(Done::Held)),
        (Op::Reset(_), Absent) => plain(sign(0, false), Did::Done(Done::Held)),
        (Op::Init(_), There(root)) if root.live => (state, None, Some(Err(AckError::Duplicate))),
        (Op::Init(_), There(root)) if root.failed => {
            (object.gone(), Some(End::Failed), Some(Ok(Did::Began)))
        }
        (Op::Init(xor), There(root)) => {
            summed(Root { live: true, word: root.word ^ xor, due, ..root }, Did::Began)
        }
        (Op::Ack(_, xor), There(root)) => {
            summed(Root { word: root.word ^ xor, ..root }, Did::Counted)
        }
        (Op::Fail(_), There(root)) if root.live => {
            (object.gone(), Some(End::Failed), Some(Ok(Did::Done(Done::Now))))
        }
        (Op::Fail(_), There(root)) => {
            plain(There(Root { failed: true, ..root }), Did::Done(Done::Held))
        }
        (Op::Reset(_), There(root)) if root.live => {
            plain(There(Root { due, ..root }), Did::Done(Done::Now))
        }
        (Op::Reset(_), There(_)) => plain(state, Did::Done(Done::Held)),
    };
    let mut steps = vec![step];
    match (seen.op, state) {
        (Op::Poll(_), There(root)) if root.due <= seen.ended => {
            let end = root.live.then_some(End::TimedOut);
            steps.push((object.gone(), end, Some(Ok(Did::Polled))));
        }
        // It may have found a chosen root ending: it does nothing then.
        _ if object == Object::Chosen => steps.push((state, None, Some(NOT_LIVE))),
        _ => {}
    }
    steps
}

/// The state of a search.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Place {
    state: State,
    /// How many of each thread's operations are done, and whether the next one has yet to end the
    /// root.
    done: Vec<(usize, bool)>,
    ends: Vec<End>,
}

/// Whether some order of the operations gives these answers and these ends.
fn explained(object: Object, initial: State, threads: &[Vec<Seen>], told: &[End]) -> bool {
    let mut open =
        vec![Place { state: initial, done: vec![(0, false); threads.len()], ends: Vec::new() }];
    let mut known = HashSet::new();
    while let Some(place) = open.pop() {
        if !known.insert(place.clone()) {
            continue;
        }
        let mut last = true;
        for (at, thread) in threads.iter().enumerate() {
            let (done, closing) = place.done[at];
            let Some(seen) = thread.get(done) else {
                continue;
            };
            last = false;
            let mut go = |state, end: Option<End>, next| {
                let mut place = place.clone();
                place.state = state;
                place.ends.extend(end);
                place.done[at] = next;
                open.push(place);
            };
            if closing {
                // The second half of a completion.
                let (won, lost) = match seen.op {
                    Op::Init(_) => (Ok(Did::Began), Ok(Did::Began)),
                    _ => (Ok(Did::Completed), NOT_LIVE),
                };
                match place.state {
                    There(Root { live: true, .. }) => {
                        if seen.answer == won {
                            go(object.gone(), Some(End::Acked), (done + 1, false));
                        }
                    }
                    state if seen.answer == lost => go(state, None, (done + 1, false)),
                    _ => {}
                }
                continue;
            }
            for (state, end, answer) in steps(object, place.state, seen) {
                if answer.is_none() {
                    go(state, None, (done, true));
                } else if answer == Some(seen.answer) {
                    go(state, end, (done + 1, false));
                    if matches!(seen.op, Op::Poll(_)) {
                        // It goes on, and may come upon the next occupancy.
                        go(state, end, (done, false));
                    }
                }
            }
        }
        // Time passes until nothing is left.
        let times_out = matches!(place.state, There(Root { live: true, .. }));
        let mut ends = place.ends;
        ends.extend(times_out.then_some(End::TimedOut));
        ends.sort_unstable();
        if last && ends == told {
            return true;
        }
    }
    false
}

/// The root that is issued before the threads start.
const ISSUED: State = There(Root { live: true, word: 3 ^ 5, failed: false, due: TIMEOUT });

fn check(program: &Program) {
    let rig = Rig::new();
    let issued = rig.issue(3 ^ 5, 2).unwrap();
    let setup: Vec<Seen> = program.setup.iter().map(|op| op.run(&rig, issued)).collect();
    let run = |ops: &Vec<Op>| {
        let ops = ops.clone();
        move |rig: &Arc<Rig>| ops.iter().map(|op| op.run(rig, issued)).collect::<Vec<_>>()
    };
    let others: Vec<_> = program.threads[1..].iter().map(|ops| aside(&rig, run(ops))).collect();
    let mut threads = vec![run(&program.threads[0])(&rig)];
    threads.extend(others.into_iter().map(|thread| thread.join().unwrap()));
    rig.pass(11);
    rig.pass(11);
    assert!(rig.is_empty(), "{program:?}: something is left: {threads:?}");
    for (object, root, initial) in [
        (Object::Issued, RootId::Issued(issued), ISSUED),
        (Object::Chosen, RootId::Chosen(KEY), Absent),
    ] {
        let about = |seen: &[Seen]| -> Vec<Seen> {
            seen.iter().filter(|seen| seen.op.is_about(object)).copied().collect()
        };
        let mut histories: Vec<Vec<Seen>> = threads.iter().map(|thread| about(thread)).collect();
        // The setup comes before everything: it begins the first thread's order, and those of the
        // others.
        let initial =
            about(&setup).iter().fold(initial, |state, seen| steps(object, state, seen)[0].0);
        histories.retain(|history| !history.is_empty());
        let mut told: Vec<End> = rig
            .outcomes(root)
            .iter()
            .map(|reason| match reason {
                Reason::Acked => End::Acked,
                Reason::Failed { .. } => End::Failed,
                Reason::TimedOut { .. } => End::TimedOut,
                other => panic!("{other:?}"),
            })
            .collect();
        told.sort_unstable();
        assert!(
            explained(object, initial, &histories, &told),
            "no order explains {object:?} in {program:?}: {histories:#?}, told {told:?}"
        );
    }
}

/// Every interleaving of every generated program has an order that explains it. There are two
/// halves, which can run at the same time.
fn generated_programs(half: usize) {
    let programs = setting("EXPIRY_LOOM_PROGRAMS", 40);
    let most = setting("EXPIRY_LOOM_EXECUTIONS", 20_000);
    let first = setting("EXPIRY_LOOM_FIRST_PROGRAM", 0);
    let (mut executions, mut cut) = (0, 0);
    for seed in (first..first + programs).skip(half).step_by(2) {
        let program = Arc::new(Program::generate(seed as u64));
        println!("program {seed}: {:?}, {:?}", program.setup, program.threads);
        let runs = explore(preemptions() - 1, most, move || check(&program));
        executions += runs;
        cut += usize::from(runs >= most);
    }
    println!(
        "half of {programs} programs, {executions} executions; {cut} were cut short at {most}"
    );
}

#[test]
fn generated_programs_of_even_seeds() {
    generated_programs(0);
}

#[test]
fn generated_programs_of_odd_seeds() {
    generated_programs(1);
}

/// The checker itself: it explains what is right, and not what is wrong.
#[test]
fn the_checker_tells_right_from_wrong() {
    let seen = |op, answer| vec![Seen { op, answer, began: 0, ended: 0 }];
    let ack = |answer| seen(Op::Ack(Object::Issued, 3 ^ 5), answer);
    let fail = |answer| seen(Op::Fail(Object::Issued), answer);
    let (completed, failed) = (Ok(Did::Completed), Ok(Did::Done(Done::Now)));
    for (right, threads, told) in [
        (true, vec![ack(completed), fail(NOT_LIVE)], vec![End::Acked]),
        (true, vec![ack(NOT_LIVE), fail(failed)], vec![End::Failed]),
        (false, vec![ack(completed), fail(failed)], vec![End::Acked]),
        (false, vec![ack(completed), fail(NOT_LIVE)], vec![End::Acked, End::Failed]),
        (false, vec![ack(NOT_LIVE), fail(NOT_LIVE)], vec![End::TimedOut]),
        (false, vec![ack(completed), ack(completed)], vec![End::Acked]),
        (false, vec![seen(Op::Poll(1), Ok(Did::Polled))], vec![]),
    ] {
        assert_eq!(explained(Object::Issued, ISSUED, &threads, &told), right, "{threads:?}");
    }
}
