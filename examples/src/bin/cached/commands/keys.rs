//! Commands about keys and their deadlines.

use super::{is, refused, text, Request, Session, When, INTEGER, SYNTAX};
use crate::cache::Map;
use crate::glob;
use crate::protocol::integer;
use expiry_examples::Done;
use std::collections::hash_map::DefaultHasher;
use std::collections::BinaryHeap;
use std::hash::{Hash, Hasher};

/// A `SCAN` of all keys takes at most about so many calls, each of which goes over all keys.
const SCANS: usize = 64;

/// For how many keys, one by one, `done` is true. A look-up keeps a key from being evicted.
pub(super) fn count(
    session: &mut Session,
    request: Request<'_>,
    done: fn(&Map, &[u8]) -> bool,
) -> Done {
    let number = request.from(1).filter(|key| done(&session.server.cache.map, key)).count();
    session.replies.integer(number)
}

pub(super) fn r#type(session: &mut Session, request: Request<'_>) -> Done {
    let there = session.server.cache.map.contains_key(request.word(1));
    session.replies.simple(if there { "string" } else { "none" })
}

pub(super) fn expire(session: &mut Session, request: Request<'_>, when: When) -> Done {
    let mut options = [false; 4];
    for word in request.from(3) {
        match ["NX", "XX", "GT", "LT"].iter().position(|option| is(word, option)) {
            Some(option) => options[option] = true,
            None => return refused(format!("Unsupported option {}", text(word))),
        }
    }
    let [new, old_only, later, sooner] = options;
    if new && (old_only || later || sooner) {
        return refused("NX and XX, GT or LT options at the same time are not compatible");
    }
    if later && sooner {
        return refused("GT and LT options at the same time are not compatible");
    }
    let deadline = session.deadline(request, when, request.word(2), i64::MIN)?;
    let set = session.retime(request, |old| {
        // No deadline is later than any.
        let now = old.deadline.unwrap_or(i64::MAX);
        let stays = new && old.deadline.is_some()
            || old_only && old.deadline.is_none()
            || later && deadline <= now
            || sooner && deadline >= now;
        (!stays).then_some(Some(deadline))
    })?;
    session.replies.integer(i64::from(set))
}

pub(super) fn persist(session: &mut Session, request: Request<'_>) -> Done {
    let done = session.retime(request, |old| old.deadline.map(|_| None))?;
    session.replies.integer(i64::from(done))
}

/// The deadline: what is left of it, or its time since 1970. Seconds are rounded, as Redis does.
pub(super) fn ttl(session: &mut Session, request: Request<'_>, when: When) -> Done {
    let cache = &session.server.cache;
    let deadline = cache.map.peek(request.word(1)).map(|stored| stored.deadline);
    session.replies.integer(match deadline {
        None => -2,
        Some(None) => -1,
        Some(Some(deadline)) => {
            let now = if when.from_now { cache.now() } else { 0 };
            let (left, unit) = ((deadline - now).max(0) as u64, when.unit as u64);
            ((left + unit / 2) / unit) as i64
        }
    })
}

/// The keys that are there when this begins, one by one.
pub(super) fn flushall(session: &mut Session, request: Request<'_>) -> Done {
    let mut options = request.from(1);
    if request.len() > 2 || !options.all(|word| is(word, "SYNC") || is(word, "ASYNC")) {
        return refused(SYNTAX);
    }
    session.server.cache.map.clear();
    session.replies.simple("OK")
}

/// One of the first hundred keys that the map comes to. Its order is that of the hash, whose seed
/// is another one in each process.
pub(super) fn randomkey(session: &mut Session, _: Request<'_>) -> Done {
    let cache = &session.server.cache;
    let map = &cache.map;
    let skipped = cache.now() as usize % map.len().clamp(1, 100);
    let entry = map.iter().nth(skipped).or_else(|| map.iter().next());
    session.replies.bulk_or_null(entry.as_ref().map(|entry| &entry.key()[..]))
}

pub(super) fn keys(session: &mut Session, request: Request<'_>) -> Done {
    let keys = session.server.cache.map.iter().map(|entry| entry.key().clone());
    let keys: Vec<_> = keys.filter(|key| glob::matches(request.word(1), key)).collect();
    session.replies.bulks(&keys)
}

/// The order in which `SCAN` shows keys. The cursor is a place in it, so the server keeps nothing
/// of a scan, and shows a key that is there all the while exactly once.
fn place(key: &[u8]) -> i64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    (hasher.finish() >> 1) as i64
}

pub(super) fn scan(session: &mut Session, request: Request<'_>) -> Done {
    let cursor = integer(request.word(1)).filter(|&cursor| cursor >= 0).ok_or("invalid cursor")?;
    let (mut words, mut number, mut pattern, mut strings) = (request.from(2), 10, None, true);
    while let Some(word) = words.next() {
        let value = words.next().ok_or(SYNTAX)?;
        match word {
            _ if is(word, "MATCH") => pattern = Some(value),
            _ if is(word, "TYPE") => strings = is(value, "string"),
            _ if is(word, "COUNT") => match integer(value).ok_or(INTEGER)? {
                count @ 1.. => number = count as usize,
                _ => return refused(SYNTAX),
            },
            _ => return refused(SYNTAX),
        }
    }
    let map = &session.server.cache.map;
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
    let shown = first.into_iter().filter(|(place, key)| {
        let matches = pattern.is_none_or(|pattern| glob::matches(pattern, key));
        strings && matches && next.is_none_or(|next| *place < next)
    });
    let shown: Vec<_> = shown.map(|(_, key)| key).collect();
    session.replies.array(2)?;
    session.replies.bulk(next.unwrap_or(0).to_string())?;
    session.replies.bulks(&shown)
}
