//! Which files are read, and which are skipped and why.

use super::held;
use crate::error::Error;
use crate::interrupt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use walkdir::WalkDir;

/// A file to be read.
#[derive(Debug)]
pub struct Source {
    pub path: PathBuf,
    /// How many bytes the pipeline has read from it; nothing if it was skipped.
    pub read: OnceLock<u64>,
}

/// The files under a path.
#[derive(Debug)]
pub struct Files {
    root: PathBuf,
    /// Regular files, in an order that depends on their names only.
    pub list: Vec<Source>,
    /// What they hold together, as far as the file system says.
    pub bytes: u64,
    /// The files that are skipped, each with the reason.
    pub skipped: Mutex<Vec<String>>,
    next: AtomicUsize,
}

impl Files {
    /// Lists the files under `path`, or under the crates in Cargo's home.
    pub fn list(path: Option<&Path>) -> Result<Self, Error> {
        let root = path.map_or_else(sources_of_crates, |path| Ok(path.to_path_buf()))?;
        std::fs::metadata(&root)
            .map_err(|why| Error::Unreadable { path: root.clone(), why: why.to_string() })?;
        let (mut list, mut bytes, mut skipped) = (Vec::new(), 0, Vec::new());
        for entry in WalkDir::new(&root).sort_by_file_name() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(why) => {
                    skipped.push(why.to_string());
                    continue;
                }
            };
            // Opening a pipe could wait for ever; following links could go round in circles.
            let is_followed = entry.depth() == 0 || !entry.path_is_symlink();
            let metadata = entry.path().metadata().ok().filter(|_| is_followed);
            if let Some(metadata) = metadata.filter(std::fs::Metadata::is_file) {
                bytes += metadata.len();
                list.push(Source { path: entry.into_path(), read: OnceLock::new() });
            }
        }
        let (skipped, next) = (Mutex::new(skipped), AtomicUsize::new(0));
        Ok(Files { root, list, bytes, skipped, next })
    }

    /// The error that there is no text, with the files that there are instead.
    pub fn no_text(&self) -> Error {
        let found = match held(&self.skipped).first() {
            Some(skipped) => format!("skipped {skipped}"),
            None => format!("{} files, all empty", self.list.len()),
        };
        Error::NoText { path: self.root.clone(), found }
    }

    /// How many files have been come to.
    pub fn begun(&self) -> u64 {
        self.next.load(Relaxed).min(self.list.len()) as u64
    }

    /// The next text file, with its number, for one of several readers. It skips files that are not
    /// UTF-8 or hold a zero byte. After Ctrl-C there is none.
    pub fn next_text(&self) -> Option<(usize, String)> {
        while !interrupt::asked() {
            let number = self.next.fetch_add(1, Relaxed);
            let source = self.list.get(number)?;
            let why = match std::fs::read_to_string(&source.path) {
                Ok(text) if !text.contains('\0') => {
                    // One reader comes to it, once.
                    let _ = source.read.set(text.len() as u64);
                    return Some((number, text));
                }
                Ok(_) => "binary".into(),
                Err(why) => why.to_string(),
            };
            held(&self.skipped).push(format!("{}: {why}", source.path.display()));
        }
        None
    }
}

/// Where Cargo keeps the sources of crates.
fn sources_of_crates() -> Result<PathBuf, Error> {
    #[allow(deprecated)] // its one flaw, on Windows, has been mended
    let home = std::env::home_dir().map(|home| home.join(".cargo"));
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from).or(home).unwrap_or_default();
    let path = cargo.join("registry").join("src");
    match path.is_dir() {
        true => Ok(path),
        false => Err(Error::NoSources { path }),
    }
}
