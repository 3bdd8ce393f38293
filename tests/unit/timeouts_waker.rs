//! Unit tests of `src/timeouts/waker.rs`.

use super::*;
use std::sync::Arc;
use std::task::Wake;

struct Task;

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_is_found_again() {
    let task = Arc::new(Task);
    let waker = Waker::from(task.clone());
    let words = Words::from_waker(waker.clone());
    assert_eq!(words, Words::of(&waker));
    assert_eq!(Arc::strong_count(&task), 3);
    // SAFETY: from a waker, once.
    let again = unsafe { words.into_waker() };
    assert!(again.will_wake(&waker));
    again.wake();
    assert_eq!(Arc::strong_count(&task), 2);
}
