//! Nodes: a key and its value on the heap, and the lease that they are to have.
//!
//! A node that has a time to idle has a [`Policy`] in front of it, and says so in the lowest bit of its word. So who has none
//! does not pay for it.

use super::idle::Policy;
use crate::core::lease::Lease;
use crate::inject::{hit, is, Bug};
use crate::panics::caught;
use crate::sync::cell::Kept;
use crate::sync::grace::{Grace, Pin};
use crate::sync::{AtomicU64, Ordering};
use std::any::TypeId;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::mem::{align_of, needs_drop, size_of, ManuallyDrop};
use std::ops::Deref;
use std::sync::atomic::AtomicU64 as Statistic;

/// Panics of keys' and values' `Drop` that were caught, in all stores of this process: a node outlives its store.
pub(crate) static DROP_PANICS: Statistic = Statistic::new(0);

/// No node, no offer.
pub(crate) const NONE: u64 = 0;

/// In a word: there is a policy in front of the node.
const WITH_POLICY: u64 = 1;

/// In a node's lease: it has been taken, and this is the word of the node whose place it takes. No state that a lease is asked
/// for in an offer has this bit, nor has a word.
const TAKEN: u64 = 2;

pub(crate) struct Node<K, V> {
    /// As an offer, the lease that this is to have, REPLACING. Once that is taken, see [`TAKEN`].
    lease: AtomicU64,
    held: Kept<(K, V)>,
}

/// How a node with a policy lies in memory: its word leads to `node`.
#[repr(C)]
struct Governed<K, V> {
    policy: Policy,
    node: Node<K, V>,
}

impl<K, V> Governed<K, V> {
    /// Where `node` begins.
    const NODE: usize = size_of::<Policy>().next_multiple_of(align_of::<Node<K, V>>());

    fn of(word: u64) -> *mut Self {
        (address(word) - Self::NODE) as *mut Self
    }
}

/// Where a word's node is.
#[inline(always)]
fn address(word: u64) -> usize {
    (word & !WITH_POLICY) as usize
}

