//! Every peer does the same work: the same values fire in the same steps.

use super::*;
use crate::window::mix;

/// Returns for each step the number of values fired and their sum.
fn story<T: Timers>() -> Vec<(u64, u64)> {
    T::with(|mut timers| {
        let (mut live, mut ended, mut fired, mut now) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for step in 0..400_u64 {
            for n in 0..20 {
                let draw = mix(step * 100 + n);
                // Delays are from a millisecond to 12 days.
                let delay = 1 + (draw >> 34) % (1 << (1 + draw % 30));
                match draw >> 60 {
                    0..=1 if !live.is_empty() => {
                        let at = (draw >> 8) as usize % live.len();
                        let (_, id) = live.swap_remove(at);
                        assert!(timers.cancel(id));
                    }
                    2..=5 if !live.is_empty() => {
                        let at = (draw >> 8) as usize % live.len();
                        let (value, id) = &mut live[at];
                        timers.reschedule(id, now + delay, *value);
                    }
                    _ => live.push((draw, timers.schedule(now + delay, draw))),
                }
            }
            now += match step % 40 {
                0 => 3_600_000,
                1 => 86_400_000,
                step if step % 2 == 0 => 1,
                step => step * step * 7,
            };
            let (mut count, mut sum) = (0, 0_u64);
            timers.advance(now, |value| {
                let at = live.iter().position(|(other, _)| *other == value).unwrap();
                ended.push(live.remove(at).1);
                (count, sum) = (count + 1, sum.wrapping_add(value));
            });
            ended.drain(..).for_each(|id| timers.release(id));
            fired.push((count, sum));
        }
        assert!(!live.is_empty());
        live.into_iter().for_each(|(_, id)| timers.release(id));
        fired
    })
}

#[test]
fn everybody_fires_the_same_at_the_same_times() {
    let expected = story::<BTree>();
    assert!(expected.iter().map(|(count, _)| count).sum::<u64>() > 2000);
    assert_eq!(story::<Wheel>(), expected);
    assert_eq!(story::<Heap>(), expected);
    assert_eq!(story::<CompactingHeap>(), expected);
    assert_eq!(story::<DelayQueue>(), expected);
    assert_eq!(story::<NexusWheel>(), expected);
}
