//! Keyed stores: `ExpiringMap` and `ExpiryQueue` beside other maps with deadlines.

mod courses;
mod drops;
mod expiry;
mod memory;

pub use courses::{maps, queues};
pub use drops::drops;
pub use expiry::expiry;
pub use memory::memory;

use crate::keyed::course::Kind;
use crate::keyed::{
    Dash, DelayQueue, Key, Map, Moka, Nothing, Papaya, QueueByHandle, QueueByKey, Sharded, Store,
    Value, ZooKeeper,
};
use serde_json::Value as Json;
use std::sync::Arc;

trait Task {
    fn run<K: Key, V: Value, S: Store<K, V>>(&self, kind: Kind) -> Json;
}

/// Stores that keep a key once get `K`, stores that keep it twice get `R`.
fn with<K: Key, R: Key>(task: &impl Task, store: &str) -> Option<Json> {
    let (maps, queues) = (Kind::Maps, Kind::Queues);
    Some(match store {
        "map" => task.run::<K, u64, Map<K, u64>>(maps),
        "dashmap" => task.run::<K, u64, Dash<K, u64>>(maps),
        "papaya" => task.run::<K, u64, Papaya<K, u64>>(maps),
        "sharded-map" => task.run::<R, u64, Sharded<R, u64>>(maps),
        "moka" => task.run::<K, u64, Moka<K, u64>>(maps),
        "delay-queue-map" => task.run::<R, u64, DelayQueue<R, u64>>(maps),
        "nothing-map" => task.run::<K, u64, Nothing>(maps),
        "queue" => task.run::<K, (), QueueByKey<K>>(queues),
        "queue-by-handle" => task.run::<K, (), QueueByHandle<K>>(queues),
        "zookeeper" => task.run::<R, (), ZooKeeper<R, ()>>(queues),
        "sharded" => task.run::<R, (), Sharded<R, ()>>(queues),
        "delay-queue" => task.run::<R, (), DelayQueue<R, ()>>(queues),
        "nothing" => task.run::<K, (), Nothing>(queues),
        _ => return None,
    })
}

fn by_name(task: &impl Task, store: &str, keys: &str) -> Option<Json> {
    match keys {
        "u64" => with::<u64, u64>(task, store),
        "String" => with::<String, Arc<str>>(task, store),
        _ => None,
    }
}

/// The child's side of the keyed figures: `what` is `STORE/KEYS`, and for courses `/THREADS`.
pub fn serve(task: &str, what: &str, entries: usize) -> Option<Json> {
    match (task, what.splitn(3, '/').collect::<Vec<_>>().as_slice()) {
        ("keyed", [store, keys]) => by_name(&memory::Weigh(entries), store, keys),
        ("course", [store, keys, threads]) => {
            let threads = threads.parse().ok()?;
            by_name(&courses::Measure { entries, threads }, store, keys)
        }
        ("drops", [how]) => drops::serve(how, entries),
        _ => None,
    }
}
