//! The checker: whether the history of an object is linearizable, given a sequential model of it.
//!
//! A history is a list of calls, each with its answer and the interval in which it was made. It is
//! linearizable (Herlihy & Wing 1990) if each call has a point in its interval such that the model
//! gives the same answers. The model takes the calls in the order of their points. A history of
//! several objects is linearizable if each object's part of it is.
//!
//! The search is that of Wing & Gong (1993) with the memory of Lowe (2017): it follows only one of
//! the orders that lead to the same state by the same calls. It goes along the history and keeps a
//! set of *configurations*. Each is a state of the model and the set of calls under way that have
//! had their points. The search places a point as late as possible, when the call's own end or
//! another call's requires it. That misses no order: calls placed before an ending one have begun
//! and have not ended. If no configuration is left, the history has no explanation.
//!
//! A model may allow several next states, and a call may take effect in several steps, between
//! which other calls come.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

/// The most configurations that the search follows at a time.
const WIDEST: usize = 1 << 16;

/// The most calls among which the report leaves out those that play no part.
const THINNED: usize = 500;

/// Size from which on a table is too large to be kept for a few configurations.
const ROOMY: usize = 1 << 12;

/// How many earlier calls the report of a bad history shows.
const BEFORE: usize = 4;

/// When a call was made.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// Real time before the call. Calls whose intervals share a reading overlap.
    pub began: u64,
    /// Real time after the call.
    pub ended: u64,
    /// The tick of the object's clock at the beginning.
    pub from: u32,
    /// The tick of the object's clock at the end.
    pub to: u32,
    /// The tick when the calling thread last delivered an end during the call, or when the call
    /// began. A deadline that the call sets counts from then at the earliest.
    pub since: u32,
    /// The thread that made it.
    pub thread: u8,
}

/// A call and its answer, and when it was made.
#[derive(Debug, Clone, Copy)]
pub struct Call<D> {
    /// When it was made.
    pub at: Span,
    /// What it was, and its answer.
    pub did: D,
}

/// Whether a call is done after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The call has made its last step.
    Done,
    /// It has another step to make, and remembers this there. Not zero.
    Goes(u32),
}

/// A sequential model of an object.
pub trait Model {
    /// What the object may be.
    type State: Copy + Eq + Hash + Debug + Send + Sync;
    /// A call and its answer.
    type Did: Copy + Debug + Send + Sync;

    /// Pushes the possible results of the next step of `call` to `next`: none if the step cannot be
    /// made in this state. `memory` is what the last step has left, 0 if this is the first.
    fn step(
        state: Self::State,
        call: &Call<Self::Did>,
        memory: u32,
        next: &mut Vec<(Self::State, Then)>,
    );

    /// Whether the call changes nothing: a history without it has more explanations, not fewer.
    fn only_looks(did: &Self::Did) -> bool;
}

/// A state. `done` has a bit for each call under way that has taken all its steps; `halfway` has
/// the memory of those that have taken some.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Configuration<S> {
    state: S,
    done: u64,
    halfway: Vec<(u8, u32)>,
}

impl<S> Configuration<S> {
    fn memory(&self, place: u8) -> u32 {
        let halfway = self.halfway.iter().find(|(at, _)| *at == place);
        halfway.map_or(0, |(_, memory)| *memory)
    }
}

/// A history without an explanation, cut down to the part that has none.
#[derive(Debug)]
pub struct Bad<M: Model> {
    /// For the reader: the last calls before that, and those that had taken effect by then and had
    /// not ended.
    pub before: Vec<Call<M::Did>>,
    /// What the object may have been at some time, with all that had ended until then.
    pub states: Vec<M::State>,
    /// The calls that were under way then and had not taken effect, and later calls, in order of
    /// beginnings.
    pub calls: Vec<Call<M::Did>>,
    /// The call at whose end nothing was left.
    pub culprit: usize,
    /// There was too much under way to be searched: it may have an explanation.
    pub gave_up: bool,
}

