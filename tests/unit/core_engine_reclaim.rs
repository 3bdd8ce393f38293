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

/// A reader pins while the lists are taken, and finds a slot that is retired after that: the wait
/// must not have begun before.
#[test]
fn a_wait_begins_after_the_lists_were_taken() {
    let reclaim = Reclaim::new();
    let (slots, mine) = (slots(), Mine::new());
    thread::scope(|scope| {
        let mut reader = None;
        let lists = std::iter::once_with(|| {
            // A period that had begun before would be over.
            (0..TURNS).for_each(|_| reclaim.pins.turn());
            reader = Some(hold(scope, &reclaim));
            retire(&slots, &mine);
            &mine
        });
        assert!(reclaim.all(lists).is_some());
        assert!((0..TURNS).all(|_| !is_due(&reclaim, &mine)), "a reader has found the slot");
        drop(reader);
        assert!((0..TURNS).any(|_| is_due(&reclaim, &mine)));
    });
}

/// A slot is retired while a thread copies index words. A reader pins before that thread is done,
/// and finds the slot by a copy.
#[test]
fn nothing_is_gathered_while_words_are_copied() {
    let reclaim = Reclaim::new();
    let (slots, mine) = (slots(), Mine::new());
    thread::scope(|scope| {
        let copier = reclaim.pins.copier().expect("no thread gathers");
        retire(&slots, &mine);
        assert!(reclaim.all(once(&mine)).is_none());
        assert!((0..TURNS).all(|_| !is_due(&reclaim, &mine)));
        let reader = hold(scope, &reclaim);
        drop(copier);
        assert!((0..TURNS).all(|_| !is_due(&reclaim, &mine)), "a reader has found the slot");
        drop(reader);
        assert!((0..TURNS).any(|_| is_due(&reclaim, &mine)));
    });
}

fn slots() -> Slots<Owned<u32, ()>> {
    let slots = Slots::new(1);
    slots.ensure(0).expect("memory");
    slots
}

fn retire(slots: &Slots<Owned<u32, ()>>, mine: &Mine) {
    let slot = slots.slot(0).expect("a slot");
    slot.set_lease(Lease::new(State::Dead, 1, 0));
    mine.push(slots, 0, (0, slot), 1);
}

fn is_due(reclaim: &Reclaim, mine: &Mine) -> bool {
    let due = reclaim.take_due(1, 1, || once(mine), |backoff| backoff);
    !due.expect("no other thread is there").is_empty()
}
