//! The server: one thread with an async runtime.

use std::fs;
use std::future::pending;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use tokio::runtime::{self, Runtime};
use tokio::sync::oneshot;
use unbroken_broker::config::{AdminMetrics, Anonymous};
use unbroken_broker::{BrokerHandle, ServerTls, TlsError, local_socket};

use crate::app::App;
use crate::broker::Broker;
use crate::connection::{serve_network, serve_socket};
use crate::delivery::inside::remove_leftovers;
use crate::demonstration::Demonstration;
use crate::denials::Denials;
use crate::hosts::{self, Hosts};
use crate::identity::guard;
use crate::identity::history::record_writes;
use crate::identity::{Identity, Rules};
use crate::limits::{
    ASKING_MAX, BODY_BYTES_MAX, CHANGES_MAX, CHANGING_MAX, COUNTING_MAX, HASHING_MAX, SAVING_MAX,
};
use crate::problem::Problem;
use crate::recorder::Recorder;
use crate::traces::Traces;
use crate::{api, headers, health, metrics, page};

/// Where to listen, and under which names.
#[derive(Clone, Debug)]
pub struct Options {
    /// Port 0 takes one that is free; `None`: only at the unix socket.
    pub listen: Option<SocketAddr>,
    /// The directory of the unix socket [`SOCKET`].
    pub socket: Option<PathBuf>,
    /// The directory of accounts, tokens and history; `None`: they end with the process.
    pub directory: Option<PathBuf>,
    /// Host names of this server beside `localhost`.
    pub hosts: Vec<String>,
    /// Who may read the metrics.
    pub metrics: AdminMetrics,
    /// What a caller without credentials may do.
    pub anonymous: Anonymous,
    /// Of the broker.
    pub version: String,
}

