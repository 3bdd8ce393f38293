//! What spouts and bolts have in common while they are declared.

use super::{Spec, TopologyBuilder};

/// A component that is being declared.
#[derive(Clone, Copy)]
pub(super) struct Stage<'t> {
    pub(super) builder: &'t TopologyBuilder,
    /// Its number.
    pub(super) at: usize,
}

impl Stage<'_> {
    pub(super) fn set(&self, set: impl FnOnce(&mut Spec)) {
        set(&mut self.builder.specs.borrow_mut()[self.at]);
    }
}

/// The methods that spouts and bolts share, and that their messages are a stream.
macro_rules! stage {
    ($stage:ident [$($other:ident)?] $out:ident: $($field:ident)*) => {
        impl<'t, $($other,)? $out: Clone + Send + 'static> $stage<'t, $($other,)? $out> {
            /// How many tasks do the component's work, each with its own instance. 1 by default.
            pub fn parallelism(self, tasks: usize) -> Self {
                self.stage.set(|spec| spec.tasks = tasks);
                self
            }

            /// On how many threads the component's tasks run. By default, one for each task.
            pub fn threads(self, threads: usize) -> Self {
                self.stage.set(|spec| spec.threads = Some(threads));
                self
            }

            /// How the component's threads wait, instead of the
            /// [topology's way](crate::TopologyBuilder::wait). A simulation has no threads.
            pub fn wait(self, strategy: crate::WaitStrategy) -> Self {
                self.stage.set(|spec| spec.wait = Some(strategy));
                self
            }

            /// Has `tick` called in each of the component's tasks, about so often. If a bolt acks
            /// in there, the [timeout](crate::TopologyBuilder::timeout) has to be longer, or all
            /// tuples that it holds time out.
            pub fn tick_every(self, time: std::time::Duration) -> Self {
                self.stage.set(|spec| spec.tick = Some(time));
                self
            }

            /// Lets the component ask its collector which tasks a message was
            /// [sent to](crate::SpoutCollector::sent_to). The function of a
            /// [`basic`](crate::basic) bolt gets no collector. Costs a note for each copy of a
            /// message.
            pub fn note_sent(self) -> Self {
                self.stage.set(|spec| spec.notes_sent = true);
                self
            }

            /// The component's messages.
            #[must_use]
            pub fn stream(&self) -> super::Stream<'t, $out> {
                super::Stream::new(self.stage, &self.output)
            }
        }

        impl<'t, $($other,)? $out: Clone + Send + 'static> super::Source<'t>
            for &$stage<'t, $($other,)? $out>
        {
            type Message = $out;

            fn into_stream(self) -> super::Stream<'t, $out> {
                self.stream()
            }
        }

        impl<$($other,)? $out> Clone for $stage<'_, $($other,)? $out> {
            fn clone(&self) -> Self {
                let (stage, $($field),*) = (self.stage, $(self.$field.clone()),*);
                Self { stage, $($field),* }
            }
        }

        crate::task::debug!([$($other,)? $out] $stage<'_, $($other,)? $out>, |it| "{}({:?})",
            stringify!($stage), it.stage.builder.name_of(it.stage.at));
    };
}
pub(super) use stage;
