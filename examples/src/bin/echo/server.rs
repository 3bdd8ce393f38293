//! A server that sends lines back. It disconnects a client that is silent for too long, and one
//! that is slow to send a line or to take it.

use expiry::timeouts::{TimeoutError, TimerError};
use expiry::Timeouts;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedSender;

/// The most of a line that is held; a longer one comes back in pieces.
const PIECE: u64 = 16 * 1024;

/// How long a connection may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Time until a line begins.
    pub idle: Duration,
    /// Time from the first byte of a line until its echo is sent.
    pub request: Duration,
}

/// Why the server has ended a connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    #[error("nothing has come for too long")]
    Idle,
    #[error("a line has taken too long")]
    Slow,
    #[error("its time could not be watched: {0}")]
    Timer(#[from] TimerError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The end of a connection: its address, and the reason unless the client has closed it.
pub type End = (SocketAddr, Result<(), ConnectionError>);

pub struct Server {
    listener: TcpListener,
    timeouts: Arc<Timeouts>,
    limits: Limits,
}

impl Server {
    /// A server at this address that is not running yet.
    pub async fn bind(
        address: SocketAddr,
        timeouts: Arc<Timeouts>,
        limits: Limits,
    ) -> io::Result<Self> {
        Ok(Server { listener: TcpListener::bind(address).await?, timeouts, limits })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until it is aborted, and says how each connection ended.
    pub async fn run(self, ends: UnboundedSender<End>) -> Result<(), TimerError> {
        loop {
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, mostly: some will be free soon.
                    eprintln!("accept: {error}");
                    self.timeouts.sleep(Duration::from_millis(50)).await?;
                    continue;
                }
            };
            let connection = Connection { timeouts: self.timeouts.clone(), limits: self.limits };
            let ends = ends.clone();
            tokio::spawn(async move {
                let end = connection.serve(stream).await;
                // The receiver may be gone.
                let _ = ends.send((peer, end));
            });
        }
    }
}

struct Connection {
    timeouts: Arc<Timeouts>,
    limits: Limits,
}

impl Connection {
    async fn serve(&self, stream: TcpStream) -> Result<(), ConnectionError> {
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        loop {
            let begins = stream.fill_buf();
            let begins = self.within(self.limits.idle, begins, ConnectionError::Idle);
            if begins.await?.is_empty() {
                return Ok(());
            }
            // One limit for the whole line: a client gets no more time by sending a byte now and
            // then.
            let echo = async {
                line.clear();
                let mut piece = (&mut stream).take(PIECE);
                piece.read_until(b'\n', &mut line).await?;
                stream.get_mut().write_all(&line).await
            };
            self.within(self.limits.request, echo, ConnectionError::Slow).await?;
        }
    }

    /// The result of `work`, if it is not late.
    async fn within<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = io::Result<T>>,
        late: ConnectionError,
    ) -> Result<T, ConnectionError> {
        match self.timeouts.timeout(limit, work).await {
            Ok(done) => Ok(done?),
            Err(TimeoutError::Elapsed) => Err(late),
            Err(TimeoutError::Timer(why)) => Err(why.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expiry::ManualClock;
    use std::time::Instant;
    use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver};

    const LIMITS: Limits =
        Limits { idle: Duration::from_secs(60), request: Duration::from_secs(10) };
    const INTERVAL: Duration = Duration::from_millis(1);
    const NANO: Duration = Duration::from_nanos(1);

    /// A server in simulated time, with a client.
    struct Scene {
        clock: ManualClock,
        timeouts: Arc<Timeouts>,
        ends: UnboundedReceiver<End>,
        client: TcpStream,
    }

    impl Scene {
        async fn set() -> Self {
            let clock = ManualClock::new();
            let builder = Timeouts::builder().interval(INTERVAL).clock(clock.clone());
            let timeouts = Arc::new(builder.build_manual().unwrap());
            let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
            let server = Server::bind(anywhere, timeouts.clone(), LIMITS);
            let server = server.await.unwrap();
            let address = server.address().unwrap();
            let (told, ends) = unbounded_channel();
            tokio::spawn(server.run(told));
            let client = TcpStream::connect(address).await.unwrap();
            Scene { clock, timeouts, ends, client }
        }

        async fn echoes(&mut self, line: &[u8]) {
            self.client.write_all(line).await.unwrap();
            let mut echo = vec![0; line.len()];
            self.client.read_exact(&mut echo).await.unwrap();
            assert_eq!(echo, line);
        }

        /// Waits until the server has begun to wait for the `nth` time.
        async fn waits(&self, nth: u64) {
            let began = Instant::now();
            while self.timeouts.metrics().registered < nth {
                assert!(began.elapsed() < Duration::from_secs(60), "{nth}");
                tokio::task::yield_now().await;
            }
        }

        /// How many timeouts have fired when so much more time has passed.
        fn fired_after(&self, time: Duration) -> u64 {
            self.clock.advance(time);
            while self.timeouts.poll(1000).more {}
            self.timeouts.metrics().fired
        }

        async fn end(&mut self) -> ConnectionError {
            let (_, end) = self.ends.recv().await.unwrap();
            let mut rest = Vec::new();
            // Reset, if there was something that it had not read.
            let _ = self.client.read_to_end(&mut rest).await;
            end.unwrap_err()
        }
    }

    fn simulated(scene: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_io().build().unwrap().block_on(scene);
    }

    #[test]
    fn a_silent_client_is_disconnected_by_its_timeout_and_an_interval_and_not_before_it() {
        simulated(async {
            let mut scene = Scene::set().await;
            scene.waits(1).await;
            assert_eq!(scene.fired_after(LIMITS.idle - NANO), 0);
            scene.echoes(b"still there\n").await;
            scene.waits(2).await;
            assert_eq!(scene.fired_after(LIMITS.idle - NANO), 0);
            assert_eq!(scene.fired_after(NANO + INTERVAL), 1);
            assert!(matches!(scene.end().await, ConnectionError::Idle));
        });
    }

    #[test]
    fn a_line_has_its_time_from_the_first_byte_on() {
        simulated(async {
            let mut scene = Scene::set().await;
            scene.waits(1).await;
            scene.client.write_all(b"half a").await.unwrap();
            scene.waits(2).await;
            assert_eq!(scene.fired_after(LIMITS.request - NANO), 0);
            assert_eq!(scene.fired_after(NANO + INTERVAL), 1);
            assert!(matches!(scene.end().await, ConnectionError::Slow));
        });
    }

    #[test]
    fn a_client_that_takes_nothing_is_disconnected() {
        simulated(async {
            let mut scene = Scene::set().await;
            scene.waits(1).await;
            // More than all buffers between the two hold, so the server has to wait for the client.
            let flood = vec![b'x'; 1 << 20];
            let (mut full, began) = (0, Instant::now());
            while full < 100 || scene.timeouts.is_empty() {
                match scene.client.try_write(&flood) {
                    Ok(_) => full = 0,
                    Err(_) => full += 1,
                }
                assert!(began.elapsed() < Duration::from_secs(60));
                tokio::task::yield_now().await;
            }
            assert_eq!(scene.fired_after(LIMITS.request + INTERVAL), 1);
            assert!(matches!(scene.end().await, ConnectionError::Slow));
        });
    }

    #[test]
    fn a_line_longer_than_a_piece_comes_back_whole() {
        simulated(async {
            let mut scene = Scene::set().await;
            let mut line = vec![b'x'; 3 * PIECE as usize];
            line.push(b'\n');
            scene.echoes(&line).await;
        });
    }
}
