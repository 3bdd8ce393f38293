//! Where a map reports how its values have ended.
//!
//! The thread that ended a value reports it, unpinned and at no shard: it calls the listener, or
//! sends a [`Removed`] into the channel, a second handle to the ended slot
//! ([`removed`](super::removed)) beside the one that a removing call returns.
//!
//! An item in the channel keeps the store alive, and the store keeps the channel's sending side.
//! The channel breaks that cycle when its last receiver goes: it then drops its items
//! ([`channel`](crate::kit::channel)).

use super::removed::{Held, Removed};
use super::store::{Listener, RemovalCause, Store};
use crate::kit::channel::Sender;
use crate::kit::panics::Panics;
use std::sync::Weak;

pub(super) enum Removals<K: 'static, V: 'static> {
    /// No thread gets removals.
    Unheard,
    Listener(Listener<K, V>),
    Channel(Channel<K, V>),
}

impl<K: 'static, V: 'static> Removals<K, V> {
    pub(super) fn is_unheard(&self) -> bool {
        matches!(self, Removals::Unheard)
    }

    pub(super) fn channel(&self) -> Option<&Channel<K, V>> {
        match self {
            Removals::Channel(channel) => Some(channel),
            _ => None,
        }
    }
}

pub(super) struct Channel<K: 'static, V: 'static> {
    pub(super) sender: Sender<Removed<'static, K, V>>,
    /// The store that has this channel.
    pub(super) store: Weak<Store<K, V>>,
    /// No other removals go into it.
    pub(super) expired_only: bool,
}

impl<K: 'static, V: 'static> Channel<K, V> {
    #[cold]
    pub(super) fn send(&self, panics: &Panics, ended: Held<'_, K, V>, cause: RemovalCause) {
        if self.expired_only && cause != RemovalCause::Expired {
            return;
        }
        // The caller has a reference to the store, so it is there.
        let Some(store) = self.store.upgrade() else {
            return;
        };
        let removed = ended.share(store, cause);
        self.sender.send(panics, removed);
    }
}
