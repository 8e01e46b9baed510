//! A client of MQTT 3.1.1 that says what the benchmarks need and nothing else.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// A connection. Errors are those of the socket; a wrong answer is `InvalidData`.
pub(crate) struct Client {
    stream: TcpStream,
    /// Bytes of answers that were not taken yet.
    answers: usize,
}

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_mins(1);
/// Messages that are sent before their acknowledgements are looked at.
const AHEAD: u16 = 10_000;
const CONNACK: usize = 4;
const SUBACK: usize = 5;
const PUBACK: usize = 4;

impl Client {
    /// A session that stays and has this filter at QoS 1. Its CONNACK and SUBACK are not awaited.
    pub(crate) fn subscribing(target: SocketAddr, id: &str, filter: &str) -> io::Result<Self> {
        let mut client = Self::connect(target, id, false)?;
        let body = [&[0, 1][..], &string(filter), &[1]].concat();
        client.stream.write_all(&packet(0x82, &body))?;
        client.answers += SUBACK;
        Ok(client)
    }

    /// A session that ends with its connection. Returns when it is greeted.
    pub(crate) fn passing(target: SocketAddr, id: &str) -> io::Result<Self> {
        let mut client = Self::connect(target, id, true)?;
        client.take_answers()?;
        Ok(client)
    }

    /// Asks for what matches these filters at QoS 0, each in a packet of its own. Returns when all
    /// are granted; what comes for them then is not read.
    pub(crate) fn subscribe(&mut self, filters: impl Iterator<Item = String>) -> io::Result<()> {
        let mut packets = Vec::new();
        for filter in filters {
            let body = [&[0, 1][..], &string(&filter), &[0]].concat();
            packets.extend(packet(0x82, &body));
            self.answers += SUBACK;
        }
        self.stream.write_all(&packets)?;
        self.take_answers()
    }

    /// Comes back to a session that stayed; returns when it is greeted.
    pub(crate) fn returning(target: SocketAddr, id: &str) -> io::Result<Self> {
        let mut client = Self::connect(target, id, false)?;
        let mut connack = [0; CONNACK];
        client.stream.read_exact(&mut connack)?;
        client.answers = 0;
        if connack != [0x20, 2, 1, 0] {
            let text = format!("no session of {id} is here: CONNACK {connack:?}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(client)
    }

    pub(crate) fn publishing(target: SocketAddr) -> io::Result<Self> {
        Self::passing(target, "publisher")
    }

    fn connect(target: SocketAddr, id: &str, clean: bool) -> io::Result<Self> {
        let mut stream = TcpStream::connect(target)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let head = [b"\0\x04MQTT\x04".as_slice(), &[u8::from(clean) << 1, 0, 0]].concat();
        stream.write_all(&packet(0x10, &[head, string(id)].concat()))?;
        Ok(Self {
            stream,
            answers: CONNACK,
        })
    }

    /// Publishes this so often at QoS 1; returns when all is acknowledged.
    pub(crate) fn publish(&mut self, topic: &str, payload: &[u8], count: u32) -> io::Result<()> {
        let message = |id: u16| {
            let body = [&string(topic)[..], &id.to_be_bytes(), payload].concat();
            packet(0x32, &body)
        };
        let most = u32::from(AHEAD).min(count);
        let blocks: Vec<u8> = (1..=AHEAD).take(most as usize).flat_map(message).collect();
        let mut left = count;
        while left > 0 {
            let now = left.min(most);
            let bytes = blocks.len() / most as usize * now as usize;
            self.stream.write_all(&blocks[..bytes])?;
            self.answers += PUBACK * now as usize;
            self.take_answers()?;
            left -= now;
        }
        Ok(())
    }

    /// Publishes this at QoS 0.
    pub(crate) fn send(&mut self, topic: &str, payload: &[u8]) -> io::Result<()> {
        let body = [&string(topic)[..], payload].concat();
        self.stream.write_all(&packet(0x30, &body))
    }

    /// Fails unless the broker answers, and nothing else comes before that.
    pub(crate) fn ping(&mut self) -> io::Result<()> {
        self.stream.write_all(&[0xc0, 0])?;
        let mut answer = [0; 2];
        self.stream.read_exact(&mut answer)?;
        if answer != [0xd0, 0] {
            let text = format!("{answer:02x?} came instead of PINGRESP");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(())
    }

    /// Waits for a PUBLISH and returns its body: topic, packet id and payload.
    pub(crate) fn next_message(&mut self) -> io::Result<Vec<u8>> {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head)?;
        if head[0] & 0xf0 != 0x30 || head[1] >= 0x80 {
            let text = format!("{head:02x?} begins no short PUBLISH");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let mut body = vec![0; head[1].into()];
        self.stream.read_exact(&mut body)?;
        Ok(body)
    }

    /// Takes the answers that are due, and disconnects.
    pub(crate) fn leave(mut self) -> io::Result<()> {
        self.take_answers()?;
        self.stream.write_all(&[0xe0, 0])
    }

    fn take_answers(&mut self) -> io::Result<()> {
        let mut answers = vec![0; std::mem::take(&mut self.answers)];
        self.stream.read_exact(&mut answers)
    }
}

/// A body of less than 16 KiB.
fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes();
    let mut packet = vec![first];
    if high == 0 && low < 0x80 {
        packet.push(low);
    } else {
        packet.extend([low | 0x80, high << 1 | low >> 7]);
    }
    packet.extend_from_slice(body);
    packet
}

fn string(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes()[..], text.as_bytes()].concat()
}
