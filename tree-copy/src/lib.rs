//! Files of a copy of the workspace that a tool changes and builds (`weaken`, `seeded-bugs`).
//!
//! Errors are texts that begin with the path.

use std::fs;
use std::path::{Path, PathBuf};

/// Lists the files at `place`, in order: the place itself if it is a file, else the files below it
/// for which `is_wanted` holds. It enters a folder only if `is_wanted` holds for that folder.
///
/// # Errors
///
/// A folder cannot be read.
pub fn files_at(place: &Path, is_wanted: &dyn Fn(&Path) -> bool) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    collect(place, is_wanted, &mut files)?;
    Ok(files)
}

fn collect(
    place: &Path,
    is_wanted: &dyn Fn(&Path) -> bool,
    files: &mut Vec<PathBuf>,
) -> Result<(), String> {
    if place.is_file() {
        files.push(place.into());
        return Ok(());
    }
    let failed = |error| format!("{}: {error}", place.display());
    let mut entries = Vec::new();
    for entry in fs::read_dir(place).map_err(failed)? {
        entries.push(entry.map_err(failed)?.path());
    }
    entries.sort();
    for entry in entries.iter().filter(|entry| is_wanted(entry)) {
        collect(entry, is_wanted, files)?;
    }
    Ok(())
}

/// Reads a file of text.
///
/// # Errors
///
/// The file cannot be read, or is no text.
pub fn text(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a file, and its folder if there is none. A file that has this content already is left
/// alone, so that cargo builds nothing without need.
///
/// # Errors
///
/// The file or its folder cannot be written.
pub fn put(path: &Path, content: impl AsRef<[u8]>) -> Result<(), String> {
    let content = content.as_ref();
    if fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, content))
        .map_err(|error| format!("{}: {error}", path.display()))
}
