//! Listening sockets of the kernel: how each is opened, and what it accepts.

#[cfg(unix)]
mod unix;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use mio::net::TcpListener;
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, Socket, Type};

use crate::bounds::BACKLOG;
use crate::config::{self, Address, Listener, Network};
use crate::transport;
#[cfg(any(target_os = "android", target_os = "linux"))]
use crate::tuning::UNSENT_BYTES;

/// A listener that is open, at one of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenListener {
    /// Where it listens; never port 0.
    pub address: Address,
    /// Its position in the configuration.
    pub number: u16,
    /// What clients speak.
    pub protocol: config::Protocol,
    /// As configured.
    pub name: Option<String>,
    /// Who may connect, as text.
    pub admits: String,
    /// Connections from these begin with a PROXY header.
    pub trusted_proxies: Vec<Network>,
}

/// A socket that listens.
#[derive(Debug)]
pub(crate) enum OpenSocket {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(unix::UnixSocket),
}

impl OpenSocket {
    /// Opens the sockets of a listener: one for each of its addresses, with one port. An error
    /// names the address.
    pub(crate) fn open_all(listener: &Listener) -> Result<Vec<Self>, (Address, io::Error)> {
        let mut opened = Self::try_open_all(listener);
        // The port that was free for the first address may be taken at another one.
        for _ in 0..FREE_PORT_TRIES {
            match &opened {
                Err((_, error)) if listener.port == 0 && error.kind() == ErrorKind::AddrInUse => {
                    opened = Self::try_open_all(listener);
                }
                _ => break,
            }
        }
        opened
    }

    fn try_open_all(listener: &Listener) -> Result<Vec<Self>, (Address, io::Error)> {
        let mut sockets: Vec<Self> = Vec::new();
        let mut port = listener.port;
        for mut address in listener.addresses() {
            if let Address::Tcp(address) = &mut address {
                address.set_port(port);
            }
            match Self::open(&address, listener) {
                Ok(socket) => {
                    let open = socket.address();
                    port = open
                        .ok()
                        .and_then(|it| it.tcp())
                        .map_or(port, |it| it.port());
                    sockets.push(socket);
                }
                Err(error)
                    if listener.bind.is_all() && !sockets.is_empty() && has_no_ipv6(&error) =>
                {
                    tracing::info!(%address, %error, "this system has no IPv6: not listening there");
                }
                Err(error) => return Err((address, error)),
            }
        }
        Ok(sockets)
    }

    fn open(address: &Address, listener: &Listener) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => bind_tcp(*address).map(Self::Tcp),
            #[cfg(unix)]
            Address::Unix(path) => {
                let owner = listener.socket_owner.as_deref();
                unix::UnixSocket::open(path, listener.socket_mode, owner).map(Self::Unix)
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

/// How often a free port is looked for that all addresses of a listener have.
const FREE_PORT_TRIES: usize = 16;

/// Whether a socket could not be opened because the system has no addresses of IPv6.
fn has_no_ipv6(error: &io::Error) -> bool {
    #[cfg(unix)]
    let has_no_family = error.raw_os_error() == Some(nix::errno::Errno::EAFNOSUPPORT as i32);
    #[cfg(not(unix))]
    let has_no_family = false;
    has_no_family || error.kind() == ErrorKind::AddrNotAvailable
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
        // A socket for each family, also of one listener: so an address of IPv4 is one everywhere.
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
