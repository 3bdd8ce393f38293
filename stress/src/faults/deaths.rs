//! Threads that die in the middle of their work.

use super::ground::{Ground, Put};
use crate::latency::nanos;
use crate::subject::Subject;
use expiry::{Clock, ManualClock};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// How many entries a thread begins before it dies: few, so that there are many threads, each of
/// which owns a slot block.
const EACH: u32 = 10;

/// Calls that a thread makes when its thread-locals are dropped: after its panic, while it ends.
struct LastWill {
    ground: Ground,
    subject: Arc<dyn Subject>,
    clock: ManualClock,
    own: Vec<u64>,
}

impl Drop for LastWill {
    fn drop(&mut self) {
        // The thread's own index and pin may be dropped before this or after it.
        self.ground.put(&*self.subject, &self.clock, SECOND);
        if let Some(number) = self.own.pop() {
            self.subject.end(number);
        }
        if let Some(&number) = self.own.last() {
            self.ground.renew(&*self.subject, &self.clock, number, SECOND);
        }
    }
}

thread_local!(static LAST_WILL: RefCell<Option<LastWill>> = const { RefCell::new(None) });

/// Threads begin entries, hold tuples, references and handles, and panic; in waves. Their entries
/// time out, and the engine uses again what they held and owned. Memory is that of one wave,
/// however many waves there are.
pub fn threads_die(ground: &Ground) {
    let clock = ManualClock::new();
    let subject = ground.subject(Arc::new(clock.clone()), false, |_, _| ());
    let waves = (ground.options.size / EACH / ground.options.threads).max(8);
    let mut after_a_few = 0;
    for wave in 0..waves {
        let threads: Vec<_> = (0..ground.options.threads)
            .map(|thread| {
                let (ground, subject, clock) = (ground.clone(), subject.clone(), clock.clone());
                std::thread::spawn(move || die(&ground, subject, &clock, thread))
            })
            .collect();
        for thread in threads {
            let died = thread.join().is_err();
            ground.expect(died, || "a thread that was to die has not".into());
        }
        if wave % 4 == 3 {
            clock.advance(2 * SECOND);
            ground.wait("the end of what dead threads have begun", || {
                subject.poll();
                subject.len() == 0
            });
        }
        if wave == 7 {
            after_a_few = subject.counts().slots;
        }
    }
    let slots = subject.counts().slots;
    ground.expect(slots <= after_a_few + 4096 * 2, || {
        format!("after 8 waves {after_a_few} slots were held, after {waves} {slots}: those of dead threads are not used again")
    });
    ground.settle_manual(subject, &clock, SECOND);
}

fn die(ground: &Ground, subject: Arc<dyn Subject>, clock: &ManualClock, thread: u32) {
    let mut own = Vec::new();
    for _ in 0..EACH - 2 {
        if let Some(Put::In(number)) = ground.put(&*subject, clock, SECOND) {
            own.push(number);
        }
    }
    if let Some(&number) = own.first() {
        subject.end(number);
    }
    if thread & 1 == 0 {
        LAST_WILL.with(|will| {
            *will.borrow_mut() = Some(LastWill {
                ground: ground.clone(),
                subject: subject.clone(),
                clock: clock.clone(),
                own,
            });
        });
    }
    let Some(number) = ground.book.begin(clock.now() + nanos(SECOND)) else {
        std::panic::resume_unwind(Box::new("planned"));
    };
    let refused = subject.put_and(number, SECOND, &mut || {
        ground.book.accepted(number);
        // While the tuple, the reference or the handle is held.
        std::panic::resume_unwind(Box::new("planned"));
    });
    ground.expect(refused.is_ok(), || format!("refused: {refused:?}"));
}
