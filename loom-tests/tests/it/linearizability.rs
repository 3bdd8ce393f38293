//! Small generated programs on the whole tracker, without a reaper. Some sequential order of the
//! operations on a simple model must explain what every operation returned, and the outcomes that
//! were delivered.
//!
//! The model of a root and the search are those of the crate `model`. Orders keep each thread's own
//! order. The checker does not ask for the order of real time between threads. An operation that
//! has seen nothing of another thread's may be ordered before it, as the memory model allows. A
//! poll may end every root that may be due, or not: the models in `wheel_inbox_reaper` check that
//! it must. In the end time passes, and nothing may be left.

use expiry::{Ack, AckError, Done, Outcome, Reason, RootId};
use loom::thread::{current, ThreadId};
use loom_tests::{aside, explore, preemptions, setting, Rig, TICK, TIMEOUT};
use model::linear::{check, Call, Model, Span, Then};
use model::mix::{mix, STEP};
use model::roots::{live, Did, Roots, State};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The id of the chosen root.
const KEY: u64 = 1;

/// The owner of roots that come and go.
const GUEST: u64 = 99;

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
    Init(u8),
    Ack(Object, u8),
    Fail(Object),
    Reset(Object),
    /// Time passes, by so many ticks, and expiry is driven.
    Poll(u32),
    /// A root of the thread's own comes and goes: slots are reused.
    Guest,
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
        let drawn = mix(self.0);
        self.0 = self.0.wrapping_add(STEP);
        drawn
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
}

/// What a thread has seen of an object.
#[derive(Debug, Clone, Copy)]
enum Event {
    Did(Did),
    Polled,
    /// All time has passed: nothing may be there.
    Over,
}

/// A root, and how many events each thread has had its part in.
#[derive(Debug)]
struct InOrder<const ISSUED: bool>;

impl<const ISSUED: bool> Model for InOrder<ISSUED> {
    type State = (State, [usize; 3]);
    /// How many events of its thread come before it.
    type Did = (Event, usize);

    fn step(
        (state, before): Self::State,
        call: &Call<Self::Did>,
        memory: u32,
        next: &mut Vec<(Self::State, Then)>,
    ) {
        let (thread, (event, place)) = (usize::from(call.at.thread), call.did);
        if before[thread] < place {
            return;
        }
        let (roots, mut steps) = (Roots { issued: ISSUED, early: TIMEOUT }, Vec::new());
        match event {
            Event::Did(did) => steps.extend(roots.apply(state, &call.at, did, memory)),
            Event::Polled => roots.polled(state, &call.at, 0, &mut steps),
            Event::Over => steps.extend((state == roots.over()).then_some((state, Then::Done))),
        }
        next.extend(steps.into_iter().map(|(state, then)| {
            let mut before = before;
            before[thread] += usize::from(then == Then::Done);
            ((state, before), then)
        }));
    }

    fn only_looks(_: &Self::Did) -> bool {
        false
    }
}

/// Events of all objects. Those of a thread are in its order.
type Seen = Vec<(Object, Call<(Event, usize)>)>;

fn explain<const ISSUED: bool>(object: Object, seen: &Seen) -> Result<(), String> {
    let about = seen.iter().filter(|(about, _)| *about == object);
    let mut calls: Vec<_> = about.map(|(_, call)| *call).collect();
    calls.sort_by_key(|call| call.at.began);
    let explained = check::<InOrder<ISSUED>>((State::Absent, [0; 3]), &calls);
    explained.map(drop).map_err(|_| format!("no order explains {object:?}: {calls:#?}"))
}

/// A tracker, and the outcomes that each thread has heard and not yet noted. Those of guests are
/// under `None`, whichever thread has heard them.
#[derive(Clone)]
struct Scene {
    rig: Arc<Rig>,
    heard: Arc<Mutex<HashMap<Option<ThreadId>, Vec<Outcome>>>>,
    issued: expiry::Root,
}

