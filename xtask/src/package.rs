//! `cargo xtask package [CHECK..]`: that the crates can be published, and built by those who then use them.
//!
//! What a check needs and this machine has not is *not available*, which is neither passed nor failed: the table says so, and why.
//!
//! | check | needs |
//! |---|---|
//! | `package` | nothing: packs both crates, and builds what was packed |
//! | `docs --all-features`, `docs --no-default-features` | nothing: no warning |
//! | `examples` | a nightly compiler, for what it says in JSON: every public item's documentation has an example |
//! | `licences` | nothing: `cargo tree` says them; `deny.toml` has those that are accepted |
//! | `cargo deny` | that command: the same, and bans, advisories, sources |
//! | `lowest direct`, `lowest` | a nightly compiler: builds with the lowest versions of dependencies that the manifests allow, direct ones or all |
//! | `oldest compiler` | the toolchain of `rust-version`, and versions of dependencies that know it. Clippy's `incompatible_msrv`, which is always on, knows of methods and not of trait implementations |
//! | targets | the standard library of each (`rustup target add`): that it builds there, not that it works |

use crate::examples;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

const CRATES: [&str; 2] = ["expiry", "expiry-topology"];

const FEATURES: [&str; 5] = [
    "expiry/async",
    "expiry/serde",
    "expiry/tracing",
    "expiry/metrics",
    "expiry-topology/metrics",
];

/// Where it should build.
const TARGETS: [&str; 4] = [
    "aarch64-apple-darwin",
    "aarch64-unknown-linux-gnu",
    "i686-unknown-linux-gnu",
    "x86_64-pc-windows-gnu",
];

/// A target without 64-bit atomics, which must be refused, and with what words.
const REFUSED: (&str, &str) = ("powerpc-unknown-linux-gnu", "needs 64-bit atomics");

enum Verdict {
    Passed,
    /// With the reason, where nothing has been printed that says it.
    Failed(String),
    NotAvailable(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Passed => f.write_str("passed"),
            Verdict::Failed(why) => write!(f, "FAILED {why}"),
            Verdict::NotAvailable(why) => write!(f, "NOT AVAILABLE: {why}"),
        }
    }
}

use Verdict::{Failed, NotAvailable, Passed};

/// Runs the checks of these names, or all.
pub fn run(asked: &[String]) -> ExitCode {
    let mut rows: Vec<(String, Verdict, f64)> = Vec::new();
    let mut check = |name: &str, what: &dyn Fn() -> Verdict| {
        if !asked.is_empty() && !asked.iter().any(|asked| asked == name) {
            return;
        }
        println!("== {name}");
        let began = Instant::now();
        let verdict = what();
        println!("== {name}: {verdict}");
        rows.push((name.to_string(), verdict, began.elapsed().as_secs_f64()));
    };
    check("package", &packaged);
    for features in ["--all-features", "--no-default-features"] {
        check(&format!("docs {features}"), &|| documented(features));
    }
    check("examples", &exemplified);
    check("licences", &licensed);
    check("cargo deny", &denied);
    check("lowest direct", &|| lowest("direct-minimal-versions"));
    check("lowest", &|| lowest("minimal-versions"));
    check("oldest compiler", &oldest);
    for target in TARGETS {
        check(target, &|| builds(target));
    }
    check(REFUSED.0, &refused);

    println!();
    let mut failed = 0;
    let mut missing = 0;
    for (name, verdict, seconds) in &rows {
        println!("{name:28} {seconds:5.0} s  {verdict}");
        failed += usize::from(matches!(verdict, Failed(_)));
        missing += usize::from(matches!(verdict, NotAvailable(_)));
    }
    println!("{failed} failed, {missing} were not available");
    if rows.is_empty() {
        println!("there is no check of that name: {asked:?}");
        return ExitCode::FAILURE;
    }
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn packages() -> impl Iterator<Item = &'static str> {
    CRATES.into_iter().flat_map(|name| ["-p", name])
}

/// Cargo of a toolchain, or of this one.
fn cargo(toolchain: Option<&str>) -> Command {
    let mut cargo = Command::new("cargo");
    if let Some(toolchain) = toolchain {
        cargo.arg(format!("+{toolchain}"));
        // What runs this one would hide the toolchain that is asked for.
        for name in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN"] {
            cargo.env_remove(name);
        }
    }
    cargo.current_dir(root());
    cargo
}

fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}

fn target_directory() -> PathBuf {
    let set = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    root().join(set.unwrap_or_else(|| "target".into()))
}

fn verdict(command: &mut Command) -> Verdict {
    match command.status() {
        Ok(status) if status.success() => Passed,
        Ok(status) => Failed(format!("({status})")),
        Err(error) => Failed(error.to_string()),
    }
}

