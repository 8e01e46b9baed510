//! A connection's bytes in both directions, whatever carries them.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

/// Protocols above a socket.
pub(crate) trait Layer: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Layer for T {}

pub(crate) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
    /// It may keep bytes until it is flushed.
    Layered(Box<dyn Layer>),
}

/// What a [`Stream`] has done.
pub(crate) enum Moved {
    Read(usize),
    Written(usize),
}

impl Stream {
    /// Says that nothing more will come.
    pub(crate) async fn end(&mut self) -> io::Result<()> {
        let ended = self.shutdown().await;
        match self {
            Self::Layered(_) => Ok(()), // the broker may have closed first, behind the last packet
            _ => ended,
        }
    }

    /// Reads to the end of `input` or writes from the front of `output`, whichever goes. Cancelling
    /// it loses nothing.
    pub(crate) async fn exchange(
        &mut self,
        input: &mut Vec<u8>,
        output: &[u8],
    ) -> io::Result<Moved> {
        match self {
            Self::Tcp(socket) => {
                let (mut reading, mut writing) = socket.split();
                tokio::select! {
                    read = reading.read_buf(input) => read.map(Moved::Read),
                    written = writing.write(output), if !output.is_empty() => {
                        written.map(Moved::Written)
                    }
                }
            }
            #[cfg(unix)]
            Self::Unix(socket) => exchange(socket, input, output).await,
            Self::Layered(layers) => exchange(layers, input, output).await,
        }
    }
}

/// Writes first: what is written may be what the peer waits for.
async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    input: &mut Vec<u8>,
    output: &[u8],
) -> io::Result<Moved> {
    poll_fn(|context| {
        if output.is_empty() {
            if let Poll::Ready(Err(error)) = Pin::new(&mut *stream).poll_flush(context) {
                return Poll::Ready(Err(error));
            }
        } else if let Poll::Ready(written) = Pin::new(&mut *stream).poll_write(context, output) {
            return Poll::Ready(written.map(Moved::Written));
        }
        let read = std::pin::pin!(stream.read_buf(input)).poll(context);
        read.map_ok(Moved::Read)
    })
    .await
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_read(context, into),
            #[cfg(unix)]
            Self::Unix(socket) => Pin::new(socket).poll_read(context, into),
            Self::Layered(layers) => Pin::new(layers).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_write(context, bytes),
            #[cfg(unix)]
            Self::Unix(socket) => Pin::new(socket).poll_write(context, bytes),
            Self::Layered(layers) => Pin::new(layers).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_flush(context),
            #[cfg(unix)]
            Self::Unix(socket) => Pin::new(socket).poll_flush(context),
            Self::Layered(layers) => Pin::new(layers).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_shutdown(context),
            #[cfg(unix)]
            Self::Unix(socket) => Pin::new(socket).poll_shutdown(context),
            Self::Layered(layers) => Pin::new(layers).poll_shutdown(context),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp(_) => "Tcp",
            #[cfg(unix)]
            Self::Unix(_) => "Unix",
            Self::Layered(_) => "Layered",
        })
    }
}
