//! Figures that need a process to themselves.

use super::{growth, keyed, memory, pending, timeouts};
use crate::peers::{Chosen, DashRemoveIf, Issued, Papaya, Scc};
use serde_json::Value;
use std::process::{Command, Stdio};

/// Peers that can be asked for by name.
pub const PEERS: [&str; 5] = ["issued", "chosen", "dashmap", "papaya", "scc"];

/// What `measure` of a figure's module says of the peer with this name.
macro_rules! measure {
    ($figure:ident, $peer:expr, $entries:expr) => {
        match $peer {
            "issued" => Some($figure::measure::<Issued>($entries)),
            "chosen" => Some($figure::measure::<Chosen>($entries)),
            "dashmap" => Some($figure::measure::<DashRemoveIf>($entries)),
            "papaya" => Some($figure::measure::<Papaya>($entries)),
            "scc" => Some($figure::measure::<Scc>($entries)),
            _ => None,
        }
    };
}

/// The child's side: `TASK PEER ENTRIES`. Prints an object. Returns false if it does not know the
/// task or the peer.
pub fn serve(args: &[String]) -> bool {
    let [task, peer, entries] = args else { return false };
    let Ok(entries) = entries.parse() else { return false };
    let answer = match task.as_str() {
        "memory" => measure!(memory, peer.as_str(), entries),
        "growth" => measure!(growth, peer.as_str(), entries),
        "sleeps" => timeouts::serve(peer, entries),
        "pending" => pending::serve(peer, entries),
        _ => keyed::serve(task, peer, entries),
    };
    if let Some(answer) = &answer {
        println!("{answer}");
    }
    answer.is_some()
}

/// The parent's side: asks this program. Panics if the child fails, whose messages are on standard
/// error.
pub fn ask(task: &str, peer: &str, entries: usize) -> Value {
    let own = std::env::current_exe().expect("this program has a path");
    let output = Command::new(own)
        .args(["child", task, peer, &entries.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .expect("a process can be started");
    assert!(output.status.success(), "{task} {peer} {entries} failed");
    serde_json::from_slice(&output.stdout).expect("the child prints an object")
}

pub fn number(answer: &Value, name: &str) -> f64 {
    answer[name].as_f64().unwrap_or(f64::NAN)
}
