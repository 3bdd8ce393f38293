//! A tuple in the pipeline: the typed handle, or, where a fault is to ack twice, the bare ids.

use expiry::{edge, Ack, AckError, AckTracker, Root, Tuple};

/// What a stage holds of a tree.
#[derive(Debug)]
pub enum Handle<'t> {
    /// The handle that makes mistakes impossible.
    Typed(Tuple<&'t AckTracker>),
    /// The ids, with which everything is possible.
    Raw {
        /// The tracker.
        tracker: &'t AckTracker,
        /// The tree.
        root: Root,
        /// This tuple's edge, XORed with its children's.
        share: u64,
    },
}

impl<'t> Handle<'t> {
    /// Begins a tree; also returns its id.
    pub fn root(tracker: &'t AckTracker, owner: u64, raw: bool) -> Result<(Self, Root), AckError> {
        if raw {
            let share = edge();
            let root = tracker.issue(share, owner)?;
            return Ok((
                Handle::Raw {
                    tracker,
                    root,
                    share,
                },
                root,
            ));
        }
        let tuple = Tuple::root(tracker, owner)?;
        // A tuple from `root` has exactly one.
        let root = tuple.roots().next().expect("a root");
        Ok((Handle::Typed(tuple), root))
    }

    /// Derives a child.
    #[inline]
    pub fn emit(&mut self) -> Self {
        match self {
            Handle::Typed(tuple) => Handle::Typed(tuple.emit()),
            Handle::Raw {
                tracker,
                root,
                share,
            } => {
                let edge = edge();
                *share ^= edge;
                Handle::Raw {
                    tracker,
                    root: *root,
                    share: edge,
                }
            }
        }
    }

    /// It has been processed.
    #[inline]
    pub fn ack(self) -> Result<Ack, AckError> {
        match self {
            Handle::Typed(tuple) => tuple.ack(),
            Handle::Raw {
                tracker,
                root,
                share,
            } => tracker.ack(root, share),
        }
    }

    /// Acks with the same id twice. A typed handle cannot, and acks once.
    pub fn ack_twice(self) -> [Option<Result<Ack, AckError>>; 2] {
        match self {
            Handle::Raw {
                tracker,
                root,
                share,
            } => [
                Some(tracker.ack(root, share)),
                Some(tracker.ack(root, share)),
            ],
            typed @ Handle::Typed(_) => [Some(typed.ack()), None],
        }
    }

    /// It could not be processed.
    pub fn fail(self) -> Result<(), AckError> {
        match self {
            Handle::Typed(tuple) => tuple.fail(),
            Handle::Raw { tracker, root, .. } => tracker.fail(root).map(|_| ()),
        }
    }
}
