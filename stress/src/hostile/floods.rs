//! Floods of what is unknown or never ends, and deadlines chosen for the wheel's worst.

use super::{drive, Field, Figures};
use crate::usage::resident;
use expiry::{Ack, AckError, AckTracker, AckTrackerBuilder, Lifetime, ManualClock, Outcome, Root};
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

/// A tracker on simulated time, how many outcomes it has told, and its clock.
fn tracker(
    with: impl FnOnce(AckTrackerBuilder) -> AckTrackerBuilder,
) -> (AckTracker, Arc<AtomicU64>, ManualClock) {
    let (clock, told) = (ManualClock::new(), Arc::new(AtomicU64::new(0)));
    let count = told.clone();
    let builder = AckTracker::builder()
        .timeout(30 * SECOND)
        .interval(10 * MS)
        .shards(4)
        .clock(clock.clone())
        .on_outcome(move |_: &Outcome| {
            count.fetch_add(1, Relaxed);
        });
    // Settings that a builder accepts.
    let tracker = with(builder).build_manual().expect("a tracker is built");
    (tracker, told, clock)
}

/// Lets time pass until nothing is left; memory too. True if that comes.
fn drain(tracker: &AckTracker, clock: &ManualClock) -> bool {
    for _ in 0..100_000 {
        let polled = tracker.poll(1 << 16);
        match polled.next {
            _ if polled.more => {}
            Some(next) => clock.advance(next),
            None => return tracker.is_empty(),
        }
    }
    false
}

/// Of a flood: nothing more than this is held after its first quarter.
struct Flat {
    slots: u64,
    resident: u64,
}

impl Flat {
    fn now(tracker: &AckTracker) -> Self {
        Flat { slots: tracker.metrics().total.slots, resident: resident() }
    }

    fn check(&self, field: &Field<'_>, tracker: &AckTracker, slack: u64) {
        let now = Flat::now(tracker);
        field.expect(now.slots <= self.slots + slack, || {
            format!("slots grew in the flood from {} to {}", self.slots, now.slots)
        });
        field.expect(now.resident <= self.resident + FLAT, || {
            format!("resident memory grew in the flood from {} to {}", self.resident, now.resident)
        });
    }
}

/// Roots that stay live throughout, with one edge each.
fn residents(field: &Field<'_>, tracker: &AckTracker) -> Vec<Root> {
    (0..1000)
        .filter_map(|owner| {
            let root = tracker.issue(7, owner);
            field.expect(root.is_ok(), || format!("refused: {root:?}"));
            root.ok()
        })
        .collect()
}

/// They are there still, and end as they should.
fn residents_end(field: &Field<'_>, tracker: &AckTracker, roots: &[Root]) {
    for &root in roots {
        let done = tracker.ack(root, 7);
        field.expect(done == Ok(Ack::Completed), || {
            format!("a root that was live in the flood: {done:?}")
        });
    }
}

/// Nothing is left in the end, and so many outcomes were told.
fn rests(
    field: &Field<'_>,
    (tracker, clock): (&AckTracker, &ManualClock),
    told: &AtomicU64,
    roots: u64,
) {
    field.expect(drain(tracker, clock), || "the tracker does not come to rest".into());
    let told = told.load(Relaxed);
    field.expect(told == roots, || format!("{told} outcomes of {roots}"));
}

/// Acks of issued roots that nobody has issued.
pub fn unknown_issued(field: &Field<'_>, hostile: bool) -> Figures {
    let (tracker, told, clock) = tracker(|builder| builder);
    let roots = residents(field, &tracker);
    let mut rng = SmallRng::seed_from_u64(field.seed());
    let flood = FLOOD * field.size();
    let figures = Figures::of(|_| {
        let mut flat = None;
        for n in 0..flood {
            if n == flood / 4 {
                flat = Some(Flat::now(&tracker));
            }
            if hostile {
                // Any bits, or those of a slot that there is.
                let mask = if n % 2 == 0 { u64::MAX } else { 0xFFFF_FFFF_0000_0FFF };
                let done = tracker.ack(Root::from_bits(rng.next_u64() & mask), 1);
                field.expect(done == Err(AckError::NotLive), || {
                    format!("an unknown root was acked: {done:?}")
                });
            } else {
                // Back and forth: it stays as it is.
                let root = roots[rng.random_range(0..roots.len())];
                let done = tracker
                    .ack(root, 1 << (1 + n % 2))
                    .and_then(|_| tracker.ack(root, 1 << (1 + n % 2)));
                field.expect(done == Ok(Ack::Pending), || format!("{done:?}"));
            }
        }
        if let Some(flat) = flat {
            flat.check(field, &tracker, 0);
        }
        (flood * if hostile { 1 } else { 2 }, tracker.metrics().total.slots)
    });
    residents_end(field, &tracker, &roots);
    rests(field, (&tracker, &clock), &told, roots.len() as u64);
    figures
}

