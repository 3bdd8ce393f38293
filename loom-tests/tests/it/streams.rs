//! Tasks that wait for events: no wake-up is lost, and no event.

use expiry::model::{stop_at, Told};
use expiry::{AckTracker, ManualClock, ReceiverStream, RootId, ShutdownMode, WhenFull};
use loom::sync::atomic::AtomicUsize;
use loom_tests::{aside, builder, deep, large, model, thread, Kept, Task};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::task::Poll;

/// A channel, and a task for its stream.
fn begun<T>() -> (Told<T>, Arc<Task>, ReceiverStream<T>) {
    let (told, receiver) = Told::new();
    (told, Task::new(), receiver.into_stream())
}

/// A stream at which a task waits already.
fn waiting<T>(task: &Arc<Task>, stream: &mut ReceiverStream<T>) {
    assert!(task.next(stream).is_pending());
}

/// What a task finds: at once, or, if it was pending, once its count of wake-ups has passed
/// `before`.
fn finds<T>(
    task: &Arc<Task>,
    polled: Poll<Option<T>>,
    before: usize,
    stream: &mut ReceiverStream<T>,
) -> Option<T> {
    match polled {
        Poll::Ready(item) => item,
        Poll::Pending => {
            assert!(task.woken() > before, "it sleeps for ever");
            match task.next(stream) {
                Poll::Ready(item) => item,
                Poll::Pending => panic!("it was woken in vain"),
            }
        }
    }
}

// R1: a task finds nothing and goes to sleep as an event is sent. Guards: the fence of the joining
// task, which joins before it looks again.
model!(r1_tell_and_poll, || {
    let (told, task, mut stream) = begun();
    let a = thread::spawn(move || {
        told.tell(7);
        told
    });
    let polled = task.next(&mut stream);
    let told = a.join().unwrap();
    assert_eq!(finds(&task, polled, 0, &mut stream), Some(7));
    drop(told);
    assert_eq!(task.next(&mut stream), Poll::Ready(None));
});

// R1: two events are sent, one of which spills. A task that waits already takes one while the other
// comes.
model!(r1_two_are_told, large, || {
    let (told, task, mut stream) = begun();
    waiting(&task, &mut stream);
    let told = Arc::new(told);
    let threads = [1, 2].map(|item| {
        let told = told.clone();
        thread::spawn(move || told.tell(item))
    });
    let polls = [(); 2].map(|()| (task.woken(), task.next(&mut stream)));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let [first, second] = polls.map(|(before, polled)| match polled {
        Poll::Ready(item) => item,
        Poll::Pending => finds(&task, Poll::Pending, before, &mut stream),
    });
    let mut items = [first, second].map(Option::unwrap);
    items.sort_unstable();
    assert_eq!(items, [1, 2]);
    assert!(task.next(&mut stream).is_pending());
});

// R2: another task polls the stream as an event is sent: that task is woken, or finds the event.
model!(r2_tell_and_another_waker, || {
    let (told, receiver) = Told::new();
    let (one, two) = (Task::new(), Task::new());
    let mut stream = receiver.into_stream();
    waiting(&one, &mut stream);
    let a = thread::spawn(move || told.tell(7));
    let polled = two.next(&mut stream);
    a.join().unwrap();
    assert_eq!(finds(&two, polled, 0, &mut stream), Some(7));
});

// R3: a stream is dropped as its task is woken, and another stream is made.
model!(r3_tell_and_another_stream, || {
    let (told, receiver) = Told::new();
    let (one, two) = (Task::new(), Task::new());
    let mut stream = receiver.clone().into_stream();
    waiting(&one, &mut stream);
    let a = thread::spawn(move || told.tell(7));
    drop(stream);
    let mut stream = receiver.into_stream();
    let polled = two.next(&mut stream);
    a.join().unwrap();
    assert_eq!(finds(&two, polled, 0, &mut stream), Some(7));
});

// R3: one of two waiting streams is dropped as an event is sent: the other one has it.
model!(r3_tell_and_one_of_two_drops, || {
    let (told, receiver) = Told::new();
    let (one, two) = (Task::new(), Task::new());
    let mut streams = [receiver.clone(), receiver].map(expiry::Receiver::into_stream);
    waiting(&one, &mut streams[0]);
    waiting(&two, &mut streams[1]);
    let a = thread::spawn(move || told.tell(7));
    let [goes, mut stays] = streams;
    drop(goes);
    a.join().unwrap();
    assert_eq!(finds(&two, Poll::Pending, 0, &mut stays), Some(7));
});

// R4: the stream ends as a task goes to sleep; earlier events come first. Guards: the fences of
// both, and the task reads the end before its last look.
model!(r4_end_and_poll, || {
    let (told, task, mut stream) = begun::<u32>();
    let a = thread::spawn(move || told.finish());
    let polled = task.next(&mut stream);
    a.join().unwrap();
    assert_eq!(finds(&task, polled, 0, &mut stream), None);
});

/// R4: the last item, and then the end, come as a task polls a stream, for the first time or once
/// more.
fn last_and_end_and_poll(again: bool) {
    let (told, task, mut stream) = begun();
    if again {
        waiting(&task, &mut stream);
    }
    let a = thread::spawn(move || {
        told.tell(7);
        drop(told);
    });
    let polled = task.next(&mut stream);
    a.join().unwrap();
    assert_eq!(finds(&task, polled, 0, &mut stream), Some(7));
    assert_eq!(task.next(&mut stream), Poll::Ready(None));
}

model!(r4_last_and_end_and_poll, || last_and_end_and_poll(false));

