//! The entries: in one array, linked into a list for each generation.

use super::index::NONE;

/// An entry and its neighbours, or a vacancy.
#[derive(Clone, Debug)]
struct Node<K, V> {
    prev: u32,
    /// The next entry of the list; of a vacancy, the next vacancy.
    next: u32,
    hash: u32,
    /// How many rotations there had been when it was last put or touched.
    born: u64,
    entry: Option<(K, V)>,
}

/// The ends of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) first: u32,
    last: u32,
    pub(super) len: usize,
}

impl List {
    pub(super) const EMPTY: List = List { first: NONE, last: NONE, len: 0 };
}

/// Most entries there can be: what an index of 2^32 cells has room for is more.
pub(super) const MOST: usize = 1 << 31;

/// All entries of a map.
#[derive(Clone, Debug)]
pub(super) struct Nodes<K, V> {
    nodes: Vec<Node<K, V>>,
    /// The first vacancy.
    free: u32,
    /// How many of the nodes are vacant.
    vacant: usize,
}

impl<K, V> Nodes<K, V> {
    pub(super) const fn new() -> Self {
        Nodes { nodes: Vec::new(), free: NONE, vacant: 0 }
    }

    pub(super) fn capacity(&self) -> usize {
        self.nodes.capacity()
    }

    /// Entries of all lists together.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.vacant
    }

    /// Makes room for this many more.
    ///
    /// # Panics
    /// If that would be more than [`MOST`].
    #[inline]
    pub(super) fn reserve(&mut self, additional: usize) {
        if self.vacant < additional {
            self.grow(additional);
        }
    }

    #[cold]
    fn grow(&mut self, additional: usize) {
        let len = self.len().checked_add(additional);
        assert!(len.is_some_and(|len| len <= MOST), "a RotatingMap has room for 2^31 entries");
        self.nodes.reserve(additional - self.vacant);
    }

    /// Places an entry, in no list yet.
    #[inline]
    pub(super) fn place(&mut self, hash: u32, entry: (K, V)) -> u32 {
        let node = Node { prev: NONE, next: NONE, hash, born: 0, entry: Some(entry) };
        let at = self.free;
        if at == NONE {
            self.nodes.push(node);
            // Below 2^31: see `grow`.
            return (self.nodes.len() - 1) as u32;
        }
        self.free = self.nodes[at as usize].next;
        self.vacant -= 1;
        self.nodes[at as usize] = node;
        at
    }

    /// Vacates an entry that is in no list.
    #[inline]
    pub(super) fn vacate(&mut self, at: u32) -> Option<(K, V)> {
        let node = &mut self.nodes[at as usize];
        node.next = self.free;
        self.free = at;
        self.vacant += 1;
        node.entry.take()
    }

    #[inline]
    pub(super) fn entry(&self, at: u32) -> Option<&(K, V)> {
        self.nodes[at as usize].entry.as_ref()
    }

    #[inline]
    pub(super) fn entry_mut(&mut self, at: u32) -> Option<&mut (K, V)> {
        self.nodes[at as usize].entry.as_mut()
    }

    #[inline]
    pub(super) fn hash(&self, at: u32) -> u32 {
        self.nodes[at as usize].hash
    }

    #[inline]
    pub(super) fn born(&self, at: u32) -> u64 {
        self.nodes[at as usize].born
    }

    #[inline]
    pub(super) fn next(&self, at: u32) -> u32 {
        self.nodes[at as usize].next
    }

    /// Appends an entry to a list, as born then.
    #[inline]
    pub(super) fn push(&mut self, list: &mut List, at: u32, born: u64) {
        let node = &mut self.nodes[at as usize];
        node.prev = list.last;
        node.next = NONE;
        node.born = born;
        match list.last {
            NONE => list.first = at,
            last => self.nodes[last as usize].next = at,
        }
        list.last = at;
        list.len += 1;
    }

    /// Takes an entry out of the list it is in.
    #[inline]
    pub(super) fn unlink(&mut self, list: &mut List, at: u32) {
        let Node { prev, next, .. } = self.nodes[at as usize];
        match prev {
            NONE => list.first = next,
            prev => self.nodes[prev as usize].next = next,
        }
        match next {
            NONE => list.last = prev,
            next => self.nodes[next as usize].prev = prev,
        }
        list.len -= 1;
    }

    /// Appends all of one list to another and leaves it empty. O(1).
    #[inline]
    pub(super) fn splice(&mut self, from: &mut List, to: &mut List) {
        if from.len == 0 {
            return;
        }
        match to.last {
            NONE => to.first = from.first,
            last => self.nodes[last as usize].next = from.first,
        }
        self.nodes[from.first as usize].prev = to.last;
        to.last = from.last;
        to.len += from.len;
        *from = List::EMPTY;
    }

    /// Moves a list's entries to another array, into a list there, and calls `moved` with the hash
    /// and the new place of each.
    pub(super) fn drain_into(
        &mut self,
        to: &mut Nodes<K, V>,
        list: List,
        mut moved: impl FnMut(u32, u32),
    ) -> List {
        let (mut new, mut at) = (List::EMPTY, list.first);
        while at != NONE {
            let node = &mut self.nodes[at as usize];
            let (hash, born) = (node.hash, node.born);
            at = node.next;
            if let Some(entry) = node.entry.take() {
                let place = to.place(hash, entry);
                to.push(&mut new, place, born);
                moved(hash, place);
            }
        }
        new
    }

    /// All entries, in no order, with when they were born.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut (K, V))> {
        self.nodes.iter_mut().filter_map(|node| Some((node.born, node.entry.as_mut()?)))
    }

    /// All entries by value, in no order, with when they were born.
    pub(super) fn into_entries(self) -> impl Iterator<Item = (u64, (K, V))> {
        self.nodes.into_iter().filter_map(|node| Some((node.born, node.entry?)))
    }

    /// Drops all entries and keeps their room. Nothing refers to any of them any more.
    pub(super) fn clear(&mut self) {
        self.free = NONE;
        self.vacant = 0;
        // Is empty before it drops anything: a drop that panics meets a whole map.
        self.nodes.clear();
    }
}

/// The figures of the documentation.
#[cfg(all(test, target_pointer_width = "64"))]
#[test]
fn bytes_per_entry_and_per_generation() {
    use std::mem::size_of;
    assert_eq!(size_of::<Node<u64, u64>>(), 32 + 16);
    assert_eq!(size_of::<Node<String, u64>>(), 24 + 32);
    assert_eq!(size_of::<List>(), 16);
}

#[cfg(test)]
impl<K, V> Nodes<K, V> {
    /// The places of a list, walked both ways.
    pub(super) fn places(&self, list: &List) -> Vec<u32> {
        let (mut places, mut at, mut prev) = (Vec::new(), list.first, NONE);
        while at != NONE {
            assert_eq!(self.nodes[at as usize].prev, prev);
            assert!(self.nodes[at as usize].entry.is_some());
            places.push(at);
            (prev, at) = (at, self.next(at));
        }
        assert_eq!(list.last, prev);
        assert_eq!(list.len, places.len());
        places
    }

    /// How many vacancies are linked.
    pub(super) fn vacancies(&self) -> usize {
        let (mut count, mut at) = (0, self.free);
        while at != NONE {
            assert!(self.nodes[at as usize].entry.is_none());
            count += 1;
            at = self.next(at);
        }
        assert_eq!(count, self.vacant);
        count
    }

    pub(super) fn places_in_all(&self) -> usize {
        self.nodes.len()
    }
}
