//! Keep-alives of sessions beside those of leases on etcd and of sessions on ZooKeeper.
//!
//! One etcd server, one ZooKeeper server, and one broker with one owner run on this machine. Each
//! round keeps all leases and sessions of one system alive after the other. The CPU time of the
//! servers is counted apart from that of the clients, which this process is.
//!
//! * **etcd**: 16 streams of `etcdserverpb.Lease/LeaseKeepAlive` over 4 connections keep 10,000
//!   leases of 60 s alive. Each stream has two HTTP/2 frames of 625 requests under way.
//! * **ZooKeeper**: 500 sessions, each a connection of its own, with 32 pings under way. A ping is
//!   the 12 bytes that a client sends when it has nothing else to ask: the server gives the session
//!   its whole timeout and answers.
//! * **expiry-nats**: one front-end touches a million sessions of 60 s. It sends the touched ids
//!   four times in a timeout, up to 32,768 in a request. The broker routes requests and answers.
//!
//! No system writes anything for a keep-alive: each one's time is in its server's memory. The
//! clients of etcd and of ZooKeeper here pipeline, and do less than those systems' own.

use bytes::{Bytes, BytesMut};
use expiry_nats::brokers::Brokers;
use expiry_nats::{Nats, Options, SessionId, Sessions};
use futures_util::future::try_join_all;
use futures_util::{stream, StreamExt, TryStreamExt};
use prost::Message;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::future::Future;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::{median, Result};

const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a round of etcd or of ZooKeeper takes.
const ROUND: Duration = Duration::from_secs(5);
const ROUNDS: usize = 3;
/// Rounds before those that count: Java compiles what it runs often.
const WARM: usize = 2;
const STREAMS: usize = 16;
/// Leases of a stream, and requests of an HTTP/2 frame.
const LEASES: usize = 625;
const CONNECTIONS: usize = 500;
const PINGS: usize = 32;
/// The classes of Debian's package. Its manifest names the libraries.
const ZOOKEEPER: &str = "/usr/share/java/zookeeper.jar";
/// Runs a program until the shell's input ends, which it does when this process dies.
const SHELL: &str = r#""$0" "$@" </dev/null >log 2>&1 & read _; kill -9 $!; wait $!"#;

/// A server in a temporary folder. It ends when this value is dropped.
struct Server {
    shell: Child,
    folder: PathBuf,
}

