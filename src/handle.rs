//! What handles and builders of stores have, whatever the types of their entries: a derived `Clone`
//! or `Debug` would ask it of these types, too.

/// `Clone` and `Debug` of a store's handle, which has these parts. The driver is the part after
/// `by`; the engine is in there, or in its field.
macro_rules! handle {
    ($store:ident<$($of:ident),*> { $($part:ident),* } by $driver:ident $(. $field:ident)?) => {
        impl<$($of: 'static),*> Clone for $store<$($of),*> {
            /// Another handle to the same store: a reference count or two.
            fn clone(&self) -> Self {
                $store { $($part: self.$part.clone()),* }
            }
        }

        impl<$($of: 'static),*> std::fmt::Debug for $store<$($of),*> {
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

/// `Clone` and `Debug` of a builder, which has a field `setup` and one for its listener. The other
/// fields are `Copy`.
macro_rules! builder {
    ($builder:ident<$($of:ident),*> with $listener:ident $(, shows $field:ident)*) => {
        impl<$($of),*> Clone for $builder<$($of),*> {
            #[allow(clippy::needless_update)] // where there are no other fields
            fn clone(&self) -> Self {
                let (setup, $listener) = (self.setup.clone(), self.$listener.clone());
                $builder { setup, $listener, ..*self }
            }
        }

        impl<$($of),*> std::fmt::Debug for $builder<$($of),*> {
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
