//! What lies between a socket and MQTT: nothing, TLS, WebSocket, or both; over TCP or a unix
//! socket.

mod stream;
mod tls;
mod websocket;

use std::io;

pub(crate) use stream::{Moved, Stream};
pub use tls::{Tls, TlsError, TlsOptions, TlsVersion};
use websocket::WebSocket;

/// What a client speaks below MQTT. By default nothing: MQTT over TCP, or over a unix socket if the
/// [address](crate::ConnectTo) is one.
#[derive(Clone, Debug, Default)]
pub struct Transport {
    tls: Option<Tls>,
    websocket: Option<String>,
}

impl Transport {
    /// Over TLS.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Over WebSocket, at this path: usually `/mqtt`.
    #[must_use]
    pub fn websocket(mut self, path: impl Into<String>) -> Self {
        self.websocket = Some(path.into());
        self
    }

    /// The TLS of it, for a program that opens its connections itself.
    pub const fn as_tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// The path of its WebSocket.
    pub fn websocket_path(&self) -> Option<&str> {
        self.websocket.as_deref()
    }

    /// The customary port: 1883, over TLS 8883, over WebSocket 8083, over both 8084.
    pub const fn default_port(&self) -> u16 {
        match (&self.tls, &self.websocket) {
            (None, None) => 1883,
            (Some(_), None) => 8883,
            (None, Some(_)) => 8083,
            (Some(_), Some(_)) => 8084,
        }
    }

    /// Opens what lies above the socket. `host`, `authority`: of the broker, without and with its
    /// port.
    pub(crate) async fn open(
        &self,
        socket: Stream,
        host: &str,
        authority: &str,
    ) -> io::Result<Stream> {
        let mut stream = socket;
        if let Some(tls) = &self.tls {
            stream = Stream::Layered(tls.connect(stream, host).await?);
        }
        if let Some(path) = &self.websocket {
            let opened = WebSocket::open(stream, authority, path).await?;
            stream = Stream::Layered(Box::new(opened));
        }
        Ok(stream)
    }
}
