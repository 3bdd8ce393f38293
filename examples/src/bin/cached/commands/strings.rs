//! Commands that read and write values.

use super::{is, refused, Done, Failure, Request, Session, When};
use crate::cache::Stored;
use crate::protocol::{integer, MAX_BULK};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) fn get(session: &mut Session, request: Request<'_>) -> Done {
    let found = session.shared.cache.map.get(request.word(1));
    session.replies.bulk_or_null(found.as_ref().map(|found| &*found.data));
    Ok(())
}

/// Each key's value at some moment of the call: not all at one moment.
pub(super) fn mget(session: &mut Session, request: Request<'_>) -> Done {
    let guard = session.shared.cache.map.guard();
    session.replies.array(request.len() - 1);
    for value in guard.get_many(request.from(1)) {
        session.replies.bulk_or_null(value.map(|value| &*value.data));
    }
    Ok(())
}

pub(super) fn strlen(session: &mut Session, request: Request<'_>) -> Done {
    let found = session.shared.cache.map.get(request.word(1));
    session.replies.integer(found.map_or(0, |found| found.data.len() as i64));
    Ok(())
}

pub(super) fn set(session: &mut Session, request: Request<'_>) -> Done {
    let (mut new_only, mut old_only, mut shows, mut keeps) = (false, false, false, false);
    let (mut words, mut deadline) = (request.from(3), None);
    while let Some(word) = words.next() {
        let timed = keeps || deadline.is_some();
        match When::option(word) {
            Some(when) if !timed => {
                let number = words.next().ok_or(Failure::Syntax)?;
                deadline = Some(session.lifetime(request, when, number)?);
            }
            None if is(word, "NX") && !old_only => new_only = true,
            None if is(word, "XX") && !new_only => old_only = true,
            None if is(word, "GET") => shows = true,
            None if is(word, "KEEPTTL") && deadline.is_none() => keeps = true,
            _ => return Err(Failure::Syntax),
        }
    }
    let (key, stored) = (request.word(1), Stored::new(request.word(2), deadline));
    if !(new_only || old_only || shows || keeps) {
        session.shared.cache.insert(key, stored)?;
        session.replies.simple("OK");
        return Ok(());
    }
    let (done, shown) = session.shared.cache.update(key, |old| {
        let mut new = stored.clone();
        if keeps {
            new.deadline = old.and_then(|old| old.deadline);
        }
        let goes = !(new_only && old.is_some() || old_only && old.is_none());
        let change = if goes { Some(new) } else { None };
        (change, (goes, old.filter(|_| shows).map(|old| old.data.clone())))
    })?;
    match done && !shows {
        true => session.replies.simple("OK"),
        false => session.replies.bulk_or_null(shown.as_deref()),
    }
    Ok(())
}

pub(super) fn setex(session: &mut Session, request: Request<'_>, when: When) -> Done {
    let deadline = session.lifetime(request, when, request.word(2))?;
    let stored = Stored::new(request.word(3), Some(deadline));
    session.shared.cache.insert(request.word(1), stored)?;
    session.replies.simple("OK");
    Ok(())
}

/// Puts a value in unless the key has one. Returns whether it did.
fn put_new(session: &Session, key: &[u8], stored: &Stored) -> Result<bool, Failure> {
    Ok(session.shared.cache.update(key, |old| match old {
        Some(_) => (None, false),
        None => (Some(stored.clone()), true),
    })?)
}

pub(super) fn setnx(session: &mut Session, request: Request<'_>) -> Done {
    let set = put_new(session, request.word(1), &Stored::new(request.word(2), None))?;
    session.replies.integer(set.into());
    Ok(())
}

pub(super) fn getset(session: &mut Session, request: Request<'_>) -> Done {
    let stored = Stored::new(request.word(2), None);
    let old = session
        .shared
        .cache
        .update(request.word(1), |old| (Some(stored.clone()), old.map(|old| old.data.clone())))?;
    session.replies.bulk_or_null(old.as_deref());
    Ok(())
}

pub(super) fn getdel(session: &mut Session, request: Request<'_>) -> Done {
    let removed = session.shared.cache.map.remove(request.word(1));
    session.replies.bulk_or_null(removed.as_ref().map(|removed| &*removed.value().data));
    Ok(())
}

pub(super) fn getex(session: &mut Session, request: Request<'_>) -> Done {
    let deadline =
        match (request.len(), request.from(2).next().map(|word| (word, When::option(word)))) {
            (2, _) => return get(session, request),
            (3, Some((word, None))) if is(word, "PERSIST") => None,
            (4, Some((_, Some(when)))) => Some(session.lifetime(request, when, request.word(3))?),
            _ => return Err(Failure::Syntax),
        };
    let found = session.shared.cache.update(request.word(1), |old| match old {
        Some(old) => (Some(Stored { deadline, ..old.clone() }), Some(old.data.clone())),
        None => (None, None),
    })?;
    session.replies.bulk_or_null(found.as_deref());
    Ok(())
}

