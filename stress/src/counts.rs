//! Counts that threads keep on their own and that are added up at the end.

/// Defines a struct of counts that can be added up, each under its field's name.
macro_rules! counts {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: u64,)*
        }

        #[allow(dead_code)] // not all are reported by name
        impl $name {
            /// Adds another one's.
            pub fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }

            /// Each count with its name.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field),)*]
            }
        }
    };
}

pub(crate) use counts;
