//! The init of a chosen root.

use super::{Found, Key, New};
use crate::ack::error::AckError;
use crate::ack::trees::tree::{occupy, Tree};
use crate::ack::trees::{Mine, Trees};
use crate::core::engine::Refused;
use crate::core::header::Header;
use crate::core::index::{Insert, Likely};
use crate::core::lease::{Lease, State};
use crate::core::occupancy::{Occupant, Unnamed};
use crate::error::TokenError;
use crate::sync::{step, Ordering};
use crate::time::Lifetime;

impl<T: 'static> Trees<T> {
    pub(crate) fn init(
        &self,
        id: u64,
        xor: u64,
        owner: u64,
        token: T,
        timeout: Lifetime,
    ) -> Result<(), TokenError<T>> {
        // The fetch goes on while this thread reads the clock and claims a slot.
        let key = self.key_at_hand(id);
        self.engine.with_stripe(|mine, index| {
            self.init_key((mine, index), key, (xor, owner), token, timeout)
        })
    }

    /// Inits the root of this key, with these edges and this token.
    #[inline(always)]
    pub(in crate::ack::trees) fn init_key(
        &self,
        who: (&Mine, usize),
        (key, likely): (Key<'_>, Likely<'_>),
        (xor, owner): (u64, u64),
        token: T,
        timeout: Lifetime,
    ) -> Result<(), TokenError<T>> {
        let times = match self.times(who.0, timeout) {
            Ok(times) => times,
            Err(error) => return Err(TokenError { error, token }),
        };
        let mut token = Some(token);
        let new = New { key, owner, times };
        let mut refused = Refused::OutOfMemory;
        let placed =
            self.place(who, &new, State::Live, |target| target ^ xor, &mut token, &mut refused);
        let Some((placed, header, look)) = placed else {
            return self.init_anywhere(who, new, xor, token, Err(refused));
        };
        let id = placed.id;
        if !likely.publish(&self.engine.pin(), id) {
            return self.init_anywhere(who, new, xor, token, Ok(placed));
        }
        let live = placed.named();
        step("root published");
        who.0.frontend.counts[self.engine.shard_of(id)].begun.add(1);
        if self.engine.enforce_in(header, id, look).is_ok() && xor != 0 {
            return Ok(());
        }
        self.init_ended(who.0, new, xor, live)
    }

    /// Ends a root that its init has just published, without edges or beside a shutdown.
    #[cold]
    #[inline(never)]
    fn init_ended(
        &self,
        mine: &Mine,
        new: New<'_>,
        xor: u64,
        live: Occupant<'_, Tree<T>>,
    ) -> Result<(), TokenError<T>> {
        let Occupant { id, slot, lease } = live;
        let target = self.target(new.key.id, lease.generation());
        if self.engine.enforce(id, self.idle_or(&live, new.times.deadline)).is_err() {
            return self.undo_root(mine, live, target);
        }
        if xor == 0 {
            let found = Found { id, slot, word: target, lease, position: None };
            self.complete_chosen(mine, &found, new.key, target);
        }
        Ok(())
    }

    /// [`init_key`](Self::init_key) for a key whose home is full, a key that the index has already,
    /// or a refused claim. The token is in the placed slot, if there is one.
    #[inline(never)]
    fn init_anywhere<'a>(
        &'a self,
        who: (&Mine, usize),
        new: New<'_>,
        xor: u64,
        mut token: Option<T>,
        placed: Result<Unnamed<'a, Tree<T>>, Refused>,
    ) -> Result<(), TokenError<T>> {
        self.init_or_merge(who, new, xor, &mut token, placed).map_err(|error| TokenError {
            error,
            token: token.expect("a refused init leaves the token"),
        })
    }

    /// Inits a root whose token is in `token` or the placed slot. On refusal it is in `token`.
    fn init_or_merge<'a>(
        &'a self,
        who: (&Mine, usize),
        new: New<'_>,
        xor: u64,
        token: &mut Option<T>,
        mut placed: Result<Unnamed<'a, Tree<T>>, Refused>,
    ) -> Result<(), AckError> {
        let mine = who.0;
        let key = new.key;
        loop {
            let found = match placed {
                Ok(placed) => match self.enter(mine, &new, placed, token)? {
                    Ok(live) => {
                        mine.frontend.counts[self.engine.shard_of(live.id)].begun.add(1);
                        return self.init_ended(mine, new, xor, live).map_err(|refused| {
                            *token = Some(refused.token);
                            refused.error
                        });
                    }
                    Err(found) => found,
                },
                Err(Refused::Closed) => return Err(AckError::Closed),
                // A key that is there already needs no room.
                Err(refused) => match self.find_anywhere(key) {
                    Some(found) => found,
                    None => return Err(self.refuse(refused)),
                },
            };
            match found.lease.state() {
                State::Early => {
                    if self.merge(mine, &found, &new, xor, token)? {
                        return Ok(());
                    }
                }
                // An early failure waits for this init, and ends the root.
                State::EarlyFailed => {
                    if self.merge_failed(&found, &new, token)? {
                        return Ok(());
                    }
                }
                // Another init of this root was first (S3, S7).
                _ => {
                    self.keys(mine, key).duplicate.add(1);
                    return Err(AckError::Duplicate);
                }
            }
            let mut refused = Refused::OutOfMemory;
            placed = self
                .place(who, &new, State::Live, |target| target ^ xor, token, &mut refused)
                .map(|(placed, ..)| placed)
                .ok_or(refused);
        }
    }

    /// Claims a slot and fills it, with `token` if there is one, and with the word that `word`
    /// makes of its target. The slot belongs to this thread alone until the index has it. Returns
    /// its block's header, and the tick of the driver's look. If no slot can be claimed, `refused`
    /// says why.
    #[inline(always)]
    pub(super) fn place(
        &self,
        (mine, index): (&Mine, usize),
        new: &New<'_>,
        state: State,
        word: impl FnOnce(u64) -> u64,
        token: &mut Option<T>,
        refused: &mut Refused,
    ) -> Option<(Unnamed<'_, Tree<T>>, &Header, u64)> {
        let vacant = self.engine.claim(mine, index, new.times.deadline, true, refused)?;
        let target = self.target(new.key.id, vacant.generation());
        let lease = Lease::new(state, vacant.generation(), new.times.deadline);
        let spot = vacant.spot();
        spot.note.store(self.born(target, new.times.now), Ordering::Relaxed);
        let look = self.begin_idle(vacant.id(), new.times);
        let placed = occupy(vacant, (new.key.id, new.owner, token), word(target), lease);
        self.keys(mine, new.key).keys_in.add(1);
        Some((placed, spot.header, look))
    }

    /// Publishes a placed slot in the index. The inner error is the slot that the key has already.
    /// Unless the index has it now, this frees the placed slot, and a root's `token` is back.
    #[inline(never)]
    pub(super) fn enter<'a>(
        &'a self,
        mine: &Mine,
        new: &New<'_>,
        placed: Unnamed<'a, Tree<T>>,
        token: &mut Option<T>,
    ) -> Result<Result<Occupant<'a, Tree<T>>, Found<'a, T>>, AckError> {
        let mut found = None;
        let mut probe = |id| {
            found = self.holds(id, new.key.id, None);
            found.is_some()
        };
        let entered =
            self.engine.publish(&self.engine.pin(), new.key.hash, placed.id, &mut probe, self);
        if let Insert::Done = entered {
            return Ok(Ok(placed.named()));
        }
        // The index never had the slot, so it is still this thread's alone (see `may_end`).
        self.keys(mine, new.key).keys_out.add(1);
        // SAFETY: the driver asks the index about chosen roots, which has not had this one.
        let placed = unsafe { placed.withdraw() };
        if placed.lease().is(State::Live) {
            // SAFETY: this thread has put it in; early entries have none.
            *token = Some(unsafe { Tree::token(placed.slot()).take() });
        }
        self.engine.free(mine, placed);
        match (entered, found) {
            (Insert::Found, Some(found)) => Ok(Err(found)),
            (Insert::Alike, _) => Err(self.refuse(AckError::Collisions)),
            _ => Err(self.refuse(AckError::OutOfMemory)),
        }
    }
}
