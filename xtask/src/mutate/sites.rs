//! Finds what can be weakened in a source, and rewrites the source so that each site asks at run
//! time whether its mutant was chosen.
//!
//! | what | rewritten to | what the mutant does |
//! |---|---|---|
//! | `Ordering::Acquire` (and the others but `Relaxed`) | `order(n, ..)` | `Relaxed` instead |
//! | `fence(..)` | `if stays(n) { .. }` | nothing |
//! | `a.compare_exchange(o, new, s, f)` | `a.weak_compare_exchange(n, ..)` | `Ok(a.swap(new, s))` |
//!
//! The functions stand in `weak.rs`.

use proc_macro2::{LineColumn, Span};
use std::collections::HashMap;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprMethodCall, Meta};

/// What a mutant does at its site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Makes an ordering `Relaxed`.
    Ordering,
    /// Leaves a fence out.
    Fence,
    /// Makes a compare-and-swap succeed whatever the value is.
    Cas,
}

impl Kind {
    /// The kind's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ordering => "ordering",
            Kind::Fence => "fence",
            Kind::Cas => "cas",
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
        let (file, function, kind) = (&self.file, &self.function, self.kind.name());
        format!("{file} {function} {kind}#{}", self.nth)
    }

    /// The site's place in the file.
    pub fn place(&self) -> String {
        format!("{}:{}", self.line, self.column)
    }
}

/// Finds the sites of one source. Returns the rewritten source and the mutants, whose numbers count
/// from `first`. `weak` is the path of the module with the functions.
pub fn rewrite(
    file: &str,
    source: &str,
    weak: &str,
    first: usize,
) -> syn::Result<(String, Vec<Mutant>)> {
    let mut finder = Finder {
        file,
        source,
        weak,
        first,
        within: Vec::new(),
        counts: HashMap::new(),
        mutants: Vec::new(),
        edits: Vec::new(),
    };
    finder.visit_file(&syn::parse_file(source)?);
    // Nested sites open in the order in which the visit finds them, and close in the other one.
    let mut edits: Vec<_> = (0..).zip(finder.edits).collect();
    edits.sort_by_key(|&(found, (at, closes, _)): &(isize, (usize, bool, String))| {
        (at, !closes, if closes { -found } else { found })
    });
    let (mut rewritten, mut from) = (String::new(), 0);
    for (_, (at, _, text)) in edits {
        rewritten.push_str(&source[from..at]);
        rewritten.push_str(&text);
        from = at;
    }
    rewritten.push_str(&source[from..]);
    Ok((rewritten, finder.mutants))
}

/// The visit of a source: each site gets a mutant, and edits that ask for it.
struct Finder<'a> {
    file: &'a str,
    source: &'a str,
    weak: &'a str,
    first: usize,
    /// The names of the modules, types and functions that the visit is in.
    within: Vec<String>,
    /// How many mutants of a kind a function has.
    counts: HashMap<(String, Kind), usize>,
    mutants: Vec<Mutant>,
    /// Texts to insert: where, and whether the text closes what another one opens.
    edits: Vec<(usize, bool, String)>,
}

