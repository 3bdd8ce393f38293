//! The models: small histories of each face by hand, sound ones and those that each kind of mistake would make.

use super::acks::{self, Acks};
use super::check::{check, Call, Model};
use super::map::{self, Map};
use super::queue;
use super::record::{Kind, Subject};
use super::roots::{self, Answer, Roots};
use super::sessions;
use expiry::{Done, Handle};
use std::mem::discriminant;

/// A call at these times, and at this tick.
fn at<D>(began: u64, ended: u64, tick: u32, did: D) -> Call<D> {
    Call { began, ended, from: tick, to: tick, since: tick, thread: 0, did }
}

/// Calls one after the other, each at a tick.
fn in_turn<D: Copy>(calls: &[(u32, D)]) -> Vec<Call<D>> {
    let one = |(number, &(tick, did)): (usize, &(u32, D))| {
        let began = number as u64 * 10 + 1;
        at(began, began + 5, tick, did)
    };
    calls.iter().enumerate().map(one).collect()
}

/// Whether calls one after the other have an explanation. All that began before a poll had ended by then.
fn sound<S: Subject>(calls: &[(u32, <S::Model as Model>::Did)]) -> bool {
    let mut calls = in_turn(calls);
    for call in &mut calls {
        if discriminant(&call.did) == discriminant(&S::polled(0)) {
            call.did = S::polled(call.began);
        }
    }
    explained::<S::Model>(S::INITIAL, &calls)
}

fn explained<M: Model>(initial: M::State, calls: &[Call<M::Did>]) -> bool {
    check::<M>(initial, calls).is_ok()
}

mod of_map {
    use super::*;
    use map::{Did, Did::*, State};

    fn insert(value: u32, timeout: u32, replaced: Option<u32>) -> Did {
        Inserted { value, timeout, replaced }
    }

    fn touch(timeout: u32) -> Did {
        Touched { timeout, done: true }
    }

    const POLL: Did = Polled { since: 0 };

    fn sound(calls: &[(u32, Did)]) -> bool {
        super::sound::<map::Load>(calls)
    }

    #[test]
    fn a_value_is_there_until_its_time_is_up_and_is_told_once() {
        let story = [
            (5, insert(1, 3, None)),
            (7, Got(Some(1))),
            (7, Remains(Some(1))),
            (8, Got(None)),
            (8, Expired(1)),
            (8, POLL),
            (8, Over),
        ];
        assert!(sound(&story));
        // Still there when its time is up, or back after that.
        for (at, did) in [(3, Got(Some(1))), (4, Got(Some(1))), (5, Expired(1))] {
            let mut wrong = story;
            wrong[at].1 = did;
            assert!(!sound(&wrong), "{did:?}");
        }
        // Early, by one tick.
        assert!(!sound(&[(5, insert(1, 3, None)), (7, Expired(1))]));
        assert!(!sound(&[(5, insert(1, 3, None)), (7, Got(None))]));
        // Left by a poll, or for ever.
        assert!(!sound(&[(5, insert(1, 3, None)), (8, POLL)]));
        assert!(sound(&[(5, insert(1, 3, None)), (7, POLL)]));
        assert!(!sound(&[(5, insert(1, 3, None)), (7, Over)]));
    }

    #[test]
    fn a_touch_that_was_answered_counts() {
        let touch = Touched { timeout: 5, done: true };
        let begin = [(1, insert(1, 3, None)), (3, touch)];
        let then = |tick, did| [&begin[..], &[(tick, did)]].concat();
        assert!(sound(&then(7, Got(Some(1)))) && sound(&then(8, Expired(1))));
        assert!(!sound(&then(7, Expired(1))) && !sound(&then(7, Got(None))));
        assert!(!sound(&then(5, Remains(Some(1)))) && sound(&then(5, Remains(Some(3)))));
    }

    #[test]
    fn a_delayed_touch_takes_nothing_back() {
        // Under way from tick 1 to tick 6; another one, at tick 5, asked for five.
        let story = |timeout, end| {
            let slow = Call { to: 6, ..at(3, 20, 1, touch(timeout)) };
            let calls = [
                at(1, 2, 1, insert(1, 8, None)),
                slow,
                at(10, 11, 5, touch(5)),
                at(21, 22, end, Expired(1)),
            ];
            explained::<Map>(State::Absent, &calls)
        };
        let soonest = |timeout| (1..=20).find(|&end| story(timeout, end));
        // With as long a timeout, or a longer one, not before 10; with a shorter one from tick 5
        // on.
        assert_eq!(soonest(5), Some(10));
        assert_eq!(soonest(7), Some(10));
        assert_eq!(soonest(2), Some(7));
    }

