//! Commands about the connection, the server, and what a client subscribes to.

use super::{is, refused, takes, text, Command, Done, Failure, Kind, Request, Session, COMMANDS};
use crate::glob;
use std::sync::Arc;

/// The channel of keys that expire. A client that subscribes to another one hears nothing.
const EXPIRED: &[u8] = b"__keyevent@0__:expired";
/// The version of Redis whose answers these are.
const VERSION: &str = "7.0.15";

pub(super) fn ping(session: &mut Session, request: Request<'_>) -> Done {
    if request.len() > 2 {
        return Err(Failure::Arity("ping".to_string()));
    }
    let argument = request.from(1).next();
    if session.only_listens() {
        session.replies.array(2);
        session.replies.bulk(b"pong");
        session.replies.bulk(argument.unwrap_or_default());
    } else {
        match argument {
            Some(argument) => session.replies.bulk(argument),
            None => session.replies.simple("PONG"),
        }
    }
    Ok(())
}

pub(super) fn echo(session: &mut Session, request: Request<'_>) -> Done {
    session.replies.bulk(request.word(1));
    Ok(())
}

pub(super) fn quit(session: &mut Session, _: Request<'_>) -> Done {
    session.replies.simple("OK");
    session.closing = true;
    Ok(())
}

pub(super) fn select(session: &mut Session, request: Request<'_>) -> Done {
    match crate::protocol::integer(request.word(1)).ok_or(Failure::Integer)? {
        0 => session.replies.simple("OK"),
        _ => return refused("ERR DB index is out of range"),
    }
    Ok(())
}

/// There are no users and no passwords: `AUTH` is taken as it is.
pub(super) fn hello(session: &mut Session, request: Request<'_>) -> Done {
    let mut words = request.from(1);
    let version = match words.next() {
        None => session.replies.version,
        Some(b"2") => 2,
        Some(b"3") => 3,
        Some(word) if crate::protocol::integer(word).is_some() => {
            return refused("NOPROTO unsupported protocol version");
        }
        Some(_) => {
            return refused("ERR Protocol version is not an integer or out of range");
        }
    };
    let mut name = None;
    while let Some(word) = words.next() {
        match (words.next(), is(word, "SETNAME")) {
            (Some(value), true) => name = Some(valid_name(value)?),
            (Some(_), false) if is(word, "AUTH") && words.next().is_some() => {}
            _ => {
                let text = text(word);
                return refused(format!("ERR Syntax error in HELLO option '{text}'"));
            }
        }
    }
    session.name = name.unwrap_or_else(|| std::mem::take(&mut session.name));
    session.replies.version = version;
    let id = session.id;
    let replies = &mut session.replies;
    replies.map(7);
    for (key, value) in [("server", "redis"), ("version", VERSION)] {
        replies.bulk(key.as_bytes());
        replies.bulk(value.as_bytes());
    }
    for (key, value) in [("proto", version.into()), ("id", id)] {
        replies.bulk(key.as_bytes());
        replies.integer(value);
    }
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        replies.bulk(key.as_bytes());
        replies.bulk(value.as_bytes());
    }
    replies.bulk(b"modules");
    replies.array(0);
    Ok(())
}

fn valid_name(name: &[u8]) -> Result<Vec<u8>, Failure> {
    match name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        true => Ok(name.to_vec()),
        false => refused("ERR Client names cannot contain spaces, newlines or special characters."),
    }
}

/// A subcommand, if it has as many words as it takes, that of the command included.
fn subcommand<'a>(
    request: Request<'a>,
    of: &[(&'static str, i64)],
) -> Result<&'static str, Failure> {
    let (command, word) = (super::lower(request.word(0)), request.word(1));
    match of.iter().find(|(name, _)| is(word, name)) {
        Some(&(name, arity)) if takes(arity, request.len()) => Ok(name),
        Some((name, _)) => Err(Failure::Arity(format!("{command}|{}", name.to_lowercase()))),
        None => {
            let help = command.to_uppercase();
            refused(format!("ERR unknown subcommand '{}'. Try {help} HELP.", text(word)))
        }
    }
}

pub(super) fn client(session: &mut Session, request: Request<'_>) -> Done {
    let all = [("SETNAME", 3), ("GETNAME", 2), ("ID", 2), ("INFO", 2), ("SETINFO", 4)];
    match subcommand(request, &all)? {
        "SETNAME" => session.name = valid_name(request.word(2))?,
        "GETNAME" => {
            let name = Some(&*session.name).filter(|name| !name.is_empty());
            session.replies.bulk_or_null(name);
            return Ok(());
        }
        "ID" => {
            session.replies.integer(session.id);
            return Ok(());
        }
        "INFO" => {
            let (id, address, name) = (session.id, &session.address, text(&session.name));
            let (subscribed, patterns) = (session.channels.len(), session.patterns.len());
            let version = session.replies.version;
            let line = format!(
                "id={id} addr={address} name={name} db=0 sub={subscribed} psub={patterns} \
                 resp={version}\n"
            );
            session.replies.bulk(line.as_bytes());
            return Ok(());
        }
        _ => {}
    }
    session.replies.simple("OK");
    Ok(())
}

pub(super) fn command(session: &mut Session, request: Request<'_>) -> Done {
    if request.len() == 1 {
        session.replies.array(COMMANDS.len());
        COMMANDS.iter().for_each(|command| describe(session, command));
        return Ok(());
    }
    match subcommand(request, &[("COUNT", 2), ("DOCS", -2), ("INFO", -2)])? {
        "COUNT" => session.replies.integer(COMMANDS.len() as i64),
        "DOCS" => session.replies.map(0),
        _ if request.len() == 2 => {
            session.replies.array(COMMANDS.len());
            COMMANDS.iter().for_each(|command| describe(session, command));
        }
        _ => {
            session.replies.array(request.len() - 2);
            for name in request.from(2) {
                match super::find(name) {
                    Some(command) => describe(session, command),
                    None => session.replies.bulk_or_null(None),
                }
            }
        }
    }
    Ok(())
}

