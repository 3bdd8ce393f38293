//! The project's own commands: `cargo xtask test` and the others that [`HELP`] lists.
//!
//! The commands of the README need a Rust toolchain and nothing else. `nightly` needs more, and
//! fails where a tool is missing.

mod doc_tests;
mod inject;
mod models;
mod mutate;
mod sanitize;
mod tree;

use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

const HELP: &str = "\
cargo xtask test     format, places of seeded bugs, clippy, unit, property, stress and doc tests, docs, loom models
cargo xtask quick    the same without the stress scenarios and the loom models
                     (`--without-nats` leaves out the tests on NATS brokers, which fetch a server by pip)
cargo xtask models   the loom models alone
cargo xtask loom     the same with deeper bounds and more programs (some hours)
cargo xtask inject   seeded bugs: the stress scenarios must find each, and each of their checks must find one (`--help` has
                     options)
cargo xtask mutate   weakens one ordering, fence or compare-and-swap at a time, and runs the loom models until one fails
                     (hours; `--changed` only in files that differ from main; `--help` has options)
cargo xtask instructions [TEXT]  how many instructions each operation executes, or those whose names contain TEXT
                     (needs valgrind)
cargo xtask sanitize [TOOL..]  the tests under sanitizers and valgrind, as far as there are any (an hour)
cargo xtask nightly  what is slow or needs more tools: packages, licences and advisories, the oldest compiler, the lowest
                     versions, other targets, the tools' own tests, seeded bugs, the deep models (a night)
";

/// Where the crates should build. `nightly` checks that they build there, not that they work.
const TARGETS: [&str; 4] = [
    "aarch64-apple-darwin",
    "aarch64-unknown-linux-gnu",
    "i686-unknown-linux-gnu",
    "x86_64-pc-windows-gnu",
];

/// One command of cargo, or a command of this program, and what to call it.
struct Step {
    name: String,
    args: Vec<String>,
    own: Option<fn() -> Result<(), String>>,
    env: Vec<(&'static str, String)>,
    must_fail: bool,
}

/// `args` is a command line, split at spaces.
fn cargo(name: &str, args: &str) -> Step {
    Step {
        name: name.into(),
        args: args.split_whitespace().map(String::from).collect(),
        own: None,
        env: Vec::new(),
        must_fail: false,
    }
}

impl Step {
    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    fn must_fail(mut self) -> Self {
        self.must_fail = true;
        self
    }

    fn run(&self) -> bool {
        println!("== {}: cargo {}", self.name, self.args.join(" "));
        let began = Instant::now();
        let passed = match self.own {
            Some(own) => own().map_err(|why| eprintln!("{}", why.trim_end())).is_ok(),
            None => self.run_cargo(),
        };
        let verdict = if passed { "passed" } else { "FAILED" };
        let seconds = began.elapsed().as_secs_f64();
        println!("== {}: {verdict} after {seconds:.0} s", self.name);
        passed
    }

    fn run_cargo(&self) -> bool {
        // `cargo +TOOLCHAIN` is rustup's: the cargo that runs this program would hide the requested
        // toolchain.
        let other = self.args[0].starts_with('+');
        let cargo = std::env::var("CARGO").ok().filter(|_| !other);
        let mut command = Command::new(cargo.as_deref().unwrap_or("cargo"));
        if other {
            for name in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN"] {
                command.env_remove(name);
            }
        }
        let env = self.env.iter().map(|(name, value)| (*name, value));
        match command.args(&self.args).envs(env).status() {
            Ok(status) => status.success() != self.must_fail,
            Err(error) => {
                println!("   {error}");
                false
            }
        }
    }
}

const LOOM: &str = "test --locked --profile models -p loom-tests -p loom-example --tests";

/// How the models are built. Flags for the whole build would rebuild everything each time if there
/// were one target directory.
const LOOM_ENV: [(&str, &str); 2] =
    [("RUSTFLAGS", "--cfg expiry_loom -D warnings"), ("CARGO_TARGET_DIR", "target/loom")];

fn deep_loom() -> Step {
    // The longest models would take days. The output says how many executions each had, and which
    // were cut short.
    let step = cargo("loom models, deeper", &format!("{LOOM} --no-fail-fast -- --nocapture"));
    LOOM_ENV
        .into_iter()
        .fold(step, |step, (name, value)| step.with(name, value))
        .with("EXPIRY_LOOM_PREEMPTIONS", "4")
        .with("EXPIRY_LOOM_SECONDS", "300")
        .with("EXPIRY_LOOM_PROGRAMS", "500")
        .with("EXPIRY_LOOM_EXECUTIONS", "20000")
}

/// The tests on brokers of a version.
fn nats_with(version: &str) -> Step {
    let name = format!("tests on nats-server {version}");
    let args = "test --locked -p expiry-nats --all-features --lib --tests -- --include-ignored";
    cargo(&name, args).with("EXPIRY_NATS_VERSION", version)
}

/// With all features, `stress` needs brokers too.
const WITHOUT_BROKERS: &str = "--exclude stress --exclude expiry-nats";

/// Says in plain sight what is not tested.
const WITHOUT_NATS: &str = "left out: the tests on NATS brokers (--without-nats)";

