//! The calls on many roots: one clock reading, and memory fetched before it is needed.

use super::chosen::Key;
use super::{Mine, Trees};
use crate::ack::error::AckError;
use crate::ack::outcome::{Ack, Root, RootId};
use crate::core::header::Header;
use crate::core::index::{Candidate, Likely};
use crate::core::lease::IssuedId;
use crate::error::TokenError;
use crate::time::Lifetime;

/// As many cache misses as a core can have outstanding, and some more: a tree's acks come together.
const GROUP: usize = 64;

impl Trees<()> {
    /// No other thread knows the roots yet, so one notice reports all roots of one block.
    pub(crate) fn issue_many(
        &self,
        items: &[(u64, u64)],
        timeout: Lifetime,
        into: &mut Vec<Root>,
    ) -> Result<(), AckError> {
        into.reserve(items.len());
        self.engine.with_stripe(|mine, index| {
            let mut times = self.times(mine, timeout)?;
            // The driver has no notice yet of the roots from here on, all of this block.
            let mut untold = into.len();
            let mut block: Option<(&Header, u64)> = None;
            for &(xor, owner) in items {
                let issued = self.fill((mine, index), xor, (owner, ()), times);
                let (root, header, look) = match issued {
                    Ok(issued) => issued,
                    Err((refused, ())) => {
                        self.tell_of(mine, block, into, untold)?;
                        return Err(self.refuse(refused));
                    }
                };
                if let Some(last) = block.filter(|&(last, _)| !std::ptr::eq(last, header)) {
                    if let Err(closed) = self.tell_of(mine, Some(last), into, untold) {
                        let _ = self.keep_tracked(mine, root, into);
                        return Err(closed);
                    }
                    untold = into.len();
                    block = None;
                }
                block.get_or_insert((header, look));
                into.push(root);
                if xor == 0 {
                    self.tell_of(mine, block.take(), into, untold)?;
                    untold = into.len();
                    self.complete_at_once(mine, root);
                    // The handler of that root may have taken its time.
                    times = self.times(mine, timeout)?;
                }
            }
            self.tell_of(mine, block, into, untold)
        })
    }

    /// Notifies the driver of the roots in `into` from `untold` on, which lie in one block: it
    /// looks at the first by the block's tick. If the engine was shut down meanwhile, `into` keeps
    /// those that the shutdown has seen.
    #[inline]
    fn tell_of(
        &self,
        mine: &Mine,
        block: Option<(&Header, u64)>,
        into: &mut Vec<Root>,
        untold: usize,
    ) -> Result<(), AckError> {
        let (Some((header, look)), Some(root)) = (block, into.last()) else {
            return Ok(());
        };
        let id = IssuedId(root.0).slot();
        if self.engine.enforce_in(header, id, look).is_ok() {
            return Ok(());
        }
        let mut all = Ok(());
        for root in into.split_off(untold) {
            all = self.keep_tracked(mine, root, into).and(all);
        }
        all
    }

    /// Puts a root beside a shutdown into `into` if it was tracked, and so has had its outcome.
    #[cold]
    fn keep_tracked(&self, mine: &Mine, root: Root, into: &mut Vec<Root>) -> Result<(), AckError> {
        self.undo_issued(mine, root)?;
        into.push(root);
        Ok(())
    }
}

impl<T: 'static> Trees<T> {
    #[inline]
    fn prefetch(&self, slot: u32) {
        if let Some(slot) = self.engine.slots.slot(slot) {
            crate::core::prefetch_at(slot.address());
        }
    }

    /// A key, and its likely home, of which this starts the fetch.
    #[inline(always)]
    pub(super) fn key_at_hand(&self, id: u64) -> (Key<'_>, Likely<'_>) {
        let key = self.key(id);
        (key, key.index.likely(key.hash))
    }

    /// Inits each root with the next of the `tokens`, for as long as these last.
    pub(crate) fn init_many(
        &self,
        items: &[(u64, u64, u64)],
        mut tokens: impl Iterator<Item = T>,
        timeout: Lifetime,
        mut each: impl FnMut(usize, Result<(), TokenError<T>>),
    ) {
        let mut keys = [self.key_at_hand(0); GROUP];
        self.engine.with_stripe(|mine, index| {
            for (group, items) in items.chunks(GROUP).enumerate() {
                for (key, item) in keys.iter_mut().zip(items) {
                    *key = self.key_at_hand(item.0);
                }
                let items = items.iter().zip(&keys).enumerate();
                for ((at, (&(_, xor, owner), &key)), token) in items.zip(&mut tokens) {
                    // A deadline for each root, at the cost of a coarse reading: `each`, or a
                    // handler, may take its time.
                    let done = self.init_key((mine, index), key, (xor, owner), token, timeout);
                    each(group * GROUP + at, done);
                }
            }
        });
    }

    /// Acks in groups: fetches the slots of issued roots, and the index buckets and then the slots
    /// of chosen ones, before the first ack of the group.
    pub(crate) fn ack_many<R: Copy + Into<RootId>>(
        &self,
        items: &[(R, u64)],
        mut each: impl FnMut(usize, Result<Ack, AckError>),
    ) {
        let mut keys = [self.key(0); GROUP];
        let mut candidates: [Option<Candidate<'_>>; GROUP] = [None; GROUP];
        for (group, items) in items.chunks(GROUP).enumerate() {
            for (&(root, _), key) in items.iter().zip(&mut keys) {
                match root.into() {
                    RootId::Issued(root) => self.prefetch(IssuedId(root.0).slot()),
                    RootId::Chosen(id) => (*key, _) = self.key_at_hand(id),
                }
            }
            for (at, &(root, _)) in items.iter().enumerate() {
                if let RootId::Chosen(_) = root.into() {
                    candidates[at] = keys[at].index.candidate(keys[at].hash);
                    if let Some(seen) = candidates[at] {
                        self.prefetch(seen.slot());
                    }
                }
            }
            for (at, &(root, xor)) in items.iter().enumerate() {
                let done = match root.into() {
                    RootId::Issued(root) => self.ack_issued(root, xor),
                    RootId::Chosen(_) if xor == 0 => Err(AckError::ZeroEdge),
                    RootId::Chosen(_) => self.ack_chosen_at(candidates[at], keys[at], xor),
                };
                each(group * GROUP + at, done);
            }
        }
    }
}
