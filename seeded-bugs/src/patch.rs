//! Unified diffs that are found by their lines, not by their line numbers.
//!
//! Every patch is written against the tree as it stands, not against the tree that the patch
//! before it leaves. So each applies by itself, and all of them can be applied at once
//! ([`Tree::apply`]). A hunk belongs where its context and removed lines stand, one after the
//! other; that place must be the only one in its file. Line numbers are for the reader.
//!
//! [`Tree::refresh`] writes a patch anew where code has moved: see [`Tree::place_loosely`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Number of context lines of a hunk that is written anew, where these make its place unique.
const CONTEXT: usize = 2;
/// Number of context lines beyond which a place counts as one of several.
const MAX_CONTEXT: usize = 12;

/// One seeded bug: what it does, and how the tree is changed for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// The bug's name: that of the file without its extension.
    pub name: String,
    /// What the bug does, in words: the lines of the file before the diff.
    pub what: String,
    hunks: Vec<Hunk>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Hunk {
    /// The file that the hunk changes, from the root of the tree.
    path: String,
    /// The line of the patch file at which the hunk begins, for messages.
    line: usize,
    lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    kind: Kind,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Context,
    Removed,
    Added,
}

impl Patch {
    /// Reads a patch file.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut what = String::new();
        let mut hunks: Vec<Hunk> = Vec::new();
        let mut path = None;
        let mut in_hunk = false;
        for (number, line) in (1..).zip(text.lines()) {
            let refuse = |why: &str| Err(format!("{name}.patch:{number}: {why}"));
            if let Some(from) = line.strip_prefix("--- ") {
                path = Some(from.strip_prefix("a/").unwrap_or(from).to_owned());
                in_hunk = false;
            } else if let Some(to) = line.strip_prefix("+++ ") {
                if path.as_deref() != Some(to.strip_prefix("b/").unwrap_or(to)) {
                    return refuse("this line and the one before name two files");
                }
            } else if line.starts_with("@@") {
                let Some(path) = path.clone() else {
                    return refuse("a hunk without a file");
                };
                let (line, lines) = (number, Vec::new());
                hunks.push(Hunk { path, line, lines });
                in_hunk = true;
            } else if let Some(hunk) = hunks.last_mut().filter(|_| in_hunk) {
                // Editors cut the space that an empty context line has.
                let mark = line.chars().next().unwrap_or(' ');
                let kind = match mark {
                    ' ' => Kind::Context,
                    '-' => Kind::Removed,
                    '+' => Kind::Added,
                    _ => return refuse("a line of a hunk begins with a space, - or +"),
                };
                let text = line.get(1..).unwrap_or_default().to_owned();
                hunk.lines.push(Line { kind, text });
            } else if path.is_some() {
                return refuse("a line of neither a header nor a hunk");
            } else {
                let _ = writeln!(what, "{line}");
            }
        }
        let what = what.trim().to_owned();
        let changes = |hunk: &Hunk| hunk.lines.iter().any(|line| line.kind != Kind::Context);
        if what.is_empty() {
            return Err(format!("{name}.patch: does not say what the bug does"));
        }
        if hunks.is_empty() || !hunks.iter().all(|hunk| changes(hunk) && hunk.is_anchored()) {
            return Err(format!(
                "{name}.patch: every hunk changes something, and has a line that is there already"
            ));
        }
        let name = name.to_owned();
        Ok(Patch { name, what, hunks })
    }

    /// The bugs that the lines which the patch adds ask for: `seeded::strikes("NAME")`.
    pub fn asked(&self) -> BTreeSet<&str> {
        let lines = self.hunks.iter().flat_map(|hunk| &hunk.lines);
        let added = lines.filter(|line| line.kind == Kind::Added);
        added
            .flat_map(|line| line.text.split("seeded::").skip(1))
            .filter_map(|call| call.split('"').nth(1))
            .collect()
    }

    /// The error of a hunk that has no place.
    fn misfit(&self, hunk: &Hunk, why: &str) -> String {
        let Patch { name, .. } = self;
        format!(
            "{name}.patch:{}: no longer applies to {}: {why}",
            hunk.line, hunk.path
        )
    }
}

