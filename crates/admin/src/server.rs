//! The server: one thread with an async runtime, and an accept loop with limits.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::runtime;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use unbroken_broker::BrokerHandle;

use crate::app::App;
use crate::broker::Broker;
use crate::hosts::{self, Hosts};
use crate::limits::{
    ASKING_MAX, CONNECTION_TIME_MAX, CONNECTIONS_MAX, HEADER_BYTES_MAX, HEADER_TIMEOUT,
    LAST_ANSWER_TIMEOUT,
};
use crate::problem::Problem;
use crate::traces::Traces;
use crate::{api, health, metrics};

/// Where to listen, and under which names.
#[derive(Clone, Debug)]
pub struct Options {
    /// An address of loopback; port 0 takes one that is free.
    pub listen: SocketAddr,
    /// Host names of this server beside `localhost`.
    pub hosts: Vec<String>,
    /// Of the broker.
    pub version: String,
}

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
    /// Its thread or its runtime.
    #[error("cannot start the admin server: {0}")]
    System(#[from] io::Error),
}

/// A server that runs. Dropping it ends it, with all its connections.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Starts it on a thread of its own.
    pub fn start(options: Options, broker: BrokerHandle) -> Result<Self, StartError> {
        let Options {
            listen: address, ..
        } = options;
        let bind = |source| StartError::Bind { address, source };
        let listener = TcpListener::bind(address).map_err(bind)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(ASKING_MAX)
            .build()?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let app = routes(&options, broker);
        let (stop, stopping) = oneshot::channel::<()>();
        let thread = thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = serve(listener, app) => {}
                        _ = stopping => {}
                    }
                });
                runtime.shutdown_background(); // a request may wait for the broker, which ends too
            })?;
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        // A thread that has ended needs no word.
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn routes(options: &Options, handle: BrokerHandle) -> Router {
    let app = App {
        broker: Broker::new(handle, &options.version),
        traces: Traces::default(),
    };
    let (api, _) = api::router();
    let not_found = async || {
        let detail = "there is no such page: /healthz, /readyz and /metrics are served";
        Problem::new(StatusCode::NOT_FOUND, detail)
    };
    let not_allowed = async || {
        let detail = "this page is read only: ask with GET";
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
    };
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(metrics::show))
        .merge(api)
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .with_state(app)
        .layer(from_fn_with_state(
            Hosts(options.hosts.clone()),
            hosts::check,
        ))
}

/// Accepts for ever. A connection is served by a task of its own.
async fn serve(listener: tokio::net::TcpListener, app: Router) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) => {
                // Out of open files, most likely: those who ask next may find one.
                tracing::warn!(%error, "the admin server cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(app.clone());
        connections.spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .max_buf_size(HEADER_BYTES_MAX)
                .serve_connection(TokioIo::new(socket), service);
            let mut connection = pin!(connection);
            // How it ended is the peer's matter.
            if timeout(CONNECTION_TIME_MAX, connection.as_mut())
                .await
                .is_err()
            {
                connection.as_mut().graceful_shutdown();
                let _ = timeout(LAST_ANSWER_TIMEOUT, connection).await;
            }
            drop(permit);
        });
        while connections.try_join_next().is_some() {}
    }
}

/// After a failed accept.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
