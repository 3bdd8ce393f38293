//! Where what has ended goes: to a poll, a listener, a channel, or no thread.

use crate::error::BuildError;
use crate::kit::channel::{channel, Receiver, Sender, WhenFull};
use crate::kit::lifecycle::Leftovers;
use crate::sync::stack::Stack;
use std::sync::Arc;

/// Called for each entry that has expired. It may use the store, be slow, or panic.
pub(crate) type ExpiryListener<A> = dyn Fn(&A) + Send + Sync;

/// A poll and a channel give an `E`; the listener is an `F`.
pub(crate) enum Target<E, F: ?Sized> {
    /// A reaper ends what is due, and there is no listener.
    Unheard,
    /// What another call than a poll has ended waits here for the next poll.
    Poll(Stack<E>),
    Listener(Arc<F>),
    Channel(Sender<E>),
}

impl<E, F: ?Sized> Target<E, F> {
    /// The listener, if there is one. Without one, polls get what expires, but in a store with a
    /// reaper, which reports it to no thread.
    pub(crate) fn new(listener: Option<Arc<F>>, reaper: bool) -> Self {
        match listener {
            Some(listener) => Target::Listener(listener),
            None if reaper => Target::Unheard,
            None => Target::Poll(Stack::new()),
        }
    }

    /// A channel of this length. Refused where there is a listener too.
    pub(crate) fn channel(
        listener: Option<&Arc<F>>,
        length: usize,
        when_full: WhenFull,
    ) -> Result<(Self, Receiver<E>), BuildError> {
        if listener.is_some() {
            return Err(BuildError::TwoReceivers);
        }
        let (sender, receiver) = channel(length, when_full)?;
        Ok((Target::Channel(sender), receiver))
    }

    /// Takes what waits for a poll. `None` where polls get nothing.
    pub(crate) fn lapsed(&self) -> Option<impl Iterator<Item = E>> {
        match self {
            Target::Poll(lapsed) => Some(lapsed.take()),
            _ => None,
        }
    }

    /// What shutdowns have ended, and what waits for a poll.
    pub(crate) fn left(&self, kept: &Leftovers<E>) -> Vec<E> {
        let mut left = kept.take();
        left.extend(self.lapsed().into_iter().flatten());
        left
    }

    /// Whether something waits for a poll.
    pub(crate) fn has_lapsed(&self) -> bool {
        matches!(self, Target::Poll(lapsed) if !lapsed.is_empty())
    }

    /// A shutdown has begun: no thread waits for room in the channel any more.
    pub(crate) fn close(&self) {
        if let Target::Channel(sender) = self {
            sender.close();
        }
    }

    /// The store is closed, and nothing comes any more: ends the channel.
    pub(crate) fn finish(&self) {
        if let Target::Channel(sender) = self {
            sender.finish();
        }
    }

    /// How many had no room in the channel: spilled, and lost.
    pub(crate) fn astray(&self) -> (u64, u64) {
        match self {
            Target::Channel(sender) => sender.astray(),
            _ => (0, 0),
        }
    }
}

