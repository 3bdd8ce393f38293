//! `cargo xtask sanitize [TOOL..]`: the tests under the tools that see what a test cannot: memory used after it was freed, memory lost,
//! data races.
//!
//! No tool is believed before it has been seen to work here. Each is first given the canaries (`xtask/canaries`): programs with one
//! bug each, which it has to report, and a correct one with threads, which it must not. A tool that fails that, or is not
//! installed, is *not available*: the table says so, and why.
//!
//! | tool | needs |
//! |---|---|
//! | `address` | a nightly compiler. AddressSanitizer, and with it LeakSanitizer; the doc tests too |
//! | `thread` | a nightly compiler. Without `rust-src`, `std` is not instrumented: what then looks like a race in it is in `xtask/canaries/tsan.supp` |
//! | `miri` | the component of that name. What has no mapped memory only: the wheel, `RotatingMap` |
//! | `memcheck` | valgrind |
//! | `helgrind`, `drd` | valgrind. Neither knows how `std` waits, nor atomics: so far neither has let the correct canary pass |
//!
//! Property tests run few cases, unless `EXPIRY_PROP_CASES` says otherwise.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::time::Instant;

const TARGET: &str = "x86_64-unknown-linux-gnu";

const PACKAGES: [&str; 4] = ["expiry", "expiry-topology", "fuzz-tests", "stress"];

/// Tests of how much memory the process takes, which is not what it is under a tool that replaces the allocator.
const MEASURING: [&str; 3] = ["memory", "rotating_memory", "wheel_memory"];

/// The same, among tests of other things.
const SKIPPED: [&str; 1] = ["growth_of_all_kinds_and_back"];

/// What valgrind is told to exit with if it has reported something.
const REPORTED: i32 = 99;

/// Of the many, those that valgrind, fifty times slower and on one core, is given.
const UNDER_VALGRIND: [&str; 9] = [
    "expiry",
    "rotating",
    "keyed",
    "queue",
    "expiring_map",
    "sessions",
    "oracle",
    "trees",
    "threads",
];

/// Those that ThreadSanitizer is given where `std` is not instrumented: in the others threads wait for each other by locks, channels
/// or the end of a scope, which it does not see then.
const WITHOUT_LOCKS: [&str; 15] = [
    "attack",
    "attack_keyed",
    "drops",
    "expiring_map",
    "features",
    "keyed",
    "keyed_leases",
    "map_oracle",
    "oracle",
    "queue",
    "queue_oracle",
    "reclaim",
    "session_memory",
    "sessions",
    "tracker_leases",
];

enum Verdict {
    Clean,
    Found,
    /// A test has failed, and the tool has reported nothing.
    Failed,
    /// With the reason.
    NotAvailable(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Clean => f.write_str("nothing found"),
            Verdict::Found => f.write_str("FOUND SOMETHING"),
            Verdict::Failed => f.write_str("a test FAILED, without a report"),
            Verdict::NotAvailable(why) => write!(f, "NOT AVAILABLE: {why}"),
        }
    }
}

/// A line of the table.
struct Row {
    tool: &'static str,
    what: String,
    verdict: Verdict,
    seconds: f64,
}

/// How something is built and run.
struct Tool {
    name: &'static str,
    /// Canaries, and what is said of each if it is caught.
    catches: &'static [(&'static str, &'static str)],
    /// Correct programs, which it must not report.
    passes: &'static [&'static str],
    toolchain: Option<&'static str>,
    flags: String,
    build_std: bool,
    /// What runs the program, if it does not run by itself.
    wrapper: &'static [&'static str],
    only: Option<&'static [&'static str]>,
    prop_cases: &'static str,
}

/// Correct programs: with locks and channels, and without.
const CORRECT: [&str; 2] = ["clean", "clean_without_locks"];

const ADDRESS: &[(&str, &str)] = &[
    ("use_after_free", "heap-use-after-free"),
    ("leak", "detected memory leaks"),
];
const MEMCHECK: &[(&str, &str)] = &[
    ("use_after_free", "Invalid read"),
    ("leak", "definitely lost"),
];

fn nightly(name: &'static str, catches: &'static [(&'static str, &'static str)]) -> Tool {
    Tool {
        name,
        catches,
        passes: &CORRECT,
        toolchain: Some("+nightly"),
        flags: format!("-Zsanitizer={name} -Cforce-frame-pointers=yes"),
        build_std: false,
        wrapper: &[],
        only: None,
        prop_cases: "10",
    }
}

