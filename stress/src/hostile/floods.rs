//! Floods of what is unknown or never ends, and deadlines chosen for the wheel's worst.

use super::{Field, Figure};
use crate::usage::resident;
use expiry::{
    Ack, AckError, AckTracker, AckTrackerBuilder, Lifetime, ManualClock, Outcome, Root, RootId,
};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// How many operations a flood has for each of the size asked for.
const FLOOD: u64 = 4;
/// Resident memory that may come in a flood, for the harness itself and the allocator.
const FLAT: u64 = 4 << 20;
/// Slots in a chunk, the unit in which slots' memory is held.
const CHUNK: u64 = 4096;
/// The budget of a poll that lets time pass, and how many ends a poll may tell beyond its budget:
/// those of a slot block that it has begun.
const BUDGET: u64 = 100;
const BEGUN: u64 = 15;

/// A tracker on simulated time, and how many outcomes it has delivered.
struct Target<'a> {
    field: &'a Field<'a>,
    tracker: AckTracker,
    told: Arc<AtomicU64>,
    clock: ManualClock,
}

/// The memory of a flood: it holds nothing more than this after its first quarter.
struct Flat {
    slots: u64,
    resident: u64,
}

impl<'a> Target<'a> {
    fn new(
        field: &'a Field<'a>,
        with: impl FnOnce(AckTrackerBuilder) -> AckTrackerBuilder,
    ) -> Self {
        let (clock, told) = (ManualClock::new(), Arc::new(AtomicU64::new(0)));
        let count = told.clone();
        let builder = AckTracker::builder()
            .timeout(30 * SECOND)
            .interval(10 * MS)
            .shards(4)
            .clock(clock.clone())
            .on_outcome(move |_: Outcome| {
                count.fetch_add(1, Relaxed);
            });
        // Settings that a builder accepts.
        let tracker = with(builder).build_manual().expect("a tracker is built");
        Target { field, tracker, told, clock }
    }

    fn slots(&self) -> u64 {
        self.tracker.metrics().total.slots
    }

    /// Lets time pass until nothing is left, memory included. Returns whether that happens.
    fn drain(&self) -> bool {
        for _ in 0..100_000 + self.field.size() {
            let before = self.told.load(Relaxed);
            let polled = self.tracker.poll(BUDGET as usize);
            let told = self.told.load(Relaxed) - before;
            self.field.expect(told <= BUDGET + BEGUN, || {
                format!("a poll with a budget of {BUDGET} has ended {told} roots")
            });
            match polled.next {
                _ if polled.more => {}
                Some(next) => self.clock.advance(next),
                None => return self.tracker.is_empty(),
            }
        }
        false
    }

    fn flat(&self) -> Flat {
        Flat { slots: self.slots(), resident: resident() }
    }

    /// Checks that the target holds what it held `then`, but for this many slots.
    fn is_flat(&self, then: &Flat, slack: u64) {
        let now = self.flat();
        self.field.expect(now.slots <= then.slots + slack, || {
            format!("slots grew in the flood from {} to {}", then.slots, now.slots)
        });
        self.field.expect(now.resident <= then.resident + FLAT, || {
            format!("resident memory grew in the flood from {} to {}", then.resident, now.resident)
        });
    }

    /// A flood of calls of `each`, which receives its number. Memory must be flat from its first
    /// quarter on. Returns how many calls there were.
    fn flood(&self, many: u64, mut each: impl FnMut(u64)) -> u64 {
        let quarter = many / 4;
        (0..quarter).for_each(&mut each);
        let then = self.flat();
        (quarter..many).for_each(each);
        self.is_flat(&then, 0);
        many
    }

    /// Acks an edge that a live root does not have, and acks it again: the root stays as it is.
    fn back_and_forth(&self, root: impl Into<RootId>, edge: u64) {
        let root = root.into();
        let done = self.tracker.ack(root, edge).and_then(|_| self.tracker.ack(root, edge));
        self.field.expect(done == Ok(Ack::Pending), || format!("{done:?}"));
    }

    fn completes(&self, root: impl Into<RootId>) {
        let root = root.into();
        let done = self.tracker.ack(root, 7);
        self.field.expect(done == Ok(Ack::Completed), || {
            format!("{root} that was live in the flood: {done:?}")
        });
    }

