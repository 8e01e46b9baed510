//! Listening sockets of the kernel: how each is opened, and what it accepts.

#[cfg(unix)]
mod unix;

use std::io;
use std::net::SocketAddr;

use mio::net::TcpListener;
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, Socket, Type};

use crate::bounds::BACKLOG;
use crate::config::{Address, Listener};
use crate::transport;
#[cfg(any(target_os = "android", target_os = "linux"))]
use crate::tuning::UNSENT_BYTES;

/// A socket that listens.
#[derive(Debug)]
pub(crate) enum OpenSocket {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(unix::UnixSocket),
}

impl OpenSocket {
    /// Opens the socket of a listener.
    pub(crate) fn open(listener: &Listener) -> io::Result<Self> {
        match listener.address() {
            Address::Tcp(address) => bind_tcp(address).map(Self::Tcp),
            #[cfg(unix)]
            Address::Unix(path) => {
                let owner = listener.socket_owner.as_deref();
                unix::UnixSocket::open(&path, listener.socket_mode, owner).map(Self::Unix)
            }
            #[cfg(not(unix))]
            Address::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Where it listens; never port 0.
    pub(crate) fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(socket) => socket.local_addr().map(Address::Tcp),
            #[cfg(unix)]
            Self::Unix(socket) => Ok(Address::Unix(socket.path().to_owned())),
        }
    }

    /// A connection, and the address of its other side, if it has one.
    pub(super) fn accept(&self) -> io::Result<(transport::Socket, Option<SocketAddr>)> {
        match self {
            Self::Tcp(socket) => {
                let (socket, address) = socket.accept()?;
                Ok((transport::Socket::Tcp(socket), Some(address)))
            }
            #[cfg(unix)]
            Self::Unix(socket) => Ok((transport::Socket::Unix(socket.accept()?), None)),
        }
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => registry.register(socket, token, Interest::READABLE),
            #[cfg(unix)]
            Self::Unix(socket) => socket.register(registry, token),
        }
    }
}

#[cfg(unix)]
impl std::os::fd::AsFd for OpenSocket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }
}

/// Opens a TCP port.
fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if cfg!(unix) {
        // A restarted broker can bind while old connections are in TIME_WAIT.
        socket.set_reuse_address(true)?;
    }
    if address.is_ipv6() {
        // `[::]` beside `0.0.0.0` is two listeners, each with its own rules.
        socket.set_only_v6(true)?;
    }
    // A turn writes once to each connection, so Nagle's algorithm could gather nothing. Accepted
    // connections inherit the option.
    socket.set_tcp_nodelay(true)?;
    // What waits for a slow client stays with the shard, where answers can pass it.
    #[cfg(any(target_os = "android", target_os = "linux"))]
    socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(TcpListener::from_std(socket.into()))
}