fn pairs(request: Request<'_>) -> Result<impl Iterator<Item = (&[u8], &[u8])> + Clone, Failure> {
    if request.len() % 2 != 1 {
        return Err(Failure::Arity(super::lower(request.word(0))));
    }
    Ok(request.from(1).step_by(2).zip(request.from(2).step_by(2)))
}

/// Key by key: another client may find the first new value beside the last old one.
pub(super) fn mset(session: &mut Session, request: Request<'_>) -> Done {
    for (key, data) in pairs(request)? {
        session.shared.cache.insert(key, Stored::new(data, None))?;
    }
    session.replies.simple("OK");
    Ok(())
}

/// All keys or none. If another client comes in between with one of them, those that were put in
/// before are taken back; it may have seen them.
pub(super) fn msetnx(session: &mut Session, request: Request<'_>) -> Done {
    let pairs = pairs(request)?;
    let cache = &session.shared.cache;
    let mut put: Vec<(&[u8], Stored)> = Vec::new();
    let mut set = Ok(!pairs.clone().any(|(key, _)| cache.map.contains_key(key)));
    let all: BTreeMap<_, _> = pairs.collect(); // of a key that comes twice, the last value
    for (key, data) in all {
        if matches!(set, Ok(true)) {
            let stored = Stored::new(data, None);
            set = put_new(session, key, &stored);
            put.push((key, stored));
        }
    }
    let set = set.map(i64::from);
    if !matches!(set, Ok(1)) {
        for (key, stored) in put {
            let same = |_: &_, now: &Stored| Arc::ptr_eq(&now.data, &stored.data);
            cache.map.remove_if(key, same);
        }
    }
    session.replies.integer(set?);
    Ok(())
}

pub(super) fn append(session: &mut Session, request: Request<'_>) -> Done {
    let more = request.word(2);
    let length = session.shared.cache.update(request.word(1), |old| {
        let (data, deadline) = old.map_or((&[][..], None), |old| (&*old.data, old.deadline));
        let length = data.len() + more.len();
        match length < MAX_BULK {
            true => (Some(Stored::new(&[data, more].concat(), deadline)), Some(length)),
            false => (None, None),
        }
    })?;
    let Some(length) = length else {
        return refused("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    };
    session.replies.integer(length as i64);
    Ok(())
}

/// Puts in what `next` makes of a key's value, or of none. The deadline stays.
fn count<T>(
    session: &Session,
    key: &[u8],
    next: impl Fn(Option<&[u8]>) -> Result<(T, String), Failure>,
) -> Result<T, Failure> {
    session.shared.cache.update(key, |old| match next(old.map(|old| &*old.data)) {
        Ok((number, text)) => {
            let deadline = old.and_then(|old| old.deadline);
            (Some(Stored::new(text.as_bytes(), deadline)), Ok(number))
        }
        Err(failure) => (None, Err(failure)),
    })?
}

/// Adds `amount`, or what the request says.
pub(super) fn add(session: &mut Session, request: Request<'_>, amount: Option<i64>) -> Done {
    let amount = match amount {
        Some(amount) => amount,
        None => integer(request.word(2)).ok_or(Failure::Integer)?,
    };
    let sum = count(session, request.word(1), |old| {
        let old = old.map_or(Some(0), integer).ok_or(Failure::Integer)?;
        match old.checked_add(amount) {
            Some(sum) => Ok((sum, sum.to_string())),
            None => refused("ERR increment or decrement would overflow"),
        }
    })?;
    session.replies.integer(sum);
    Ok(())
}

pub(super) fn decrby(session: &mut Session, request: Request<'_>) -> Done {
    match integer(request.word(2)).ok_or(Failure::Integer)?.checked_neg() {
        Some(amount) => add(session, request, Some(amount)),
        None => refused("ERR decrement would overflow"),
    }
}

/// In 64 bits, of which `{}` prints the shortest text that is read as the same number. Redis
/// reckons in 80.
pub(super) fn incrbyfloat(session: &mut Session, request: Request<'_>) -> Done {
    let number = |text: &[u8]| {
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
        number.filter(|number| !number.is_nan()).ok_or(Failure::Float)
    };
    let amount = number(request.word(2))?;
    let sum = count(session, request.word(1), |old| {
        let sum = old.map_or(Ok(0.0), number)? + amount;
        match sum.is_finite() {
            true => Ok((sum.to_string(), sum.to_string())),
            false => refused("ERR increment would produce NaN or Infinity"),
        }
    })?;
    session.replies.bulk(sum.as_bytes());
    Ok(())
}
