//! Sessions whose events are lawful, and each kind of wrong one.

use super::*;
use crate::sessions::history::tests::event;
use expiry::SessionTracker;
use std::time::Duration;

/// Takings from 150 to 160, from 250 to 260, and so on.
const TAKINGS: [(u64, u64, u64); 4] =
    [(150, 160, 160), (250, 260, 260), (350, 360, 360), (450, 460, 460)];

const PROMISE: Promise<'static> = Promise { rounding: 10, late: Some(50), takings: &TAKINGS };

/// Created from 100 to 110, for 100, by owner 1.
fn created(global: bool) -> Event {
    event(Did::Created { owner: 1, global }, 100, 110, 100)
}

fn touched(began: u64, timeout: u64) -> Event {
    event(Did::Touched, began, began + 10, timeout)
}

fn at(did: Did, began: u64) -> Event {
    event(did, began, began + 10, 0)
}

/// What a session was that was global, and owner 1's.
fn was(global: bool) -> SessionInfo {
    let sessions = SessionTracker::builder().build().unwrap();
    let session = sessions.create(Duration::from_secs(1), 1).unwrap();
    let mut was = sessions.remove(session.id()).unwrap();
    was.is_global = global;
    was
}

fn expired(began: u64, ended: u64) -> Event {
    event(Did::Ended(End::Expired, was(true)), began, ended, 0)
}

fn removed(began: u64) -> Event {
    at(Did::Ended(End::Removed, was(true)), began)
}

/// Removed when it was being closed.
fn closed(began: u64) -> Event {
    let mut was = was(true);
    was.remaining = None;
    at(Did::Ended(End::Removed, was), began)
}

/// The checks that these events fail.
fn failing(mut events: Vec<Event>) -> Vec<&'static str> {
    events.sort_by_key(|event| event.began);
    let found = judge(&events, &PROMISE);
    found.wrong.into_iter().map(|(check, _)| check).collect()
}

fn passes(events: Vec<Event>) {
    assert_eq!(failing(events.clone()), [""; 0], "{events:?}");
}

#[test]
fn lawful_events() {
    // Told by a poll, or by the handler, which has no reading from before.
    passes(vec![created(true), expired(200, 215), at(Did::Unknown, 205)]);
    passes(vec![created(true), at(Did::Unknown, 200), expired(0, 260)]);
    let touch = vec![created(true), touched(180, 100), at(Did::Reported, 250), expired(0, 285)];
    passes(touch);
    let left = at(Did::Ended(End::Left, was(true)), 140);
    passes(vec![created(true), touched(120, 500), left, at(Did::Unknown, 145)]);
    let closing = at(Did::Closing, 120);
    passes(vec![created(true), closing, at(Did::FoundClosing, 125), touched(125, 50), closed(400)]);
}

#[test]
fn a_session_that_does_not_end_or_ends_twice() {
    assert_eq!(failing(vec![created(true)]), ["every_session_ends"]);
    let twice = vec![created(true), removed(150), expired(0, 220)];
    assert_eq!(failing(twice), ["ends_once"]);
    assert_eq!(failing(vec![expired(0, 215)]), ["ends_once"]);
}

#[test]
fn an_expiry_in_spite_of_a_touch() {
    assert_eq!(failing(vec![created(true), expired(0, 199)]), ["renewed_is_renewed"]);
    // Reported, and renewed to 280 at least, by the last of two touches.
    let two = |told| {
        let report = at(Did::Reported, 250);
        vec![created(true), touched(150, 20), touched(180, 100), report, expired(0, told)]
    };
    passes(two(280));
    assert_eq!(failing(two(279)), ["renewed_is_renewed"]);
    // Renewed to 340 at least, while another touch was under way since 120: that one takes nothing
    // back, but where it asked for less.
    let slow = |timeout, told| {
        let slow = event(Did::Touched, 120, 260, timeout);
        let (report, again) = (at(Did::Reported, 250), at(Did::Reported, 350));
        vec![created(true), slow, touched(240, 100), report, again, expired(0, told)]
    };
    passes(slow(100, 340));
    assert_eq!(failing(slow(100, 339)), ["renewed_is_renewed"]);
    assert_eq!(failing(slow(150, 339)), ["renewed_is_renewed"]);
    passes(slow(60, 300));
    assert_eq!(failing(slow(60, 299)), ["renewed_is_renewed"]);
    // Of two that overlap, either may have been the last.
    passes(
        vec![created(false), touched(150, 20), touched(155, 100), expired(0, 180)]
            .into_iter()
            .map(local)
            .collect(),
    );
}

fn local(mut event: Event) -> Event {
    if let Did::Ended(_, session) = &mut event.did {
        session.is_global = false;
    }
    event
}

#[test]
fn an_expiry_that_comes_late() {
    passes(vec![created(true), expired(0, 270)]);
    assert_eq!(failing(vec![created(true), expired(0, 271)]), ["none_late"]);
}

#[test]
fn closing_and_what_comes_after() {
    let closing = at(Did::Closing, 120);
    let expires = vec![created(true), closing, expired(200, 215)];
    assert_eq!(failing(expires), ["none_expires_while_closing"]);
    let touch = vec![created(true), closing, touched(140, 50), closed(400)];
    assert_eq!(failing(touch), ["closing_is_final"]);
    let twice = vec![created(true), closing, at(Did::Closing, 125), closed(400)];
    assert_eq!(failing(twice), ["closing_is_final"]);
    // What its end was told.
    assert_eq!(failing(vec![created(true), closing, removed(400)]), ["closing_is_final"]);
    assert_eq!(failing(vec![created(true), closed(400)]), ["closing_is_final"]);
}

