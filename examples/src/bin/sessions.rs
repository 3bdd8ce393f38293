//! Sessions of three clients, in simulated time: one renews, one falls silent, one is closed.
//!
//! ```sh
//! cargo run -p expiry-examples --bin sessions
//! ```

use expiry::{ManualClock, SessionTracker};
use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let second = Duration::from_secs(1);
    let clock = ManualClock::new();
    let sessions =
        SessionTracker::builder().interval(second * 2).clock(clock.clone()).build_manual()?;
    let renews = sessions.create(second * 10, 1)?;
    let silent = sessions.create(second * 10, 2)?;
    let leaves = sessions.create(second * 10, 3)?;
    println!(" 0 s: created: {}, {}, {}", renews.id(), silent.id(), leaves.id());
    for now in (3..=15).step_by(3) {
        clock.advance(second * 3);
        sessions.touch_by(&renews)?;
        if now == 9 {
            sessions.set_closing(leaves.id())?;
            println!("{now:2} s: a late touch: {:?}", sessions.touch_by(&leaves));
            println!("{now:2} s: removed: {:?}", sessions.remove(leaves.id()));
        }
        for gone in sessions.poll() {
            println!("{now:2} s: expired: {} of owner {}", gone.id, gone.owner);
        }
    }
    println!("left: {:?}", sessions.shutdown());
    Ok(())
}
