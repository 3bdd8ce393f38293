//! Pending messages, and the places that they take.
//!
//! A message is *pending* from its emission until its spout has been called with the last outcome.
//! In between it has a *place*: an index that the message's roots carry as part of their owner. A
//! spout's task has as many places as may be pending, so a spout with no free place emits nothing.

use crate::replay::DeadLetter;

/// A message that is in flight, or that waits to be emitted again.
pub(super) struct Pending<M, Id> {
    /// The spout's name for the message.
    pub(super) id: Id,
    /// A copy, if the message may have to be emitted again, or become a dead letter. The message
    /// itself until it is first offered.
    pub(super) message: Option<M>,
    /// How often the message was emitted.
    pub(super) attempts: u32,
    /// The message's dead letter, if that is what is in flight.
    pub(super) given_up: Option<Box<DeadLetter<M>>>,
    /// What the edges of its first copies follow from, in each attempt.
    pub(super) seed: u64,
    /// The clock reading when the message was emitted first, or given up.
    pub(super) began: u64,
}

// A place of a small message is one cache line.
const _: () = assert!(std::mem::size_of::<Option<Pending<u64, u64>>>() <= 64);

/// The places of one task. A place is free, or it holds a pending message, or its message has been
/// taken and its last outcome is being delivered.
pub(super) struct Places<M, Id> {
    places: Vec<Option<Pending<M, Id>>>,
    free: Vec<u32>,
}

impl<M, Id> Places<M, Id> {
    /// So many free places; the builder has checked that they fit in 32 bits.
    pub(super) fn new(places: usize) -> Self {
        Places {
            places: (0..places).map(|_| None).collect(),
            #[allow(clippy::cast_possible_truncation)] // checked by the builder
            free: (0..places as u32).rev().collect(),
        }
    }

    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    pub(super) fn taken(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// The place that the next message enters.
    pub(super) fn next(&self) -> Option<u32> {
        self.free.last().copied()
    }

    /// Puts a message into the [next](Self::next) place.
    pub(super) fn enter(&mut self, pending: Pending<M, Id>) {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = Some(pending);
        }
    }

    /// The message in a place. `None` for the owner of a root that other code issued.
    pub(super) fn get(&self, place: u32) -> Option<&Pending<M, Id>> {
        self.places.get(place as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, place: u32) -> Option<&mut Pending<M, Id>> {
        self.places.get_mut(place as usize)?.as_mut()
    }

    /// Takes the message out of a place, which stays taken until it is [freed](Self::free).
    pub(super) fn take(&mut self, place: u32) -> Option<Pending<M, Id>> {
        self.places.get_mut(place as usize)?.take()
    }

    /// Frees a place whose message was taken.
    pub(super) fn free(&mut self, place: u32) {
        self.free.push(place);
    }
}
