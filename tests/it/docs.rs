//! The examples of the documentation.

use std::fs;
use std::path::Path;

/// Calls `each` with the text of each file with documentation below a folder.
fn each_text(folder: &Path, each: &mut impl FnMut(&Path, &str)) {
    // A package has only some of the folders.
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            each_text(&path, each);
        } else if path.extension().is_some_and(|kind| kind == "rs" || kind == "md") {
            each(&path, &fs::read_to_string(&path).unwrap());
        }
    }
}

/// Whether the words after the ticks of a code block name the error that the compiler is to find.
fn names_an_error(words: &str) -> bool {
    words.split(',').map(str::trim).any(|word| {
        let digits = word.strip_prefix('E').unwrap_or("");
        digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_digit())
    })
}

/// An example that is not to compile names its error. Without the code, any mistake in it would do.
#[test]
fn an_example_that_must_not_compile_names_its_error() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut found, mut without) = (0, Vec::new());
    for folder in ["src", "docs", "topology/src", "nats/src"] {
        each_text(&root.join(folder), &mut |path, text| {
            for (number, line) in (1..).zip(text.lines()) {
                let words = line.split_once("```").map_or("", |(_, words)| words);
                if words.contains("compile_fail") {
                    found += 1;
                    if !names_an_error(words) {
                        without.push(format!("{}:{number}: {line}", path.display()));
                    }
                }
            }
        });
    }
    assert!(found >= 3, "{found} examples: the search misses some");
    assert!(without.is_empty(), "no code of an error:\n{}", without.join("\n"));
}
