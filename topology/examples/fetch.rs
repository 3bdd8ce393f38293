//! A bolt that awaits: it fetches pages over HTTP, sixteen at a time, from a server on the loopback
//! that fails now and then. The program prints what it finds, and fails if that is not what it
//! should be: `cargo run -p expiry-topology --example fetch`.

use bytes::Bytes;
use expiry_topology::{concurrent, Collect, Failed, Replay, TopologyBuilder, VecSpout};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{client, server, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, Semaphore};

type Error = Box<dyn std::error::Error + Send + Sync>;

const PAGES: usize = 300;
const LIMIT: usize = 16;

/// A server that takes so many requests at a time and no more.
struct Pages {
    asked: Mutex<HashSet<usize>>,
    places: Semaphore,
    /// The first requests wait for each other: so many come at a time.
    first: Barrier,
}

impl Pages {
    /// One page in 10 answers 500 at first, and one in 50 does not exist.
    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Error> {
        let _place = self.places.try_acquire()?;
        let page = request.uri().path()[1..].parse()?;
        let is_first = self.asked.lock().unwrap().insert(page);
        if is_first && page < LIMIT {
            self.first.wait().await;
        }
        let status = match page {
            _ if page % 50 == 13 => StatusCode::NOT_FOUND,
            _ if page % 10 == 7 && is_first => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::OK,
        };
        Ok(Response::builder().status(status).body(format!("This is page {page}.").into())?)
    }
}

async fn serve(listener: TcpListener, pages: Arc<Pages>) {
    while let Ok((stream, _)) = listener.accept().await {
        let pages = pages.clone();
        let service = service_fn(move |request| pages.clone().answer(request));
        // An error ends this connection only.
        let http = server::conn::http1::Builder::new();
        tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
    }
}

/// An error of the connection, or a 500, fails the page; a 404 rejects it.
async fn fetch(server: std::net::SocketAddr, page: usize) -> Result<[Bytes; 1], Failed> {
    let stream = TokioIo::new(TcpStream::connect(server).await?);
    let (mut connection, driver) = client::conn::http1::handshake(stream).await?;
    tokio::spawn(driver);
    let request = Request::builder().uri(format!("/{page}")).header("host", "fetch");
    let answer = connection.send_request(request.body(Full::<Bytes>::default())?).await?;
    match answer.status() {
        StatusCode::OK => Ok([answer.into_body().collect().await?.to_bytes()]),
        StatusCode::NOT_FOUND => Err(Failed::reject("there is no such page")),
        status => Err(Failed::new(status)),
    }
}

/// Whether all is as it should be.
pub fn run() -> Result<bool, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_io().build()?;
    let (places, first) = (Semaphore::new(LIMIT), Barrier::new(LIMIT));
    let pages = Arc::new(Pages { asked: Mutex::default(), places, first });
    let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
    let server = listener.local_addr()?;
    runtime.spawn(serve(listener, pages));

    let (texts, lost, topology) = (Collect::new(), Collect::new(), TopologyBuilder::new());
    let handle = runtime.handle().clone();
    let pages = topology
        .spout("pages", |_| VecSpout::new(0..PAGES))
        .replay(Replay::default().base(Duration::from_millis(10)));
    let fetch = topology
        .bolt("fetch", move |context| {
            let handle = handle.clone();
            let spawn = move |future| handle.spawn(future);
            concurrent(context, LIMIT, spawn, move |page| fetch(server, page)).unordered()
        })
        .shuffle(&pages);
    topology.bolt("texts", texts.instances()).shuffle(&fetch);
    topology
        .bolt("lost", lost.instances())
        .shuffle(pages.dead_letters().map(|letter| letter.message));
    let topology = topology.start()?;
    topology.wait(Duration::from_secs(60))?;

    let found = (texts.all().len(), topology.metrics()[0].replayed, lost.all().len());
    println!("{} pages, {} at the second attempt; {} do not exist", found.0, found.1, found.2);
    Ok(found == (PAGES - 6, 30, 6))
}

fn main() -> Result<ExitCode, Error> {
    let good = run()?;
    println!("{}", if good { "all is as it should be" } else { "WRONG" });
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
