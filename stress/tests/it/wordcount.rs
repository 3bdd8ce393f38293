//! `stress wordcount`, end to end through the binary, on small folders.

use crate::common::{self, count, error, stress};
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
    let faults = "--drop 0.01 --fail 0.02 --duplicate 0.02 --late 0.01 --timeout 50ms";
    let report = run(dir.path(), &format!("{faults} --interval 1ms --seed 3"));
    assert!(report["checks"].get("counts_exact").is_none());
    for fault in ["drop", "fail", "duplicate", "late"] {
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
fn a_path_without_text_is_an_error_that_says_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let unusable = |path: &Path, why: &str| {
        let output = stress(&["wordcount".as_ref(), path.as_os_str(), "--json".as_ref()]);
        error(&output, why);
        assert!(output.stdout.is_empty());
    };
    unusable(&dir.path().join("gone"), "cannot read");
    unusable(dir.path(), "0 files, all empty");
    std::fs::write(dir.path().join("empty"), "").unwrap();
    unusable(dir.path(), "1 files, all empty");
    std::fs::write(dir.path().join("binary"), b"a\0b").unwrap();
    unusable(dir.path(), "binary: binary");
    unusable(&dir.path().join("binary"), "binary: binary");
}