/// The build methods of a store whose entries end into a [`Target`]. The builder has a field
/// `listener`, and a method `built` that takes the target, and whether to start a reaper. The
/// second arm says what goes into a channel, and whether polls return it where there is no
/// receiver. It documents the listener in `build` and `build_manual`, and the channel further.
macro_rules! builds {
    ($store:ty, poll $poll:literal, item $item:ty, $listener:ident($($argument:ty),*)) => {
        /// A listener that is called with each entry that expires, and only with those: not with
        /// what is removed, or ends in a shutdown. The reaper's thread calls it, or without a
        /// reaper a thread that polls; and a thread whose insertion finds the store full. It may
        /// use the store, be slow, or panic; a panic is caught and counted.
        ///
        /// A closure that calls a method of its argument must name the type, as `|value: Reply|`,
        /// unless [`builder`](crate::PendingTable::builder) has: otherwise E0282.
        pub fn $listener(
            mut self,
            listener: impl Fn($($argument),*) + Send + Sync + 'static,
        ) -> Self {
            self.listener = Some(::std::sync::Arc::new(listener));
            self
        }

        $crate::kit::target::builds! {
            $store, poll $poll, item $item, "what expires", polls return true,
            /// What expires is reported to the [listener](Self::expiry_listener); without one it is
            /// reported to no thread, and a poll returns nothing.
            build,
            /// What expires is returned by polls, or goes to the
            /// [listener](Self::expiry_listener), which they call.
            build_manual
        }
    };
    (
        $store:ty, poll $poll:literal, item $item:ty, $sent:literal, polls return $returned:literal,
        $(#[$build:meta])* build, $(#[$manual:meta])* build_manual
        $(, $(#[$channel:meta])* build_with_channel)?
    ) => {
        /// Builds the store and starts its reaper thread, which ends what is due.
        $(#[$build])*
        ///
        /// # Errors
        ///
        /// [`BuildError`] says which setting is out of range, or what the system refused.
        pub fn build(mut self) -> Result<$store, BuildError> {
            let target = Target::new(self.listener.take(), true);
            self.built(target, true)
        }

        /// Builds the store without a thread. Any number of threads may
        #[doc = concat!("[poll](", $poll, ")")]
        /// it.
        $(#[$manual])*
        ///
        /// # Errors
        ///
        /// As [`build`](Self::build), but for the thread.
        pub fn build_manual(mut self) -> Result<$store, BuildError> {
            let target = Target::new(self.listener.take(), !$returned);
            self.built(target, false)
        }

        /// Builds the store and starts its reaper thread. A channel of `length`
        #[doc = concat!("gets ", $sent, ".")]
        /// `when_full` says what happens to what finds no room there.
        $($(#[$channel])*)?
        ///
        /// # Errors
        ///
        /// As [`build`](Self::build), and [`BuildError::ZeroChannel`],
        /// [`BuildError::ChannelTooLong`]; [`BuildError::TwoReceivers`] where there is a listener.
        #[allow(clippy::type_complexity)] // a store and its receiver
        pub fn build_with_channel(
            self,
            length: usize,
            when_full: WhenFull,
        ) -> Result<($store, Receiver<$item>), BuildError> {
            let (target, receiver) = Target::channel(self.listener.as_ref(), length, when_full)?;
            Ok((self.built(target, true)?, receiver))
        }

        /// Builds the store with the channel of [`build_with_channel`](Self::build_with_channel),
        /// and without a thread: what expires goes into the channel in
        #[doc = concat!("[`poll`](", $poll, ").")]
        /// With a [`ManualClock`](crate::ManualClock) it serves tests of code that reads the
        /// channel.
        ///
        /// # Errors
        ///
        /// As [`build_with_channel`](Self::build_with_channel), but for the thread.
        #[allow(clippy::type_complexity)] // as above
        pub fn build_manual_with_channel(
            self,
            length: usize,
            when_full: WhenFull,
        ) -> Result<($store, Receiver<$item>), BuildError> {
            let (target, receiver) = Target::channel(self.listener.as_ref(), length, when_full)?;
            Ok((self.built(target, false)?, receiver))
        }
    };
}

/// The drains of a store. What its handles share is in the field after `by`, with the engine in
/// there, or in its field.
macro_rules! drains {
    ($things:literal, by $shared:ident $(. $store:ident)?) => {
        /// Refuses new
        #[doc = concat!($things, ", and waits until none is left, for at most `limit` of real time:")]
        /// they expire, or are removed. Returns whether none is left. Blocks; in a listener or a
        /// handler it does not wait. Polls meanwhile where there is no reaper. A
        /// [`shutdown`](Self::shutdown) ends what is left.
        pub fn drain(&self, limit: ::std::time::Duration) -> bool {
            let (shared, reaper) = (&*self.$shared, self.owner.reaper());
            $crate::kit::lifecycle::drain(&shared$(.$store)?.engine, reaper, shared, limit)
        }

        /// Drains without blocking the thread; otherwise as [`drain`](Self::drain). New
        #[doc = concat!($things, " are refused when this returns. The reaper wakes the future every")]
        /// millisecond, which looks; it checks the limit, too. Without a reaper each poll wakes the
        /// future, which polls. The store goes on refusing if the future is dropped.
        #[cfg(feature = "async")]
        pub fn drain_async(
            &self,
            limit: ::std::time::Duration,
        ) -> impl ::std::future::Future<Output = bool> + Send + '_ {
            let (shared, reaper) = (&*self.$shared, self.owner.reaper());
            $crate::kit::lifecycle::drain_soon(&shared$(.$store)?.engine, reaper, shared, limit)
        }
    };
}

/// The drains and shutdowns of a store whose entries expire to a [`Target`]. What a shutdown
/// returns may be sorted. The attributes are further documentation of `shutdown`.
macro_rules! shutdowns {
    (
        $things:literal, return $item:ty $(, sorted by $key:path)?,
        by $shared:ident $(. $store:ident)?
        $(, $(#[$further:meta])*)?
    ) => {
        $crate::kit::target::drains! { $things, by $shared $(. $store)? }

        /// What shutdowns have ended, and what has expired and was not polled.
        fn left(&self) -> Vec<$item> {
            let left = self.$shared.target.left(&self.$shared.kept);
            $(
                let mut left = left;
                left.sort_unstable_by_key($key);
            )?
            left
        }

        /// Ends all
        #[doc = concat!($things, ", stops the reaper, and waits for it unless it is")]
        /// [shared](crate::Reaper). Returns the
        #[doc = $things]
        /// that there were, each once: those that were inserted, and were neither removed nor
        /// delivered as expired.
        $($(#[$further])*)?
        /// From then on new ones are refused with
        /// [`StoreError::Closed`](crate::StoreError::Closed). A channel under
        /// [`WhenFull::Wait`](crate::WhenFull::Wait) is treated as under
        /// [`WhenFull::Spill`](crate::WhenFull::Spill) from here on.
        ///
        /// In a listener, a handler or a waker that any store calls, this waits for no thread. New
        #[doc = concat!($things, " are refused when it returns. The reaper, or the threads that drive the")]
        /// store at that moment, end those that there are soon after, and the next shutdown returns
        /// them.
        #[must_use = "what is not looked at is lost"]
        pub fn shutdown(&self) -> Vec<$item> {
            self.$shared.kept.want();
            self.owner.shut();
            self.left()
        }

        /// Shuts down without blocking the thread; otherwise as [`shutdown`](Self::shutdown). New
        #[doc = concat!($things, " are refused when this returns, the reaper does the rest, and the future is")]
        /// ready when the reaper has ended. A store without a reaper has been shut down when this
        /// returns, and the future is ready.
        ///
        /// The shutdown goes on if the future is dropped; then the next call of this, or of
        #[doc = concat!("[`shutdown`](Self::shutdown), returns the ", $things, ".")]
        /// Of two calls at once each may return some.
        #[cfg(feature = "async")]
        pub fn shutdown_async(
            &self,
        ) -> impl ::std::future::Future<Output = Vec<$item>> + Send + '_ {
            let shared = &*self.$shared;
            shared.target.close();
            shared.kept.want();
            let reaper = self.owner.reaper();
            let ended = $crate::kit::lifecycle::shut_soon(&shared$(.$store)?.engine, reaper, shared);
            async move {
                ended.await;
                self.left()
            }
        }
    };
}

pub(crate) use {builds, drains, shutdowns};
