//! The whitenings of a root's word: W0 before its init, W1 after.

use super::Trees;
use crate::core::lease::{Lease, State};

#[inline]
#[allow(clippy::cast_possible_truncation)]
pub(super) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl<T: 'static> Trees<T> {
    #[inline]
    pub(super) fn issued_target(&self, root: u64) -> u64 {
        let [a, b, ..] = self.settings.secrets;
        fold(root ^ a, b | 1)
    }

    /// W1 of a chosen id.
    #[inline(always)]
    pub(super) fn target(&self, key: u64, generation: u32) -> u64 {
        let [a, b, c, _] = self.settings.secrets;
        // The generation goes above the bits that a multiplication leaves alone, not to the top.
        fold(key ^ a, (b ^ c ^ u64::from(generation) << 24) | 1)
    }

    /// W1 of the root with this id and lease.
    pub(super) fn target_of(&self, key: u64, lease: Lease) -> u64 {
        match lease.state() {
            State::LiveIssued => self.issued_target(key),
            _ => self.target(key, lease.generation()),
        }
    }

    /// W0 ^ W1: what an init XORs into the word besides its edges. Never zero.
    #[inline]
    pub(super) fn init_mark(&self, target: u64) -> u64 {
        let [_, b, _, d] = self.settings.secrets;
        fold(target ^ d, b | 1) | 1
    }
}