    /// Roots that stay live throughout, with one edge each.
    fn residents(&self) -> Vec<Root> {
        (0..1000)
            .filter_map(|owner| {
                let root = self.tracker.issue(7, owner);
                self.field.expect(root.is_ok(), || format!("refused: {root:?}"));
                root.ok()
            })
            .collect()
    }

    /// The residents are still there, and end as they should. Nothing is left, and there were as
    /// many outcomes as residents and others.
    fn rests(&self, residents: &[Root], others: u64) {
        residents.iter().for_each(|&root| self.completes(root));
        self.field.expect(self.drain(), || "the tracker does not come to rest".into());
        let (told, roots) = (self.told.load(Relaxed), residents.len() as u64 + others);
        self.field.expect(told == roots, || format!("{told} outcomes of {roots}"));
    }
}

/// Calls on roots that no call has issued. `guess` makes them from a live root and random bits.
fn guesses(field: &Field<'_>, hostile: bool, guess: impl Fn(u64, Root, u64) -> u64) -> Figure {
    let target = Target::new(field, |builder| builder);
    let (roots, tracker) = (target.residents(), &target.tracker);
    let mut rng = SmallRng::seed_from_u64(field.seed());
    let figures = Figure::of(|| {
        let flood = target.flood(FLOOD * field.size(), |n| {
            let root = roots[rng.random_range(0..roots.len())];
            if !hostile {
                return target.back_and_forth(root, 1 << (1 + n % 2));
            }
            let guess = Root::from_bits(guess(n, root, rng.next_u64()));
            if guess == root {
                return;
            }
            let done = match n % 3 {
                0 => tracker.fail(guess).map(|_| ()),
                1 => tracker.reset_timeout(guess).map(|_| ()),
                _ => tracker.ack(guess, 7).map(|_| ()),
            };
            field.expect(done == Err(AckError::NotLive), || {
                format!("{guess:?} was taken for a live root, as {root:?} is: {done:?}")
            });
        });
        flood * if hostile { 1 } else { 2 }
    });
    target.rests(&roots, 0);
    figures
}

/// Issued roots that no call has issued: any bits, or those of a slot that there is.
pub fn unknown_issued(field: &Field<'_>, hostile: bool) -> Figure {
    guesses(field, hostile, |n, _, bits| bits & [u64::MAX, 0xFFFF_FFFF_0000_0FFF][n as usize % 2])
}

/// Ids that name a live root's slot, with other generations and random bits: an attacker who has
/// seen one root guesses others.
pub fn guessed_roots(field: &Field<'_>, hostile: bool) -> Figure {
    // The slot is in the low half. The generation is in the next 16 bits, and an attacker is likely
    // to guess it.
    let masks = [0xFFFF << 48, 0xFFFF_FFFF << 32];
    guesses(field, hostile, |n, root, bits| root.to_bits() ^ (bits & masks[n as usize % 2]))
}

/// Acks of chosen roots that no call inits.
pub fn unknown_chosen(field: &Field<'_>, hostile: bool) -> Figure {
    const HELD: u64 = 10_000;
    let target = Target::new(field, |builder| builder.early_capacity(HELD as usize));
    let roots = target.residents();
    for id in 0..1000 {
        let done = target.tracker.init(id, 7, 1000 + id);
        field.expect(done == Ok(()), || format!("refused: {done:?}"));
    }
    let mut rng = SmallRng::seed_from_u64(field.seed());
    let (many, mut held, mut refused) = (FLOOD * field.size().max(HELD), 0, 0);
    let figures = Figure::of(|| {
        target.flood(many, |n| {
            if hostile {
                match target.tracker.ack(rng.random_range(1000..u64::MAX), 1) {
                    Ok(Ack::Held) => held += 1,
                    Err(AckError::EarlyFull) => refused += 1,
                    other => field
                        .expect(false, || format!("an ack of a root that nobody inits: {other:?}")),
                }
            } else {
                target.back_and_forth(rng.random_range(0..1000_u64), 1);
            }
            if n % 4096 == 0 {
                target.tracker.poll(4096);
            }
        });
        many * if hostile { 1 } else { 2 }
    });
    if hostile {
        field.expect(held == HELD && refused == many - HELD, || {
            format!("{held} acks were held and {refused} refused of {many}; {HELD} may wait")
        });
    }
    (0..1000_u64).for_each(|id| target.completes(id));
    target.rests(&roots, 1000);
    figures
}

