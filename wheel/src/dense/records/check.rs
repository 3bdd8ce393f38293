//! What the validator and the tests look at.

use super::{Lists, BLOCK, NONE};

impl Lists {
    /// Checks that each block is in one list or in the pool, once, and how they hang together.
    pub(in crate::dense) fn check(&self) {
        let mut seen = vec![false; self.blocks.len()];
        let mut see = |at: u32| {
            assert!(!std::mem::replace(&mut seen[at as usize], true), "W-blocks: {at} twice")
        };
        let mut records = 0;
        let mut swept = self.broom.behind == NONE;
        for (head, list) in self.lists.iter().enumerate() {
            let (mut at, mut last) = (list.first, NONE);
            while at != NONE {
                see(at);
                let block = &self.blocks[at as usize];
                assert!(
                    block.start < block.end && usize::from(block.end) <= BLOCK,
                    "W-blocks: {at} is empty"
                );
                records += block.records().len();
                swept |= at == self.broom.behind && head == self.broom.head as usize;
                (last, at) = (at, block.next);
            }
            assert_eq!(list.last, last, "W-blocks: the end of {head}");
        }
        let mut at = self.pool;
        while at != NONE {
            see(at);
            at = self.blocks[at as usize].next;
        }
        assert!(seen.into_iter().all(|seen| seen), "W-blocks: lost");
        assert_eq!(records, self.records, "W-blocks: records");
        assert!(swept, "the broom is not where it thinks");
    }

    pub(in crate::dense) fn bits(&self, row: usize) -> u64 {
        self.occupied[row]
    }

    /// Whether the broom stands on the first block of a list.
    #[cfg(test)]
    pub(in crate::dense) fn is_swept(&self, head: u32) -> bool {
        let super::Broom { head: at, behind } = self.broom;
        at == head && behind != NONE && behind == self.lists[head as usize].first
    }

    /// Blocks there are, and for how many there is memory.
    #[cfg(test)]
    pub(in crate::dense) fn blocks(&self) -> (usize, usize) {
        (self.blocks.len(), self.blocks.capacity())
    }
}
