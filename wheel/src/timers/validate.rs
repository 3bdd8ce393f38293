//! The structural validator of the public wheel.

use super::{Place, TimerWheel};

impl<T> TimerWheel<T> {
    /// Checks the invariants of this module and of the dense wheel. For tests and the fuzzer.
    ///
    /// # Panics
    /// If one does not hold.
    #[doc(hidden)]
    pub fn validate(&self) {
        crate::dense::validate(&self.wheel);
        let ids = self.wheel.ids();
        let mut serials = std::collections::HashSet::new();
        let mut free = vec![false; ids];
        for index in 0..ids as u32 {
            let scheduled = self.wheel.due(index).is_some();
            match self.wheel.payload(index).unwrap() {
                Place::Free => assert!(!scheduled, "T-live: {index} has no value"),
                Place::Live { serial, .. } => {
                    assert!(scheduled, "T-live: {index} is stranded");
                    assert!(serials.insert(*serial), "{serial} twice");
                }
            }
            free[index as usize] = !scheduled;
        }
        if let Some(last) = self.last {
            assert!(std::mem::take(&mut free[last.index as usize]), "T-last: in use");
            assert!(!serials.contains(&last.serial), "T-last: used again");
        }
        for index in self.free.free() {
            assert!(std::mem::take(&mut free[index as usize]), "T-free: {index} in use or twice");
        }
        assert!(!free.contains(&true), "T-free: a place is lost");
    }
}