impl Finder<'_> {
    /// Adds a mutant and returns its number.
    fn mutant(&mut self, kind: Kind, span: Span) -> usize {
        let function = self.within.join("::");
        let count = self.counts.entry((function.clone(), kind)).or_default();
        *count += 1;
        let nth = *count;
        let LineColumn { line, column } = span.start();
        let text = &self.source[span.byte_range()];
        self.mutants.push(Mutant {
            file: self.file.into(),
            line,
            column: column + 1,
            function,
            kind,
            nth,
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
        });
        self.first + self.mutants.len() - 1
    }

    /// Adds a mutant, with texts around its site.
    fn around(&mut self, kind: Kind, span: Span, before: &str, after: &str) {
        let number = self.mutant(kind, span);
        let (range, weak) = (span.byte_range(), self.weak);
        let before = before.replace("WEAK", weak).replace("N", &number.to_string());
        self.edits.push((range.start, false, before));
        self.edits.push((range.end, true, after.into()));
    }

    fn cas(&mut self, call: &ExprMethodCall) {
        let number = self.mutant(Kind::Cas, call.span());
        let method = call.method.span().byte_range().start;
        let arguments = call.paren_token.span.open().byte_range().end;
        self.edits.push((method, false, "weak_".into()));
        self.edits.push((arguments, false, format!("{number}, ")));
    }

    /// Visits the arguments of a macro if they are expressions. Assertions are left out: they are
    /// not part of the algorithm.
    fn macro_call(&mut self, mac: &syn::Macro) {
        let name = mac.path.segments.last().map(|last| last.ident.to_string());
        if name.is_some_and(|name| name.contains("assert") || name == "unreachable") {
            return;
        }
        let arguments = syn::punctuated::Punctuated::<Expr, syn::Token![,]>::parse_terminated;
        if let Ok(arguments) = mac.parse_body_with(arguments) {
            for argument in &arguments {
                self.visit_expr(argument);
            }
        }
    }

    fn function(&mut self, attributes: &[Attribute], sig: &syn::Signature, block: &syn::Block) {
        if !is_built(attributes) || sig.constness.is_some() {
            return;
        }
        self.named(sig.ident.to_string(), |finder| {
            let edit = finder.edits.len();
            visit::visit_block(finder, block);
            if finder.edits[edit..].iter().any(|(_, _, text)| text == "weak_") {
                let open = block.brace_token.span.open().byte_range().end;
                let import = format!(" use {}::Cas as _;", finder.weak);
                finder.edits.insert(edit, (open, false, import));
            }
        });
    }

    fn named(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.within.push(name);
        visit(self);
        self.within.pop();
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_built(&item.attrs) {
            self.named(item.ident.to_string(), |finder| {
                visit::visit_item_mod(finder, item);
            });
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if is_built(&item.attrs) {
            let name = match &*item.self_ty {
                syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.clone()),
                _ => None,
            };
            let name = name.map_or_else(|| "impl".into(), |name| name.to_string());
            self.named(name, |finder| visit::visit_item_impl(finder, item));
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.attrs, &item.sig, block);
        }
    }

    // The compiler evaluates these, so they cannot ask which mutant was chosen.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if is_built(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_stmt_macro(&mut self, stmt: &'ast syn::StmtMacro) {
        if is_built(&stmt.attrs) {
            self.macro_call(&stmt.mac);
        }
    }

    fn visit_field_value(&mut self, value: &'ast syn::FieldValue) {
        if is_built(&value.attrs) {
            visit::visit_field_value(self, value);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if is_built(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        if !is_built(attributes(expr)) {
            return;
        }
        match expr {
            Expr::Call(call) if is_fence(call) => {
                return self.around(Kind::Fence, call.span(), "if WEAK::stays(N) { ", " }");
            }
            Expr::MethodCall(call) if is_cas(call) => self.cas(call),
            Expr::Path(path) if is_strong(path) => {
                self.around(Kind::Ordering, path.span(), "WEAK::order(N, ", ")");
            }
            Expr::Macro(call) => return self.macro_call(&call.mac),
            _ => {}
        }
        visit::visit_expr(self, expr);
    }
}

/// Whether a path names an ordering other than `Relaxed`. The path may be the imported name alone.
fn is_strong(path: &syn::ExprPath) -> bool {
    let mut segments = path.path.segments.iter().rev();
    let name = segments.next().map(|last| last.ident.to_string());
    let of = segments.next();
    let strong = ["Acquire", "Release", "AcqRel", "SeqCst"];
    of.map_or(true, |of| of.ident == "Ordering")
        && name.is_some_and(|name| strong.contains(&name.as_str()))
}

fn is_fence(call: &syn::ExprCall) -> bool {
    matches!(&*call.func, Expr::Path(path)
        if path.path.segments.last().is_some_and(|last| last.ident == "fence"))
}

/// Whether a call is a compare-and-swap. It goes by the number of arguments, for there may be other
/// methods of the same name.
fn is_cas(call: &ExprMethodCall) -> bool {
    let names = ["compare_exchange", "compare_exchange_weak"];
    call.args.len() == 4 && names.contains(&call.method.to_string().as_str())
}

/// The attributes of an expression, where it is of a kind that can be a statement, or that this
/// workspace puts under a `cfg`.
fn attributes(expr: &Expr) -> &[Attribute] {
    macro_rules! of {
        ($($kind:ident)*) => {
            match expr {
                $(Expr::$kind(expr) => &expr.attrs,)*
                _ => &[],
            }
        };
    }
    of!(Assign Block Call ForLoop If Loop Macro Match MethodCall Return Unsafe While)
}

/// Whether code with these attributes is a part of the models' build.
fn is_built(attributes: &[Attribute]) -> bool {
    attributes.iter().all(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            list.parse_args::<Meta>().map_or(true, |cfg| holds(&cfg))
        }
        Meta::Path(path) => !path.is_ident("test"),
        _ => true,
    })
}