/// A call that is under way.
#[derive(Clone, Copy)]
struct Pending {
    ended: u64,
    call: usize,
    place: u8,
}

/// A time at which each call under way was known to have taken effect or not, and the calls that
/// had not.
struct Settled<S> {
    states: Vec<S>,
    under_way: Vec<usize>,
    /// The call that begins next.
    next: usize,
}

struct Search<'a, M: Model> {
    calls: &'a [Call<M::Did>],
    pending: Vec<Pending>,
    configurations: Vec<Configuration<M::State>>,
    known: HashSet<Configuration<M::State>, foldhash::fast::RandomState>,
    next: Vec<(M::State, Then)>,
    settled: Settled<M::State>,
    gave_up: bool,
}

/// The point where a search found no explanation.
struct Stuck<S> {
    call: usize,
    settled: Settled<S>,
    gave_up: bool,
}

/// Whether the calls, sorted by their beginnings, are linearizable beginning with `initial`.
///
/// Returns the most configurations that there were at once.
///
/// # Errors
///
/// The part of the history that has no explanation.
pub fn check<M: Model>(initial: M::State, calls: &[Call<M::Did>]) -> Result<usize, Box<Bad<M>>> {
    let stuck = match Search::<M>::new(&[initial], calls).run(u64::MAX) {
        Ok(widest) => return Ok(widest),
        Err(stuck) => stuck,
    };
    // Calls that begin after the culprit has ended play no part.
    let (settled, end) = (stuck.settled, calls[stuck.call].at.ended);
    let later = (settled.next..calls.len()).take_while(|&at| calls[at].at.began <= end);
    let mut window = settled.under_way;
    // The last ones, and those that had taken effect and had not ended.
    let since = calls.get(settled.next).map_or(end, |call| call.at.began);
    let mut before: Vec<_> = (0..settled.next)
        .rev()
        .filter(|at| !window.contains(at))
        .enumerate()
        .filter(|&(nth, at)| nth < BEFORE || calls[at].at.ended >= since)
        .map(|(_, at)| calls[at])
        .collect();
    before.reverse();
    window.extend(later);
    window.sort_unstable();
    let mut bad = Bad {
        before,
        states: settled.states,
        culprit: window.partition_point(|&at| at < stuck.call),
        calls: window.into_iter().map(|at| calls[at]).collect(),
        gave_up: stuck.gave_up,
    };
    if !bad.gave_up && bad.calls.len() <= THINNED {
        bad.thin_out(end);
    }
    Err(Box::new(bad))
}

impl<M: Model> Bad<M> {
    /// Leaves out looks that play no part: if there is still no explanation without a look, the
    /// rest shows why.
    fn thin_out(&mut self, end: u64) {
        for at in (0..self.calls.len()).rev() {
            if at == self.culprit || !M::only_looks(&self.calls[at].did) {
                continue;
            }
            let left_out = self.calls.remove(at);
            if Search::<M>::new(&self.states, &self.calls).run(end).is_ok() {
                self.calls.insert(at, left_out);
            } else if at < self.culprit {
                self.culprit -= 1;
            }
        }
    }
}

impl<'a, M: Model> Search<'a, M> {
    fn new(initial: &[M::State], calls: &'a [Call<M::Did>]) -> Self {
        let start = |&state: &M::State| Configuration { state, done: 0, halfway: Vec::new() };
        Search {
            calls,
            pending: Vec::new(),
            configurations: initial.iter().map(start).collect(),
            known: HashSet::default(),
            next: Vec::new(),
            settled: Settled { states: initial.to_vec(), under_way: Vec::new(), next: 0 },
            gave_up: false,
        }
    }

