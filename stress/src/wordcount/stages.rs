//! The split stage and the count stage.

use super::attempt::Attempt;
use super::faults::LINE;
use super::handle::Handle;
use super::words::{add, words, Counts};
use super::worker::{Input, Worker, WorkerTally};
use super::Stats;
use crossbeam_channel::{Receiver, Sender};
use std::hash::BuildHasher;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// A line on its way to the split stage.
pub struct Job<'a> {
    /// The attempt.
    pub attempt: Arc<Attempt<'a>>,
    /// The tuple of the line.
    pub handle: Handle<'a>,
}

/// A word on its way to the count stage.
struct Item<'a> {
    /// Its number in its line.
    word: u32,
    start: u32,
    end: u32,
    handle: Handle<'a>,
}

/// Words of several lines on their way to one worker of the count stage.
#[derive(Default)]
pub struct Batch<'a> {
    /// The lines, each with the end of its share of `items`.
    lines: Vec<(Arc<Attempt<'a>>, usize)>,
    items: Vec<Item<'a>>,
}

/// How many words a batch has before it is sent without further ado.
const FULL: usize = 512;

/// A split worker: takes lines apart, and sends each word to the worker whose share of all words it is in.
pub fn split<'a>(
    mut worker: Worker<'a>,
    jobs: &Receiver<Vec<Job<'a>>>,
    counters: &[Sender<Batch<'a>>],
    hasher: &foldhash::fast::FixedState,
) -> WorkerTally {
    let mut batches: Vec<Batch<'a>> = counters.iter().map(|_| Batch::default()).collect();
    let send = |batches: &mut Vec<Batch<'a>>, least: usize| {
        batches.iter_mut().zip(counters).all(|(batch, counter)| {
            batch.items.len() < least || counter.send(std::mem::take(batch)).is_ok()
        })
    };
    // What is in hand is sent before waiting for more.
    let mut empty = true;
    loop {
        match worker.next(jobs, empty) {
            Input::Work(jobs) => {
                for Job { attempt, handle } in jobs {
                    let text = &attempt.line.text;
                    worker.settle(&attempt, LINE, handle, |handle| {
                        let mut word = 0;
                        for place in words(text) {
                            let hash = hasher.hash_one(&text[place.clone()]);
                            // The high half of the product: a number below the number of batches.
                            let to = ((u128::from(hash) * batches.len() as u128) >> 64) as usize;
                            batches[to].items.push(Item {
                                word,
                                start: place.start as u32,
                                end: place.end as u32,
                                handle: handle.emit(),
                            });
                            word += 1;
                        }
                        attempt.has_words(word as usize);
                        for batch in &mut batches {
                            if batch.items.len() > batch.lines.last().map_or(0, |line| line.1) {
                                batch.lines.push((attempt.clone(), batch.items.len()));
                            }
                        }
                    });
                    if !send(&mut batches, FULL) {
                        return worker.tally;
                    }
                }
                empty = false;
            }
            Input::Nothing | Input::Closed if !empty => {
                if !send(&mut batches, 1) {
                    return worker.tally;
                }
                empty = true;
            }
            Input::Nothing => {}
            Input::Closed => break,
        }
    }
    worker.finish()
}

/// A count worker: counts the words in its share.
pub fn count<'a>(
    mut worker: Worker<'a>,
    batches: &Receiver<Batch<'a>>,
    stats: &Stats,
) -> (Counts, WorkerTally) {
    let mut counts = Counts::default();
    loop {
        match worker.next(batches, true) {
            Input::Work(Batch { lines, items }) => {
                let mut counted = 0;
                let mut items = items.into_iter();
                let mut done = 0;
                for (attempt, end) in lines {
                    for item in items.by_ref().take(end - done) {
                        let text = &attempt.line.text[item.start as usize..item.end as usize];
                        worker.settle(&attempt, item.word, item.handle, |_| {
                            add(&mut counts, text, 1);
                            attempt.count(item.word);
                            counted += 1;
                        });
                    }
                    done = end;
                }
                stats.words.fetch_add(counted, Relaxed);
            }
            Input::Nothing => {}
            Input::Closed => break,
        }
    }
    (counts, worker.finish())
}
