//! The pipeline of `docs/guide/logs.md`, over a restart.

use std::fs::{self, OpenOptions};
use std::io::Write;

#[allow(dead_code)] // its `main`
#[path = "../../examples/logs.rs"]
mod logs;

#[test]
fn a_second_process_goes_on_where_the_first_one_was() {
    let folder = std::env::temp_dir().join(format!("expiry-logs-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let log = "12:00 INFO up\n12:01\n12:02 WARN hot\n12:03 INFO down\n";
    fs::write(folder.join("app.log"), log).unwrap();
    logs::run(folder.clone()).unwrap();
    assert_eq!(read("counts.txt"), r#"{"INFO": 2, "WARN": 1}"#);
    assert!(read("bad.txt").contains("it has no level: 12:01"));
    assert_eq!(read("offset"), "51");

    let mut file = OpenOptions::new().append(true).open(folder.join("app.log")).unwrap();
    writeln!(file, "12:04 INFO up").unwrap();
    logs::run(folder.clone()).unwrap();
    assert_eq!(read("counts.txt"), r#"{"INFO": 1}"#);
    assert_eq!(read("offset"), "65");

    // A line that is not UTF-8, and one that the program that logs has not finished.
    file.write_all(b"12:05 \xff\n12:06 WARN hot\n12:07 IN").unwrap();
    logs::run(folder.clone()).unwrap();
    assert_eq!(read("counts.txt"), r#"{"WARN": 1}"#);
    assert!(read("bad.txt").contains("it is not UTF-8: 12:05 \u{fffd}\n"));
    assert_eq!(read("offset"), "88");
    writeln!(file, "FO up").unwrap();
    logs::run(folder.clone()).unwrap();
    assert_eq!(read("counts.txt"), r#"{"INFO": 1}"#);
    assert_eq!(read("offset"), "102");
    fs::remove_dir_all(folder).unwrap();
}
