//! Closing sessions: no touch renews such an entry and no driver expires it. It is there until a
//! caller removes it, or the store closes.

use super::store::{Store, Touched, Wanted};
use crate::core::engine::Pin;
use crate::core::lease::State;
use std::borrow::Borrow;

impl<K: 'static, V: 'static> Store<K, V> {
    /// Makes an entry `CLOSING`, by the swap that a touch or an expiry would need. The error says
    /// why not: it is not there, or another call has done so before.
    pub(super) fn set_closing<Q: Eq + ?Sized>(
        &self,
        pin: &Pin,
        wanted: Wanted<'_, '_, Q>,
    ) -> Result<(), Touched>
    where
        K: Borrow<Q>,
    {
        loop {
            let found = self.find(pin, wanted).ok_or(Touched::Gone)?;
            if found.lease.is(State::Closing) {
                return Err(Touched::Closing);
            }
            let closing = found.lease.with_state(State::Closing);
            if found.slot.swap_lease(found.lease, closing).is_ok() {
                return Ok(());
            }
        }
    }
}
