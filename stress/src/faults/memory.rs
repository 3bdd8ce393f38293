//! No memory: the system gives no pages, the allocator no boxes.

use super::ground::{Ground, Put, Way};
use crate::refusing::{Refused, What};
use crate::subject::{Kind, Refusal, Subject};
use expiry::ManualClock;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// So many entries need more than the segment that a subject begins with, of a chunk in each shard.
const SECOND_SEGMENT: usize = 20_000;

/// The system refuses memory for growth: to this thread, to all threads, now and then. Each
/// insertion then is refused as out of memory, or finds free room. All else goes on, and nothing is
/// lost. With memory there is room again.
pub fn memory_refused(ground: &Ground) {
    if !crate::refusing::IS_POSSIBLE {
        return;
    }
    let entries = (ground.options.size as usize).max(SECOND_SEGMENT);
    alone(&ground.with_room(4 * entries), entries, What::Pages);
    if matches!(ground.kind, Kind::Issued | Kind::Chosen) {
        alone(&ground.with_room(4 * entries), entries, What::Boxes);
    }
    together(&ground.again());
}

/// A fault for one thread, which gets no pages, or no boxes.
fn alone(ground: &Ground, entries: usize, what: What) {
    let clock = ManualClock::new();
    let subject = ground.subject(Arc::new(clock.clone()), false, |_, _| ());
    let put = |subject: &dyn Subject| ground.put(subject, &clock, SECOND);
    let mut own = Vec::new();
    for _ in 0..entries / 8 {
        match put(&*subject) {
            Some(Put::In(number)) => own.push(number),
            Some(Put::Refused(why)) => ground.expect(false, || format!("{why:?} with memory")),
            None => {}
        }
    }
    let mut refused = 0;
    // The engine uses its free room before.
    for _ in 0..2 * entries {
        let attempt = {
            let _no_memory = Refused::to_me(what);
            put(&*subject)
        };
        match attempt {
            Some(Put::In(number)) => own.push(number),
            Some(Put::Refused(Refusal::OutOfMemory)) => refused += 1,
            Some(Put::Refused(why)) => ground.expect(false, || format!("{why:?} without memory")),
            None => break,
        }
        if refused == 1000 {
            break;
        }
    }
    ground.expect(refused > 0, || "growth without memory was not refused".into());
    let live = subject.len();
    ground
        .expect(live == own.len(), || format!("{live} entries are live, should be {}", own.len()));
    {
        let _no_memory = Refused::to_me(What::Pages);
        // The entries that exist are found; entries that end make room.
        for &number in own.iter().step_by(97) {
            ground.expect(subject.renew(number, SECOND), || {
                format!("entry {number} cannot be renewed without memory")
            });
        }
        for number in own.drain(..own.len() / 2) {
            let ended = subject.end(number);
            ground.expect(ended, || format!("entry {number} cannot be ended without memory"));
        }
        let room = (0..100).filter(|_| matches!(put(&*subject), Some(Put::In(_)))).count();
        ground.expect(room > 50, || {
            format!("of 100 entries {room} found the room of those that have ended")
        });
    }
    // With memory all goes on.
    for _ in 0..1000 {
        if let Some(Put::Refused(why)) = put(&*subject) {
            ground.expect(false, || format!("{why:?} with memory again"));
        }
    }
    ground.settle_manual(subject, &clock, SECOND);
}

/// All threads, and the poller's too, while memory comes and goes.
fn together(ground: &Ground) {
    let clock = ManualClock::new();
    let subject = ground.subject(Arc::new(clock.clone()), false, |_, _| ());
    for _ in 0..100 {
        ground.put(&*subject, &clock, 20 * SECOND);
    }
    let quota = ground.options.size / ground.options.threads / 2;
    let poll = || {
        {
            let _no_memory = Refused::to_all();
            subject.poll();
            std::thread::yield_now();
        }
        clock.advance(Duration::from_millis(1));
    };
    let work = |thread| {
        let expects = Some(Refusal::OutOfMemory);
        let way = Way { place: thread, timeout: 20 * SECOND, expects };
        ground.churn((&*subject, &clock), way, |rounds| rounds < quota);
    };
    // The system's own pages, for the stacks of threads, come before: they begin together.
    ground.crowd((1, poll), work, || ());
    ground.settle_manual(subject, &clock, 20 * SECOND);
}
