//! The models: small histories of each store type, sound ones and those that each kind of mistake
//! would make.
//!
//! The tables are those of [`judge`]. A call is a tick and what was done. Calls come
//! one after another, unless they say when they began and ended: `3..20 1-6 touch 5 yes` is a touch
//! that was made from 3 to 20, while the ticks from 1 to 6 went by.

use super::acks::{self, Chosen, Issued};
use super::record::{Event, Of, Subject};
use super::{map, queue, sessions, table};
use expiry::{Ack, Done, ExpiryQueue, Handle, Reason, SessionError, Updated};
use model::linear::{check, Call, Span};
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

/// A store type whose calls can be read.
trait Text: Subject {
    fn did(words: &[&str]) -> Self::Did;
}

fn number<T: FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("{word:?} is no number"))
}

fn maybe<T: FromStr>(word: &str) -> Option<T> {
    (word != "-").then(|| number(word))
}

fn yes(word: &str) -> bool {
    word == "yes"
}

fn call<S: Text>(place: usize, text: &str) -> Call<Event<S::Did>> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let place = place as u64 * 10 + 1;
    let (began, ended) = match words[0].split_once("..") {
        Some((began, ended)) => {
            words.remove(0);
            (number(began), number(ended))
        }
        None => (place, place + 5),
    };
    // The ticks, and the tick when the thread last delivered an end.
    let (ticks, since) = words[0].split_once('/').unwrap_or((words[0], words[0]));
    let (from, to) = ticks.split_once('-').unwrap_or((ticks, ticks));
    let (from, to) = (number(from), number(to));
    let since = since.parse().unwrap_or(from);
    let did = match words[1..] {
        ["over"] => Event::Over,
        ["poll"] => Event::Polled { since: began },
        ["poll", since] => Event::Polled { since: number(since) },
        ref words => Event::Did(S::did(words)),
    };
    Call { at: Span { began, ended, from, to, since, thread: 0 }, did }
}

fn is_explained<S: Text>(history: &str) -> bool {
    let calls = history.split(';').filter(|call| !call.is_empty()).enumerate();
    let mut calls: Vec<_> = calls.map(|(place, text)| call::<S>(place, text)).collect();
    calls.sort_by_key(|call| call.at.began);
    check::<Of<S>>(S::INITIAL, &calls).is_ok()
}

/// Judges a table: lines of histories that have an explanation (`ok`), and of those that have none
/// (`no`), with `|` between them. A line with `=` is how the histories below it begin; one with `*`
/// is a remark. In a history there is `;` between calls.
fn judge<S: Text>(table: &str) {
    let mut beginning = "";
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        match first {
            "=" => beginning = rest,
            "ok" | "no" => rest.split('|').for_each(|history| {
                let history = format!("{beginning};{history}");
                assert_eq!(is_explained::<S>(&history), first == "ok", "{history}");
            }),
            _ => assert_eq!(first, "*"),
        }
    }
}

impl Text for map::Load {
    fn did(words: &[&str]) -> map::Did {
        use map::Did::*;
        match *words {
            ["insert", value, timeout, replaced] => Inserted {
                value: number(value),
                timeout: number(timeout),
                replaced: maybe(replaced),
            },
            ["exchange", from, done] => {
                Exchanged { from: maybe(from), value: 3, timeout: 9, done: yes(done) }
            }
            ["got", value] => Got(maybe(value)),
            ["left", ticks] => Remains(maybe(ticks)),
            ["touch", timeout, done] => Touched { timeout: number(timeout), done: yes(done) },
            ["removed", value] => Removed(maybe(value)),
            ["expired", value] => Expired(number(value)),
            _ => panic!("{words:?}"),
        }
    }
}

