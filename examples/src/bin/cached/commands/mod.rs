//! What clients may ask for. Each command is one step for one key; one of several keys, or of all,
//! is a step for each, between which other clients may read and write.

mod connection;
mod keys;
mod strings;

use crate::cache::{given, Event, Stored};
use crate::connections::Server;
use crate::protocol::{integer, Replies, Request};
use expiry_examples::Done;
use memchr::memchr;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::broadcast;
use tokio::task::block_in_place;
use Kind::{Parent, Plain, Slow, Subscriber};

/// One client's connection, but for its bytes.
pub struct Session {
    pub server: Arc<Server>,
    pub replies: Replies,
    /// The keys that expire, while the client subscribes to anything.
    pub events: Option<broadcast::Receiver<Event>>,
    /// The client has asked to be disconnected.
    pub closing: bool,
    id: i64,
    name: Vec<u8>,
    /// Channels, and patterns of channels (with `true`).
    subscriptions: BTreeSet<(bool, Vec<u8>)>,
    /// Those of them that match the channel of keys that expire.
    heard: BTreeSet<(bool, Vec<u8>)>,
}

const SYNTAX: &str = "syntax error";
const INTEGER: &str = "value is not an integer or out of range";

fn refused<T>(text: impl Into<String>) -> Done<T> {
    Err(text.into().into())
}

fn wrong_arity<T>(name: &str) -> Done<T> {
    refused(format!("wrong number of arguments for '{name}' command"))
}

