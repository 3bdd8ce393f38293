//! The timer wheel beside its oracle: any bytes are a history of one wheel.
//!
//! It runs the driver of the property test, `wheel/tests/unit/timers/drive.rs`. A finding becomes a
//! test by pasting its bytes into `wheel/tests/unit/timers/found.rs`.

#![no_main]

use expiry::wheel::{Fired, Geometry, NotScheduled, Popped, Timer, TimerId, TimerWheel};
use libfuzzer_sys::fuzz_target;

#[path = "../../wheel/tests/unit/timers/drive.rs"]
mod drive;

fuzz_target!(|bytes: &[u8]| {
    drive::run(bytes);
});