/// What a command says, and whether it succeeds.
fn said(command: &mut Command) -> Result<(bool, String), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| {
        let program = command.get_program().to_string_lossy().into_owned();
        format!("{program}: {error}")
    })?;
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    Ok((output.status.success(), text.into_owned()))
}

/// Whether a command succeeds; if not, the last thing that it says.
fn works(command: &mut Command) -> Result<(), String> {
    match said(command)? {
        (true, _) => Ok(()),
        (false, text) => Err(text.lines().last().unwrap_or_default().to_string()),
    }
}

fn packaged() -> Verdict {
    let mut package = cargo(None);
    package.args(["package", "--locked", "--allow-dirty"]);
    verdict(package.args(packages()))
}

fn documented(features: &str) -> Verdict {
    let mut doc = cargo(None);
    doc.args(["doc", "--locked", "--no-deps", features]);
    verdict(doc.args(packages()).env("RUSTDOCFLAGS", "-D warnings"))
}

fn exemplified() -> Verdict {
    if let Err(missing) = is_there("nightly") {
        return missing;
    }
    let mut doc = cargo(Some("nightly"));
    doc.args(["doc", "--locked", "--no-deps", "--all-features"]);
    doc.env("RUSTDOCFLAGS", "-Z unstable-options --output-format json");
    let written = verdict(doc.args(packages()));
    let Passed = written else {
        return written;
    };
    let mut without = 0;
    for name in CRATES {
        let path = target_directory()
            .join("doc")
            .join(name.replace('-', "_") + ".json");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => return Failed(format!("{}: {error}", path.display())),
        };
        let json = serde_json::from_str(&text).unwrap_or_default();
        match examples::missing(&json) {
            Some((asked, missing)) if asked > 0 => {
                println!("{name}: {asked} items");
                for item in &missing {
                    println!("  no example: {item}");
                }
                without += missing.len();
            }
            _ => return NotAvailable("this nightly writes another JSON".to_string()),
        }
    }
    if without == 0 {
        Passed
    } else {
        Failed(format!("{without} items without an example"))
    }
}

/// The licences that `deny.toml` accepts.
fn accepted() -> Result<Vec<String>, String> {
    let path = root().join("deny.toml");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("deny.toml: {error}"))?;
    let list = text
        .split_once("\nallow = [")
        .and_then(|(_, rest)| rest.split_once(']'));
    let list = list.ok_or("deny.toml has no list of licences")?.0;
    // The odd ones are between quotes.
    Ok(list
        .split('"')
        .skip(1)
        .step_by(2)
        .map(String::from)
        .collect())
}

/// Whether what a manifest says can be had under accepted licences only. An expression of another form than a conjunction of
/// alternatives is not.
fn is_accepted(expression: &str, accepted: &[String]) -> bool {
    let expression = expression.replace('/', " OR ");
    expression.split(" AND ").all(|part| {
        let part = part.trim().trim_start_matches('(').trim_end_matches(')');
        let mut alternatives = part.split(" OR ").map(str::trim);
        alternatives.any(|licence| accepted.iter().any(|one| one == licence))
    })
}

fn licensed() -> Verdict {
    let accepted = match accepted() {
        Ok(accepted) => accepted,
        Err(why) => return Failed(why),
    };
    let mut tree = cargo(None);
    tree.args(["tree", "--locked", "--workspace", "--all-features"]);
    tree.args(["--target", "all", "--prefix", "none", "--format", "{p}|{l}"]);
    let text = match said(&mut tree) {
        Ok((true, text)) => text,
        Ok((false, why)) | Err(why) => return Failed(why),
    };
    let lines = text.lines().filter_map(|line| line.split_once('|'));
    let mut refused: Vec<String> = lines
        // Those with a path are ours.
        .filter(|(package, licence)| {
            let licence = licence.trim_end_matches(" (*)");
            !package.contains(" (/") && !is_accepted(licence, &accepted)
        })
        .map(|(package, licence)| format!("{package}: {licence:?}"))
        .collect();
    refused.sort_unstable();
    refused.dedup();
    if refused.is_empty() {
        Passed
    } else {
        Failed(refused.join("; "))
    }
}

fn denied() -> Verdict {
    if let Err(why) = works(cargo(None).args(["deny", "--version"])) {
        return NotAvailable(why);
    }
    verdict(cargo(None).args(["deny", "check"]))
}