/// Acks of chosen roots that nobody inits.
pub fn unknown_chosen(field: &Field<'_>, hostile: bool) -> Figures {
    const HELD: u64 = 10_000;
    let (tracker, told, clock) = tracker(|builder| builder.early_capacity(HELD as usize));
    let roots = residents(field, &tracker);
    for id in 0..1000 {
        let done = tracker.init(id, 7, 1000 + id);
        field.expect(done == Ok(()), || format!("refused: {done:?}"));
    }
    let mut rng = SmallRng::seed_from_u64(field.seed());
    let (flood, mut held, mut refused) = (FLOOD * field.size().max(HELD), 0, 0);
    let figures = Figures::of(|driven| {
        let mut flat = None;
        for n in 0..flood {
            if n == flood / 4 {
                flat = Some(Flat::now(&tracker));
            }
            if hostile {
                match tracker.ack(rng.random_range(1000..u64::MAX), 1) {
                    Ok(Ack::Held) => held += 1,
                    Err(AckError::EarlyFull) => refused += 1,
                    other => field
                        .expect(false, || format!("an ack of a root that nobody inits: {other:?}")),
                }
            } else {
                let id = rng.random_range(0..1000_u64);
                let done = tracker.ack(id, 1).and_then(|_| tracker.ack(id, 1));
                field.expect(done == Ok(Ack::Pending), || format!("{done:?}"));
            }
            if n % 4096 == 0 {
                drive(driven, || tracker.poll(4096));
            }
        }
        if let Some(flat) = flat {
            flat.check(field, &tracker, 0);
        }
        (flood * if hostile { 1 } else { 2 }, tracker.metrics().total.slots)
    });
    if hostile {
        field.expect(held == HELD && refused == flood - HELD, || {
            format!("{held} acks were held and {refused} refused of {flood}; {HELD} may wait")
        });
    }
    for id in 0..1000_u64 {
        let done = tracker.ack(id, 7);
        field.expect(done == Ok(Ack::Completed), || format!("root {id} after the flood: {done:?}"));
    }
    residents_end(field, &tracker, &roots);
    rests(field, (&tracker, &clock), &told, 2000);
    figures
}

/// Inits that nobody acks: up to the capacity, and beyond; then time passes. Twice, so that memory is used again.
pub fn never_acked(field: &Field<'_>, hostile: bool) -> Figures {
    let capacity = field.size();
    let (tracker, told, clock) = tracker(|builder| builder.capacity(capacity as usize));
    let flood = FLOOD * capacity;
    let (mut accepted, mut rounds) = (0, 0);
    let figures = Figures::of(|driven| {
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
                    drive(driven, || tracker.poll(4096));
                }
            }
            let should = if hostile { flood / 2 - capacity } else { 0 };
            field.expect(full == should, || {
                format!("{full} of {} inits found it full, should be {should}", flood / 2)
            });
            match &flat {
                None => flat = Some(Flat::now(&tracker)),
                // How full its chunks are may differ by one of each shard.
                Some(flat) => flat.check(field, &tracker, 4 * CHUNK),
            }
            if round == 0 {
                clock.advance(31 * SECOND);
                drive(driven, || while tracker.poll(1 << 16).more {});
                field.expect(tracker.is_empty(), || {
                    format!("{} roots are left after their timeout", tracker.len())
                });
            }
            rounds += 1;
        }
        (flood, tracker.metrics().total.slots)
    });
    field.expect(rounds == 2 && drain(&tracker, &clock), || {
        "roots that nobody acks do not expire".into()
    });
    let (told, held) = (told.load(Relaxed), tracker.metrics().total.slots);
    field.expect(told == accepted, || format!("{told} outcomes of {accepted}"));
    // With nothing live three chunks of each shard, which the driver does not think worth giving back, and the one in which this
    // thread owns a bucket.
    field
        .expect(held <= (3 * 4 + 1) * CHUNK, || format!("{held} slots are held with nothing live"));
    figures
}