#[test]
fn refusals_without_a_reason() {
    let unknown = |end| vec![created(true), at(Did::Unknown, 180), end];
    assert_eq!(failing(unknown(expired(0, 220))), ["refusals_true"]);
    assert_eq!(failing(unknown(removed(195))), ["refusals_true"]);
    passes(unknown(removed(185)));
    let moved = at(Did::NotMoved { owner: 2 }, 150);
    assert_eq!(failing(vec![created(true), moved, removed(170)]), ["refusals_true"]);
    let early = vec![created(true), at(Did::FoundClosing, 112), at(Did::Closing, 130), closed(140)];
    assert_eq!(failing(early), ["refusals_true"]);
    assert_eq!(
        failing(vec![created(true), at(Did::FoundClosing, 112), removed(130)]),
        ["refusals_true"]
    );
}

#[test]
fn what_is_there_after_its_end() {
    let after = |did| vec![created(false), local(removed(130)), at(did, 141)];
    assert_eq!(failing(after(Did::Touched)), ["ended_is_ended"]);
    assert_eq!(failing(after(Did::Owned { owner: 1 })), ["ended_is_ended"]);
    assert_eq!(
        failing(vec![created(true), removed(130), at(Did::Closing, 141)]).last(),
        Some(&"ended_is_ended")
    );
}

#[test]
fn a_touch_that_is_not_reported() {
    let unreported = vec![created(true), touched(180, 500), removed(400)];
    assert_eq!(failing(unreported), ["touches_reported"]);
    // By the taking that was under way, by the next, not by the one after that, not by one before.
    let report = |at: u64| {
        let report = event(Did::Reported, at, at + 10, 0);
        vec![created(true), touched(155, 500), report, removed(400)]
    };
    passes(report(150));
    passes(report(250));
    assert_eq!(failing(report(350)), ["touches_reported"]);
    let early = vec![
        created(true),
        touched(155, 500),
        touched(180, 500),
        at(Did::Reported, 150),
        removed(400),
    ];
    assert_eq!(failing(early), ["touches_reported"]);
    // It has met another one, which may be about to report both.
    let other = event(Did::Touched, 185, 255, 500);
    passes(vec![created(true), touched(180, 500), other, at(Did::Reported, 350), removed(400)]);
    // It had ended by then, or was being closed, or was not global.
    passes(vec![created(true), touched(180, 500), removed(260)]);
    passes(vec![created(true), touched(180, 70), expired(0, 300)]);
    passes(vec![created(true), touched(180, 500), at(Did::Closing, 240), closed(400)]);
    passes(vec![created(false), touched(180, 500), local(removed(400))]);
    let upgraded = at(Did::Upgraded(true), 150);
    assert_eq!(
        failing(vec![created(false), upgraded, touched(180, 500), removed(400)]),
        ["touches_reported"]
    );
}

#[test]
fn a_report_without_a_touch() {
    let early = vec![created(true), at(Did::Reported, 150), removed(190)];
    assert_eq!(failing(early), ["reports_true"]);
}

#[test]
fn owners_who_are_not() {
    let moved = |owner, before, began| at(Did::Moved { owner, before }, began);
    let owned = |owner, began| at(Did::Owned { owner }, began);
    let ends = |owner| {
        let mut end = removed(190);
        if let Did::Ended(_, session) = &mut end.did {
            session.owner = owner;
        }
        end
    };
    passes(vec![created(true), owned(1, 120), moved(2, 1, 130), owned(2, 150), ends(2)]);
    // A check that overlaps the move; a move that came too late, and may have been told.
    passes(vec![created(true), moved(2, 1, 130), owned(1, 135), ends(2)]);
    passes(vec![created(true), at(Did::NotMoved { owner: 2 }, 185), ends(2)]);
    for wrong in [
        vec![created(true), owned(7, 120), ends(1)],
        vec![created(true), moved(2, 1, 130), owned(1, 150), ends(2)],
        vec![created(true), owned(2, 115), moved(2, 1, 130), ends(2)],
        vec![created(true), moved(2, 7, 130), ends(2)],
        vec![created(true), moved(2, 1, 130), ends(1)],
    ] {
        assert_eq!(failing(wrong.clone()), ["owners_right"], "{wrong:?}");
    }
}

#[test]
fn upgrades_that_are_not() {
    let upgraded = |by, began| at(Did::Upgraded(by), began);
    passes(vec![created(false), upgraded(true, 120), upgraded(false, 115), removed(190)]);
    passes(vec![created(true), upgraded(false, 115), removed(190)]);
    for wrong in [
        vec![created(false), upgraded(true, 120), upgraded(true, 130), removed(190)],
        vec![created(false), upgraded(false, 120), local(removed(190))],
        vec![created(true), upgraded(true, 120), removed(190)],
        vec![created(false), removed(190)],
        vec![created(false), upgraded(true, 120), local(removed(190))],
    ] {
        assert_eq!(failing(wrong.clone()), ["upgrades_right"], "{wrong:?}");
    }
}

#[test]
fn ids_that_are_issued_twice_or_out_of_order() {
    let failing = |mut issued: Vec<(u64, u64, u64)>| {
        let wrong = judge_ids(&mut issued).into_iter();
        wrong.map(|(check, _)| check).collect::<Vec<_>>()
    };
    // Two at once may come in any order.
    assert_eq!(failing(vec![(1, 0, 10), (3, 20, 30), (2, 25, 35), (4, 40, 50)]), [""; 0]);
    assert_eq!(failing(vec![(1, 0, 10), (3, 20, 30), (2, 31, 35)]), ["ids_in_order"]);
    assert_eq!(failing(vec![(1, 0, 10), (1, 5, 15)]), ["ids_unique"]);
}
