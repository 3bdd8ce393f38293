//! Histories that are lawful, and each kind of wrong one.

use super::*;
use expiry::{ExpiryQueue, Updated};
use std::time::Duration;

const PROMISE: Promise = Promise { built: (0, 0), rounding: 10, late: Some(50) };

/// Two handles that differ.
pub fn handles() -> [Handle; 2] {
    let queue = ExpiryQueue::<u64>::builder().build().unwrap();
    [1, 2].map(|key| match queue.update(key, Duration::from_secs(1)) {
        Ok(Updated::Inserted { handle, .. }) => handle,
        other => panic!("{other:?}"),
    })
}

/// An event that took from `began` to `ended`, by both clocks.
pub fn event<D>(did: D, began: u64, ended: u64, timeout: u64) -> Event<D> {
    let reading = |at| Reading { real: at, clock: at };
    Event::between(did, reading(began), reading(ended), timeout)
}

/// Put in from 100 to 110 for 100: it expires at 210.
fn inserted(handle: Handle) -> Event {
    let expiry = 210;
    event(Did::Inserted { expiry, handle }, 100, 110, 100)
}

fn touched(began: u64, timeout: u64) -> Event {
    event(Did::Touched { by: None }, began, began + 10, timeout)
}

fn expired(began: u64, ended: u64) -> Event {
    event(Did::Expired, began, ended, 0)
}

fn gone(began: u64) -> Event {
    event(Did::Gone { by: None }, began, began + 10, 0)
}

/// The checks that the history fails.
fn failing(mut events: Vec<Event>) -> Vec<&'static str> {
    events.sort_by_key(|event| event.began);
    let found = judge(&events, &PROMISE);
    found.wrong.into_iter().map(|(check, _)| check).collect()
}

#[test]
fn lawful_histories() {
    let [one, two] = handles();
    let passes = |events: Vec<Event>| assert_eq!(failing(events), [""; 0]);
    passes(vec![]);
    passes(vec![gone(50), inserted(one), expired(200, 215), gone(220)]);
    // Told before the touch that found it gone had begun, or after: the handler has no reading from before.
    passes(vec![inserted(one), gone(230), expired(0, 260)]);
    passes(vec![inserted(one), touched(150, 100), expired(0, 260)]);
    // The touch that came too late, and the one that overlaps the expiry and might have been first.
    passes(vec![inserted(one), expired(200, 230), gone(215)]);
    // Two stays, of which the second is removed.
    let again = Did::Inserted { expiry: 340, handle: two };
    let removed = event(Did::Removed { expiry: 340 }, 260, 270, 0);
    passes(vec![
        inserted(one),
        expired(0, 215),
        event(again, 230, 240, 100),
        event(Did::Gone { by: Some(one) }, 245, 250, 0),
        event(Did::Touched { by: Some(two) }, 245, 255, 90),
        removed,
    ]);
}

#[test]
fn a_stay_that_does_not_end_or_ends_twice() {
    let [one, _] = handles();
    assert_eq!(failing(vec![inserted(one)]), ["every_stay_ends"]);
    assert_eq!(failing(vec![inserted(one), expired(0, 215), expired(0, 220)]), ["told_once"]);
    assert_eq!(failing(vec![expired(0, 215)]), ["told_once"]);
}

#[test]
fn an_expiry_before_its_time() {
    let [one, _] = handles();
    assert_eq!(failing(vec![inserted(one), expired(0, 205)]), ["none_early"]);
}

#[test]
fn an_expiry_in_spite_of_a_touch() {
    let [one, _] = handles();
    // Renewed to 280 at least, and told at 230.
    let wrong = vec![inserted(one), touched(180, 100), expired(0, 230)];
    assert_eq!(failing(wrong), ["renewed_is_renewed"]);
    // An update that says when it expires now is believed.
    let renewed = event(Did::Renewed { expiry: Some(290) }, 180, 190, 100);
    let wrong = vec![inserted(one), renewed, expired(0, 285)];
    assert_eq!(failing(wrong), ["renewed_is_renewed"]);
    // A remove names a deadline that is no longer its.
    let removed = event(Did::Removed { expiry: 210 }, 200, 205, 0);
    let wrong = vec![inserted(one), touched(180, 100), removed];
    assert_eq!(failing(wrong), ["renewed_is_renewed"]);
}

#[test]
fn an_expiry_in_spite_of_a_touch_that_a_slower_one_took_back() {
    let [one, _] = handles();
    let slow = |timeout| Event { to: 260, ended: 260, ..touched(120, timeout) };
    // Renewed to 340 at least, while another touch was under way that may have looked at the clock
    // at 120.
    let story = |timeout, end| {
        failing(vec![inserted(one), slow(timeout), touched(240, 100), expired(0, end)])
    };
    assert!(story(100, 340).is_empty());
    assert_eq!(story(100, 330), ["renewed_is_renewed"]);
    // One that asked for more, too.
    assert_eq!(story(150, 330), ["renewed_is_renewed"]);
    // One that asked for less, and looked at the clock after the other one did.
    assert!(story(60, 300).is_empty());
    assert_eq!(story(60, 280), ["renewed_is_renewed"]);
}

#[test]
fn an_expiry_that_comes_late() {
    let [one, _] = handles();
    assert!(failing(vec![inserted(one), expired(0, 260)]).is_empty());
    assert_eq!(failing(vec![inserted(one), expired(0, 261)]), ["none_late"]);
}

#[test]
fn results_that_no_order_explains() {
    let [one, two] = handles();
    let unexplained = ["histories_explained"];
    // Gone while it was there, before the poll that found it expired had begun.
    let wrong = vec![inserted(one), gone(120), expired(200, 215)];
    assert_eq!(failing(wrong), unexplained);
    // Touched before it was put in; touched after a poll that was over had found it expired.
    assert_eq!(failing(vec![touched(50, 9), inserted(one), expired(0, 215)]), unexplained);
    let late = vec![inserted(one), expired(200, 215), touched(220, 100)];
    assert_eq!(failing(late), unexplained);
    // A handle of another stay renews it; its own does not.
    let by = |did| vec![inserted(one), event(did, 150, 160, 50), expired(200, 240)];
    assert!(failing(by(Did::Touched { by: Some(one) })).is_empty());
    assert_eq!(failing(by(Did::Touched { by: Some(two) })), unexplained);
    assert!(failing(by(Did::Gone { by: Some(two) })).is_empty());
    assert_eq!(failing(by(Did::Gone { by: Some(one) })), unexplained);
}

#[test]
fn an_update_that_tells_another_time() {
    let [one, _] = handles();
    for expiry in [199, 221] {
        let did = Did::Inserted { expiry, handle: one };
        let wrong = vec![event(did, 100, 110, 100), expired(0, 225)];
        assert_eq!(failing(wrong), ["deadlines_right"], "{expiry}");
    }
}

#[test]
fn an_expiry_and_what_was_over_before_its_deadline() {
    let [one, _] = handles();
    // "Gone" at 150 cannot come after an expiry at 210, whose teller has no reading from before.
    let wrong = vec![inserted(one), gone(150), expired(0, 300)];
    assert_eq!(failing(wrong), ["renewed_is_renewed"]);
}
