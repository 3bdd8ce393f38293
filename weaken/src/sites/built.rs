//! Which code is a part of the models' build.

use syn::{Attribute, Expr, Meta};

/// The attributes of an expression, where it is of a kind that can be a statement, or that this
/// workspace puts under a `cfg`.
pub(super) fn attributes(expr: &Expr) -> &[Attribute] {
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

/// Whether an item with these attributes is a part of the models' build.
pub(super) fn is_built(attributes: &[Attribute]) -> bool {
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
