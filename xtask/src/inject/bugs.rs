//! The seeded bugs: files `xtask/bugs/NAME.bug`, and how they change the sources.
//!
//! ```text
//! An ack of a live root is answered as counted, but the tree does not change.
//!
//! run 1000 ACK: completions_true late_harmless
//!
//! @ src/ack/trees/issued.rs ack_issued
//! + if crate::seeded::strikes("lost-ack") {
//! +     return Ok(Ack::Pending);
//! + }
//!   let next = word ^ xor;
//! ```
//!
//! * The first paragraph says what the bug does.
//! * `run ONE_IN ARGS: CHECKS`: the bug strikes one time in `ONE_IN`, `stress ARGS` runs, and each
//!   of the checks must fail; others may fail too. A word in capitals stands for the arguments in
//!   `xtask/bugs/runs`.
//! * `@ FILE FUNCTION` begins an edit. Its lines that are there (` `) and that go (`-`) stand one
//!   after the other at one place in the functions of that name, whatever the indentation. Without
//!   FUNCTION, the place is the only one in the file. One line is mostly enough.
//!
//! All bugs apply to the tree as it stands, so their order does not matter. Two bugs may add lines
//! at one place, but only one may remove a line.

use super::runs::{Run, Runs};
use crate::tree::{files_at, root, text, Sources};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// One seeded bug.
#[derive(Debug)]
pub struct Bug {
    /// The name of its file without the extension.
    pub name: String,
    /// What the bug does, in words.
    pub what: String,
    /// What must find it.
    pub runs: Vec<Run>,
    edits: Vec<Edit>,
}

#[derive(Debug)]
struct Edit {
    path: String,
    function: Option<String>,
    /// Signs (` `, `-`, `+`) and texts.
    lines: Vec<(char, String)>,
}

/// Reads all bugs, in the order of their names, and the file `runs`.
pub fn bugs() -> Result<(Vec<Bug>, Runs), String> {
    let folder = root().join("xtask/bugs");
    let runs = Runs::parse(&text(&folder.join("runs"))?)?;
    let mut bugs = Vec::new();
    for path in files_at(&folder)? {
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(name) = name.and_then(|name| name.strip_suffix(".bug")) {
            let bug = Bug::parse(name, &text(&path)?, &runs);
            bugs.push(bug.map_err(|why| format!("{name}.bug: {why}"))?);
        }
    }
    Ok((bugs, runs))
}

impl Bug {
    fn parse(name: &str, text: &str, runs: &Runs) -> Result<Self, String> {
        let mut bug =
            Bug { name: name.into(), what: String::new(), runs: Vec::new(), edits: Vec::new() };
        for line in text.lines() {
            if let Some(place) = line.strip_prefix("@ ") {
                let (path, function) = match place.split_once(' ') {
                    Some((path, function)) => (path, Some(function.to_owned())),
                    None => (place, None),
                };
                bug.edits.push(Edit { path: path.into(), function, lines: Vec::new() });
            } else if let Some(run) = line.strip_prefix("run ") {
                bug.runs.push(runs.of(name, run)?);
            } else if let (Some(edit), false) = (bug.edits.last_mut(), line.is_empty()) {
                let sign = line.chars().next().filter(|sign| " +-".contains(*sign));
                let sign = sign.ok_or_else(|| format!("{line}: does not begin with ' +-'"))?;
                let rest = line[1..].strip_prefix(' ').unwrap_or(&line[1..]);
                edit.lines.push((sign, rest.into()));
            } else if !line.is_empty() {
                bug.what = format!("{} {line}", bug.what).trim().into();
            }
        }
        // The code asks for this bug, and for no other.
        let asks = ["strikes(\"", "chosen(\""];
        let added = bug.edits.iter().flat_map(|edit| &edit.lines);
        let asked: BTreeSet<&str> = added
            .flat_map(|(_, line)| asks.iter().filter_map(|ask| line.split_once(ask)))
            .filter_map(|(_, rest)| rest.split('"').next())
            .collect();
        if !asked.iter().eq([&name]) {
            return Err(format!("asks for the bugs {asked:?}"));
        }
        if bug.what.is_empty() || bug.runs.is_empty() {
            return Err("has no description, or no run".into());
        }
        Ok(bug)
    }
}

/// What all bugs change in one file.
#[derive(Default)]
struct Changes {
    /// What comes before a line, by the line's index.
    added: BTreeMap<usize, Vec<String>>,
    removed: BTreeSet<usize>,
}

