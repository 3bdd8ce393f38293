//! The settings that spouts and bolts share.

/// The methods that the settings of spouts and of bolts share.
macro_rules! common_settings {
    () => {
        /// How many tasks do the component's work, each with an instance of its own. The default is
        /// 1.
        ///
        /// # Examples
        ///
        /// ```
        #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
        /// use expiry_topology::{basic, TopologyBuilder};
        ///
        /// let mut topology = TopologyBuilder::new();
        /// topology.spout("numbers", |_| Numbers(0..3)).parallelism(2);
        /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).parallelism(4).shuffle("numbers");
        /// let mut topology = topology.start_manual()?;
        /// assert!(topology.settle(1_000));
        /// let [numbers, sink] = &topology.metrics()[..] else { unreachable!("there are two") };
        /// assert_eq!((numbers.tasks, numbers.emitted, sink.tasks, sink.executed), (2, 6, 4, 6));
        /// # Ok::<(), expiry_topology::BuildError>(())
        /// ```
        pub fn parallelism(&mut self, tasks: usize) -> &mut Self {
            self.spec.tasks = tasks;
            self
        }

        /// On how many threads the component's tasks run. The default is a thread for each task.
        ///
        /// # Examples
        ///
        /// ```
        #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
        /// # use std::time::Duration;
        /// use expiry_topology::{basic, TopologyBuilder};
        ///
        /// let mut topology = TopologyBuilder::new();
        /// topology.spout("numbers", |_| Numbers(0..3)).parallelism(4).threads(1);
        /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).parallelism(8).threads(2).shuffle("numbers");
        /// let topology = topology.start()?;
        /// topology.wait(Duration::from_secs(60))?;
        /// assert_eq!((topology.metrics()[0].acked, topology.metrics()[1].tasks), (12, 8));
        /// assert!(format!("{topology:?}").contains("threads: 3"));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub fn threads(&mut self, threads: usize) -> &mut Self {
            self.spec.threads = Some(threads);
            self
        }

        /// Declares another stream. Fields that are declared after this call are fields of that
        /// stream.
        ///
        /// # Examples
        ///
        /// ```
        #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
        /// use expiry_topology::{basic, TopologyBuilder};
        ///
        /// let mut topology = TopologyBuilder::new();
        /// topology.spout("numbers", |_| Numbers(0..10));
        /// topology
        ///     .bolt("sort", |_| basic(|n: &u64, out| out.emit_on(if n % 3 == 0 { "threes" } else { "others" }, *n)))
        ///     .shuffle("numbers")
        ///     .stream("threes")
        ///     .stream("others");
        /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle(("sort", "threes"));
        /// let mut topology = topology.start_manual()?;
        /// assert!(topology.settle(1_000));
        /// assert_eq!(topology.metrics()[2].executed, 4); // 0, 3, 6, 9
        /// # Ok::<(), expiry_topology::BuildError>(())
        /// ```
        pub fn stream(&mut self, name: &str) -> &mut Self {
            self.spec.streams.push(StreamSpec {
                name: name.to_string(),
                fields: Vec::new(),
            });
            self
        }

        /// Declares a field of the stream declared last (the default one, to begin with), by which
        /// listeners may group. The field is borrowed from the message, so the emitting component
        /// has to put a computed value there. Of an enum, a variant without the field may give a
        /// constant: `|record| match record { Record::Word(word) => word.as_str(), _ => "" }`.
        ///
        /// # Examples
        ///
        /// ```
        #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
        /// use expiry_topology::{basic, TopologyBuilder};
        /// use std::collections::HashSet;
        ///
        /// let mut topology = TopologyBuilder::new();
        /// topology.spout("numbers", |_| Numbers(0..100)).parallelism(2).field("number", |n: &u64| n);
        /// let distinct = |seen: &mut HashSet<u64>, n: u64| seen.insert(n).then_some(n);
        /// topology
        ///     .bolt("distinct", move |_| {
        ///         let mut seen = HashSet::new();
        ///         basic(move |n: &u64, out| distinct(&mut seen, *n).map_or((), |n| out.emit(n)))
        ///     })
        ///     .parallelism(4)
        ///     .fields("numbers", ["number"]);
        /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).global("distinct");
        /// let mut topology = topology.start_manual()?;
        /// assert!(topology.settle(1_000));
        /// assert_eq!(topology.metrics()[2].executed, 100); // of 200: both of a number go to the same task
        /// # Ok::<(), expiry_topology::BuildError>(())
        /// ```
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
        ///
        /// # Examples
        ///
        /// ```
        #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
        /// use expiry_topology::{basic, TopologyBuilder};
        ///
        /// let mut topology = TopologyBuilder::new();
        /// topology.spout("numbers", |_| Numbers(0..100)).computed_field("hundred", |n: &u64| n / 100);
        /// topology
        ///     .bolt("first", |_| {
        ///         let mut is_first = true;
        ///         basic(move |n: &u64, out| if std::mem::take(&mut is_first) { out.emit(*n) })
        ///     })
        ///     .parallelism(4)
        ///     .fields("numbers", ["hundred"]);
        /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).global("first");
        /// let mut topology = topology.start_manual()?;
        /// assert!(topology.settle(1_000));
        /// assert_eq!(topology.metrics()[2].executed, 1); // all are of one hundred, and so have gone to one task
        /// # Ok::<(), expiry_topology::BuildError>(())
        /// ```
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
