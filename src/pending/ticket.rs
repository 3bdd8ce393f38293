//! Tickets: each names one value of a table, also on a wire.

use crate::kit::id::text_of_id;
use rand::RngCore;

/// Names one value in a [`PendingTable`](super::PendingTable).
///
/// 64 bits, so that it can travel; with the feature `serde` as a number. Displayed, and parsed, as
/// `0x` and 16 hexadecimal digits. No two insertions into a table get the same ticket. A ticket of
/// another table, or a guessed one, names a live value with a chance of `live / 2^64`. Tickets are
/// no secrets: a peer that has seen a ticket can send it.
///
/// ```
/// use expiry::{PendingTable, Ticket};
/// use std::time::Duration;
///
/// let table = PendingTable::builder().build()?;
/// let ticket = table.insert("a request", Duration::from_secs(30))?;
/// let sent = u64::from(ticket).to_be_bytes(); // into a message, and back
/// assert_eq!(table.take(Ticket::from(u64::from_be_bytes(sent))), Some("a request"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Ticket(u64);

text_of_id!(Ticket, bits);

/// The slot of a ticket, and which of its occupants it means.
///
/// ```text
///   63      48 47           32 31                0
///  +----------+---------------+-------------------+
///  | round    | generation    | slot              |
///  +----------+---------------+-------------------+
/// ```
///
/// The round counts how often the slot's generations have started over. The slot's note has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) id: u32,
    pub(super) generation: u32,
    pub(super) round: u32,
}

/// The last round of a slot. After it the slot is retired.
pub(super) const LAST_ROUND: u32 = (1 << 16) - 1;

/// Makes places into tickets and back by a bijection of 64 bits that the table chooses at random,
/// so that no peer guesses the ticket of a neighbour.
pub(super) struct Seal {
    key: u64,
    factor: u64,
    /// The inverse of `factor`, modulo 2^64.
    inverse: u64,
}

impl Seal {
    pub(super) fn new(random: &mut impl RngCore) -> Self {
        let factor = random.next_u64() | 1;
        // Newton: each step doubles the number of right bits, three of an odd `factor`.
        let step = |inverse: u64, _| {
            inverse.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(inverse)))
        };
        Seal { key: random.next_u64(), factor, inverse: (0..5).fold(factor, step) }
    }

    #[inline]
    pub(super) fn seal(&self, place: Place) -> Ticket {
        let bits =
            u64::from(place.round) << 48 | u64::from(place.generation) << 32 | u64::from(place.id);
        let once = fold((bits ^ self.key).wrapping_mul(self.factor));
        Ticket(fold(once.wrapping_mul(self.factor)))
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation)] // the fields' bits
    pub(super) fn open(&self, ticket: Ticket) -> Place {
        let once = fold(ticket.0).wrapping_mul(self.inverse);
        let bits = fold(once).wrapping_mul(self.inverse) ^ self.key;
        Place {
            id: bits as u32,
            generation: (bits >> 32) as u32 & 0xFFFF,
            round: (bits >> 48) as u32,
        }
    }
}

/// Its own inverse.
#[inline]
fn fold(bits: u64) -> u64 {
    bits ^ bits >> 32
}
