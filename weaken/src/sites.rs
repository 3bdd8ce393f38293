//! Finds what can be weakened in a source, and rewrites the source so that each of it can be chosen at run time.
//!
//! | what | rewritten to | what the mutant does |
//! |---|---|---|
//! | `Ordering::Acquire` (and the others but `Relaxed`) | `order(n, ..)` | `Relaxed` instead |
//! | `fence(..)` | `if stays(n) { .. }` | nothing |
//! | `a.compare_exchange(old, new, s, f)` | `a.weak_compare_exchange(n, ..)` | `Ok(a.swap(new, s))` |
//! | `a.fetch_update(s, f, new)` | `a.weak_fetch_update(n, ..)` | what `new` made of a load is swapped in |
//! | a condition | `check(n, m, ..)` | evaluates it all the same; then *n* goes on as if it held, *m* as if it did not |
//!
//! A condition is that of an `if`, a `while` or a match arm, a comparison, and what a function returns that says yes or no, in functions
//! that use an atomic or call one that does. Of `a && b` the mutants are: `a` held, `b` held, the whole did not; of `a || b` the
//! opposite: the rest follows from these.

use proc_macro2::{LineColumn, Span};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprMethodCall, ItemFn, Meta, Signature, Stmt};

/// What is done at a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Not `Relaxed`, made so.
    Ordering,
    /// Left out.
    Fence,
    /// What was expected does not matter.
    Cas,
    /// A condition always holds.
    True,
    /// A condition never holds.
    False,
}

impl Kind {
    /// As it is called in reports.
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
    /// Relative to the workspace.
    pub file: String,
    pub line: usize,
    pub column: usize,
    /// The function's name, with its type's or module's.
    pub function: String,
    pub kind: Kind,
    /// Which of its kind in its function, from 1.
    pub nth: usize,
    /// The source there, on one line.
    pub text: String,
}

impl Mutant {
    /// A name that does not change with what stands elsewhere in the file.
    pub fn name(&self) -> String {
        format!(
            "{} {} {}#{}",
            self.file,
            self.function,
            self.kind.name(),
            self.nth
        )
    }

    /// Where in the file it is.
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

/// Where the names of functions that use atomics are gathered, of all sources at once.
#[derive(Debug, Default)]
pub struct Atomics(HashSet<String>);

impl Atomics {
    /// Notes the functions of one source.
    pub fn note(&mut self, source: &str) -> syn::Result<()> {
        struct Functions<'a>(&'a mut HashSet<String>);
        impl<'ast> Visit<'ast> for Functions<'_> {
            fn visit_item_fn(&mut self, item: &'ast ItemFn) {
                if uses(&item.block, &HashSet::new()) {
                    self.0.insert(item.sig.ident.to_string());
                }
                visit::visit_item_fn(self, item);
            }
            fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
                if uses(&item.block, &HashSet::new()) {
                    self.0.insert(item.sig.ident.to_string());
                }
            }
        }
        Functions(&mut self.0).visit_file(&syn::parse_file(source)?);
        Ok(())
    }
}

/// Whether a function's body names an ordering, or calls something by one of these names.
fn uses(block: &syn::Block, names: &HashSet<String>) -> bool {
    struct Uses<'a>(&'a HashSet<String>, bool);
    impl<'ast> Visit<'ast> for Uses<'_> {
        fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
            self.1 |= ordering(path).is_some();
            if let Some(last) = path.path.segments.last() {
                self.1 |= self.0.contains(&last.ident.to_string());
            }
        }
        fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
            self.1 |= self.0.contains(&call.method.to_string());
            visit::visit_expr_method_call(self, call);
        }
    }
    let mut uses = Uses(names, false);
    uses.visit_block(block);
    uses.1
}

/// The ordering that a path names, also where its name was imported.
fn ordering(path: &syn::ExprPath) -> Option<String> {
    let mut segments = path.path.segments.iter().rev();
    let name = segments.next()?.ident.to_string();
    let of = segments.next().is_none_or(|of| of.ident == "Ordering");
    let known = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];
    (of && known.contains(&name.as_str())).then_some(name)
}

