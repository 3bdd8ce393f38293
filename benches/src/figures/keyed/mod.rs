//! Keyed stores: `ExpiringMap` and `ExpiryQueue` beside other maps with deadlines.

mod courses;
mod expiry;
mod memory;

pub use courses::courses;
pub use expiry::expiry;
pub use memory::memory;

use crate::keyed::course::Kind;
use crate::keyed::{
    Dash, Key, Map, Moka, Nothing, Papaya, QueueByHandle, QueueByKey, Sharded, Store, Value,
    ZooKeeper,
};
use serde_json::Value as Json;
use std::sync::Arc;

/// Measures one store in a process of its own: a course on so many threads, or else its memory.
fn run<K: Key, V: Value, S: Store<K, V>>(
    kind: Kind,
    entries: usize,
    threads: Option<usize>,
) -> Json {
    match threads {
        Some(threads) => courses::measure::<K, V, S>(kind, entries, threads),
        None => memory::weigh::<K, V, S>(kind, entries),
    }
}

type Run = fn(Kind, usize, Option<usize>) -> Json;

/// Stores that keep a key once get `K`, stores that keep it twice get `R`.
fn measure<K: Key, R: Key>(store: &str, entries: usize, threads: Option<usize>) -> Option<Json> {
    use Kind::{Maps, Queues};
    let (kind, run): (Kind, Run) = match store {
        "map" => (Maps, run::<K, u64, Map<K, u64>>),
        "dashmap" => (Maps, run::<K, u64, Dash<K, u64>>),
        "papaya" => (Maps, run::<K, u64, Papaya<K, u64>>),
        "sharded-map" => (Maps, run::<R, u64, Sharded<R, u64>>),
        "moka" => (Maps, run::<K, u64, Moka<K, u64>>),
        "nothing-map" => (Maps, run::<K, u64, Nothing>),
        "queue" => (Queues, run::<K, (), QueueByKey<K>>),
        "queue-by-handle" => (Queues, run::<K, (), QueueByHandle<K>>),
        "zookeeper" => (Queues, run::<R, (), ZooKeeper<R>>),
        "nothing" => (Queues, run::<K, (), Nothing>),
        _ => return None,
    };
    Some(run(kind, entries, threads))
}

/// The child's side of the keyed figures: `what` is `STORE/KEYS`, and for courses `/THREADS`.
pub fn serve(task: &str, what: &str, entries: usize) -> Option<Json> {
    let (store, keys, threads) = match (task, &what.splitn(3, '/').collect::<Vec<_>>()[..]) {
        ("keyed", &[store, keys]) => (store, keys, None),
        ("course", &[store, keys, threads]) => (store, keys, Some(threads.parse().ok()?)),
        _ => return None,
    };
    match keys {
        "u64" => measure::<u64, u64>(store, entries, threads),
        "String" => measure::<String, Arc<str>>(store, entries, threads),
        _ => None,
    }
}
