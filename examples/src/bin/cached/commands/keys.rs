//! Commands about keys and their deadlines.

use super::{is, refused, Done, Failure, Request, Session, When};
use crate::cache::Stored;
use crate::glob;
use crate::protocol::integer;
use std::collections::hash_map::DefaultHasher;
use std::collections::BinaryHeap;
use std::hash::{Hash, Hasher};

/// A `SCAN` of all keys takes at most about so many calls, each of which goes over all keys.
const SCANS: usize = 64;

fn count(
    session: &mut Session,
    request: Request<'_>,
    done: impl Fn(&Session, &[u8]) -> bool,
) -> Done {
    let number = request.from(1).filter(|key| done(session, key)).count();
    session.replies.integer(number as i64);
    Ok(())
}

/// Key by key.
pub(super) fn del(session: &mut Session, request: Request<'_>) -> Done {
    count(session, request, |session, key| session.shared.cache.map.remove(key).is_some())
}

pub(super) fn exists(session: &mut Session, request: Request<'_>) -> Done {
    count(session, request, |session, key| session.shared.cache.map.contains_key(key))
}

/// A look-up is what keeps a key from being evicted.
pub(super) fn touch(session: &mut Session, request: Request<'_>) -> Done {
    count(session, request, |session, key| session.shared.cache.map.get(key).is_some())
}

pub(super) fn r#type(session: &mut Session, request: Request<'_>) -> Done {
    let there = session.shared.cache.map.contains_key(request.word(1));
    session.replies.simple(if there { "string" } else { "none" });
    Ok(())
}

pub(super) fn expire(session: &mut Session, request: Request<'_>, when: When) -> Done {
    let deadline = session.deadline(request, when, request.word(2))?;
    let (mut new, mut old_only, mut later, mut sooner) = (false, false, false, false);
    for word in request.from(3) {
        match word {
            _ if is(word, "NX") => new = true,
            _ if is(word, "XX") => old_only = true,
            _ if is(word, "GT") => later = true,
            _ if is(word, "LT") => sooner = true,
            _ => return refused(format!("ERR Unsupported option {}", super::text(word))),
        }
    }
    if new && (old_only || later || sooner) {
        let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
        return refused(text);
    }
    if later && sooner {
        return refused("ERR GT and LT options at the same time are not compatible");
    }
    let set = session.shared.cache.update(request.word(1), |old| {
        let Some(old) = old else {
            return (None, false);
        };
        // No deadline is later than any.
        let now = old.deadline.unwrap_or(i64::MAX);
        let stays = new && old.deadline.is_some()
            || old_only && old.deadline.is_none()
            || later && deadline <= now
            || sooner && deadline >= now;
        match stays {
            true => (None, false),
            false => (Some(Stored { deadline: Some(deadline), ..old.clone() }), true),
        }
    })?;
    session.replies.integer(set.into());
    Ok(())
}

pub(super) fn persist(session: &mut Session, request: Request<'_>) -> Done {
    let done = session.shared.cache.update(request.word(1), |old| match old {
        Some(old) if old.deadline.is_some() => {
            (Some(Stored { deadline: None, ..old.clone() }), true)
        }
        _ => (None, false),
    })?;
    session.replies.integer(done.into());
    Ok(())
}

/// The deadline: what is left of it, or its time since 1970. Seconds are rounded, as Redis does.
pub(super) fn ttl(session: &mut Session, request: Request<'_>, when: When) -> Done {
    let cache = &session.shared.cache;
    let deadline = cache.map.peek(request.word(1)).map(|stored| stored.deadline);
    session.replies.integer(match deadline {
        None => -2,
        Some(None) => -1,
        Some(Some(deadline)) => {
            let now = if when.from_now { cache.now().as_millis() as i64 } else { 0 };
            (deadline - now).max(0).saturating_add(when.unit / 2) / when.unit
        }
    });
    Ok(())
}

pub(super) fn dbsize(session: &mut Session, _: Request<'_>) -> Done {
    session.replies.integer(session.shared.cache.map.len() as i64);
    Ok(())
}

/// The keys that are there when this begins, one by one.
pub(super) fn flushall(session: &mut Session, request: Request<'_>) -> Done {
    match request.from(1).next() {
        Some(word) if request.len() > 2 || !(is(word, "SYNC") || is(word, "ASYNC")) => {
            return Err(Failure::Syntax);
        }
        _ => session.shared.cache.map.clear(),
    }
    session.replies.simple("OK");
    Ok(())
}

/// One of the first hundred keys that the map comes to. Its order is that of the hash, whose seed
/// is another one in each process.
pub(super) fn randomkey(session: &mut Session, _: Request<'_>) -> Done {
    let cache = &session.shared.cache;
    let map = &cache.map;
    let skipped = cache.now().subsec_nanos() as usize % map.len().clamp(1, 100);
    let key =
        map.iter().nth(skipped).or_else(|| map.iter().next()).map(|entry| entry.key().clone());
    session.replies.bulk_or_null(key.as_deref());
    Ok(())
}

pub(super) fn keys(session: &mut Session, request: Request<'_>) -> Done {
    let keys = session.shared.cache.map.iter().map(|entry| entry.key().clone());
    let keys: Vec<_> = keys.filter(|key| glob::matches(request.word(1), key)).collect();
    session.replies.array(keys.len());
    keys.iter().for_each(|key| session.replies.bulk(key));
    Ok(())
}

/// The order in which `SCAN` shows keys. The cursor is a place in it, so the server keeps nothing
/// of a scan, and shows a key that is there all the while exactly once.
fn place(key: &[u8]) -> i64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    (hasher.finish() >> 1) as i64
}

pub(super) fn scan(session: &mut Session, request: Request<'_>) -> Done {
    let cursor = integer(request.word(1)).filter(|&cursor| cursor >= 0);
    let Some(cursor) = cursor else {
        return refused("ERR invalid cursor");
    };
    let (mut words, mut number, mut pattern, mut strings) = (request.from(2), 10, None, true);
    while let Some(word) = words.next() {
        let value = words.next().ok_or(Failure::Syntax)?;
        match word {
            _ if is(word, "MATCH") => pattern = Some(value),
            _ if is(word, "TYPE") => strings = is(value, "string"),
            _ if is(word, "COUNT") => match integer(value).ok_or(Failure::Integer)? {
                count @ 1.. => number = count as usize,
                _ => return Err(Failure::Syntax),
            },
            _ => return Err(Failure::Syntax),
        }
    }
    let map = &session.shared.cache.map;
    let number = number.max(map.len() / SCANS);
    // The first keys from the cursor on, the last of them on top; and where the next call begins.
    let (mut first, mut next) = (BinaryHeap::new(), None);
    for entry in map {
        let place = place(entry.key());
        if place >= cursor && next.is_none_or(|next| place < next) {
            first.push((place, entry.key().clone()));
            if first.len() > number {
                next = first.pop().map(|(place, _)| place);
            }
        }
    }
    first.retain(|(place, key)| {
        let shown = pattern.is_none_or(|pattern| glob::matches(pattern, key));
        strings && shown && next.is_none_or(|next| *place < next)
    });
    session.replies.array(2);
    session.replies.bulk(next.unwrap_or(0).to_string().as_bytes());
    session.replies.array(first.len());
    first.iter().for_each(|(_, key)| session.replies.bulk(key));
    Ok(())
}