/// Finds the sites of one source and rewrites it. `first` is the number of the first mutant.
pub fn rewrite(
    file: &str,
    source: &str,
    atomics: &Atomics,
    first: usize,
) -> syn::Result<Rewritten> {
    let mut finder = Finder {
        file,
        source,
        atomics: &atomics.0,
        first,
        within: Vec::new(),
        looks: false,
        counts: HashMap::new(),
        mutants: Vec::new(),
        edits: Vec::new(),
    };
    finder.visit_file(&syn::parse_file(source)?);
    Ok(Rewritten {
        source: edited(source, finder.edits),
        mutants: finder.mutants,
    })
}

/// Puts `text` in place of a range of the source.
struct Edit {
    range: Range<usize>,
    text: String,
    /// Whether it closes what another one opens.
    closes: bool,
}

/// Where several edits begin at one place, what closes comes first, the innermost of it first; of what opens, the outermost. Edits
/// come in the order in which they were found, the outermost first.
fn edited(source: &str, edits: Vec<Edit>) -> String {
    let mut edits: Vec<(isize, Edit)> = (0..).zip(edits).collect();
    edits.sort_by_key(|(found, edit)| {
        let order = if edit.closes { -found } else { *found };
        (edit.range.start, !edit.closes, order)
    });
    let mut result = String::new();
    let mut at = 0;
    for (_, edit) in edits {
        result.push_str(&source[at..edit.range.start]);
        result.push_str(&edit.text);
        at = edit.range.end;
    }
    result.push_str(&source[at..]);
    result
}

struct Finder<'a> {
    file: &'a str,
    source: &'a str,
    atomics: &'a HashSet<String>,
    first: usize,
    /// The names of what the visit is in.
    within: Vec<String>,
    /// Whether conditions are looked at: not in functions without atomics.
    looks: bool,
    counts: HashMap<(String, Kind), usize>,
    mutants: Vec<Mutant>,
    edits: Vec<Edit>,
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

    fn around(&mut self, range: Range<usize>, before: String, after: String) {
        self.edits.push(Edit {
            range: range.start..range.start,
            text: before,
            closes: false,
        });
        self.edits.push(Edit {
            range: range.end..range.end,
            text: after,
            closes: true,
        });
    }

    /// A condition, with the mutants that are wanted of it.
    fn condition(&mut self, expr: &Expr, to_true: bool, to_false: bool) {
        match expr {
            Expr::Paren(inner) => return self.condition(&inner.expr, to_true, to_false),
            Expr::Unary(not) if matches!(not.op, syn::UnOp::Not(_)) && joins(&not.expr) => {
                return self.condition(&not.expr, to_false, to_true);
            }
            Expr::Lit(_) => return,
            Expr::Binary(binary) if joins(expr) => {
                let and = matches!(binary.op, syn::BinOp::And(_));
                // The whole, and then each side the other way.
                self.check(expr, to_true && !and, to_false && and);
                self.condition(&binary.left, and, !and);
                self.condition(&binary.right, and, !and);
                return;
            }
            _ => self.check(expr, to_true, to_false),
        }
        // The operands of a comparison, the arguments of a call.
        match expr {
            Expr::Binary(binary) => {
                self.visit_expr(&binary.left);
                self.visit_expr(&binary.right);
            }
            other => self.inside(other),
        }
    }

    fn check(&mut self, expr: &Expr, to_true: bool, to_false: bool) {
        if !self.looks || !(to_true || to_false) {
            return;
        }
        let span = expr.span();
        let mut number = |wanted, kind| {
            if wanted {
                self.mutant(kind, span)
            } else {
                0
            }
        };
        let (to_true, to_false) = (number(to_true, Kind::True), number(to_false, Kind::False));
        self.around(
            span.byte_range(),
            format!("::weak::check({to_true}, {to_false}, "),
            ")".into(),
        );
    }

    /// What an expression consists of, without looking at it as a comparison.
    fn inside(&mut self, expr: &Expr) {
        match expr {
            Expr::Call(call) if is_fence(call) => {
                let number = self.mutant(Kind::Fence, call.span());
                let before = format!("if ::weak::stays({number}) {{ ");
                self.around(call.span().byte_range(), before, " }".into());
            }
            Expr::MethodCall(call) if is_cas(call) => self.cas(call),
            Expr::Path(path) => {
                if ordering(path).is_some_and(|name| name != "Relaxed") {
                    let number = self.mutant(Kind::Ordering, path.span());
                    let before = format!("::weak::order({number}, ");
                    self.around(path.span().byte_range(), before, ")".into());
                }
            }
            Expr::If(branch) if !has_let(&branch.cond) => {
                self.condition(&branch.cond, true, true);
                self.visit_block(&branch.then_branch);
                if let Some((_, otherwise)) = &branch.else_branch {
                    self.visit_expr(otherwise);
                }
            }
            Expr::While(round) if !has_let(&round.cond) => {
                self.condition(&round.cond, true, true);
                self.visit_block(&round.body);
            }
            Expr::Macro(call) => self.macro_call(&call.mac),
            other => visit::visit_expr(self, other),
        }
    }

    fn cas(&mut self, call: &ExprMethodCall) {
        let number = self.mutant(Kind::Cas, call.span());
        let method = call.method.span().byte_range();
        let arguments = call.paren_token.span.open().byte_range().end;
        let mut put = |range: Range<usize>, text: String| {
            self.edits.push(Edit {
                range,
                text,
                closes: false,
            });
        };
        put(method.start..method.start, "weak_".into());
        put(arguments..arguments, format!("{number}, "));
        visit::visit_expr_method_call(self, call);
    }

    /// Of macros those whose arguments are expressions, but for assertions: these are not the algorithm.
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

    fn function(&mut self, attributes: &[Attribute], sig: &Signature, block: &syn::Block) {
        if !is_built(attributes) || sig.constness.is_some() {
            return;
        }
        let looked = self.looks;
        self.looks = uses(block, self.atomics);
        self.within.push(sig.ident.to_string());
        let open = block.brace_token.span.open().byte_range().end;
        self.edits.push(Edit {
            range: open..open,
            text: " use ::weak::Cas as _;".into(),
            closes: false,
        });
        let (last, before) = match block.stmts.split_last() {
            Some((Stmt::Expr(last, None), before)) if says_yes_or_no(sig) => (Some(last), before),
            _ => (None, &block.stmts[..]),
        };
        for stmt in before {
            self.visit_stmt(stmt);
        }
        match last {
            Some(last @ (Expr::If(_) | Expr::Match(_) | Expr::Block(_) | Expr::Unsafe(_))) => {
                self.visit_expr(last);
            }
            Some(last) => self.condition(last, true, true),
            None => {}
        }
        self.within.pop();
        self.looks = looked;
    }

    fn named<T>(&mut self, name: String, visit: impl FnOnce(&mut Self) -> T) {
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

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
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

    // What is evaluated by the compiler cannot ask.
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
            if let Some((_, guard)) = &arm.guard {
                if has_let(guard) {
                    self.visit_expr(guard);
                } else {
                    self.condition(guard, true, true);
                }
            }
            self.visit_expr(&arm.body);
        }
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        if !is_built(attributes(expr)) {
            return;
        }
        match expr {
            Expr::Binary(binary) if compares(&binary.op) || joins(expr) => {
                self.condition(expr, true, true);
            }
            other => self.inside(other),
        }
    }
}

