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

use expiry::{Ack, AckError, Done, Reason, Root, RootId};
use loom_tests::{explore, preemptions, setting, thread, Rig, TICK, TIMEOUT};
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

/// What became of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Answer {
    Ok,
    Duplicate,
    NotLive,
    Completed,
    /// Pending or held: an ack that comes while an init merges may be called either.
    Counted,
    Now,
    Held,
    Polled,
}

/// An operation as it was seen, and the ticks at which it began and had ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

    fn run(self, rig: &Rig, issued: Root) -> Seen {
        let id = |object| match object {
            Object::Issued => RootId::Issued(issued),
            Object::Chosen => RootId::Chosen(KEY),
        };
        let began = rig.tick();
        let done = |done| match done {
            Ok(Done::Now) => Answer::Now,
            Ok(Done::Held) => Answer::Held,
            Err(AckError::NotLive) => Answer::NotLive,
            Err(error) => panic!("{self:?}: {error}"),
        };
        let answer = match self {
            Op::Init(xor) => match rig.init(KEY, xor, 1) {
                Ok(()) => Answer::Ok,
                Err(AckError::Duplicate) => Answer::Duplicate,
                Err(error) => panic!("{self:?}: {error}"),
            },
            Op::Ack(object, xor) => match rig.ack(id(object), xor) {
                Ok(Ack::Completed) => Answer::Completed,
                Ok(Ack::Pending | Ack::Held) => Answer::Counted,
                Err(AckError::NotLive) => Answer::NotLive,
                Err(error) => panic!("{self:?}: {error}"),
            },
            Op::Fail(object) => done(rig.fail(id(object))),
            Op::Reset(object) => done(rig.reset_timeout(id(object))),
            Op::Poll(ticks) => {
                rig.clock.advance(TICK * ticks);
                rig.poll(1000);
                Answer::Polled
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
                Answer::Ok
            }
        };
        Seen { op: self, answer, began, ended: rig.tick() }
    }
}

/// A root in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum State {
    Absent,
    /// Signs of it have come, and its init has not.
    Early {
        word: u64,
        failed: bool,
        due: u32,
    },
    Live {
        word: u64,
        due: u32,
    },
    /// Only issued roots stay ended.
    Ended,
}

/// A step of the model: the next state, whether the model gives the same answer, and whether the
/// same operation ends the root later.
struct Step {
    state: State,
    answer: Option<Answer>,
    closing: bool,
    end: Option<End>,
}

/// The state of a search.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Place {
    state: State,
    /// How many of each thread's operations are done, and whether the next one has closed the root
    /// already.
    done: Vec<(usize, bool)>,
    ends: Vec<End>,
}

fn step(object: Object, state: State, seen: &Seen) -> Vec<Step> {
    let due = seen.began + TIMEOUT;
    let gone = if object == Object::Issued { State::Ended } else { State::Absent };
    let plain = |state, answer| Step { state, answer: Some(answer), closing: false, end: None };
    let ending =
        |end, answer| Step { state: gone, answer: Some(answer), closing: false, end: Some(end) };
    let mut steps = Vec::new();
    // The operation may have found a chosen root ending: it does nothing then.
    if object == Object::Chosen && seen.answer == Answer::NotLive {
        steps.push(plain(state, Answer::NotLive));
    }
    match (seen.op, state) {
        (Op::Poll(_), _) => {
            steps.push(plain(state, Answer::Polled));
            match state {
                State::Live { due, .. } if due <= seen.ended => {
                    steps.push(ending(End::TimedOut, Answer::Polled))
                }
                State::Early { due, .. } if due <= seen.ended => {
                    steps.push(plain(gone, Answer::Polled))
                }
                _ => {}
            }
        }
        (Op::Guest, _) => {}
        (_, State::Ended) => steps.push(plain(state, Answer::NotLive)),
        (Op::Init(xor), State::Absent) => {
            steps.push(plain(State::Live { word: xor, due }, Answer::Ok))
        }
        (Op::Init(_), State::Early { failed: true, .. }) => {
            steps.push(ending(End::Failed, Answer::Ok))
        }
        (Op::Init(xor), State::Early { word, .. }) => {
            let word = word ^ xor;
            let closing = word == 0;
            let answer = (!closing).then_some(Answer::Ok);
            steps.push(Step { state: State::Live { word, due }, answer, closing, end: None });
        }
        (Op::Init(_), State::Live { .. }) => steps.push(plain(state, Answer::Duplicate)),
        (Op::Ack(_, xor), State::Absent) => {
            steps.push(plain(State::Early { word: xor, failed: false, due }, Answer::Counted));
        }
        (Op::Ack(_, xor), State::Early { word, failed, due }) => {
            steps.push(plain(State::Early { word: word ^ xor, failed, due }, Answer::Counted));
        }
        (Op::Ack(_, xor), State::Live { word, due }) => {
            let word = word ^ xor;
            let closing = word == 0;
            let answer = (!closing).then_some(Answer::Counted);
            steps.push(Step { state: State::Live { word, due }, answer, closing, end: None });
        }
        (Op::Fail(_), State::Absent) => {
            steps.push(plain(State::Early { word: 0, failed: true, due }, Answer::Held));
        }
        (Op::Fail(_), State::Early { word, due, .. }) => {
            steps.push(plain(State::Early { word, failed: true, due }, Answer::Held));
        }
        (Op::Fail(_), State::Live { .. }) => steps.push(ending(End::Failed, Answer::Now)),
        (Op::Reset(_), State::Absent) => {
            steps.push(plain(State::Early { word: 0, failed: false, due }, Answer::Held));
        }
        (Op::Reset(_), State::Early { word, failed, .. }) => {
            steps.push(plain(State::Early { word, failed, due }, Answer::Held));
        }
        (Op::Reset(_), State::Live { word, .. }) => {
            steps.push(plain(State::Live { word, due }, Answer::Now))
        }
    }
    steps
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
                let gone = if object == Object::Issued { State::Ended } else { State::Absent };
                let won =
                    if matches!(seen.op, Op::Init(_)) { Answer::Ok } else { Answer::Completed };
                let lost =
                    if matches!(seen.op, Op::Init(_)) { Answer::Ok } else { Answer::NotLive };
                if matches!(place.state, State::Live { .. }) && seen.answer == won {
                    go(gone, Some(End::Acked), (done + 1, false));
                }
                if !matches!(place.state, State::Live { .. }) && seen.answer == lost {
                    go(place.state, None, (done + 1, false));
                }
                continue;
            }
            for step in step(object, place.state, seen) {
                if step.closing {
                    go(step.state, None, (done, true));
                } else if step.answer == Some(seen.answer) {
                    go(step.state, step.end, (done + 1, false));
                    if matches!(seen.op, Op::Poll(_)) {
                        // It goes on, and may come upon the next occupancy.
                        go(step.state, step.end, (done, false));
                    }
                }
            }
        }
        if last {
            // Time passes until nothing is left.
            let mut ends = place.ends.clone();
            if matches!(place.state, State::Live { .. }) {
                ends.push(End::TimedOut);
            }
            ends.sort_unstable();
            if ends == told {
                return true;
            }
        }
    }
    false
}