impl Hunk {
    /// The lines that must be there.
    fn old(&self) -> Vec<&str> {
        let lines = self.lines.iter();
        lines
            .filter(|line| line.kind != Kind::Added)
            .map(|line| line.text.as_str())
            .collect()
    }

    /// Whether one of the lines that must be there says something.
    fn is_anchored(&self) -> bool {
        let says = |line: &&str| line.contains(char::is_alphanumeric);
        self.old().iter().any(says)
    }

    /// The numbers of context lines before the first change and after the last.
    fn context(&self) -> (usize, usize) {
        let is_context = |line: &&Line| line.kind == Kind::Context;
        let before = self.lines.iter().take_while(is_context).count();
        let after = self.lines.iter().rev().take_while(is_context).count();
        (before, after)
    }

    /// The hunk without so many lines of its context at either end.
    fn without(&self, first: usize, last: usize) -> Self {
        Hunk {
            lines: self.lines[first..self.lines.len() - last].to_vec(),
            ..self.clone()
        }
    }

    /// The hunk in another file, in or out by so many columns.
    fn moved(&self, path: &str, by: isize) -> Self {
        let shifted = |line: &Line| Line {
            kind: line.kind,
            text: match usize::try_from(by) {
                _ if line.text.is_empty() => String::new(),
                Ok(by) => format!("{:by$}{}", "", line.text),
                Err(_) => line.text.get(by.unsigned_abs()..).unwrap_or("").into(),
            },
        };
        Hunk {
            path: path.into(),
            lines: self.lines.iter().map(shifted).collect(),
            ..*self
        }
    }

    /// The changes of a hunk whose first line stands at `at`.
    fn edits<'a>(&'a self, at: usize, patch: &'a str) -> Vec<Edit<'a>> {
        let mut edits: Vec<Edit> = Vec::new();
        let mut at = at;
        let mut continues = false;
        for line in &self.lines {
            if line.kind == Kind::Context {
                at += 1;
                continues = false;
                continue;
            }
            if !continues {
                edits.push(Edit {
                    patch,
                    at,
                    removed: 0,
                    added: Vec::new(),
                });
                continues = true;
            }
            let edit = edits.last_mut().expect("it was pushed above");
            if line.kind == Kind::Added {
                edit.added.push(&line.text);
            } else {
                edit.removed += 1;
                at += 1;
            }
        }
        edits
    }
}

/// A change of a file: the lines `at .. at + removed` make way for others.
#[derive(Debug, Clone)]
struct Edit<'a> {
    patch: &'a str,
    at: usize,
    removed: usize,
    added: Vec<&'a str>,
}

/// Where `old` stands in `lines`.
fn places(lines: &[&str], old: &[&str]) -> Vec<usize> {
    let windows = lines.windows(old.len().max(1)).enumerate();
    windows
        .filter(|(_, window)| *window == old)
        .map(|(at, _)| at)
        .collect()
}

/// By how many columns `found` is further in than `old`, if it is `old` but for that.
fn shift(found: &[&str], old: &[&str]) -> Option<isize> {
    let indent = |line: &str| (line.len() - line.trim_start().len()) as isize;
    let mut by = None;
    for (found, old) in found.iter().zip(old) {
        if found.trim_start() != old.trim_start() {
            return None;
        }
        let this = indent(found) - indent(old);
        if !found.trim().is_empty() && *by.get_or_insert(this) != this {
            return None;
        }
    }
    Some(by.unwrap_or(0))
}

/// The sources that patches change, by their paths from the root.
#[derive(Debug, Default)]
pub struct Tree(BTreeMap<String, String>);

impl Tree {
    /// A tree of these files.
    pub fn new(files: impl IntoIterator<Item = (String, String)>) -> Self {
        Tree(files.into_iter().collect())
    }

