//! A relay between clients and a broker, for tests and demonstrations of a bad network: it breaks
//! connections, and a [`Passage`] decides what becomes of each packet.
//!
//! Invariants: whole packets pass, in their order, and what a passage inserts goes out between two
//! others; each side sees how the other ends. What is not MQTT ends the connection, behind what is.
//!
//! Deliberately absent: parts of packets, and TLS or WebSocket on the side of the clients.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use unbroken_mqtt_proto::{Frame, next_frame};

use crate::BindTo;
use crate::driver;
use crate::limits::{READ_BYTES, RELAYED_PACKET_BYTES};
use crate::options::Options;

/// One of the two ways of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Towards {
    /// What clients send to the broker.
    Broker,
    /// What the broker sends to clients.
    Clients,
}

/// What becomes of the packets of one connection. It ends with the connection.
pub trait Passage: Send + 'static {
    /// A packet came. What is to be sent, in its place and to either side, is put into `out`.
    fn handle(&mut self, towards: Towards, packet: Frame<'_>, out: &mut Outputs);

    /// When [`release`](Self::release) has something to do.
    fn release_at(&self) -> Option<Instant> {
        None
    }

    /// The time has come for something that was held back.
    fn release(&mut self, _now: Instant, _out: &mut Outputs) {}
}

/// Packets that wait to be sent.
#[derive(Debug, Default)]
pub struct Outputs {
    broker: Vec<u8>,
    clients: Vec<u8>,
}

/// A relay on a loopback port of its own. It ends, with all connections, when this is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    way: watch::Sender<Way>,
    listening: JoinHandle<()>,
}

/// Whether connections last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    is_open: bool,
    /// A connection lasts as long as no other cut follows.
    cuts: u64,
}

impl Relay {
    /// Listens, and connects to `broker` for every client, with a passage of its own. Of the
    /// options the address and the transport count. Must be called within a runtime.
    pub async fn start<P: Passage>(
        broker: impl Into<Options>,
        passage: impl FnMut() -> P + Send + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(BindTo::any_loopback_port().socket_address()).await?;
        let address = listener.local_addr()?;
        let way = watch::Sender::new(Way {
            is_open: true,
            cuts: 0,
        });
        let accepting = accept(listener, Arc::new(broker.into()), passage, way.subscribe());
        Ok(Self {
            address,
            way,
            listening: tokio::spawn(accepting),
        })
    }

    /// Where to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks every connection that there is.
    pub fn cut(&self) {
        self.way.send_modify(|way| way.cuts += 1);
    }

    /// Breaks every connection, and each new one at once.
    pub fn close(&self) {
        self.way.send_modify(|way| {
            way.is_open = false;
            way.cuts += 1;
        });
    }

    /// Lets connections come about again.
    pub fn open(&self) {
        self.way.send_modify(|way| way.is_open = true);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Outputs {
    /// Sends these whole packets.
    pub fn send(&mut self, towards: Towards, packets: &[u8]) {
        self.to(towards).extend_from_slice(packets);
    }

    /// The packets that wait, for more to be appended.
    pub fn to(&mut self, towards: Towards) -> &mut Vec<u8> {
        match towards {
            Towards::Broker => &mut self.broker,
            Towards::Clients => &mut self.clients,
        }
    }
}

impl Towards {
    /// The other way.
    #[must_use]
    pub fn back(self) -> Self {
        match self {
            Self::Broker => Self::Clients,
            Self::Clients => Self::Broker,
        }
    }
}

async fn accept<P: Passage>(
    listener: TcpListener,
    broker: Arc<Options>,
    mut passage: impl FnMut() -> P,
    way: watch::Receiver<Way>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // A failed accept is that client's loss, and it will try again.
                let Ok((client, _)) = accepted else { continue };
                let mut way = way.clone();
                let Way { is_open, cuts } = *way.borrow();
                if !is_open {
                    continue;
                }
                let (broker, passage) = (Arc::clone(&broker), passage());
                connections.spawn(async move {
                    tokio::select! {
                        // However it ends, both peers see their connection close.
                        _ = relay(client, &broker, passage) => {}
                        _ = way.wait_for(|way| way.cuts > cuts) => {}
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn relay(client: TcpStream, broker: &Options, passage: impl Passage) -> io::Result<()> {
    let broker = driver::open(broker).await.map_err(io::Error::other)?;
    client.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_broker, to_broker) = tokio::io::split(broker);
    let connection = Connection {
        state: Mutex::new((passage, Outputs::default())),
        to_broker: Notify::new(),
        to_clients: Notify::new(),
    };
    tokio::try_join!(
        pass(from_client, to_broker, Towards::Broker, &connection),
        pass(from_broker, to_client, Towards::Clients, &connection),
    )
    .map(drop)
}

/// What the two ways of a connection share.
struct Connection<P> {
    state: Mutex<(P, Outputs)>,
    /// The other way has something for this one.
    to_broker: Notify,
    to_clients: Notify,
}

impl<P> Connection<P> {
    fn more(&self, towards: Towards) -> &Notify {
        match towards {
            Towards::Broker => &self.to_broker,
            Towards::Clients => &self.to_clients,
        }
    }

    /// After a panic in a passage the connection ends with it.
    fn state(&self) -> MutexGuard<'_, (P, Outputs)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn pass<P: Passage>(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    towards: Towards,
    connection: &Connection<P>,
) -> io::Result<()> {
    let mut input = Vec::new();
    loop {
        let release = connection.state().0.release_at();
        input.reserve(READ_BYTES);
        tokio::select! {
            read = from.read_buf(&mut input) => if read? == 0 {
                return to.shutdown().await;
            },
            () = sleep_until(release) => {}
            () = connection.more(towards).notified() => {}
        }
        let (packets, taken) = {
            let mut state = connection.state();
            let (passage, out) = &mut *state;
            let now = Instant::now();
            if passage.release_at().is_some_and(|at| at <= now) {
                passage.release(now, out);
            }
            let taken = take_packets(&mut input, |frame| passage.handle(towards, frame, out));
            if !out.to(towards.back()).is_empty() {
                connection.more(towards.back()).notify_one();
            }
            (std::mem::take(out.to(towards)), taken)
        };
        to.write_all(&packets).await?;
        to.flush().await?;
        taken?;
    }
}

/// Gives every whole packet.
fn take_packets(input: &mut Vec<u8>, mut each: impl FnMut(Frame<'_>)) -> io::Result<()> {
    let mut used = 0;
    while let Some(frame) = next_frame(input.get(used..).unwrap_or_default(), RELAYED_PACKET_BYTES)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?
    {
        used += frame.bytes.len();
        each(frame);
    }
    input.drain(..used);
    Ok(())
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}
