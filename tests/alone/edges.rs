//! Edges of two processes.

use expiry::edge;
use std::collections::HashSet;
use std::env;
use std::process::Command;

/// Set in the processes that only draw.
const DRAWS: &str = "EXPIRY_TEST_DRAWS";

const EACH: usize = 100;

/// Processes that run the same program draw different edges: their generators are
/// seeded by the operating system.
pub fn two_processes_draw_different_edges() {
    if env::var_os(DRAWS).is_some() {
        return (0..EACH).for_each(|_| println!("edge {}", edge()));
    }
    let theirs = || {
        let program = env::current_exe().expect("the path of this program");
        let output = Command::new(program).env(DRAWS, "1").output().expect("a process");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("text");
        let number = |line: &str| line.strip_prefix("edge ").map(|edge| edge.parse().unwrap());
        text.lines().filter_map(number).collect::<Vec<u64>>()
    };
    let all: Vec<u64> = [theirs(), theirs(), (0..EACH).map(|_| edge()).collect()].concat();
    assert_eq!(all.len(), 3 * EACH);
    let distinct: HashSet<u64> = all.into_iter().collect();
    assert_eq!(distinct.len(), 3 * EACH, "two processes have drawn the same edges");
}
