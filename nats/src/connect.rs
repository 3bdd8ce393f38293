//! A connection to the brokers.

use crate::base::{debug, setters};
use crate::NatsError;
use async_nats::connection::State;
use async_nats::jetstream::context::{AccountErrorKind, Context, ContextBuilder};
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::publish::PublishAck;
use async_nats::{
    Auth, AuthError, Client, ConnectErrorKind, ConnectOptions, HeaderMap, ServerAddr,
};
use bytes::Bytes;
use std::error::Error;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The oldest server with fences by another subject, atomic batches and message schedules.
pub(crate) const NEEDED: &str = "2.12.0";

/// How a worker connects.
///
/// | setting | default |
/// |---|---|
/// | [`servers`](Self::servers) | `nats://127.0.0.1:4222` |
/// | [`credentials`](Self::credentials), [`user`](Self::user), TLS | none |
/// | [`request_timeout`](Self::request_timeout) | 5 s |
///
/// ```no_run
/// use expiry_nats::{Nats, Options};
///
/// # async fn connect() -> Result<(), expiry_nats::NatsError> {
/// let options = Options::new("billing", "worker-7")
///     .servers(["tls://n1", "tls://n2", "tls://n3"])
///     .credentials("worker.creds");
/// let nats = Nats::connect(options).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "options do nothing by themselves"]
pub struct Options {
    app: String,
    worker: String,
    servers: Vec<String>,
    credentials: Option<PathBuf>,
    user: Option<(String, String)>,
    root_certificates: Option<PathBuf>,
    client_certificate: Option<(PathBuf, PathBuf)>,
    tls: bool,
    on_event: Option<Hear>,
    api_prefix: String,
    request_timeout: Duration,
}

type Hear = Arc<dyn Fn(&str) + Send + Sync>;

