//! A thread that a store has for itself: how it is started, and how others wait for its end.

use super::process;
use super::thread::{self, JoinHandle, Thread};
use std::io;
use std::sync::{Mutex, PoisonError};

pub(crate) struct Worker {
    /// Taken by the thread that joins it. Locked by shutdowns only.
    handle: Mutex<Option<JoinHandle<()>>>,
    thread: Thread,
    /// The process that the thread runs in.
    process: u32,
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.is_lost() {
            // The system knows no such thread, and may have given its memory to another one.
            let handle = self.handle.get_mut();
            std::mem::forget(handle.unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

impl Worker {
    /// Starts a thread of this name, in the caller's span, which says which store's thread it is.
    pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        #[cfg(feature = "tracing")]
        let span = tracing::Span::current();
        let handle = thread::Builder::new().name(name.into()).spawn(move || {
            #[cfg(feature = "tracing")]
            let mut entered = None;
            #[cfg(feature = "tracing")]
            crate::kit::panics::quietly(|| entered = Some(span.entered()));
            run();
        })?;
        Ok(Worker {
            thread: handle.thread().clone(),
            handle: Mutex::new(Some(handle)),
            process: process::current(),
        })
    }

    pub(crate) fn thread(&self) -> &Thread {
        &self.thread
    }

    /// Whether its thread stayed behind when this process was forked.
    pub(crate) fn is_lost(&self) -> bool {
        self.process != process::current() && !self.is_current()
    }

    pub(crate) fn is_current(&self) -> bool {
        self.thread.id() == thread::current().id()
    }

    /// Waits for its end, unless the caller is this thread. Several threads may wait.
    pub(crate) fn join(&self) {
        if self.is_current() {
            return;
        }
        // Kept until the thread has ended: other threads that wait for it wait for the lock.
        let mut handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = handle.take() {
            // It catches users' panics; had it panicked all the same, there is nothing to join.
            let _ = handle.join();
        }
    }
}