fn check(program: &Program) {
    let rig = Rig::new();
    let issued = rig.issue(3 ^ 5, 2).unwrap();
    let setup: Vec<Seen> = program.setup.iter().map(|op| op.run(&rig, issued)).collect();
    let handles: Vec<_> = program.threads[1..]
        .iter()
        .map(|ops| {
            let (rig, ops) = (rig.clone(), ops.clone());
            thread::spawn(move || -> Vec<Seen> {
                ops.iter().map(|op| op.run(&rig, issued)).collect()
            })
        })
        .collect();
    let mut threads =
        vec![program.threads[0].iter().map(|op| op.run(&rig, issued)).collect::<Vec<_>>()];
    threads.extend(handles.into_iter().map(|handle| handle.join().unwrap()));
    rig.pass(11);
    rig.pass(11);
    assert!(rig.is_empty(), "{program:?}: something is left: {threads:?}");
    for (object, root, initial) in [
        (Object::Issued, RootId::Issued(issued), State::Live { word: 3 ^ 5, due: TIMEOUT }),
        (Object::Chosen, RootId::Chosen(KEY), State::Absent),
    ] {
        let about = |seen: &[Seen]| -> Vec<Seen> {
            seen.iter().filter(|seen| seen.op.is_about(object)).copied().collect()
        };
        let mut histories: Vec<Vec<Seen>> = threads.iter().map(|thread| about(thread)).collect();
        // The setup comes before everything: it begins the first thread's order, and those of the
        // others.
        let initial =
            about(&setup).iter().fold(initial, |state, seen| step(object, state, seen)[0].state);
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
    let seen = |op, answer| Seen { op, answer, began: 0, ended: 0 };
    let live = State::Live { word: 3, due: TIMEOUT };
    let ack = |answer| vec![seen(Op::Ack(Object::Issued, 3), answer)];
    let fail = |answer| vec![seen(Op::Fail(Object::Issued), answer)];
    let object = Object::Issued;
    assert!(explained(
        object,
        live,
        &[ack(Answer::Completed), fail(Answer::NotLive)],
        &[End::Acked]
    ));
    assert!(explained(object, live, &[ack(Answer::NotLive), fail(Answer::Now)], &[End::Failed]));
    assert!(!explained(object, live, &[ack(Answer::Completed), fail(Answer::Now)], &[End::Acked]));
    assert!(!explained(
        object,
        live,
        &[ack(Answer::Completed), fail(Answer::NotLive)],
        &[End::Acked, End::Failed]
    ));
    assert!(!explained(
        object,
        live,
        &[ack(Answer::NotLive), fail(Answer::NotLive)],
        &[End::TimedOut]
    ));
    assert!(!explained(
        object,
        live,
        &[ack(Answer::Completed), ack(Answer::Completed)],
        &[End::Acked]
    ));
    assert!(!explained(object, live, &[vec![seen(Op::Poll(1), Answer::Polled)]], &[]));
}
