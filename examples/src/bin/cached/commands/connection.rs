//! Commands about the connection, the server, and what a client subscribes to.

use super::{clipped, is, lower, refused, text, wrong_arity, Request, Session, INTEGER};
use crate::protocol::{integer, MAX_BULK};
use crate::{glob, snapshot};
use clap::ValueEnum;
use expiry_examples::Done;

/// The channel of keys that expire. A client that subscribes to another one hears nothing.
const EXPIRED: &[u8] = b"__keyevent@0__:expired";
/// The version of Redis whose answers these are.
const VERSION: &str = "7.2.4";
const NAMES: &str = "Client names";
/// A connection hears of each key that expires, once for each subscription that matches.
const MAX_SUBSCRIPTIONS: usize = 1024;

pub(super) fn ping(session: &mut Session, request: Request<'_>) -> Done {
    match (request.len(), request.from(1).next()) {
        (3.., _) => wrong_arity("ping"),
        (_, word) if session.only_listens() => {
            session.replies.bulks(&[b"pong", word.unwrap_or_default()])
        }
        (_, Some(word)) => session.replies.bulk(word),
        (_, None) => session.replies.simple("PONG"),
    }
}

pub(super) fn quit(session: &mut Session, _: Request<'_>) -> Done {
    session.closing = true;
    session.replies.simple("OK")
}

pub(super) fn select(session: &mut Session, request: Request<'_>) -> Done {
    match integer(request.word(1)).ok_or(INTEGER)? {
        0 => session.replies.simple("OK"),
        _ => refused("DB index is out of range"),
    }
}

/// There are no users and no passwords: `AUTH` is taken as it is.
pub(super) fn hello(session: &mut Session, request: Request<'_>) -> Done {
    let mut words = request.from(1);
    let version = match words.next().map(integer) {
        None => session.replies.version,
        Some(Some(version @ 2..=3)) => version,
        Some(Some(_)) => return refused("-NOPROTO unsupported protocol version"),
        Some(None) => return refused("Protocol version is not an integer or out of range"),
    };
    let mut name = None;
    while let Some(word) = words.next() {
        match words.next() {
            Some(value) if is(word, "SETNAME") => name = Some(visible(NAMES, value)?),
            Some(_) if is(word, "AUTH") && words.next().is_some() => {}
            _ => return refused(format!("Syntax error in HELLO option '{}'", text(word))),
        }
    }
    session.name = name.unwrap_or_else(|| std::mem::take(&mut session.name));
    session.replies.version = version;
    let (id, replies) = (session.id, &mut session.replies);
    replies.map(7)?;
    ["server", "redis", "version", VERSION].iter().try_for_each(|word| replies.bulk(word))?;
    for (name, number) in [("proto", version), ("id", id)] {
        replies.bulk(name)?;
        replies.integer(number)?;
    }
    let rest = ["mode", "standalone", "role", "master", "modules"];
    rest.iter().try_for_each(|word| replies.bulk(word))?;
    replies.array(0)
}

/// The word, which is for `what`, if it has only visible characters of ASCII.
fn visible(what: &str, word: &[u8]) -> Done<Vec<u8>> {
    match word.iter().all(u8::is_ascii_graphic) {
        true => Ok(word.to_vec()),
        false => refused(format!("{what} cannot contain spaces, newlines or special characters.")),
    }
}

pub(super) fn no_subcommand(_: &mut Session, request: Request<'_>) -> Done {
    let (help, word) = (text(request.word(0)).to_uppercase(), clipped(request.word(1), 128));
    refused(format!("unknown subcommand '{}'. Try {help} HELP.", text(word)))
}

pub(super) fn client_setname(session: &mut Session, request: Request<'_>) -> Done {
    session.name = visible(NAMES, request.word(2))?;
    session.replies.simple("OK")
}

pub(super) fn client_setinfo(session: &mut Session, request: Request<'_>) -> Done {
    let (what, option) = (request.word(2), text(request.word(2)));
    if !is(what, "LIB-NAME") && !is(what, "LIB-VER") {
        return refused(format!("Unrecognized option '{option}'"));
    }
    visible(&option, request.word(3))?;
    session.replies.simple("OK")
}

pub(super) fn client_getname(session: &mut Session, _: Request<'_>) -> Done {
    session.replies.bulk_or_null(Some(&*session.name).filter(|name| !name.is_empty()))
}