impl Scene {
    fn new() -> (Scene, Seen) {
        let heard = Arc::<Mutex<HashMap<_, Vec<_>>>>::default();
        let into = heard.clone();
        let rig = Rig::with(|builder| {
            builder.on_outcome(move |outcome: Outcome| {
                let thread = (outcome.owner != GUEST).then(|| current().id());
                into.lock().unwrap().entry(thread).or_default().push(outcome);
            })
        });
        let issued = rig.issue(3 ^ 5, 1).unwrap();
        let (scene, mut seen) = (Scene { rig, heard, issued }, Vec::new());
        let began = Did::Began { xor: 3 ^ 5, owner: 1, timeout: TIMEOUT, told: None };
        scene.note(Some(Object::Issued), Some(Event::Did(began)), (0, 0, 0), &mut seen);
        (scene, seen)
    }

    fn id(&self, object: Object) -> RootId {
        match object {
            Object::Issued => RootId::Issued(self.issued),
            Object::Chosen => RootId::Chosen(KEY),
        }
    }

    /// Runs the operation, on a thread, before or after others (see [`note`](Self::note)). `owner`
    /// is of no other init.
    fn run(&self, op: Op, owner: u32, (thread, stage): (u8, u64), seen: &mut Seen) {
        let (rig, told) = (&self.rig, None);
        let from = rig.tick();
        let (about, did) = match op {
            Op::Init(xor) => (
                Object::Chosen,
                match rig.init(KEY, xor.into(), owner.into()) {
                    Ok(()) => Did::Began { xor, owner, timeout: TIMEOUT, told },
                    Err(AckError::Duplicate) => Did::Duplicate,
                    Err(error) => panic!("{error:?}"),
                },
            ),
            Op::Ack(object, xor) => {
                let answer = live(rig.ack(self.id(object), xor.into())).unwrap();
                (object, Did::Acked { xor, answer, told })
            }
            Op::Fail(object) => {
                (object, Did::Failed { answer: live(rig.fail(self.id(object))).unwrap(), told })
            }
            Op::Reset(object) => {
                let answer = live(rig.reset_timeout(self.id(object))).unwrap();
                (object, Did::Reset { timeout: TIMEOUT, answer })
            }
            Op::Poll(ticks) => {
                rig.advance(ticks);
                rig.poll(1000);
                return self.note(None, Some(Event::Polled), (thread, stage, from), seen);
            }
            Op::Guest => {
                let guest = rig.issue(9, GUEST).unwrap();
                let acked = live(rig.ack(guest, 9)).unwrap();
                let heard = self.heard.lock().unwrap().get(&None).cloned();
                let ends = heard.into_iter().flatten().filter(|end| end.root == guest.into());
                let ends: Vec<_> = ends.map(|end| end.reason).collect();
                // Alone with it, but time may pass.
                assert!(ends.len() <= 1);
                assert!(acked.is_none_or(|ack| ack == Ack::Completed && ends == [Reason::Acked]));
                return self.note(None, None, (thread, stage, from), seen);
            }
        };
        self.note(Some(about), Some(Event::Did(did)), (thread, stage, from), seen);
    }

    /// Notes what this thread has seen of all objects, or of the one that it is about, since the
    /// tick `from`. Of two threads' events those of a later stage come later.
    fn note(
        &self,
        about: Option<Object>,
        event: Option<Event>,
        (thread, stage, from): (u8, u64, u32),
        seen: &mut Seen,
    ) {
        let to = self.rig.tick();
        let at = Span { began: stage, ended: stage, from, to, since: from, thread };
        let heard = self.heard.lock().unwrap().remove(&Some(current().id())).unwrap_or_default();
        for object in [Object::Issued, Object::Chosen] {
            let is_here =
                |(of, call): &&(Object, Call<_>)| *of == object && call.at.thread == thread;
            let place = seen.iter().filter(is_here).count();
            let mut event = event.filter(|_| about.is_none_or(|about| about == object));
            for outcome in heard.iter().filter(|outcome| outcome.root == self.id(object)) {
                let owner = u32::try_from(outcome.owner).unwrap();
                let did = match (outcome.reason, &mut event) {
                    (Reason::TimedOut { due, .. }, _) => {
                        let due = (due.as_nanos() / TICK.as_nanos()) as u32;
                        Did::TimedOut { owner, due }
                    }
                    (
                        reason,
                        Some(Event::Did(
                            Did::Began { told: told @ None, .. }
                            | Did::Acked { told: told @ None, .. }
                            | Did::Failed { told: told @ None, .. },
                        )),
                    ) => {
                        *told = Some((reason, owner));
                        continue;
                    }
                    (reason, _) => Did::ToldOf(reason, owner),
                };
                seen.push((object, Call { at, did: (Event::Did(did), place) }));
            }
            seen.extend(event.map(|event| (object, Call { at, did: (event, place) })));
        }
    }
}

