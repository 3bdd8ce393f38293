//! The same without `PendingTable`, to compare: a table under a lock, and a timer for each call.
//!
//! A call that its caller drops leaves its entry in the table for ever.

use crate::client::{Answer, CallError, InFlight};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot::{channel, Receiver, Sender};

pub struct ByHand {
    /// `None` after the close.
    waiting: Mutex<Option<HashMap<u64, Sender<Answer>>>>,
    issued: AtomicU64,
    timeout: Duration,
    timed_out: AtomicU64,
}

impl ByHand {
    pub fn new(timeout: Duration) -> Self {
        ByHand {
            waiting: Mutex::new(Some(HashMap::new())),
            issued: AtomicU64::new(0),
            timeout,
            timed_out: AtomicU64::new(0),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Option<HashMap<u64, Sender<Answer>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, id: u64) -> Option<Sender<Answer>> {
        self.waiting().as_mut()?.remove(&id)
    }
}

impl InFlight for ByHand {
    fn begin(&self) -> Result<(u64, Receiver<Answer>), CallError> {
        let (caller, answer) = channel();
        let id = self.issued.fetch_add(1, Relaxed);
        self.waiting().as_mut().ok_or(CallError::Closed)?.insert(id, caller);
        Ok((id, answer))
    }

    async fn end(&self, id: u64, mut answer: Receiver<Answer>) -> Answer {
        let received = match tokio::time::timeout(self.timeout, &mut answer).await {
            Ok(received) => received,
            Err(_) if self.take(id).is_some() => {
                self.timed_out.fetch_add(1, Relaxed);
                return Err(CallError::TimedOut);
            }
            // The reader has taken the sender, and is about to send the reply.
            Err(_) => answer.await,
        };
        received.unwrap_or(Err(CallError::Closed))
    }

    fn reply(&self, id: u64, reply: u64) -> bool {
        let caller = self.take(id);
        caller.map(|caller| caller.send(Ok(reply))).is_some()
    }

    fn close(&self) {
        *self.waiting() = None;
    }

    fn timed_out(&self) -> u64 {
        self.timed_out.load(Relaxed)
    }
}