    fn lines(&self, path: &str) -> Vec<&str> {
        self.0.get(path).map_or(Vec::new(), |text| {
            text.split_terminator('\n').collect::<Vec<_>>()
        })
    }

    /// The one place of a hunk.
    fn place(&self, patch: &Patch, hunk: &Hunk) -> Result<usize, String> {
        if !self.0.contains_key(&hunk.path) {
            return Err(patch.misfit(hunk, "there is no such file"));
        }
        match places(&self.lines(&hunk.path), &hunk.old())[..] {
            [at] => Ok(at),
            [] => Err(patch.misfit(hunk, "its lines are not there")),
            [..] => Err(patch.misfit(hunk, "its lines are there more than once")),
        }
    }

    /// The files that the patches change, as they are then.
    ///
    /// What two patches put at one place stands there in the order of the patches.
    pub fn apply(&self, patches: &[Patch]) -> Result<Vec<(String, String)>, String> {
        let mut edits: BTreeMap<&str, Vec<Edit>> = BTreeMap::new();
        for patch in patches {
            for hunk in &patch.hunks {
                let at = self.place(patch, hunk)?;
                let of_file = edits.entry(&hunk.path).or_default();
                of_file.extend(hunk.edits(at, &patch.name));
            }
        }
        let changed = edits.into_iter().map(|(path, mut edits)| {
            // What is put before a line stands before what replaces the line.
            edits.sort_by_key(|edit| (edit.at, edit.removed > 0));
            let lines = self.lines(path);
            let mut text = String::new();
            let mut next = 0;
            let mut last = "";
            for edit in &edits {
                let Some(kept) = lines.get(next..edit.at) else {
                    return Err(format!(
                        "{path}: {last}.patch and {}.patch change the same line",
                        edit.patch
                    ));
                };
                for line in kept.iter().chain(&edit.added) {
                    let _ = writeln!(text, "{line}");
                }
                (next, last) = (edit.at + edit.removed, edit.patch);
            }
            for line in &lines[next..] {
                let _ = writeln!(text, "{line}");
            }
            Ok((path.to_owned(), text))
        });
        changed.collect()
    }

    /// The patch file that makes the same changes where the code stands now.
    pub fn refresh(&self, patch: &Patch) -> Result<String, String> {
        let mut placed = Vec::new();
        for hunk in &patch.hunks {
            placed.push(self.place_loosely(patch, hunk)?);
        }
        let mut edits: BTreeMap<&str, Vec<Edit>> = BTreeMap::new();
        for (at, hunk) in &placed {
            let of_file = edits.entry(&hunk.path).or_default();
            of_file.extend(hunk.edits(*at, &patch.name));
        }
        let mut text = format!("{}\n\n", patch.what);
        for (path, mut edits) in edits {
            edits.sort_by_key(|edit| edit.at);
            let _ = write!(text, "--- a/{path}\n+++ b/{path}\n");
            text += &diff(&self.lines(path), &edits)
                .ok_or_else(|| format!("{}.patch: no place of its own in {path}", patch.name))?;
        }
        Ok(text)
    }

