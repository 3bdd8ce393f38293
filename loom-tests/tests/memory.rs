//! Memory: chunks are given back while threads claim slots in them.
#![cfg(expiry_loom)]

use expiry::model::{Store, CHUNK};
use expiry::{Ack, AckError};
use loom::thread;
use loom_tests::{model, Rig};
use std::sync::Arc;

/// A store whose slot 0 has had `tenants` tenants, and the other none.
fn used(tenants: u32) -> Arc<Store> {
    let store = Arc::new(Store::new());
    for tenant in 1..=tenants {
        assert_eq!(store.claim(0), Some(tenant));
        store.free(0, tenant);
    }
    store
}

/// A chunk's memory goes back while a thread claims a slot in it, fills it, frees it and claims it again:
/// incarnations never repeat, and what the tenant wrote stays. Guards: all slots are frozen before any is zeroed, the
/// lease is zeroed last, the base is raised before the pages go and read after the claim.
#[test]
fn release_against_claim() {
    model("release_against_claim", || {
        let store = used(3);
        let other = store.clone();
        let a = thread::spawn(move || {
            let mut had = Vec::new();
            for key in [100, 200] {
                if let Some(incarnation) = other.claim(0) {
                    other.publish(0, incarnation, key);
                    assert_eq!(other.tenant(0), (key, key), "a tenant's fields were zeroed");
                    other.free(0, incarnation);
                    had.push(incarnation);
                }
            }
            had
        });
        store.release(0);
        let had = a.join().unwrap();
        let mut last = 3;
        for incarnation in had {
            assert!(incarnation > last, "incarnation {incarnation} after {last}");
            last = incarnation;
        }
        for slot in 0..CHUNK {
            let incarnation = store.claim(slot).expect("no slot is lost");
            if slot == 0 {
                assert!(incarnation > last, "incarnation {incarnation} after {last}");
            }
        }
    });
}

/// Two threads claim one slot. Guards: FREE -> CLAIMED is a compare-and-swap.
#[test]
fn one_claim_wins() {
    model("one_claim_wins", || {
        let store = used(1);
        let other = store.clone();
        let a = thread::spawn(move || other.claim(0));
        let b = store.claim(0);
        let a = a.join().unwrap();
        assert!(
            matches!((a, b), (Some(2), None) | (None, Some(2))),
            "{a:?} {b:?}"
        );
    });
}

/// The capacity is exact: the last place is given to one of two threads, and comes back.
#[test]
fn capacity_is_exact() {
    model("capacity_is_exact", || {
        let rig = Rig::with(|builder| builder.capacity(1));
        let other = rig.clone();
        let a = thread::spawn(move || other.tracker.issue(3, 10));
        let b = rig.tracker.issue(3, 11);
        let root = match (a.join().unwrap(), b) {
            (Ok(root), Err(AckError::Full)) | (Err(AckError::Full), Ok(root)) => root,
            other => panic!("{other:?}"),
        };
        assert_eq!(rig.tracker.ack(root, 3), Ok(Ack::Completed));
        assert!(rig.tracker.issue(3, 12).is_ok());
    });
}

/// Two threads add the first chunk, and a third one's root is where it says it is. Guards: the segment is published
/// once, chunks are given out once.
#[test]
fn the_first_chunk_is_added_once() {
    model("the_first_chunk_is_added_once", || {
        let rig = Rig::new();
        let other = rig.clone();
        let a = thread::spawn(move || {
            let root = other.tracker.issue(3, 10).unwrap();
            assert_eq!(other.tracker.ack(root, 3), Ok(Ack::Completed));
        });
        let root = rig.tracker.issue(3, 11).unwrap();
        assert_eq!(rig.tracker.ack(root, 3), Ok(Ack::Completed));
        a.join().unwrap();
        assert_eq!(rig.told().len(), 2);
        assert!(rig.tracker.is_empty());
    });
}
