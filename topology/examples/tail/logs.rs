//! The parts of the example `tail`: a spout that follows the logs of a directory, and bolts that
//! count their entries.
//!
//! *At least once.* A line is acked when the counts that contain it have been handed out. The state
//! file names an offset of each log. Every line before the offset has been acked, or was given up
//! as a dead letter. A process that is killed reads on from there: it may count lines twice, and
//! leaves out none.
//!
//! A log is known by its inode and its first line, not by its name: `app.log` stays the same log as
//! `app.log.1`. So only whole lines are read. A log that is truncated in place (`copytruncate`)
//! loses the lines that no process has read by then. It must not begin with the same line again.

use expiry_topology::{
    basic, sink, Bolt, BoltCollector, DeadLetter, Failure, Next, Replay, Spout, SpoutCollector,
    TopologyBuilder, Tuple,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How much of its beginning a log is known by, if its first line is longer.
const HEAD: u64 = 256;

/// How many lines of a log are read before another one has its turn.
const TURN: usize = 64;

/// Number of looks at the directory without a log after which that log is forgotten. One look is
/// not enough: a log that is renamed meanwhile may escape it.
const MISSES: u32 = 10;

const LEVELS: [&str; 7] = ["TRACE", "DEBUG", "INFO", "NOTICE", "WARN", "ERROR", "FATAL"];

/// A line of a log.
#[derive(Debug, Clone)]
pub struct Line {
    pub file: Arc<str>,
    pub offset: u64,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The minute, as in `2026-11-22 06:30`.
    pub minute: String,
    pub level: &'static str,
    pub message: String,
}

/// Parses a line such as `2026-11-22T06:30:01.5Z INFO all is well`. A space may stand for the T,
/// and brackets may enclose the level.
pub fn parse(text: &str) -> Result<Entry, &'static str> {
    let is_time = |time: &&str| {
        let like = "dddd-dd-dd dd:dd".bytes().zip(time.bytes());
        like.enumerate().all(|(at, (like, byte))| match like {
            b'd' => byte.is_ascii_digit(),
            _ => byte == like || (at == 10 && byte == b'T'),
        })
    };
    let minute = text.get(..16).filter(is_time).ok_or("it does not begin with a time")?;
    let mut words = text[16..].splitn(3, ' ').skip(1);
    let level = words.next().ok_or("it has no level")?;
    let level = level.trim_matches(|c: char| !c.is_ascii_alphabetic());
    let known = |known: &&&str| known.eq_ignore_ascii_case(level);
    Ok(Entry {
        minute: minute.replace('T', " "),
        level: LEVELS.iter().find(known).ok_or("it has an unknown level")?,
        message: words.next().unwrap_or_default().to_string(),
    })
}

/// How many entries there were, by minute and level.
pub type Counts = BTreeMap<(String, &'static str), u64>;

/// Counts entries, and acks them when it has handed the counts out: with every tick.
struct Count<R> {
    counts: Counts,
    counted: Vec<Tuple<Entry>>,
    report: R,
}

impl<R: FnMut(&Counts) + Send> Bolt<Entry> for Count<R> {
    fn execute(&mut self, tuple: Tuple<Entry>, _: &mut BoltCollector<'_>) {
        *self.counts.entry((tuple.minute.clone(), tuple.level)).or_default() += 1;
        self.counted.push(tuple);
    }

    fn tick(&mut self, out: &mut BoltCollector<'_>) {
        if !self.counts.is_empty() {
            (self.report)(&self.counts);
        }
        self.counts.clear();
        self.counted.drain(..).for_each(|tuple| out.ack(tuple));
    }
}

/// What to follow, and how.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its `*.log` are followed, and what they are renamed to: `*.log.1` and so on.
    pub directory: PathBuf,
    pub state: PathBuf,
    /// To be done at the end of all logs, instead of waiting for more.
    pub until_idle: bool,
    /// How often it looks for more, if it has read all, and saves its state.
    pub look_every: Duration,
    pub tick_every: Duration,
    pub replay: Replay,
}

impl Settings {
    pub fn new(directory: &Path) -> Self {
        Settings {
            directory: directory.to_path_buf(),
            state: directory.join(".tail"),
            until_idle: false,
            look_every: Duration::from_millis(100),
            tick_every: Duration::from_millis(500),
            replay: Replay::default().attempts(3).base(Duration::from_millis(50)),
        }
    }
}

