//! What two processes draw at random.

use expiry::{edge, AckError, AckTracker, RandomState};
use std::collections::HashSet;
use std::env;
use std::hash::BuildHasher;
use std::process::Command;

/// Set in the processes that only draw.
const DRAWS: &str = "EXPIRY_TEST_DRAWS";

const EDGES: usize = 100;

/// Edges, the hash of a map's key, and the shards by which a tracker finds its first roots, which
/// follow from the tracker's seed.
fn drawn() -> Vec<String> {
    let tracker = AckTracker::builder().shards(256).build_manual().expect("settings");
    for root in 0..100 {
        tracker.init(root, 1, 0).expect("a new root");
        // A root's second init is counted at the shard that finds the root.
        assert_eq!(tracker.init(root, 1, 0), Err(AckError::Duplicate));
    }
    let metrics = tracker.metrics();
    let found: Vec<u64> = metrics.shards.iter().map(|shard| shard.duplicate).collect();
    let hash = RandomState::default().hash_one(7_u64);
    let others = [format!("hash {hash}"), format!("shards {found:?}")];
    (0..EDGES).map(|_| format!("edge {}", edge())).chain(others).collect()
}

/// Processes that run the same program draw different edges, and their stores find keys and roots
/// by different hashes: the operating system seeds all of them.
pub fn two_processes_draw_differently() {
    if env::var_os(DRAWS).is_some() {
        return drawn().iter().for_each(|line| println!("{line}"));
    }
    let theirs = || {
        let program = env::current_exe().expect("the path of this program");
        let output = Command::new(program).env(DRAWS, "1").output().expect("a process");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().map(String::from).collect::<Vec<_>>()
    };
    let mut seen = HashSet::new();
    for lines in [theirs(), theirs(), drawn()] {
        assert_eq!(lines.len(), EDGES + 2, "{lines:?}");
        for line in lines {
            assert!(seen.insert(line.clone()), "two processes have drawn this: {line}");
        }
    }
}
