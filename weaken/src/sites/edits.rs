//! Changes of a source's text: found in the order of its syntax, made in the order of its text.

use std::ops::Range;

/// Puts `text` at a place of the source.
struct Edit {
    at: usize,
    text: String,
    /// Whether it closes what another one opens.
    closes: bool,
}

/// Insertions into one source. They are added in the order in which the visit finds them, the
/// outermost first.
#[derive(Default)]
pub(super) struct Edits(Vec<Edit>);

impl Edits {
    /// Inserts `text`.
    pub(super) fn insert(&mut self, at: usize, text: String) {
        self.add(at, text, false);
    }

    /// Inserts `before` and `after` around a range.
    pub(super) fn around(&mut self, range: Range<usize>, before: String, after: String) {
        self.add(range.start, before, false);
        self.add(range.end, after, true);
    }

    fn add(&mut self, at: usize, text: String, closes: bool) {
        self.0.push(Edit { at, text, closes });
    }

    /// The source with all insertions.
    ///
    /// Where several are at one place, those that close come first, the innermost of them first. Of
    /// those that open, the outermost comes first.
    pub(super) fn apply(self, source: &str) -> String {
        let mut edits: Vec<(isize, Edit)> = (0..).zip(self.0).collect();
        edits.sort_by_key(|(found, edit)| {
            let order = if edit.closes { -found } else { *found };
            (edit.at, !edit.closes, order)
        });
        let mut result = String::new();
        let mut from = 0;
        for (_, edit) in edits {
            result.push_str(&source[from..edit.at]);
            result.push_str(&edit.text);
            from = edit.at;
        }
        result.push_str(&source[from..]);
        result
    }
}