fn run(program: &Program) {
    let (scene, mut seen) = Scene::new();
    for (owner, op) in (2..).zip(&program.setup) {
        scene.run(*op, owner, (0, 0), &mut seen);
    }
    let run = |thread: u8, mut seen: Seen| {
        let ops = program.threads[usize::from(thread)].clone();
        move |scene: &Scene| {
            for (owner, op) in (u32::from(thread) * 8 + 8..).zip(ops) {
                scene.run(op, owner, (thread, 1), &mut seen);
            }
            seen
        }
    };
    let others: Vec<_> = (1..program.threads.len())
        .map(|thread| aside(&scene, run(thread as u8, Vec::new())))
        .collect();
    let mut seen = run(0, seen)(&scene);
    seen.extend(others.into_iter().flat_map(|thread| thread.join().unwrap()));
    let from = scene.rig.tick();
    scene.rig.pass(11);
    scene.rig.pass(11);
    scene.note(None, Some(Event::Polled), (0, 2, from), &mut seen);
    scene.note(None, Some(Event::Over), (0, 2, from), &mut seen);
    assert!(scene.rig.is_empty(), "{program:?}: something is left: {seen:#?}");
    let explained = explain::<true>(Object::Issued, &seen);
    let explained = explained.and_then(|()| explain::<false>(Object::Chosen, &seen));
    explained.unwrap_or_else(|why| panic!("{program:?}: {why}"));
}

/// Every interleaving of every generated program has an order that explains it. There are two
/// halves, which can run at the same time.
fn generated_programs(half: usize) {
    let programs = setting("EXPIRY_LOOM_PROGRAMS", 40);
    let most = setting("EXPIRY_LOOM_EXECUTIONS", 5_000);
    let first = setting("EXPIRY_LOOM_FIRST_PROGRAM", 0);
    let (mut executions, mut cut) = (0, 0);
    for seed in (first..first + programs).skip(half).step_by(2) {
        let program = Arc::new(Program::generate(seed as u64));
        println!("program {seed}: {:?}, {:?}", program.setup, program.threads);
        let runs = explore(preemptions() - 1, most, move || run(&program));
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

/// Threads keep their own order, and no other one.
#[test]
fn the_checker_tells_right_from_wrong() {
    let call = |thread, place, did| {
        let at = Span { began: 1, ended: 1, from: 0, to: 0, since: 0, thread };
        (Object::Issued, Call { at, did: (Event::Did(did), place) })
    };
    let failed = Reason::Failed { by: None };
    let begin = Did::Began { xor: 6, owner: 1, timeout: TIMEOUT, told: None };
    let fail = Did::Failed { answer: Some(Done::Now), told: Some((failed, 1)) };
    let late = Did::Failed { answer: None, told: None };
    for (right, seen) in [
        (true, vec![call(0, 0, begin), call(0, 1, fail), call(0, 2, late)]),
        (true, vec![call(0, 0, begin), call(0, 1, fail), call(1, 0, late)]),
        (true, vec![call(0, 0, begin), call(1, 0, late), call(2, 0, fail)]),
        (false, vec![call(0, 0, begin), call(0, 1, late), call(0, 2, fail)]),
        (false, vec![call(0, 0, begin), call(1, 0, late)]),
        (false, vec![call(0, 0, begin), call(1, 0, fail), call(2, 0, fail)]),
    ] {
        assert_eq!(explain::<true>(Object::Issued, &seen).is_ok(), right, "{seen:?}");
    }
}