#[test]
fn map() {
    judge::<map::Load>(
        "
        * A value is there until its time is up, and is reported once.
        = 5 insert 1 3 -
        ok 7 got 1; 7 left 1; 8 got -; 8 expired 1; 8 poll; 8 over
        no 7 got 1; 7 left 1; 8 got 1; 8 expired 1; 8 poll; 8 over
        no 7 got 1; 7 left 1; 8 got -; 8 got 1; 8 poll; 8 over
        no 7 got 1; 7 left 1; 8 got -; 8 expired 1; 8 expired 1; 8 over
        * Early, by one tick.
        no 7 expired 1 | 7 got -
        * Left by a poll, or for ever.
        ok 7 poll
        no 8 poll | 7 over

        * A touch that was answered counts.
        = 1 insert 1 3 -; 3 touch 5 yes
        ok 7 got 1 | 8 expired 1 | 5 left 3
        no 7 expired 1 | 7 got - | 5 left 1

        * An insertion that has told a slow listener counts from then.
        =
        ok 1..5 1-9 insert 1 2 -; 6..7 3 expired 1 | 1..5 1-9/9 insert 1 2 -; 6..7 11 expired 1
        no 1..5 1-9/9 insert 1 2 -; 6..7 3 expired 1 | 1..5 1-9/9 insert 1 2 -; 6..7 10 expired 1

        * What was found to be gone does not come back, even by a touch that had looked at the
        * clock before.
        ok 1..2 1 insert 1 3 -; 3..9 2-4 touch 5 yes
        no 1 insert 1 3 -; 4 got -; 4 touch 5 yes
        no 1..2 1 insert 1 3 -; 3..9 2-4 touch 5 yes; 4..5 4 got -; 10..11 4 got 1

        * A value is replaced once, and then it is another.
        = 1 insert 1 9 -; 1 insert 2 9 1
        ok 1 got 2 | 1 insert 3 1 2 | 1 removed 2 | 1 exchange 1 no | 1 exchange 2 yes
        ok 1 exchange - no
        no 1 got 1 | 1 got - | 1 insert 3 1 1 | 1 insert 3 1 - | 1 removed 1 | 1 removed -
        no 1 exchange 1 yes | 1 exchange 2 no | 1 exchange - yes

        * A poll is not held to what was under way: a thread has been at something since before the
        * insertion had ended.
        = 1..5 1 insert 1 1 -
        ok 6..7 2 poll 5
        no 6..7 2 poll 6
        ",
    );
}

#[test]
fn a_delayed_touch_takes_nothing_back() {
    // Under way from tick 1 to tick 6; another one, at tick 5, asked for five.
    let soonest = |timeout: u32| {
        (1..=20).find(|end| {
            is_explained::<map::Load>(&format!(
                "1..2 1 insert 1 8 -; 3..20 1-6 touch {timeout} yes; 10..11 5 touch 5 yes; \
                 21..22 {end} expired 1"
            ))
        })
    };
    // With as long a timeout, or a longer one, not before 10; with a shorter one from tick 5 on.
    assert_eq!([5, 7, 2].map(soonest), [Some(10), Some(10), Some(7)]);
}

/// One of two handles that differ.
fn handle(name: &str) -> Handle {
    static HANDLES: LazyLock<[Handle; 2]> = LazyLock::new(|| {
        let queue = ExpiryQueue::<u64>::builder().build_manual().unwrap();
        [1, 2].map(|key| match queue.update(key, Duration::from_secs(1)) {
            Ok(Updated::Inserted { handle, .. }) => handle,
            other => panic!("{other:?}"),
        })
    });
    HANDLES[usize::from(name == "b")]
}

impl Text for queue::Load<u64> {
    fn did(words: &[&str]) -> queue::Did {
        use queue::Did::*;
        match *words {
            ["insert", name, timeout, expiry] => {
                Inserted { handle: handle(name), timeout: number(timeout), expiry: number(expiry) }
            }
            ["renewed", timeout, expiry] => {
                Renewed { timeout: number(timeout), expiry: maybe(expiry) }
            }
            ["touch", by, timeout, done] => Touched {
                by: (by != "-").then(|| handle(by)),
                timeout: number(timeout),
                done: yes(done),
            },
            ["removed", expiry] => Removed(maybe(expiry)),
            ["got", expiry, name] => Got(Some((number(expiry), handle(name)))),
            ["expired", expiry] => Expired { expiry: number(expiry) },
            _ => panic!("{words:?}"),
        }
    }
}

