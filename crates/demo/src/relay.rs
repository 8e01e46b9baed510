//! A relay between MQTT peers that injects faults into messages on one of its two ways, and reports
//! exactly which.
//!
//! It keeps the sessions on both sides alive: whatever an injected fault takes away or adds,
//! acknowledgements still add up for both peers. All that is not injected passes byte for byte,
//! whole packets at a time. It can also cut the network: every connection breaks and none comes
//! about until it is mended.
//!
//! Faults are injected on order ([`Relay::inject`]: into the next message that can have it) or by a
//! script ([`Relay::script`]: the n-th one), and written down as they are given.
//!
//! **Deliberately absent:** TLS, and anything about messages without an audit property, since
//! nobody could name what was done to them.

mod injector;
mod orders;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use unbroken_client::ConnectTo;
use unbroken_mqtt_proto::{Connect, Frame, Version, next_frame};

use self::injector::Injector;
use self::orders::Orders;
use crate::injection::{Injected, Injection};
use crate::limits::{PACKET_BYTES_MAX, READ_BYTES};

pub use self::orders::TooManyOrders;

/// Which of a relay's two ways is injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Towards {
    /// What clients send to the broker.
    Broker,
    /// What the broker sends to clients.
    Clients,
}

/// A relay on a loopback port of its own; it ends when this is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    is_cut: watch::Sender<bool>,
    listening: JoinHandle<()>,
}

/// What all connections of a relay share.
#[derive(Debug)]
struct Shared {
    towards: Towards,
    orders: Mutex<Orders>,
}

impl Relay {
    /// Listens, and connects to `broker` for everybody who connects. Must be called within a
    /// runtime.
    pub async fn start(broker: impl Into<ConnectTo>, towards: Towards) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            towards,
            orders: Mutex::default(),
        });
        let is_cut = watch::Sender::new(false);
        let accepting = accept(
            listener,
            broker.into(),
            Arc::clone(&shared),
            is_cut.subscribe(),
        );
        Ok(Self {
            address,
            shared,
            is_cut,
            listening: tokio::spawn(accepting),
        })
    }

    /// Where to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Injects this fault into the next message that can have it.
    pub fn inject(&self, injection: Injection) -> Result<(), TooManyOrders> {
        self.shared.orders().give(injection)
    }

    /// Injects this fault into the `at`-th audited message (from 0, first copies only), or the
    /// first one behind it that can have it.
    pub fn script(&self, at: u64, injection: Injection) -> Result<(), TooManyOrders> {
        self.shared.orders().schedule(at, injection)
    }

    /// From now on one checkpoint in so many is lost on topics that begin with `prefix`; `None`
    /// stops it.
    pub fn lose_checkpoints(&self, prefix: &str, one_in: Option<NonZeroU32>) {
        self.shared.orders().lose_checkpoints(prefix, one_in);
    }

    /// The faults injected since the last call, in order.
    pub fn take_injected(&self) -> Vec<Injected> {
        self.shared.orders().take_done()
    }

    /// Those of them that nobody saw, since the last call: the connection ended before the receiver
    /// had acknowledged the message, so its sender sends it again. Each is ordered anew.
    pub fn take_undone(&self) -> Vec<Injected> {
        self.shared.orders().take_undone()
    }

    /// Injections ordered and not given yet.
    pub fn pending(&self) -> usize {
        self.shared.orders().pending()
    }

    /// Breaks every connection; none comes about until [`Relay::mend`].
    pub fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    /// Lets connections come about again.
    pub fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Shared {
    fn orders(&self) -> MutexGuard<'_, Orders> {
        held(&self.orders)
    }
}