    /// Goes along the history, up to the calls that end at `until`.
    fn run(mut self, until: u64) -> Result<usize, Stuck<M::State>> {
        let (mut begun, mut widest) = (0, 0);
        loop {
            let first = (0..self.pending.len()).min_by_key(|&at| self.pending[at].ended);
            let end = first.map_or(u64::MAX, |at| self.pending[at].ended);
            // If an end and a beginning are at the same time, the beginning comes first: they
            // overlap.
            if let Some(call) = self.calls.get(begun).filter(|call| call.at.began <= end) {
                let Some(place) = self.free_place() else {
                    self.gave_up = true;
                    return Err(self.stuck(begun));
                };
                let ended = call.at.ended.max(call.at.began);
                self.pending.push(Pending { ended, call: begun, place });
                begun += 1;
                continue;
            }
            let Some(first) = first.filter(|_| end <= until) else {
                return Ok(widest);
            };
            let Pending { call, place, .. } = self.pending[first];
            self.end(place);
            if self.configurations.is_empty() {
                return Err(self.stuck(call));
            }
            self.pending.swap_remove(first);
            widest = widest.max(self.configurations.len());
            self.settle(begun);
        }
    }

    fn stuck(self, call: usize) -> Stuck<M::State> {
        Stuck { call, settled: self.settled, gave_up: self.gave_up }
    }

    /// A number for a call that begins, if there are not too many.
    fn free_place(&self) -> Option<u8> {
        let taken = |taken, one: &Pending| taken | 1_u64 << one.place;
        let taken = self.pending.iter().fold(0, taken);
        let place = taken.trailing_ones();
        (place < u64::BITS).then_some(place as u8)
    }

    /// Remembers this time if it is clear of each call under way whether it has taken effect.
    fn settle(&mut self, next: usize) {
        let done = self.configurations.first().map_or(0, |one| one.done);
        let settled = |one: &Configuration<_>| one.done == done && one.halfway.is_empty();
        if self.configurations.iter().all(settled) {
            let (to, states) = (&mut self.settled, &self.configurations);
            to.states.clear();
            to.states.extend(states.iter().map(|one| one.state));
            let open = self.pending.iter().filter(|one| done >> one.place & 1 == 0);
            to.under_way.clear();
            to.under_way.extend(open.map(|one| one.call));
            to.next = next;
        }
    }

    /// Keeps the configurations in which the call at `place`, which ends, has had its point.
    fn end(&mut self, place: u8) {
        if self.end_alone() {
            return;
        }
        let bit = 1_u64 << place;
        let mut open = std::mem::take(&mut self.configurations);
        if self.known.capacity() > ROOMY {
            // Clearing it would take longer than filling it.
            self.known = HashSet::default();
        }
        self.known.clear();
        self.known.extend(open.iter().cloned());
        while let Some(mut from) = open.pop() {
            if from.done & bit != 0 {
                from.done &= !bit;
                self.configurations.push(from);
                continue;
            }
            for &Pending { call, place, .. } in &self.pending {
                if from.done >> place & 1 != 0 {
                    continue;
                }
                let memory = from.memory(place);
                self.next.clear();
                M::step(from.state, &self.calls[call], memory, &mut self.next);
                for (state, then) in self.next.drain(..) {
                    let mut to =
                        Configuration { state, done: from.done, halfway: from.halfway.clone() };
                    to.halfway.retain(|(at, _)| *at != place);
                    match then {
                        Then::Done => to.done |= 1 << place,
                        Then::Goes(memory) => {
                            to.halfway.push((place, memory));
                            to.halfway.sort_unstable();
                        }
                    }
                    if self.known.len() >= WIDEST {
                        self.gave_up = true;
                    } else if self.known.insert(to.clone()) {
                        open.push(to);
                    }
                }
            }
        }
    }

    /// As [`end`](Self::end), where nothing else is under way, if the call makes one step: the
    /// likely case.
    fn end_alone(&mut self) -> bool {
        let ([pending], [one]) = (&self.pending[..], &mut self.configurations[..]) else {
            return false;
        };
        if one.done != 0 || !one.halfway.is_empty() {
            return false;
        }
        self.next.clear();
        M::step(one.state, &self.calls[pending.call], 0, &mut self.next);
        match &self.next[..] {
            [(state, Then::Done)] => one.state = *state,
            _ => return false,
        }
        true
    }
}
