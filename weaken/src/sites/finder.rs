//! The visit of a source: each site gets mutants, and edits that ask for them.

use super::atomics::{ordering, uses};
use super::built::{attributes, is_built};
use super::edits::Edits;
use super::syntax::{compares, has_let, is_cas, is_fence, joins, says_yes_or_no};
use super::{Atomics, Kind, Mutant, Rewritten};
use proc_macro2::{LineColumn, Span};
use std::collections::{HashMap, HashSet};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprMethodCall, ItemFn, Signature, Stmt};

pub(super) struct Finder<'a> {
    /// The source's name.
    file: &'a str,
    source: &'a str,
    atomics: &'a HashSet<String>,
    /// The number of the first mutant.
    first: usize,
    /// The names of the modules, types and functions that the visit is in.
    within: Vec<String>,
    /// Whether conditions are sites here: they are none in functions without atomics.
    looks: bool,
    /// How many mutants of a kind a function has.
    counts: HashMap<(String, Kind), usize>,
    mutants: Vec<Mutant>,
    edits: Edits,
}

impl Finder<'_> {
    /// Finds the sites of one source and rewrites it.
    pub(super) fn rewrite(
        file: &str,
        source: &str,
        atomics: &Atomics,
        first: usize,
    ) -> syn::Result<Rewritten> {
        let mut finder = Finder {
            file,
            source,
            atomics: atomics.names(),
            first,
            within: Vec::new(),
            looks: false,
            counts: HashMap::new(),
            mutants: Vec::new(),
            edits: Edits::default(),
        };
        finder.visit_file(&syn::parse_file(source)?);
        Ok(Rewritten {
            source: finder.edits.apply(source),
            mutants: finder.mutants,
        })
    }

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

    /// Makes a condition a site, with the mutants that are wanted of it.
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
        self.edits.around(
            span.byte_range(),
            format!("::weak::check({to_true}, {to_false}, "),
            ")".into(),
        );
    }

    /// Visits the parts of an expression; the expression itself is no comparison here.
    fn inside(&mut self, expr: &Expr) {
        match expr {
            Expr::Call(call) if is_fence(call) => {
                let number = self.mutant(Kind::Fence, call.span());
                let before = format!("if ::weak::stays({number}) {{ ");
                self.edits
                    .around(call.span().byte_range(), before, " }".into());
            }
            Expr::MethodCall(call) if is_cas(call) => self.cas(call),
            Expr::Path(path) => {
                if ordering(path).is_some_and(|name| name != "Relaxed") {
                    let number = self.mutant(Kind::Ordering, path.span());
                    let before = format!("::weak::order({number}, ");
                    self.edits
                        .around(path.span().byte_range(), before, ")".into());
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
        self.edits.insert(method.start, "weak_".into());
        self.edits.insert(arguments, format!("{number}, "));
        visit::visit_expr_method_call(self, call);
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

    fn function(&mut self, attributes: &[Attribute], sig: &Signature, block: &syn::Block) {
        if !is_built(attributes) || sig.constness.is_some() {
            return;
        }
        let looked = self.looks;
        self.looks = uses(block, self.atomics);
        self.within.push(sig.ident.to_string());
        let open = block.brace_token.span.open().byte_range().end;
        self.edits.insert(open, " use ::weak::Cas as _;".into());
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
