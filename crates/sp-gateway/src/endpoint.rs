//! Connections with SP peers: accepted, or made again and again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use unbroken_client::{ConnectTo, RetryDuration, TotalDuration};

use crate::connection::{Connection, PeerError};
use crate::error::GatewayError;
use crate::limits::{ACCEPT_PAUSE, FIRST_PAUSE, HEADER_TIMEOUT};
use crate::places::Places;
use crate::shared::Shared;

/// What a gateway does with each connection.
pub(crate) trait Role: Send + Sync + 'static {
    /// Serves it until it ends. Dropping the future ends it too.
    fn serve(&self, connection: Connection) -> impl Future<Output = PeerError> + Send;
}

/// Accepts peers and serves them, as many as there are [places](Places), until `stop`. Then none is
/// left.
pub(crate) async fn listen<R: Role>(
    listener: TcpListener,
    role: Arc<R>,
    shared: Arc<Shared>,
    stop: impl Future<Output = ()>,
) -> Result<(), GatewayError> {
    let mut peers = JoinSet::new();
    let places = Places::default();
    tokio::pin!(stop);
    let ended = loop {
        tokio::select! {
            () = &mut stop => break Ok(()),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => match places.take(peer.ip()) {
                    Ok(place) => {
                        let (role, shared) = (Arc::clone(&role), Arc::clone(&shared));
                        peers.spawn(async move {
                            let _place = place;
                            serve(stream, peer, &*role, &shared).await.1
                        });
                    }
                    Err(full) => {
                        shared.counts.add_turned_away();
                        shared.log_peer(peer, &full);
                    }
                },
                Err(error) => {
                    tracing::warn!(gateway = %shared.name, %error, "cannot accept an sp peer");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(ended) = peers.join_next() => match ended {
                Ok(PeerError::Gateway(error)) => break Err(error),
                Ok(_) => {}
                Err(error) => break Err(GatewayError::Panicked(error.to_string())),
            },
        }
    };
    // What they hold is counted when they have ended.
    peers.shutdown().await;
    ended
}

/// Connects to one peer and serves it, again after each loss.
pub(crate) async fn connect<R: Role>(
    to: ConnectTo,
    retry: RetryDuration,
    total: Option<TotalDuration>,
    role: Arc<R>,
    shared: Arc<Shared>,
) -> GatewayError {
    let mut pause = FIRST_PAUSE;
    let mut lost = Instant::now();
    loop {
        let why = match timeout(HEADER_TIMEOUT, open(&to)).await {
            Ok(Ok((stream, peer))) => match serve(stream, peer, &*role, &shared).await {
                (_, PeerError::Gateway(error)) => return error,
                (has_opened, error) => {
                    if has_opened {
                        (pause, lost) = (FIRST_PAUSE, Instant::now());
                    }
                    error
                }
            },
            Ok(Err(error)) => PeerError::Io(error),
            Err(_) => PeerError::Io(std::io::ErrorKind::TimedOut.into()),
        };
        if let Some(total) = total
            && lost.elapsed() + pause > total.0
        {
            let why = why.to_string();
            return GatewayError::GaveUp { to, total, why };
        }
        tracing::debug!(gateway = %shared.name, %to, %why, ?pause, "connecting to the sp peer again");
        sleep(pause).await;
        pause = longer(pause, retry);
    }
}

fn longer(pause: Duration, longest: RetryDuration) -> Duration {
    pause.saturating_mul(2).min(longest.0.max(FIRST_PAUSE))
}

async fn open(to: &ConnectTo) -> std::io::Result<(TcpStream, SocketAddr)> {
    let stream = TcpStream::connect((to.host(), to.port())).await?;
    let peer = stream.peer_addr()?;
    Ok((stream, peer))
}

/// Whether headers were exchanged, and why the connection ended.
async fn serve<R: Role>(
    stream: TcpStream,
    peer: SocketAddr,
    role: &R,
    shared: &Shared,
) -> (bool, PeerError) {
    let opened = Connection::open(stream, shared.protocol, shared.message_bytes_max).await;
    let has_opened = opened.is_ok();
    let error = match opened {
        Ok(connection) => {
            tracing::debug!(gateway = %shared.name, %peer, "sp peer connected");
            role.serve(connection).await
        }
        Err(error) => error,
    };
    if error.is_fault() {
        shared.counts.add_fault();
        shared.log_peer(peer, &error);
    } else {
        tracing::debug!(gateway = %shared.name, %peer, %error, "sp peer left");
    }
    (has_opened, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let longest = RetryDuration(Duration::from_secs(1));
        let mut pause = FIRST_PAUSE;
        let mut all = Vec::new();
        for _ in 0..5 {
            all.push(pause.as_millis());
            pause = longer(pause, longest);
        }
        assert_eq!(all, [100, 200, 400, 800, 1_000]);
        assert_eq!(
            longer(FIRST_PAUSE, RetryDuration(Duration::ZERO)),
            FIRST_PAUSE
        );
    }
}
