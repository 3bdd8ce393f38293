//! An axum server with three limits, and a client that runs into each: a slow handler, a request
//! whose head does not come, and a connection that falls silent.
//!
//! It serves itself on the loopback, prints what it finds, and fails if that is not what the limits
//! say: `cargo run -p expiry-tower --example axum`.

use axum::error_handling::HandleErrorLayer;
use axum::routing::get;
use axum::Router;
use expiry::timeouts::{global, sleep, TimeoutError};
use expiry_tower::{BoxError, ExpiryTimer, IdleTimeout, TimeoutLayer};
use http::StatusCode;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tower::ServiceBuilder;

const LIMIT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(60);

type Error = Box<dyn std::error::Error>;

/// What an error of the layer is to the client.
async fn answer(error: BoxError) -> (StatusCode, String) {
    let status = match error.downcast_ref() {
        Some(TimeoutError::Elapsed) => StatusCode::REQUEST_TIMEOUT,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, error.to_string())
}

fn app() -> Router {
    let slow = || async {
        sleep(LONG).await;
        "never"
    };
    let by_error = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(answer))
        .layer(TimeoutLayer::new(global(), LIMIT));
    let by_status = TimeoutLayer::answering(global(), LIMIT, StatusCode::GATEWAY_TIMEOUT);
    Router::new()
        .route("/fast", get(|| async { "in time" }))
        .route("/slow", get(slow).layer(by_status))
        .route("/slow-error", get(slow).layer(by_error))
}

/// How long connections may be silent, and a request's head may take.
#[derive(Clone, Copy)]
struct Limits {
    idle: Duration,
    head: Duration,
}

/// Serves at the address that this returns. How each connection ends goes into `ends`.
async fn serve(limits: Limits, ends: mpsc::UnboundedSender<String>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let mut http = http1::Builder::new();
    http.timer(ExpiryTimer::new(global())).header_read_timeout(limits.head);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let stream = TokioIo::new(IdleTimeout::new(global(), limits.idle, stream));
            let connection = http.serve_connection(stream, TowerToHyperService::new(app()));
            let ends = ends.clone();
            tokio::spawn(async move {
                // The receiver is gone when the program ends.
                let _ = ends.send(match connection.await {
                    Ok(()) => "closed".into(),
                    Err(error) if error.is_timeout() => "head too late".into(),
                    Err(error) => silent(&error).unwrap_or_else(|| error.to_string()),
                });
            });
        }
    });
    Ok(address)
}

/// Whether the connection ended by its [`IdleTimeout`].
fn silent(error: &hyper::Error) -> Option<String> {
    let io: &io::Error = std::error::Error::source(error)?.downcast_ref()?;
    (io.kind() == io::ErrorKind::TimedOut).then(|| "silent".into())
}

/// Sends these bytes, and reads until the server closes.
async fn talk(to: SocketAddr, bytes: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(to).await?;
    stream.write_all(bytes.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

fn request(path: &str, connection: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}\r\n\r\n")
}

/// Whether all is as it should be.
pub async fn run() -> Result<bool, Error> {
    let (ends, mut ended) = mpsc::unbounded_channel();
    let patient = serve(Limits { idle: LONG, head: LIMIT }, ends.clone()).await?;
    let strict = serve(Limits { idle: LIMIT, head: LONG }, ends).await?;
    let half = String::from("GET /fast HTT");
    let mut good = true;
    for (what, server, bytes, status, end) in [
        ("a fast handler", patient, request("/fast", "close"), "200", "closed"),
        ("a slow one, by status", patient, request("/slow", "close"), "504", "closed"),
        ("a slow one, by error", patient, request("/slow-error", "close"), "408", "closed"),
        ("half a head", patient, half.clone(), "", "head too late"),
        ("silence in a head", strict, half, "", "silent"),
        // Between requests this is an orderly end to hyper.
        ("silence after a request", strict, request("/fast", "keep-alive"), "200", "closed"),
    ] {
        let began = Instant::now();
        let answer = talk(server, &bytes).await?;
        let took = began.elapsed();
        let found = ended.recv().await.ok_or("the server has ended")?;
        let in_time = took < LONG / 2 && (what == "a fast handler" || took >= LIMIT);
        let as_said = in_time && end == found && answer.split(' ').nth(1).unwrap_or("") == status;
        println!(
            "{what:24} {status:3} after {took:9.2?}, {found}{}",
            if as_said { "" } else { ": WRONG" }
        );
        good &= as_said;
    }
    Ok(good)
}

fn main() -> Result<ExitCode, Error> {
    // Without a time driver.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let good = runtime.block_on(run())?;
    println!("{}", if good { "each limit held" } else { "a limit did not hold" });
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
