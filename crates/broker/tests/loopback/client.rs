//! A client made of raw bytes: MQTT 5.0 by default, and no more of it than the tests
//! need.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

/// What a read of a packet can come to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// First byte and body.
    Packet(u8, Vec<u8>),
    /// The peer closed the connection in order.
    Closed,
}

impl Client {
    /// A connection on which nothing has been sent.
    pub(crate) fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            received: Vec::new(),
        }
    }

    /// A connection with a successful CONNACK.
    pub(crate) fn connect(address: SocketAddr, id: &str) -> Self {
        let mut client = Self::open(address);
        client.send(&connect(id));
        client.expect_connack(0);
        client
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn subscribe(&mut self, filter: &str) {
        self.send(&subscribe(filter));
        assert!(matches!(self.receive(), Received::Packet(0x90, _)));
    }

    pub(crate) fn expect_connack(&mut self, reason: u8) {
        match self.receive() {
            Received::Packet(0x20, body) => assert_eq!(body[1], reason),
            other => panic!("not CONNACK: {other:?}"),
        }
    }

    /// Waits until the broker has handled everything sent so far.
    pub(crate) fn ping(&mut self) {
        self.send(&[0xc0, 0]);
        assert_eq!(self.receive(), Received::Packet(0xd0, vec![]));
    }

    /// The next packet, which must be a PUBLISH at QoS 0, retained or not: its topic and payload.
    pub(crate) fn expect_message(&mut self) -> (String, Vec<u8>) {
        match self.receive() {
            Received::Packet(0x30 | 0x31, body) => {
                let topic = usize::from(body[0]) << 8 | usize::from(body[1]);
                let properties = usize::from(body[2 + topic]);
                let payload = body[2 + topic + 1 + properties..].to_vec();
                (
                    String::from_utf8(body[2..2 + topic].to_vec()).unwrap(),
                    payload,
                )
            }
            other => panic!("not PUBLISH: {other:?}"),
        }
    }

    /// Waits until something has come, and leaves it where it is.
    pub(crate) fn wait_for_bytes(&self) {
        assert!(self.received.is_empty());
        assert_eq!(self.stream.peek(&mut [0]).unwrap(), 1);
    }

    /// The next packet, or the end.
    pub(crate) fn receive(&mut self) -> Received {
        let mut chunk = vec![0; 64 * 1024];
        loop {
            if let Some((header, length)) = frame(&self.received) {
                let body = self.received[header..header + length].to_vec();
                let first = self.received[0];
                self.received.drain(..header + length);
                return Received::Packet(first, body);
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Received::Closed,
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("{error} after {:?}", self.received),
            }
        }
    }
}

fn frame(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut length = 0;
    for (index, byte) in bytes.iter().enumerate().skip(1) {
        length |= usize::from(byte & 0x7f) << (7 * (index - 1));
        if byte & 0x80 == 0 {
            return (bytes.len() > index + length).then_some((index + 1, length));
        }
    }
    None
}

pub(crate) fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![first];
    let mut length = body.len();
    loop {
        let byte = u8::try_from(length & 0x7f).unwrap();
        length >>= 7;
        packet.push(if length > 0 { byte | 0x80 } else { byte });
        if length == 0 {
            break;
        }
    }
    packet.extend_from_slice(body);
    packet
}

pub(crate) fn string(text: &str) -> Vec<u8> {
    let mut bytes = u16::try_from(text.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

pub(crate) fn connect(id: &str) -> Vec<u8> {
    packet(
        0x10,
        &[b"\0\x04MQTT\x05\x02\0\0\0".as_slice(), &string(id)].concat(),
    )
}

pub(crate) fn connect_as(id: &str, user: &str, password: &str) -> Vec<u8> {
    let header = b"\0\x04MQTT\x05\xc2\0\0\0".as_slice();
    packet(
        0x10,
        &[header, &string(id), &string(user), &string(password)].concat(),
    )
}

pub(crate) fn connect_with_will(id: &str, topic: &str) -> Vec<u8> {
    let header = b"\0\x04MQTT\x05\x06\0\0\0".as_slice();
    packet(
        0x10,
        &[header, &string(id), b"\0", &string(topic), &string("will")].concat(),
    )
}

pub(crate) fn subscribe(filter: &str) -> Vec<u8> {
    subscribe_at(filter, 0)
}

pub(crate) fn subscribe_at(filter: &str, qos: u8) -> Vec<u8> {
    packet(
        0x82,
        &[b"\0\x01\0".as_slice(), &string(filter), &[qos]].concat(),
    )
}

pub(crate) fn publish(topic: &str, payload: &[u8]) -> Vec<u8> {
    packet(0x30, &[&string(topic), b"\0".as_slice(), payload].concat())
}
