//! A connection over any transport, as bytes in both directions.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};
use socket2::{Domain, Socket as OsSocket, Type};
use tungstenite::client::IntoClientRequest as _;
use tungstenite::error::ProtocolError;
use tungstenite::handshake::HandshakeError;
use tungstenite::http::HeaderValue;
use tungstenite::{Bytes, Error, Message, WebSocket};

use super::{Door, Transport, client};
use crate::DEADLINE;

/// A connection.
pub struct Stream {
    layers: Layers,
}

enum Layers {
    Bytes(Link),
    Framed(Box<Framed>),
    /// The broker ended it before the handshakes were done.
    Refused,
}

/// A socket, or TLS over one.
enum Link {
    Plain(Socket),
    Secured(Box<StreamOwned<ClientConnection, Socket>>),
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// WebSocket over a link.
struct Framed {
    socket: WebSocket<Link>,
    unread: Bytes,
}

impl Stream {
    pub(super) fn open(door: &Door, source: Option<Ipv4Addr>) -> io::Result<Self> {
        let socket = match door.transport {
            Transport::Unix => Socket::Unix(UnixStream::connect(&door.socket)?),
            _ => Socket::Tcp(tcp(source, door.address)?),
        };
        socket.set_read_timeout(DEADLINE)?;
        let link = if door.transport.is_secured() {
            match Link::secured(socket) {
                Some(link) => link,
                None => return Ok(Layers::Refused.into()),
            }
        } else {
            Link::Plain(socket)
        };
        let layers = if door.transport.is_framed() {
            Framed::open(link, door.address.port()).map_or(Layers::Refused, Layers::Framed)
        } else {
            Layers::Bytes(link)
        };
        Ok(layers.into())
    }

    /// How long a read may wait.
    pub fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.socket()
            .map_or(Ok(()), |socket| socket.set_read_timeout(timeout))
    }

    /// Ends the sending half of the socket, without a word of TLS or WebSocket.
    pub fn finish_sending(&self) -> io::Result<()> {
        self.socket().map_or(Ok(()), Socket::finish_sending)
    }

    fn socket(&self) -> Option<&Socket> {
        match &self.layers {
            Layers::Bytes(link) => Some(link.socket()),
            Layers::Framed(framed) => Some(framed.socket.get_ref().socket()),
            Layers::Refused => None,
        }
    }
}

impl From<Layers> for Stream {
    fn from(layers: Layers) -> Self {
        Self { layers }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers = match &self.layers {
            Layers::Bytes(Link::Plain(_)) => "socket",
            Layers::Bytes(Link::Secured(_)) => "TLS",
            Layers::Framed(_) => "WebSocket",
            Layers::Refused => "refused",
        };
        f.debug_tuple("Stream").field(&layers).finish()
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.layers {
            Layers::Bytes(link) => link.read(buffer),
            Layers::Framed(framed) => framed.read(buffer),
            Layers::Refused => Ok(0),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.layers {
            Layers::Bytes(link) => link.write(bytes),
            Layers::Framed(framed) => framed.write(bytes),
            Layers::Refused => Err(ErrorKind::ConnectionReset.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.layers {
            Layers::Bytes(link) => link.flush(),
            Layers::Framed(_) | Layers::Refused => Ok(()),
        }
    }
}

fn tcp(source: Option<Ipv4Addr>, address: SocketAddr) -> io::Result<TcpStream> {
    let stream = match source {
        None => TcpStream::connect_timeout(&address, DEADLINE)?,
        Some(source) => {
            let socket = OsSocket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.bind(&SocketAddr::from((source, 0)).into())?;
            socket.connect_timeout(&address.into(), DEADLINE)?;
            socket.into()
        }
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Link {
    /// `None` if the broker ends it meanwhile. Bytes that are no TLS are a fault of the broker.
    fn secured(socket: Socket) -> Option<Self> {
        let mut stream = StreamOwned::new(client(), socket);
        while stream.conn.is_handshaking() {
            if let Err(error) = stream.conn.complete_io(&mut stream.sock) {
                refuse_nonsense(&error);
                return None;
            }
        }
        Some(Self::Secured(Box::new(stream)))
    }

    fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Secured(stream) => &stream.sock,
        }
    }
}

/// rustls calls so what it cannot accept, an alert among it.
fn refuse_nonsense(error: &io::Error) {
    assert!(
        error.kind() != ErrorKind::InvalidData,
        "the TLS of the broker: {error}"
    );
}

impl Read for Link {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Secured(stream) => stream.read(buffer).inspect_err(refuse_nonsense),
        }
    }
}

impl Write for Link {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Secured(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Secured(stream) => stream.flush(),
        }
    }
}

impl Socket {
    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
            Self::Unix(stream) => stream.set_read_timeout(Some(timeout)),
        }
    }

    fn finish_sending(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Framed {
    /// `None` if the broker ends it meanwhile.
    fn open(link: Link, port: u16) -> Option<Box<Self>> {
        let mut request = format!("ws://localhost:{port}/mqtt")
            .into_client_request()
            .expect("an address");
        request
            .headers_mut()
            .insert("Sec-WebSocket-Protocol", HeaderValue::from_static("mqtt"));
        let (socket, response) = match tungstenite::client(request, link) {
            Ok(open) => open,
            Err(HandshakeError::Failure(
                Error::Io(_) | Error::Protocol(ProtocolError::HandshakeIncomplete),
            )) => return None,
            Err(other) => panic!("the upgrade of the broker: {other}"),
        };
        let chosen = response.headers().get("Sec-WebSocket-Protocol");
        assert_eq!(chosen, Some(&HeaderValue::from_static("mqtt")));
        Some(Box::new(Self {
            socket,
            unread: Bytes::new(),
        }))
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.unread.is_empty() {
            match self.socket.read() {
                Ok(Message::Binary(payload)) => self.unread = payload,
                Ok(Message::Close(_))
                | Err(
                    Error::ConnectionClosed
                    | Error::AlreadyClosed
                    | Error::Protocol(ProtocolError::ResetWithoutClosingHandshake),
                ) => return Ok(0),
                Ok(Message::Ping(_) | Message::Pong(_)) => {}
                Err(Error::Io(error)) => return Err(error),
                other => panic!("the WebSocket of the broker: {other:?}"),
            }
        }
        let count = buffer.len().min(self.unread.len());
        buffer[..count].copy_from_slice(&self.unread.split_to(count));
        Ok(count)
    }

    /// The first byte comes in a frame of its own, as MQTT.js sends it, and one byte with an empty
    /// frame behind it: frames are not packets.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (first, rest) = bytes.split_at(bytes.len().min(1));
        for piece in [first, rest] {
            let message = Message::Binary(Bytes::copy_from_slice(piece));
            self.socket.write(message).map_err(as_io)?;
        }
        self.socket.flush().map_err(as_io)?;
        Ok(bytes.len())
    }
}

fn as_io(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        other => io::Error::other(other),
    }
}
