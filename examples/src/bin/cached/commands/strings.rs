//! Commands that read and write values.

use super::{is, lower, refused, wrong_arity, Request, Session, When, INTEGER, SYNTAX};
use crate::cache::Stored;
use crate::protocol::{integer, MAX_BULK};
use expiry_examples::Done;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Of an integer.
type Digits = SmallVec<[u8; 20]>;

pub(super) fn get(session: &mut Session, request: Request<'_>) -> Done {
    let found = session.server.cache.map.get(request.word(1));
    session.replies.bulk_or_null(found.as_ref().map(|found| &*found.data))
}

/// Each key's value at some moment of the call: not all at one moment.
pub(super) fn mget(session: &mut Session, request: Request<'_>) -> Done {
    let guard = session.server.cache.map.guard();
    session.replies.array(request.len() - 1)?;
    for value in guard.get_many(request.from(1)) {
        session.replies.bulk_or_null(value.map(|value| &*value.data))?;
    }
    Ok(())
}

pub(super) fn strlen(session: &mut Session, request: Request<'_>) -> Done {
    let found = session.server.cache.map.get(request.word(1));
    session.replies.integer(found.map_or(0, |found| found.data.len()))
}

/// The number for a deadline, where a client gives one, and its kind.
type Given<'a> = Option<(When, &'a [u8])>;

/// The options among these words: which of the flags there are, and the number for a deadline.
/// Deadlines of two kinds exclude each other, and the last flag excludes any.
fn options<'a, const N: usize>(
    mut words: impl Iterator<Item = &'a [u8]>,
    flags: [&str; N],
) -> Done<([bool; N], Given<'a>)> {
    let (mut set, mut given) = ([false; N], None);
    while let Some(word) = words.next() {
        match flags.iter().position(|flag| is(word, flag)) {
            Some(flag) => set[flag] = true,
            None => {
                let when = When::option(word).ok_or(SYNTAX)?;
                match given.replace((when, words.next().ok_or(SYNTAX)?)) {
                    Some((other, _)) if other != when => return refused(SYNTAX),
                    _ => {}
                }
            }
        }
    }
    match given.is_some() && set[N - 1] {
        true => refused(SYNTAX),
        false => Ok((set, given)),
    }
}

pub(super) fn set(session: &mut Session, request: Request<'_>) -> Done {
    let (flags, given) = options(request.from(3), ["NX", "XX", "GET", "KEEPTTL"])?;
    let [new_only, old_only, shows, keeps] = flags;
    if new_only && old_only {
        return refused(SYNTAX);
    }
    let deadline = given.map(|(when, number)| session.deadline(request, when, number, 1));
    let new = Stored::new(request.word(2), deadline.transpose()?);
    if !flags.contains(&true) {
        session.server.cache.insert(request.word(1), new)?;
        return session.replies.simple("OK");
    }
    let (done, old) = session.server.cache.update(request.word(1), |old| {
        let goes = !(if old.is_some() { new_only } else { old_only });
        let deadline = old.filter(|_| keeps).map_or(new.deadline, |old| old.deadline);
        let new = goes.then(|| Stored { deadline, ..new.clone() });
        Ok((new, (goes, old.filter(|_| shows).map(|old| old.data.clone()))))
    })?;
    match done && !shows {
        true => session.replies.simple("OK"),
        false => session.replies.bulk_or_null(old.as_deref()),
    }
}

pub(super) fn setex(session: &mut Session, request: Request<'_>, when: When) -> Done {
    let deadline = session.deadline(request, when, request.word(2), 1)?;
    let stored = Stored::new(request.word(3), Some(deadline));
    session.server.cache.insert(request.word(1), stored)?;
    session.replies.simple("OK")
}

/// Puts a value in unless the key has one. Returns whether it did.
fn put_new(session: &Session, key: &[u8], new: &Stored) -> Done<bool> {
    session.server.cache.update(key, |old| Ok((old.is_none().then(|| new.clone()), old.is_none())))
}

pub(super) fn setnx(session: &mut Session, request: Request<'_>) -> Done {
    let set = put_new(session, request.word(1), &Stored::new(request.word(2), None))?;
    session.replies.integer(i64::from(set))
}

pub(super) fn getset(session: &mut Session, request: Request<'_>) -> Done {
    let new = Stored::new(request.word(2), None);
    let change = |old: Option<&Stored>| Ok((Some(new.clone()), old.map(|old| old.data.clone())));
    let old = session.server.cache.update(request.word(1), change)?;
    session.replies.bulk_or_null(old.as_deref())
}

pub(super) fn getdel(session: &mut Session, request: Request<'_>) -> Done {
    let removed = session.server.cache.map.remove(request.word(1));
    session.replies.bulk_or_null(removed.as_ref().map(|removed| &*removed.value().data))
}

