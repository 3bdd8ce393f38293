//! The series of patches, and the copy of the workspace that has them all.

use crate::patch::{Patch, Tree};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs, process};
use tree_copy::{files_at, put, text};

/// The variable that names a process's bug. `runtime.rs` reads it.
pub const CHOICE: &str = "EXPIRY_BUG";

/// The folders whose files patches may change.
const PATCHED: [&str; 2] = ["src", "topology/src"];

/// The workspace.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("a member of a workspace").into()
}

fn bugs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("bugs")
}

/// All patches, in the order of their names. A patch whose code asks for a bug of another name is
/// an error.
pub fn patches() -> Result<Vec<Patch>, String> {
    let mut patches = Vec::new();
    for path in files_at(&bugs(), &|_| true)? {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.and_then(|name| name.strip_suffix(".patch"));
        let name = name.ok_or_else(|| format!("{}: not named NAME.patch", path.display()))?;
        let patch = Patch::parse(name, &text(&path)?)?;
        let asked = patch.asked();
        if !asked.iter().eq([&name]) {
            return Err(format!("{name}.patch: asks for the bugs {asked:?}"));
        }
        patches.push(patch);
    }
    Ok(patches)
}

/// The sources that patches may change.
fn tree(root: &Path) -> Result<Tree, String> {
    let is_source =
        |path: &Path| path.is_dir() || path.extension().is_some_and(|extension| extension == "rs");
    let mut files = Vec::new();
    for folder in PATCHED {
        for path in files_at(&root.join(folder), &is_source)? {
            files.push((below(root, &path)?, text(&path)?));
        }
    }
    Ok(Tree::new(files))
}

/// A path from the root, as patches write it.
fn below(root: &Path, path: &Path) -> Result<String, String> {
    let below = path.strip_prefix(root).map_err(|error| error.to_string())?;
    let words: Option<Vec<_>> = below.iter().map(|word| word.to_str()).collect();
    let words = words.ok_or_else(|| format!("{}: no text", path.display()))?;
    Ok(words.join("/"))
}

/// Writes the patches anew where code has moved. Reports those that have no place any more.
pub fn refresh() -> Result<(), String> {
    let tree = tree(&root())?;
    let mut lost = Vec::new();
    for patch in patches()? {
        let path = bugs().join(&patch.name).with_extension("patch");
        match tree.refresh(&patch) {
            Ok(fresh) if fresh != text(&path)? => {
                put(&path, &fresh)?;
                println!("{}.patch: written anew", patch.name);
            }
            Ok(_) => {}
            Err(why) => lost.push(why),
        }
    }
    if !lost.is_empty() {
        return Err(lost.join("\n"));
    }
    tree.apply(&patches()?).map(|_| ())
}

/// A build of `stress` that has every bug, of which a process chooses at most one.
pub struct Build {
    /// The folder of the crate `stress` in the copy. Scenarios find their input from there.
    pub folder: PathBuf,
    /// The program.
    pub stress: PathBuf,
}

/// Copies the workspace to `target/inject/tree`, patches the copy and builds its `stress`.
pub fn build() -> Result<Build, String> {
    let root = root();
    let target = env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let work = root.join(target).join("inject");
    let copy = work.join("tree");
    write(&root, &copy)?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = work.join("build");
    let status = process::Command::new(cargo)
        .args(["build", "--locked", "--release", "-p", "stress"])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(&copy)
        .status();
    if !status.is_ok_and(|status| status.success()) {
        return Err("the patched copy does not build".into());
    }
    let name = format!("stress{}", env::consts::EXE_SUFFIX);
    Ok(Build {
        folder: copy.join("stress"),
        stress: target.join("release").join(name),
    })
}

/// Makes `copy` the workspace with all patches, and nothing else.
fn write(root: &Path, copy: &Path) -> Result<(), String> {
    let mut changed = tree(root)?.apply(&patches()?)?;
    let library = text(&root.join("src/lib.rs"))?;
    let library = format!("{library}\n#[doc(hidden)]\npub mod seeded;\n");
    changed.push(("src/lib.rs".into(), library));
    changed.push(("src/seeded.rs".into(), include_str!("runtime.rs").into()));
    let mut there = BTreeSet::new();
    for (path, text) in &changed {
        put(&copy.join(path), text)?;
        there.insert(copy.join(path));
    }
    for path in files_at(root, &is_copied)? {
        let to = copy.join(below(root, &path)?);
        if there.insert(to.clone()) {
            let content = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            put(&to, content)?;
        }
    }
    for path in files_at(copy, &is_copied)? {
        if !there.contains(&path) {
            fs::remove_file(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    Ok(())
}

/// Builds, and what tools leave for themselves, are not copied.
fn is_copied(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name != "target" && !name.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_applies_to_this_tree() {
        let patched = tree(&root()).and_then(|tree| tree.apply(&patches()?));
        if let Err(why) = patched {
            panic!("{why}\ncargo xtask inject --refresh follows code that has moved");
        }
    }
}
