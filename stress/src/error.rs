//! The reasons that keep a scenario from being run, and what the user can do about them.

use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a scenario could not be run. A check that fails is not one of these: it is part of the
/// report.
#[derive(Debug, Error)]
pub enum Error {
    #[error("cannot read {}: {why}; name a file or a folder that exists and may be read", path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("cannot write {}: {why}", path.display())]
    Unwritable { path: PathBuf, why: String },
    /// Nothing was named, and Cargo's home has nothing.
    #[error("Cargo's home has no sources at {}; name a file or a folder: stress wordcount PATH", path.display())]
    NoSources { path: PathBuf },
    /// There was nothing to read; `found` says what was there instead.
    #[error("there is no line of text in {}: {found}; name a file or a folder with text in it", path.display())]
    NoText { path: PathBuf, found: String },
    /// Shares that must fit in a whole do not.
    #[error("{names} add up to {sum}, which is more than all; make them add up to at most 1")]
    Shares { names: &'static str, sum: f64 },
    /// An option's value makes no sense here; `why` says what to do.
    #[error("{option} {why}")]
    Option { option: &'static str, why: String },
    #[error("the tracker or store cannot be built: {0}")]
    Build(#[from] expiry::BuildError),
    #[error("the topology cannot be started: {0}")]
    Topology(#[from] expiry_topology::BuildError),
    /// The brokers or a worker could not be started.
    #[cfg(feature = "nats")]
    #[error("{0}")]
    Nats(String),
    #[cfg(not(feature = "nats"))]
    #[error("`nats` is a feature: cargo run --release -p stress --features nats -- nats")]
    WithoutNats,
}

impl Error {
    /// Makes an error of the system's answer for a file that cannot be written.
    pub fn unwritable(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
        |why| Error::Unwritable { path: path.into(), why: why.to_string() }
    }
}