fn valgrind(
    name: &'static str,
    catches: &'static [(&'static str, &'static str)],
    wrapper: &'static [&'static str],
) -> Tool {
    Tool {
        name,
        catches,
        passes: &CORRECT,
        toolchain: None,
        flags: String::new(),
        build_std: false,
        wrapper,
        only: Some(&UNDER_VALGRIND),
        prop_cases: "1",
    }
}

impl Tool {
    fn cargo(&self) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.args(self.toolchain);
        // What runs this one would hide the toolchain that is asked for.
        for name in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN"] {
            cargo.env_remove(name);
        }
        cargo.env("RUSTFLAGS", &self.flags);
        cargo.env("RUSTDOCFLAGS", &self.flags);
        cargo.env(
            "CARGO_TARGET_DIR",
            target_directory().join(self.name_of_build()),
        );
        cargo
    }

    /// Those that are built in the same way share what is built.
    fn name_of_build(&self) -> &'static str {
        self.toolchain.map_or("plain", |_| self.name)
    }

    fn build_args(&self, args: &[&'static str]) -> Vec<&'static str> {
        let mut all = args.to_vec();
        all.extend(["--target", TARGET]);
        if self.build_std {
            all.push("-Zbuild-std");
        }
        all
    }

    /// Runs a program that has been built.
    fn run(&self, program: &Path, folder: &Path, args: &[&str]) -> Result<Output, String> {
        let mut command = match self.wrapper.split_first() {
            Some((wrapper, options)) => {
                let mut command = Command::new(wrapper);
                command.args(options).arg(program);
                command
            }
            None => Command::new(program),
        };
        let cases = std::env::var("EXPIRY_PROP_CASES");
        command
            .args(args)
            .current_dir(folder)
            .env(
                "EXPIRY_PROP_CASES",
                cases.as_deref().unwrap_or(self.prop_cases),
            )
            .env(
                "ASAN_OPTIONS",
                "detect_leaks=1:detect_stack_use_after_return=1",
            )
            .env(
                "LSAN_OPTIONS",
                format!(
                    "suppressions={}",
                    root().join("xtask/canaries/lsan.supp").display()
                ),
            )
            .env(
                "TSAN_OPTIONS",
                format!(
                    "halt_on_error=0:second_deadlock_stack=1:suppressions={}",
                    root().join("xtask/canaries/tsan.supp").display()
                ),
            );
        let output = command.output();
        output.map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))
    }

    /// Whether it catches what it should and says nothing of what is correct; if not, why it is not to be believed.
    fn is_seen_to_work(&self) -> Result<(), String> {
        let root = root();
        let mut build = self.cargo();
        build
            .args(self.build_args(&["build", "--quiet"]))
            .arg("--manifest-path")
            .arg(root.join("xtask/canaries/Cargo.toml"));
        let built = output(&mut build)?;
        if !built.status.success() {
            return Err(format!("the canaries do not build: {}", last_line(&built)));
        }
        let folder = target_directory()
            .join(self.name_of_build())
            .join(TARGET)
            .join("debug");
        for (canary, said) in self.catches {
            let ran = self.run(&folder.join(canary), &root, &[])?;
            if ran.status.success() || !text(&ran).contains(said) {
                return Err(format!("it does not catch the canary {canary:?}"));
            }
        }
        for canary in self.passes {
            let ran = self.run(&folder.join(canary), &root, &[])?;
            if !ran.status.success() {
                return Err(format!("it reports the correct canary {canary:?}"));
            }
        }
        Ok(())
    }

    /// Builds the tests, all packages together: each's name, where it is, and the folder that it runs in.
    fn tests(&self) -> Result<Vec<(String, PathBuf, PathBuf)>, String> {
        let mut build = self.cargo();
        build.args(self.build_args(&["test", "--locked", "--no-run"]));
        build.args(["--lib", "--bins", "--tests", "--message-format=json"]);
        for package in PACKAGES {
            build.args(["-p", package]);
        }
        let built = output(&mut build)?;
        if !built.status.success() {
            eprint!("{}", String::from_utf8_lossy(&built.stderr));
            return Err("the tests do not build".to_string());
        }
        let test = |line: &str| {
            let program = PathBuf::from(field(line, "executable")?);
            let folder = Path::new(field(line, "manifest_path")?).parent()?;
            let (name, _) = program.file_name()?.to_str()?.rsplit_once('-')?;
            let package = if folder == root() {
                "expiry"
            } else {
                folder.file_name()?.to_str()?
            };
            let name = format!("{package}: {name}");
            Some((name, program.clone(), folder.to_path_buf()))
        };
        let all = String::from_utf8_lossy(&built.stdout);
        Ok(all.lines().filter_map(test).collect())
    }

    fn sweep(&self, rows: &mut Vec<Row>) {
        let mut add = |what: String, verdict: Verdict, began: Instant| {
            let (tool, seconds) = (self.name, began.elapsed().as_secs_f64());
            println!("== {tool}, {what}: {verdict} ({seconds:.0} s)");
            rows.push(Row {
                tool,
                what,
                verdict,
                seconds,
            });
        };
        let began = Instant::now();
        if let Err(why) = self.is_seen_to_work() {
            return add("canaries".into(), Verdict::NotAvailable(why), began);
        }
        let caught: Vec<&str> = self.catches.iter().map(|(canary, _)| *canary).collect();
        let what = format!(
            "canaries: {} caught; {} passed",
            caught.join(", "),
            self.passes.join(", ")
        );
        add(what, Verdict::Clean, began);
        let began = Instant::now();
        let tests = match self.tests() {
            Ok(tests) => tests,
            // Of a tool that works: as bad as a test that fails.
            Err(why) => return add(why, Verdict::Failed, began),
        };
        for (what, program, folder) in tests {
            let (_, name) = what.rsplit_once(' ').unwrap_or_default();
            if self.only.is_some_and(|only| !only.contains(&name)) {
                continue;
            }
            let began = Instant::now();
            let verdict = if MEASURING.contains(&name) {
                Verdict::NotAvailable("it measures memory".to_string())
            } else {
                let skipped: Vec<&str> = SKIPPED.iter().flat_map(|test| ["--skip", test]).collect();
                verdict(self.run(&program, &folder, &skipped))
            };
            add(what, verdict, began);
        }
        if self.wrapper.is_empty() {
            let began = Instant::now();
            let mut doc = self.cargo();
            doc.args(self.build_args(&["test", "--locked", "--doc"]));
            let ran = output(doc.args(["-p", "expiry", "-p", "expiry-topology"]));
            let verdict = verdict(ran);
            add("doc tests".into(), verdict, began);
        }
    }
}

