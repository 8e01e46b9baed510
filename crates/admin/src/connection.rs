//! Accepts connections, of the network and of the unix socket, and serves each by a task.
//!
//! Invariants:
//! - Connections of each listener are bounded, and a connection has a time: a short one until a
//!   request has shown credentials.
//! - A handshake of TLS has the time of a header.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use unbroken_broker::ServerTls;

use crate::limits::{
    CALLER_TIME_MAX, CONNECTION_TIME_MAX, CONNECTIONS_MAX, HEADER_BYTES_MAX, HEADER_TIMEOUT,
    LAST_ANSWER_TIMEOUT,
};
use crate::peer::Peer;

/// Accepts for ever from the network.
pub(crate) async fn serve_network(listener: TcpListener, tls: Option<ServerTls>, app: Router) {
    let room = Room::new();
    let mut connections = JoinSet::new();
    while let Some(permit) = room.permit().await {
        let (socket, address) = match listener.accept().await {
            Ok((socket, from)) => (socket, from.ip()),
            Err(error) => {
                pause(&error).await;
                continue;
            }
        };
        let (app, tls) = (app.clone(), tls.clone());
        connections.spawn(async move {
            match tls {
                Some(tls) => serve_tls(socket, address, &tls, app).await,
                None => serve(socket, Peer::of_network(address, false), app).await,
            }
            drop(permit);
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Accepts for ever at the unix socket.
pub(crate) async fn serve_socket(listener: UnixListener, app: Router) {
    let room = Room::new();
    let mut connections = JoinSet::new();
    while let Some(permit) = room.permit().await {
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) => {
                pause(&error).await;
                continue;
            }
        };
        let user = socket.peer_cred().ok().map(|other| other.uid());
        let app = app.clone();
        connections.spawn(async move {
            serve(socket, Peer::of_socket(user), app).await;
            drop(permit);
        });
        while connections.try_join_next().is_some() {}
    }
}

/// What limits the connections of a listener. Further ones wait in its queue.
struct Room(Arc<Semaphore>);

impl Room {
    fn new() -> Self {
        Self(Arc::new(Semaphore::new(CONNECTIONS_MAX)))
    }

    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).acquire_owned().await.ok()
    }
}

/// Out of open files, most likely: those who ask next may find one.
async fn pause(error: &std::io::Error) {
    tracing::warn!(%error, "the admin server cannot accept a connection");
    sleep(ACCEPT_PAUSE).await;
}

async fn serve_tls(socket: tokio::net::TcpStream, address: IpAddr, tls: &ServerTls, app: Router) {
    let handshake = TlsAcceptor::from(tls.config()).accept(socket);
    // How it failed is the peer's matter.
    if let Ok(Ok(stream)) = timeout(HEADER_TIMEOUT, handshake).await {
        serve(stream, Peer::of_network(address, true), app).await;
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(stream: S, peer: Peer, app: Router) {
    let app = TowerToHyperService::new(app);
    let of_requests = peer.clone();
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(of_requests.clone());
        app.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // How it ended is the peer's matter.
    if timeout(CONNECTION_TIME_MAX, connection.as_mut())
        .await
        .is_ok()
    {
        return;
    }
    let more = CALLER_TIME_MAX.saturating_sub(CONNECTION_TIME_MAX);
    if peer.has_caller() && timeout(more, connection.as_mut()).await.is_ok() {
        return;
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(LAST_ANSWER_TIMEOUT, connection).await;
}

/// After a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
