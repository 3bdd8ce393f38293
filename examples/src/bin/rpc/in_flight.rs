//! Requests that wait for their replies: each gets one, or learns that none has come in time.

use crate::client::{Answer, CallError};
use expiry::{BuildError, Lifetime, PendingTable, PendingTableBuilder, StoreError, Ticket};
use std::time::Duration;
use tokio::sync::oneshot::{channel, Receiver, Sender};

/// The senders of answers. A sender's ticket is the id of its request.
pub struct Requests(PendingTable<Sender<Answer>>);

impl Requests {
    /// Starts a reaper, which ends a request when its time is up.
    pub fn new(timeout: Duration) -> Result<Self, BuildError> {
        Ok(Requests(Self::table(timeout).build()?))
    }

    fn table(timeout: Duration) -> PendingTableBuilder<Sender<Answer>> {
        PendingTable::builder()
            .timeout(timeout)
            .expiry_listener(|caller: Sender<Answer>| drop(caller.send(Err(CallError::TimedOut))))
    }

    /// Returns the id of a new request, and the channel that receives its answer.
    pub fn begin(&self) -> Result<(u64, Receiver<Answer>), CallError> {
        let (caller, answer) = channel();
        let ticket = self.0.insert(caller, Lifetime::Default).map_err(StoreError::from)?;
        Ok((ticket.into(), answer))
    }

    /// A reply has come. Returns whether its request was still waiting.
    pub fn reply(&self, id: u64, reply: u64) -> bool {
        // Either this call or the reaper gets the sender.
        let caller = self.0.take(Ticket::from(id));
        // The send is refused if the caller has stopped waiting.
        caller.map(|caller| caller.send(Ok(reply))).is_some()
    }

    /// Ends all requests, and refuses new ones.
    pub fn close(&self) {
        // A sender that is dropped tells its receiver.
        drop(self.0.shutdown());
    }

    /// Number of requests that have timed out.
    pub fn timed_out(&self) -> u64 {
        self.0.metrics().expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expiry::ManualClock;
    use expiry_examples::eventually;
    use tokio::sync::oneshot::error::TryRecvError;

    const TIMEOUT: Duration = Duration::from_secs(1);

    fn requests() -> (ManualClock, Requests) {
        let clock = ManualClock::new();
        let table = Requests::table(TIMEOUT).clock(clock.clone()).build_manual().unwrap();
        (clock, Requests(table))
    }

    impl Requests {
        /// Does what the reaper does.
        fn expire(&self) {
            assert!(self.0.poll().is_empty(), "the listener gets the senders");
        }
    }

    /// Waits for the answer to a request.
    fn answer(mut answer: Receiver<Answer>) -> Answer {
        eventually(|| match answer.try_recv() {
            Err(TryRecvError::Empty) => None,
            received => Some(received.unwrap_or(Err(CallError::Closed))),
        })
    }

    #[test]
    fn a_reply_in_time_is_the_answer_and_a_later_one_finds_no_request() {
        let (clock, requests) = requests();
        let (quick, quickly) = requests.begin().unwrap();
        let (late, lately) = requests.begin().unwrap();
        assert!(requests.reply(quick, 7) && !requests.reply(quick, 8));
        assert_eq!(answer(quickly), Ok(7));
        clock.advance(2 * TIMEOUT);
        requests.expire();
        assert_eq!(answer(lately), Err(CallError::TimedOut));
        assert!(!requests.reply(late, 7) && !requests.reply(late ^ 1, 7));
        assert_eq!(requests.timed_out(), 1);
    }

    #[test]
    fn a_closed_connection_ends_its_requests_and_refuses_new_ones() {
        let (_, requests) = requests();
        let (_, waiting) = requests.begin().unwrap();
        requests.close();
        assert_eq!(answer(waiting), Err(CallError::Closed));
        assert_eq!(requests.begin().unwrap_err(), StoreError::Closed.into());
    }
}
