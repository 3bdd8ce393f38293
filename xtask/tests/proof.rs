//! `docs/proof.md` and `docs/guarantees.md` say what is shown by which test: that each of these exists, and that no model is left out
//! of the former.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The sources below a folder of the workspace.
fn sources(folder: &str, found: &mut Vec<PathBuf>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for entry in fs::read_dir(root.join(folder)).expect(folder) {
        let path = entry.expect(folder).path();
        if path.is_dir() {
            let inner = format!("{folder}/{}", path.file_name().unwrap().to_string_lossy());
            sources(&inner, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The names of functions without parameters, with `#[test]` before them.
fn tests(folders: &[&str]) -> BTreeSet<String> {
    let mut found = Vec::new();
    folders
        .iter()
        .for_each(|folder| sources(folder, &mut found));
    let mut names = BTreeSet::new();
    for path in found {
        let text = fs::read_to_string(&path).expect("a source is text");
        for part in text.split("#[test]").skip(1) {
            let name = part
                .split("fn ")
                .nth(1)
                .and_then(|rest| rest.split("()").next());
            names.extend(name.map(ToString::to_string));
        }
    }
    names
}

/// What stands in the last column of a document's tables, between backticks.
fn claimed(document: &str) -> BTreeSet<String> {
    let rows = document.lines().filter(|line| line.starts_with("| "));
    let last = rows.filter_map(|row| row.trim_end_matches(" |").rsplit(" | ").next());
    let names = last.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let is_name = |name: &&str| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    names.filter(is_name).map(ToString::to_string).collect()
}

fn document(name: &str) -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    fs::read_to_string(docs.join(name)).expect(name)
}

#[test]
fn every_claim_names_a_test_that_exists() {
    let tests = tests(&["loom-tests/tests", "tests", "topology/tests"]);
    let claimed = claimed(&document("proof.md"));
    assert!(
        claimed.len() > 100,
        "the tables were not found: {claimed:?}"
    );
    let missing: Vec<_> = claimed
        .difference(&tests)
        .filter(|name| *name != "Tuple")
        .collect();
    assert!(missing.is_empty(), "these do not exist: {missing:?}");
}

#[test]
fn every_guarantee_names_tests_that_exist() {
    let tests = tests(&["loom-tests/tests", "tests", "topology/tests", "src"]);
    let mut claimed = claimed(&document("guarantees.md"));
    // Errors and other names of the API stand there too.
    claimed.retain(|name| name.contains('_') && name != "shrink_to_fit");
    assert!(claimed.len() > 40, "the tables were not found: {claimed:?}");
    let missing: Vec<_> = claimed.difference(&tests).collect();
    assert!(missing.is_empty(), "these do not exist: {missing:?}");
}

#[test]
fn every_model_is_in_the_document() {
    let document = document("proof.md");
    let models = tests(&["loom-tests/tests"]);
    assert!(models.len() > 100, "the models were not found: {models:?}");
    let is_missing = |model: &&String| !document.contains(&format!("`{model}`"));
    let missing: Vec<_> = models.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "no word about these: {missing:?}");
}