fn joins(expr: &Expr) -> bool {
    match expr {
        Expr::Paren(inner) => joins(&inner.expr),
        Expr::Binary(binary) => matches!(binary.op, syn::BinOp::And(_) | syn::BinOp::Or(_)),
        _ => false,
    }
}

fn compares(op: &syn::BinOp) -> bool {
    use syn::BinOp::{Eq, Ge, Gt, Le, Lt, Ne};
    matches!(op, Eq(_) | Ge(_) | Gt(_) | Le(_) | Lt(_) | Ne(_))
}

fn has_let(expr: &Expr) -> bool {
    struct Lets(bool);
    impl<'ast> Visit<'ast> for Lets {
        fn visit_expr_let(&mut self, _: &'ast syn::ExprLet) {
            self.0 = true;
        }
    }
    let mut lets = Lets(false);
    lets.visit_expr(expr);
    lets.0
}

fn is_fence(call: &syn::ExprCall) -> bool {
    matches!(&*call.func, Expr::Path(path)
        if path.path.segments.last().is_some_and(|last| last.ident == "fence"))
}

/// By the number of arguments, for there may be others of the same name.
fn is_cas(call: &ExprMethodCall) -> bool {
    match call.method.to_string().as_str() {
        "compare_exchange" | "compare_exchange_weak" => call.args.len() == 4,
        "fetch_update" => call.args.len() == 3,
        _ => false,
    }
}