async fn accept(
    listener: TcpListener,
    broker: ConnectTo,
    shared: Arc<Shared>,
    is_cut: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // A failed accept is that client's loss, and it will try again.
                let Ok((client, _)) = accepted else { continue };
                let (shared, mut is_cut) = (Arc::clone(&shared), is_cut.clone());
                let broker = broker.clone();
                connections.spawn(async move {
                    if *is_cut.borrow() {
                        return;
                    }
                    let injector = Mutex::new(Injector::new());
                    tokio::select! {
                        // However it ends, both peers see their connection close.
                        _ = relay(client, &broker, &shared, &injector) => {}
                        _ = is_cut.wait_for(|is_cut| *is_cut) => {}
                    }
                    let injector = injector.into_inner().unwrap_or_else(PoisonError::into_inner);
                    injector.abandon(&mut shared.orders());
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn relay(
    client: TcpStream,
    broker: &ConnectTo,
    shared: &Shared,
    injector: &Mutex<Injector>,
) -> io::Result<()> {
    let broker = TcpStream::connect((broker.host(), broker.port())).await?;
    client.set_nodelay(true)?;
    broker.set_nodelay(true)?;
    let ((from_client, to_client), (from_broker, to_broker)) =
        (client.into_split(), broker.into_split());
    let (up, down) = ((from_client, to_broker), (from_broker, to_client));
    let (injected, whole) = match shared.towards {
        Towards::Broker => (up, down),
        Towards::Clients => (down, up),
    };
    let connection = Connection::default();
    tokio::try_join!(
        injected_way(injected, &connection, shared, injector),
        whole_way(whole, &connection, shared, injector),
    )
    .map(drop)
}

/// From where to where.
type Way = (OwnedReadHalf, OwnedWriteHalf);

/// What the two ways of a connection tell each other.
#[derive(Debug, Default)]
struct Connection {
    /// As its CONNECT has it.
    version: OnceLock<Version>,
    /// Packets of the relay's own for the sender on the injected way.
    back: Inserted,
    /// And for the receiver.
    onward: Inserted,
}

/// Packets that go out between two others.
#[derive(Debug, Default)]
struct Inserted {
    packets: Mutex<Vec<u8>>,
    more: Notify,
}

impl Connection {
    fn note(&self, frame: Frame<'_>) {
        if self.version.get().is_none()
            && let Some(version) = Connect::claimed_version(frame)
        {
            // Nobody else sets it: only one way has a CONNECT.
            let _ = self.version.set(version);
        }
    }
}

impl Inserted {
    fn add(&self, packets: &mut Vec<u8>) {
        if !packets.is_empty() {
            held(&self.packets).append(packets);
            self.more.notify_one();
        }
    }

    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *held(&self.packets))
    }
}

/// What is locked here is whole after every statement, so a panic elsewhere harms nothing.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn injected_way(
    (mut from, mut to): Way,
    connection: &Connection,
    shared: &Shared,
    injector: &Mutex<Injector>,
) -> io::Result<()> {
    let mut packets = Packets::default();
    let (mut onward, mut back) = (Vec::new(), Vec::new());
    loop {
        let release = held(injector).release_at();
        tokio::select! {
            more = packets.read(&mut from) => if !more? {
                return to.shutdown().await;
            },
            () = sleep_until(release) => {}
            () = connection.onward.more.notified() => {}
        }
        onward.append(&mut connection.onward.take());
        let taken = {
            let (mut orders, mut injector) = (shared.orders(), held(injector));
            let now = Instant::now();
            injector.release(&mut orders, now, &mut onward);
            packets.take(|frame| {
                connection.note(frame);
                let version = connection.version.get().copied();
                injector.handle(frame, version, &mut orders, now, &mut onward, &mut back);
            })
        };
        connection.back.add(&mut back);
        to.write_all(&onward).await?;
        onward.clear();
        taken?;
    }
}

async fn whole_way(
    (mut from, mut to): Way,
    connection: &Connection,
    shared: &Shared,
    injector: &Mutex<Injector>,
) -> io::Result<()> {
    let mut packets = Packets::default();
    let (mut onward, mut seconds) = (Vec::new(), Vec::new());
    loop {
        tokio::select! {
            more = packets.read(&mut from) => if !more? {
                return to.shutdown().await;
            },
            () = connection.back.more.notified() => {}
        }
        let taken = {
            let (mut orders, mut injector) = (shared.orders(), held(injector));
            let now = Instant::now();
            packets.take(|frame| {
                connection.note(frame);
                let version = connection.version.get().copied();
                match injector.acknowledged(frame, version, &mut orders, now) {
                    Some(second) => seconds.extend(second),
                    None => onward.extend_from_slice(frame.bytes),
                }
            })
        };
        connection.onward.add(&mut seconds);
        onward.append(&mut connection.back.take());
        to.write_all(&onward).await?;
        onward.clear();
        taken?;
    }
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

/// Bytes of one way, and the whole packets at their front.
#[derive(Debug, Default)]
struct Packets {
    bytes: Vec<u8>,
}

impl Packets {
    /// Reads what is there; false at the end. Dropped half-way, it has read nothing.
    async fn read(&mut self, from: &mut OwnedReadHalf) -> io::Result<bool> {
        self.bytes.reserve(READ_BYTES);
        Ok(from.read_buf(&mut self.bytes).await? > 0)
    }

    /// Gives every whole packet. What is no MQTT ends the connection, as does a packet beyond the
    /// limit.
    fn take(&mut self, mut each: impl FnMut(Frame<'_>)) -> io::Result<()> {
        let mut at = 0;
        while let Some(frame) = next_frame(&self.bytes[at..], PACKET_BYTES_MAX)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?
        {
            at += frame.bytes.len();
            each(frame);
        }
        self.bytes.drain(..at);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