impl<K, V> Node<K, V> {
    /// A node on the heap, on its way in.
    pub(crate) fn fresh(key: K, value: V, policy: Option<Policy>, pin: &Pin) -> Fresh<'_, K, V> {
        let node = Node {
            lease: AtomicU64::new(0),
            held: Kept::new((key, value)),
        };
        let word = match policy {
            None => Box::into_raw(Box::new(node)) as usize as u64,
            Some(policy) => {
                let governed = Box::into_raw(Box::new(Governed { policy, node }));
                (governed as usize + Governed::<K, V>::NODE) as u64 | WITH_POLICY
            }
        };
        Fresh {
            word,
            pin,
            _held: PhantomData,
        }
    }

    /// # Safety
    ///
    /// `word` is a node's, found in a slot while pinned, and the caller still is; or the node is the caller's alone.
    #[inline(always)]
    pub(crate) unsafe fn at<'a>(word: u64) -> &'a Self {
        // SAFETY: from `Box::into_raw`, and by the caller's promise not freed.
        unsafe { &*(address(word) as *const Self) }
    }

    /// What governs its time to idle, if it has one.
    ///
    /// # Safety
    ///
    /// As [`at`](Self::at).
    #[inline(always)]
    pub(crate) unsafe fn policy<'a>(word: u64) -> Option<&'a Policy> {
        // SAFETY: a word with the bit was made from a `Governed`, and by the caller's promise it has not been freed.
        (word & WITH_POLICY != 0).then(|| unsafe { &(*Governed::<K, V>::of(word)).policy })
    }

    #[inline(always)]
    pub(crate) fn key(&self) -> &K {
        &self.held.get().0
    }

    #[inline(always)]
    pub(crate) fn value(&self) -> &V {
        &self.held.get().1
    }

    /// Says which lease it is to have. By its owner, while it is offered nowhere.
    pub(crate) fn ask_for(&self, lease: Lease) {
        self.lease.store(lease.0, Ordering::Release);
    }

    /// The lease that it is to have; none that is REPLACING, once it has been taken.
    pub(crate) fn lease(&self) -> Lease {
        Lease(self.lease.load(Ordering::Acquire))
    }

    /// It takes the place of `old`, which is about to leave. By whoever sees to it, all of whom say the same.
    pub(crate) fn take_place(&self, old: u64) {
        // A read-modify-write: the replacer, who reads this mark after it found its offer cleared, has it in order.
        self.lease.swap(old | TAKEN, Ordering::AcqRel);
    }

    /// The word of the node whose place it takes, if it has been taken. Of one that was offered.
    pub(crate) fn taken(&self) -> Option<u64> {
        let old = self.lease.load(Ordering::Acquire);
        (old & TAKEN != 0).then_some(old & !TAKEN)
    }

    /// Its key and value back.
    ///
    /// # Safety
    ///
    /// Nobody else has its address, or can find it.
    pub(crate) unsafe fn take(word: u64) -> (K, V) {
        // SAFETY: the caller is the only one.
        unsafe {
            let held = Self::move_out(word);
            Self::deallocate(word);
            held
        }
    }

    /// As [`take`](Self::take), where it has been offered and helpers may still be reading what lease it asked for.
    ///
    /// # Safety
    ///
    /// It has never been in a slot's word, and is offered no more.
    pub(crate) unsafe fn salvage(word: u64, pin: &Pin) -> (K, V) {
        // SAFETY: helpers read `lease` only, so key and value are the caller's; the rest is freed when they have gone.
        unsafe {
            let held = Self::move_out(word);
            pin.retire(move || Self::deallocate(word));
            held
        }
    }

    /// # Safety
    ///
    /// Nobody looks at them now or later, but for what is returned.
    unsafe fn move_out(word: u64) -> (K, V) {
        // SAFETY: the caller's.
        let held =
            unsafe { std::ptr::read(std::ptr::addr_of!((*(address(word) as *const Self)).held)) };
        held.into_inner()
    }

    /// Frees its memory: key and value have been moved out.
    ///
    /// # Safety
    ///
    /// From [`fresh`](Self::fresh), and nobody looks at it now or later.
    unsafe fn deallocate(word: u64) {
        // SAFETY: what `fresh` made a box of; `ManuallyDrop`: there is nothing left in it to be dropped.
        unsafe {
            if word & WITH_POLICY == 0 {
                drop(Box::from_raw(address(word) as *mut ManuallyDrop<Self>));
            } else {
                drop(Box::from_raw(
                    Governed::<K, V>::of(word).cast::<ManuallyDrop<Governed<K, V>>>(),
                ));
            }
        }
    }

    /// Drops it once nobody who is pinned now can be looking at it any more.
    ///
    /// # Safety
    ///
    /// Nobody can find it any more, and nobody else does this.
    pub(crate) unsafe fn retire(word: u64, pin: &Pin) {
        // SAFETY: it captures an address only. `K` and `V` are `Send + 'static` where a store is built (see `Store::build`).
        unsafe { pin.retire(move || Self::free(word)) };
    }

    /// # Safety
    ///
    /// As [`take`](Self::take).
    pub(crate) unsafe fn free(word: u64) {
        // SAFETY: the caller's.
        let held = unsafe { Self::take(word) };
        if !needs_drop::<(K, V)>() {
            return;
        }
        // It runs on a thread that has nothing to do with it.
        if caught(|| drop(held)) {
            DROP_PANICS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

/// A node on its way in. Dropped before it is in, by an error or a panic of a key's `Eq`, it goes with its key and value.
pub(crate) struct Fresh<'p, K, V> {
    word: u64,
    pin: &'p Pin,
    _held: PhantomData<(K, V)>,
}

impl<K, V> Fresh<'_, K, V> {
    #[inline(always)]
    pub(crate) fn word(&self) -> u64 {
        self.word
    }

    #[inline(always)]
    pub(crate) fn key(&self) -> &K {
        // SAFETY: this one's alone until it is in, and from then on the caller is pinned.
        unsafe { Node::<K, V>::at(self.word) }.key()
    }

    /// It is in, and the store's.
    pub(crate) fn settle_in(self) -> u64 {
        let word = self.word;
        std::mem::forget(self);
        word
    }

    /// Its key and value back.
    pub(crate) fn give_back(self) -> (K, V) {
        let (word, pin) = (self.word, self.pin);
        std::mem::forget(self);
        // SAFETY: it is not in, and offered no more.
        unsafe { Node::salvage(word, pin) }
    }
}

impl<K, V> Drop for Fresh<'_, K, V> {
    fn drop(&mut self) {
        // SAFETY: it is not in, and offered no more. Helpers may be looking at what it asked for.
        unsafe { Node::<K, V>::retire(self.word, self.pin) };
    }
}

/// In place of a value, where there is none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoValue;

/// Whether a slot can hold keys of this type themselves: integers of at most 64 bits. Who finds one need not look into a node to
/// know it.
#[inline(always)]
pub(crate) fn is_integer<K: 'static>() -> bool {
    let key = TypeId::of::<K>();
    key == TypeId::of::<u64>()
        || key == TypeId::of::<i64>()
        || key == TypeId::of::<usize>()
        || key == TypeId::of::<isize>()
        || key == TypeId::of::<u32>()
        || key == TypeId::of::<i32>()
        || key == TypeId::of::<u16>()
        || key == TypeId::of::<i16>()
        || key == TypeId::of::<u8>()
        || key == TypeId::of::<i8>()
}

/// Whether entries of this type need no node: the key is an integer that fits in a slot, and there is no value.
#[inline(always)]
pub(crate) fn is_plain<K: 'static, V: 'static>() -> bool {
    is_integer::<K>() && TypeId::of::<V>() == TypeId::of::<NoValue>()
}

/// The bits of an integer key, or of what it is looked up by: the integer that it hands to a hasher.
#[inline(always)]
pub(crate) fn bits_of<Q: Hash + ?Sized>(key: &Q) -> u64 {
    let mut bits = Bits(0);
    key.hash(&mut bits);
    bits.0
}

/// A hasher that keeps the integer it is given.
struct Bits(u64);

