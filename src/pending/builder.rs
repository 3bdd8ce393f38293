//! Settings of a pending table.

use super::inner::{Handler, Inner};
use super::PendingTable;
use crate::error::BuildError;
use crate::kit::channel::{Receiver, WhenFull};
use crate::kit::handle::builder;
use crate::kit::lifecycle::Owner;
use crate::kit::setup::{setters, Setup};
use crate::kit::target::{builds, Target};
use std::sync::Arc;
use std::time::Duration;

/// Settings of a [`PendingTable`].
///
/// ```
/// use expiry::PendingTable;
/// use std::{sync::mpsc, time::Duration};
///
/// let requests = PendingTable::builder()
///     .timeout(Duration::from_secs(30))
///     .capacity(100_000)
///     .expiry_listener(|reply: mpsc::Sender<&str>| drop(reply.send("no answer")))
///     .build()?;
/// let (sender, replies) = mpsc::channel();
/// let ticket = requests.insert(sender, Duration::from_millis(2))?;
/// assert_eq!(replies.recv()?, "no answer");
/// assert!(requests.take(ticket).is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until one of its build methods is called"]
pub struct PendingTableBuilder<T> {
    setup: Setup,
    timeout: Option<Duration>,
    listener: Option<Arc<Handler<T>>>,
}

impl<T> Default for PendingTableBuilder<T> {
    fn default() -> Self {
        // No thread asks for a wait time, so insertions may leave the fence to the driver.
        let setup = Setup { asymmetric: true, ..Setup::by_milliseconds(1) };
        PendingTableBuilder { setup, timeout: None, listener: None }
    }
}

builder!(PendingTableBuilder<T> with listener, shows timeout);

impl<T: Send + 'static> PendingTableBuilder<T> {
    setters! {
        "values",
        /// 1 ms unless set.
        interval,
        expiring capacity,
        /// How long a value stays that is inserted with
        /// [`Lifetime::Default`](crate::Lifetime::Default). For ever unless set.
        timeout(timeout: Duration) sets timeout = Some(timeout);
    }

    builds! {
        PendingTable<T>, poll "PendingTable::poll", item T, expiry_listener(T)
    }

    fn built(
        self,
        target: Target<T, Handler<T>>,
        reaper: bool,
    ) -> Result<PendingTable<T>, BuildError> {
        let inner = Arc::new(Inner::new(&self.setup, self.timeout, target)?);
        let owner = Owner::new(&inner, |inner| &inner.engine, &self.setup, reaper)?;
        Ok(PendingTable { inner, owner })
    }
}
