//! Settings of a map of pending values.

use super::{PendingEntry, PendingMap, Shared};
use crate::error::BuildError;
use crate::keyed::store::Store;
use crate::kit::channel::{Receiver, WhenFull};
use crate::kit::handle::builder;
use crate::kit::lifecycle::Owner;
use crate::kit::setup::{setters, Setup};
use crate::kit::target::{builds, Target};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// Called with each entry that has expired.
type Handler<K, T> = dyn Fn(&K, T) + Send + Sync;

/// Settings of a [`PendingMap`].
#[must_use = "a builder does nothing until one of its build methods is called"]
pub struct PendingMapBuilder<K, T> {
    setup: Setup,
    timeout: Option<Duration>,
    listener: Option<Arc<Handler<K, T>>>,
}

impl<K, T> Default for PendingMapBuilder<K, T> {
    fn default() -> Self {
        // Each insertion brings its timeout: no default interval could be derived from one.
        let setup = Setup::by_milliseconds(1);
        PendingMapBuilder { setup, timeout: None, listener: None }
    }
}

builder!(PendingMapBuilder<K, T> with listener, shows timeout);

impl<K, T> PendingMapBuilder<K, T>
where
    K: Hash + Eq + Send + Sync + 'static,
    T: Send + 'static,
{
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
        PendingMap<K, T>, poll "PendingMap::poll", item PendingEntry<K, T>, expiry_listener(&K, T)
    }

    fn built(
        self,
        target: Target<PendingEntry<K, T>, Handler<K, T>>,
        reaper: bool,
    ) -> Result<PendingMap<K, T>, BuildError> {
        let shared = Shared::new(Store::build(&self.setup, self.timeout, None)?, target, ());
        let owner = Owner::new(&shared, |shared| &shared.store.engine, &self.setup, reaper)?;
        Ok(PendingMap { shared, hasher: self.setup.hasher(), owner })
    }
}