#[test]
fn queue() {
    judge::<queue::Load<u64>>(
        "
        * A key stays until a poll returns it.
        = 5 insert a 3 8; 9 touch - 2 yes
        ok 11 expired 11 | 10 poll | 9 removed 11 | 9 touch a 1 yes | 9 touch b 1 no | 9 got 11 a
        ok 9 renewed 2 - | 10 renewed 2 12
        no 11 expired 8 | 10 expired 11 | 11 poll | 10 over | 9 removed 8 | 9 removed -
        no 9 touch b 1 yes | 9 touch a 1 no | 9 got 8 a | 10 renewed 2 - | 10 renewed 2 11
        no 9 insert b 3 12

        * A renewal that asks for less may have read the clock before one that changes nothing,
        * but not before one that changes the deadline.
        = 5 insert a 7 12
        ok 12..90 5-6 renewed 3 8; 20..30 6 touch - 6 yes; 40..100 6 got 8 a
        ok 12..40 5-6 touch - 7 yes; 20..44 6 touch a 6 yes; 6 got 13 a; 6 touch - 5 yes
        no 12..90 5-6 renewed 3 8; 20..30 7 touch - 6 yes; 40..100 7 got 8 a
        no 7 touch - 6 yes; 7 renewed 3 9

        * It ends once.
        = 5 insert a 3 8
        ok 8 expired 8 | 8 removed 8
        no 8 expired 8; 8 expired 8 | 8 expired 8; 8 removed 8 | 8 removed 8; 8 expired 8
        no 8 removed 8; 8 removed 8
        ",
    );
}

impl<const ISSUED: bool> Text for acks::Load<ISSUED> {
    fn did(words: &[&str]) -> acks::Did {
        use acks::Did::*;
        let reason =
            |word: &str| if word == "acked" { Reason::Acked } else { Reason::Failed { by: None } };
        let told =
            |word: &str| word.split_once(':').map(|(why, owner)| (reason(why), number(owner)));
        let done = |word| match word {
            "now" => Some(Done::Now),
            "held" => Some(Done::Held),
            _ => None,
        };
        let ack = |word| match word {
            "pending" => Some(Ack::Pending),
            "completed" => Some(Ack::Completed),
            "held" => Some(Ack::Held),
            _ => None,
        };
        match *words {
            ["begin", xor, owner, of] => {
                Began { xor: number(xor), owner: number(owner), timeout: 4, told: told(of) }
            }
            ["duplicate"] => Duplicate,
            ["ack", xor, answer, of] => {
                Acked { xor: number(xor), answer: ack(answer), told: told(of) }
            }
            ["fail", answer, of] => Failed { answer: done(answer), told: told(of) },
            ["reset", timeout, answer] => Reset { timeout: number(timeout), answer: done(answer) },
            ["out", owner, due] => TimedOut { owner: number(owner), due: number(due) },
            ["told", why, owner] => ToldOf(reason(why), number(owner)),
            _ => panic!("{words:?}"),
        }
    }
}

#[test]
fn issued_roots() {
    judge::<Issued>(
        "
        * The ack that makes all cancel out completes.
        = 1 begin 3 7 -
        ok 1 ack 1 pending -; 1 ack 2 completed acked:7; 1 over
        no 1 ack 1 pending -; 1 ack 2 pending - | 1 ack 1 pending -; 1 ack 1 completed acked:7
        no 1 ack 1 pending -; 1 ack 2 late -
        * A lost one: told as counted, and the next does not complete.
        no 1 ack 1 pending -; 1 ack 2 completed acked:7; 1 ack 2 pending -
        * The call ended it, and the handler was not told; or it was, and no call has ended it.
        no 1 ack 3 completed - | 1 fail now - | 1 ack 1 pending -; 1 told acked 7

        * A root ends once, and not before its time.
        ok 1 fail now failed:7; 1 fail late -; 1 ack 1 late - | 5 out 7 5; 5 over
        ok 2 reset 9 now; 11 out 7 11
        no 1 fail now failed:7; 1 fail now failed:7 | 1 fail late - | 4 out 7 5 | 6 out 7 6 | 5 poll
        no 4 over | 2 reset 9 now; 5 out 7 5
        * It does not come back.
        no 1 fail now failed:7; 1 begin 3 8 - | 1 fail now failed:7; 1 ack 1 held -

        * Between the last ack and the end another call may end it.
        =
        ok 1..2 1 begin 1 7 -; 3..9 1 ack 1 late -; 4..5 1 fail now failed:7
        no 1..2 1 begin 1 7 -; 3..9 1 ack 1 completed acked:7; 4..5 1 fail now failed:7
        no 1..2 1 begin 1 7 -; 3..9 1 ack 1 pending -; 4..5 1 fail now failed:7
        ",
    );
}