    #[test]
    fn what_has_told_a_slow_listener_counts_from_then() {
        let insertion = |since, end| {
            let calls = [
                Call { to: 9, since, ..at(1, 5, 1, insert(1, 2, None)) },
                at(6, 7, end, Expired(1)),
            ];
            explained::<Map>(State::Absent, &calls)
        };
        assert!(insertion(1, 3) && insertion(9, 11));
        assert!(!insertion(9, 3) && !insertion(9, 10));
    }

    #[test]
    fn what_was_told_to_be_gone_does_not_come_back() {
        let touch = |done| Touched { timeout: 5, done };
        assert!(!sound(&[(1, insert(1, 3, None)), (4, Got(None)), (4, touch(true))]));
        // Even by a touch that had looked at the clock before.
        let gone = [
            at(1, 2, 1, insert(1, 3, None)),
            Call { to: 4, ..at(3, 9, 2, touch(true)) },
            at(4, 5, 4, Got(None)),
            at(10, 11, 4, Got(Some(1))),
        ];
        assert!(!explained::<Map>(State::Absent, &gone));
        assert!(explained::<Map>(State::Absent, &gone[..2]));
    }

    #[test]
    fn a_value_is_replaced_once_and_then_it_is_another() {
        let begin = [(1, insert(1, 9, None)), (1, insert(2, 9, Some(1)))];
        let then = |did| sound(&[&begin[..], &[(1, did)]].concat());
        let exchange = |from, done| Exchanged { from, value: 3, timeout: 9, done };
        assert!(then(Got(Some(2))) && !then(Got(Some(1))) && !then(Got(None)));
        assert!(then(insert(3, 1, Some(2))) && !then(insert(3, 1, Some(1))));
        assert!(!then(insert(3, 1, None)));
        assert!(then(Removed(Some(2))) && !then(Removed(Some(1))) && !then(Removed(None)));
        assert!(then(exchange(Some(1), false)) && !then(exchange(Some(1), true)));
        assert!(then(exchange(Some(2), true)) && !then(exchange(Some(2), false)));
        assert!(then(exchange(None, false)) && !then(exchange(None, true)));
    }

    #[test]
    fn a_poll_is_not_held_to_what_was_under_way() {
        let left = |since| {
            let calls = [at(1, 5, 1, insert(1, 1, None)), at(6, 7, 2, Polled { since })];
            explained::<Map>(State::Absent, &calls)
        };
        // Somebody has been at something since before the insertion had ended.
        assert!(left(5) && !left(6));
    }
}

mod of_queue {
    use super::*;
    use expiry::{ExpiryQueue, Updated};
    use queue::{Did, Did::*};
    use std::time::Duration;

    const POLL: Did = Polled { since: 0 };

    /// Two handles that differ.
    fn handles() -> [Handle; 2] {
        let queue = ExpiryQueue::<u64>::builder().build_manual().unwrap();
        [1, 2].map(|key| match queue.update(key, Duration::from_secs(1)) {
            Ok(Updated::Inserted { handle, .. }) => handle,
            other => panic!("{other:?}"),
        })
    }

    fn insert(handle: Handle, timeout: u32, expiry: u32) -> Did {
        Inserted { handle, timeout, expiry }
    }

    fn touch(by: Option<Handle>, timeout: u32, done: bool) -> Did {
        Touched { by, timeout, done }
    }

    fn sound(calls: &[(u32, Did)]) -> bool {
        super::sound::<queue::Load<u64>>(calls)
    }

    #[test]
    fn a_key_stays_until_it_is_given_out() {
        let [one, other] = handles();
        let begin = [(5, insert(one, 3, 8)), (9, touch(None, 2, true))];
        let then = |tick, did| sound(&[&begin[..], &[(tick, did)]].concat());
        assert!(then(11, Expired { expiry: 11 }) && !then(11, Expired { expiry: 8 }));
        assert!(!then(10, Expired { expiry: 11 }));
        assert!(then(10, POLL) && !then(11, POLL) && !then(10, Over));
        assert!(
            then(9, Removed(Some(11))) && !then(9, Removed(Some(8))) && !then(9, Removed(None))
        );
        assert!(then(9, touch(Some(one), 1, true)) && !then(9, touch(Some(other), 1, true)));
        assert!(then(9, touch(Some(other), 1, false)) && !then(9, touch(Some(one), 1, false)));
        assert!(then(9, Got(Some((11, one)))) && !then(9, Got(Some((8, one)))));
        let renewed = |expiry| Renewed { timeout: 2, expiry };
        assert!(then(9, renewed(None)) && !then(10, renewed(None)));
        assert!(then(10, renewed(Some(12))) && !then(10, renewed(Some(11))));
        assert!(!then(9, insert(other, 3, 12)));
    }