    /// The place of a hunk whose code may have moved, and the hunk as it is there.
    ///
    /// That is, in this order: where all its lines stand in its own file; in any other; and then
    /// the same without one line of its outer context, without two, and so on. Indentation may
    /// differ, if it does so by the same number of columns in all lines. Several such places with
    /// the same number of lines are an error.
    fn place_loosely(&self, patch: &Patch, hunk: &Hunk) -> Result<(usize, Hunk), String> {
        let (before, after) = hunk.context();
        for dropped in 0..=before + after {
            let mut found: BTreeMap<(bool, &str, usize), (usize, Hunk)> = BTreeMap::new();
            for first in dropped.saturating_sub(after)..=dropped.min(before) {
                let part = hunk.without(first, dropped - first);
                if !part.is_anchored() {
                    continue;
                }
                let old = part.old();
                for path in self.0.keys() {
                    let lines = self.lines(path);
                    for (at, window) in lines.windows(old.len()).enumerate() {
                        if let Some(by) = shift(window, &old) {
                            // One change, whichever of its context lines have been dropped.
                            let key = (*path != hunk.path, path.as_str(), at + before - first);
                            found.entry(key).or_insert((at, part.moved(path, by)));
                        }
                    }
                }
            }
            let is_elsewhere = found.keys().next().map(|(elsewhere, ..)| *elsewhere);
            found.retain(|(elsewhere, ..), _| Some(*elsewhere) == is_elsewhere);
            match found.len() {
                0 => {}
                1 => return Ok(found.into_values().next().expect("one")),
                _ => {
                    let places: Vec<_> = found
                        .keys()
                        .map(|(_, path, at)| format!("{path}:{}", at + 1))
                        .collect();
                    let why = format!("it may belong at any of {}", places.join(", "));
                    return Err(patch.misfit(hunk, &why));
                }
            }
        }
        Err(patch.misfit(hunk, "its lines are nowhere"))
    }
}

