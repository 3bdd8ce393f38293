//! What clients may ask for. Each command is one step for one key; one of several keys, or of all,
//! is a step for each, between which other clients may read and write.

mod connection;
mod keys;
mod strings;

use crate::cache::{Cache, WriteError};
use crate::protocol::{integer, Replies, Request};
use crate::snapshot::Snapshot;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{broadcast, Semaphore};
use tokio::task::block_in_place;

/// What all connections share.
pub struct Shared {
    pub cache: Cache,
    pub snapshot: Option<Snapshot>,
    /// As `CONFIG GET` shows them.
    pub settings: Vec<(&'static str, String)>,
    /// A permit for each client that there may be.
    pub clients: Arc<Semaphore>,
    pub max_clients: usize,
    pub started: Instant,
}

/// One client's connection, but for its bytes.
pub struct Session {
    pub shared: Arc<Shared>,
    pub replies: Replies,
    /// The keys that expire, while the client subscribes to anything.
    pub events: Option<broadcast::Receiver<Arc<[u8]>>>,
    /// The client has asked to be disconnected.
    pub closing: bool,
    id: i64,
    address: String,
    name: Vec<u8>,
    channels: BTreeSet<Vec<u8>>,
    patterns: BTreeSet<Vec<u8>>,
}

/// Why a command was refused, in Redis's words.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("ERR syntax error")]
    Syntax,
    #[error("ERR value is not an integer or out of range")]
    Integer,
    #[error("ERR value is not a valid float")]
    Float,
    #[error("ERR wrong number of arguments for '{0}' command")]
    Arity(String),
    #[error("ERR invalid expire time in '{0}' command")]
    ExpireTime(String),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("{0}")]
    Other(String),
}

type Done = Result<(), Failure>;

fn refused<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Other(text.into()))
}