    #[test]
    fn it_ends_once() {
        let [one, _] = handles();
        let ends = [Expired { expiry: 8 }, Removed(Some(8))];
        for (first, second) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let end = [(5, insert(one, 3, 8)), (8, ends[first])];
            assert!(sound(&end));
            assert!(!sound(&[&end[..], &[(8, ends[second])]].concat()));
        }
    }
}

mod of_roots {
    use super::*;
    use roots::{Did, Did::*, State};

    fn ack(xor: u8, answer: Answer) -> Did {
        Did::Acked { xor, answer }
    }

    const ISSUED: (u32, Did) = (1, Issued { xor: 3, timeout: 4 });

    fn sound(calls: &[(u32, Did)]) -> bool {
        let calls = [&[ISSUED][..], calls].concat();
        super::sound::<roots::Load>(&calls)
    }

    #[test]
    fn the_ack_that_makes_all_cancel_out_completes() {
        let one = (1, ack(1, Answer::Pending));
        assert!(sound(&[one, (1, ack(2, Answer::Completed)), (1, Over)]));
        assert!(!sound(&[one, (1, ack(2, Answer::Pending))]));
        assert!(!sound(&[one, (1, ack(1, Answer::Completed))]));
        assert!(!sound(&[one, (1, ack(2, Answer::NotLive))]));
        // A lost one: told as counted, and the next does not complete.
        assert!(!sound(&[one, (1, ack(2, Answer::Completed)), (1, ack(2, Answer::Pending))]));
        assert!(!sound(&[(1, Untold)]) && !sound(&[one, (1, ToldOf(Kind::Acked))]));
    }

    #[test]
    fn a_root_ends_once_and_not_before_its_time() {
        let (fail, late) = (Failed { done: true }, Failed { done: false });
        assert!(sound(&[(1, fail), (1, late), (1, ack(1, Answer::NotLive))]));
        assert!(!sound(&[(1, fail), (1, fail)]) && !sound(&[(1, late)]));
        assert!(sound(&[(5, TimedOut { due: 5 }), (5, Over)]));
        assert!(!sound(&[(4, TimedOut { due: 5 })]) && !sound(&[(6, TimedOut { due: 6 })]));
        assert!(!sound(&[(5, Polled { since: 0 })]) && !sound(&[(4, Over)]));
        let reset = Reset { timeout: 9, done: true };
        assert!(sound(&[(2, reset), (11, TimedOut { due: 11 })]));
        assert!(!sound(&[(2, reset), (5, TimedOut { due: 5 })]));
    }

    #[test]
    fn between_the_last_ack_and_the_end_another_may_end_it() {
        let last = |answer| {
            let calls = [
                at(1, 2, 1, Issued { xor: 1, timeout: 4 }),
                at(3, 9, 1, ack(1, answer)),
                at(4, 5, 1, Failed { done: true }),
            ];
            explained::<Roots>(State::Unborn, &calls)
        };
        assert!(last(Answer::NotLive) && !last(Answer::Completed) && !last(Answer::Pending));
    }
}

mod of_acks {
    use super::*;
    use acks::{Did, Did::*, State};

    fn init(xor: u8, owner: u32, told: Option<Kind>) -> Did {
        Inited { xor, owner, timeout: 4, told: told.map(|kind| (kind, owner)) }
    }

    fn ack(xor: u8, answer: Answer) -> Did {
        let told = None;
        Did::Acked { xor, answer, told }
    }

    fn last(xor: u8, owner: u32) -> Did {
        Did::Acked { xor, answer: Answer::Completed, told: Some((Kind::Acked, owner)) }
    }

    fn fail(answer: Option<Done>, told: Option<u32>) -> Did {
        let told = told.map(|owner| (Kind::Failed, owner));
        Failed { answer, told }
    }

    fn sound(calls: &[(u32, Did)]) -> bool {
        super::sound::<acks::Load>(calls)
    }

