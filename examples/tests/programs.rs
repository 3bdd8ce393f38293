//! Each program, as it is built, says that all is well.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// What it prints, if it succeeds.
fn well(program: &str, args: &[&str]) -> String {
    let output = run(program, args);
    let printed = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {}\n{printed}\n{errors}", output.status);
    printed
}

#[test]
fn echo_disconnects_who_is_silent_and_who_is_slow() {
    let echo = env!("CARGO_BIN_EXE_echo");
    let printed = well(echo, &["both", "--connections", "8", "--for", "200ms"]);
    for line in
        ["the silent client was disconnected", "the slow client was disconnected", "verdict: ok"]
    {
        assert!(printed.contains(line), "{printed}");
    }
}

/// A process that does not outlive the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[test]
fn echo_serves_a_load_of_another_process() {
    let echo = env!("CARGO_BIN_EXE_echo");
    let mut server = Command::new(echo);
    server.args(["server", "--listen=127.0.0.1:0"]);
    let mut server = Killed(server.stdout(Stdio::piped()).spawn().unwrap());
    let mut first = String::new();
    let mut printed = BufReader::new(server.0.stdout.take().unwrap());
    printed.read_line(&mut first).unwrap();
    let address = first.trim().strip_prefix("listening on ").expect(&first);
    let printed = well(echo, &["load", address, "--connections=4", "--for=100ms"]);
    assert!(printed.contains(" a second") && !printed.starts_with("0 "), "{printed}");
}

#[test]
fn sessions_expire_renew_and_close() {
    let printed = well(env!("CARGO_BIN_EXE_sessions"), &[]);
    let expired: Vec<_> = printed.lines().filter(|line| line.contains("expired")).collect();
    assert!(matches!(expired[..], [one] if one.ends_with("of owner 2")), "{printed}");
}

#[test]
fn programs_check_themselves() {
    for (program, args, wanted) in [
        // Each call ends once, though requests are lost and replies late.
        (env!("CARGO_BIN_EXE_rpc"), &["--calls=2000", "--timeout=50ms"][..], "20 lost, 26 delayed"),
        // Leases are taken over once, and not before their end.
        (env!("CARGO_BIN_EXE_leases"), &["--grants=40", "--time=30ms"], "leases given"),
        // Jobs are done though workers die, or are dead letters.
        (env!("CARGO_BIN_EXE_work_queue"), &["--jobs=500", "--visibility=50ms"], "none was lost"),
        // A second process finds what a first has saved.
        (env!("CARGO_BIN_EXE_restart"), &[], "found: ada, 4711"),
    ] {
        let printed = well(program, args);
        assert!(printed.contains(wanted) && printed.contains("verdict: ok"), "{printed}");
    }
}

#[test]
fn payments_are_made_once_in_a_window_and_again_after_it() {
    let printed = well(env!("CARGO_BIN_EXE_idempotency"), &[]);
    for line in [
        "at once: 8000 calls, 1000 executed",
        "half a window later: 8000 calls, 0 executed",
        "after the window: 0 answers are kept",
        "after the window: 8000 calls, 1000 executed",
        "verdict: ok",
    ] {
        assert!(printed.contains(line), "{printed}");
    }
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    for (program, args, code, why) in [
        (env!("CARGO_BIN_EXE_echo"), &["both", "--connections=0"][..], 2, "invalid value"),
        (env!("CARGO_BIN_EXE_rpc"), &["--rate=0"], 2, "invalid value"),
        (env!("CARGO_BIN_EXE_leases"), &["--resources=0"], 2, "invalid value"),
        (env!("CARGO_BIN_EXE_work_queue"), &["--workers=0"], 2, "invalid value"),
        (env!("CARGO_BIN_EXE_cached"), &["--workers=0"], 2, "invalid value"),
        (env!("CARGO_BIN_EXE_cached"), &["--max-memory=1tb"], 2, "no number of bytes"),
        (env!("CARGO_BIN_EXE_rpc"), &["--timeout=0s"], 1, "zero"),
        (env!("CARGO_BIN_EXE_leases"), &["--time=0s"], 1, "zero"),
        (env!("CARGO_BIN_EXE_idempotency"), &["--window=0s"], 1, "zero"),
        (env!("CARGO_BIN_EXE_work_queue"), &["--visibility=0s"], 1, "zero"),
        (env!("CARGO_BIN_EXE_restart"), &["--time-to-live=0s"], 1, "zero"),
    ] {
        let output = run(program, args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
        assert!(errors.contains(why), "{errors}");
    }
}