pub(super) fn getex(session: &mut Session, request: Request<'_>) -> Done {
    let ([persist], given) = options(request.from(2), ["PERSIST"])?;
    // Without the key, the number is of no interest.
    if !persist && given.is_none() || !session.server.cache.map.contains_key(request.word(1)) {
        return get(session, request);
    }
    let deadline = given.map(|(when, number)| session.deadline(request, when, number, 1));
    let deadline = deadline.transpose()?;
    let mut found = None;
    session.retime(request, |old| {
        found = Some(old.data.clone());
        Some(deadline)
    })?;
    session.replies.bulk_or_null(found.as_deref())
}

fn pairs(request: Request<'_>) -> Done<impl Iterator<Item = (&[u8], &[u8])>> {
    if request.len() % 2 != 1 {
        return wrong_arity(&lower(request.word(0)));
    }
    Ok(request.from(1).step_by(2).zip(request.from(2).step_by(2)))
}

/// Key by key: another client may find the first new value beside the last old one.
pub(super) fn mset(session: &mut Session, request: Request<'_>) -> Done {
    for (key, data) in pairs(request)? {
        session.server.cache.insert(key, Stored::new(data, None))?;
    }
    session.replies.simple("OK")
}

/// All keys or none. If another client comes in between with one of them, those that were put in
/// before are taken back; it may have seen them.
pub(super) fn msetnx(session: &mut Session, request: Request<'_>) -> Done {
    // Of a key that comes twice, the last value.
    let all: BTreeMap<_, _> = pairs(request)?.collect();
    let map = &session.server.cache.map;
    let (mut put, mut set) = (Vec::new(), Ok(!all.keys().any(|key| map.contains_key(*key))));
    for (key, data) in all {
        if !matches!(set, Ok(true)) {
            break;
        }
        let stored = Stored::new(data, None);
        set = put_new(session, key, &stored);
        put.push((key, stored));
    }
    if !matches!(set, Ok(true)) {
        for (key, stored) in put {
            map.remove_if(key, |_, now| Arc::ptr_eq(&now.data, &stored.data));
        }
    }
    session.replies.integer(i64::from(set?))
}

/// Puts in what `next` makes of a key's value, or of none. The deadline stays.
fn count<T, D: AsRef<[u8]>>(
    session: &Session,
    request: Request<'_>,
    next: impl Fn(Option<&[u8]>) -> Done<(T, D)>,
) -> Done<T> {
    session.server.cache.update(request.word(1), |old| {
        let (result, data) = next(old.map(|old| &*old.data))?;
        Ok((Some(Stored::new(data.as_ref(), old.and_then(|old| old.deadline))), result))
    })
}

pub(super) fn append(session: &mut Session, request: Request<'_>) -> Done {
    let length = count(session, request, |old| {
        let (old, more) = (old.unwrap_or_default(), request.word(2));
        match old.len() + more.len() {
            length @ ..=MAX_BULK => Ok((length, [old, more].concat())),
            _ => refused("string exceeds maximum allowed size (proto-max-bulk-len)"),
        }
    })?;
    session.replies.integer(length)
}

pub(super) fn add(session: &mut Session, request: Request<'_>, amount: i64) -> Done {
    let sum = count(session, request, |old| {
        let old = old.map_or(Some(0), integer).ok_or(INTEGER)?;
        let sum = old.checked_add(amount).ok_or("increment or decrement would overflow")?;
        Ok((sum, Digits::from(itoa::Buffer::new().format(sum).as_bytes())))
    })?;
    session.replies.integer(sum)
}

pub(super) fn incrby(session: &mut Session, request: Request<'_>) -> Done {
    add(session, request, integer(request.word(2)).ok_or(INTEGER)?)
}

pub(super) fn decrby(session: &mut Session, request: Request<'_>) -> Done {
    let amount = integer(request.word(2)).ok_or(INTEGER)?;
    add(session, request, amount.checked_neg().ok_or("decrement would overflow")?)
}

/// In 64 bits, of which `{}` prints the shortest text that is read as the same number. Redis
/// reckons in 80.
pub(super) fn incrbyfloat(session: &mut Session, request: Request<'_>) -> Done {
    let number = |text: &[u8]| {
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
        number.filter(|number| !number.is_nan()).ok_or("value is not a valid float")
    };
    let amount = number(request.word(2))?;
    let sum = count(session, request, |old| {
        let sum = old.map_or(Ok(0.0), number)? + amount;
        match sum.is_finite() {
            true => Ok((sum.to_string(), sum.to_string())),
            false => refused("increment would produce NaN or Infinity"),
        }
    })?;
    session.replies.bulk(sum)
}
