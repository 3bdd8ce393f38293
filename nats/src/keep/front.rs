//! The touches that a process sends to the owners of partitions, without any I/O.
//!
//! Each kind of entry has a [`Front`], which says a few times in a timeout which entries are to be
//! touched. A partition's ids go to its owner in one request at a time. What has no answer goes
//! again, with what became due since.

use super::Answer;
use std::time::Duration;

/// The most ids of one request: 256 KiB.
const MOST_IDS: usize = 32_768;

/// The entries of one process.
pub(crate) trait Front: Send + 'static {
    /// What the process is to learn of an entry that has ended. It is handed on after all locks,
    /// because that may wake a task.
    type Gone;
    /// Time has passed. Appends the entries that are to be touched.
    fn tick(&mut self, now: Duration, due: &mut Vec<u64>, gone: &mut Vec<Self::Gone>);
    /// Whether the entry is still to be touched.
    fn serves(&self, id: u64) -> bool;
    /// The owner has answered the request that was sent at `sent_at`.
    fn touched(
        &mut self,
        now: Duration,
        sent_at: Duration,
        id: u64,
        answer: Answer,
        gone: &mut Vec<Self::Gone>,
    );
}

/// A request to the owner of the partition: touch these entries.
pub(crate) struct Touch {
    pub(crate) partition: u32,
    pub(crate) ids: Vec<u64>,
}

#[derive(Clone, Default)]
struct Partition {
    due: Vec<u64>,
    /// When the request was sent that is under way, and its ids.
    under_way: Option<(Duration, Vec<u64>)>,
}

pub(crate) struct Touches<F> {
    pub(crate) front: F,
    partitions: Vec<Partition>,
    /// The ids of one request.
    most: usize,
}

impl<F: Front> Touches<F> {
    /// The brokers take messages of `payload` bytes.
    pub(crate) fn new(front: F, partitions: u32, payload: usize) -> Self {
        let most = MOST_IDS.min(payload / 9); // an id has 8
        Self { front, partitions: vec![Partition::default(); partitions as usize], most }
    }

    /// Time has passed. Returns the requests that the driver is to send.
    pub(crate) fn tick(&mut self, now: Duration, gone: &mut Vec<F::Gone>) -> Vec<Touch> {
        let mut due = Vec::new();
        self.front.tick(now, &mut due, gone);
        for id in due {
            let partition = id % self.partitions.len() as u64;
            self.partitions[partition as usize].due.push(id);
        }
        (0..self.partitions.len()).filter_map(|partition| self.next(now, partition)).collect()
    }

    /// The owner has answered the partition's request, or not (None). Returns its next request.
    pub(crate) fn answered(
        &mut self,
        now: Duration,
        partition: u32,
        answers: Option<&[Answer]>,
        gone: &mut Vec<F::Gone>,
    ) -> Option<Touch> {
        let one = &mut self.partitions[partition as usize];
        let (sent_at, sent) = one.under_way.take()?;
        let Some(answers) = answers else {
            one.due.extend(sent);
            one.due.sort_unstable();
            one.due.dedup();
            one.due.retain(|id| self.front.serves(*id));
            return None;
        };
        for (id, answer) in sent.into_iter().zip(answers) {
            self.front.touched(now, sent_at, id, *answer, gone);
        }
        self.next(now, partition as usize)
    }

    fn next(&mut self, now: Duration, partition: usize) -> Option<Touch> {
        let one = &mut self.partitions[partition];
        if one.under_way.is_some() || one.due.is_empty() {
            return None;
        }
        let ids = one.due.split_off(one.due.len().saturating_sub(self.most));
        one.under_way = Some((now, ids.clone()));
        let partition = u32::try_from(partition).expect("it was one");
        Some(Touch { partition, ids })
    }
}
