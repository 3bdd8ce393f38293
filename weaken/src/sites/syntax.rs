//! What an expression or a signature is.

use syn::visit::Visit;
use syn::{Expr, ExprMethodCall, Signature};

pub(super) fn joins(expr: &Expr) -> bool {
    match expr {
        Expr::Paren(inner) => joins(&inner.expr),
        Expr::Binary(binary) => matches!(binary.op, syn::BinOp::And(_) | syn::BinOp::Or(_)),
        _ => false,
    }
}

pub(super) fn compares(op: &syn::BinOp) -> bool {
    use syn::BinOp::{Eq, Ge, Gt, Le, Lt, Ne};
    matches!(op, Eq(_) | Ge(_) | Gt(_) | Le(_) | Lt(_) | Ne(_))
}

pub(super) fn has_let(expr: &Expr) -> bool {
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

pub(super) fn is_fence(call: &syn::ExprCall) -> bool {
    matches!(&*call.func, Expr::Path(path)
        if path.path.segments.last().is_some_and(|last| last.ident == "fence"))
}

/// Whether a call is a compare-and-swap. It goes by the number of arguments, for there may be other
/// methods of the same name.
pub(super) fn is_cas(call: &ExprMethodCall) -> bool {
    match call.method.to_string().as_str() {
        "compare_exchange" | "compare_exchange_weak" => call.args.len() == 4,
        "fetch_update" => call.args.len() == 3,
        _ => false,
    }
}

pub(super) fn says_yes_or_no(sig: &Signature) -> bool {
    matches!(&sig.output, syn::ReturnType::Type(_, of)
        if matches!(&**of, syn::Type::Path(path) if path.path.is_ident("bool")))
}