/// Inits whose roots are never acked: up to the capacity, and beyond; then time passes. This
/// happens twice, so that memory is used again.
pub fn never_acked(field: &Field<'_>, hostile: bool) -> Figure {
    let capacity = field.size();
    let target = Target::new(field, |builder| builder.capacity(capacity as usize));
    let tracker = &target.tracker;
    let flood = FLOOD * capacity;
    let (mut accepted, mut rounds) = (0, 0);
    let figures = Figure::of(|| {
        let (mut flat, mut id) = (None, 0);
        for round in 0..2 {
            let mut full = 0;
            for _ in 0..flood / 2 {
                id += 1;
                match tracker.init(id, 7, id) {
                    Ok(()) => {
                        accepted += 1;
                        if !hostile {
                            let done = tracker.ack(id, 7);
                            field.expect(done == Ok(Ack::Completed), || format!("{done:?}"));
                        }
                    }
                    Err(AckError::Full) => full += 1,
                    Err(other) => field.expect(false, || format!("refused: {other:?}")),
                }
                if id % 1024 == 0 {
                    tracker.poll(4096);
                }
            }
            let should = if hostile { flood / 2 - capacity } else { 0 };
            field.expect(full == should, || {
                format!("{full} of {} inits found it full, should be {should}", flood / 2)
            });
            match &flat {
                None => flat = Some(target.flat()),
                // The fill of its chunks may differ by one chunk of each shard.
                Some(flat) => target.is_flat(flat, 4 * CHUNK),
            }
            if round == 0 {
                target.clock.advance(31 * SECOND);
                while tracker.poll(1 << 16).more {}
                field.expect(tracker.is_empty(), || {
                    format!("{} roots are left after their timeout", tracker.len())
                });
            }
            rounds += 1;
        }
        flood
    });
    field.expect(rounds == 2 && target.drain(), || "roots that nobody acks do not expire".into());
    let (told, held) = (target.told.load(Relaxed), target.slots());
    field.expect(told == accepted, || format!("{told} outcomes of {accepted}"));
    // With nothing live, the driver keeps three chunks of each shard, and this thread keeps the one
    // in which it owns a slot block.
    field
        .expect(held <= (3 * 4 + 1) * CHUNK, || format!("{held} slots are held with nothing live"));
    figures
}

/// Issues roots with these timeouts, then lets time pass to the end: each expires once, at its
/// time.
fn expire(field: &Field<'_>, mut timeout: impl FnMut(u64) -> Duration) -> Figure {
    let target = Target::new(field, |builder| builder.interval(MS));
    let size = field.size();
    let figures = Figure::of(|| {
        for owner in 0..size {
            let root = target.tracker.issue_for(7, owner, Lifetime::After(timeout(owner)));
            field.expect(root.is_ok(), || format!("refused: {root:?}"));
        }
        let rests = target.drain();
        field.expect(rests, || format!("{} roots are left", target.tracker.len()));
        size
    });
    let told = target.told.load(Relaxed);
    field.expect(told == size, || format!("{told} outcomes of {size}"));
    let expired = target.tracker.metrics().total.expired;
    field.expect(expired == size, || format!("{expired} expired of {size}"));
    figures
}

/// All in one tick, or at random within a minute.
pub fn one_tick(field: &Field<'_>, hostile: bool) -> Figure {
    let mut rng = SmallRng::seed_from_u64(field.seed());
    expire(field, |_| if hostile { 30 * SECOND } else { MS * rng.random_range(1..=60_000) })
}

/// Each deadline is just beyond the span of a level of the wheel, each level in turn, so that it is
/// filed again and again on its way down. The friendly ones are a second away, in a hundred ticks.
pub fn cascading(field: &Field<'_>, hostile: bool) -> Figure {
    expire(field, |owner| {
        if hostile {
            let level = 6 + 3 * (owner / 16 % 6);
            MS * ((1 << level) + 1 + (owner / 96 % 61) as u32)
        } else {
            SECOND + MS * (owner % 100) as u32
        }
    })
}