    #[test]
    fn acks_count_before_and_after_the_init() {
        let early = (1, ack(1, Answer::Held));
        assert!(sound(&[early, (1, init(3, 7, None)), (1, last(2, 7)), (1, Over)]));
        assert!(sound(&[early, (1, init(1, 7, Some(Kind::Acked))), (1, Over)]));
        assert!(!sound(&[early, (1, init(1, 7, None))]));
        assert!(!sound(&[early, (1, init(3, 7, None)), (1, ack(2, Answer::Pending))]));
        assert!(!sound(&[early, (1, init(3, 7, None)), (1, last(2, 8))]));
        assert!(!sound(&[(1, init(3, 7, None)), early]));
    }

    #[test]
    fn an_init_of_what_is_in_flight_is_refused() {
        let begin = (1, init(3, 7, None));
        assert!(sound(&[begin, (1, Duplicate), (1, ack(1, Answer::Pending))]));
        assert!(!sound(&[begin, (1, init(3, 8, None))]));
        assert!(!sound(&[(1, Duplicate)]));
    }

    #[test]
    fn a_fail_ends_it_or_is_held() {
        let begin = (1, init(3, 7, None));
        assert!(sound(&[begin, (1, fail(Some(Done::Now), Some(7))), (1, Over)]));
        assert!(!sound(&[begin, (1, fail(Some(Done::Now), None))]));
        assert!(!sound(&[begin, (1, fail(Some(Done::Now), Some(8)))]));
        let held = (1, fail(Some(Done::Held), None));
        assert!(sound(&[held, (1, init(3, 7, Some(Kind::Failed))), (1, Over)]));
        assert!(!sound(&[held, (1, init(3, 7, None))]));
    }

    #[test]
    fn a_fail_that_meets_an_init_is_told_by_that() {
        let meets = |told| {
            let calls = [
                at(1, 2, 1, ack(1, Answer::Held)),
                at(3, 9, 1, init(3, 7, told)),
                at(4, 5, 1, fail(Some(Done::Now), None)),
                at(10, 11, 1, Over),
            ];
            explained::<Acks>(State::Absent, &calls)
        };
        assert!(meets(Some(Kind::Failed)) && !meets(None) && !meets(Some(Kind::Acked)));
    }

    #[test]
    fn early_signs_expire_untold() {
        let (early, poll) = ((1, ack(1, Answer::Held)), Polled { since: 0 });
        assert!(sound(&[early, (9, poll), (9, Over)]));
        assert!(!sound(&[early, (8, poll), (8, Over)]));
        assert!(!sound(&[early, (9, poll), (9, init(1, 7, Some(Kind::Acked)))]));
        assert!(sound(&[early, (9, poll), (9, init(1, 7, None)), (9, last(1, 7))]));
    }

    #[test]
    fn it_times_out_when_it_is_due() {
        let begin = (1, init(3, 7, None));
        let out = |owner, due| TimedOut { owner, due };
        assert!(sound(&[begin, (5, out(7, 5)), (5, Over)]));
        assert!(!sound(&[begin, (4, out(7, 5))]) && !sound(&[begin, (5, out(8, 5))]));
        assert!(!sound(&[begin, (5, out(7, 5)), (5, out(7, 5))]));
        assert!(!sound(&[begin, (5, Polled { since: 0 })]));
        let reset = Reset { timeout: 9, answer: Some(Done::Now) };
        assert!(sound(&[begin, (2, reset), (11, out(7, 11))]));
        assert!(!sound(&[begin, (2, reset), (5, out(7, 5))]));
    }
}

mod of_sessions {
    use super::*;
    use sessions::{Did, Did::*, Refused, Seat, Sessions, State};

    const SWEEP: Did = Swept { since: 0 };
    const SEAT: Seat = Seat { owner: 1, global: true, closing: false };
    const GONE: Result<(), Refused> = Err(Refused::Unknown);

    fn create(seat: Seat) -> (u32, Did) {
        (5, Created { seat, timeout: 3 })
    }

    fn touch(answer: Result<(), Refused>) -> Did {
        Touched { timeout: 4, answer }
    }

    /// Whether this has an explanation, of a session that was created at 5 for 3 ticks.
    fn sound(calls: &[(u32, Did)]) -> bool {
        super::sound::<sessions::Load>(&[&[create(SEAT)], calls].concat())
    }

    #[test]
    fn a_session_lives_until_a_poll_finds_its_time_up() {
        assert!(sound(&[(7, SWEEP), (8, Expired(SEAT)), (8, SWEEP), (9, touch(GONE)), (9, Over)]));
        assert!(sound(&[
            (7, touch(Ok(()))),
            (9, Reported { left: 2 }),
            (9, SWEEP),
            (11, Expired(SEAT))
        ]));
        // Early, by one tick; left by a sweep, or for ever; touched after its end, or not found before.
        assert!(!sound(&[(7, Expired(SEAT))]));
        assert!(!sound(&[(8, SWEEP)]) && !sound(&[(8, Over)]));
        assert!(!sound(&[(8, Expired(SEAT)), (8, touch(Ok(())))]) && !sound(&[(6, touch(GONE))]));
        assert!(!sound(&[(8, Expired(SEAT)), (8, Expired(SEAT))]) && !sound(&[create(SEAT)]));
    }

