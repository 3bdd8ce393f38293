//! Unit tests of `src/core/engine/reclaim.rs`.

use super::{Mine, Reclaim};
use crate::core::lease::{Lease, State};
use crate::core::pins::TURNS;
use crate::core::slots::Slots;
use crate::core::value::Owned;
use std::iter::once;
use std::sync::mpsc::{channel, Sender};
use std::thread;

/// Lets another thread pin, until what this returns is dropped.
fn hold<'a>(scope: &'a thread::Scope<'a, '_>, reclaim: &'a Reclaim) -> Held<'a> {
    let (release, released) = channel::<()>();
    let (say, said) = channel();
    let thread = scope.spawn(move || {
        // A thread's first pin advances the epoch, too.
        drop(reclaim.pins.pin());
        let pin = reclaim.pins.pin();
        say.send(()).unwrap();
        let _ = released.recv();
        drop(pin);
    });
    said.recv().unwrap();
    Held(Some((release, thread)))
}

struct Held<'a>(Option<(Sender<()>, thread::ScopedJoinHandle<'a, ()>)>);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some((release, thread)) = self.0.take() {
            drop(release);
            thread.join().unwrap();
        }
    }
}

/// A thread pins while the lists are taken, and a slot is retired after that: the migrating
/// thread, with a copy that names the slot. A reader pins before that thread unpins, and finds
/// the slot by the copy. Only the second period waits for the reader, so the first one must wait
/// for the migrating thread: it begins after the lists were taken.
#[test]
fn a_wait_begins_after_the_lists_were_taken() {
    let reclaim = Reclaim::new();
    let slots = Slots::<Owned<u32, ()>>::new(1);
    slots.ensure(0).expect("memory");
    let mine = Mine::new();
    thread::scope(|scope| {
        let mut migrating = None;
        let lists = std::iter::once_with(|| {
            // A period that had begun before would be over.
            (0..TURNS).for_each(|_| reclaim.pins.turn());
            migrating = Some(hold(scope, &reclaim));
            let slot = slots.slot(0).expect("a slot");
            slot.set_lease(Lease::new(State::Dead, 1, 0));
            mine.push(&slots, 0, (0, slot), 1);
            &mine
        });
        assert!(reclaim.all(lists).is_some());
        let is_due = || {
            let due = reclaim.take_due(1, 1, || once(&mine), |backoff| backoff);
            !due.expect("no other thread is there").is_empty()
        };
        assert!(!is_due(), "the migrating thread is pinned");
        let reader = hold(scope, &reclaim);
        drop(migrating);
        assert!((0..TURNS).all(|_| !is_due()), "a slot is freed that a reader has found");
        drop(reader);
        assert!((0..TURNS).any(|_| is_due()));
    });
}
