//! A client of MQTT 3.1.1 that says what the benchmarks need and nothing else.

use std::{
    io::{self, BufReader, Read, Write},
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
const READ_BYTES: usize = 64 * 1024;

impl Client {
    /// A session that stays and has this filter at QoS 1. Its CONNACK and SUBACK are not awaited.
    pub(crate) fn subscribing(target: SocketAddr, id: &str, filter: &str) -> io::Result<Self> {
        let mut client = Self::connect(target, id, false)?;
        let body = [&[0, 1][..], &string(filter), &[1]].concat();
        client.stream.write_all(&packet(0x82, &body))?;
        client.answers += SUBACK;
        Ok(client)
    }

    /// The same when it is greeted and granted what it asked for.
    pub(crate) fn answered(mut self) -> io::Result<Self> {
        self.take_answers()?;
        Ok(self)
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
            return Err(not_expected(text));
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

    /// Publishes these at QoS 1; returns when all are acknowledged.
    pub(crate) fn publish(
        &mut self,
        topic: &str,
        payloads: impl IntoIterator<Item: AsRef<[u8]>>,
    ) -> io::Result<()> {
        let topic = string(topic);
        let mut payloads = payloads.into_iter();
        loop {
            let mut packets = Vec::new();
            for (id, payload) in (1..=AHEAD).zip(&mut payloads) {
                let body = [&topic[..], &id.to_be_bytes(), payload.as_ref()].concat();
                packets.extend(packet(0x32, &body));
                self.answers += PUBACK;
            }
            if packets.is_empty() {
                return Ok(());
            }
            self.stream.write_all(&packets)?;
            self.take_answers()?;
        }
    }

    /// Publishes this at QoS 0.
    pub(crate) fn send(&mut self, topic: &str, payload: &[u8]) -> io::Result<()> {
        let body = [&string(topic)[..], payload].concat();
        self.stream.write_all(&packet(0x30, &body))
    }

    /// To take what is sent to it, once all its answers have come.
    pub(crate) fn messages(self) -> Messages {
        Messages {
            stream: BufReader::with_capacity(READ_BYTES, self.stream),
            acknowledgements: Vec::new(),
        }
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

/// The messages of a connection in the order in which they come. Each is acknowledged.
pub(crate) struct Messages {
    stream: BufReader<TcpStream>,
    /// PUBACKs that are sent before the next wait.
    acknowledgements: Vec<u8>,
}

impl Messages {
    /// Fails unless the broker answers behind the messages that it had sent or has yet to send;
    /// none is acknowledged. That a connection is closed can be seen only behind them: its end
    /// waits, as they do, until somebody reads.
    pub(crate) fn ping_behind(&mut self) -> io::Result<()> {
        self.stream.get_mut().write_all(&[0xc0, 0])?;
        loop {
            match self.packet()? {
                (0xd0, _) => return Ok(()),
                (first, _) if first & 0xf0 == 0x30 => {}
                (first, _) => {
                    return Err(not_expected(format!("{first:#04x} begins no PINGRESP")));
                }
            }
        }
    }

    /// Waits for a PUBLISH and returns its topic and payload.
    pub(crate) fn next(&mut self) -> io::Result<(Vec<u8>, Vec<u8>)> {
        if self.stream.buffer().is_empty() {
            self.stream.get_mut().write_all(&self.acknowledgements)?;
            self.acknowledgements.clear();
        }
        let (first, body) = self.packet()?;
        let quality = first >> 1 & 3;
        let (0x30, 0 | 1, Some((topic, rest))) = (first & 0xf0, quality, split_string(&body))
        else {
            return Err(not_expected(format!(
                "{first:#04x} begins no PUBLISH of QoS 0 or 1"
            )));
        };
        let Some((id, payload)) = rest.split_at_checked(2 * usize::from(quality)) else {
            return Err(not_expected("a PUBLISH without a packet id".to_owned()));
        };
        if !id.is_empty() {
            self.acknowledgements.extend(packet(0x40, id));
        }
        Ok((topic.to_vec(), payload.to_vec()))
    }

    /// Fails unless the broker answers, and nothing else comes before that.
    pub(crate) fn ping(&mut self) -> io::Result<()> {
        self.stream.get_mut().write_all(&[0xc0, 0])?;
        match self.array()? {
            [0xd0, 0] => Ok(()),
            answer => Err(not_expected(format!(
                "{answer:02x?} came instead of PINGRESP"
            ))),
        }
    }

    /// The first byte of the next packet, and its body.
    fn packet(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let [first] = self.array()?;
        let mut length = 0;
        for shift in [0, 7, 14, 21] {
            let [byte] = self.array()?;
            length |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((first, body))
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

fn not_expected(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// A string and what comes after it.
fn split_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u16::from_be_bytes(*length).into())
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpListener, thread};

    /// Sends two messages and then these bytes to a client that reads nothing meanwhile, and closes
    /// the connection.
    fn pinged(last: &'static [u8]) -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let target = listener.local_addr()?;
        let broker = thread::spawn(move || {
            let (mut stream, _) = listener.accept()?;
            let mut connect = vec![0; packet(0x10, b"\0\x04MQTT\x04\x02\0\0\0\x06silent").len()];
            stream.read_exact(&mut connect)?;
            stream.write_all(&[0x20, 2, 0, 0])?;
            let message = packet(0x30, &string("a"));
            stream.write_all(&[&message[..], &message].concat())?;
            if !last.is_empty() {
                stream.read_exact(&mut [0; 2])?;
            }
            stream.write_all(last)
        });
        let silent = Client::passing(target, "silent")?;
        if last.is_empty() {
            broker.join().unwrap()?;
            silent.messages().ping_behind()
        } else {
            let answered = silent.messages().ping_behind();
            broker.join().unwrap()?;
            answered
        }
    }

    #[test]
    fn whether_a_connection_is_there_is_seen_behind_unread_messages() {
        assert!(pinged(&[0xd0, 0]).is_ok());
        assert!(pinged(&[]).is_err());
        assert!(pinged(&[0x90, 0]).is_err());
    }
}
