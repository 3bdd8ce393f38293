//! A reverse proxy: connections to the server behind it are pooled, and close after an idle time; a
//! request has a limit.
//!
//! It runs a server, itself, and clients on the loopback, prints what it finds, and fails if that
//! is not what the limits say: `cargo run -p expiry-tower --example proxy`.

use bytes::Bytes;
use expiry::timeouts::{global, sleep, timeout, TimeoutError};
use expiry::{BuildError, PendingTable, Ticket};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{handshake, SendRequest};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

type Error = Box<dyn std::error::Error + Send + Sync>;
type Connection = SendRequest<Incoming>;

/// Idle connections to one server. The table owns them, and closes each that has been idle for too
/// long, by dropping it.
struct Pool {
    server: SocketAddr,
    idle: PendingTable<Connection>,
    /// The last one that came back is the first to go out again. Tickets of closed connections are
    /// left here, at most [`MOST`].
    tickets: Mutex<Vec<Ticket>>,
    limit: Duration,
}

/// Idle connections, and tickets.
const MOST: usize = 100;

impl Pool {
    fn new(server: SocketAddr, limit: Duration) -> Result<Self, BuildError> {
        let idle = PendingTable::builder().capacity(MOST).build()?;
        Ok(Pool { server, idle, tickets: Mutex::default(), limit })
    }

    /// An idle connection, or a new one.
    async fn take(&self) -> Result<Connection, Error> {
        loop {
            let Some(ticket) = self.tickets.lock().unwrap().pop() else {
                let stream = TokioIo::new(TcpStream::connect(self.server).await?);
                let (connection, driver) = handshake(stream).await?;
                tokio::spawn(driver);
                return Ok(connection);
            };
            match self.idle.take(ticket) {
                // The server has not closed it meanwhile.
                Some(connection) if connection.is_ready() => return Ok(connection),
                _ => {}
            }
        }
    }

    /// It may be used again. A connection that finds no room is closed.
    fn give_back(&self, connection: Connection) {
        if let Ok(ticket) = self.idle.insert(connection, self.limit) {
            let mut tickets = self.tickets.lock().unwrap();
            if tickets.len() == MOST {
                tickets.remove(0);
            }
            tickets.push(ticket);
        }
    }
}

/// What the server behind it answers, within the limit.
async fn forward(
    pool: &Pool,
    request: Request<Incoming>,
    limit: Duration,
) -> Result<Response<Full<Bytes>>, Error> {
    let answer = timeout(limit, async {
        let mut connection = pool.take().await?;
        let answer = connection.send_request(request).await?;
        let (head, body) = answer.into_parts();
        let body = Full::new(body.collect().await?.to_bytes());
        // Not before: a connection with half an answer on it is of no use to the next request.
        connection.ready().await?;
        pool.give_back(connection);
        Ok::<_, Error>(Response::from_parts(head, body))
    });
    match answer.await {
        Ok(answer) => answer,
        Err(TimeoutError::Elapsed) => said(StatusCode::GATEWAY_TIMEOUT, "too slow"),
        Err(refused) => Err(refused.into()),
    }
}

fn said(status: StatusCode, text: &'static str) -> Result<Response<Full<Bytes>>, Error> {
    Ok(Response::builder().status(status).body(Full::new(text.into()))?)
}

/// Serves `answer` at the address that this returns, and counts open connections.
async fn serve<F>(
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
) -> Result<(SocketAddr, Arc<AtomicUsize>), Error>
where
    F: Future<Output = Result<Response<Full<Bytes>>, Error>> + Send + 'static,
{
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let (address, open) = (listener.local_addr()?, Arc::new(AtomicUsize::new(0)));
    let counts = open.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (answer, counts) = (answer.clone(), counts.clone());
            tokio::spawn(async move {
                counts.fetch_add(1, Relaxed);
                let service = service_fn(answer);
                // An error ends this connection only.
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                counts.fetch_sub(1, Relaxed);
            });
        }
    });
    Ok((address, open))
}

/// Sends so many requests, one after the other. How many got this status.
async fn ask(to: SocketAddr, path: &str, times: usize, status: StatusCode) -> Result<usize, Error> {
    let stream = TokioIo::new(TcpStream::connect(to).await?);
    let (mut connection, driver) = handshake(stream).await?;
    tokio::spawn(driver);
    let mut found = 0;
    for _ in 0..times {
        let request = Request::builder().uri(path).header("host", "proxy");
        connection.ready().await?;
        let answer = connection.send_request(request.body(Full::<Bytes>::default())?).await?;
        found += usize::from(answer.status() == status);
        answer.into_body().collect().await?;
    }
    Ok(found)
}

// A machine that is busy with other work stops this process for tenths of a second. That is no
// timeout of a request, and no idle time of all connections.
const IDLE: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(1);
const CLIENTS: usize = 8;
const EACH: usize = 500;

/// Whether all is as it should be.
pub async fn run() -> Result<bool, Error> {
    let (server, open) = serve(|request| async move {
        if request.uri().path() == "/slow" {
            sleep(Duration::from_secs(60)).await;
        }
        said(StatusCode::OK, "here it is")
    })
    .await?;
    let pool: &'static Pool = Box::leak(Box::new(Pool::new(server, IDLE)?));
    let (proxy, _) = serve(move |request| forward(pool, request, LIMIT)).await?;

    let clients = (0..CLIENTS).map(|_| tokio::spawn(ask(proxy, "/", EACH, StatusCode::OK)));
    let mut answered = 0;
    for client in clients.collect::<Vec<_>>() {
        answered += client.await??;
    }
    let pooled = pool.idle.len();
    println!("{answered} requests, {pooled} connections to the server");
    let slow = ask(proxy, "/slow", 1, StatusCode::GATEWAY_TIMEOUT).await?;
    println!("{slow} request was too slow for its limit");
    let closed = timeout(Duration::from_secs(20), async {
        while open.load(Relaxed) > 0 {
            sleep(Duration::from_millis(10)).await;
        }
    });
    let closed = closed.await.is_ok();
    println!("idle connections to the server {}", if closed { "are closed" } else { "stay" });
    println!("{} timeouts were registered", global().metrics().registered);
    Ok(answered == CLIENTS * EACH && (1..=CLIENTS).contains(&pooled) && slow == 1 && closed)
}

fn main() -> Result<ExitCode, Error> {
    // Without a time driver.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let good = runtime.block_on(run())?;
    println!("{}", if good { "all is as it should be" } else { "WRONG" });
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