// Guards: the task looks once more where it finds the end.
model!(r4_last_and_end_and_poll_again, || last_and_end_and_poll(true));

// R4: a task that finds the end sees what was done before. Guards: Release and Acquire of the word
// that announces it.
model!(r4_the_end_hands_on_what_was_done, || {
    let (told, task, mut stream) = begun::<u64>();
    let done = Arc::new(AtomicUsize::new(0));
    let a = aside(&done, move |done| {
        done.store(1, Ordering::Relaxed);
        told.finish();
        told
    });
    if task.next(&mut stream).is_ready() {
        assert_eq!(done.load(Ordering::Relaxed), 1, "done before");
    }
    drop(a.join().unwrap());
});

/// R5: another thread ends a root as the tracker is shut down: its outcome comes before the end of
/// the stream, whichever thread delivers it. Guards: a thread that ends a root announces that
/// first, and the shutdown waits for announced threads. `then` is tried after the shutdown has
/// returned, and is refused.
fn shutdown_beside(
    begun: fn(&AckTracker) -> RootId,
    ends: fn(&AckTracker, RootId) -> bool,
    then: Option<fn(&AckTracker) -> bool>,
) {
    loom::stop_exploring();
    let builder = builder(&ManualClock::new());
    let (tracker, outcomes) = builder.build_with_channel(4, WhenFull::Wait).unwrap();
    let root = begun(&tracker);
    let tracker = Arc::new(Kept::new(tracker));
    let (task, mut stream) = (Task::new(), outcomes.into_stream());
    loom::explore();
    let a = aside(&tracker, move |tracker| ends(tracker, root));
    assert!(tracker.shutdown(ShutdownMode::Cancel).is_empty());
    let mut told = 0;
    while let Poll::Ready(Some(outcome)) = task.next(&mut stream) {
        assert_eq!(outcome.owner, 42);
        told += 1;
    }
    assert_eq!(task.next(&mut stream), Poll::Ready(None));
    if let Some(then) = then {
        assert!(!then(&tracker), "it was not refused");
        assert_eq!(task.next(&mut stream), Poll::Ready(None));
    }
    assert_eq!(told, usize::from(a.join().unwrap()), "told before the end");
    assert_eq!(task.next(&mut stream), Poll::Ready(None));
}

const EDGE: u64 = 5;

fn issue(tracker: &AckTracker) -> RootId {
    tracker.issue(EDGE, 42).unwrap().into()
}

/// Inits root 7. Returns whether the init was accepted.
fn init(tracker: &AckTracker, _: RootId) -> bool {
    tracker.init(7, EDGE, 42).is_ok()
}

// R5, of an issued root: the ack delivers its outcome, or it is cancelled.
model!(r5_ack_and_shutdown, large, || {
    shutdown_beside(
        issue,
        |tracker, root| {
            let _ = tracker.ack(root, EDGE);
            true
        },
        None,
    );
});

// R5, of a root that is failed.
model!(r5_fail_and_shutdown, large, || {
    shutdown_beside(
        issue,
        |tracker, root| {
            let _ = tracker.fail(root);
            true
        },
        None,
    );
});

// R5, of a root whose acks came first: it has an outcome if its init was not refused.
model!(r5_init_and_shutdown, large, || {
    shutdown_beside(|tracker| tracker.ack(7, EDGE).map(|_| 7.into()).unwrap(), init, None);
});

// R6: a root's init is under way as the tracker is shut down, and another thread ends the root
// after that has returned. No event follows the end of the stream. Guards: a thread that ends a
// chosen root first asks whether a shutdown has begun.
model!(r6_init_and_shutdown_then_ack, large, || {
    shutdown_beside(|_| 7.into(), init, Some(|tracker| tracker.ack(7, EDGE).is_ok()));
});

// R6: as before, where the root is failed.
model!(r6_init_and_shutdown_then_fail, large, || {
    shutdown_beside(|_| 7.into(), init, Some(|tracker| tracker.fail(7).is_ok()));
});

/// R6: as before, where another thread acks the root beside the shutdown, with the fence of two
/// sides and without. It does not fail without the ack's side.
///
/// Too large for every day: it takes a tenth of the time of all models.
#[test]
fn r6_an_ack_beside_a_shutdown_in_the_middle_of_an_init() {
    for fence in [true, false] {
        let name = "r6_an_ack_beside_a_shutdown_in_the_middle_of_an_init";
        deep(&format!("{name}, fence: {fence}"), 1, move || {
            loom::stop_exploring();
            let mut builder = builder(&ManualClock::new()).early_capacity(0);
            if !fence {
                builder = builder.without_fence();
            }
            let (tracker, outcomes) = builder.build_with_channel(4, WhenFull::Wait).unwrap();
            let tracker = Arc::new(Kept::new(tracker));
            stop_at(|step| step == "root published");
            let init = aside(&tracker, |tracker| tracker.init(7, EDGE, 42));
            thread::yield_now();
            stop_at(|_| false);
            let ack = aside(&tracker, |tracker| tracker.ack(7, EDGE));
            loom::explore();
            assert!(tracker.shutdown(ShutdownMode::Cancel).is_empty());
            let (task, mut stream) = (Task::new(), outcomes.into_stream());
            let mut told = 0;
            while let Poll::Ready(Some(_)) = task.next(&mut stream) {
                told += 1;
            }
            let acked = ack.join().unwrap();
            loom::stop_exploring();
            let begun = init.join().unwrap();
            assert_eq!(told, usize::from(begun.is_ok()), "{begun:?} {acked:?}");
            assert_eq!(task.next(&mut stream), Poll::Ready(None));
        });
    }
}
