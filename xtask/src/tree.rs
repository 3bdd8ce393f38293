//! Copies of the workspace below `target/`, which `inject` and `mutate` change and build.
//!
//! Errors are texts that begin with the path.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

/// Paths from the root of the workspace, with slashes, and the text of each file.
pub type Sources = BTreeMap<String, String>;

/// Returns the root of the workspace.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("a member of a workspace").into()
}

/// Returns the folder `target/NAME` of the workspace.
pub fn work(name: &str) -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    root().join(target).join(name)
}

/// Returns the command that started this program.
pub fn cargo() -> PathBuf {
    env::var_os("CARGO").map_or("cargo".into(), PathBuf::from)
}

/// Reads all Rust sources of the library and of the topology.
pub fn sources() -> Result<Sources, String> {
    let root = root();
    let mut sources = Sources::new();
    for folder in ["src", "topology/src"] {
        for path in files_at(&root.join(folder))? {
            if path.extension().is_some_and(|extension| extension == "rs") {
                sources.insert(below(&root, &path)?, text(&path)?);
            }
        }
    }
    Ok(sources)
}

/// Adds the public module `name` to the library.
pub fn add_module(sources: &mut Sources, name: &str, module: &str) {
    let library = sources.entry("src/lib.rs".into()).or_default();
    library.push_str(&format!("\n#[doc(hidden)]\npub mod {name};\n"));
    sources.insert(format!("src/{name}.rs"), module.into());
}

/// Makes `copy` the workspace with these sources instead of its own, and nothing else. A file that
/// has its content already is left alone, so that cargo builds nothing without need.
pub fn write(copy: &Path, sources: &Sources) -> Result<(), String> {
    let root = root();
    let mut there = BTreeSet::new();
    for (path, text) in sources {
        put(&copy.join(path), text.as_bytes())?;
        there.insert(copy.join(path));
    }
    for path in files_at(&root)? {
        let to = copy.join(below(&root, &path)?);
        if there.insert(to.clone()) {
            put(&to, &fs::read(&path).map_err(failed(&path))?)?;
        }
    }
    for path in files_at(copy)? {
        if !there.contains(&path) {
            fs::remove_file(&path).map_err(failed(&path))?;
        }
    }
    Ok(())
}

/// Reads a file of text.
pub fn text(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(failed(path))
}

/// Lists the files below a folder, in order, without builds and what tools leave for themselves.
pub fn files_at(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed(folder))? {
        let path = entry.map_err(failed(folder))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.map_or(true, |name| name == "target" || name.starts_with('.')) {
            continue;
        }
        if path.is_dir() {
            files.extend(files_at(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn below(root: &Path, path: &Path) -> Result<String, String> {
    let below = path.strip_prefix(root).map_err(|error| error.to_string())?;
    let words: Option<Vec<_>> = below.iter().map(|word| word.to_str()).collect();
    let words = words.ok_or_else(|| format!("{}: no text", path.display()))?;
    Ok(words.join("/"))
}

/// Writes a file, and makes its folder. A file that has this content already is left alone.
fn put(path: &Path, content: &[u8]) -> Result<(), String> {
    if fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    fs::create_dir_all(folder).and_then(|()| fs::write(path, content)).map_err(failed(path))
}

/// Says which file an error is about.
pub fn failed(path: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}

/// Runs a command for `limit` at most. Returns how it ended, unless the limit was over before, and
/// all that it printed, which goes through a file in `folder`.
pub fn run_within(
    mut command: Command,
    limit: Duration,
    folder: &Path,
) -> std::io::Result<(Option<ExitStatus>, String)> {
    let path = folder.join(format!("said-{:?}", thread::current().id()));
    let file = File::create(&path)?;
    let command = command.stdin(Stdio::null()).stdout(file.try_clone()?);
    let mut child = command.stderr(file).spawn()?;
    let began = Instant::now();
    let status = loop {
        let status = child.try_wait()?;
        if status.is_some() {
            break status;
        }
        if began.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            break None;
        }
        thread::sleep(Duration::from_millis(3));
    };
    let said = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
    fs::remove_file(&path)?;
    Ok((status, said))
}