/// A topology that parses lines and counts them by level. `on_counts` receives the counts since its
/// last call. `on_dead` receives each line that was given up, with the reason.
pub fn topology(
    settings: Settings,
    on_counts: impl Fn(&Counts) + Clone + Send + Sync + 'static,
    on_dead: impl Fn(&Line, &str) + Send + Sync + 'static,
) -> TopologyBuilder {
    let topology = TopologyBuilder::new();
    let (tick_every, replay) = (settings.tick_every, settings.replay);
    // An instance that replaces a panicked one receives the outcomes of that one's messages: their
    // tokens must differ.
    let (settings, ids) = (Arc::new(settings), Arc::new(AtomicU64::new(0)));
    let tail = topology
        .spout("tail", move |_| Tail::new(settings.clone(), ids.clone()))
        // The limit is as many lines as may come between two ticks.
        .max_pending(1 << 16)
        .replay(replay);
    let parse = topology
        .bolt("parse", |_| {
            basic(|line: &Line, out| match parse(&line.text) {
                Ok(entry) => out.emit(entry),
                Err(why) => out.reject(why),
            })
        })
        .parallelism(2)
        .shuffle(&tail);
    topology
        .bolt("count", move |_| Count {
            counts: Counts::new(),
            counted: Vec::new(),
            report: on_counts.clone(),
        })
        .parallelism(2)
        .fields(&parse, |entry| entry.level)
        .tick_every(tick_every);
    let on_dead = Arc::new(on_dead);
    topology
        .bolt("dead", move |_| {
            let on_dead = on_dead.clone();
            sink(move |letter: &DeadLetter<Line>, _| match &letter.failure {
                Failure::Rejected { why, .. } => on_dead(&letter.message, why),
                other => on_dead(&letter.message, &other.to_string()),
            })
        })
        .shuffle(tail.dead_letters());
    topology
}

/// A log that is followed.
struct Log {
    name: Arc<str>,
    /// None before it is found, and when it was cut off.
    reader: Option<BufReader<File>>,
    /// The line that is being read, and where it begins.
    line: Vec<u8>,
    offset: u64,
    /// Offsets of the lines that are neither acked nor given up.
    pending: BTreeSet<u64>,
    /// Looks at the directory that did not find it.
    misses: u32,
}

impl Log {
    fn at(offset: u64) -> Self {
        Log {
            name: "".into(),
            reader: None,
            line: Vec::new(),
            offset,
            pending: BTreeSet::new(),
            misses: 0,
        }
    }

    /// All before it is acked or given up.
    fn settled(&self) -> u64 {
        self.pending.first().copied().unwrap_or(self.offset)
    }

    /// Whether there is a whole line.
    fn read(&mut self, known: u64) -> io::Result<bool> {
        if self.line.ends_with(b"\n") {
            return Ok(true);
        }
        let Some(reader) = &mut self.reader else {
            return Ok(false);
        };
        if reader.buffer().is_empty() {
            if mark(reader.get_mut())? != Some(known) {
                // Cut off: what it holds by now is another log, which begins at its beginning.
                self.reader = None;
                self.line.clear();
                return Ok(false);
            }
            let at = self.offset + self.line.len() as u64;
            reader.seek(SeekFrom::Start(at))?;
        }
        reader.read_until(b'\n', &mut self.line)?;
        Ok(self.line.ends_with(b"\n"))
    }
}

/// Emits the lines of all logs of a directory.
struct Tail {
    settings: Arc<Settings>,
    ids: Arc<AtomicU64>,
    /// The logs by their marks; `None` before the state has been read.
    logs: Option<BTreeMap<u64, Log>>,
    /// The log's mark and the line's offset of each pending line, by its token.
    pending: HashMap<u64, (u64, u64)>,
    looked: Option<Instant>,
    is_at_end: bool,
    is_changed: bool,
}

impl Tail {
    fn new(settings: Arc<Settings>, ids: Arc<AtomicU64>) -> Self {
        Tail {
            settings,
            ids,
            logs: None,
            pending: HashMap::new(),
            looked: None,
            is_at_end: false,
            is_changed: false,
        }
    }

    /// Emits the lines it has, and looks for more if it has none. Returns how many it emitted.
    fn advance(&mut self, out: &mut SpoutCollector<'_, Line>) -> io::Result<usize> {
        if self.logs.is_none() {
            let offsets = offsets(&self.settings.state)?.into_iter();
            self.logs = Some(offsets.map(|(mark, offset)| (mark, Log::at(offset))).collect());
        }
        let until_idle = self.settings.until_idle;
        let is_due =
            self.looked.map_or(true, |looked| looked.elapsed() >= self.settings.look_every);
        if self.is_at_end && !is_due && !until_idle {
            return Ok(0);
        }
        let mut emitted = self.emit(out)?;
        if is_due || (emitted == 0 && until_idle) {
            self.looked = Some(Instant::now());
            self.look()?;
            self.save()?;
            emitted += self.emit(out)?;
        }
        self.is_at_end = emitted == 0;
        Ok(emitted)
    }