fn says_yes_or_no(sig: &Signature) -> bool {
    matches!(&sig.output, syn::ReturnType::Type(_, of)
        if matches!(&**of, syn::Type::Path(path) if path.path.is_ident("bool")))
}

/// Of those that can stand as a statement, or under a `cfg` in another way that this workspace has.
fn attributes(expr: &Expr) -> &[Attribute] {
    match expr {
        Expr::Assign(expr) => &expr.attrs,
        Expr::Block(expr) => &expr.attrs,
        Expr::Call(expr) => &expr.attrs,
        Expr::ForLoop(expr) => &expr.attrs,
        Expr::If(expr) => &expr.attrs,
        Expr::Loop(expr) => &expr.attrs,
        Expr::Macro(expr) => &expr.attrs,
        Expr::Match(expr) => &expr.attrs,
        Expr::MethodCall(expr) => &expr.attrs,
        Expr::Return(expr) => &expr.attrs,
        Expr::Unsafe(expr) => &expr.attrs,
        Expr::While(expr) => &expr.attrs,
        _ => &[],
    }
}

/// Whether what has these attributes is a part of the models' build.
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
        Meta::Path(path) => {
            !(path.is_ident("test") || path.is_ident("miri") || path.is_ident("fuzzing"))
        }
        // The only feature that the models want.
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
        let mut atomics = Atomics::default();
        atomics.note(source).unwrap();
        let rewritten = rewrite("a.rs", source, &atomics, 1).unwrap();
        syn::parse_file(&rewritten.source).unwrap();
        let names = rewritten
            .mutants
            .iter()
            .map(|mutant| format!("{} {} {}", mutant.name(), mutant.place(), mutant.text));
        (names.collect(), rewritten.source)
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
             fn f(&self) { use ::weak::Cas as _;\n\
             self.a.store(1, ::weak::order(1, Ordering::Release));\n\
             self.a.load(Ordering::Relaxed);\n\
             if ::weak::stays(2) { fence(Ordering::SeqCst) };\n\
             let _ = self.a\n.weak_compare_exchange(3, 1, 2, ::weak::order(4, Ordering::AcqRel), Ordering::Relaxed);\n\
             } }"
        );
    }

    #[test]
    fn conditions_are_sites_where_there_are_atomics() {
        let (names, rewritten) = found(
            "fn read(a: &A) -> bool { a.load(Ordering::Relaxed) > 0 }\n\
             fn f(a: &A) { if a.is() && !(read(a) || a.was()) { g() } }\n\
             fn g() { if true == false { } }",
        );
        assert_eq!(
            names,
            [
                "a.rs read true#1 1:26 a.load(Ordering::Relaxed) > 0",
                "a.rs read false#1 1:26 a.load(Ordering::Relaxed) > 0",
                "a.rs f false#1 2:18 a.is() && !(read(a) || a.was())",
                "a.rs f true#1 2:18 a.is()",
                "a.rs f false#2 2:30 read(a)",
                "a.rs f false#3 2:41 a.was()",
            ]
        );
        let line = rewritten.lines().nth(1).unwrap();
        assert_eq!(
            line,
            "fn f(a: &A) { use ::weak::Cas as _; if ::weak::check(0, 3, ::weak::check(4, 0, a.is()) && \
             !(::weak::check(0, 5, read(a)) || ::weak::check(0, 6, a.was()))) { g() } }"
        );
    }

    #[test]
    fn a_literal_is_no_site() {
        let (names, _) = found(
            "fn f(a: &A) {\n\
             while true { a.store(1, Ordering::Relaxed); }\n\
             if a.is() { g() }\n\
             }",
        );
        assert_eq!(
            names,
            ["a.rs f true#1 3:4 a.is()", "a.rs f false#1 3:4 a.is()"]
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

    #[test]
    fn a_condition_with_a_pattern_stays_and_what_is_in_it_does_not() {
        let (names, _) = found(
            "fn f(a: &A) { if let Some(1) = a.load(Ordering::Acquire) { }\n\
             match a { A { b } if b.is_set() => {} _ => {} } }",
        );
        assert_eq!(
            names,
            [
                "a.rs f ordering#1 1:39 Ordering::Acquire",
                "a.rs f true#1 2:22 b.is_set()",
                "a.rs f false#1 2:22 b.is_set()",
            ]
        );
    }
}
