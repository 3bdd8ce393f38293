//! `cargo xtask sanitize [TOOL..]`: the tests under the tools that see what a test cannot: use of
//! freed memory, lost memory, data races.
//!
//! No tool is believed before it has been seen to work on this machine. Each tool first gets the
//! canaries (`xtask/canaries`): programs with one bug each, which must fail under it, and a correct
//! program with threads, which must pass. A tool that is not installed fails at its canaries.
//!
//! | tool | needs |
//! |---|---|
//! | `address` | a nightly compiler: AddressSanitizer with LeakSanitizer |
//! | `thread` | a nightly compiler with `rust-src`, so that `std` is instrumented |
//! | `miri` | that component of a nightly compiler; only code without mapped memory runs under it |
//! | `memcheck` | valgrind |

use super::{cargo, Step};
use std::path::Path;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A correct program.
const CLEAN: &str = "clean";

struct Tool {
    name: &'static str,
    /// The canaries that must fail.
    catches: &'static [&'static str],
    /// What stands between `cargo` and `run` or `test`.
    cargo: &'static str,
    flags: &'static str,
    options: &'static str,
    /// Runs the program, where that does not run by itself.
    runner: &'static str,
    prop_cases: &'static str,
    /// The tests to run. Tests of how much memory the process takes (`alone`) are never among them.
    tests: &'static [&'static str],
}

const LIBRARIES: [&str; 2] = [
    "-p expiry --all-features --lib --test it",
    "-p expiry-wheel -p expiry-topology -p model --all-features --lib --tests",
];

const TOOLS: [Tool; 4] = [
    Tool {
        name: "address",
        catches: &["use_after_free", "leak"],
        cargo: "+nightly",
        flags: "-Zsanitizer=address -Cforce-frame-pointers=yes",
        options: "--target",
        runner: "",
        prop_cases: "10",
        tests: &[
            LIBRARIES[0],
            LIBRARIES[1],
            "-p stress --bins --test it -- --skip growth_of_all_kinds_and_back",
        ],
    },
    Tool {
        name: "thread",
        catches: &["race"],
        cargo: "+nightly",
        // ThreadSanitizer sees no fences: crossbeam uses read-modify-writes in their place.
        flags: "-Zsanitizer=thread -Cforce-frame-pointers=yes --cfg crossbeam_sanitize_thread",
        options: "-Zbuild-std --target",
        runner: "",
        prop_cases: "10",
        // Scenarios of `stress` judge how late things are, and are too slow here.
        tests: &LIBRARIES,
    },
    Tool {
        name: "miri",
        catches: &["use_after_free", "leak", "race"],
        cargo: "+nightly miri",
        flags: "",
        options: "--target",
        runner: "",
        prop_cases: "1",
        tests: &["-p expiry-wheel --lib"],
    },
    Tool {
        name: "memcheck",
        catches: &["use_after_free", "leak"],
        cargo: "",
        flags: "",
        options: "--target",
        runner: "valgrind --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite --quiet",
        prop_cases: "1",
        // Fifty times slower, and on one core.
        tests: &[
            "-p expiry --all-features --lib --test it -- queue:: expiring_map:: sessions:: oracle:: threads:: tracker_leases::",
            "-p expiry-wheel --test it",
            "-p expiry-topology --test it -- trees::",
        ],
    },
];

impl Tool {
    fn step(&self, what: &str, args: &str) -> Step {
        // Paths are of the workspace, and tests run in the folders of their crates.
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        let root = root.unwrap_or(Path::new("")).display().to_string();
        let suppressed = |of: &str| format!("suppressions={root}/xtask/canaries/{of}.supp");
        // Tests leave threads behind that wait for ever: stores that own themselves.
        let thread_options =
            format!("second_deadlock_stack=1:report_thread_leaks=0:{}", suppressed("tsan"));
        let mut step = cargo(&format!("{}: {what}", self.name), &format!("{} {args}", self.cargo))
            .with("RUSTFLAGS", self.flags)
            .with("CARGO_TARGET_DIR", format!("target/sanitize/{}", self.name))
            .with("EXPIRY_PROP_CASES", self.prop_cases)
            .with("MIRIFLAGS", "-Zmiri-disable-isolation")
            .with("ASAN_OPTIONS", "detect_leaks=1:detect_stack_use_after_return=1")
            .with("LSAN_OPTIONS", suppressed("lsan"))
            .with("TSAN_OPTIONS", thread_options);
        if !self.runner.is_empty() {
            step = step.with("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", self.runner);
        }
        step
    }

    /// The canaries and the tests. With a canary that behaves otherwise the tests say nothing.
    fn steps(&self) -> Vec<Step> {
        let canary = |name: &str| {
            let manifest = "--manifest-path xtask/canaries/Cargo.toml";
            let args = format!("run --quiet {manifest} {} {TARGET} --bin {name}", self.options);
            self.step(&format!("canary {name}"), &args)
        };
        let mut steps = vec![canary(CLEAN)];
        steps.extend(self.catches.iter().map(|name| canary(name).must_fail()));
        steps.extend(self.tests.iter().map(|tests| {
            let args = format!("test --locked --no-fail-fast {} {TARGET} {tests}", self.options);
            self.step("tests", &args)
        }));
        steps
    }
}

/// The steps of the tools that are asked for, or of all; an error names a tool that there is not.
pub fn steps(asked: &[String]) -> Result<Vec<Step>, String> {
    let known = |name: &&String| TOOLS.iter().any(|tool| tool.name == name.as_str());
    if let Some(other) = asked.iter().find(|name| !known(name)) {
        return Err(format!("unknown tool: {other}"));
    }
    let is_asked = |tool: &&Tool| asked.is_empty() || asked.iter().any(|name| name == tool.name);
    Ok(TOOLS.iter().filter(is_asked).flat_map(Tool::steps).collect())
}
