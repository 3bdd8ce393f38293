//! What keeps a scenario from being run, and what to do about it.

use std::path::PathBuf;
use thiserror::Error;

/// Why a scenario could not be run. A check that fails is not one of these: it is part of the report.
#[derive(Debug, Error)]
pub enum Error {
    /// PATH does not exist or cannot be opened.
    #[error("cannot read {}: {why}; name a file or a folder that exists and may be read", path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// The report cannot be written.
    #[error("cannot write {}: {why}", path.display())]
    Unwritable {
        /// Where to.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// Nothing was named, and Cargo's home has no sources.
    #[error("Cargo's home has no sources at {}; name a file or a folder: stress wordcount PATH", path.display())]
    NoSources {
        /// Where they were looked for.
        path: PathBuf,
    },
    /// There was nothing to read.
    #[error("there is no line of text in {}: {found}; name a file or a folder with text in it", path.display())]
    NoText {
        /// The path.
        path: PathBuf,
        /// What was there instead.
        found: String,
    },
    /// A table of cache loads is not what it should be.
    #[error("{file}, line {line}, column {column}: {why}")]
    Mix {
        /// Which table.
        file: String,
        /// The line, from 1.
        line: u64,
        /// The column's name.
        column: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// A table does not have the row that was asked for.
    #[error("{file} has no cluster {row}; it has {known}")]
    NoRow {
        /// Which table.
        file: String,
        /// The row.
        row: String,
        /// Those that it has.
        known: String,
    },
    /// Shares that must fit in a whole do not.
    #[error("{names} add up to {sum}, which is more than all; make them add up to at most 1")]
    Shares {
        /// The options.
        names: &'static str,
        /// Their sum.
        sum: f64,
    },
    /// An option that only makes sense with another.
    #[error("{option} {why}")]
    Option {
        /// The option.
        option: &'static str,
        /// What is wrong, and what to do.
        why: String,
    },
    /// A tracker or a store refused its settings.
    #[error("the tracker or store cannot be built: {0}")]
    Build(#[from] expiry::BuildError),
    /// The topology could not be started.
    #[error("the topology cannot be started: {0}")]
    Topology(#[from] expiry_topology::BuildError),
    /// The brokers or a worker could not be started.
    #[cfg(feature = "nats")]
    #[error("{0}")]
    Nats(String),
    /// The scenario was not built.
    #[cfg(not(feature = "nats"))]
    #[error("`nats` is a feature: cargo run --release -p stress --features nats -- nats")]
    WithoutNats,
}
