//! The settings that spouts and bolts share.

/// The methods that the settings of spouts and of bolts share.
macro_rules! common_settings {
    () => {
        /// How many tasks do the component's work, each with an instance of its own. The default is
        /// 1.
        pub fn parallelism(&mut self, tasks: usize) -> &mut Self {
            self.spec.tasks = tasks;
            self
        }

        /// On how many threads the component's tasks run. The default is a thread for each task.
        pub fn threads(&mut self, threads: usize) -> &mut Self {
            self.spec.threads = Some(threads);
            self
        }

        /// Declares another stream. Fields that are declared after this call are fields of that
        /// stream.
        pub fn stream(&mut self, name: &str) -> &mut Self {
            self.spec.streams.push(StreamSpec { name: name.to_string(), fields: Vec::new() });
            self
        }

        /// Declares a field of the stream declared last (the default one, to begin with), by which
        /// listeners may group. The field is borrowed from the message, so the emitting component
        /// has to put a computed value there. Of an enum, a variant without the field may give a
        /// constant: `|record| match record { Record::Word(word) => word.as_str(), _ => "" }`.
        pub fn field<T, F>(&mut self, name: &str, field: F) -> &mut Self
        where
            T: Hash + ?Sized,
            F: Fn(&M) -> &T + Send + Sync + 'static,
        {
            self.declare(
                name,
                Arc::new(move |message, mut hasher| field(message).hash(&mut hasher)),
            )
        }

        /// As [`field`](Self::field), for a value that is computed from the message: `|order|
        /// order.customer / 100`.
        pub fn computed_field<T, F>(&mut self, name: &str, field: F) -> &mut Self
        where
            T: Hash,
            F: Fn(&M) -> T + Send + Sync + 'static,
        {
            self.declare(
                name,
                Arc::new(move |message, mut hasher| field(message).hash(&mut hasher)),
            )
        }

        fn declare(&mut self, name: &str, hash: FieldHash<M>) -> &mut Self {
            if let Some(stream) = self.spec.streams.last_mut() {
                stream.fields.push((name.to_string(), hash));
            }
            self
        }
    };
}
pub(super) use common_settings;
