//! One connection with an SP peer: header, then frames both ways.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use crate::error::GatewayError;
use crate::limits::{HEADER_TIMEOUT, PEER_IDLE, READ_BYTES};
use crate::wire::{Frames, HEADER_BYTES, Protocol, WireError};

/// A connection whose headers fit.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
}

#[derive(Debug)]
pub(crate) struct Reader {
    half: OwnedReadHalf,
    frames: Frames,
}

#[derive(Debug)]
pub(crate) struct Writer(OwnedWriteHalf);

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    #[error("the peer closed the connection")]
    Closed,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("no header within {} s: check that the peer is a scalability protocol over TCP", HEADER_TIMEOUT.as_secs())]
    NoHeader,
    #[error("the peer sent a message, which sockets of its kind only receive")]
    Unexpected,
    #[error("the peer has not taken what waits for it for {} s", .0.as_secs())]
    Stalled(Duration),
    /// Not the peer's fault: the gateway cannot go on.
    #[error("{0}")]
    Gateway(#[from] GatewayError),
}

impl PeerError {
    /// Whether the peer broke the protocol, or let the gateway wait too long.
    pub(crate) const fn is_fault(&self) -> bool {
        matches!(
            self,
            Self::Wire(_) | Self::NoHeader | Self::Unexpected | Self::Stalled(_)
        )
    }
}

impl Connection {
    /// Exchanges headers.
    pub(crate) async fn open(
        stream: TcpStream,
        ours: Protocol,
        body_bytes_max: usize,
    ) -> Result<Self, PeerError> {
        // Only latency depends on it.
        let _ = stream.set_nodelay(true);
        let keep_alive = TcpKeepalive::new().with_time(PEER_IDLE);
        SockRef::from(&stream).set_tcp_keepalive(&keep_alive)?;
        let (mut half, mut writer) = stream.into_split();
        let mut theirs = [0; HEADER_BYTES];
        let exchange = async {
            writer.write_all(&ours.header()).await?;
            half.read_exact(&mut theirs).await
        };
        match timeout(HEADER_TIMEOUT, exchange).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(PeerError::Closed);
            }
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(PeerError::NoHeader),
        }
        ours.check(theirs)?;
        Ok(Self {
            reader: Reader {
                half,
                frames: Frames::new(body_bytes_max),
            },
            writer: Writer(writer),
        })
    }
}

impl Reader {
    /// The next body. Cancelling loses nothing.
    pub(crate) async fn next(&mut self) -> Result<&[u8], PeerError> {
        while !self.frames.is_ready()? {
            let buffer = self.frames.buffer();
            buffer.reserve(READ_BYTES);
            if self.half.read_buf(buffer).await? == 0 {
                return Err(PeerError::Closed);
            }
        }
        // It is ready, so there is one.
        Ok(self.frames.next_body()?.unwrap_or_default())
    }

    /// Waits for the end of a connection whose peer only receives.
    pub(crate) async fn end(&mut self) -> PeerError {
        match self.next().await {
            Ok(_) => PeerError::Unexpected,
            Err(error) => error,
        }
    }
}

impl Writer {
    /// Returns when the socket has taken the whole frame. Cancelled, the connection must end.
    pub(crate) async fn write(&mut self, frame: &[u8]) -> Result<(), PeerError> {
        Ok(self.0.write_all(frame).await?)
    }

    /// The same, as long as the peer goes on taking some of it within `stall`.
    pub(crate) async fn write_while_taken(
        &mut self,
        mut frame: &[u8],
        stall: Duration,
    ) -> Result<(), PeerError> {
        while !frame.is_empty() {
            match timeout(stall, self.0.write(frame)).await {
                Ok(Ok(0)) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(Ok(written)) => frame = &frame[written..],
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => return Err(PeerError::Stalled(stall)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Of more bytes than two sockets hold.
    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_given_up_and_one_that_reads_is_not() {
        const FRAME_BYTES: usize = 64 << 20;
        let frame = vec![0; FRAME_BYTES];
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connect = async || {
            let stream = TcpStream::connect(address).await.unwrap();
            let (peer, _) = listener.accept().await.unwrap();
            (stream.into_split(), peer)
        };
        let ((_reader, writer), _silent) = connect().await;
        let stall = Duration::from_millis(20);
        let given_up = Writer(writer).write_while_taken(&frame, stall).await;
        assert!(matches!(given_up, Err(PeerError::Stalled(_))));
        let ((_reader, writer), mut peer) = connect().await;
        let reading = tokio::spawn(async move {
            let mut taken = vec![0; FRAME_BYTES];
            peer.read_exact(&mut taken).await
        });
        let mut writer = Writer(writer);
        let written = writer.write_while_taken(&frame, Duration::MAX).await;
        assert!(written.is_ok());
        assert_eq!(reading.await.unwrap().unwrap(), FRAME_BYTES);
    }
}
