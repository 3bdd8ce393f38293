//! Emission: from a component's code to the lanes of the bolts that listen.

use crate::component::{Context, Hook};
use crate::lanes::{Listener, Sender};
use crate::metrics::Stats;
use crate::task::{caught, lock, Panicked};
use crate::tuple::Anchors;
use rand::rngs::SmallRng;
use std::borrow::Cow;
use std::sync::{Arc, Mutex};

/// The hooks that are notified of each event; usually none.
pub(crate) type Hooks = Arc<[Box<dyn Hook>]>;

/// What a task counts, notifies hooks and draws random numbers with.
pub(crate) struct Emitter {
    pub(crate) context: Context,
    pub(crate) stats: Arc<Stats>,
    pub(crate) hooks: Hooks,
    pub(crate) random: SmallRng,
}

impl Emitter {
    /// Offers a message to all listeners of a port, counts it, and returns the number of copies.
    /// The caller then sends it. Users' code copies the message and chooses its tasks. If that
    /// panics, the emitter counts and reports it, no task gets a copy, and the instance goes on.
    #[inline]
    pub(crate) fn offer<M: Clone + 'static>(
        &self,
        port: &mut Port<M>,
        message: impl FnOnce() -> M,
    ) -> Result<usize, Panicked> {
        let offered = caught(|| {
            let message = message();
            self.tell(|hook| hook.emit(&self.context, &message));
            port.offer(message)
        });
        match offered {
            Ok(copies) => {
                self.stats.emitted.add(1);
                self.stats.transferred.add(copies as u64);
                Ok(copies)
            }
            Err(panicked) => {
                port.withdraw();
                self.stats.panics.add(1);
                self.report(&panicked);
                Err(panicked)
            }
        }
    }

    pub(crate) fn report(&self, error: &dyn std::fmt::Display) {
        self.stats.errors.add(1);
        self.tell(|hook| hook.error(&self.context, &error.to_string()));
    }

    /// Notifies the hooks. The emitter catches and counts a panic of a hook.
    #[inline]
    pub(crate) fn tell(&self, f: impl Fn(&dyn Hook)) {
        if !self.hooks.is_empty() {
            self.tell_all(f);
        }
    }

    #[cold]
    fn tell_all(&self, f: impl Fn(&dyn Hook)) {
        for hook in &*self.hooks {
            if caught(|| f(&**hook)).is_err() {
                self.stats.panics.add(1);
            }
        }
    }
}

/// Makes a task's way to a bolt that listens.
pub(crate) type Listen<M> = Box<dyn Fn(&Sender) -> Box<dyn Listener<M>> + Send + Sync>;

/// The listeners of a component's messages, as they are declared.
pub(crate) struct Output<M>(Mutex<Vec<Listen<M>>>);

impl<M> Default for Output<M> {
    fn default() -> Self {
        Output(Mutex::default())
    }
}

impl<M: Clone> Output<M> {
    pub(crate) fn add(&self, listen: Listen<M>) {
        lock(&self.0).push(listen);
    }

    pub(crate) fn port(&self, sender: &Sender) -> Port<M> {
        let listeners = lock(&self.0).iter().map(|listen| listen(sender)).collect();
        let sent_to = sender.notes_sent.then(Vec::new);
        Port { listeners, offered: 0, sent: 0, sent_to }
    }
}

/// A task's way to all that listen to its messages: see [`Listener`].
pub(crate) struct Port<M> {
    listeners: Vec<Box<dyn Listener<M>>>,
    /// Number of messages that were offered, and of those that were sent.
    offered: u64,
    sent: u64,
    /// The tasks that get the last message, if the port notes them.
    sent_to: Option<Vec<(usize, usize)>>,
}

impl<M: Clone> Port<M> {
    pub(crate) fn is_closed(&self) -> bool {
        self.listeners.is_empty()
    }

    #[inline]
    fn offer(&mut self, message: M) -> usize {
        let (mut copies, number) = (0, self.offered);
        if let Some((last, others)) = self.listeners.split_last_mut() {
            for listener in others {
                copies += listener.offer(number, Cow::Borrowed(&message));
            }
            copies += last.offer(number, Cow::Owned(message));
        }
        if let Some(sent_to) = &mut self.sent_to {
            sent_to.clear();
            for (grouping, listener) in self.listeners.iter().enumerate() {
                listener.sent_to(number, &mut |task| sent_to.push((grouping, task)));
            }
        }
        self.offered += 1;
        copies
    }

    /// Takes back the message whose offer panicked.
    fn withdraw(&mut self) {
        self.listeners.iter_mut().for_each(|listener| listener.withdraw(self.offered));
        self.sent_to.iter_mut().for_each(Vec::clear);
    }

    /// The tasks that get the last message, each after the number of its listener.
    pub(crate) fn sent_to(&self) -> &[(usize, usize)] {
        self.sent_to.as_deref().unwrap_or_default()
    }

    /// Sends the first message that was offered and not sent, each copy with its own anchors.
    #[inline]
    pub(crate) fn send(&mut self, mut anchors: impl FnMut() -> Anchors) {
        for listener in &mut self.listeners {
            listener.send(self.sent, &mut anchors);
        }
        self.sent += 1;
    }

    pub(crate) fn flush(&mut self) {
        self.listeners.iter_mut().for_each(|listener| listener.flush());
    }

    /// Sends what has overflowed. Returns whether something went.
    pub(crate) fn retry(&mut self) -> bool {
        let before = self.overflow();
        if before > 0 {
            self.listeners.iter_mut().for_each(|listener| listener.retry());
        }
        self.overflow() < before
    }

    pub(crate) fn overflow(&self) -> usize {
        self.listeners.iter().map(|listener| listener.overflow()).sum()
    }

    pub(crate) fn look_for_room(&self) -> bool {
        self.listeners.iter().any(|listener| listener.look_for_room())
    }
}