/// Name, arity, flags, where keys are; and no categories, tips, keys' rules and subcommands.
fn describe(session: &mut Session, command: &Command) {
    let replies = &mut session.replies;
    replies.array(10);
    replies.bulk(command.name.as_bytes());
    replies.integer(command.arity);
    replies.array(1);
    replies.simple(match command.kind {
        Kind::Read => "readonly",
        Kind::Write => "write",
        Kind::Slow => "readonly",
        Kind::Own => "fast",
        Kind::Subscriber => "pubsub",
    });
    let (first, last, step) = command.keys;
    [first, last, step].into_iter().for_each(|place| replies.integer(place));
    (0..4).for_each(|_| replies.array(0));
}

/// Settings can be looked at. That of events may be set, as clients do, and is always on.
pub(super) fn config(session: &mut Session, request: Request<'_>) -> Done {
    let Session { shared, replies, .. } = session;
    if subcommand(request, &[("GET", -3), ("SET", -4)])? == "SET" {
        if request.len() != 4 || !is(request.word(2), "notify-keyspace-events") {
            return refused("ERR CONFIG SET failed: settings are given when the server is started");
        }
        replies.simple("OK");
        return Ok(());
    }
    let asked = |name: &str| {
        request.from(2).any(|word| glob::matches(&word.to_ascii_lowercase(), name.as_bytes()))
    };
    let found: Vec<_> = shared.settings.iter().filter(|(name, _)| asked(name)).collect();
    replies.map(found.len());
    for (name, value) in found {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
    Ok(())
}

pub(super) fn info(session: &mut Session, _: Request<'_>) -> Done {
    let shared = &session.shared;
    let (metrics, clients) = (shared.cache.map.metrics(), shared.clients.available_permits());
    let (total, misses) = (&metrics.total, metrics.misses);
    let (id, uptime) = (std::process::id(), shared.started.elapsed().as_secs());
    let latest = total.lateness.quantile(1.0).unwrap_or_default().as_micros();
    let text = format!(
        "# Server\r\nredis_version:{VERSION}\r\nredis_mode:standalone\r\nprocess_id:{id}\r\n\
         uptime_in_seconds:{uptime}\r\n\r\n# Clients\r\nconnected_clients:{}\r\nmaxclients:{}\r\n\
         \r\n# Stats\r\nexpired_keys:{}\r\nexpired_latest_usec:{latest}\r\nevicted_keys:{}\r\n\
         keyspace_hits:{}\r\nkeyspace_misses:{misses}\r\n\r\n# Keyspace\r\ndb0:keys={}\r\n",
        shared.max_clients - clients,
        shared.max_clients,
        total.expired,
        total.evicted,
        metrics.hits,
        total.live,
    );
    session.replies.bulk(text.as_bytes());
    Ok(())
}

pub(super) fn save(session: &mut Session, _: Request<'_>) -> Done {
    let Some(snapshot) = &session.shared.snapshot else {
        return refused("ERR no file to save to: start the server with --save FILE");
    };
    match snapshot.save(&session.shared.cache) {
        Ok(_) => session.replies.simple("OK"),
        Err(error) => return refused(format!("ERR {error}")),
    }
    Ok(())
}

/// Listens first, so that the client hears of each key that expires after the reply.
pub(super) fn subscribe(session: &mut Session, request: Request<'_>, pattern: bool) -> Done {
    if session.events.is_none() {
        session.events = Some(session.shared.cache.expired.subscribe());
    }
    for channel in request.from(1) {
        session.subscriptions(pattern).insert(channel.to_vec());
        session.subscribed(if pattern { "psubscribe" } else { "subscribe" }, Some(channel));
    }
    Ok(())
}

pub(super) fn unsubscribe(session: &mut Session, request: Request<'_>, pattern: bool) -> Done {
    let kind = if pattern { "punsubscribe" } else { "unsubscribe" };
    let mut channels: Vec<_> = request.from(1).map(<[u8]>::to_vec).collect();
    if channels.is_empty() {
        channels.extend(session.subscriptions(pattern).iter().cloned());
    }
    if channels.is_empty() {
        session.subscribed(kind, None);
    }
    for channel in channels {
        session.subscriptions(pattern).remove(&channel);
        session.subscribed(kind, Some(&channel));
    }
    if session.channels.len() + session.patterns.len() == 0 {
        session.events = None;
    }
    Ok(())
}

impl Session {
    fn subscriptions(&mut self, pattern: bool) -> &mut std::collections::BTreeSet<Vec<u8>> {
        if pattern {
            &mut self.patterns
        } else {
            &mut self.channels
        }
    }

    fn subscribed(&mut self, kind: &str, channel: Option<&[u8]>) {
        self.replies.push(3);
        self.replies.bulk(kind.as_bytes());
        self.replies.bulk_or_null(channel);
        self.replies.integer((self.channels.len() + self.patterns.len()) as i64);
    }

    /// Tells the client of a key that has expired, once for each subscription.
    pub fn tell(&mut self, key: &Arc<[u8]>) {
        if self.channels.contains(EXPIRED) {
            self.replies.push(3);
            [b"message", EXPIRED, key].iter().for_each(|part| self.replies.bulk(part));
        }
        for pattern in self.patterns.iter().filter(|pattern| glob::matches(pattern, EXPIRED)) {
            self.replies.push(4);
            let parts = [&b"pmessage"[..], pattern, EXPIRED, key];
            parts.iter().for_each(|part| self.replies.bulk(part));
        }
    }
}