struct Command {
    name: &'static str,
    /// How many words it has, the name included; if negative, at least so many.
    arity: i64,
    kind: Kind,
    run: fn(&mut Session, Request<'_>) -> Done,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Takes no time.
    Plain,
    /// Goes over all keys, or waits for the disk. Other connections leave its worker thread.
    Slow,
    /// What a client may ask for while it subscribes.
    Subscriber,
    /// Has subcommands, `parent|child` in the table. Runs where the client asks for none of them.
    Parent,
}

const fn command(
    name: &'static str,
    arity: i64,
    kind: Kind,
    run: fn(&mut Session, Request<'_>) -> Done,
) -> Command {
    Command { name, arity, kind, run }
}

/// By name.
static COMMANDS: &[Command] = &[
    command("append", 3, Plain, strings::append),
    command("client", -2, Parent, connection::no_subcommand),
    command("client|getname", 2, Plain, connection::client_getname),
    command("client|id", 2, Plain, |s, _| s.replies.integer(s.id)),
    command("client|setinfo", 4, Plain, connection::client_setinfo),
    command("client|setname", 3, Plain, connection::client_setname),
    command("command", -1, Plain, |s, _| s.replies.array(0)),
    command("config", -2, Parent, connection::no_subcommand),
    command("config|get", -3, Plain, connection::config_get),
    command("config|set", -4, Plain, connection::config_set),
    command("dbsize", 1, Plain, |s, _| s.replies.integer(s.server.cache.map.len())),
    command("decr", 2, Plain, |s, r| strings::add(s, r, -1)),
    command("decrby", 3, Plain, strings::decrby),
    command("del", -2, Plain, |s, r| keys::count(s, r, |map, k| map.remove(k).is_some())),
    command("echo", 2, Plain, |s, r| s.replies.bulk(r.word(1))),
    command("exists", -2, Plain, |s, r| keys::count(s, r, |map, key| map.contains_key(key))),
    command("expire", -3, Plain, |s, r| keys::expire(s, r, EX)),
    command("expireat", -3, Plain, |s, r| keys::expire(s, r, EXAT)),
    command("expiretime", 2, Plain, |s, r| keys::ttl(s, r, EXAT)),
    command("flushall", -1, Slow, keys::flushall),
    command("flushdb", -1, Slow, keys::flushall),
    command("get", 2, Plain, strings::get),
    command("getdel", 2, Plain, strings::getdel),
    command("getex", -2, Plain, strings::getex),
    command("getset", 3, Plain, strings::getset),
    command("hello", -1, Plain, connection::hello),
    command("incr", 2, Plain, |s, r| strings::add(s, r, 1)),
    command("incrby", 3, Plain, strings::incrby),
    command("incrbyfloat", 3, Plain, strings::incrbyfloat),
    command("info", -1, Plain, connection::info),
    command("keys", 2, Slow, keys::keys),
    command("mget", -2, Plain, strings::mget),
    command("mset", -3, Plain, strings::mset),
    command("msetnx", -3, Plain, strings::msetnx),
    command("persist", 2, Plain, keys::persist),
    command("pexpire", -3, Plain, |s, r| keys::expire(s, r, PX)),
    command("pexpireat", -3, Plain, |s, r| keys::expire(s, r, PXAT)),
    command("pexpiretime", 2, Plain, |s, r| keys::ttl(s, r, PXAT)),
    command("ping", -1, Subscriber, connection::ping),
    command("psetex", 4, Plain, |s, r| strings::setex(s, r, PX)),
    command("psubscribe", -2, Subscriber, |s, r| connection::subscribe(s, r, true)),
    command("pttl", 2, Plain, |s, r| keys::ttl(s, r, PX)),
    command("punsubscribe", -1, Subscriber, |s, r| connection::unsubscribe(s, r, true)),
    command("quit", -1, Subscriber, connection::quit),
    command("randomkey", 1, Plain, keys::randomkey),
    command("save", 1, Slow, connection::save),
    command("scan", -2, Slow, keys::scan),
    command("select", 2, Plain, connection::select),
    command("set", -3, Plain, strings::set),
    command("setex", 4, Plain, |s, r| strings::setex(s, r, EX)),
    command("setnx", 3, Plain, strings::setnx),
    command("strlen", 2, Plain, strings::strlen),
    command("subscribe", -2, Subscriber, |s, r| connection::subscribe(s, r, false)),
    command("touch", -2, Plain, |s, r| keys::count(s, r, |map, key| map.get(key).is_some())),
    command("ttl", 2, Plain, |s, r| keys::ttl(s, r, EX)),
    command("type", 2, Plain, keys::r#type),
    command("unlink", -2, Plain, |s, r| keys::count(s, r, |map, k| map.remove(k).is_some())),
    command("unsubscribe", -1, Subscriber, |s, r| connection::unsubscribe(s, r, false)),
];

/// The command of this name, in capitals or not.
fn find(name: &[u8]) -> Option<&'static Command> {
    let mut lower = [0; 16];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let place = COMMANDS.binary_search_by(|command| command.name.as_bytes().cmp(lower));
    place.ok().map(|place| &COMMANDS[place])
}

impl Session {
    pub fn new(server: Arc<Server>, id: i64) -> Self {
        Session {
            replies: Replies::new(server.options.output),
            server,
            events: None,
            closing: false,
            id,
            name: Vec::new(),
            subscriptions: BTreeSet::new(),
            heard: BTreeSet::new(),
        }
    }

    /// Does what the client asks for, and writes the reply.
    pub fn execute(&mut self, request: Request<'_>) {
        if let Err(error) = self.perform(request) {
            // Fails where too many replies wait, which ends the connection.
            let _ = self.replies.error(&error.to_string());
        }
    }

    fn perform(&mut self, request: Request<'_>) -> Done {
        let name = request.word(0);
        let Some(mut command) = find(name).filter(|_| !name.contains(&b'|')) else {
            return self.unknown(request);
        };
        if command.kind == Parent && request.len() > 1 {
            let child = clipped(request.word(1), 16);
            command = find(&[name, b"|", child].concat()).unwrap_or(command);
        }
        let (arity, words) = (command.arity, request.len() as i64);
        if words != arity && (arity >= 0 || words < -arity) {
            return wrong_arity(command.name);
        }
        let exists = command.kind != Parent || words == 1;
        if self.only_listens() && command.kind != Subscriber && exists {
            return refused(format!(
                "Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
                 are allowed in this context",
                command.name
            ));
        }
        match command.kind {
            Kind::Slow => block_in_place(|| (command.run)(self, request)),
            _ => (command.run)(self, request),
        }
    }

    /// A subscriber that speaks RESP2 could not tell a reply from a message.
    fn only_listens(&self) -> bool {
        self.events.is_some() && self.replies.version == 2
    }

    fn unknown(&mut self, request: Request<'_>) -> Done {
        let name = request.word(0);
        // A browser that was led here would go on with a body of a stranger's choice.
        self.closing = is(name, "POST") || is(name, "HOST:");
        if self.closing {
            return Ok(());
        }
        let mut shown = String::new();
        for word in request.from(1) {
            if shown.len() >= 128 {
                break;
            }
            shown += &format!("'{}' ", text(clipped(word, 128 - shown.len())));
        }
        let name = text(clipped(name, 128));
        refused(format!("unknown command '{name}', with args beginning with: {shown}"))
    }

    /// The deadline that a client gives by a number, which may not be less than `least`;
    /// [`PASSED`](crate::cache::PASSED) if it has passed.
    fn deadline(&self, request: Request<'_>, when: When, number: &[u8], least: i64) -> Done<i64> {
        let number = integer(number).ok_or(INTEGER)?;
        let now = self.server.cache.now();
        let from = if when.from_now { now } else { 0 };
        let time = number.checked_mul(when.unit).and_then(|time| time.checked_add(from));
        match time.filter(|_| number >= least) {
            Some(time) => Ok(given(time, now)),
            None => refused(format!("invalid expire time in '{}' command", lower(request.word(0)))),
        }
    }

    /// Gives the first key's value another deadline, if `choose` makes one for it, and says so.
    fn retime(
        &self,
        request: Request<'_>,
        mut choose: impl FnMut(&Stored) -> Option<Option<i64>>,
    ) -> Done<bool> {
        self.server.cache.update(request.word(1), |old| {
            let new = old.and_then(|old| {
                choose(old).map(|deadline| Stored { deadline, data: old.data.clone() })
            });
            let is_set = new.is_some();
            Ok((new, is_set))
        })
    }
}

/// What a number says about a deadline: milliseconds in its unit, from now or from 1970.
#[derive(Clone, Copy, PartialEq, Eq)]
struct When {
    unit: i64,
    from_now: bool,
}

const EX: When = When { unit: 1000, from_now: true };
const PX: When = When { unit: 1, from_now: true };
const EXAT: When = When { unit: 1000, from_now: false };
const PXAT: When = When { unit: 1, from_now: false };

impl When {
    fn option(word: &[u8]) -> Option<When> {
        let mut options = [("EX", EX), ("PX", PX), ("EXAT", EXAT), ("PXAT", PXAT)].into_iter();
        options.find_map(|(name, when)| is(word, name).then_some(when))
    }
}

/// Whether a word is this one, in capitals or not.
fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

fn clipped(word: &[u8], most: usize) -> &[u8] {
    &word[..word.len().min(most)]
}

/// The word, up to a zero byte, where texts end for Redis.
fn text(word: &[u8]) -> String {
    let word = &word[..memchr(0, word).unwrap_or(word.len())];
    String::from_utf8_lossy(word).into_owned()
}

fn lower(word: &[u8]) -> String {
    text(word).to_lowercase()
}

#[cfg(test)]
#[path = "../tests/commands.rs"]
mod tests;
