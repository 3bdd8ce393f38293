//! A component's own code: making an instance, calling it, and replacing one that has panicked.

use crate::builder::TaskParts;
use crate::component::Context;
use crate::task::{caught, discard, Panicked};
use std::sync::Arc;

/// Calls users' code, and notes since when it runs. Counts a panic, and returns its message.
pub(crate) fn guarded<W: AsRef<TaskParts>, R>(
    at: &mut W,
    f: impl FnOnce(&mut W) -> R,
) -> Result<R, Panicked> {
    let task = at.as_ref();
    task.emitter.stats.busy_since.set(task.now.max(1));
    let done = caught(|| f(at));
    let stats = &at.as_ref().emitter.stats;
    stats.busy_since.set(0);
    if done.is_err() {
        stats.panics.add(1);
    }
    done
}

/// Makes a component's instances, or says why there is none.
pub(crate) type Factory<C> = Arc<dyn Fn(&Context) -> Result<Box<C>, String> + Send + Sync>;

/// A task's instance of a spout or a bolt, if there is one. None begins before the topology has
/// been active. An instance that panics is dropped, and another one is made at once. If that fails,
/// the task tries again after a millisecond, then after twice as long each time, up to a second.
pub(crate) struct Instance<C: ?Sized> {
    factory: Factory<C>,
    /// The first instance, if it was made before its task runs. It has not begun.
    first: Option<Box<C>>,
    alive: Option<Box<C>>,
    pause: u64,
    due: u64,
}

impl<C: ?Sized> Instance<C> {
    pub(crate) fn new(factory: Factory<C>) -> Self {
        Instance { factory, first: None, alive: None, pause: 0, due: 0 }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive.is_some()
    }

    /// The clock reading from which on an instance may be made. `None` if there is one, or if the
    /// topology has not been active yet.
    pub(crate) fn due<W: AsRef<TaskParts>>(&self, at: &W) -> Option<u64> {
        (!self.is_alive() && at.as_ref().shared.gate.has_opened()).then_some(self.due)
    }

    /// Makes the first instance before the task runs. Returns why it cannot be made.
    pub(crate) fn make_first<W: AsRef<TaskParts>>(&mut self, at: &mut W) -> Result<(), String> {
        let made = guarded(at, |at| (self.factory)(&at.as_ref().emitter.context));
        self.first = Some(made.map_err(|panicked| panicked.to_string())??);
        Ok(())
    }

    /// Whether there is an instance. If not, makes one when it is [due](Self::due), and begins it,
    /// unless that fails or panics.
    pub(crate) fn is_made<W: AsRef<TaskParts>>(
        &mut self,
        at: &mut W,
        begin: impl FnOnce(&mut C, &Context),
    ) -> bool {
        let now = at.as_ref().now;
        if !self.due(at).is_some_and(|due| due <= now) {
            return self.is_alive();
        }
        let Instance { factory, first, alive, .. } = self;
        let made = guarded(at, |at| {
            let context = &at.as_ref().emitter.context;
            let made = first.take().map_or_else(|| factory(context), Ok)?;
            // Kept before it begins: one that panics there is not dropped while that panic goes on.
            begin(alive.insert(made), context);
            Ok::<(), String>(())
        });
        let is_made = matches!(made, Ok(Ok(())));
        self.pause = if is_made { 0 } else { (self.pause * 2).clamp(1_000_000, 1_000_000_000) };
        self.due = now.saturating_add(self.pause);
        if let Ok(Err(why)) = self.outlives(at, made) {
            at.as_ref().emitter.report(&why);
        }
        is_made
    }

    pub(crate) fn call<W: AsRef<TaskParts>, R>(
        &mut self,
        at: &mut W,
        f: impl FnOnce(&mut C, &mut W) -> R,
    ) -> Option<Result<R, Panicked>> {
        let Some(alive) = self.alive.as_mut() else {
            // `f` may have captured what is the user's.
            discard(f);
            return None;
        };
        let done = guarded(at, |at| f(alive, at));
        Some(self.outlives(at, done))
    }

    fn outlives<W: AsRef<TaskParts>, R>(
        &mut self,
        at: &W,
        done: Result<R, Panicked>,
    ) -> Result<R, Panicked> {
        if let Err(panicked) = &done {
            self.end();
            at.as_ref().emitter.report(panicked);
        }
        done
    }

    /// Drops it. A panic of its drop goes no further: the task goes on.
    pub(crate) fn end(&mut self) {
        discard(self.alive.take());
    }
}