struct Command {
    name: &'static str,
    /// How many words it has, the name included; if negative, at least so many.
    arity: i64,
    kind: Kind,
    /// Its first key, its last (from the end, if negative), and the step between keys.
    keys: (i64, i64, i64),
    run: fn(&mut Session, Request<'_>) -> Done,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    /// Goes over all keys, or waits for the disk. Other connections leave its worker thread.
    Slow,
    /// Of the connection, or the server.
    Own,
    /// What a client may ask for while it subscribes.
    Subscriber,
}

const NO: (i64, i64, i64) = (0, 0, 0);
const ONE: (i64, i64, i64) = (1, 1, 1);
const ALL: (i64, i64, i64) = (1, -1, 1);
const PAIRS: (i64, i64, i64) = (1, -1, 2);

const fn command(
    name: &'static str,
    arity: i64,
    kind: Kind,
    keys: (i64, i64, i64),
    run: fn(&mut Session, Request<'_>) -> Done,
) -> Command {
    Command { name, arity, kind, keys, run }
}

/// By name.
static COMMANDS: &[Command] = &[
    command("append", 3, Kind::Write, ONE, strings::append),
    command("client", -2, Kind::Own, NO, connection::client),
    command("command", -1, Kind::Own, NO, connection::command),
    command("config", -2, Kind::Own, NO, connection::config),
    command("dbsize", 1, Kind::Read, NO, keys::dbsize),
    command("decr", 2, Kind::Write, ONE, |s, r| strings::add(s, r, Some(-1))),
    command("decrby", 3, Kind::Write, ONE, strings::decrby),
    command("del", -2, Kind::Write, ALL, keys::del),
    command("echo", 2, Kind::Own, NO, connection::echo),
    command("exists", -2, Kind::Read, ALL, keys::exists),
    command("expire", -3, Kind::Write, ONE, |s, r| keys::expire(s, r, EX)),
    command("expireat", -3, Kind::Write, ONE, |s, r| keys::expire(s, r, EXAT)),
    command("expiretime", 2, Kind::Read, ONE, |s, r| keys::ttl(s, r, EXAT)),
    command("flushall", -1, Kind::Slow, NO, keys::flushall),
    command("flushdb", -1, Kind::Slow, NO, keys::flushall),
    command("get", 2, Kind::Read, ONE, strings::get),
    command("getdel", 2, Kind::Write, ONE, strings::getdel),
    command("getex", -2, Kind::Write, ONE, strings::getex),
    command("getset", 3, Kind::Write, ONE, strings::getset),
    command("hello", -1, Kind::Own, NO, connection::hello),
    command("incr", 2, Kind::Write, ONE, |s, r| strings::add(s, r, Some(1))),
    command("incrby", 3, Kind::Write, ONE, |s, r| strings::add(s, r, None)),
    command("incrbyfloat", 3, Kind::Write, ONE, strings::incrbyfloat),
    command("info", -1, Kind::Own, NO, connection::info),
    command("keys", 2, Kind::Slow, NO, keys::keys),
    command("mget", -2, Kind::Read, ALL, strings::mget),
    command("mset", -3, Kind::Write, PAIRS, strings::mset),
    command("msetnx", -3, Kind::Write, PAIRS, strings::msetnx),
    command("persist", 2, Kind::Write, ONE, keys::persist),
    command("pexpire", -3, Kind::Write, ONE, |s, r| keys::expire(s, r, PX)),
    command("pexpireat", -3, Kind::Write, ONE, |s, r| keys::expire(s, r, PXAT)),
    command("pexpiretime", 2, Kind::Read, ONE, |s, r| keys::ttl(s, r, PXAT)),
    command("ping", -1, Kind::Subscriber, NO, connection::ping),
    command("psetex", 4, Kind::Write, ONE, |s, r| strings::setex(s, r, PX)),
    command("psubscribe", -2, Kind::Subscriber, NO, |s, r| connection::subscribe(s, r, true)),
    command("pttl", 2, Kind::Read, ONE, |s, r| keys::ttl(s, r, PX)),
    command("punsubscribe", -1, Kind::Subscriber, NO, |s, r| connection::unsubscribe(s, r, true)),
    command("quit", -1, Kind::Subscriber, NO, connection::quit),
    command("randomkey", 1, Kind::Read, NO, keys::randomkey),
    command("save", 1, Kind::Slow, NO, connection::save),
    command("scan", -2, Kind::Slow, NO, keys::scan),
    command("select", 2, Kind::Own, NO, connection::select),
    command("set", -3, Kind::Write, ONE, strings::set),
    command("setex", 4, Kind::Write, ONE, |s, r| strings::setex(s, r, EX)),
    command("setnx", 3, Kind::Write, ONE, strings::setnx),
    command("strlen", 2, Kind::Read, ONE, strings::strlen),
    command("subscribe", -2, Kind::Subscriber, NO, |s, r| connection::subscribe(s, r, false)),
    command("touch", -2, Kind::Read, ALL, keys::touch),
    command("ttl", 2, Kind::Read, ONE, |s, r| keys::ttl(s, r, EX)),
    command("type", 2, Kind::Read, ONE, keys::r#type),
    command("unlink", -2, Kind::Write, ALL, keys::del),
    command("unsubscribe", -1, Kind::Subscriber, NO, |s, r| connection::unsubscribe(s, r, false)),
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
    /// A client's, of which at most about `output` bytes of replies may wait.
    pub fn new(shared: Arc<Shared>, id: i64, address: String, output: usize) -> Self {
        Session {
            shared,
            replies: Replies::new(output),
            events: None,
            closing: false,
            id,
            address,
            name: Vec::new(),
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
        }
    }

    /// Does what the client asks for, and writes the reply.
    pub fn execute(&mut self, request: Request<'_>) {
        let name = request.word(0);
        let done = match find(name) {
            None => self.unknown(request),
            Some(command) if !takes(command.arity, request.len()) => {
                Err(Failure::Arity(command.name.to_string()))
            }
            Some(command) if self.only_listens() && command.kind != Kind::Subscriber => {
                refused(format!(
                    "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT \
                     / RESET are allowed in this context",
                    command.name
                ))
            }
            Some(command) if command.kind == Kind::Slow => {
                block_in_place(|| (command.run)(self, request))
            }
            Some(command) => (command.run)(self, request),
        };
        if let Err(failure) = done {
            self.replies.error(&failure.to_string());
        }
    }

    /// A subscriber that speaks RESP2 could not tell a reply from a message.
    fn only_listens(&self) -> bool {
        self.events.is_some() && self.replies.version == 2
    }

    fn unknown(&mut self, request: Request<'_>) -> Done {
        let name = request.word(0);
        // A browser that was led here would go on with a body of a stranger's choice.
        self.closing = [&b"POST"[..], b"HOST:"].iter().any(|http| name.eq_ignore_ascii_case(http));
        let mut shown = String::new();
        for word in request.from(1) {
            let room = 128usize.saturating_sub(shown.len());
            if room > 0 {
                shown += &format!("'{}' ", text(&word[..word.len().min(room)]));
            }
        }
        let name = text(&name[..name.len().min(128)]);
        refused(format!("ERR unknown command '{name}', with args beginning with: {shown}"))
    }

    /// The deadline that a client gives by a number.
    fn deadline(&self, request: Request<'_>, when: When, number: &[u8]) -> Result<i64, Failure> {
        let number = integer(number).ok_or(Failure::Integer)?;
        let now = if when.from_now { self.shared.cache.now().as_millis() as i64 } else { 0 };
        let deadline = number.checked_mul(when.unit).and_then(|time| time.checked_add(now));
        deadline.ok_or_else(|| Failure::ExpireTime(lower(request.word(0))))
    }

    /// As [`Self::deadline`], of a value that is set, for which 0 and less are errors.
    fn lifetime(&self, request: Request<'_>, when: When, number: &[u8]) -> Result<i64, Failure> {
        let deadline = self.deadline(request, when, number)?;
        match integer(number) {
            Some(1..) => Ok(deadline),
            _ => Err(Failure::ExpireTime(lower(request.word(0)))),
        }
    }
}

/// What a number says about a deadline: milliseconds in its unit, from now or from 1970.
#[derive(Clone, Copy)]
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
        let options = [("EX", EX), ("PX", PX), ("EXAT", EXAT), ("PXAT", PXAT)];
        let mut options = options.into_iter();
        options.find_map(|(name, when)| is(word, name).then_some(when))
    }
}

fn takes(arity: i64, words: usize) -> bool {
    words as i64 == arity || arity < 0 && words as i64 >= -arity
}

/// Whether a word is this one, in capitals or not.
fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

fn lower(word: &[u8]) -> String {
    text(word).to_lowercase()
}

#[cfg(test)]
#[path = "../tests/commands.rs"]
mod tests;