/// `left_out` are packages, as options of cargo: one command builds what all others share once.
fn quick(with_nats: bool, left_out: &str) -> Vec<Step> {
    let mut steps = vec![
        cargo("format", "fmt --all --check"),
        Step { own: Some(inject::places), ..cargo("places of the seeded bugs", "xtask inject") },
        cargo("clippy", "clippy --locked --workspace --all-features --all-targets -- -D warnings"),
        cargo(
            "clippy, no features",
            "clippy --locked -p expiry --no-default-features -- -D warnings",
        ),
        // This leaves out the models, which are empty there, and the tools, whose own tests
        // `nightly` runs.
        cargo(
            "tests",
            &format!(
                "test --locked --workspace --exclude loom-tests --exclude xtask \
                 --exclude expiry-benches {left_out} --all-features --no-fail-fast --lib --bins \
                 --tests"
            ),
        )
        // Many of them wait: for brokers, for clocks, for other processes.
        .with("RUST_TEST_THREADS", "6"),
        doc_tests::step(),
        // Of the whole workspace, and with what its examples need, dependencies have the features
        // with which clippy has checked them. Of some packages, 40 of them are checked once more.
        cargo("docs", "doc --locked --no-deps --workspace --all-features --lib --examples")
            .with("RUSTDOCFLAGS", "-D warnings"),
    ];
    if !with_nats {
        steps.push(cargo(
            "tests of NATS without brokers",
            "test --locked -p expiry-nats --lib --tests",
        ));
    }
    steps
}

fn nightly() -> Vec<Step> {
    let crates = "-p expiry -p expiry-wheel -p expiry-topology";
    let mut steps = vec![
        cargo(
            "publication",
            &format!(
                "publish --dry-run --locked --allow-dirty {crates} -p expiry-nats -p expiry-tower"
            ),
        ),
        cargo("licences and advisories", "deny check"),
        cargo(
            "oldest compiler",
            &format!("+{} check --locked --all-features {crates}", env!("CARGO_PKG_RUST_VERSION")),
        ),
        // tokio needs a later one, and the client of NATS one later still.
        cargo("oldest compiler, tower", "+1.85 check --locked --all-features -p expiry-tower"),
        cargo("NATS without topologies", "check --locked --no-default-features -p expiry-nats"),
        cargo("oldest compiler, NATS", "+1.89 check --locked --all-features -p expiry-nats"),
        cargo(
            "lowest versions",
            &format!("minimal-versions check --direct --all-features {crates} -p expiry-tower"),
        ),
        nats_with("2.12.8"),
        nats_with("2.15.1"),
        cargo("soak on NATS", "run --locked --release -p stress --features nats -- nats --for 10m"),
        cargo("tests of the tools", "test --locked -p xtask -p expiry-benches --lib --bins"),
        Step { own: Some(|| inject::main(&[])), ..cargo("seeded bugs", "xtask inject") },
        deep_loom(),
    ];
    steps.extend(TARGETS.map(|target| {
        cargo(target, &format!("check --locked --all-features --target {target} {crates}"))
    }));
    steps
}

/// Does something with each item, in as many threads as there are processors.
fn in_threads<T: Sync>(items: &[T], each: impl Fn(&T) + Sync) {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    each(item);
                }
            });
        }
    });
}

/// Says why a command of this program has failed.
fn ended(done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{}", why.trim_end());
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    if let Some(code) = doc_tests::as_rustdoc() {
        return code;
    }
    let mut words = std::env::args().skip(1);
    let asked = words.next();
    let rest: Vec<String> = words.collect();
    let ahead = (asked.as_deref() == Some("test")).then(models::begin_to_build).flatten();
    let with_nats = !rest.iter().any(|word| word == "--without-nats");
    let steps = match asked.as_deref() {
        Some("test") => {
            let mut steps = quick(with_nats, if with_nats { "" } else { WITHOUT_BROKERS });
            if !with_nats {
                steps.push(cargo("stress scenarios", "test --locked -p stress --no-fail-fast"));
            }
            steps.push(Step { own: Some(models::run), ..cargo("loom models", LOOM) });
            steps
        }
        Some("quick") if with_nats => quick(true, "--exclude stress"),
        Some("quick") => quick(false, WITHOUT_BROKERS),
        Some("loom") => vec![deep_loom()],
        Some("models") => return ended(models::run()),
        Some("instructions") => vec![cargo(
            "instructions",
            &format!(
                "run --locked --release -q -p expiry-benches --bin instructions -- {}",
                rest.join(" ")
            ),
        )],
        Some("inject") => return ended(inject::main(&rest)),
        Some("mutate") => return ended(mutate::main(&rest)),
        Some("sanitize") => match sanitize::steps(&rest) {
            Ok(steps) => steps,
            Err(why) => return ended(Err(why)),
        },
        Some("nightly") => nightly(),
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
    let say_what_is_left_out = || {
        if !with_nats {
            println!("{WITHOUT_NATS}");
        }
    };
    say_what_is_left_out();
    // Runs all of them, so that one failure does not hide another.
    let failed: Vec<&str> =
        steps.iter().filter(|step| !step.run()).map(|step| step.name.as_str()).collect();
    say_what_is_left_out();
    if let Some(mut ahead) = ahead {
        let _ = ahead.wait();
    }
    if failed.is_empty() {
        println!("all passed");
        ExitCode::SUCCESS
    } else {
        println!("FAILED: {}", failed.join(", "));
        ExitCode::FAILURE
    }
}
