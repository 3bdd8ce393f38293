//! Batches: one clock reading, and memory fetched before it is needed.

use super::Trees;
use crate::ack::error::AckError;
use crate::ack::outcome::{Ack, Root};
use crate::ack::Timeout;
use crate::core::lease::IssuedId;

impl Trees {
    /// Starts fetching what an ack of `root` will touch.
    #[inline]
    pub(crate) fn prefetch_issued(&self, root: Root) {
        if let Some(slot) = self.engine.slot(IssuedId(root.0).slot()) {
            crate::core::prefetch(slot);
        }
    }

    pub(crate) fn issue_batch(
        &self,
        items: &[(u64, u64)],
        timeout: Timeout,
        into: &mut Vec<Root>,
    ) -> Result<(), AckError> {
        self.engine.with_stripe(|mine, index| {
            let (mut deadline, mut now) = self.deadline(mine, timeout)?;
            for &(xor, owner) in items {
                into.push(self.issue_at(mine, index, xor, owner, deadline, now)?);
                if xor == 0 {
                    // Its handler may have taken its time.
                    (deadline, now) = self.deadline(mine, timeout)?;
                }
            }
            Ok(())
        })
    }

    pub(crate) fn init_batch(
        &self,
        items: &[(u64, u64, u64)],
        timeout: Timeout,
        mut each: impl FnMut(usize, Result<(), AckError>),
    ) {
        self.engine.with_stripe(|mine, index| {
            self.in_groups(
                items,
                |item| item.0,
                |at, place, &(key, xor, owner)| {
                    // For each anew, at the cost of a coarse reading: `each`, or a handler, may take its time.
                    let done = self.deadline(mine, timeout).and_then(|(deadline, now)| {
                        self.init_at((mine, index), place, key, xor, owner, deadline, now)
                    });
                    each(at, done);
                },
            );
        });
    }

    pub(crate) fn ack_chosen_batch(
        &self,
        items: &[(u64, u64)],
        mut each: impl FnMut(usize, Result<Ack, AckError>),
    ) {
        self.in_groups(
            items,
            |item| item.0,
            |at, place, &(key, xor)| {
                each(
                    at,
                    if xor == 0 {
                        Err(AckError::ZeroEdge)
                    } else {
                        self.ack_chosen_at(place, key, xor)
                    },
                );
            },
        );
    }

    /// Goes through `items` in groups: hash all, fetch their homes, fetch the slots these name, act.
    pub(super) fn in_groups<T>(
        &self,
        items: &[T],
        key: impl Fn(&T) -> u64,
        mut act: impl FnMut(usize, (usize, u32), &T),
    ) {
        /// As many misses as a core has outstanding, and then some: a tree's acks often come together.
        const GROUP: usize = 64;
        let mut places = [(0usize, 0u32); GROUP];
        for (group, items) in items.chunks(GROUP).enumerate() {
            for (place, item) in places.iter_mut().zip(items) {
                *place = self.engine.hash(key(item));
                self.engine.index(place.0).prefetch(place.1);
            }
            for place in &places[..items.len()] {
                self.engine.index(place.0).peek(place.1, |id| {
                    if let Some(slot) = self.engine.slot(id) {
                        crate::core::prefetch(slot);
                    }
                });
            }
            for (at, item) in items.iter().enumerate() {
                act(group * GROUP + at, places[at], item);
            }
        }
    }
}
