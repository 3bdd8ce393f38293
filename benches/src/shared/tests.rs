//! Everybody does the work, and who does not is told so.

use super::*;
use std::panic::catch_unwind;
use std::sync::Mutex;

#[test]
fn everybody_does_the_work() {
    for threads in [1, 2] {
        let load = Load::new(500, threads, 5000);
        for took in [
            run::<Roots>(&load),
            run::<HashWheelThread>(&load),
            run::<Locked<BTree>>(&load),
            run::<Locked<CompactingHeap>>(&load),
            run::<Locked<Wheel>>(&load),
            run::<Nothing>(&load),
        ] {
            assert!(took.cpu > 0.0 && took.wall > 0.0);
        }
    }
}

/// Forgets some of what it is asked.
struct Lazy<const WHAT: u8> {
    live: Mutex<std::collections::BTreeSet<u64>>,
}

const SCHEDULING: u8 = 0;
const CANCELLING: u8 = 1;
const TELLING: u8 = 2;
const FIRING: u8 = 3;

impl<const WHAT: u8> SharedTimers for Lazy<WHAT> {
    const NAME: &'static str = "lazy";
    type Id = u64;
    type Handle = &'static Fired;

    fn new(fired: &'static Fired) -> Self {
        // Found again by `handle`.
        HANDLES.with(|handles| handles.set(Some(fired)));
        Lazy {
            live: Mutex::default(),
        }
    }

    fn handle(&self) -> &'static Fired {
        HANDLES.with(std::cell::Cell::get).expect("made before")
    }

    fn schedule(&self, fired: &mut &'static Fired, after: Duration, value: u64) -> u64 {
        if after < Duration::from_secs(1) {
            // At once, but for those that it forgets.
            if WHAT != FIRING || !value.is_multiple_of(7) {
                fired.tell(value);
            }
        } else if WHAT != SCHEDULING || !value.is_multiple_of(7) {
            self.live.lock().unwrap().insert(value);
        }
        value
    }

    fn cancel(&self, _fired: &mut &'static Fired, id: u64) -> bool {
        match WHAT {
            CANCELLING if id.is_multiple_of(7) => true,
            TELLING if id.is_multiple_of(7) => !self.live.lock().unwrap().remove(&id),
            _ => self.live.lock().unwrap().remove(&id),
        }
    }

    fn live(&self, _scheduled: u64) -> u64 {
        self.live.lock().unwrap().len() as u64
    }
}

thread_local! {
    static HANDLES: std::cell::Cell<Option<&'static Fired>> = const { std::cell::Cell::new(None) };
}

fn found<const WHAT: u8>() -> String {
    let load = Load::new(160, 1, 640);
    let panicked = catch_unwind(|| within::<Lazy<WHAT>>(&load, Duration::from_millis(50)));
    let panicked = panicked.expect_err("it does not do the work");
    panicked.downcast_ref::<String>().expect("a text").clone()
}

#[test]
fn who_is_lazy_is_found() {
    assert!(found::<SCHEDULING>().starts_with("lazy: scheduled: 1"));
    assert!(found::<CANCELLING>().starts_with("lazy: there after it"));
    assert!(found::<TELLING>().starts_with("lazy: not there to be cancelled"));
    assert!(found::<FIRING>().starts_with("lazy: fired: "));
}
