//! A connection whose every failure is a value: an attacked broker may refuse, close or stall.
//!
//! Packets are written and read by the acceptance tests' raw bytes, so that no codec is shared
//! with the broker.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use unbroken_acceptance::raw::{Connect, Packet, Version, take_frame};

/// How long an exchange may take that the attack does not measure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Why a connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the broker closed the connection")]
    Closed,
    #[error("refused with {0:#04x}")]
    Refused(u8),
    #[error("no answer within {0:?}")]
    Late(Duration),
}

/// One connection of an MQTT 5.0 client.
#[derive(Debug)]
pub(crate) struct Link {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Link {
    /// Opens a connection and sends nothing.
    pub(crate) fn open(to: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
        Self::over(stream)
    }

    /// The same from one of the machine's own addresses.
    pub(crate) fn open_from(from: IpAddr, to: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        socket.bind(&SocketAddr::new(from, 0).into())?;
        socket.connect_timeout(&to.into(), PATIENCE)?;
        Self::over(socket.into())
    }

    fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream,
            unread: Vec::new(),
        })
    }

    /// Opens a connection that the broker accepts.
    pub(crate) fn connect(to: SocketAddr, connect: &Connect) -> Result<Self, LinkError> {
        let mut link = Self::open(to)?;
        link.log_in(connect)?;
        Ok(link)
    }

    /// Sends CONNECT and waits for its answer.
    pub(crate) fn log_in(&mut self, connect: &Connect) -> Result<(), LinkError> {
        self.send(&connect.encode())?;
        match self.receive(PATIENCE)? {
            Packet::ConnAck(connack) if connack.reason == 0 => Ok(()),
            Packet::ConnAck(connack) => Err(LinkError::Refused(connack.reason)),
            _ => Err(LinkError::Closed),
        }
    }

    /// Sends all of it, or fails when the broker reads nothing for [`PATIENCE`].
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next packet.
    pub(crate) fn receive(&mut self, within: Duration) -> Result<Packet, LinkError> {
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.poll(left)? {
                Some(packet) => return Ok(packet),
                None if left.is_zero() => return Err(LinkError::Late(within)),
                None => {}
            }
        }
    }

    /// The next packet if it is there or comes within this time; it may return earlier.
    pub(crate) fn poll(&mut self, within: Duration) -> Result<Option<Packet>, LinkError> {
        if let Some(packet) = self.take() {
            return Ok(Some(packet));
        }
        // A timeout of zero would wait without end.
        let within = within.max(Duration::from_micros(100));
        self.stream.set_read_timeout(Some(within))?;
        let mut piece = [0; 16 * 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => Err(LinkError::Closed),
            Ok(count) => {
                self.unread.extend_from_slice(&piece[..count]);
                Ok(self.take())
            }
            Err(error) if is_early(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn take(&mut self) -> Option<Packet> {
        let (first, body) = take_frame(&mut self.unread)?;
        Some(Packet::parse(Version::V5, first, &body))
    }

    /// The socket, for attacks that wait for nothing.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }
}

/// Nothing has come, or nothing is taken, yet.
pub(crate) fn is_early(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