#[test]
fn chosen_roots() {
    judge::<Chosen>(
        "
        * Acks count before and after the init.
        = 1 ack 1 held -
        ok 1 begin 3 7 -; 1 ack 2 completed acked:7; 1 over | 1 begin 1 7 acked:7; 1 over
        no 1 begin 1 7 - | 1 begin 3 7 -; 1 ack 2 pending -
        no 1 begin 3 7 -; 1 ack 2 completed acked:8
        =
        no 1 begin 3 7 -; 1 ack 1 held -

        * An init of what is in flight is refused.
        = 1 begin 3 7 -
        ok 1 duplicate; 1 ack 1 pending -
        no 1 begin 3 8 -
        =
        no 1 duplicate

        * A fail ends it, or is held.
        = 1 begin 3 7 -
        ok 1 fail now failed:7; 1 over
        no 1 fail now - | 1 fail now failed:8
        = 1 fail held -
        ok 1 begin 3 7 failed:7; 1 over
        no 1 begin 3 7 -

        * A fail that meets an init is reported by that.
        =
        ok 1..2 1 ack 1 held -; 3..9 1 begin 3 7 failed:7; 4..5 1 fail now -; 10..11 1 over
        no 1..2 1 ack 1 held -; 3..9 1 begin 3 7 -; 4..5 1 fail now -; 10..11 1 over
        no 1..2 1 ack 1 held -; 3..9 1 begin 3 7 acked:7; 4..5 1 fail now -; 10..11 1 over

        * Early signs expire unreported.
        = 1 ack 1 held -
        ok 9 poll; 9 over | 9 poll; 9 begin 1 7 -; 9 ack 1 completed acked:7
        no 8 poll; 8 over | 9 poll; 9 begin 1 7 acked:7

        * It times out when it is due.
        = 1 begin 3 7 -
        ok 5 out 7 5; 5 over | 2 reset 9 now; 11 out 7 11
        no 4 out 7 5 | 5 out 8 5 | 5 out 7 5; 5 out 7 5 | 5 poll | 2 reset 9 now; 5 out 7 5
        ",
    );
}

/// `7gc` is owned by 7, global, and being closed.
fn seat(word: &str) -> sessions::Seat {
    let owner = number(word.trim_end_matches(['g', 'c']));
    sessions::Seat { owner, global: word.contains('g'), closing: word.contains('c') }
}

impl Text for sessions::Load {
    fn did(words: &[&str]) -> sessions::Did {
        use sessions::Did::*;
        fn answer<T>(word: &str, granted: fn(&str) -> T) -> Result<T, SessionError> {
            match word {
                "gone" => Err(SessionError::Unknown),
                "closing" => Err(SessionError::Closing),
                word => Ok(granted(word)),
            }
        }
        match *words {
            ["create", as_this] => Created { seat: seat(as_this), timeout: 3 },
            ["touch", done] => Touched { timeout: 4, answer: answer(done, |_| ()) },
            ["closed", done] => Closed(answer(done, |_| ())),
            ["removed", told] => Removed((told != "-").then(|| seat(told))),
            ["moved", to, before] => Moved { owner: number(to), answer: answer(before, number) },
            ["checked", owner] => Checked(answer(owner, number)),
            ["upgraded", first] => Upgraded(answer(first, yes)),
            ["expired", told] => Expired(seat(told)),
            ["reported", left] => Reported { left: number(left) },
            _ => panic!("{words:?}"),
        }
    }
}

