//! Small sources, and the sites in them.

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
