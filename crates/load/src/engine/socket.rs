//! A socket of either kind.

use mio::{
    Interest, Registry, Token,
    net::{TcpStream, UnixStream},
};
use std::io::{self, Read, Write};

#[cfg(target_os = "linux")]
use super::source;
use crate::transport::Target;

#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Begins to connect, as the connection of this token.
    pub(super) fn connect(target: &Target, registry: &Registry, token: Token) -> io::Result<Self> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        match target {
            Target::Tcp(address) => {
                #[cfg(target_os = "linux")]
                let mut socket = source::connect(*address, token.0)?;
                #[cfg(not(target_os = "linux"))]
                let mut socket = TcpStream::connect(*address)?;
                registry.register(&mut socket, token, interest)?;
                Ok(Self::Tcp(socket))
            }
            Target::Unix(path) => {
                let mut socket = UnixStream::connect(path)?;
                registry.register(&mut socket, token, interest)?;
                Ok(Self::Unix(socket))
            }
        }
    }

    /// Whether the connection came about.
    pub(super) fn finish_opening(&self) -> io::Result<bool> {
        let error = match self {
            Self::Tcp(socket) => socket.take_error(),
            Self::Unix(socket) => socket.take_error(),
        };
        if let Some(error) = error? {
            return Err(error);
        }
        let Self::Tcp(socket) = self else {
            return Ok(true);
        };
        match socket.peer_addr() {
            Ok(_) => socket.set_nodelay(true).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(buffer),
            Self::Unix(socket) => socket.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(bytes),
            Self::Unix(socket) => socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
