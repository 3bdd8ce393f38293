//! Finds what can be weakened in a source, and rewrites the source so that each site asks at run
//! time whether its mutant was chosen.
//!
//! | what | rewritten to | what the mutant does |
//! |---|---|---|
//! | `Ordering::Acquire` (and the others but `Relaxed`) | `order(n, ..)` | `Relaxed` instead |
//! | `fence(..)` | `if stays(n) { .. }` | nothing |
//! | `a.compare_exchange(old, new, s, f)` | `a.weak_compare_exchange(n, ..)` | `Ok(a.swap(new, s))` |
//! | `a.fetch_update(s, f, new)` | `a.weak_fetch_update(n, ..)` | what `new` made of a load is swapped in |
//! | a condition | `check(n, m, ..)` | evaluates it all the same; then *n* goes on as if it held, *m* as if it did not |
//!
//! A condition is that of an `if`, a `while` or a match arm, a comparison, or the last expression
//! of a function that returns a `bool`. Conditions are sites in functions that use an atomic, or
//! call a function that does. Of `a && b` the mutants are: `a` held, `b` held, the whole did not.
//! Of `a || b` they are the opposite. The other cases follow from these.

mod atomics;
mod built;
mod edits;
mod finder;
mod syntax;
#[cfg(test)]
mod tests;

pub use atomics::Atomics;

use finder::Finder;

/// What a mutant does at its site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Makes an ordering `Relaxed`.
    Ordering,
    /// Leaves a fence out.
    Fence,
    /// Makes a compare-and-swap succeed whatever the value is.
    Cas,
    /// Makes a condition always hold.
    True,
    /// Makes a condition never hold.
    False,
}

impl Kind {
    /// The kind's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ordering => "ordering",
            Kind::Fence => "fence",
            Kind::Cas => "cas",
            Kind::True => "true",
            Kind::False => "false",
        }
    }
}

/// One change of one place.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// The path of the file, relative to the workspace.
    pub file: String,
    pub line: usize,
    pub column: usize,
    /// The function's name, with that of its type or module.
    pub function: String,
    pub kind: Kind,
    /// The number among the function's mutants of this kind, from 1.
    pub nth: usize,
    /// The site's source, on one line.
    pub text: String,
}

impl Mutant {
    /// A name that does not change when another part of the file does.
    pub fn name(&self) -> String {
        format!(
            "{} {} {}#{}",
            self.file,
            self.function,
            self.kind.name(),
            self.nth
        )
    }

    /// The site's place in the file.
    pub fn place(&self) -> String {
        format!("{}:{}", self.line, self.column)
    }
}

/// A source whose sites ask which mutant was chosen.
#[derive(Debug)]
pub struct Rewritten {
    pub source: String,
    pub mutants: Vec<Mutant>,
}

/// Finds the sites of one source and rewrites it. `first` is the number of the first mutant.
pub fn rewrite(
    file: &str,
    source: &str,
    atomics: &Atomics,
    first: usize,
) -> syn::Result<Rewritten> {
    Finder::rewrite(file, source, atomics, first)
}
