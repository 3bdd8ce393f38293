//! One value for each shard of an engine.

/// The values of an engine's shards. Their number is a power of two, which indices count modulo.
pub(crate) struct Shards<T> {
    values: Box<[T]>,
    last: usize,
}

impl<T> Shards<T> {
    /// # Panics
    ///
    /// The number of values is no power of two.
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

impl<T: Default> Shards<T> {
    /// So many default values, a power of two.
    pub(crate) fn defaults(shards: usize) -> Self {
        Shards::new((0..shards).map(|_| T::default()).collect())
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
        // SAFETY: `shard` is less than the length.
        unsafe { self.values.get_unchecked(self.shard(shard)) }
    }
}