/// Miri runs through cargo, and cannot map memory: so the parts that have none.
fn miri(rows: &mut Vec<Row>) {
    let began = Instant::now();
    let miri = |args: &[&str]| {
        let mut cargo = Command::new("cargo");
        cargo.args(["+nightly", "miri"]).args(args);
        for name in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN"] {
            cargo.env_remove(name);
        }
        cargo.env("CARGO_TARGET_DIR", target_directory().join("miri"));
        cargo.env("MIRIFLAGS", "-Zmiri-disable-isolation");
        cargo.env("EXPIRY_PROP_CASES", "1");
        output(&mut cargo)
    };
    let canary = |name| {
        let manifest = root().join("xtask/canaries/Cargo.toml");
        miri(&[
            "run",
            "--manifest-path",
            &manifest.to_string_lossy(),
            "--bin",
            name,
        ])
    };
    let works = || {
        if !miri(&["--version"])?.status.success() {
            return Err("the component is not installed".to_string());
        }
        for name in ["use_after_free", "leak", "race"] {
            if canary(name)?.status.success() {
                return Err(format!("it does not catch the canary {name:?}"));
            }
        }
        match CORRECT
            .iter()
            .all(|name| canary(name).is_ok_and(|ran| ran.status.success()))
        {
            true => Ok(()),
            false => Err("it reports the correct canary".to_string()),
        }
    };
    let mut add = |what: &str, verdict: Verdict, began: Instant| {
        let (tool, seconds) = ("miri", began.elapsed().as_secs_f64());
        println!("== {tool}, {what}: {verdict} ({seconds:.0} s)");
        rows.push(Row {
            tool,
            what: what.into(),
            verdict,
            seconds,
        });
    };
    if let Err(why) = works() {
        return add("canaries", Verdict::NotAvailable(why), began);
    }
    for part in ["wheel", "rotating"] {
        let began = Instant::now();
        let ran = miri(&["test", "--locked", "-p", "expiry", "--lib", part]);
        add(part, verdict(ran), began);
    }
}

fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

fn target_directory() -> PathBuf {
    let given = std::env::var_os("CARGO_TARGET_DIR");
    given
        .map_or_else(|| root().join("target"), PathBuf::from)
        .join("sanitize")
}

fn output(command: &mut Command) -> Result<Output, String> {
    let ran = command.current_dir(root()).output();
    ran.map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

/// Of what ran under a tool.
fn verdict(ran: Result<Output, String>) -> Verdict {
    match ran {
        Ok(ran) if ran.status.success() => Verdict::Clean,
        Ok(ran) => {
            let text = text(&ran);
            print!("{text}");
            if ran.status.code() == Some(REPORTED) || text.contains("Sanitizer: ") {
                Verdict::Found
            } else {
                Verdict::Failed
            }
        }
        Err(why) => Verdict::NotAvailable(why),
    }
}

/// A text in a line of JSON, of those that have nothing to be unescaped.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!("\"{name}\":\""))?;
    rest.split('"').next()
}

fn last_line(output: &Output) -> String {
    text(output).lines().last().unwrap_or_default().to_string()
}

fn has_rust_src() -> bool {
    let mut rustc = Command::new("rustc");
    let sysroot = output(
        rustc
            .args(["+nightly", "--print", "sysroot"])
            .env_remove("RUSTUP_TOOLCHAIN"),
    );
    let Ok(sysroot) = sysroot else { return false };
    let sysroot = String::from_utf8_lossy(&sysroot.stdout).trim().to_string();
    Path::new(&sysroot)
        .join("lib/rustlib/src/rust/library")
        .is_dir()
}

/// Runs the tools that are asked for, or all of them.
pub fn run(asked: &[String]) -> ExitCode {
    let mut thread = nightly("thread", &[("race", "data race")]);
    // Fences are not seen: crossbeam has read-modify-writes in their place.
    thread.flags += " --cfg crossbeam_sanitize_thread";
    thread.build_std = has_rust_src();
    if !thread.build_std {
        thread.flags += " -Cunsafe-allow-abi-mismatch=sanitizer";
        thread.passes = &CORRECT[1..];
        thread.only = Some(&WITHOUT_LOCKS);
    }
    let tools = [
        nightly("address", ADDRESS),
        thread,
        valgrind(
            "memcheck",
            MEMCHECK,
            &[
                "valgrind",
                "--error-exitcode=99",
                "--leak-check=full",
                "--errors-for-leak-kinds=definite",
                "--quiet",
            ],
        ),
        valgrind(
            "helgrind",
            &[("race", "Possible data race")],
            &[
                "valgrind",
                "--tool=helgrind",
                "--error-exitcode=99",
                "--quiet",
            ],
        ),
        valgrind(
            "drd",
            &[("race", "Conflicting")],
            &["valgrind", "--tool=drd", "--error-exitcode=99", "--quiet"],
        ),
    ];
    let known = |name: &String| name == "miri" || tools.iter().any(|tool| tool.name == name);
    if let Some(other) = asked.iter().find(|name| !known(name)) {
        eprintln!("unknown tool: {other}");
        return ExitCode::FAILURE;
    }
    let is_asked = |name: &str| asked.is_empty() || asked.iter().any(|asked| asked == name);
    let mut rows = Vec::new();
    for tool in tools.iter().filter(|tool| is_asked(tool.name)) {
        tool.sweep(&mut rows);
    }
    if is_asked("miri") {
        miri(&mut rows);
    }
    println!("\n| tool | what ran | result | seconds |\n|---|---|---|---|");
    for row in &rows {
        println!(
            "| {} | {} | {} | {:.0} |",
            row.tool, row.what, row.verdict, row.seconds
        );
    }
    let count = |is: fn(&Verdict) -> bool| rows.iter().filter(|row| is(&row.verdict)).count();
    let found = count(|verdict| matches!(verdict, Verdict::Found | Verdict::Failed));
    let missing = count(|verdict| matches!(verdict, Verdict::NotAvailable(_)));
    println!("\n{found} found something or failed, {missing} were not available");
    if found == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
