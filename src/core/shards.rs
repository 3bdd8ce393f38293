//! One value for each shard of an engine.

/// The values of an engine's shards, whose number is a power of two. An index counts modulo that
/// number, so that each one names a shard.
pub(crate) struct Shards<T> {
    values: Box<[T]>,
    /// The last shard's number.
    last: usize,
}

impl<T> Shards<T> {
    /// # Panics
    ///
    /// Their number is no power of two.
    pub(crate) fn new(values: Box<[T]>) -> Self {
        assert!(values.len().is_power_of_two());
        Shards { last: values.len() - 1, values }
    }

    /// The shard that a number stands for.
    #[inline(always)]
    pub(crate) fn shard(&self, number: usize) -> usize {
        number & self.last
    }
}

impl<T> std::ops::Deref for Shards<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        &self.values
    }
}

impl<T> std::ops::Index<usize> for Shards<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, shard: usize) -> &T {
        // SAFETY: the remainder by the length.
        unsafe { self.values.get_unchecked(self.shard(shard)) }
    }
}
