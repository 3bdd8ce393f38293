//! An axum server for a load generator, with a limit of 30 s on each request, by this crate, by
//! tower-http, by tower, or by none:
//!
//! ```sh
//! cargo run --release -p expiry-tower --example serve -- expiry 127.0.0.1:7100
//! wrk -t1 -c64 -d10s --latency http://127.0.0.1:7100/
//! ```
//!
//! The handler yields once, as one that asks a database would: so each request arms a timeout.

use axum::error_handling::HandleErrorLayer;
use axum::routing::get;
use axum::Router;
use expiry::timeouts::global;
use http::StatusCode;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use std::process::ExitCode;
use std::time::Duration;
use tokio::net::TcpListener;
use tower::ServiceBuilder;

const LIMIT: Duration = Duration::from_secs(30);

fn app(by: &str) -> Option<Router> {
    let handler = || async {
        tokio::task::yield_now().await;
        "done"
    };
    let app = Router::new().route("/", get(handler));
    let late = StatusCode::GATEWAY_TIMEOUT;
    Some(match by {
        "expiry" => app.layer(expiry_tower::TimeoutLayer::answering(global(), LIMIT, late)),
        "tower-http" => app.layer(tower_http::timeout::TimeoutLayer::with_status_code(late, LIMIT)),
        "tower" => app.layer(
            ServiceBuilder::new()
                .layer(HandleErrorLayer::new(move |_| async move { late }))
                .timeout(LIMIT),
        ),
        "none" => app,
        _ => return None,
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let app = arguments.next().and_then(|by| app(&by));
    let (Some(app), Some(address)) = (app, arguments.next()) else {
        eprintln!("usage: serve expiry|tower-http|tower|none ADDRESS");
        return Ok(ExitCode::from(2));
    };
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let service = TowerToHyperService::new(app.clone());
        // An error ends this connection only.
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}
