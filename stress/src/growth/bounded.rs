//! A bounded engine: more want to get in than may.

use super::{Row, Run};
use crate::checks::Check;
use crate::crowd::Work;
use crate::error::Error;
use crate::interrupt;
use crate::live::Live;
use crate::options::Grown;
use crate::subject::{Refusal, Subject, LONG};
use std::sync::atomic::{AtomicU64, Ordering::*};

/// The checks of a run.
pub const NAMES: [Check; 6] = [
    "capacity_exact",
    "refusals_right",
    "room_comes_back",
    "none_lost",
    "drained_once",
    "count_exact",
];

/// How many times as many as may want to get in.
const CROWD: u64 = 2;
/// Of so many that are in, one makes room for another one.
const MAKES_ROOM: u64 = 10;

/// Who has wanted to get in.
#[derive(Default)]
struct Door {
    begun: AtomicU64,
    refused: AtomicU64,
    ended: AtomicU64,
}

impl Run<'_> {
    /// One kind, with as much room as there are entries.
    pub(super) fn bound(&self, live: &mut Live, kind: Grown) -> Result<Row, Error> {
        let capacity = u64::from(self.options.entries);
        let room = capacity / MAKES_ROOM;
        let first = CROWD * capacity;
        let entries = first + CROWD * room + CROWD * self.threads as u64;
        // It has at most 30 bits.
        let subject = &*self.subject(kind, entries, Some(capacity as usize))?;
        let door = Door::default();
        let mut inside = self.enter(live, kind, (subject, &door), 0..first);
        let accepted: u64 = inside.iter().map(|mine| mine.len() as u64).sum();
        let full = |accepted: u64, is: u64| {
            // Interrupted, it was not tried often enough.
            let right =
                if interrupt::asked() { accepted <= capacity } else { accepted == capacity };
            self.expect("capacity_exact", kind, right && is == accepted, || {
                format!("{accepted} got in and {is} are there, there is room for {capacity}")
            });
        };
        full(accepted, subject.len() as u64);

        // Each thread ends a part of its own: so much room is there again.
        let mut out: Vec<Vec<u64>> = Vec::new();
        let mut wanted = room;
        for mine in &mut inside {
            let part = (wanted as usize).min(mine.len());
            wanted -= part as u64;
            out.push(mine.split_off(mine.len() - part));
        }
        let gone = room - wanted;
        self.end_all(live, kind, (subject, &door), &out);
        let more = self.enter(live, kind, (subject, &door), first..first + CROWD * gone);
        let came: u64 = more.iter().map(|mine| mine.len() as u64).sum();
        self.expect("room_comes_back", kind, came == gone || interrupt::asked(), || {
            format!("{came} got in after {gone} had gone")
        });
        full(accepted - gone + came, subject.len() as u64);
        for (mine, more) in inside.iter_mut().zip(more) {
            mine.extend(more);
        }
        self.with_each(live, (subject, &inside), |entry| {
            self.expect("none_lost", kind, subject.is_there(entry), || {
                format!("entry {entry} got in and is not there")
            });
        });
        self.end_all(live, kind, (subject, &door), &inside);
        self.counted(kind, subject, (accepted + came, 0));
        Ok(Row { inserted: accepted + came, ..Row::default() })
    }

    /// All threads want to get in with these numbers. Those of each that have.
    fn enter(
        &self,
        live: &mut Live,
        kind: Grown,
        (subject, door): (&dyn Subject, &Door),
        numbers: std::ops::Range<u64>,
    ) -> Vec<Vec<u64>> {
        let work = |thread: usize| -> Work<'_, Vec<u64>> {
            let mine = self.stretch(thread, numbers.end - numbers.start);
            let mine = numbers.start + mine.start..numbers.start + mine.end;
            Box::new(move || {
                let is_in = |entry: &u64| self.enters(kind, (subject, door), *entry);
                mine.take_while(|_| !interrupt::asked()).filter(is_in).collect()
            })
        };
        self.crowd(live, subject, (0..self.threads).map(work).collect(), None)
    }

    /// Whether an entry gets in. It may be refused only if there may have been as many others as there is room for.
    fn enters(&self, kind: Grown, (subject, door): (&dyn Subject, &Door), entry: u64) -> bool {
        let gone = door.refused.load(Acquire) + door.ended.load(Acquire);
        door.begun.fetch_add(1, AcqRel);
        let put = subject.put(entry, LONG);
        self.count(entry);
        let others = door.begun.load(Acquire) - 1 - gone;
        match put {
            Ok(()) => return true,
            Err(Refusal::Full) => {
                self.expect(
                    "refusals_right",
                    kind,
                    others >= u64::from(self.options.entries),
                    || format!("entry {entry} was refused, with {others} others at most"),
                );
            }
            Err(why) => self.expect("refusals_right", kind, false, || {
                format!("entry {entry} was refused, not as full: {why:?}")
            }),
        }
        door.refused.fetch_add(1, AcqRel);
        false
    }

    /// Each thread does this with each of its own. How many they are.
    fn with_each(
        &self,
        live: &mut Live,
        (subject, own): (&dyn Subject, &[Vec<u64>]),
        act: impl Fn(u64) + Sync,
    ) -> u64 {
        let act = &act;
        let work = |mine| -> Work<'_, u64> {
            let mine: &Vec<u64> = mine;
            Box::new(move || {
                for &entry in mine {
                    act(entry);
                    self.count(entry);
                }
                mine.len() as u64
            })
        };
        self.crowd(live, subject, own.iter().map(work).collect(), None).iter().sum()
    }

    fn end_all(
        &self,
        live: &mut Live,
        kind: Grown,
        (subject, door): (&dyn Subject, &Door),
        own: &[Vec<u64>],
    ) {
        let ended = self.with_each(live, (subject, own), |entry| {
            self.drain(kind, subject, entry);
        });
        door.ended.fetch_add(ended, AcqRel);
    }
}
