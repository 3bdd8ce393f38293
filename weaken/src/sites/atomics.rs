//! Which functions use atomics, and which ordering a path names.

use std::collections::HashSet;
use syn::visit::{self, Visit};
use syn::{ExprMethodCall, ItemFn};

/// The names of functions that use atomics, of all sources.
#[derive(Debug, Default)]
pub struct Atomics(HashSet<String>);

impl Atomics {
    /// The names that were gathered.
    pub(super) fn names(&self) -> &HashSet<String> {
        &self.0
    }

    /// Adds the functions of one source.
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
pub(super) fn uses(block: &syn::Block, names: &HashSet<String>) -> bool {
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

/// The ordering that a path names. The path may be the imported name alone.
pub(super) fn ordering(path: &syn::ExprPath) -> Option<String> {
    let mut segments = path.path.segments.iter().rev();
    let name = segments.next()?.ident.to_string();
    let of = segments.next().is_none_or(|of| of.ident == "Ordering");
    let known = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];
    (of && known.contains(&name.as_str())).then_some(name)
}