/// Name of the unix socket in its directory.
pub const SOCKET: &str = "admin";

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address.
    #[error("cannot listen on {address} for the admin server: {source}")]
    Bind {
        /// Where it was to listen.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The unix socket.
    #[error("cannot make the socket `{SOCKET}` of the admin server in {}: {source}", .directory.display())]
    Socket {
        /// Where it was to be.
        directory: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Its certificate or key.
    #[error("the admin server has no TLS: {0}")]
    Tls(#[from] TlsError),
    /// Accounts, tokens or history.
    #[error("{0}")]
    Identity(String),
    /// Its thread or its runtime.
    #[error("cannot start the admin server: {0}")]
    System(#[from] io::Error),
}

/// A server that runs. Dropping it ends it, with all its connections.
#[derive(Debug)]
pub struct Admin {
    address: Option<SocketAddr>,
    has_tls: bool,
    first_link: Option<String>,
    socket: Option<PathBuf>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Starts it on a thread of its own. A configured certificate makes it speak HTTPS.
    pub fn start(options: Options, broker: BrokerHandle) -> Result<Self, StartError> {
        let tls = match options.listen {
            Some(_) => broker.admin_tls()?,
            None => None,
        };
        let network = options.listen.map(bind).transpose()?;
        let address = network.as_ref().map(TcpListener::local_addr).transpose()?;
        let socket = options.socket.as_deref().map(open_socket).transpose()?;
        let rules = options.rules(address, tls.is_some());
        let identity = Identity::open(options.directory.as_deref(), rules);
        let identity = identity.map_err(StartError::Identity)?;
        let first_link = match identity.first_link() {
            Ok(secret) => secret.and_then(|secret| identity.link_url(&secret)),
            Err(problem) => return Err(StartError::Identity(problem.detail)),
        };
        let has_tls = tls.is_some();
        let runtime = runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(
                ASKING_MAX + COUNTING_MAX + CHANGES_MAX + HASHING_MAX + CHANGING_MAX + SAVING_MAX,
            )
            .build()?;
        let broker = Broker::new(broker, &options.version);
        remove_leftovers(broker.handle());
        let denials = Denials::start(broker.handle());
        let recorder = Recorder::start(broker.clone(), denials.clone());
        let app = App {
            demonstration: Demonstration::new(broker.clone(), recorder.clone()),
            denials,
            broker,
            identity: identity.clone(),
            recorder: recorder.clone(),
            traces: Traces::default(),
        };
        let app = routes(&options, app);
        let listeners = Listeners::new(network, tls, socket, &runtime)?;
        let (stop, stopping) = oneshot::channel::<()>();
        let thread = thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = listeners.serve(app) => {}
                        () = recorder.clone().run() => {}
                        _ = stopping => {}
                    }
                });
                recorder.save();
                runtime.shutdown_background(); // a request may wait for the broker, which ends too
                identity.store().flush();
            })?;
        Ok(Self {
            address,
            has_tls,
            first_link,
            socket: options.socket.map(|directory| directory.join(SOCKET)),
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Whether it speaks HTTPS.
    pub fn has_tls(&self) -> bool {
        self.has_tls
    }

    /// The page on which the first account is made, if there is none. It is a secret.
    pub fn first_link(&self) -> Option<&str> {
        self.first_link.as_deref()
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        // A thread that has ended needs no word.
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
        // A remaining socket is replaced at the next start.
        let _ = self.socket.take().map(fs::remove_file);
    }
}

impl Options {
    fn rules(&self, address: Option<SocketAddr>, has_tls: bool) -> Rules {
        let url = address.map(|address| {
            let scheme = if has_tls { "https" } else { "http" };
            let port = address.port();
            match self.hosts.first() {
                _ if address.ip().is_loopback() => format!("{scheme}://{address}"),
                Some(host) => format!("{scheme}://{host}:{port}"),
                None if address.ip().is_unspecified() => format!("{scheme}://localhost:{port}"),
                None => format!("{scheme}://{address}"),
            }
        });
        let port = address.map_or(0, |address| address.port());
        Rules {
            metrics_need_caller: self.metrics == AdminMetrics::Token,
            anonymous_reads: self.anonymous == Anonymous::Viewer,
            cookie: format!("unbroken-{port}"),
            url,
        }
    }
}

/// What the server accepts connections from.
struct Listeners {
    network: Option<(tokio::net::TcpListener, Option<ServerTls>)>,
    socket: Option<tokio::net::UnixListener>,
}

impl Listeners {
    fn new(
        network: Option<TcpListener>,
        tls: Option<ServerTls>,
        socket: Option<UnixListener>,
        runtime: &Runtime,
    ) -> io::Result<Self> {
        let _entered = runtime.enter();
        let network = network.map(tokio::net::TcpListener::from_std).transpose()?;
        Ok(Self {
            network: network.map(|listener| (listener, tls)),
            socket: socket.map(tokio::net::UnixListener::from_std).transpose()?,
        })
    }

    async fn serve(self, app: Router) {
        let at_socket = app.clone();
        let network = async {
            match self.network {
                Some((listener, tls)) => serve_network(listener, tls, app).await,
                None => pending().await,
            }
        };
        let socket = async {
            match self.socket {
                Some(listener) => serve_socket(listener, at_socket).await,
                None => pending().await,
            }
        };
        tokio::join!(network, socket);
    }
}

fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    let listener = TcpListener::bind(address);
    let listener = listener.map_err(|source| StartError::Bind { address, source })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The broker has the directory locked, so one that is there is stale.
fn open_socket(directory: &Path) -> Result<UnixListener, StartError> {
    let open = || {
        local_socket::remove_stale(&directory.join(SOCKET))?;
        let listener = local_socket::listen(directory, SOCKET)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    open().map_err(|source| StartError::Socket {
        directory: directory.to_owned(),
        source,
    })
}

fn routes(options: &Options, app: App) -> Router {
    let identity = app.identity.clone();
    let (api, _) = api::router();
    let not_found = async || {
        let detail = "there is no such page: /api/v1/openapi.json lists what there is, beside \
                      /healthz, /readyz and /metrics";
        Problem::new(StatusCode::NOT_FOUND, detail)
    };
    let not_allowed = async || {
        let detail = "this page has no such method: the Allow header lists those that it has, such \
                      as GET";
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
    };
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(metrics::show))
        .merge(api)
        .merge(page::routes())
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .with_state(app)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        // The last one is the first that sees a request.
        .layer(from_fn_with_state(identity.clone(), record_writes))
        .layer(from_fn_with_state(identity, guard::check))
        .layer(from_fn_with_state(
            Hosts(options.hosts.clone()),
            hosts::check,
        ))
        .layer(from_fn(headers::add))
}
