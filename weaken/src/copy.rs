//! The copy of the workspace that is rewritten and built.

use crate::sites::{rewrite, Atomics, Mutant, Rewritten};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tree_copy::{files_at, put, text};

/// Where concurrency lives that the models look at.
const LOOKED_AT: [&str; 13] = [
    "src/ack",
    "src/channel.rs",
    "src/core",
    "src/keyed",
    "src/room.rs",
    "src/setup.rs",
    "src/stream.rs",
    "src/sync/exclusive.rs",
    "src/sync/stack.rs",
    "src/sync/tasks.rs",
    "src/timeouts",
    "topology/src/gate.rs",
    "topology/src/inbox.rs",
];

/// In these: tests, and what only one thread comes to.
const LEFT_OUT: [&str; 11] = [
    "/tests.rs",
    "src/core/params.rs",
    "src/ack/builder.rs",
    "src/keyed/error.rs",
    "src/keyed/map/builder.rs",
    "src/keyed/queue/builder.rs",
    "src/keyed/session/builder.rs",
    "src/keyed/session/error.rs",
    "src/ack/error.rs",
    "src/timeouts/builder.rs",
    "src/timeouts/error.rs",
];

/// What else the copy needs to be built.
const TAKEN_ALONG: [&str; 10] = [
    "Cargo.lock",
    "README.md",
    "examples",
    "src",
    "tests",
    "topology/examples",
    "topology/src",
    "topology/tests",
    "loom-tests/src",
    "loom-tests/tests",
];

/// All sources with sites.
#[derive(Debug)]
pub struct Sources(Vec<(PathBuf, Rewritten)>);

/// Reads and rewrites them.
pub fn sources(root: &Path) -> Result<Sources, String> {
    let mut files = Vec::new();
    for place in LOOKED_AT {
        files.extend(sources_at(&root.join(place))?);
    }
    let mut read = Vec::new();
    let mut atomics = Atomics::default();
    for path in files {
        let name = path.strip_prefix(root).map_err(|e| e.to_string())?;
        let name = name.to_str().ok_or("a name that is no text")?.to_owned();
        if LEFT_OUT.iter().any(|left_out| name.ends_with(left_out)) {
            continue;
        }
        let source = text(&path)?;
        atomics.note(&source).map_err(|e| format!("{name}: {e}"))?;
        read.push((name, source));
    }
    let mut first = 1;
    let mut sources = Vec::new();
    for (name, source) in read {
        let rewritten =
            rewrite(&name, &source, &atomics, first).map_err(|e| format!("{name}: {e}"))?;
        debug_assert!(syn::parse_file(&rewritten.source).is_ok(), "{name}");
        first += rewritten.mutants.len();
        sources.push((name.into(), rewritten));
    }
    Ok(Sources(sources))
}

impl Sources {
    /// All mutants with their numbers.
    pub fn mutants(&self) -> Vec<(usize, Mutant)> {
        let all = self.0.iter().flat_map(|(_, source)| &source.mutants);
        (1..).zip(all.cloned()).collect()
    }

    /// Writes the copy to `work/copy`.
    pub fn write(&self, root: &Path, work: &Path) -> Result<(), String> {
        let copy = work.join("copy");
        let rewritten: HashMap<&Path, &str> = self
            .0
            .iter()
            .map(|(name, rewritten)| (name.as_path(), rewritten.source.as_str()))
            .collect();
        for place in TAKEN_ALONG {
            for file in sources_at(&root.join(place))? {
                let name = file.strip_prefix(root).map_err(|e| e.to_string())?;
                match rewritten.get(name) {
                    Some(source) => put(&copy.join(name), source)?,
                    None => put(&copy.join(name), text(&file)?)?,
                }
            }
        }
        put(&copy.join("weak/lib.rs"), include_str!("../weak/lib.rs"))?;
        let manifest = "[package]\nname = \"weak\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n\
                        [lib]\npath = \"lib.rs\"\n\n[dependencies]\nloom = \"0.7.2\"\n";
        put(&copy.join("weak/Cargo.toml"), manifest)?;
        let depends = |path: &str| format!("[dependencies]\nweak = {{ path = \"{path}\" }}");
        let manifest: String = text(&root.join("Cargo.toml"))?
            .lines()
            .map(|line| match line.split_once(" = ") {
                Some(("members", _)) => {
                    "members = [\"loom-tests\", \"topology\", \"weak\"]\n".into()
                }
                _ => format!("{line}\n"),
            })
            .collect();
        let manifest = manifest.replacen("[dependencies]", &depends("weak"), 1);
        put(&copy.join("Cargo.toml"), manifest)?;
        for member in ["topology", "loom-tests"] {
            let manifest = text(&root.join(member).join("Cargo.toml"))?;
            let manifest = manifest.replacen("[dependencies]", &depends("../weak"), 1);
            put(&copy.join(member).join("Cargo.toml"), manifest)?;
        }
        Ok(())
    }
}

/// The sources at a place of the workspace.
fn sources_at(place: &Path) -> Result<Vec<PathBuf>, String> {
    let is_source =
        |path: &Path| path.is_dir() || path.extension().is_some_and(|extension| extension == "rs");
    files_at(place, &is_source)
}