fn holds(cfg: &Meta) -> bool {
    match cfg {
        Meta::Path(path) => ["test", "miri", "fuzzing"].iter().all(|cfg| !path.is_ident(cfg)),
        // The only feature that the models use.
        Meta::NameValue(pair) if pair.path.is_ident("feature") => {
            matches!(&pair.value, Expr::Lit(value)
                if matches!(&value.lit, syn::Lit::Str(name) if name.value() == "async"))
        }
        Meta::NameValue(_) => true,
        Meta::List(list) => {
            let of = syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated;
            let Ok(of) = list.parse_args_with(of) else {
                return true;
            };
            if list.path.is_ident("not") {
                !of.iter().all(holds)
            } else if list.path.is_ident("any") {
                of.iter().any(holds)
            } else {
                of.iter().all(holds)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> (Vec<String>, String) {
        let (rewritten, mutants) = rewrite("a.rs", source, "crate::weak", 1).unwrap();
        let names = mutants
            .iter()
            .map(|mutant| format!("{} {} {}", mutant.name(), mutant.place(), mutant.text));
        (names.collect(), rewritten)
    }

    #[test]
    fn orderings_fences_and_expectations_are_sites() {
        let (names, rewritten) = found(
            "impl A {\n\
             fn f(&self) {\n\
             self.a.store(1, Ordering::Release);\n\
             self.a.load(Ordering::Relaxed);\n\
             fence(Ordering::SeqCst);\n\
             let _ = self.a\n.compare_exchange(1, 2, Ordering::AcqRel, Ordering::Relaxed);\n\
             } }",
        );
        assert_eq!(
            names,
            [
                "a.rs A::f ordering#1 3:17 Ordering::Release",
                "a.rs A::f fence#1 5:1 fence(Ordering::SeqCst)",
                "a.rs A::f cas#1 6:9 self.a .compare_exchange(1, 2, Ordering::AcqRel, Ordering::Relaxed)",
                "a.rs A::f ordering#2 7:25 Ordering::AcqRel",
            ]
        );
        assert_eq!(
            rewritten,
            "impl A {\n\
             fn f(&self) { use crate::weak::Cas as _;\n\
             self.a.store(1, crate::weak::order(1, Ordering::Release));\n\
             self.a.load(Ordering::Relaxed);\n\
             if crate::weak::stays(2) { fence(Ordering::SeqCst) };\n\
             let _ = self.a\n.weak_compare_exchange(3, 1, 2, \
             crate::weak::order(4, Ordering::AcqRel), Ordering::Relaxed);\n\
             } }"
        );
    }

    #[test]
    fn what_the_models_do_not_build_is_no_site() {
        let (names, _) = found(
            "#[cfg(not(expiry_loom))] fn a(x: &A) { x.load(Ordering::Acquire); }\n\
             #[cfg(test)] mod tests { fn a(x: &A) { x.load(Ordering::Acquire); } }\n\
             #[cfg(all(expiry_loom, not(test)))] fn b(x: &A) { x.load(Ordering::Acquire); }\n\
             const fn c(x: u64) -> bool { x == 1 }\n\
             fn d(x: &A) { #[cfg(not(expiry_loom))] x.store(1, Ordering::Release);\n\
             #[cfg(expiry_loom)] x.swap(1, Ordering::Release); }\n\
             #[cfg(feature = \"tracing\")] fn e(x: &A) { x.load(Ordering::Acquire); }\n\
             #[cfg(feature = \"async\")] fn f(x: &A) { x.load(Ordering::Acquire); }",
        );
        assert_eq!(
            names,
            [
                "a.rs b ordering#1 3:58 Ordering::Acquire",
                "a.rs d ordering#1 6:31 Ordering::Release",
                "a.rs f ordering#1 8:48 Ordering::Acquire",
            ]
        );
    }
}
