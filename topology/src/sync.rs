//! What the model checker replaces: with `--cfg expiry_loom` the bell and the gate run under loom.

#[cfg(not(expiry_loom))]
pub(crate) use std::sync::atomic::{fence, AtomicBool, AtomicUsize, Ordering};

#[cfg(expiry_loom)]
pub(crate) use loom::sync::atomic::{fence, AtomicBool, AtomicUsize, Ordering};

#[cfg(not(expiry_loom))]
pub(crate) use crossbeam_utils::sync::{Parker, Unparker};

#[cfg(expiry_loom)]
pub(crate) use model::{Parker, Unparker};

/// crossbeam's parker, for the checker: a token, which an unparking leaves and a parking waits for.
/// It has no time: loom reports a sleep that no thread ends as a deadlock.
#[cfg(expiry_loom)]
mod model {
    use loom::sync::{Arc, Condvar, Mutex};
    use std::time::Duration;

    #[derive(Clone)]
    pub struct Unparker(Arc<(Mutex<bool>, Condvar)>);

    pub struct Parker(Unparker);

    impl Parker {
        pub(crate) fn new() -> Self {
            Parker(Unparker(Arc::new((Mutex::new(false), Condvar::new()))))
        }

        pub(crate) fn unparker(&self) -> &Unparker {
            &self.0
        }

        pub(crate) fn park_timeout(&self, _limit: Duration) {
            let (token, left) = &*self.0 .0;
            let mut token = token.lock().unwrap();
            while !*token {
                token = left.wait(token).unwrap();
            }
            *token = false;
        }
    }

    impl Unparker {
        pub(crate) fn unpark(&self) {
            *self.0 .0.lock().unwrap() = true;
            self.0 .1.notify_one();
        }
    }
}
