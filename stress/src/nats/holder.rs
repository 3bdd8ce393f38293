//! A worker process of a soak: holds leases, sessions and idempotency keys, and writes down what
//! happens to them, see `history.rs`.

use super::history::{line, Event, Terms};
use super::{failed, APP};
use crate::error::Error;
use expiry_nats::{
    Claim, Ended, Lease, Leases, Nats, NatsError, Once, Options, SessionId, Sessions,
};
use rand::{rngs::SmallRng, Rng, SeedableRng};
use std::fs::File;
use std::future::Future;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

pub const TERMS: Terms = Terms { timeout: 40_000, claim: 4_000 };
/// In a folder of logs: the sessions are left alone, and nothing is begun.
pub const QUIET: &str = "quiet";
const OWNERS: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(10);
const KEYS: u64 = 8;
const SESSIONS: usize = 40;

/// Milliseconds of the monotonic clock, which all processes of a host share.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec * 1000 + time.tv_nsec / 1_000_000).unwrap_or(0)
}

fn span(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A log of this process: each record is one write, which a kill does not undo.
struct Log(File);

impl Log {
    fn note(&self, at: u64, event: Event) {
        let written = (&self.0).write_all(line(at, event).as_bytes());
        written.expect("the log takes a line");
    }
}

async fn retry<T, F: Future<Output = Result<T, NatsError>>>(f: impl Fn() -> F) -> T {
    loop {
        match f().await {
            Ok(made) => return made,
            Err(_) => sleep(span(100)).await,
        }
    }
}

/// Works until its input ends, which it does when the first process dies, too.
pub async fn run(name: &str, servers: &str, folder: &Path, seed: u64) -> Result<(), Error> {
    let path = folder.join(format!("{name}-{}.log", std::process::id()));
    let log = Arc::new(Log(File::create(path).map_err(failed)?));
    let options = Options::new(APP, name).servers(servers.split(','));
    let nats = retry(|| Nats::connect(options.clone())).await;
    let leases = retry(|| nats.leases("keys", 6).partition_lease(OWNERS).join()).await;
    let sessions = || nats.sessions("clients", 6).partition_lease(OWNERS);
    let (sessions, ended) = retry(|| sessions().timeout(span(TERMS.timeout)).join()).await;
    let once = retry(|| nats.once("calls").time(span(TERMS.claim)).open()).await;
    for key in 0..KEYS {
        let rng = SmallRng::seed_from_u64(seed ^ (key << 32));
        tokio::spawn(hold(leases.clone(), key, rng, log.clone()));
    }
    let rng = || SmallRng::seed_from_u64(seed);
    tokio::spawn(serve(sessions, rng(), log.clone(), folder.join(QUIET)));
    tokio::spawn(listen(ended, log.clone()));
    tokio::spawn(claim(once, rng(), log));
    let input = || std::io::stdin().read_to_end(&mut Vec::new());
    let _ = tokio::task::spawn_blocking(input).await;
    std::process::exit(0)
}

/// Acquires a key again and again, and holds it for a while.
async fn hold(leases: Leases, key: u64, mut rng: SmallRng, log: Arc<Log>) {
    loop {
        let lease = leases.acquire(key.to_be_bytes(), LEASE).await;
        if let Ok(Some(lease)) = lease {
            held(&lease, key, span(rng.random_range(100..15_000)), &log).await;
            if rng.random_bool(0.8) {
                let _ = lease.release().await;
            }
        }
        sleep(span(rng.random_range(50..500))).await;
    }
}

async fn held(lease: &Lease, key: u64, time: Duration, log: &Log) {
    let (token, end) = (lease.token(), tokio::time::Instant::now() + time);
    loop {
        let at = now();
        let left = lease.valid_for();
        if left.is_zero() || tokio::time::Instant::now() >= end {
            return log.note(at, Event::Over { key, token });
        }
        let until = at + u64::try_from(left.as_millis()).unwrap_or(0);
        log.note(at, Event::Valid { key, token, until });
        let _ = tokio::time::timeout(span(250), lease.lost()).await;
    }
}

/// Begins sessions, and touches them eight times in a timeout. It leaves some alone.
async fn serve(sessions: Sessions, mut rng: SmallRng, log: Arc<Log>, quiet: std::path::PathBuf) {
    let mut served: Vec<SessionId> = Vec::new();
    loop {
        let is_quiet = quiet.exists();
        while served.len() < SESSIONS && !is_quiet {
            let at = now();
            let Ok(id) = sessions.begin().await else { break };
            log.note(at, Event::Begun { session: id.0 });
            served.push(id);
        }
        if is_quiet {
            served.clear();
        }
        served.retain(|id| {
            let at = now();
            let lives = sessions.touch(*id);
            if lives {
                log.note(at, Event::Touched { session: id.0 });
            }
            lives && !rng.random_bool(0.02)
        });
        if rng.random_bool(0.3) {
            if let Some(id) = served.pop() {
                log.note(now(), Event::Left { session: id.0 });
                let _ = sessions.end(id).await;
            }
        }
        sleep(span(TERMS.timeout / 8)).await;
    }
}

async fn listen(mut ended: Ended, log: Arc<Log>) {
    while let Some(id) = ended.next().await {
        log.note(now(), Event::Told { session: id.0 });
    }
}

/// Claims the key of the moment, as all processes do. Some claimers are late.
async fn claim(once: Once, mut rng: SmallRng, log: Arc<Log>) {
    loop {
        let (at, pause) = (now(), span(rng.random_range(50..500)));
        let key = at / 10_000;
        match once.claim(key.to_be_bytes()).await {
            Ok(Claim::First(mut guard)) => {
                let token = guard.token();
                log.note(at, Event::First { key, token, answered: now() });
                let is_late = rng.random_bool(0.4);
                sleep(if is_late { span(TERMS.claim) + pause } else { pause }).await;
                if guard.done(token.to_string()).await.is_ok() {
                    log.note(now(), Event::Answer { key, token });
                }
            }
            Ok(Claim::Done(answer)) => {
                let token = String::from_utf8_lossy(&answer).parse().unwrap_or(0);
                log.note(now(), Event::Answer { key, token });
            }
            Ok(Claim::InProgress) | Err(_) => {}
        }
        sleep(pause).await;
    }
}
