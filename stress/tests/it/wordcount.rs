//! `stress wordcount`, end to end through the binary, on small folders.

use crate::common::{self, count, error, passed, stress};
use std::path::Path;

/// A folder with a few kinds of text in it: 3000 lines, 15,003 words.
fn corpus() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &[u8]| std::fs::write(dir.path().join(name), text).unwrap();
    let lines =
        |n: usize| (0..n).map(|i| format!("line number {i} of {n}\r\n")).collect::<String>();
    write("a.txt", lines(1000).as_bytes());
    write("b.rs", format!("\n\n{}", lines(1990)).as_bytes());
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    write("sub/no newline", "naïve\n\n\n\n\n\n\n the end".as_bytes());
    write("empty", b"");
    write("binary", b"\x7fELF\0\0 not words");
    write("latin", b"caf\xe9");
    dir
}

fn run(path: &Path, args: &str) -> serde_json::Value {
    common::run(&format!("wordcount {} {args}", path.display()))
}

#[test]
fn without_faults_counts_are_exact() {
    let dir = corpus();
    for args in ["", "--threads 1 --max-pending 1", "--spouts 3 --threads 3 --interval 1ms"] {
        let report = run(dir.path(), args);
        assert_eq!(report["checks"]["counts_exact"], true);
        assert_eq!(count(&report, "lines"), 1000 + 1992 + 8);
        assert_eq!(count(&report, "words_in_files"), 5 * 2990 + 3);
        assert_eq!(count(&report, "words_counted"), 5 * 2990 + 3);
        assert_eq!((count(&report, "files_read"), count(&report, "files_skipped")), (4, 2));
        assert_eq!(count(&report, "replays"), 0);
    }
    let report = run(&dir.path().join("a.txt"), "");
    assert_eq!((count(&report, "files_read"), count(&report, "lines")), (1, 1000));
}

#[test]
fn with_every_fault_every_surplus_is_explained() {
    let dir = corpus();
    let faults = "--drop 0.01 --fail 0.02 --duplicate 0.02 --late 0.01 --stall 0.0003 --stall-for 60ms --timeout 50ms";
    let report = run(dir.path(), &format!("{faults} --interval 1ms --seed 3"));
    assert!(report["checks"].get("counts_exact").is_none());
    for fault in ["drop", "fail", "duplicate", "late", "stall"] {
        assert!(count(&report, &format!("fault_{fault}")) > 0, "{fault}");
    }
    for more_than_none in ["replays", "failed", "timed_out", "words_duplicated", "refused_as_late"]
    {
        assert!(count(&report, more_than_none) > 0, "{more_than_none}");
    }
    // What is timed are lines that were acked, once each, and not the attempts that were not.
    assert_eq!(report["latency"]["line"]["count"], report["counts"]["acked"]);
    let surplus = count(&report, "words_of_failed_attempts") + count(&report, "words_duplicated");
    assert_eq!(count(&report, "words_counted"), count(&report, "words_in_files") + surplus);
}

#[test]
fn even_if_everything_fails_at_first_lines_get_through() {
    let dir = tempfile::tempdir().unwrap();
    // One line of many words, each of which is hit in the first attempt.
    std::fs::write(dir.path().join("long"), "word ".repeat(5000)).unwrap();
    // However slow the machine is: nearly all attempts fail, and few time out.
    let report = run(dir.path(), "--drop 0.5 --fail 0.5 --timeout 2s");
    assert_eq!(count(&report, "acked"), 1);
    assert!(count(&report, "most_attempts") > 5);
}

#[test]
fn the_same_seed_hits_the_same_tuples() {
    let dir = corpus();
    // Fails only: nothing depends on time, but how many siblings of a failed word were counted.
    let faults = |seed| {
        let report = run(dir.path(), &format!("--fail 0.05 --seed {seed} --threads 1"));
        (count(&report, "failed"), count(&report, "most_attempts"))
    };
    assert_eq!(faults(5), faults(5));
    assert_ne!(faults(5), faults(6));
}

#[test]
fn the_default_is_the_sources_in_cargos_home() {
    let home = tempfile::tempdir().unwrap();
    let run = || {
        std::process::Command::new(env!("CARGO_BIN_EXE_stress"))
            .args(["wordcount", "--json"])
            .env("CARGO_HOME", home.path())
            .output()
            .unwrap()
    };
    error(&run(), "has no sources");
    let sources = home.path().join("registry/src/index/a-crate-1.0.0");
    std::fs::create_dir_all(&sources).unwrap();
    std::fs::write(sources.join("lib.rs"), "fn main() {}\n").unwrap();
    assert_eq!(count(&passed(&run()), "words_counted"), 2);
}

/// A path cannot be used, for this reason, and nothing goes to standard output.
fn unusable(path: &Path, why: &str) {
    let output = stress(&["wordcount".as_ref(), path.as_os_str(), "--json".as_ref()]);
    error(&output, why);
    assert!(output.stdout.is_empty());
}

#[test]
fn a_path_without_text_is_an_error_that_says_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    unusable(&dir.path().join("gone"), "cannot read");
    unusable(&dir.path().join("gone"), "exists");
    unusable(dir.path(), "no file there");
    std::fs::write(dir.path().join("empty"), "").unwrap();
    unusable(dir.path(), "all files are empty");
    std::fs::write(dir.path().join("binary"), b"a\0b").unwrap();
    unusable(dir.path(), "skipped: 1 binary");
    unusable(&dir.path().join("binary"), "skipped: 1 binary");
}

#[cfg(unix)]
#[test]
fn unreadable_files_are_skipped_and_an_unreadable_path_is_an_error() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "x\n").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::File::open(&secret).is_ok() {
        // This user may read everything; another test does the same with a file that vanishes.
        return;
    }
    unusable(&secret, "cannot read");
    std::fs::write(dir.path().join("open"), "y\n").unwrap();
    let report = run(dir.path(), "");
    assert_eq!((count(&report, "files_read"), count(&report, "files_skipped")), (1, 1));
    assert!(report["notes"].to_string().contains("ermission denied"));
}
