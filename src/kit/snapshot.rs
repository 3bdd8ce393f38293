//! Snapshots of counters, each declared in one table.

/// Makes a snapshot's public structure, its reading, and its publishing from one table.
///
/// A row has the field's documentation, name and type. The constant after `as` is the series of
/// [`publish`](crate::publish) that shows the field. The expression reads it.
///
/// A table with `publish` after it, which may be documented further, is a store's. A store that
/// counts shard by shard names the shard's structure after `by`. A shard's table has no `publish`:
/// its fields can be summed, and a field that each thread counts names its counter after `sum`
/// instead of an expression.
macro_rules! snapshot {
    (
        $(#[$meta:meta])*
        pub struct $name:ident of [$($generics:tt)*] $store:ident: $of:ty, $shard:ident {$(
            $(#[$doc:meta])*
            $field:ident: $type:ty as $series:ident $(sum $counter:ident)? $(= $value:expr)?;
        )*}
    ) => {
        $crate::kit::snapshot::snapshot! { @
            $(#[$meta])*
            #[derive(Default)]
            $name {} {$($(#[$doc])* $field: $type as $series;)*}
        }

        impl $name {
            fn of $($generics)* ($store: &$of, $shard: usize) -> Self {
                let mut sum = $name { $($($field: $value,)?)* ..$name::default() };
                for share in $store.engine.stripes() {
                    $($(sum.$field += share.counts[$shard].$counter.get();)?)*
                }
                sum
            }

            fn plus(mut self, other: &Self) -> Self {
                $(self.$field += &other.$field;)*
                self
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub struct $name:ident $(by $part:ident)? of [$($generics:tt)*] $store:ident: $of:ty {
            $($(#[$doc:meta])* $field:ident: $type:ty as $series:ident = $value:expr;)*
        }
        $(#[$publish:meta])*
        publish
    ) => {
        $crate::kit::snapshot::snapshot! { @
            $(#[$meta])*
            $name {$(
                /// Shard by shard.
                pub shards: Vec<$part>,
                /// All shards together.
                pub total: $part,
            )?} {$($(#[$doc])* $field: $type as $series;)*}
        }

        impl $name {
            fn of $($generics)* ($store: &$of) -> Self {
                $(
                    let shards = 0..$store.engine.shards();
                    let shards: Vec<_> = shards.map(|shard| $part::of($store, shard)).collect();
                )?
                $name {
                    $(total: shards.iter().fold($part::default(), $part::plus), shards,)?
                    $($field: $value),*
                }
            }
        }

        #[cfg(feature = "metrics")]
        impl $name {
            /// Sets each series of [`describe`](crate::publish::describe)'s table that the store
            /// has to this snapshot, in the recorder of the facade `metrics`.
            $(#[$publish])*
            ///
            /// O(series), with an allocation and a look-up in the recorder for each: for a thread
            /// that does so every few seconds.
            pub fn publish(&self, labels: impl Into<$crate::publish::Labels>) {
                let labels = labels.into();
                $(labels.each(&self.shards, &self.total, $part::publish_to);)?
                labels.out(|out| self.publish_to(out));
            }
        }
    };
    (
        @ $(#[$meta:meta])*
        $name:ident {$($shards:tt)*} {$(
            $(#[$doc:meta])* $field:ident: $type:ty as $series:ident;
        )*}
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[non_exhaustive]
        pub struct $name {
            $($shards)*
            $($(#[$doc])* pub $field: $type,)*
        }

        #[cfg(feature = "metrics")]
        impl $name {
            fn publish_to(&self, out: &$crate::publish::Out<'_>) {
                $($crate::publish::Value::publish(&self.$field, &$crate::publish::$series, out);)*
            }
        }
    };
}

pub(crate) use snapshot;