impl Server {
    fn start(name: &str, program: impl AsRef<OsStr>, args: &str) -> Result<Server> {
        let folder = std::env::temp_dir().join(format!("peers-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let mut shell = Command::new("sh");
        shell.args(["-c", SHELL]).arg(program).args(args.split_whitespace());
        shell
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir(&folder);
        Ok(Server { shell: shell.spawn()?, folder })
    }

    /// Tries until the server serves. ZooKeeper never answers what comes before that.
    async fn ready<T, F: Future<Output = Result<T>>>(&self, ask: impl Fn() -> F) -> Result<T> {
        let began = Instant::now();
        while began.elapsed() < TIMEOUT {
            if let Ok(Ok(answer)) = tokio::time::timeout(Duration::from_secs(1), ask()).await {
                return Ok(answer);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let log = fs::read_to_string(self.folder.join("log"))?;
        Err(format!("{} is not ready: {log}", self.folder.display()).into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The CPU seconds that servers with these names have taken, and this process. The servers are
/// those that this process's shells have started.
fn cpu(names: &[&str]) -> Result<(f64, f64)> {
    let mut all = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        // A process that has ended meanwhile has none.
        let Ok(stat) = fs::read_to_string(entry?.path().join("stat")) else { continue };
        let Some((left, right)) = stat.rsplit_once(')') else { continue };
        let (id, name) = left.split_once(" (").ok_or("a process has a name")?;
        let fields: Vec<&str> = right.split_whitespace().collect();
        let ticks = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
        all.insert(id.to_string(), (name.to_string(), fields[1].to_string(), ticks / 100.0));
    }
    let me = std::process::id().to_string();
    let is_mine = |id: &String| all.get(id).is_some_and(|(_, parent, _)| *parent == me);
    let servers = all.values().filter(|one| names.contains(&&*one.0) && is_mine(&one.1));
    let servers: Vec<f64> = servers.map(|one| one.2).collect();
    assert_eq!(servers.len(), names.len(), "each server lives");
    Ok((servers.iter().sum(), all[&me].2))
}

/// A system's keep-alives per second, per CPU second of its servers, and per CPU second in all.
type Row = [f64; 3];

/// Awaits keep-alives. Their future gives their number and the seconds that they took.
async fn measure(names: &[&str], work: impl Future<Output = Result<(u64, f64)>>) -> Result<Row> {
    let before = cpu(names)?;
    let (count, took) = work.await?;
    let (count, after) = (count as f64, cpu(names)?);
    let [servers, clients] = [after.0 - before.0, after.1 - before.1];
    println!("{names:?}: {count} in {took:.2} s; CPU {servers:.2} s, clients {clients:.2} s");
    Ok([count / took, count / servers, count / (servers + clients)])
}

/// `LeaseGrantResponse` and `LeaseKeepAliveResponse`.
#[derive(Clone, PartialEq, Message)]
struct Granted {
    #[prost(int64, tag = "2")]
    id: i64,
    #[prost(int64, tag = "3")]
    timeout: i64,
}

type Client = h2::client::SendRequest<Bytes>;

/// A call of gRPC: messages, each after a byte 0 and its length.
struct Call {
    sent: h2::SendStream<Bytes>,
    received: h2::RecvStream,
    read: BytesMut,
}

impl Call {
    /// Begins a call. etcd's headers come with its first answer, so that the first messages are
    /// sent before. `whole` says that there are no others.
    async fn new(client: &Client, method: &str, first: Bytes, whole: bool) -> Result<Call> {
        let uri = format!("http://127.0.0.1/etcdserverpb.Lease/{method}");
        let request = http::Request::post(uri).header("te", "trailers");
        let request = request.header("content-type", "application/grpc").body(())?;
        let (answer, mut sent) = client.clone().ready().await?.send_request(request, false)?;
        sent.send_data(first, whole)?;
        Ok(Call { sent, received: answer.await?.into_body(), read: BytesMut::new() })
    }

    async fn next(&mut self) -> Result<Granted> {
        loop {
            if let Some(head) = self.read.first_chunk::<5>() {
                let whole = 5 + u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                if self.read.len() >= whole {
                    return Ok(Granted::decode(&self.read.split_to(whole)[5..])?);
                }
            }
            let data = self.received.data().await.ok_or("etcd has ended the call")??;
            // This fails after the stream's end, when there is nothing to give back.
            let _ = self.received.flow_control().release_capacity(data.len());
            self.read.extend_from_slice(&data);
        }
    }
}

/// `LeaseGrantRequest`s of a timeout, or `LeaseKeepAliveRequest`s of a lease.
fn frame(numbers: &[i64]) -> Bytes {
    let message = |first: &i64| {
        let message = Message::encode_to_vec(first);
        [&[0, 0, 0, 0, message.len() as u8][..], &message].concat()
    };
    numbers.iter().flat_map(message).collect()
}

async fn tcp(port: u16) -> Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn client(port: u16) -> Result<Client> {
    let mut settings = h2::client::Builder::new();
    settings.initial_window_size(1 << 20).initial_connection_window_size(1 << 22);
    let (client, connection) = settings.handshake(tcp(port).await?).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// A call with one answer, which names a lease.
async fn ask(client: &Client, method: &str, number: i64) -> Result<i64> {
    Ok(Call::new(client, method, frame(&[number]), true).await?.next().await?.id)
}

async fn grant(client: &Client) -> Result<i64> {
    ask(client, "LeaseGrant", TIMEOUT.as_secs() as i64).await
}

/// Keeps the leases of one stream alive until then. Returns how many times.
async fn keep_alive(client: Client, leases: Vec<i64>, until: Instant) -> Result<u64> {
    let all = frame(&leases);
    let mut call = Call::new(&client, "LeaseKeepAlive", all.clone(), false).await?;
    call.sent.send_data(all.clone(), false)?;
    let (mut count, mut under_way) = (0, 2);
    while under_way > 0 {
        for lease in &leases {
            let kept = call.next().await?;
            if (kept.id, kept.timeout) != (*lease, TIMEOUT.as_secs() as i64) {
                return Err(format!("lease {lease} has ended: {kept:?}").into());
            }
        }
        count += leases.len() as u64;
        under_way -= 1;
        if Instant::now() < until {
            call.sent.send_data(all.clone(), false)?;
            under_way += 1;
        }
    }
    call.sent.send_data(Bytes::new(), true)?;
    Ok(count)
}

/// A session of ZooKeeper.
type Session = Arc<Mutex<TcpStream>>;

async fn connect(port: u16) -> Result<Session> {
    let mut stream = tcp(port).await?;
    // Length, version and last transaction; the timeout; no session, and 16 bytes of password.
    let mut ask = [0; 49];
    ask[3] = 45;
    ask[16..20].copy_from_slice(&(TIMEOUT.as_millis() as u32).to_be_bytes());
    ask[31] = 16;
    stream.write_all(&ask).await?;
    let mut answer = [0; 41];
    stream.read_exact(&mut answer).await?;
    if answer[8..12] != ask[16..20] {
        return Err(format!("ZooKeeper gives another timeout: {answer:?}").into());
    }
    Ok(Arc::new(Mutex::new(stream)))
}

/// Pings from one session until then. Returns how many times.
async fn ping(stream: Session, until: Instant) -> Result<u64> {
    // Length, -2 for the number of the request, and 11 for its type.
    let pings = [0, 0, 0, 8, 255, 255, 255, 254, 0, 0, 0, 11].repeat(PINGS);
    let mut answers = [0; 20 * PINGS];
    let mut stream = stream.lock().await;
    let mut count = 0;
    while Instant::now() < until {
        stream.write_all(&pings).await?;
        stream.read_exact(&mut answers).await?;
        // Length, the request's number, a transaction, and no error.
        let is_kept =
            |one: &[u8]| one[..8] == [0, 0, 0, 16, 255, 255, 255, 254] && one[16..] == [0; 4];
        if !answers.chunks(20).all(is_kept) {
            return Err("ZooKeeper refuses a ping".into());
        }
        count += PINGS as u64;
    }
    Ok(count)
}

/// Runs all tasks. Returns the sum of their counts, and the seconds that they took.
async fn sum<F>(tasks: impl Iterator<Item = F>) -> Result<(u64, f64)>
where
    F: Future<Output = Result<u64>> + Send + 'static,
{
    let began = Instant::now();
    let counts = try_join_all(tasks.map(tokio::spawn)).await?;
    let count = counts.into_iter().sum::<Result<u64>>()?;
    Ok((count, began.elapsed().as_secs_f64()))
}

/// The owner of all sessions, which is a process of its own.
pub async fn owner(broker: &str) -> Result<()> {
    let (_owner, mut ended) = join(broker, "owner").await?;
    while ended.next().await.is_some() {}
    Ok(())
}

async fn join(broker: &str, name: &str) -> Result<(Sessions, expiry_nats::Ended)> {
    let nats = Nats::connect(Options::new("peers", name).servers([broker])).await?;
    Ok(nats.sessions("clients", 1).replicas(1).timeout(TIMEOUT).join().await?)
}

/// Begins sessions at the owner, whose front-end this process becomes.
async fn begin(broker: &str, count: usize) -> Result<(Sessions, Vec<SessionId>)> {
    let (front, _) = join(broker, "front").await?;
    front.leave().await;
    while front.stats().partitions > 0 || front.begin().await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let all = stream::iter(0..count).map(|_| front.begin()).buffer_unordered(4096);
    let all = all.try_collect().await?;
    Ok((front, all))
}

/// Touches all sessions, and waits until the owner has confirmed that.
async fn touch(front: &Sessions, all: &[SessionId]) -> Result<(u64, f64)> {
    let before = front.stats().touches;
    if !all.iter().all(|id| front.touch(*id)) {
        return Err("a session has ended: name fewer".into());
    }
    let confirmed = async |count: u64| {
        while front.stats().touches - before < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        (Instant::now(), front.stats().touches - before)
    };
    // The front-end sends nothing at first. The rate counts from the first batch on.
    let (began, first) = confirmed(1).await;
    let (ended, count) = confirmed(all.len() as u64).await;
    let share = count as f64 / (count - first).max(1) as f64;
    Ok((count, (ended - began).as_secs_f64() * share))
}

async fn etcd() -> Result<(Server, Vec<(Client, Vec<i64>)>)> {
    let port = port()?;
    let args = format!(
        "--data-dir store --log-level error --listen-peer-urls http://127.0.0.1:0 \
         --listen-client-urls http://127.0.0.1:{port} \
         --advertise-client-urls http://127.0.0.1:{port}"
    );
    let server = Server::start("etcd", "etcd", &args)?;
    server.ready(|| async { grant(&client(port).await?).await }).await?;
    let mut streams = Vec::new();
    for _ in 0..STREAMS / 4 {
        let client = client(port).await?;
        for _ in 0..4 {
            let granted = stream::iter(0..LEASES).map(|_| grant(&client)).buffer_unordered(64);
            streams.push((client.clone(), granted.try_collect().await?));
        }
    }
    // For each answer etcd 3.4 copies its buffer of written leases, which takes ten times as long
    // as all else. The next commit that writes no lease drops it: that of a revocation.
    let spare = grant(&streams[0].0).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    ask(&streams[0].0, "LeaseRevoke", spare).await?;
    Ok((server, streams))
}

async fn zookeeper() -> Result<(Server, Vec<Session>)> {
    let port = port()?;
    let args = format!(
        "-cp {ZOOKEEPER} -Dzookeeper.globalOutstandingLimit=1000000 \
        org.apache.zookeeper.server.ZooKeeperServerMain conf"
    );
    let server = Server::start("zookeeper", "java", &args)?;
    let conf = format!(
        "clientPortAddress=127.0.0.1\nclientPort={port}\ndataDir={}\nadmin.enableServer=false\n\
         tickTime=2000\nmaxSessionTimeout=60000\nmaxClientCnxns=0\n",
        server.folder.display(),
    );
    fs::write(server.folder.join("conf"), conf)?;
    server.ready(|| connect(port)).await?;
    let connections = stream::iter(0..CONNECTIONS).then(|_| connect(port)).try_collect().await?;
    Ok((server, connections))
}

/// Measures all, with so many sessions of ours.
pub async fn run(count: usize) -> Result<()> {
    let needed = format!("command -v etcd java && test -e {ZOOKEEPER}");
    if !Command::new("sh").args(["-c", &needed]).stdout(Stdio::null()).status()?.success() {
        return Err("etcd or ZooKeeper is missing: apt-get install etcd-server zookeeper".into());
    }
    let (_etcd, streams) = etcd().await?;
    let (_zookeeper, connections) = zookeeper().await?;
    let broker = tokio::task::spawn_blocking(|| Brokers::start(1)).await??;
    let address = broker.servers().remove(0);
    let args = format!("peers-owner {address}");
    let _owner = Server::start("owner", std::env::current_exe()?, &args)?;
    let (front, all) = begin(&address, count).await?;
    let mut rows: [Vec<Row>; 3] = Default::default();
    for round in 0..WARM + ROUNDS {
        let ours = measure(&["nats-server", "figures"], touch(&front, &all)).await?;
        let until = Instant::now() + ROUND;
        let kept = streams.iter().cloned().map(|(one, leases)| keep_alive(one, leases, until));
        let etcd = measure(&["etcd"], sum(kept)).await?;
        let until = Instant::now() + ROUND;
        let pinged = connections.iter().cloned().map(|one| ping(one, until));
        let zookeeper = measure(&["java"], sum(pinged)).await?;
        for (rows, row) in rows.iter_mut().zip([ours, etcd, zookeeper]).filter(|_| round >= WARM) {
            rows.push(row);
        }
    }
    let [ours, theirs @ ..] = rows.map(|rows| {
        [0, 1, 2].map(|n| median(&mut rows.iter().map(|row| row[n]).collect::<Vec<_>>()))
    });
    println!("keep-alives/s; per CPU second of the servers; per CPU second in all");
    println!("expiry-nats: {:.0}; {:.0}; {:.0}", ours[0], ours[1], ours[2]);
    for (name, [rate, servers, in_all]) in ["etcd", "ZooKeeper"].into_iter().zip(theirs) {
        let times = [ours[1] / servers, ours[2] / in_all];
        println!("{name}: {rate:.0}; {servers:.0}; {in_all:.0}: we have {times:.1?} times those");
    }
    Ok(())
}