impl Hasher for Bits {
    fn finish(&self) -> u64 {
        self.0
    }

    /// What is no integer is nobody's integer key; whatever comes out, the key is not found.
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | u64::from(byte);
        }
    }

    #[inline(always)]
    fn write_u8(&mut self, bits: u8) {
        self.0 = bits.into();
    }

    #[inline(always)]
    fn write_u16(&mut self, bits: u16) {
        self.0 = bits.into();
    }

    #[inline(always)]
    fn write_u32(&mut self, bits: u32) {
        self.0 = bits.into();
    }

    #[inline(always)]
    fn write_u64(&mut self, bits: u64) {
        self.0 = bits;
    }

    #[inline(always)]
    fn write_usize(&mut self, bits: usize) {
        self.0 = bits as u64;
    }
}

/// The integer key with these bits.
#[inline(always)]
pub(crate) fn key_of<K: 'static>(bits: u64) -> K {
    assert!(is_integer::<K>());
    let bits = if cfg!(target_endian = "big") {
        bits << (u64::BITS as usize - 8 * size_of::<K>())
    } else {
        bits
    };
    // SAFETY: it is an integer of at most 8 bytes, all of whose patterns are valid, and these are its.
    unsafe { std::ptr::read_unaligned((&bits as *const u64).cast::<K>()) }
}

/// An entry that has ended: its key and value, for whoever ended it.
///
/// Readers that found it before may still be looking at them, so they are lent, not given: clone what is to be kept. They are
/// dropped some time after this is ([when](crate::ExpiringMap#when-values-are-dropped)).
///
/// ```
/// # let map = expiry::ExpiringMap::builder().build()?;
/// map.insert("key".to_string(), vec![1, 2, 3])?;
/// let old = map.insert("key".to_string(), vec![])?.unwrap();
/// assert_eq!((old.key().as_str(), old.value().len(), old[0]), ("key", 3, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Ended<K: 'static, V: 'static> {
    held: Held<K>,
    grace: Grace,
    _value: PhantomData<V>,
}

enum Held<K> {
    Plain(K),
    /// Out of its slot, and this one's to retire.
    Node(u64),
}

// SAFETY: it owns a key and a value, which others may be reading at the same time, and which may be dropped on any thread.
unsafe impl<K: Send + Sync, V: Send + Sync> Send for Ended<K, V> {}
// SAFETY: as above; by reference it only lends them.
unsafe impl<K: Send + Sync, V: Send + Sync> Sync for Ended<K, V> {}

impl<K: 'static, V: 'static> Ended<K, V> {
    /// # Safety
    ///
    /// `word` is the node of an entry that the caller has ended, out of its slot; or, of a plain one, whatever.
    pub(crate) unsafe fn new(word: u64, bits: u64, grace: Grace) -> Self {
        let held = if is_plain::<K, V>() {
            Held::Plain(key_of(bits))
        } else {
            Held::Node(word)
        };
        Ended {
            held,
            grace,
            _value: PhantomData,
        }
    }

    /// Its key.
    ///
    /// # Examples
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::builder().build()?;
    /// map.insert("Ada".to_string(), 1)?;
    /// let ended = map.remove("Ada").unwrap();
    /// assert_eq!(ended.key(), "Ada"); // the map's own, not the one that was asked for
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn key(&self) -> &K {
        match &self.held {
            Held::Plain(key) => key,
            // SAFETY: this one's.
            Held::Node(word) => unsafe { Node::<K, V>::at(*word) }.key(),
        }
    }

    /// Its value.
    ///
    /// # Panics
    ///
    /// Never: an entry without a node has no value to be asked for.
    ///
    /// # Examples
    ///
    /// ```
    /// # let map = expiry::ExpiringMap::builder().build()?;
    /// map.insert(1, "one".to_string())?;
    /// let replaced = map.insert(1, "eins".to_string())?.unwrap();
    /// let kept = replaced.value().clone(); // lent: others may be looking at it
    /// assert_eq!((kept.as_str(), map.get_cloned(&1).as_deref()), ("one", Some("eins")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn value(&self) -> &V {
        match &self.held {
            // SAFETY: plain entries are those whose value is `NoValue`, which has no size: any aligned address will do.
            Held::Plain(_) => unsafe { std::ptr::NonNull::<V>::dangling().as_ref() },
            // SAFETY: this one's.
            Held::Node(word) => unsafe { Node::<K, V>::at(*word) }.value(),
        }
    }
}

impl<K: 'static, V: 'static> Deref for Ended<K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        self.value()
    }
}

impl<K: 'static, V: 'static> Drop for Ended<K, V> {
    fn drop(&mut self) {
        if is(Bug::StaleGet) || hit(Bug::LeakNode) {
            return;
        }
        if let Held::Node(word) = self.held {
            // SAFETY: out of its slot, and this one's alone.
            unsafe { Node::<K, V>::retire(word, &self.grace.pin()) };
        }
    }
}

impl<K: fmt::Debug + 'static, V: fmt::Debug + 'static> fmt::Debug for Ended<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ended")
            .field("key", self.key())
            .field("value", self.value())
            .finish()
    }
}
