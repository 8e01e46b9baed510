//! A slow link: a relay that carries so many bytes per tick in each direction, and holds few.
//!
//! What it does not carry waits in the sender, as on a slow radio link. One thread serves all
//! connections of a link, each at the whole rate.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

const TICK: Duration = Duration::from_millis(20);
const TICKS_PER_SECOND: usize = 50;
/// What a socket takes before the relay has read it; the kernel doubles it.
const SOCKET_BYTES: usize = 4 * 1024;

/// The relay. It ends, with all connections, when this is dropped.
#[derive(Debug)]
pub struct SlowLink {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SlowLink {
    /// Listens on a port of its own, and connects to `broker` for every client.
    pub fn start(broker: SocketAddr, bytes_per_second: usize) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let per_tick = (bytes_per_second / TICKS_PER_SECOND).max(1);
        let thread = thread::spawn(move || {
            let mut ways: Vec<Way> = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                while let Ok((client, _)) = listener.accept() {
                    ways.extend(open(client, broker).into_iter().flatten());
                }
                ways.retain_mut(|way| way.carry(per_tick).is_ok());
                thread::park_timeout(TICK);
            }
        });
        Ok(Self {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for SlowLink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Both ways of one connection.
fn open(client: TcpStream, broker: SocketAddr) -> io::Result<[Way; 2]> {
    let socket = Socket::new(Domain::for_address(broker), Type::STREAM, None)?;
    socket.set_recv_buffer_size(SOCKET_BYTES)?;
    socket.connect(&broker.into())?;
    let server = TcpStream::from(socket);
    for stream in [&client, &server] {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
    }
    let up = Way::new(client.try_clone()?, server.try_clone()?);
    Ok([up, Way::new(server, client)])
}

/// One way of a connection.
#[derive(Debug)]
struct Way {
    from: TcpStream,
    to: TcpStream,
    /// Read, and not written yet: at most what one tick brings.
    held: Vec<u8>,
}

impl Way {
    fn new(from: TcpStream, to: TcpStream) -> Self {
        let held = Vec::new();
        Self { from, to, held }
    }

    /// Carries so many bytes at most. An error ends this way: the other side sees the end.
    fn carry(&mut self, most: usize) -> io::Result<()> {
        let carried = self.try_carry(most);
        if carried.is_err() {
            let _ = self.to.shutdown(Shutdown::Write);
        }
        carried
    }

    fn try_carry(&mut self, most: usize) -> io::Result<()> {
        if self.held.is_empty() {
            let mut bytes = vec![0; most];
            let count = match self.from.read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                read => read?,
            };
            self.held.extend_from_slice(&bytes[..count]);
        }
        match self.to.write(&self.held) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            written => drop(self.held.drain(..written?)),
        }
        Ok(())
    }
}