/// Issues roots with these timeouts, then lets time pass to the end: each expires once, at its time.
fn expire(field: &Field<'_>, mut timeout: impl FnMut(u64) -> Duration) -> Figures {
    let (tracker, told, clock) = tracker(|builder| builder.interval(MS));
    let size = field.size();
    let figures = Figures::of(|driven| {
        for owner in 0..size {
            let root = tracker.issue_with(7, owner, Lifetime::After(timeout(owner)));
            field.expect(root.is_ok(), || format!("refused: {root:?}"));
        }
        let slots = tracker.metrics().total.slots;
        let rests = drive(driven, || drain(&tracker, &clock));
        field.expect(rests, || format!("{} roots are left", tracker.len()));
        (size, slots)
    });
    let told = told.load(Relaxed);
    field.expect(told == size, || format!("{told} outcomes of {size}"));
    let total = tracker.metrics().total;
    field.expect(total.expired == size, || format!("{} expired of {size}", total.expired));
    figures
}

/// All in one tick, or at random within a minute.
pub fn one_tick(field: &Field<'_>, hostile: bool) -> Figures {
    let mut rng = SmallRng::seed_from_u64(field.seed());
    expire(field, |_| if hostile { 30 * SECOND } else { MS * rng.random_range(1..=60_000) })
}

/// Each where it has to be filed again, and again, on its way down: just beyond the span of a level of the wheel, each level in
/// turn. Or a second away, in a hundred ticks.
pub fn cascading(field: &Field<'_>, hostile: bool) -> Figures {
    expire(field, |owner| {
        if hostile {
            let level = 6 + 3 * (owner / 16 % 6);
            MS * ((1 << level) + 1 + (owner / 96 % 61) as u32)
        } else {
            SECOND + MS * (owner % 100) as u32
        }
    })
}

/// Ids that name a live root's slot, with other incarnations and random bits: whoever has seen one root tries for others.
pub fn guessed_roots(field: &Field<'_>, hostile: bool) -> Figures {
    let (tracker, told, clock) = tracker(|builder| builder);
    let roots = residents(field, &tracker);
    let mut rng = SmallRng::seed_from_u64(field.seed());
    let flood = FLOOD * field.size();
    let figures = Figures::of(|_| {
        for n in 0..flood {
            let root = roots[rng.random_range(0..roots.len())];
            if !hostile {
                let done = tracker.ack(root, 2).and_then(|_| tracker.ack(root, 2));
                field.expect(done == Ok(Ack::Pending), || format!("{done:?}"));
                continue;
            }
            // The slot is in the low half; the incarnation is in the next 16 bits, and likely to be guessed.
            let mask = if n % 2 == 0 { 0xFFFF << 48 } else { 0xFFFF_FFFF << 32 };
            let guess = Root::from_bits(root.to_bits() ^ (rng.next_u64() & mask));
            if guess == root {
                continue;
            }
            let done = match n % 3 {
                0 => tracker.fail(guess).map(|_| ()),
                1 => tracker.reset_timeout(guess).map(|_| ()),
                _ => tracker.ack(guess, 7).map(|_| ()),
            };
            field.expect(done == Err(AckError::NotLive), || {
                format!("{guess:?} was taken for {root:?}: {done:?}")
            });
        }
        (flood * if hostile { 1 } else { 2 }, tracker.metrics().total.slots)
    });
    residents_end(field, &tracker, &roots);
    rests(field, (&tracker, &clock), &told, roots.len() as u64);
    figures
}
