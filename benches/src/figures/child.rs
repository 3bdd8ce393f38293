//! Figures that need a process to themselves.

use super::{growth, keyed, memory, timeouts};
use crate::peers::{Chosen, DashRemoveIf, Issued, Papaya, Peer, Scc};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a peer is asked to do in a process of its own. Returns an object.
pub trait Task {
    fn run<P: Peer>(entries: usize) -> Value;
}

/// Peers that can be asked for by name.
pub const PEERS: [&str; 5] = ["issued", "chosen", "dashmap", "papaya", "scc"];

fn with<T: Task>(peer: &str, entries: usize) -> Option<Value> {
    Some(match peer {
        "issued" => T::run::<Issued>(entries),
        "chosen" => T::run::<Chosen>(entries),
        "dashmap" => T::run::<DashRemoveIf>(entries),
        "papaya" => T::run::<Papaya>(entries),
        "scc" => T::run::<Scc>(entries),
        _ => return None,
    })
}

/// The child's side: `TASK PEER ENTRIES`. Prints an object; false if it does not know what is meant.
pub fn serve(args: &[String]) -> bool {
    let [task, peer, entries] = args else { return false };
    let Ok(entries) = entries.parse() else { return false };
    let answer = match task.as_str() {
        "memory" => with::<memory::Memory>(peer, entries),
        "growth" => with::<growth::Growth>(peer, entries),
        "sleeps" => timeouts::serve(peer, entries),
        _ => keyed::serve(task, peer, entries),
    };
    if let Some(answer) = &answer {
        println!("{answer}");
    }
    answer.is_some()
}

/// The path of this program.
pub fn own() -> PathBuf {
    std::env::current_exe().expect("this program has a path")
}

/// The parent's side: asks this program.
pub fn ask(task: &str, peer: &str, entries: usize) -> Value {
    ask_of(&own(), task, peer, entries)
}

/// The parent's side: asks any build of this program. Panics if the child fails, whose messages are
/// on standard error.
pub fn ask_of(program: &Path, task: &str, peer: &str, entries: usize) -> Value {
    let output = Command::new(program)
        .args(["child", task, peer, &entries.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .expect("a process can be started");
    assert!(output.status.success(), "{task} {peer} {entries} failed");
    serde_json::from_slice(&output.stdout).expect("the child prints an object")
}

/// A number of the child's answer.
pub fn number(answer: &Value, name: &str) -> f64 {
    answer[name].as_f64().unwrap_or(f64::NAN)
}
