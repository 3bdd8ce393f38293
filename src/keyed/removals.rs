//! Where a map reports how its values have ended.
//!
//! The thread that ended a value reports it, unpinned and at no shard: it calls the listener, or
//! sends a [`Removed`] into the channel, perhaps one of two: a removing call returns the other.
//!
//! An item in the channel keeps the store alive, and the store keeps the channel's sending side.
//! The channel breaks that cycle when its last receiver goes: it then drops its items
//! ([`channel`](crate::kit::channel)).

use super::removed::{EndedSlot, Parts, Removed, Twice};
use super::store::{Listener, RemovalCause, Store};
use crate::kit::channel::Sender;
use crate::kit::target::Target;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Weak};

/// A channel, and its store.
type Hears<'a, K, V> = (&'a Sender<Removed<'static, K, V>>, Arc<Store<K, V>>);

pub(super) struct Removals<K: 'static, V: 'static> {
    /// Polls take nothing.
    pub(super) target: Target<Removed<'static, K, V>, Listener<K, V>>,
    /// The store of a map that reports here.
    pub(super) store: Weak<Store<K, V>>,
}

impl<K: 'static, V: 'static> Store<K, V> {
    /// Reports an end, once: calls the listener, or sends into the channel. Never panics. The
    /// caller has ended the entry, and is unpinned.
    #[inline(always)]
    pub(in crate::keyed) fn tell(&self, ended: EndedSlot<&Self, K, V>, cause: RemovalCause) {
        if !self.removals.is_unheard() {
            self.tell_aloud(ended, cause);
        }
    }

    /// [`tell`](Self::tell), which returns the entry for the caller of the removing call.
    #[inline(always)]
    pub(in crate::keyed) fn told<'s>(
        &'s self,
        ended: EndedSlot<&'s Self, K, V>,
        cause: RemovalCause,
    ) -> Removed<'s, K, V> {
        let ended = ended.into_parts();
        let shared = match self.removals.is_unheard() {
            true => None,
            false => self.told_aloud(ended, cause),
        };
        Removed::of(self, ended, shared, cause)
    }

    #[inline(never)]
    fn tell_aloud(&self, ended: EndedSlot<&Self, K, V>, cause: RemovalCause) {
        if let Some((channel, store)) = self.channel_for(&ended, cause) {
            channel.send(&self.panics, Removed::kept(ended, store, cause));
        }
    }

    /// Returns the entry, if the channel has another handle to it.
    #[inline(never)]
    fn told_aloud(&self, ended: Parts<'_, K, V>, cause: RemovalCause) -> Option<Twice<K, V>> {
        let ended = ManuallyDrop::new(EndedSlot::from_parts(self, ended));
        let (channel, store) = self.channel_for(&ended, cause)?;
        let shared = Twice::new(ManuallyDrop::into_inner(ended).kept(store));
        channel.send(&self.panics, Removed::one_of_two(shared.clone(), cause));
        Some(shared)
    }

    /// Calls the listener, if there is one. Returns the channel that the entry goes into, and the
    /// store, which it keeps.
    fn channel_for(
        &self,
        ended: &EndedSlot<&Self, K, V>,
        cause: RemovalCause,
    ) -> Option<Hears<'_, K, V>> {
        match &self.removals.target {
            Target::Unheard | Target::Poll(_) => None,
            Target::Listener(listener) => {
                self.guard(|| listener(ended.key(), ended.value(), cause));
                None
            }
            // The caller has a reference to the store, so it is there.
            Target::Channel(sender) => Some((sender, self.removals.store.upgrade()?)),
        }
    }
}

impl<K: 'static, V: 'static> Removals<K, V> {
    pub(super) fn is_unheard(&self) -> bool {
        matches!(self.target, Target::Unheard)
    }
}