    fn emit(&mut self, out: &mut SpoutCollector<'_, Line>) -> io::Result<usize> {
        let mut emitted = 0;
        for (&mark, log) in self.logs.iter_mut().flatten() {
            for _ in 0..TURN {
                if out.room() == 0 || !log.read(mark)? {
                    break;
                }
                let line = Line {
                    file: log.name.clone(),
                    offset: log.offset,
                    text: String::from_utf8_lossy(&log.line).trim_end().to_string(),
                };
                let id = self.ids.fetch_add(1, Relaxed);
                if let Err(refused) = out.emit(line, id) {
                    // The line is still there.
                    out.report(&refused);
                    break;
                }
                self.pending.insert(id, (mark, log.offset));
                log.pending.insert(log.offset);
                log.offset += log.line.len() as u64;
                log.line.clear();
                emitted += 1;
            }
        }
        Ok(emitted)
    }

    /// Looks which logs there are.
    fn look(&mut self) -> io::Result<()> {
        let logs = self.logs.get_or_insert_with(BTreeMap::new);
        logs.values_mut().for_each(|log| log.misses += 1);
        for entry in fs::read_dir(&self.settings.directory)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if !is_log(&name) || !path.is_file() {
                continue;
            }
            let mut file = match File::open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file?,
            };
            let Some(mark) = mark(&mut file)? else {
                continue;
            };
            let log = logs.entry(mark).or_insert_with(|| Log::at(0));
            log.misses = 0;
            log.name = name.into();
            if log.reader.is_none() {
                log.reader = Some(BufReader::new(file));
            }
        }
        logs.retain(|_, log| log.misses < MISSES || !log.pending.is_empty());
        Ok(())
    }

    /// Writes down up to where all is settled, at once or not at all.
    fn save(&mut self) -> io::Result<()> {
        let Some(logs) = self.logs.as_ref().filter(|_| self.is_changed) else {
            return Ok(());
        };
        let draft = self.settings.state.with_extension("new");
        let mut file = File::create(&draft)?;
        for (mark, log) in logs {
            writeln!(file, "{mark:016x} {} {:?}", log.settled(), log.name)?;
        }
        file.sync_all()?;
        fs::rename(draft, &self.settings.state)?;
        self.is_changed = false;
        Ok(())
    }

    fn settle(&mut self, id: u64) {
        // An unknown id was emitted by an instance that has panicked: its line is read again.
        if let Some((mark, offset)) = self.pending.remove(&id) {
            if let Some(log) = self.logs.as_mut().and_then(|logs| logs.get_mut(&mark)) {
                log.pending.remove(&offset);
            }
            self.is_changed = true;
        }
    }
}

impl Spout<Line> for Tail {
    fn next(&mut self, out: &mut SpoutCollector<'_, Line>) -> Next {
        match self.advance(out) {
            Ok(0) if self.settings.until_idle => Next::Done,
            Ok(0) => Next::Idle,
            Ok(_) => Next::Ready,
            Err(error) => {
                out.report(&error);
                Next::Idle
            }
        }
    }

    fn ack(&mut self, id: u64) {
        self.settle(id);
    }

    fn fail(&mut self, id: u64, _: &Failure) {
        self.settle(id);
    }

    fn close(&mut self) {
        if let Err(error) = self.save() {
            eprintln!("the offsets are not saved: {error}");
        }
    }
}

/// `a.log`, `a.log.1`.
fn is_log(name: &str) -> bool {
    let is_number = |end: &str| end.bytes().all(|byte| byte.is_ascii_digit());
    match name.rsplit_once('.') {
        Some((_, "log")) => true,
        Some((name, end)) => name.ends_with(".log") && is_number(end),
        None => false,
    }
}

/// The identity of a log that has a whole line: FNV-1a of its inode (where there is one) and of its
/// first line.
fn mark(file: &mut File) -> io::Result<Option<u64>> {
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(&file.metadata()?);
    #[cfg(not(unix))]
    let inode = 0_u64;
    let mut head = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(HEAD).read_to_end(&mut head)?;
    match head.iter().position(|&byte| byte == b'\n') {
        Some(end) => head.truncate(end),
        None if (head.len() as u64) < HEAD => return Ok(None),
        None => {}
    }
    let bytes = inode.to_le_bytes().into_iter().chain(head);
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    Ok(Some(bytes.fold(0xcbf2_9ce4_8422_2325, step)))
}

/// What the state file says: of each log, by its mark, up to where all was settled.
pub fn offsets(state: &Path) -> io::Result<BTreeMap<u64, u64>> {
    let text = match fs::read_to_string(state) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        text => text?,
    };
    let read = |line: &str| {
        let (mark, rest) = line.split_once(' ')?;
        let (offset, _) = rest.split_once(' ')?;
        Some((u64::from_str_radix(mark, 16).ok()?, offset.parse().ok()?))
    };
    let wrong = |line| io::Error::new(io::ErrorKind::InvalidData, format!("no offset: {line:?}"));
    let lines = text.lines();
    lines.map(|line| read(line).ok_or_else(|| wrong(line))).collect()
}