/// Applies all bugs. Reports each edit that has no place, or several.
pub fn apply(bugs: &[Bug], sources: &mut Sources) -> Result<(), String> {
    let mut all: BTreeMap<&str, Changes> = BTreeMap::new();
    let mut wrong = Vec::new();
    for bug in bugs {
        for edit in &bug.edits {
            let changes = all.entry(&edit.path).or_default();
            let source = sources.get(&edit.path).map_or("", String::as_str);
            if let Err(why) = edit.resolve(source, changes) {
                let function = edit.function.as_deref().unwrap_or("");
                wrong.push(format!("{}.bug: {} {function}: {why}", bug.name, edit.path));
            }
        }
    }
    if !wrong.is_empty() {
        return Err(wrong.join("\n"));
    }
    for (path, changes) in all {
        let source = sources.entry(path.into()).or_default();
        let mut changed = String::new();
        for (index, line) in source.lines().enumerate() {
            for added in changes.added.get(&index).into_iter().flatten() {
                changed += &format!("{added}\n");
            }
            if !changes.removed.contains(&index) {
                changed += &format!("{line}\n");
            }
        }
        *source = changed;
    }
    Ok(())
}

impl Edit {
    /// Finds the edit's place and notes the changes there.
    fn resolve(&self, source: &str, changes: &mut Changes) -> Result<(), String> {
        let lines: Vec<&str> = source.lines().collect();
        let wanted = self.lines.iter().filter(|(sign, _)| *sign != '+');
        let wanted: Vec<&str> = wanted.map(|(_, line)| line.trim()).collect();
        let ranges = match &self.function {
            Some(name) => functions(&lines, name),
            None => std::iter::once(0..lines.len()).collect(),
        };
        let starts = |range: Range<usize>| {
            let last = (range.end + 1).saturating_sub(wanted.len());
            (range.start..last).filter(|&at| {
                let there = lines[at..at + wanted.len()].iter();
                there.map(|line| line.trim()).eq(wanted.iter().copied())
            })
        };
        let places: BTreeSet<usize> = ranges.into_iter().flat_map(starts).collect();
        let &[mut at] = &places.iter().copied().collect::<Vec<_>>()[..] else {
            return Err(format!("{} places", places.len()));
        };
        for (sign, line) in &self.lines {
            match sign {
                '+' => changes.added.entry(at).or_default().push(line.clone()),
                '-' if !changes.removed.insert(at) => {
                    return Err(format!("another bug removes the line {line}"));
                }
                _ => at += 1,
            }
        }
        Ok(())
    }
}

/// The lines of the functions of this name. It goes by indentation, as `rustfmt` leaves it.
fn functions(lines: &[&str], name: &str) -> Vec<Range<usize>> {
    let begins = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        let rest = code.split_once(&format!("fn {name}"));
        rest.is_some_and(|(_, rest)| rest.starts_with(['(', '<']))
    };
    let starts = (0..lines.len()).filter(|&start| begins(lines[start]));
    starts
        .map(|start| {
            let line = lines[start];
            let indent = &line[..line.len() - line.trim_start().len()];
            let closes = format!("{indent}}}");
            let ends = |&end: &usize| lines[end] == closes;
            let end = (start..lines.len()).find(ends).unwrap_or(start);
            start..end + 1
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_applies_to_this_tree() {
        let applied = bugs().and_then(|(bugs, _)| apply(&bugs, &mut crate::tree::sources()?));
        if let Err(why) = applied {
            panic!("{why}");
        }
    }

    #[test]
    fn an_edit_is_found_in_its_function_whatever_the_indentation() {
        let text = "Does it.\n\nrun 10 MAP: map_linearizable\n\n@ a.rs f\n+ if strikes(\"b\") {\n\
                    +     return;\n+ }\n  go();\n- stop();\n";
        let bug = Bug::parse("b", text, &Runs::default()).unwrap();
        assert_eq!(bug.what, "Does it.");
        assert_eq!(bug.runs[0].bug, "b/10");
        let source = "fn e() {\n    go();\n    stop();\n}\nimpl A {\n    fn f(&self) {\n        \
                      go();\n        stop();\n    }\n}\n";
        let mut sources = Sources::from([("a.rs".into(), source.into())]);
        apply(&[bug], &mut sources).unwrap();
        let changed = "fn e() {\n    go();\n    stop();\n}\nimpl A {\n    fn f(&self) {\nif \
                       strikes(\"b\") {\n    return;\n}\n        go();\n    }\n}\n";
        assert_eq!(sources["a.rs"], changed);
    }

    #[test]
    fn an_edit_with_two_places_or_none_is_an_error() {
        let of = |find: &str| {
            let text = format!("A.\n\nrun 1 MAP: a\n\n@ a.rs f\n+ chosen(\"b\");\n  {find}\n");
            let source = "fn f() {\n    go();\n    go();\n}\n";
            let mut sources = Sources::from([("a.rs".into(), source.into())]);
            let bug = Bug::parse("b", &text, &Runs::default()).unwrap();
            apply(&[bug], &mut sources).unwrap_err()
        };
        assert_eq!(of("go();"), "b.bug: a.rs f: 2 places");
        assert_eq!(of("stop();"), "b.bug: a.rs f: 0 places");
    }
}
