//! A fence of two sides, of which one is all but free.
//!
//! Two threads that each write one place and then read the other's must both have a full fence in
//! between, or each may miss what the other has written. Where one of the two comes by far less
//! often, it can do so for both. On its *heavy* side it has the system make every running thread of
//! the process pass a full fence (Linux: `membarrier(2)`, private and expedited). The *light* side
//! then only keeps the compiler from moving anything across it. The outcome is as if both had made
//! a sequentially consistent fence, which is what the model checker is given.
//!
//! (Dice, Huang, Yang: "Asymmetric Dekker Synchronization"; so do folly, seize and haphazard.)

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long a thread waits at the heavy side after the fence was taken away.
const GRACE: Duration = Duration::from_millis(20);

/// The fence of two sides. It is off where the system offers none: then each side makes a fence of
/// its own.
pub(crate) struct Barrier {
    /// Once false, it stays false.
    on: AtomicBool,
    /// Whether it has ever been on: a thread may still be about to act on that.
    was_on: bool,
    /// When it went off.
    off: OnceLock<Instant>,
}

impl Barrier {
    pub(crate) fn new(wanted: bool) -> Self {
        let on = wanted && system::register();
        Barrier { on: AtomicBool::new(on), was_on: on, off: OnceLock::new() }
    }

    /// Whether the light side will do.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// Whether the heavy side has to reckon with light ones.
    #[inline]
    pub(crate) fn was_on(&self) -> bool {
        self.was_on
    }

    /// This orders what the thread wrote before it and reads after it, and [`heavy`](Self::heavy)
    /// does the same: one of the two sides sees the other's write.
    #[inline(always)]
    pub(crate) fn light() {
        #[cfg(not(expiry_loom))]
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        #[cfg(expiry_loom)]
        crate::sync::fence(crate::sync::Ordering::SeqCst);
    }

    /// The other side; a system call of some microseconds.
    pub(crate) fn heavy(&self) {
        self.heavy_by(system::fence);
    }

    pub(crate) fn heavy_by(&self, fence: impl Fn() -> bool) {
        if !self.was_on || self.is_on() && fence() {
            return;
        }
        // The system fenced before, and does not any more: a filter of system calls was installed
        // since. No thread may rely on it from here on. A running thread that already does makes
        // its write within microseconds. A thread that does not run has passed a fence.
        self.on.store(false, Relaxed);
        let off = self.off.get_or_init(Instant::now);
        while let Some(left) = GRACE.checked_sub(off.elapsed()).filter(|left| !left.is_zero()) {
            std::thread::sleep(left);
        }
        crate::sync::fence(crate::sync::Ordering::SeqCst);
    }
}

#[cfg(all(target_os = "linux", not(miri), not(expiry_loom)))]
mod system {
    /// Announces the process to the system; any number of times.
    pub(super) fn register() -> bool {
        membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && fence()
    }

    pub(super) fn fence() -> bool {
        membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
    }

    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: the call touches no memory. These commands take no flags and no processor.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }
}

#[cfg(expiry_loom)]
mod system {
    pub(super) fn register() -> bool {
        true
    }

    pub(super) fn fence() -> bool {
        crate::sync::fence(crate::sync::Ordering::SeqCst);
        true
    }
}

#[cfg(not(any(expiry_loom, all(target_os = "linux", not(miri)))))]
mod system {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn fence() -> bool {
        false
    }
}

#[cfg(all(test, not(expiry_loom)))]
#[path = "../../tests/unit/sync_asymmetric.rs"]
mod tests;
