//! What is kept of touches that are never taken. It counts what is allocated.

use crate::heap;

use expiry::{ManualClock, SessionTracker};
use std::time::Duration;

pub fn touches_of_ended_sessions_are_not_kept_for_ever() {
    const SESSIONS: u64 = 50_000;
    let ten = Duration::from_secs(10);
    for expire in [false, true] {
        let clock = ManualClock::new();
        let builder = SessionTracker::builder().shards(1).collect_touches().clock(clock.clone());
        let sessions = builder.build_manual().unwrap();
        let kept = sessions.create(ten * 1_000_000, 1).unwrap();
        sessions.touch_by(&kept).unwrap();
        // One at a time, and then all at once.
        for at_once in [1, SESSIONS] {
            let before = heap::process();
            for _ in 0..SESSIONS / at_once {
                let some: Vec<_> = (0..at_once).map(|_| sessions.create(ten, 7).unwrap()).collect();
                for session in &some {
                    sessions.touch_by(session).unwrap();
                }
                if expire {
                    clock.advance(2 * ten);
                    assert_eq!(sessions.poll().len(), some.len());
                } else {
                    for session in &some {
                        sessions.remove(session.id()).unwrap();
                    }
                }
            }
            let last = sessions.create(ten, 7).unwrap();
            sessions.remove(last.id()).unwrap();
            let grown = heap::process().saturating_sub(before);
            println!("{at_once} at a time, expired: {expire}: {grown} bytes more");
            assert!(grown < 8 * SESSIONS as usize, "{at_once} {expire}: {grown}");
        }
        // The one that lives has not been forgotten.
        let touched = sessions.take_touched();
        assert_eq!((touched.len(), touched[0].0), (1, kept.id()));
    }
}
