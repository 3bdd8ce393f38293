//! One request for messages, and what the broker sends for it.
//!
//! The broker ends a request with a status. It sends a message when a majority of the brokers knows
//! of the delivery, but a status at once. So a status may overtake messages. It says how many of
//! the messages that were asked for do not come; the client's own `Batch` drops the others.

use crate::message::header;
use crate::Nats;
use async_nats::jetstream::consumer::pull::{BatchConfig, Config};
use async_nats::jetstream::consumer::Consumer;
use async_nats::jetstream::Message;
use async_nats::{StatusCode, Subject, Subscriber};
use futures_util::stream::{unfold, BoxStream, StreamExt};
use std::time::Duration;
use tokio::time::{timeout_at, Instant};

/// How long after its end at the broker a request waits for what the broker has sent.
const GRACE: Duration = Duration::from_secs(5);

#[allow(clippy::large_enum_variant)] // nearly all are messages
pub(super) enum Pulled {
    Message(Message),
    /// The request has ended. `is_too_small`: the next message has more bytes than were left.
    Ended {
        is_too_small: bool,
    },
    Failed(String),
}

/// Asks for so many messages, and bytes if those are not 0. Nothing follows the end or a failure.
pub(super) async fn ask(
    nats: &Nats,
    consumer: &Consumer<Config>,
    (batch, max_bytes): (usize, usize),
    expires: Duration,
) -> Result<BoxStream<'static, Pulled>, async_nats::Error> {
    let (client, context) = (nats.client(), nats.context().clone());
    let inbox = Subject::from(client.new_inbox());
    let messages = client.subscribe(inbox.clone()).await?;
    let config = BatchConfig { batch, max_bytes, expires: Some(expires), ..BatchConfig::default() };
    consumer.request_batch(config, inbox).await?;
    let until = Instant::now() + expires + GRACE;
    let next = move |state: Option<_>| {
        let context = context.clone();
        async move {
            let (mut messages, mut left, mut is_too_small): (Subscriber, usize, bool) = state?;
            while left > 0 {
                let Ok(Some(message)) = timeout_at(until, messages.next()).await else { break };
                let status = message.status.unwrap_or(StatusCode::OK);
                if status == StatusCode::OK {
                    let pulled = Pulled::Message(Message { message, context });
                    return Some((pulled, Some((messages, left - 1, is_too_small))));
                }
                let why = message.description.unwrap_or_default();
                is_too_small = why == "Message Size Exceeds MaxBytes";
                let is_end = is_too_small || why == "Batch Completed";
                if status != StatusCode::TIMEOUT && !is_end {
                    return Some((Pulled::Failed(format!("{status}, {why}")), None));
                }
                let unused = header(&message.headers, "Nats-Pending-Messages");
                let unused: Option<usize> = unused.and_then(|text| text.parse().ok());
                left = left.saturating_sub(unused.unwrap_or(left));
            }
            Some((Pulled::Ended { is_too_small }, None))
        }
    };
    Ok(unfold(Some((messages, batch, false)), next).boxed())
}
