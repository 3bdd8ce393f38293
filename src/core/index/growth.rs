//! Growing, shrinking, migrating and retiring tables. `core::index` says why that is safe.

use super::directory::{Directory, LISTED};
use super::line::bits;
use super::table::{hash_of, slot_of, Publish, Table, BITS, CLOSED};
use super::{Index, Migrator};
use crate::core::memory::{boxed, OutOfMemory};
use crate::core::params::{CLASSES, GROUP, HOME, MIN_CLASS, OVER, SMALL_CLASSES};
use crate::core::pins::{Copier, Pin, Wait};
use crate::sync::Ordering;

/// How often the driver tries to end a grace period before it comes back later: a period ends once
/// the epoch has advanced twice more.
const TURNS: usize = if cfg!(expiry_loom) { 1 } else { 4 };

impl Index {
    /// Puts the table of `class` to use. `Ok(false)` if it is not free.
    pub(super) fn acquire(&self, class: usize) -> Result<bool, OutOfMemory> {
        let (place, used) = (&self.tables[class], &self.used[class]);
        // Acquire pairs with the end of the grace period: the zeroed table is seen zeroed
        // (`grace_a_pinned_thread_puts_a_table_to_use` fails without it).
        if used.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Ok(false);
        }
        // survives: the swap of `used` has shown whether there is a table, and the directory's
        // swap publishes it. This holds for the store below, too.
        if place.load(Ordering::Acquire).is_null() {
            #[allow(clippy::cast_possible_truncation)] // fewer than 32 classes
            let table = match Table::map(MIN_CLASS + class as u32).and_then(boxed) {
                Ok(table) => table,
                Err(error) => {
                    // survives: no model runs out of memory.
                    used.store(false, Ordering::Release);
                    return Err(error);
                }
            };
            place.store(Box::into_raw(table), Ordering::Release);
        }
        Ok(true)
    }

    /// Installs a successor if `seen` still is the directory and its youngest table is not
    /// [sparse](Table::is_sparse). Returns whether there is a younger table now.
    #[cold]
    pub(super) fn grow(&self, seen: Directory) -> bool {
        // Larger steps while migration is behind: so the list is never full before the largest
        // class is reached (1+1+2+2+4+4+8 doublings on top of the first).
        let step: usize = 1 << (seen.len().saturating_sub(1) / 2);
        let small = usize::from((0..SMALL_CLASSES).contains(&seen.youngest()));
        let mut class = (seen.youngest() + step.max(1 + small)).min(CLASSES - 1);
        let is_sparse = self.table(seen.youngest()).is_sparse();
        if is_sparse || seen.len() == LISTED || class == seen.youngest() {
            return self.directory() != seen;
        }
        loop {
            if self.directory() != seen {
                return true;
            }
            match self.acquire(class) {
                Ok(true) => break,
                // Retired a moment ago, or another thread is installing it.
                Ok(false) if class + 1 < CLASSES => class += 1,
                Ok(false) | Err(OutOfMemory) => return self.directory() != seen,
            }
        }
        self.list(seen, class);
        true
    }

    /// Lists the table of `class`, which the caller has acquired, as the youngest, if `seen` still
    /// is the directory. Returns whether it was.
    fn list(&self, seen: Directory, class: usize) -> bool {
        let with = seen.with(class).0;
        let swap =
            self.directory.compare_exchange(seen.0, with, Ordering::AcqRel, Ordering::Relaxed);
        if swap.is_err() {
            // Another thread's table came first. No thread has been in this one, which was never
            // listed.
            // survives: the thread that takes the table next could miss that it was made, and map
            // another. Loom does not count that memory.
            self.used[class].store(false, Ordering::Release);
        }
        swap.is_ok()
    }

    /// Installs a larger table if one is due for `live` keys. Returns whether there is one.
    #[cold]
    pub(crate) fn grow_if_full(&self, live: u64) -> bool {
        let directory = self.directory();
        let words = Self::capacity_of(directory.youngest());
        // Above 3/4 of all words, overflow buckets included, some insertions start to fail.
        live * 4 >= words * 3 && self.grow(directory)
    }

    /// Installs a smaller table if this one would be mostly empty. Calls `live`, which sums what
    /// all threads have counted, only if there is a smaller one.
    pub(crate) fn shrink_if_empty(&self, live: impl FnOnce() -> u64) -> bool {
        let directory = self.directory();
        let youngest = directory.youngest();
        if directory.len() > 1 || youngest == 0 {
            return false;
        }
        let live = live();
        if live * 16 > Self::capacity_of(youngest) {
            return false;
        }
        let mut class = youngest - 1;
        while class > 0 && live * 4 < Self::capacity_of(class - 1) {
            class -= 1;
        }
        matches!(self.acquire(class), Ok(true)) && self.list(directory, class)
    }

    /// The number of words in a table of `class`.
    #[allow(clippy::cast_possible_truncation)] // fewer than 32 classes
    pub(crate) fn capacity_of(class: usize) -> u64 {
        let homes = 1u64 << (MIN_CLASS + class as u32);
        homes * HOME as u64 + homes.div_ceil(GROUP as u64) * OVER as u64
    }

    #[inline]
    pub(crate) fn tables_to_migrate(&self) -> usize {
        self.directory().len() - 1
    }

    /// Whether an older table is to be migrated, and migration does not wait for memory.
    pub(crate) fn wants_migration(&self) -> bool {
        let listed = self.directory().len();
        listed > 1 && self.stuck.load(Ordering::Relaxed) as usize != listed
    }

    /// Moves words from the oldest table to the youngest, up to `budget` of them or of empty homes.
    /// One thread at a time: another gets false at once. True if there is more to do.
    ///
    /// `tail` is where a slot's forwards lead to. No slot whose word is being copied is gathered
    /// meanwhile: a thread that removes such a word hands its slot to the deferred-free list.
    pub(crate) fn migrate(
        &self,
        copier: &Copier<'_>,
        budget: &mut usize,
        tail: impl Fn(u32) -> u32,
    ) -> bool {
        let migrate =
            |migrator: &mut Migrator| self.migrate_words(&copier.pin, migrator, budget, &tail);
        self.migrator.enter(migrate).unwrap_or(false)
    }

    fn migrate_words(
        &self,
        pin: &Pin,
        migrator: &mut Migrator,
        budget: &mut usize,
        tail: &impl Fn(u32) -> u32,
    ) -> bool {
        loop {
            let directory = self.directory();
            if directory.len() < 2 {
                return false;
            }
            let class = directory.class(0);
            let table = self.table(class);
            let mut at = migrator.next;
            while at < table.homes.as_slice().len() {
                if *budget == 0 {
                    migrator.next = at;
                    return true;
                }
                *budget -= 1;
                let home = &table.homes.as_slice()[at];
                let header = home.header.fetch_or(CLOSED, Ordering::AcqRel);
                for position in bits(header & BITS) {
                    #[allow(clippy::cast_possible_truncation)] // a home's number has as few bits
                    let word = table.word_at(home, at as u32, position).load(Ordering::Acquire);
                    // A closed home only loses bits. So a bit that is set after the word was read
                    // was this word's all the time, and not that of a later reservation.
                    // survives: the word was read with Acquire, and a reserving thread acquires the
                    // removal that left the place free. So a thread that reads a reserved word
                    // finds the bit gone.
                    if home.header.load(Ordering::Acquire) & 1 << position == 0 {
                        continue;
                    }
                    *budget = budget.saturating_sub(1);
                    if !self.migrate_one(table, position, word, tail) {
                        // Crowded, without a larger table: leave the word until there is one.
                        migrator.next = at;
                        #[allow(clippy::cast_possible_truncation)] // at most LISTED
                        self.stuck.store(directory.len() as u32, Ordering::Relaxed);
                        return false;
                    }
                }
                // Words whose removal is under way may be left for the removing threads.
                // survives: in a closed home bits only go: a late header makes this thread look
                // once more. The fences of pins order the removing threads with the retirement.
                if home.header.load(Ordering::Acquire) & BITS == 0 {
                    at += 1;
                }
            }
            migrator.next = 0;
            self.retire(class);
            migrator.retired.push((class, Wait::begin(pin)));
            self.retired.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Moves one word out of an old table. False if the youngest has no room and cannot grow.
    fn migrate_one(
        &self,
        old: &Table,
        place: usize,
        value: u64,
        tail: impl Fn(u32) -> u32,
    ) -> bool {
        let (hash, slot) = (hash_of(value), slot_of(value));
        loop {
            let directory = self.directory();
            for class in directory.classes().take(directory.len() - 1) {
                self.table(class).close(hash);
            }
            // If a younger table comes meanwhile, a thread that goes on to it has looked at the old
            // table before, and looks at this one after it.
            let young = self.table(directory.youngest());
            let position = match young.publish(hash, slot, usize::MAX, &mut |_| false) {
                Publish::Done(position) => position,
                Publish::Crowded if !self.grow(directory) => return false,
                _ => continue,
            };
            match old.take_copied(hash, place) {
                Some(now) if now == value => {}
                // Swung since, the copy perhaps too. It leads to the entry, whose slots no thread
                // gathers meanwhile.
                Some(_) => young.mend_copy(position, hash, tail),
                // The entry has ended, and with it the old word: the copy must go too.
                None => young.withdraw(position, hash),
            }
            return true;
        }
    }

    /// Takes the oldest table off the directory.
    fn retire(&self, class: usize) {
        let mut directory = self.directory();
        loop {
            match self.directory.compare_exchange(
                directory.0,
                directory.without(class).0,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => directory = Directory(now),
            }
        }
        // Before the grace period: a thread that pins after it does not find the table.
        self.set_oldest(directory.class(1));
        self.stuck.store(0, Ordering::Relaxed);
    }

    /// Ends grace periods, and gives back the pages and classes of retired tables; only the driver
    /// does. True if a period runs.
    pub(crate) fn turn(&self, turn: impl Fn()) -> bool {
        // A count that comes late puts the look off.
        if self.retired.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let turned = self.migrator.enter(|migrator| {
            migrator.retired.retain(|(class, wait)| {
                // Unless a thread is pinned, a few turns end the period, not some ticks later.
                (0..TURNS).take_while(|_| !wait.is_over()).for_each(|_| turn());
                if !wait.is_over() {
                    return true;
                }
                self.table(*class).release();
                // Release pairs with the swap in `acquire`: the next user sees it zeroed.
                self.used[*class].store(false, Ordering::Release);
                self.retired.fetch_sub(1, Ordering::Relaxed);
                false
            });
            !migrator.retired.is_empty()
        });
        turned.unwrap_or(true)
    }

    /// The number of listed tables, and of words in the youngest.
    #[cfg(any(test, expiry_loom, feature = "tracing"))]
    pub(crate) fn shape(&self) -> (usize, u64) {
        let directory = self.directory();
        (directory.len(), Self::capacity_of(directory.youngest()))
    }

    /// For models: the number of tables in use, listed or not.
    #[cfg(expiry_loom)]
    pub(crate) fn in_use(&self) -> usize {
        let used = self.used.iter().filter(|used| used.load(Ordering::Relaxed)).count();
        used - self.retired.load(Ordering::Relaxed) as usize
    }
}
