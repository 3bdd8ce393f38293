//! One value for each shard of an engine.

/// Values of shards, of which there is a power of two: a number has its value modulo that.
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
