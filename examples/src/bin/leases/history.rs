//! The history of the leases, and the check whether it is possible.

use crate::lease::Grant;
use std::collections::BTreeMap;
use std::time::Duration;

/// How a holder's lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Released,
    /// The holder made no further call.
    Died,
    /// A call reported that the holder had lost it.
    Refused,
}

/// One grant, as its holder saw it. Times are the leases' clock's.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    pub grant: Grant,
    /// Right after it was given.
    pub from: Duration,
    /// Right before the last call that gave or renewed it.
    pub confirmed: Duration,
    pub end: End,
}

/// The summary of a history.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    pub grants: usize,
    pub released: usize,
    pub taken_over: usize,
    /// The longest time from the end of a lease until the next holder had the resource.
    pub longest_vacancy: Duration,
}

/// Checks the history. `ended` has the grants that were reported as not renewed.
pub fn check(history: &[Held], ended: &[Grant], time: Duration) -> Result<Summary, String> {
    let mut summary = Summary::default();
    let mut by_resource = BTreeMap::<usize, Vec<&Held>>::new();
    for held in history {
        by_resource.entry(held.grant.resource).or_default().push(held);
    }
    for holders in by_resource.values_mut() {
        holders.sort_by_key(|held| held.grant.token);
        for (nth, held) in holders.iter().enumerate() {
            if held.grant.token != 2 * nth as u64 + 1 {
                return Err(format!(
                    "{:?} was given twice, or one before it is not known",
                    held.grant
                ));
            }
            let times = ended.iter().filter(|ended| **ended == held.grant).count();
            if times != usize::from(held.end != End::Released) {
                return Err(format!("the end of {:?} was reported {times} times", held.grant));
            }
            summary.grants += 1;
            summary.released += usize::from(held.end == End::Released);
        }
        for pair in holders.windows(2).filter(|pair| pair[0].end != End::Released) {
            let after = pair[1].from.saturating_sub(pair[0].confirmed);
            let Some(vacancy) = after.checked_sub(time) else {
                let early = pair[0].grant;
                return Err(format!("{early:?} was taken over {after:?} after it was confirmed"));
            };
            summary.taken_over += 1;
            summary.longest_vacancy = summary.longest_vacancy.max(vacancy);
        }
    }
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(10);

    fn held(token: u64, from: u64, confirmed: u64, end: End) -> Held {
        let grant = Grant { resource: 0, token };
        let [from, confirmed] = [from, confirmed].map(Duration::from_secs);
        Held { grant, from, confirmed, end }
    }

    #[test]
    fn what_may_not_have_happened_is_found() {
        let (first, second) = (held(1, 0, 5, End::Died), held(3, 15, 15, End::Released));
        let ended = [first.grant];
        let summary = check(&[second, first], &ended, TIME).unwrap();
        assert_eq!((summary.taken_over, summary.released), (1, 1));

        let early = held(3, 14, 14, End::Released);
        for (history, ended, why) in [
            (vec![first, early], vec![first.grant], "taken over 9s after"),
            (vec![first, second, second], vec![first.grant], "given twice"),
            (vec![first, second], vec![first.grant; 2], "reported 2 times"),
            (vec![first, second], vec![], "reported 0 times"),
        ] {
            let error = check(&history, &ended, TIME).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
