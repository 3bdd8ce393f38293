//! Loads: of several callers that miss a key, one loads its value, and no caller waits for ever.

use expiry::expiring_map::Loaded;
use expiry::LoadError;
use loom_tests::{aside, beside, model, MapRig, Task};
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
        move |rig| *rig.get_or_insert_with(1, one).unwrap(),
        move |rig| *rig.get_or_insert_with(1, two).unwrap(),
    );
    assert_eq!((a, loads.load(Relaxed)), (b, 1));
});

// Guards: a flight that is dropped wakes what waits.
model!(a_failed_load_hands_over, || {
    let rig = used();
    let (a, b) = beside(
        &rig,
        |rig| rig.try_get_or_insert_with(1, || Err("no")).map(|value| *value),
        |rig| *rig.get_or_insert_with(1, || 2).unwrap(),
    );
    assert_eq!(b, 2);
    assert!(matches!(a, Ok(2) | Err(LoadError::Failed("no"))));
});

// A value is removed just after its load: the waiting caller loads anew. Guards: it looks again.
model!(a_load_beside_a_removal, || {
    let rig = used();
    let a = aside(&rig, |rig| drop(rig.remove(&1)));
    let b = *rig.get_or_insert_with(1, || 2).unwrap();
    a.join().unwrap();
    assert_eq!(b, 2);
});

// A task waits for a guard that another thread drops. Guards: the task registers, or finds the
// flight over, under one lock.
model!(a_task_is_woken_when_a_load_is_over, || {
    let (rig, task) = (used(), Task::new());
    let a = aside(&rig, |rig| match rig.get_or_guard(1).unwrap() {
        Loaded::Absent(guard) => drop(guard),
        Loaded::Found(value) => assert_eq!(*value, 2),
    });
    let mut load = pin!(rig.get_or_insert_async(1, std::future::ready(2)));
    let before = task.poll(&mut load).is_ready();
    a.join().unwrap();
    assert!(before || task.woken() == 1);
    assert!(before || task.poll(&mut load).is_ready());
    assert_eq!(rig.get(), Some(2));
    assert!(task.is_free());
});
