//! The project's own commands: `cargo xtask test`, `cargo xtask loom`, `cargo xtask weaken`, `cargo xtask package`.
//!
//! Nothing but the Rust toolchain is needed.

mod doc_tests;
mod examples;
mod package;
mod sanitize;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

const HELP: &str = "\
cargo xtask test     format, clippy, unit, property, stress and doc tests, docs, package, loom models
cargo xtask quick    the same without the package and the loom models
cargo xtask loom     the loom models alone, with deeper bounds and more programs (some hours)
cargo xtask inject   seeded bugs: the stress scenarios must find each, and each of their checks must find one (some minutes;
                     `--help` has options)
cargo xtask weaken   weakens one ordering, fence, compare-and-swap or condition at a time, and runs the loom models until one fails
                     (hours; `--help` has options)
cargo xtask package [CHECK..]  that the crates can be published: packed, documented, licences, lowest versions, oldest compiler, other targets
cargo xtask sanitize [TOOL..]  the tests under sanitizers and valgrind, as far as there are any (an hour)
";

/// One command to run, and what to call it.
struct Step {
    name: &'static str,
    command: Vec<String>,
    env: Vec<(&'static str, String)>,
}

fn cargo(name: &'static str, args: &[&str]) -> Step {
    Step {
        name,
        command: args.iter().map(ToString::to_string).collect(),
        env: Vec::new(),
    }
}

fn loom(name: &'static str, settings: &[(&'static str, &str)]) -> Step {
    // Its own target directory: flags for the whole build would otherwise rebuild everything each time.
    let target = Path::new("target").join("loom");
    let mut step = cargo(
        name,
        &[
            "test",
            "--locked",
            "--release",
            "-p",
            "loom-tests",
            "--tests",
        ],
    );
    step.env = vec![
        ("RUSTFLAGS", "--cfg expiry_loom -D warnings".into()),
        ("CARGO_TARGET_DIR", target.display().to_string()),
    ];
    step.env.extend(
        settings
            .iter()
            .map(|(name, value)| (*name, (*value).into())),
    );
    step
}

fn quick() -> Vec<Step> {
    vec![
        cargo("format", &["fmt", "--all", "--check"]),
        cargo(
            "clippy",
            &[
                "clippy",
                "--locked",
                "--workspace",
                "--all-features",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ],
        ),
        // Here it is without.
        cargo(
            "clippy, no features",
            &[
                "clippy",
                "--locked",
                "-p",
                "expiry",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ],
        ),
        // Clippy has built the benches; running them, even as tests, is not for a debug build.
        cargo(
            "tests",
            &[
                "test",
                "--locked",
                "--workspace",
                "--all-features",
                "--no-fail-fast",
                "--lib",
                "--bins",
                "--tests",
            ],
        ),
        doc_tests::step(),
        Step {
            env: vec![("RUSTDOCFLAGS", "-D warnings".into())],
            ..cargo(
                "docs",
                &[
                    "doc",
                    "--locked",
                    "--no-deps",
                    "-p",
                    "expiry",
                    "-p",
                    "expiry-topology",
                    "--all-features",
                ],
            )
        },
    ]
}

fn package() -> Step {
    cargo(
        "package",
        &["package", "--locked", "--allow-dirty", "-p", "expiry"],
    )
}

fn run(step: &Step) -> bool {
    println!("== {}: cargo {}", step.name, step.command.join(" "));
    let began = Instant::now();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let status = Command::new(cargo)
        .args(&step.command)
        .envs(step.env.iter().map(|(name, value)| (*name, value)))
        .status();
    let passed = status.as_ref().is_ok_and(std::process::ExitStatus::success);
    println!(
        "== {}: {} after {:.0} s",
        step.name,
        if passed { "passed" } else { "FAILED" },
        began.elapsed().as_secs_f64()
    );
    if let Err(error) = status {
        println!("   {error}");
    }
    passed
}

fn main() -> ExitCode {
    if let Some(code) = doc_tests::as_rustdoc() {
        return code;
    }
    let steps = match std::env::args().nth(1).as_deref() {
        Some("test") => {
            let mut steps = quick();
            steps.push(package());
            steps.push(loom("loom models", &[]));
            steps
        }
        Some("quick") => quick(),
        Some("package") => {
            let asked: Vec<String> = std::env::args().skip(2).collect();
            return package::run(&asked);
        }
        Some("inject") => {
            let run = ["run", "--locked", "-p", "seeded-bugs", "--"];
            let mut step = cargo("seeded bugs", &run);
            step.command.extend(std::env::args().skip(2));
            vec![step]
        }
        Some("loom") => {
            let mut step = loom(
                "loom models, deeper",
                &[
                    ("EXPIRY_LOOM_PREEMPTIONS", "4"),
                    // The largest would take days.
                    ("EXPIRY_LOOM_SECONDS", "300"),
                    ("EXPIRY_LOOM_PROGRAMS", "500"),
                ],
            );
            // How many executions, and what was cut short, is said even if nothing fails.
            let say = ["--no-fail-fast", "--", "--nocapture"];
            step.command.extend(say.map(String::from));
            vec![step]
        }
        Some("sanitize") => {
            let asked: Vec<String> = std::env::args().skip(2).collect();
            return sanitize::run(&asked);
        }
        Some("weaken") => {
            let mut step = cargo(
                "weaken",
                &["run", "--locked", "--release", "-p", "weaken", "--"],
            );
            step.command.extend(std::env::args().skip(2));
            vec![step]
        }
        Some("help" | "--help" | "-h") => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        other => {
            if let Some(other) = other {
                eprintln!("unknown command: {other}");
            }
            eprint!("{HELP}");
            return ExitCode::FAILURE;
        }
    };
    // Runs all of them, so that one failure does not hide another.
    let failed: Vec<&str> = steps
        .iter()
        .filter(|step| !run(step))
        .map(|step| step.name)
        .collect();
    if failed.is_empty() {
        println!("all passed");
        ExitCode::SUCCESS
    } else {
        println!("FAILED: {}", failed.join(", "));
        ExitCode::FAILURE
    }
}
