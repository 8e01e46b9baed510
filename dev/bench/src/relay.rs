//! The floor: a relay that reads a frame's length and forwards the frame, and for tests, one that
//! does it badly on purpose.
//!
//! It accepts every CONNECT and SUBSCRIBE, knows exact topics and QoS 0, reads each readable socket
//! once a turn and writes each receiver once a turn. Deliberately absent: everything else a broker
//! does, checks included; it must not be reachable from outside.

use mio::{
    Events, Interest, Poll, Token,
    net::{TcpListener, TcpStream},
};
use slab::Slab;
use std::{
    collections::HashMap,
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// What happens to one message on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Pass,
    /// It does not.
    Lose,
    /// It arrives twice.
    Repeat,
    /// It arrives after the next one.
    Overtake,
    /// Its last byte arrives changed.
    Damage,
}

const LISTENER: Token = Token(usize::MAX);
const BUFFER: usize = 256 << 10;
/// How long a turn waits before it looks whether it is to end.
const TURN: Duration = Duration::from_millis(50);

/// A relay that listens.
#[derive(Debug)]
pub struct Relay {
    poll: Poll,
    listener: TcpListener,
    links: Slab<Link>,
    receivers: HashMap<Vec<u8>, Vec<usize>>,
    /// Messages to be sent after the next one.
    overtaken: Vec<(usize, Vec<u8>)>,
    dirty: Vec<usize>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Link {
    socket: TcpStream,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    dirty: bool,
}

impl Relay {
    /// Listens on the loopback; port 0 picks one.
    pub fn bind(port: u16) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port).into())?;
        poll.registry()
            .register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self {
            poll,
            listener,
            links: Slab::new(),
            receivers: HashMap::new(),
            overtaken: Vec::new(),
            dirty: Vec::new(),
            buffer: vec![0; BUFFER],
        })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Relays until told to stop. `rest` is slept after each turn; `fate` decides what becomes of
    /// each message to each receiver.
    pub fn run(
        mut self,
        rest: Duration,
        stop: &AtomicBool,
        mut fate: impl FnMut() -> Fate,
    ) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        while !stop.load(Ordering::Relaxed) {
            match self.poll.poll(&mut events, Some(TURN)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept()?,
                    Token(key) => {
                        if event.is_writable() {
                            self.touch(key);
                        }
                        while event.is_readable() && self.read(key, &mut fate) {}
                    }
                }
            }
            self.flush();
            if !rest.is_zero() {
                thread::sleep(rest);
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let mut socket = match self.listener.accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                other => other?.0,
            };
            socket.set_nodelay(true)?;
            let entry = self.links.vacant_entry();
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll
                .registry()
                .register(&mut socket, Token(entry.key()), interest)?;
            entry.insert(Link {
                socket,
                inbox: Vec::new(),
                outbox: Vec::new(),
                dirty: false,
            });
        }
    }

    /// Reads once; true if there may be more.
    fn read(&mut self, key: usize, fate: &mut impl FnMut() -> Fate) -> bool {
        let Some(link) = self.links.get_mut(key) else {
            return false;
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = link.socket.read(&mut buffer);
        let (more, open) = match read {
            Ok(0) => (false, false),
            Ok(read) => {
                let mut bytes = std::mem::take(&mut link.inbox);
                let used = if bytes.is_empty() {
                    let used = self.relay(key, &buffer[..read], fate);
                    bytes.extend_from_slice(&buffer[used..read]);
                    0
                } else {
                    bytes.extend_from_slice(&buffer[..read]);
                    self.relay(key, &bytes, fate)
                };
                bytes.drain(..used);
                if let Some(link) = self.links.get_mut(key) {
                    link.inbox = bytes;
                }
                (read == buffer.len(), true)
            }
            Err(error) => (false, error.kind() == io::ErrorKind::WouldBlock),
        };
        self.buffer = buffer;
        if !open {
            self.links.try_remove(key);
            self.receivers
                .values_mut()
                .for_each(|keys| keys.retain(|other| *other != key));
        }
        more
    }

    /// Handles whole frames and returns how many bytes they took.
    fn relay(&mut self, key: usize, bytes: &[u8], fate: &mut impl FnMut() -> Fate) -> usize {
        let mut at = 0;
        while let Some((header, length)) = frame_length(&bytes[at..]) {
            let frame = &bytes[at..at + length];
            self.on_frame(key, frame, &frame[header..], fate);
            at += length;
        }
        at
    }

    fn on_frame(&mut self, key: usize, frame: &[u8], body: &[u8], fate: &mut impl FnMut() -> Fate) {
        match frame[0] >> 4 {
            1 => self.send(key, &[0x20, 2, 0, 0]),
            3 => self.publish(frame, body, fate),
            8 => self.subscribe(key, body),
            _ => {}
        }
    }

    fn subscribe(&mut self, key: usize, body: &[u8]) {
        let Some((id, mut rest)) = body.split_first_chunk::<2>() else {
            return;
        };
        let mut granted = Vec::new();
        while let Some((topic, after)) = string(rest) {
            self.receivers.entry(topic.to_vec()).or_default().push(key);
            granted.push(0);
            rest = after.get(1..).unwrap_or_default();
        }
        // The relay is for a filter or two a packet, so one length byte is enough.
        let length = u8::try_from(granted.len() + 2).unwrap_or(0x7F);
        self.send(key, &[&[0x90, length], &id[..], &granted].concat());
    }

    fn publish(&mut self, frame: &[u8], body: &[u8], fate: &mut impl FnMut() -> Fate) {
        let Some((topic, _)) = string(body) else {
            return;
        };
        let Some(keys) = self.receivers.get_mut(topic).map(std::mem::take) else {
            return;
        };
        for key in &keys {
            let fate = fate();
            let overtaken = std::mem::take(&mut self.overtaken);
            match fate {
                Fate::Pass => self.send(*key, frame),
                Fate::Lose => {}
                Fate::Repeat => self.send(*key, &[frame, frame].concat()),
                Fate::Overtake => self.overtaken.push((*key, frame.to_vec())),
                Fate::Damage => {
                    let mut damaged = frame.to_vec();
                    damaged.last_mut().into_iter().for_each(|byte| *byte ^= 1);
                    self.send(*key, &damaged);
                }
            }
            for (key, frame) in overtaken {
                self.send(key, &frame);
            }
        }
        if let Some(place) = self.receivers.get_mut(topic) {
            *place = keys;
        }
    }

    fn send(&mut self, key: usize, bytes: &[u8]) {
        if let Some(link) = self.links.get_mut(key) {
            link.outbox.extend_from_slice(bytes);
            self.touch(key);
        }
    }

    fn touch(&mut self, key: usize) {
        if let Some(link) = self
            .links
            .get_mut(key)
            .filter(|link| !link.dirty && !link.outbox.is_empty())
        {
            link.dirty = true;
            self.dirty.push(key);
        }
    }

    fn flush(&mut self) {
        for key in self.dirty.drain(..) {
            let Some(link) = self.links.get_mut(key) else {
                continue;
            };
            link.dirty = false;
            // Errors show up as an end when the socket is read.
            if let Ok(written) = link.socket.write(&link.outbox) {
                link.outbox.drain(..written);
            }
        }
    }
}

/// Length of the header and of the whole frame at the front, if it is complete.
fn frame_length(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut length = 0;
    for (index, byte) in bytes.iter().skip(1).take(4).enumerate() {
        length |= usize::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            let header = index + 2;
            return (bytes.len() >= header + length).then_some((header, header + length));
        }
    }
    None
}

fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}
