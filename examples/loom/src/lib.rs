//! A block list beside a flag, with a mistake that loom finds. `tests/models.rs` has the models,
//! and `docs/guide/loom.md` explains them.

use expiry::{ExpiringMap, InsertError};
use std::net::Ipv4Addr;

#[cfg(expiry_loom)]
use loom::sync::atomic::{AtomicBool, Ordering};
#[cfg(not(expiry_loom))]
use std::sync::atomic::{AtomicBool, Ordering};

/// What a block list says of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The list is not loaded yet: ask again.
    Starting,
    /// The address is on the list.
    Blocked,
    /// It is not.
    Allowed,
}

/// Addresses that are blocked, each until its time is up.
pub struct Blocklist {
    blocked: ExpiringMap<Ipv4Addr, ()>,
    /// Whether `blocked` has all that an earlier process wrote down.
    loaded: AtomicBool,
}

impl Blocklist {
    /// A list that is not loaded. The caller builds the map: with a reaper for a server, and
    /// without one for a model.
    pub fn new(blocked: ExpiringMap<Ipv4Addr, ()>) -> Self {
        Blocklist { blocked, loaded: AtomicBool::new(false) }
    }

    /// Blocks these addresses. From then on [`ask`](Self::ask) allows all others.
    pub fn load(&self, addresses: &[Ipv4Addr]) -> Result<(), InsertError<Ipv4Addr, ()>> {
        // Release pairs with the load in `ask`: a thread that sees the flag sees the addresses.
        self.load_and_raise(addresses, Ordering::Release)
    }

    /// As [`load`](Self::load), with the mistake: another thread may see the flag and not yet the
    /// addresses, and then it lets a blocked address in.
    pub fn load_by_mistake(&self, addresses: &[Ipv4Addr]) -> Result<(), InsertError<Ipv4Addr, ()>> {
        self.load_and_raise(addresses, Ordering::Relaxed)
    }

    fn load_and_raise(
        &self,
        addresses: &[Ipv4Addr],
        raise: Ordering,
    ) -> Result<(), InsertError<Ipv4Addr, ()>> {
        for &address in addresses {
            self.blocked.insert(address, ())?;
        }
        self.loaded.store(true, raise);
        Ok(())
    }

    /// Says what is to be done with a connection from `address`.
    pub fn ask(&self, address: Ipv4Addr) -> Verdict {
        if !self.loaded.load(Ordering::Acquire) {
            Verdict::Starting
        } else if self.blocked.contains_key(&address) {
            Verdict::Blocked
        } else {
            Verdict::Allowed
        }
    }
}
