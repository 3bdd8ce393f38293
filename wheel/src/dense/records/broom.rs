//! The broom: drops the dead records of one block at a time, and goes round through all lists.

use super::{bit, row, Broom, Lists, Nodes, Payload, Record, BLOCK, NONE};

impl Lists {
    /// Drops the dead records of one block, or goes on to the next list. Returns `false` at the end
    /// of all lists, where the broom begins again. What is left moves up to the block before as far
    /// as there is room: swept blocks are full.
    pub(in crate::dense) fn sweep<P: Payload>(&mut self, nodes: &Nodes<P>) -> bool {
        let Broom { head, behind } = self.broom;
        let at = match self.blocks.get(behind as usize) {
            Some(behind) => behind.next,
            None => self.lists.get(head as usize).map_or(NONE, |list| list.first),
        };
        if at == NONE {
            let next = self.first_head_from(head + 1);
            self.broom = next.map_or(Broom::START, |head| Broom { head, behind: NONE });
            return next.is_some();
        }
        let block = &self.blocks[at as usize];
        let next = block.next;
        // No branch on life, which is as good as random: a wrong guess would wait for a node.
        let (mut living, mut kept) = ([Record::default(); BLOCK], 0);
        for record in block.records() {
            living[kept] = *record;
            kept += usize::from(nodes.is_live(record.id, record.generation));
        }
        self.records -= block.records().len() - kept;
        let mut living = &living[..kept];
        if let Some(behind) = self.blocks.get_mut(behind as usize) {
            let room = &mut behind.records[usize::from(behind.end)..];
            let (moved, rest) = living.split_at(room.len().min(kept));
            room[..moved.len()].copy_from_slice(moved);
            // Fits: a block has fifteen.
            behind.end += moved.len() as u16;
            living = rest;
        }
        let kept = living.len();
        if kept > 0 {
            let block = &mut self.blocks[at as usize];
            block.records[..kept].copy_from_slice(living);
            (block.start, block.end) = (0, kept as u16);
            self.broom.behind = at;
        } else {
            self.unlink(head, behind, at);
        }
        // These are fetched now, so that they are in the cache when they are swept.
        if let Some(next) = self.blocks.get(next as usize) {
            for record in next.records() {
                nodes.fetch(record.id);
            }
            self.fetch(next.next);
        }
        true
    }

    /// Takes block `at`, which follows `behind` in the list, out of it.
    fn unlink(&mut self, head: u32, behind: u32, at: u32) {
        let next = self.blocks[at as usize].next;
        let list = &mut self.lists[head as usize];
        match self.blocks.get_mut(behind as usize) {
            Some(behind) => behind.next = next,
            None => list.first = next,
        }
        if next == NONE {
            list.last = behind;
        }
        if list.first == NONE {
            self.occupied[row(head)] &= !bit(head);
        }
        self.give_block(at);
    }

    /// Drops all dead records at once.
    #[cold]
    pub(in crate::dense) fn sweep_all<P: Payload>(&mut self, nodes: &Nodes<P>) {
        self.broom = Broom::START;
        while self.sweep(nodes) {}
    }
}