    #[test]
    fn closing_is_final() {
        let (closed, closing) = (Seat { closing: true, ..SEAT }, Err(Refused::Closing));
        let begin = [(6, Closed(Ok(()))), (99, SWEEP)];
        let then = |did| sound(&[&begin[..], &[(99, did)]].concat());
        assert!(
            then(Removed(Some(closed)))
                && then(touch(closing))
                && then(Checked(Err(Refused::Closing)))
        );
        assert!(then(Upgraded(Ok(false))) && then(Closed(closing)));
        for wrong in [
            Removed(Some(SEAT)),
            touch(Ok(())),
            Closed(Ok(())),
            Expired(SEAT),
            Expired(closed),
            Removed(None),
        ] {
            assert!(!then(wrong), "{wrong:?}");
        }
        assert!(!sound(&[(6, touch(closing))]), "nobody has closed it");
    }

    #[test]
    fn who_has_it_is_told_and_one_makes_it_global() {
        let moved = |before| (6, Moved { owner: 2, answer: Ok(before) });
        let other = Seat { owner: 2, ..SEAT };
        assert!(sound(&[moved(1), (6, Checked(Ok(2))), (6, Removed(Some(other)))]));
        assert!(!sound(&[moved(1), (6, Checked(Ok(1)))]) && !sound(&[moved(2)]));
        assert!(!sound(&[moved(1), (8, Expired(SEAT))]));
        let local = Seat { global: false, ..SEAT };
        let of_local = |calls: &[(u32, Did)]| {
            super::sound::<sessions::Load>(&[&[create(local)], calls].concat())
        };
        let upgrade = |first| (6, Upgraded(Ok(first)));
        assert!(of_local(&[upgrade(true), upgrade(false), (8, Expired(SEAT))]));
        assert!(!of_local(&[upgrade(false)]) && !of_local(&[upgrade(true), upgrade(true)]));
        assert!(!of_local(&[upgrade(true), (8, Expired(local))]) && !sound(&[upgrade(true)]));
        // What is local is not told to a leader.
        assert!(of_local(&[(6, touch(Ok(()))), (7, SWEEP)]));
    }

    #[test]
    fn a_move_that_came_too_late_may_have_been_told() {
        let seat = |owner| Seat { owner, ..SEAT };
        let story = |began, told| {
            let calls = [
                at(1, 2, 5, create(SEAT).1),
                at(began, 20, 6, Moved { owner: 2, answer: Err(Refused::Unknown) }),
                at(10, 11, 6, Removed(Some(seat(told)))),
            ];
            let mut calls = calls.to_vec();
            calls.sort_by_key(|call| call.began);
            explained::<Sessions>(State::Unborn, &calls)
        };
        assert!(story(5, 1) && story(5, 2) && story(12, 1) && !story(12, 2));
    }

    #[test]
    fn each_touch_is_told_to_a_leader() {
        let (touch, report) = ((6, touch(Ok(()))), (7, Reported { left: 3 }));
        assert!(sound(&[touch, touch, report, (7, SWEEP)]));
        assert!(!sound(&[touch, (7, SWEEP)]), "it was forgotten");
        assert!(!sound(&[report]) && !sound(&[touch, report, report]), "nobody had touched it");
        assert!(!sound(&[touch, (7, Reported { left: 2 })]), "another time is left");
        // The first touch is under way when the second one has set the flag. A taking after the
        // second one must tell it.
        let calls = [
            at(1, 2, 5, create(SEAT).1),
            at(3, 30, 6, touch.1),
            at(4, 5, 6, touch.1),
            at(10, 11, 7, Swept { since: 3 }),
            at(40, 45, 7, report.1),
            at(40, 46, 7, Swept { since: 40 }),
        ];
        assert!(!explained::<Sessions>(State::Unborn, &calls));
        let without = [calls[0], calls[2], calls[3]];
        assert!(!explained::<Sessions>(State::Unborn, &without));
        // A touch that is under way beside a taking may set its flag after that.
        let slow = [calls[0], calls[1], calls[3], calls[4], calls[5]];
        assert!(explained::<Sessions>(State::Unborn, &slow));
    }
}
