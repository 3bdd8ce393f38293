//! Unit tests of `src/kit/channel.rs`.

use super::*;
use std::time::Instant;

#[test]
fn a_shutdown_does_not_wait_for_room_once_for_each_item() {
    let (sender, receiver) = channel(1, WhenFull::Wait).unwrap();
    sender.close();
    let began = Instant::now();
    let items = 1000;
    (0..items).for_each(|item| sender.send(&Panics::default(), item));
    assert!(began.elapsed() < LOOK_UP * items / 2);
    assert_eq!(sender.astray(), (u64::from(items) - 1, 0));
    drop(sender);
    assert_eq!(receiver.count(), items as usize);
}
