//! An SP peer that writes and reads bytes by hand, and gateways of a broker by their names.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use unbroken_acceptance::{Broker, DEADLINE};

pub(crate) const PUB: u8 = 0x20;
pub(crate) const SUB: u8 = 0x21;
pub(crate) const REQ: u8 = 0x30;
pub(crate) const REP: u8 = 0x31;
pub(crate) const PUSH: u8 = 0x50;
pub(crate) const PULL: u8 = 0x51;

/// Where the gateway of this name listens.
#[track_caller]
pub(crate) fn gateway(broker: &Broker, name: &str) -> SocketAddr {
    let line = broker.wait_for_log(&format!(") as {name}"));
    let address = line
        .strip_prefix("listening on ")
        .and_then(|rest| rest.split(' ').next());
    let address = address.unwrap_or_else(|| panic!("{line:?} names no address"));
    address.parse().expect("it is an address")
}

/// What an SP socket of this kind sends first.
pub(crate) fn header(kind: u8) -> [u8; 8] {
    [0, b'S', b'P', 0, 0, kind, 0, 0]
}

/// A connection of a peer.
pub(crate) struct Peer {
    stream: TcpStream,
}

impl Peer {
    /// Connects, and says nothing.
    #[track_caller]
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::of(TcpStream::connect(address).expect("the gateway listens"))
    }

    /// The same from another address of this machine: all of 127.0.0.0/8 are.
    #[track_caller]
    pub(crate) fn open_from(source: Ipv4Addr, address: SocketAddr) -> Self {
        let open = || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.bind(&SocketAddr::from((source, 0)).into())?;
            socket.connect_timeout(&address.into(), DEADLINE)?;
            io::Result::Ok(socket.into())
        };
        Self::of(open().expect("the gateway listens"))
    }

    /// Connects from there with a socket of this kind, and waits for the gateway's header.
    #[track_caller]
    pub(crate) fn connect_from(source: Ipv4Addr, address: SocketAddr, kind: u8) -> Self {
        let mut peer = Self::open_from(source, address);
        peer.greet(kind);
        peer
    }

    /// Connects with a socket of this kind, and waits for the gateway's header.
    #[track_caller]
    pub(crate) fn connect(address: SocketAddr, kind: u8) -> Self {
        let mut peer = Self::open(address);
        peer.greet(kind);
        peer
    }

    /// As above, and the gateway has seen it (its log is at level debug).
    #[track_caller]
    pub(crate) fn join(broker: &Broker, name: &str, kind: u8) -> Self {
        let peer = Self::connect(gateway(broker, name), kind);
        broker.wait_for_log(&format!(
            "sp peer connected gateway={name} peer={}",
            peer.address()
        ));
        peer
    }

    /// Disconnects, and the gateway has seen it.
    #[track_caller]
    pub(crate) fn leave(self, broker: &Broker, name: &str) {
        let address = self.address();
        drop(self);
        broker.wait_for_log(&format!("sp peer left gateway={name} peer={address}"));
    }

    fn address(&self) -> SocketAddr {
        self.stream.local_addr().expect("it is connected")
    }

    /// The next connection of a gateway.
    #[track_caller]
    pub(crate) fn accept(listener: &TcpListener, kind: u8) -> Self {
        let mut peer = Self::of(listener.accept().expect("the gateway connects").0);
        peer.greet(kind);
        peer
    }

    fn of(stream: TcpStream) -> Self {
        stream
            .set_read_timeout(Some(DEADLINE))
            .expect("it is not zero");
        stream
            .set_write_timeout(Some(DEADLINE))
            .expect("it is not zero");
        Self { stream }
    }

    #[track_caller]
    fn greet(&mut self, kind: u8) {
        self.write(&header(kind));
        // The lowest bit tells the two kinds of a pair apart.
        assert_eq!(self.read(8), header(kind ^ 1));
    }

    #[track_caller]
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the gateway reads");
    }

    #[track_caller]
    pub(crate) fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream
            .read_exact(&mut bytes)
            .expect("the gateway writes");
        bytes
    }

    #[track_caller]
    pub(crate) fn send(&mut self, body: &[u8]) {
        self.write(&[&(body.len() as u64).to_be_bytes(), body].concat());
    }

    /// Until the gateway takes no more for a while.
    pub(crate) fn send_while_taken(&mut self, bodies: impl IntoIterator<Item = Vec<u8>>) {
        let patience = Some(Duration::from_millis(500));
        let set = self.stream.set_write_timeout(patience);
        set.expect("it is not zero");
        for body in bodies {
            let frame = [&(body.len() as u64).to_be_bytes(), &*body].concat();
            if self.stream.write_all(&frame).is_err() {
                return;
            }
        }
    }

    /// `None`: the gateway has ended the connection.
    pub(crate) fn receive_or_end(&mut self) -> Option<Vec<u8>> {
        let mut length = [0; 8];
        self.stream.read_exact(&mut length).ok()?;
        Some(self.read(usize::try_from(u64::from_be_bytes(length)).expect("it is short")))
    }

    #[track_caller]
    pub(crate) fn receive(&mut self) -> Vec<u8> {
        let length: [u8; 8] = self.read(8).try_into().expect("it has 8 bytes");
        self.read(usize::try_from(u64::from_be_bytes(length)).expect("it is short"))
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, body: impl AsRef<[u8]>) {
        let received = self.receive();
        assert_eq!(
            received,
            body.as_ref(),
            "{}",
            String::from_utf8_lossy(&received)
        );
    }

    /// Nothing more comes, and the connection ends.
    #[track_caller]
    pub(crate) fn expect_closed(mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        assert!(rest.is_empty() || rest.len() == 8, "{rest:02x?}");
    }
}
