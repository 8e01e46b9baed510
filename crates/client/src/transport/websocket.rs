//! WebSocket of a client: the bytes of MQTT in binary frames.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use unbroken_websocket::{End, Frames, status, upgrade};

use super::stream::Stream;

/// Bytes of one frame that is sent, at most.
const FRAME_BYTES: usize = 64 * 1024;
/// Bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;

pub(super) struct WebSocket {
    below: Stream,
    frames: Frames,
    /// Read and not opened: the beginning of a frame.
    wire: Vec<u8>,
    /// Opened and not taken yet, from `taken` on.
    plain: Vec<u8>,
    taken: usize,
    /// Sealed and not written yet.
    sealed: Vec<u8>,
    has_ended: bool,
    has_closed: bool,
}

impl WebSocket {
    /// The opening handshake.
    pub(super) async fn open(mut below: Stream, host: &str, path: &str) -> io::Result<Self> {
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(io::Error::other)?;
        below
            .write_all(&upgrade::request(host, path, nonce))
            .await?;
        below.flush().await?;
        let mut wire = Vec::new();
        let used = loop {
            if below.read_buf(&mut wire).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let answer = upgrade::check_answer(&wire, nonce);
            let answer = answer.map_err(|why| io::Error::new(ErrorKind::InvalidData, why))?;
            if let Some(used) = answer {
                break used;
            }
        };
        wire.drain(..used);
        let mut websocket = Self {
            below,
            frames: Frames::client(mask),
            wire,
            plain: Vec::new(),
            taken: 0,
            sealed: Vec::new(),
            has_ended: false,
            has_closed: false,
        };
        websocket.open_frames()?;
        Ok(websocket)
    }

    /// Opens what was read.
    fn open_frames(&mut self) -> io::Result<()> {
        let mut unsent = Vec::new(); // behind our own end nothing is answered
        let reply = if self.has_closed {
            &mut unsent
        } else {
            &mut self.sealed
        };
        let opened = self.frames.open(&mut self.wire, &mut self.plain, reply);
        self.wire.drain(..opened.used);
        match opened.end {
            None => Ok(()),
            Some(End::Closed) => {
                self.has_ended = true;
                Ok(())
            }
            Some(End::Broken(violation)) => {
                self.has_ended = true;
                let what = format!("the broker sent {violation}");
                Err(io::Error::new(ErrorKind::InvalidData, what))
            }
        }
    }

    /// Writes what is sealed.
    fn poll_sealed(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.sealed.is_empty() {
            let below = Pin::new(&mut self.below);
            let count = ready!(below.poll_write(context, &self.sealed))?;
            if count == 0 {
                return Poll::Ready(Err(ErrorKind::WriteZero.into()));
            }
            self.sealed.drain(..count);
        }
        Poll::Ready(Ok(()))
    }
}

/// Of the system's random source.
fn mask() -> [u8; 4] {
    let mut mask = [0; 4];
    // Without one the broker still understands the frame: the mask protects proxies, not secrets.
    let _ = getrandom::fill(&mut mask);
    mask
}

impl AsyncRead for WebSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let plain = &this.plain[this.taken..];
            if !plain.is_empty() {
                let count = plain.len().min(into.remaining());
                into.put_slice(&plain[..count]);
                this.taken += count;
                if this.taken == this.plain.len() {
                    this.plain.clear();
                    this.taken = 0;
                }
                return Poll::Ready(Ok(()));
            }
            if this.has_ended {
                return Poll::Ready(Ok(()));
            }
            let start = this.wire.len();
            this.wire.resize(start + READ_BYTES, 0);
            let mut buffer = ReadBuf::new(&mut this.wire[start..]);
            let read = Pin::new(&mut this.below).poll_read(context, &mut buffer);
            let count = buffer.filled().len();
            this.wire.truncate(start + count);
            ready!(read)?;
            if count == 0 {
                this.has_ended = true;
                return Poll::Ready(Ok(()));
            }
            this.open_frames()?;
            // Pongs leave at once, if they can.
            if let Poll::Ready(written) = this.poll_sealed(context) {
                written?;
            }
        }
    }
}

impl AsyncWrite for WebSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_sealed(context))?;
        let count = bytes.len().min(FRAME_BYTES);
        this.frames.seal(&bytes[..count], &mut this.sealed);
        if let Poll::Ready(written) = this.poll_sealed(context) {
            written?;
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_sealed(context))?;
        Pin::new(&mut this.below).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.has_closed && !this.has_ended {
            this.frames.close(status::NORMAL, &mut this.sealed);
        }
        this.has_closed = true;
        ready!(this.poll_sealed(context))?;
        Pin::new(&mut this.below).poll_shutdown(context)
    }
}