#[test]
fn sessions() {
    judge::<sessions::Load>(
        "
        * A session lives until a poll finds its time up.
        = 5 create 1g
        ok 7 poll; 8 expired 1g; 8 poll; 9 touch gone; 9 over
        ok 7 touch ok; 9 reported 2; 9 poll; 11 expired 1g
        * Early, by one tick; left by a poll, or for ever; touched after its end, or not found before.
        no 7 expired 1g | 8 poll | 8 over | 8 expired 1g; 8 touch ok | 6 touch gone
        no 8 expired 1g; 8 expired 1g | 5 create 1g
        * No call has closed it.
        no 6 touch closing

        * Closing is final.
        = 5 create 1g; 6 closed ok; 99 poll
        ok 99 removed 1gc | 99 touch closing | 99 checked closing | 99 upgraded no
        ok 99 closed closing
        no 99 removed 1g | 99 touch ok | 99 closed ok | 99 expired 1g | 99 expired 1gc
        no 99 removed -

        * Its owner is told, and one call makes it global.
        = 5 create 1g
        ok 6 moved 2 1; 6 checked 2; 6 removed 2g
        no 6 moved 2 1; 6 checked 1 | 6 moved 2 2 | 6 moved 2 1; 8 expired 1g | 6 upgraded yes
        = 5 create 1
        ok 6 upgraded yes; 6 upgraded no; 8 expired 1g
        no 6 upgraded no | 6 upgraded yes; 6 upgraded yes | 6 upgraded yes; 8 expired 1
        * What is local is not reported to a leader.
        ok 6 touch ok; 7 poll

        * A move that came too late may have been seen.
        = 1..2 5 create 1g
        ok 5..20 6 moved 2 gone; 10..11 6 removed 1g | 5..20 6 moved 2 gone; 10..11 6 removed 2g
        ok 12..20 6 moved 2 gone; 10..11 6 removed 1g
        no 12..20 6 moved 2 gone; 10..11 6 removed 2g

        * Each touch is reported to a leader.
        = 5 create 1g
        ok 6 touch ok; 6 touch ok; 7 reported 3; 7 poll
        * It was forgotten.
        no 6 touch ok; 7 poll
        * There was no touch.
        no 7 reported 3 | 6 touch ok; 7 reported 3; 7 reported 3
        * Another time is left.
        no 6 touch ok; 7 reported 2
        * The first touch is under way when the second one has set the flag. A taking after the
        * second one must report it.
        = 1..2 5 create 1g
        no 3..30 6 touch ok; 4..5 6 touch ok; 10..11 7 poll 3; 40..45 7 reported 3; 40..46 7 poll 40
        no 4..5 6 touch ok; 10..11 7 poll 3
        * A touch that is under way beside a taking may set its flag after that.
        ok 3..30 6 touch ok; 10..11 7 poll 3; 40..45 7 reported 3; 40..46 7 poll 40
        ",
    );
}

impl Text for table::Load {
    fn did(words: &[&str]) -> table::Did {
        use table::Did::*;
        match *words {
            ["insert", timeout] => Inserted(number(timeout)),
            ["took", own] => Took((own != "-").then(|| own == "own")),
            ["left", ticks] => Remains(maybe(ticks)),
            ["cancelled"] => Cancelled,
            ["expired"] => Expired,
            _ => panic!("{words:?}"),
        }
    }
}

#[test]
fn table() {
    judge::<table::Load>(
        "
        * A value stays until a call takes it, or a poll finds its time up.
        = 5 insert 3
        ok 7 poll; 8 expired; 8 poll; 9 took -; 9 over
        ok 9 left 0; 9 took own; 9 poll; 9 left -; 9 over | 6 left 2; 6 cancelled; 6 over
        * Early, by one tick; left by a poll, or for ever; not found, or with another time left.
        no 7 expired | 8 poll | 8 over | 6 took - | 6 left - | 6 left 3 | 7 left 0
        * The ticket has reached another value, or its own one twice.
        no 6 took other | 6 took own; 6 took other | 6 took own; 6 took own
        * It has ended twice, or come back.
        no 6 took own; 8 expired | 8 expired; 8 took own | 8 expired; 8 expired
        no 6 cancelled; 6 took own | 6 took own; 6 insert 3 | 6 took own; 6 left 2

        * Of a take and the poll in which it expires one gets it, in either order.
        = 1..2 5 insert 3
        ok 3..9 8 took own; 4..5 8 poll | 3..9 8 took -; 4..5 8 expired
        no 3..9 8 took own; 4..5 8 expired | 6..9 8 took own; 4..5 8 poll
        ",
    );
}