/// The hunks of a file's changes. `None` if one of them would have several places.
fn diff(lines: &[&str], edits: &[Edit]) -> Option<String> {
    (CONTEXT..=MAX_CONTEXT).find_map(|context| {
        let mut text = String::new();
        let mut grown = 0;
        let mut rest = edits;
        while let Some(first) = rest.first() {
            let mut end = first.at + first.removed;
            let joined = rest.iter().take_while(|edit| {
                let joins = edit.at <= end + 2 * context;
                end = if joins { edit.at + edit.removed } else { end };
                joins
            });
            let (hunk, later) = rest.split_at(joined.count());
            let from = first.at.saturating_sub(context);
            let to = (end + context).min(lines.len());
            if places(lines, &lines[from..to]).len() != 1 {
                return None;
            }
            let function = lines[..first.at].iter().rev().find_map(|line| {
                let rest = line.split_once("fn ").filter(|_| !line.contains("//"))?.1;
                let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_')?;
                Some(&rest[..end])
            });
            let function = function.map_or(String::new(), |name| format!(" fn {name}"));
            let mut body = String::new();
            let (mut next, mut added) = (from, 0);
            for edit in hunk {
                for line in &lines[next..edit.at] {
                    let _ = writeln!(body, " {line}");
                }
                for line in &lines[edit.at..edit.at + edit.removed] {
                    let _ = writeln!(body, "-{line}");
                }
                for line in &edit.added {
                    let _ = writeln!(body, "+{line}");
                }
                next = edit.at + edit.removed;
                added += edit.added.len() as isize - edit.removed as isize;
            }
            for line in &lines[next..to] {
                let _ = writeln!(body, " {line}");
            }
            let old = (to - from) as isize;
            let start = from as isize + 1;
            let new = (start + grown, old + added);
            let _ = writeln!(text, "@@ -{start},{old} +{},{} @@{function}", new.0, new.1);
            text += &body;
            grown += added;
            rest = later;
        }
        Some(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "fn one() {\n    a();\n    b();\n}\n\nfn two() {\n    a();\n    c();\n}\n";

    fn tree() -> Tree {
        Tree::new([("src/x.rs".to_owned(), TREE.to_owned())])
    }

    fn patch(name: &str, hunk: &str) -> Patch {
        let text = format!("Does it.\n\n--- a/src/x.rs\n+++ b/src/x.rs\n@@\n{hunk}");
        Patch::parse(name, &text).unwrap()
    }

    #[test]
    fn a_hunk_is_found_by_its_lines() {
        let patch = patch("p", " fn two() {\n-    a();\n+    d();\n     c();\n");
        let changed = tree().apply(&[patch]).unwrap();
        let expected = TREE.replace("a();\n    c()", "d();\n    c()");
        assert_eq!(changed, [("src/x.rs".into(), expected)]);
    }

    #[test]
    fn a_hunk_has_one_place() {
        let error = |hunk| tree().apply(&[patch("p", hunk)]).unwrap_err();
        let none = error("     b();\n+    d();\n     c();\n");
        assert!(none.starts_with("p.patch:5: no longer applies to src/x.rs"));
        assert!(none.ends_with("its lines are not there"));
        let two = error("     a();\n+    d();\n");
        assert!(two.ends_with("its lines are there more than once"));
    }

    #[test]
    fn patches_do_not_depend_on_each_other() {
        let series = [
            patch("p", "     b();\n+    p();\n }\n"),
            patch("q", "     b();\n+    q();\n }\n"),
            patch("r", "-    b();\n+    r();\n }\n"),
            patch("s", "     a();\n+    s();\n     b();\n"),
        ];
        let [(_, changed)] = &tree().apply(&series).unwrap()[..] else {
            panic!("one file");
        };
        assert!(changed.contains("a();\n    s();\n    r();\n    p();\n    q();\n}"));
        let twice = [series[2].clone(), patch("t", "-    b();\n+    t();\n }\n")];
        let error = tree().apply(&twice).unwrap_err();
        assert_eq!(error, "src/x.rs: r.patch and t.patch change the same line");
    }

    #[test]
    fn what_is_no_patch_is_refused() {
        for (text, why) in [
            ("--- a/x\n+++ b/x\n@@\n a\n+b\n", "does not say what"),
            (
                "It.\n--- a/x\n+++ b/y\n@@\n a\n+b\n",
                "x.patch:3: this line",
            ),
            ("It.\n--- a/x\n+++ b/x\n a\n", "neither"),
            ("It.\n@@\n a\n+b\n", "without a file"),
            ("It.\n--- a/x\n+++ b/x\n@@\n a\n?b\n", "begins with"),
            ("It.\n--- a/x\n+++ b/x\n@@\n a\n", "changes something"),
            ("It.\n--- a/x\n+++ b/x\n@@\n }\n+b\n", "there already"),
            ("It.\n", "every hunk"),
        ] {
            let error = Patch::parse("x", text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_fresh_patch_stays_as_it_is() {
        let patch = patch("p", "     b();\n+    p();\n");
        let fresh = tree().refresh(&patch).unwrap();
        let expected = "Does it.\n\n--- a/src/x.rs\n+++ b/src/x.rs\n@@ -2,4 +2,5 @@ fn one\n     \
                        a();\n     b();\n+    p();\n }\n \n";
        assert_eq!(fresh, expected);
        let again = Patch::parse("p", &fresh).unwrap();
        assert_eq!(tree().refresh(&again).unwrap(), fresh);
    }

    #[test]
    fn a_patch_follows_code_that_has_moved() {
        let old = patch("p", " fn two() {\n     a();\n+    p();\n     c();\n }\n");
        let moved = "mod m {\n    fn three() {\n        a();\n        c();\n    }\n}\n";
        let files = [("src/x.rs", "fn one() {}\n"), ("src/y.rs", moved)];
        let tree = Tree::new(files.map(|(path, text)| (path.into(), text.into())));
        assert!(tree.apply(std::slice::from_ref(&old)).is_err());
        let fresh = Patch::parse("p", &tree.refresh(&old).unwrap()).unwrap();
        let [(path, changed)] = &tree.apply(&[fresh]).unwrap()[..] else {
            panic!("one file");
        };
        assert_eq!(path, "src/y.rs");
        assert!(changed.contains("        a();\n        p();\n        c();\n"));
    }

    #[test]
    fn a_patch_does_not_guess() {
        let old = patch("p", " fn gone() {\n     a();\n+    p();\n");
        let error = tree().refresh(&old).unwrap_err();
        assert!(error.ends_with("any of src/x.rs:3, src/x.rs:8"), "{error}");
        let old = patch("p", "-    gone();\n+    p();\n");
        let error = tree().refresh(&old).unwrap_err();
        assert!(error.ends_with("its lines are nowhere"), "{error}");
    }
}