/// What was packed, unpacked into a workspace of its own: as those see it who depend on it, and without a lock file.
fn unpacked(name: &str) -> Result<PathBuf, String> {
    let place = target_directory().join("packed").join(name);
    let failed = |error: std::io::Error| format!("{}: {error}", place.display());
    if place.exists() {
        std::fs::remove_dir_all(&place).map_err(failed)?;
    }
    std::fs::create_dir_all(&place).map_err(failed)?;
    let mut package = cargo(None);
    package.args(["package", "--locked", "--allow-dirty", "--no-verify"]);
    works(package.args(packages()))?;
    let version = env!("CARGO_PKG_VERSION");
    let mut members = Vec::new();
    for name in CRATES {
        let member = format!("{name}-{version}");
        let packed = target_directory()
            .join("package")
            .join(format!("{member}.crate"));
        works(
            Command::new("tar")
                .arg("-xzf")
                .arg(packed)
                .arg("-C")
                .arg(&place),
        )?;
        std::fs::remove_file(place.join(&member).join("Cargo.lock")).map_err(failed)?;
        members.push(member);
    }
    let manifest = format!(
        "[workspace]\nresolver = \"2\"\nmembers = {members:?}\n[patch.crates-io]\nexpiry = {{ path = {:?} }}\n",
        members[0]
    );
    std::fs::write(place.join("Cargo.toml"), manifest).map_err(failed)?;
    Ok(place)
}

/// Runs a toolchain's cargo at what was packed.
fn at(place: &Path, toolchain: &str, args: &[&str]) -> Command {
    let mut cargo = cargo(Some(toolchain));
    cargo.current_dir(place).args(args);
    cargo.env("CARGO_TARGET_DIR", place.join("target"));
    cargo
}

fn is_there(toolchain: &str) -> Result<(), Verdict> {
    works(cargo(Some(toolchain)).arg("--version")).map_err(NotAvailable)
}

fn lowest(which: &str) -> Verdict {
    if let Err(missing) = is_there("nightly") {
        return missing;
    }
    let place = match unpacked(which) {
        Ok(place) => place,
        Err(why) => return Failed(why),
    };
    let resolved = verdict(&mut at(&place, "nightly", &["update", "-Z", which]));
    let Passed = resolved else {
        return resolved;
    };
    verdict(
        at(
            &place,
            "nightly",
            &["check", "--locked", "--lib", "--all-features"],
        )
        .args(packages()),
    )
}

fn oldest() -> Verdict {
    let toolchain = env!("CARGO_PKG_RUST_VERSION");
    if let Err(missing) = is_there(toolchain) {
        return missing;
    }
    let place = match unpacked("oldest") {
        Ok(place) => place,
        Err(why) => return Failed(why),
    };
    // That compiler's own cargo would take the newest of everything.
    let mut resolve = cargo(None);
    resolve.current_dir(&place).arg("generate-lockfile");
    resolve.env("CARGO_RESOLVER_INCOMPATIBLE_RUST_VERSIONS", "fallback");
    let resolved = verdict(&mut resolve);
    let Passed = resolved else {
        return resolved;
    };
    for features in ["--all-features", "--no-default-features"] {
        let checked = verdict(
            at(&place, toolchain, &["check", "--locked", "--lib", features]).args(packages()),
        );
        let Passed = checked else {
            return checked;
        };
    }
    Passed
}

fn check_for(target: &str) -> Result<Command, Verdict> {
    let mut installed = Command::new("rustup");
    let listed = said(installed.args(["target", "list", "--installed"])).map_err(NotAvailable)?;
    if !listed.1.lines().any(|line| line == target) {
        return Err(NotAvailable(
            "its standard library is not installed".to_string(),
        ));
    }
    let mut check = cargo(None);
    check.args([
        "check",
        "--locked",
        "--lib",
        "--target",
        target,
        "--features",
    ]);
    check.arg(FEATURES.join(","));
    check.args(packages());
    Ok(check)
}

fn builds(target: &str) -> Verdict {
    match check_for(target) {
        Ok(mut check) => verdict(&mut check),
        Err(missing) => missing,
    }
}

fn refused() -> Verdict {
    match check_for(REFUSED.0).map(|mut check| said(&mut check)) {
        Ok(Ok((false, text))) if text.contains(REFUSED.1) => Passed,
        Ok(Ok((false, _))) => Failed(format!("it does not say that it {}", REFUSED.1)),
        Ok(Ok((true, _))) => Failed("it builds, which it should not".to_string()),
        Ok(Err(why)) => Failed(why),
        Err(missing) => missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_alternatives_and_conjunctions() {
        let accepted = ["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"].map(String::from);
        for expression in [
            "MIT",
            "Apache-2.0 OR MIT",
            "Apache-2.0/MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        ] {
            assert!(is_accepted(expression, &accepted), "{expression}");
        }
        for expression in [
            "",
            "GPL-3.0",
            "Apache-2.0",
            "MIT AND GPL-3.0",
            "(MIT OR Zlib) AND BSL-1.0",
        ] {
            assert!(!is_accepted(expression, &accepted), "{expression}");
        }
    }

    #[test]
    fn the_accepted_licences_are_read() {
        let accepted = accepted().unwrap();
        assert!(
            accepted.contains(&"MIT".to_string()) && accepted.len() == 5,
            "{accepted:?}"
        );
    }
}