/// The options, as Redis names them.
pub(super) fn config_get(session: &mut Session, request: Request<'_>) -> Done {
    let options = &session.server.options;
    let policy = options.policy.to_possible_value();
    let mut settings = vec![
        ("appendonly", "no".to_string()),
        ("databases", "1".to_string()),
        ("maxclients", options.max_clients.to_string()),
        ("maxmemory", options.max_memory.unwrap_or(0).to_string()),
        ("maxmemory-policy", policy.map_or(String::new(), |policy| policy.get_name().to_string())),
        ("notify-keyspace-events", "xE".to_string()),
        ("proto-max-bulk-len", MAX_BULK.to_string()),
        ("save", String::new()),
        ("tcp-keepalive", options.tcp_keepalive.as_secs().to_string()),
        ("timeout", options.idle.as_secs().to_string()),
    ];
    let patterns: Vec<_> = request.from(2).map(<[u8]>::to_ascii_lowercase).collect();
    settings.retain(|(name, _)| patterns.iter().any(|word| glob::matches(word, name.as_bytes())));
    session.replies.map(settings.len())?;
    settings.iter().try_for_each(|(name, value)| {
        session.replies.bulk(name)?;
        session.replies.bulk(value)
    })
}

/// The setting of events may be set, as clients do, and is always on.
pub(super) fn config_set(session: &mut Session, request: Request<'_>) -> Done {
    match request.len() == 4 && is(request.word(2), "notify-keyspace-events") {
        true => session.replies.simple("OK"),
        false => refused("CONFIG SET failed: settings are given when the server is started"),
    }
}

pub(super) fn info(session: &mut Session, _: Request<'_>) -> Done {
    let server = &session.server;
    let (metrics, most) = (server.cache.map.metrics(), server.options.max_clients);
    let (total, misses) = (&metrics.total, metrics.misses);
    let (id, uptime) = (std::process::id(), server.started.elapsed().as_secs());
    let latest = total.lateness.quantile(1.0).unwrap_or_default().as_micros();
    session.replies.bulk(format!(
        "# Server\r\nredis_version:{VERSION}\r\nredis_mode:standalone\r\nprocess_id:{id}\r\n\
         uptime_in_seconds:{uptime}\r\n\r\n# Clients\r\nconnected_clients:{}\r\n\
         maxclients:{most}\r\n\r\n# Stats\r\nexpired_keys:{}\r\nexpired_latest_usec:{latest}\r\n\
         evicted_keys:{}\r\nkeyspace_hits:{}\r\nkeyspace_misses:{misses}\r\n\r\n\
         # Keyspace\r\ndb0:keys={}\r\n",
        most as usize - server.clients.available_permits(),
        total.expired,
        total.evicted,
        metrics.hits,
        total.live,
    ))
}

pub(super) fn save(session: &mut Session, _: Request<'_>) -> Done {
    let file = session.server.options.save.as_ref();
    let file = file.ok_or("no file to save to: start the server with --save FILE")?;
    snapshot::save(file, &session.server.cache)?;
    session.replies.simple("OK")
}

/// Listens first, so that the client hears of each key that expires after the reply.
pub(super) fn subscribe(session: &mut Session, request: Request<'_>, pattern: bool) -> Done {
    if session.subscriptions.len() + request.len() - 1 > MAX_SUBSCRIPTIONS {
        return refused(format!("a connection may have at most {MAX_SUBSCRIPTIONS} subscriptions"));
    }
    if session.events.is_none() {
        session.events = Some(session.server.cache.expired.subscribe());
    }
    request.from(1).try_for_each(|channel| {
        let matches = if pattern { glob::matches(channel, EXPIRED) } else { channel == EXPIRED };
        if matches {
            session.heard.insert((pattern, channel.to_vec()));
        }
        session.subscriptions.insert((pattern, channel.to_vec()));
        session.subscribed(request, Some(channel))
    })
}

pub(super) fn unsubscribe(session: &mut Session, request: Request<'_>, pattern: bool) -> Done {
    let mut leaves: Vec<_> = request.from(1).map(|channel| (pattern, channel.to_vec())).collect();
    if leaves.is_empty() {
        leaves.extend(session.subscriptions.iter().filter(|(kind, _)| *kind == pattern).cloned());
    }
    if leaves.is_empty() {
        session.subscribed(request, None)?;
    }
    for channel in leaves {
        session.subscriptions.remove(&channel);
        session.heard.remove(&channel);
        session.subscribed(request, Some(&channel.1))?;
    }
    session.events = session.events.take().filter(|_| !session.subscriptions.is_empty());
    Ok(())
}

impl Session {
    fn subscribed(&mut self, request: Request<'_>, channel: Option<&[u8]>) -> Done {
        self.replies.push(3)?;
        self.replies.bulk(lower(request.word(0)))?;
        self.replies.bulk_or_null(channel)?;
        self.replies.integer(self.subscriptions.len())
    }

    /// Tells the client of a key that has expired, once for each subscription that matches.
    pub fn tell(&mut self, key: &[u8]) -> Done {
        for (pattern, channel) in &self.heard {
            let parts = match pattern {
                true => &[b"pmessage", &channel[..], EXPIRED, key],
                false => &[b"message", EXPIRED, key][..],
            };
            self.replies.push(parts.len())?;
            parts.iter().try_for_each(|part| self.replies.bulk(part))?;
        }
        Ok(())
    }
}
