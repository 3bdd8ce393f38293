//! A bounded engine: more want to get in than may.

use super::{Row, Run};
use crate::checks::Check;
use crate::crowd::Work;
use crate::interrupt;
use crate::live::Live;
use crate::subject::{Refusal, LONG};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::*};

pub const NAMES: [Check; 6] = [
    "capacity_exact",
    "refusals_right",
    "room_comes_back",
    "none_lost",
    "drained_once",
    "count_exact",
];

/// How many times as many entries try to get in as may.
const CROWD: u64 = 2;
/// One entry in this many that are in makes room for another one.
const MAKES_ROOM: u64 = 10;

/// Counts of entries that have tried to get in.
#[derive(Default)]
struct Door {
    begun: AtomicU64,
    refused: AtomicU64,
    ended: AtomicU64,
}

/// How many numbers a run needs if its engine has room for this many entries.
pub fn numbers(capacity: u64, threads: usize) -> u64 {
    CROWD * (capacity + capacity / MAKES_ROOM + threads as u64)
}

impl Run<'_> {
    /// The kind, with as much room as there are entries.
    pub(super) fn bound(&self, live: &mut Live) -> Row {
        let capacity = u64::from(self.options.entries);
        let room = capacity / MAKES_ROOM;
        let first = CROWD * capacity;
        let door = Door::default();
        let mut inside = self.enter(live, &door, 0..first);
        let accepted = sum(&inside);
        let full = |accepted: u64| {
            let is = self.subject.len() as u64;
            // An interrupted run has not tried often enough.
            let right =
                if interrupt::asked() { accepted <= capacity } else { accepted == capacity };
            self.expect("capacity_exact", right && is == accepted, || {
                format!("{accepted} got in and {is} are there, there is room for {capacity}")
            });
        };
        full(accepted);

        // Each thread ends a part of its entries: as much room is free again.
        let mut out: Vec<Vec<u64>> = Vec::new();
        let mut wanted = room;
        for mine in &mut inside {
            let part = (wanted as usize).min(mine.len());
            wanted -= part as u64;
            out.push(mine.split_off(mine.len() - part));
        }
        let gone = room - wanted;
        self.end_all(live, &door, &out);
        let more = self.enter(live, &door, first..first + CROWD * gone);
        let came = sum(&more);
        self.expect("room_comes_back", came == gone || interrupt::asked(), || {
            format!("{came} got in after {gone} had gone")
        });
        full(accepted - gone + came);
        for (mine, more) in inside.iter_mut().zip(more) {
            mine.extend(more);
        }
        self.each(live, inside.iter().map(|mine| mine.iter().copied()), |entry| {
            self.is_there(entry);
        });
        self.end_all(live, &door, &inside);
        self.counted(accepted + came, 0);
        Row { inserted: accepted + came, ..Row::default() }
    }

    /// All threads try to enter these numbers. Returns the accepted numbers of each thread.
    fn enter(&self, live: &mut Live, door: &Door, numbers: Range<u64>) -> Vec<Vec<u64>> {
        let work = |thread: usize| -> Work<'_, Vec<u64>> {
            let mine = self.stretch(thread, numbers.end - numbers.start);
            let mine = numbers.start + mine.start..numbers.start + mine.end;
            Box::new(move || {
                let is_in = |entry: &u64| self.enters(door, *entry);
                mine.take_while(|_| !interrupt::asked()).filter(is_in).collect()
            })
        };
        self.crowd(live, (0..self.threads).map(work).collect())
    }

    /// Whether an entry gets in. The engine may refuse it only if there may have been as many
    /// others as there is room for.
    fn enters(&self, door: &Door, entry: u64) -> bool {
        let gone = door.refused.load(Acquire) + door.ended.load(Acquire);
        door.begun.fetch_add(1, AcqRel);
        let put = self.subject.put(entry, LONG);
        self.count(entry);
        let others = door.begun.load(Acquire) - 1 - gone;
        let Err(why) = put else {
            return true;
        };
        let right = why == Refusal::Full && others >= u64::from(self.options.entries);
        self.expect("refusals_right", right, || {
            format!("entry {entry} was refused, with {others} others at most: {why:?}")
        });
        door.refused.fetch_add(1, AcqRel);
        false
    }

    fn end_all(&self, live: &mut Live, door: &Door, own: &[Vec<u64>]) {
        self.each(live, own.iter().map(|mine| mine.iter().copied()), |entry| self.drain(entry));
        door.ended.fetch_add(sum(own), AcqRel);
    }
}

/// How many they are.
fn sum(own: &[Vec<u64>]) -> u64 {
    own.iter().map(|mine| mine.len() as u64).sum()
}
