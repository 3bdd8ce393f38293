//! What handles and builders of stores have, whatever the types of their entries: a derived `Clone`
//! or `Debug` would ask it of these types, too.

/// `Clone`, `Debug` and `room` of a store's handle, which has these parts. A hasher's type comes
/// after a semicolon. The engine is in the part after `by`, or in that part's field. The attributes
/// are further documentation of `room`.
macro_rules! handle {
    (
        $store:ident<$($of:ident),* $(; $hasher:ident)?> { $($part:ident),* }
        by $driver:ident $(. $field:ident)?,
        $(#[$further:meta])* room
    ) => {
        #[cfg(feature = "async")]
        impl<$($of: 'static,)* $($hasher)?> $store<$($of,)* $($hasher)?> {
            /// Waits for room, where the
            #[doc = concat!("[capacity](", stringify!($store), "Builder::capacity) is bounded: see")]
            /// [`CapacityReady`](crate::CapacityReady), which has an example. What is due makes
            /// room when the reaper, or a thread that polls, ends it.
            $(#[$further])*
            pub fn room(&self) -> crate::CapacityReady<'_> {
                crate::CapacityReady::new(self.$driver$(.$field)?.engine.admission.door())
            }
        }

        impl<$($of: 'static,)* $($hasher: Clone)?> Clone for $store<$($of,)* $($hasher)?> {
            /// Another handle to the same store, for up to three reference counts.
            fn clone(&self) -> Self {
                $store { $($part: self.$part.clone()),* }
            }
        }

        impl<$($of: 'static,)* $($hasher)?> std::fmt::Debug for $store<$($of,)* $($hasher)?> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let engine = &self.$driver$(.$field)?.engine;
                f.debug_struct(stringify!($store))
                    .field("len", &engine.len(&*self.$driver))
                    .field("interval", &engine.deadlines.ticks().interval())
                    .field("reaper", &self.owner.reaper().is_some())
                    .finish_non_exhaustive()
            }
        }
    };
}

/// `Clone` and `Debug` of a builder with a `setup`, fields `with` a clone of their own, and others
/// that are `Copy`. A hasher's type comes after a semicolon.
macro_rules! builder {
    (
        $builder:ident<$($of:ident),* $(; $hasher:ident)?>
        $(with $($cloned:ident)+)? $(, shows $field:ident)*
    ) => {
        impl<$($of,)* $($hasher: Clone)?> Clone for $builder<$($of,)* $($hasher)?> {
            #[allow(clippy::needless_update)] // where there are no other fields
            fn clone(&self) -> Self {
                $($(let $cloned = self.$cloned.clone();)+)?
                $builder { setup: self.setup.clone(), $($($cloned,)+)? ..*self }
            }
        }

        impl<$($of,)* $($hasher)?> std::fmt::Debug for $builder<$($of,)* $($hasher)?> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($builder))
                    .field("interval", &self.setup.interval)
                    .field("capacity", &self.setup.capacity)
                    $(.field(stringify!($field), &self.$field))*
                    .finish_non_exhaustive()
            }
        }
    };
}

pub(crate) use {builder, handle};