setters! { Options
    /// A credentials file: a JWT and the seed of its nkey. The client reads it at each connection,
    /// so a file that is replaced before its JWT expires keeps the worker connected.
    credentials(file: impl Into<PathBuf>) => credentials = Some(file.into());
    /// A user's name and password. Those in a server's address, `nats://USER:PASSWORD@HOST`, are
    /// not used: the client ignores them.
    user(name: &str, password: &str) => user = Some((name.to_string(), password.to_string()));
    /// A PEM file with the authorities that the servers' certificates are checked against, instead
    /// of the system's. The connection is encrypted.
    root_certificates(file: impl Into<PathBuf>) => root_certificates = Some(file.into());
    /// PEM files of this client's certificate and key. Encrypts the connection.
    client_certificate(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) =>
        client_certificate = Some((certificate.into(), key.into()));
    /// Refuses an unencrypted connection.
    require_tls() => tls = true;
    /// Has `f` called with each event of the client, as text: `connected`, `disconnected`, a slow
    /// consumer, an error of the server. A subject that the server does not permit is such an
    /// error. The call must not block.
    on_event(f: impl Fn(&str) + Send + Sync + 'static) => on_event = Some(Arc::new(f));
    /// The subject of JetStream's API, `$JS.API` by default: `$JS.hub.API` for the domain `hub`, or
    /// what another account's API is imported as.
    api_prefix(prefix: &str) => api_prefix = prefix.to_string();
    /// How long a request waits for its answer.
    request_timeout(timeout: Duration) => request_timeout = timeout;
}

impl Options {
    /// Options of a worker of an application. The names of the streams and subjects that sets
    /// create begin with the application's. No two live workers of an application may have the
    /// same name. Both names take 1 to 64 of `[A-Za-z0-9_-]`; [`Nats::connect`] checks them.
    pub fn new(app: &str, worker: &str) -> Self {
        Options {
            app: app.to_string(),
            worker: worker.to_string(),
            servers: vec!["nats://127.0.0.1:4222".to_string()],
            credentials: None,
            user: None,
            root_certificates: None,
            client_certificate: None,
            tls: false,
            on_event: None,
            api_prefix: "$JS.API".to_string(),
            request_timeout: Duration::from_secs(5),
        }
    }

    /// The brokers: `nats://HOST:PORT`, or `tls://HOST:PORT`. The client connects to one of them,
    /// and to another one when that is lost.
    pub fn servers<S: Into<String>>(mut self, servers: impl IntoIterator<Item = S>) -> Self {
        self.servers = servers.into_iter().map(Into::into).collect();
        self
    }

    /// The servers without user names and passwords.
    fn shown(&self) -> String {
        // A password may contain an `@` too.
        let bare = |server: &String| match server.rsplit_once('@') {
            Some((before, host)) => {
                let scheme = before.find("://").map_or("", |end| &before[..end + 3]);
                format!("{scheme}{host}")
            }
            None => server.clone(),
        };
        self.servers.iter().map(bare).collect::<Vec<_>>().join(", ")
    }
}

debug!(Options, |it| "Options({:?}, {:?}, {:?})", it.app, it.worker, it.shown());

/// What a credentials file proves to a server that has sent this nonce.
fn credentials(file: &Path, nonce: &[u8]) -> Result<Auth, String> {
    let prove = || -> Result<Auth, Box<dyn Error>> {
        let text = std::fs::read_to_string(file)?;
        let below = |mark: &str| {
            let mut lines = text.lines().skip_while(|line| !line.contains(mark)).skip(1);
            lines.next().ok_or_else(|| format!("it has no line {mark:?}"))
        };
        let key = nkeys::KeyPair::from_seed(below("BEGIN USER NKEY SEED")?.trim())?;
        let mut auth = Auth::new();
        auth.jwt = Some(below("BEGIN NATS USER JWT")?.trim().to_string());
        auth.signature = Some(key.sign(nonce)?);
        Ok(auth)
    };
    prove().map_err(|error| format!("the credentials file {file:?}: {error}"))
}

/// A connection. It is a handle: a clone is the same connection. It uses the tokio runtime in which
/// it was made.
#[derive(Clone)]
pub struct Nats(Arc<Inner>);

struct Inner {
    client: Client,
    context: Context,
    options: Options,
}

debug!(Nats, |it| "Nats({:?})", it.0.options);

impl Nats {
    /// Connects, and asks for the server's version and for JetStream.
    ///
    /// # Errors
    ///
    /// [`NatsError`]: among others `Unreachable`, `Denied`, `TooOld`, `NoJetStream`.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn connect(options: Options) -> Result<Nats, NatsError> {
        NatsError::name("application", &options.app)?;
        NatsError::name("worker", &options.worker)?;
        let unreachable = |why: String| NatsError::Unreachable { servers: options.shown(), why };
        let servers = options.servers.iter().map(|server| server.parse());
        let servers: Vec<ServerAddr> = servers
            .collect::<Result<_, _>>()
            .map_err(|error: std::io::Error| unreachable(error.to_string()))?;
        let encrypted = options.tls
            || options.root_certificates.is_some()
            || options.client_certificate.is_some();
        let connect = match options.credentials.clone() {
            Some(file) => {
                credentials(&file, &[]).map_err(|why| NatsError::Denied { why })?;
                ConnectOptions::with_auth_callback(move |nonce| {
                    std::future::ready(credentials(&file, &nonce).map_err(AuthError::new))
                })
            }
            None => ConnectOptions::new(),
        };
        let mut connect = connect
            .name(format!("{}/{}", options.app, options.worker))
            // So that permissions can keep a worker from the answers that others get.
            .custom_inbox_prefix(format!("_INBOX.{}.{}", options.app, options.worker))
            .require_tls(encrypted)
            .ping_interval(Duration::from_secs(2))
            .connection_timeout(options.request_timeout)
            .subscription_capacity(1 << 16)
            .reconnect_delay_callback(|attempts| {
                Duration::from_millis(50 * u64::try_from(attempts).unwrap_or(20).min(20))
            });
        if let Some((name, password)) = options.user.clone() {
            connect = connect.user_and_password(name, password);
        }
        if let Some(hear) = options.on_event.clone() {
            connect = connect.event_callback(move |event| {
                hear(&event.to_string());
                std::future::ready(())
            });
        }
        if let Some(file) = &options.root_certificates {
            connect = connect.add_root_certificates(file.clone());
        }
        if let Some((certificate, key)) = &options.client_certificate {
            connect = connect.add_client_certificate(certificate.clone(), key.clone());
        }
        let client = connect.connect(servers).await.map_err(|error| {
            let why = error.to_string();
            match error.kind() {
                ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                    NatsError::Denied { why }
                }
                _ => unreachable(why),
            }
        })?;
        Nats::with_client(options, client).await
    }

    /// Uses a client that the caller has connected, with settings that [`Options`] does not have.
    /// Of the options the names, the API's prefix and the request timeout count. The permissions of
    /// the guide need the inbox prefix `_INBOX.APP.WORKER`.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), without `Unreachable`.
    pub async fn with_client(options: Options, client: Client) -> Result<Nats, NatsError> {
        NatsError::name("application", &options.app)?;
        NatsError::name("worker", &options.worker)?;
        let found = client.server_info().version;
        if !client.is_server_compatible(2, 12, 0) {
            return Err(NatsError::TooOld { found, needed: NEEDED });
        }
        let context = ContextBuilder::new()
            .api_prefix(options.api_prefix.as_str())
            .timeout(options.request_timeout)
            .max_ack_inflight(1 << 16)
            .build(client.clone());
        let nats = Nats(Arc::new(Inner { client, context, options }));
        // Answered only by a broker that knows the leader of the brokers.
        match nats.context().query_account().await {
            Ok(_) => Ok(nats),
            Err(error) => Err(match error.kind() {
                AccountErrorKind::JetStreamUnavailable => NatsError::NoJetStream,
                AccountErrorKind::TimedOut => nats.unanswered("connect"),
                _ => NatsError::refused("connect", &error),
            }),
        }
    }

    /// The application's name.
    #[must_use]
    pub fn app(&self) -> &str {
        &self.0.options.app
    }

    /// The worker's name.
    #[must_use]
    pub fn worker(&self) -> &str {
        &self.0.options.worker
    }

    /// The client, for whatever this crate does not do. Its types are those of `async-nats`, which
    /// this crate does not export: depend on the same version of it.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// The client's JetStream context, to create the streams of sources and sinks, for example.
    /// Sets of partitions, leases, sessions, keys and timers create their own streams.
    ///
    /// ```no_run
    /// # async fn create(nats: expiry_nats::Nats) -> Result<(), Box<dyn std::error::Error>> {
    /// use async_nats::jetstream::stream::{Config, RetentionPolicy};
    ///
    /// let config = Config {
    ///     name: "lines".into(),
    ///     subjects: vec!["lines.>".into()],
    ///     retention: RetentionPolicy::WorkQueue,
    ///     num_replicas: 3,
    ///     ..Config::default()
    /// };
    /// nats.context().get_or_create_stream(config).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Publishes a message, and waits until the stream has stored it.
    pub(crate) async fn store(
        &self,
        subject: String,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<PublishAck, PublishError> {
        let sent = self.0.context.publish_with_headers(subject, headers, payload);
        sent.await?.await
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        self.0.options.request_timeout
    }

    pub(crate) fn random(&self) -> u64 {
        // The client's inbox is a random name.
        crate::ownership::hash_of(self.0.client.new_inbox())
    }

    pub(crate) fn unanswered(&self, what: &'static str) -> NatsError {
        let after = self.0.options.request_timeout;
        NatsError::Unanswered { what, after }
    }

    /// What an error says of a message that was to be stored.
    pub(crate) fn unstored(&self, what: &'static str, error: &PublishError) -> NatsError {
        match error.kind() {
            PublishErrorKind::Other => NatsError::refused(what, error),
            _ => self.unanswered(what),
        }
    }

    /// Checks that the server takes a payload, with so many bytes left for headers.
    pub(crate) fn fits(
        &self,
        payload: &[u8],
        room: usize,
        needed: &'static str,
    ) -> Result<(), NatsError> {
        let most = self.0.client.max_payload().saturating_sub(room);
        NatsError::within("the length of a payload", payload.len(), ..=most, needed)
    }

    /// Asks again while there is no answer: brokers that have just started say so at once.
    pub(crate) async fn patiently<T, F: Future<Output = Result<T, NatsError>>>(
        &self,
        ask: impl Fn() -> F,
    ) -> Result<T, NatsError> {
        let began = Instant::now();
        loop {
            match ask().await {
                Err(NatsError::Unanswered { .. }) if began.elapsed() < self.request_timeout() => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                answer => return answer,
            }
        }
    }

    /// Whether the client is connected to a broker. Asks none.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.0.client.connection_state() == State::Connected
    }
}
