//! Loads: of several callers that miss a key, one loads its value, and no caller waits for ever.

use expiry::expiring_map::{Compute, Loaded};
use expiry::LoadError;
use loom_tests::{aside, at_once, beside, costly, large, model, MapRig, Task, TICK};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

fn used() -> MapRig {
    MapRig::used(|builder| builder)
}

// Guards: the value is in the map before the flight is over, and a new loader looks once more.
model!(one_of_two_loads, || {
    let (rig, loads) = (used(), Arc::new(AtomicUsize::new(0)));
    let load = |value| {
        let loads = loads.clone();
        move || {
            loads.fetch_add(1, Relaxed);
            value
        }
    };
    let (one, two) = (load(1), load(2));
    let (a, b) = beside(
        &rig,
        move |rig| *rig.get_or_insert_with(&1, one).unwrap(),
        move |rig| *rig.get_or_insert_with(&1, two).unwrap(),
    );
    assert_eq!((a, loads.load(Relaxed)), (b, 1));
});

// Guards: a flight that is dropped wakes what waits.
model!(a_failed_load_hands_over, || {
    let rig = used();
    let (a, b) = beside(
        &rig,
        |rig| rig.try_get_or_insert_with(&1, || Err("no")).map(|value| *value),
        |rig| *rig.get_or_insert_with(&1, || 2).unwrap(),
    );
    assert_eq!(b, 2);
    match a {
        Ok(value) => assert_eq!(value, 2),
        Err(error) => assert!(matches!(error, LoadError::Failed(error) if *error == "no")),
    }
});

// A key is removed during its load. Guards: the removal takes the flight out of the table before it
// looks for the entry. The loader puts the value in withheld, and shows it under the lock under
// which it asks whether that has happened.
model!(a_load_beside_a_removal, || {
    let rig = used();
    let Loaded::Absent(guard) = rig.get_or_guard(&1).unwrap() else { panic!("it is empty") };
    let a = aside(&rig, |rig| {
        drop(rig.remove(&1));
        assert!(!rig.contains_key(&1), "what was loaded before the removal");
    });
    assert_eq!(*guard.insert(2).unwrap(), 2);
    a.join().unwrap();
    assert!(!rig.contains_key(&1));
});

// As above, by `compute`. Guards: it asks whether a load is under way before it looks.
model!(a_load_beside_a_computed_removal, || {
    let rig = used();
    let Loaded::Absent(guard) = rig.get_or_guard(&1).unwrap() else { panic!("it is empty") };
    let a = aside(&rig, |rig| {
        drop(rig.compute(1, |_| Compute::Remove).unwrap());
        assert!(!rig.contains_key(&1), "what was loaded before the removal");
    });
    assert_eq!(*guard.insert(2).unwrap(), 2);
    a.join().unwrap();
    assert!(!rig.contains_key(&1));
});

// A key is given another value during its load, and that expires. Guards: an insertion invalidates
// the load.
model!(a_load_beside_an_insertion_that_ends, costly(1, 2), || {
    let rig = used();
    let Loaded::Absent(guard) = rig.get_or_guard(&1).unwrap() else { panic!("it is empty") };
    let a = aside(&rig, |rig| {
        drop(rig.insert_for(1, 3, TICK).unwrap());
        rig.advance(3);
        rig.drive();
    });
    assert_eq!(*guard.insert(2).unwrap(), 2);
    a.join().unwrap();
    assert_ne!(rig.get(), Some(2));
});

/// A rig in which key 1 has the value 1, which is due for a reload.
fn stale() -> MapRig {
    let rig = MapRig::used(|map| map.time_to_live(TICK * 10).refresh_after(TICK * 5));
    at_once(|| drop(rig.insert(1, 1).unwrap()));
    rig.advance(6);
    rig
}

/// Has one thread reload key 1, and another one `change` it once that reload is under way.
fn beside_a_reload(change: impl FnOnce(&MapRig) + Send + 'static) -> MapRig {
    let (rig, mut changing) = (stale(), None);
    let load = || {
        changing = Some(aside(&rig, change));
        2
    };
    assert_eq!(*rig.get_or_insert_with(&1, load).unwrap(), 2);
    changing.unwrap().join().unwrap();
    rig
}

// A key is given another value during a reload. Guards: the reload takes the place of the very
// entry that it has begun with.
model!(a_reload_beside_an_insertion, large, || {
    let rig = beside_a_reload(|rig| at_once(|| drop(rig.insert(1, 3).unwrap())));
    assert_eq!(rig.get(), Some(3));
});

// A key is removed during a reload. Guards: as `a_load_beside_a_removal`.
model!(a_reload_beside_a_removal, || {
    let rig = beside_a_reload(|rig| drop(rig.remove(&1)));
    assert_eq!(rig.get(), None);
});

// Two callers find an old value. Guards: a new loader looks again whether it is old.
model!(one_of_two_reloads, || {
    let (rig, loads) = (stale(), Arc::new(AtomicUsize::new(0)));
    let reload = |rig: &MapRig, loads: &AtomicUsize| {
        let load = || {
            loads.fetch_add(1, Relaxed);
            2
        };
        *rig.get_or_insert_with(&1, load).unwrap()
    };
    let counted = loads.clone();
    let a = aside(&rig, move |rig| reload(rig, &counted));
    let values = [reload(&rig, &loads), a.join().unwrap()];
    assert!(values.contains(&2) && values.iter().all(|value| [1, 2].contains(value)));
    assert_eq!((loads.load(Relaxed), rig.get()), (1, Some(2)));
});

// Each of two bulk loads may begin to load one of two keys. Guards: a bulk load ends its own loads
// before it waits for the other one's.
model!(two_bulk_loads_of_the_same_keys, || {
    let (rig, loads) = (used(), Arc::new(AtomicUsize::new(0)));
    let load = |rig: &MapRig, loads: &AtomicUsize, keys: [u64; 2]| {
        let found = rig.get_or_insert_many(&keys, |missing| {
            loads.fetch_add(missing.len(), Relaxed);
            missing.iter().map(|&&key| (key, key)).collect::<Vec<_>>()
        });
        assert_eq!(found.unwrap(), [(&1, 1), (&2, 2)].into());
    };
    let counted = loads.clone();
    let a = aside(&rig, move |rig| load(rig, &counted, [1, 2]));
    load(&rig, &loads, [2, 1]);
    a.join().unwrap();
    assert_eq!(loads.load(Relaxed), 2);
});

// A task waits for a guard that another thread drops. Guards: the task registers, or finds the
// flight over, under one lock.
model!(a_task_is_woken_when_a_load_is_over, || {
    let (rig, task) = (used(), Task::new());
    let a = aside(&rig, |rig| match rig.get_or_guard(&1).unwrap() {
        Loaded::Absent(guard) => drop(guard),
        Loaded::Found(value) => assert_eq!(*value, 2),
    });
    let mut load = pin!(rig.get_or_insert_async(&1, std::future::ready(2)));
    let before = task.poll(&mut load).is_ready();
    a.join().unwrap();
    assert!(before || task.woken() == 1);
    assert!(before || task.poll(&mut load).is_ready());
    assert_eq!(rig.get(), Some(2));
    assert!(task.is_free());
});
