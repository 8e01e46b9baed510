//! The socket: opening it, reading it on a thread of its own, writing it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::{ClientError, Options};

/// What a thread has to say to the client.
#[derive(Debug)]
pub(super) enum Wake {
    Bytes {
        link: u32,
        bytes: Vec<u8>,
    },
    /// The broker closed (`None`), or reading failed.
    Ended {
        link: u32,
        error: Option<io::Error>,
    },
    Outside(Outside),
}

/// What does not come from the broker.
#[derive(Debug)]
pub(crate) enum Outside {
    /// A piece of standard input.
    Input(Vec<u8>),
    /// Standard input has ended, or failed.
    EndOfInput(io::Result<()>),
    /// SIGINT or SIGTERM.
    Interrupted,
}

/// A way into the client's queue for other threads.
#[derive(Clone, Debug)]
pub(crate) struct OutsideSender(SyncSender<Wake>);

impl OutsideSender {
    pub(super) fn new(waker: SyncSender<Wake>) -> Self {
        Self(waker)
    }

    /// Waits while the queue is full. False: the client is gone.
    pub(crate) fn send(&self, outside: Outside) -> bool {
        self.0.send(Wake::Outside(outside)).is_ok()
    }
}

/// Connects to the first of the host's addresses that answers.
pub(super) fn open(options: &Options) -> Result<TcpStream, ClientError> {
    let unknown = |name: &str| {
        let host = name.to_owned();
        move |source| ClientError::Resolve { host, source }
    };
    let local = match &options.bind {
        Some(name) => (name.as_str(), 0)
            .to_socket_addrs()
            .map_err(unknown(name))?
            .next(),
        None => None,
    };
    let addresses = (options.host.as_str(), options.port)
        .to_socket_addrs()
        .map_err(unknown(&options.host))?;
    let mut last = None;
    for address in addresses {
        match connect(address, local) {
            Ok(stream) => return Ok(stream),
            Err(source) => last = Some(ClientError::Connect { address, source }),
        }
    }
    Err(last.unwrap_or_else(|| ClientError::Resolve {
        host: options.host.clone(),
        source: io::Error::new(io::ErrorKind::NotFound, "it has no address"),
    }))
}

fn connect(address: SocketAddr, local: Option<SocketAddr>) -> io::Result<TcpStream> {
    // [MQTT-4.2-1] [MQTT311-7.1.2-1]
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if let Some(local) = local {
        socket.bind(&local.into())?;
    }
    socket.connect_timeout(&address.into(), CONNECT_TIMEOUT)?;
    socket.set_tcp_nodelay(true)?;
    // A broker that takes nothing for this long is as good as gone.
    socket.set_write_timeout(Some(WRITE_TIMEOUT))?;
    Ok(socket.into())
}

/// Reads until the end. The thread ends with the connection or with the client.
pub(super) fn read(mut stream: TcpStream, link: u32, waker: SyncSender<Wake>) -> io::Result<()> {
    let run = move || {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let wake = match stream.read(&mut buffer) {
                Ok(0) => Wake::Ended { link, error: None },
                Ok(length) => Wake::Bytes {
                    link,
                    bytes: buffer.get(..length).unwrap_or_default().to_vec(),
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Wake::Ended {
                    link,
                    error: Some(error),
                },
            };
            let ended = matches!(wake, Wake::Ended { .. });
            if waker.send(wake).is_err() || ended {
                return;
            }
        }
    };
    thread::Builder::new()
        .name("socket".to_owned())
        .spawn(run)
        .map(drop)
}

pub(super) fn write(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)
}

const READ_BYTES: usize = 64 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const WRITE_TIMEOUT: Duration = Duration::from_mins(1);
