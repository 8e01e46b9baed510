//! Time, the two sides, what goes wrong, and what must have come of it in the end.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::RangeInclusive;

use unbroken_mqtt_proto::connection::{client, server};
use unbroken_mqtt_proto::{QoS, ReasonCode, Version};

use crate::Faults;
use crate::link::{Connection, Link, Packet, Rng, Side};
use crate::peer::{Message, Peer, Step};

/// Faults and new messages come until then, in ms.
const BUSY_MS: u64 = 120;
/// By then a world without faults has come to rest.
const END_MS: u64 = 20_000;

pub(crate) struct World {
    now: u64,
    rng: Rng,
    faults: Faults,
    link: Link,
    client: Peer,
    client_phase: client::Phase,
    server: Peer,
    server_phase: server::Phase,
    /// The server has the session that the client has. A CONNACK that says it is new must have
    /// arrived for that; MQTT has no answer to the loss of one, so this world knows by itself.
    session_known: bool,
    /// The client asks for a clean start until it gets one.
    clean: bool,
    /// When the client connects again.
    connect_at: u64,
    /// The client waits for CONNACK: its connection, and what it takes.
    connecting: Option<(Connection, u16)>,
    /// A CONNECT that waits for the server's disk: whether it said clean, and what the client
    /// takes.
    accepting: Option<(Connection, bool, u16)>,
    /// When each side learns that a connection broke.
    notices: Vec<(u64, Side, Connection)>,
    /// All messages, in order of publication, with the side that published.
    published: Vec<(Side, Message)>,
    /// Messages that need not arrive: their session ended, or they were not on disk.
    excused: BTreeSet<u32>,
    packets: Vec<(u64, Side, Packet)>,
}

impl World {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        let durable = faults.disk.is_some();
        Self {
            now: 0,
            rng: Rng(seed),
            link: Link::new(faults.delay.clone()),
            faults,
            client: Peer::new(durable),
            client_phase: client::Phase::Closed,
            server: Peer::new(durable),
            server_phase: server::Phase::Closed,
            session_known: false,
            clean: false,
            connect_at: 0,
            connecting: None,
            accepting: None,
            notices: Vec::new(),
            published: Vec::new(),
            excused: BTreeSet::new(),
            packets: Vec::new(),
        }
    }

    pub(crate) fn run(&mut self) {
        while self.now < BUSY_MS || !(self.client.is_at_rest() && self.server.is_at_rest()) {
            assert!(
                self.now < END_MS,
                "the two never come to rest: {}",
                self.left()
            );
            if self.now < BUSY_MS {
                self.go_wrong();
                self.publish();
            }
            self.notice();
            self.connect();
            for side in Side::BOTH {
                while let Some(packet) = self.link.take_due(side, self.now) {
                    self.receive(side, packet);
                }
                self.with(side, Peer::poll_disk);
                if self.peer(side).connection.is_some() {
                    self.with(side, Peer::pump);
                }
            }
            self.now += 1;
        }
        for side in Side::BOTH {
            self.check_received(side);
        }
    }

    fn go_wrong(&mut self) {
        if self.rng.per_mille(self.faults.cut) {
            self.cut();
        }
        if self.rng.per_mille(self.faults.crash) {
            let side = Side::BOTH[usize::from(self.rng.per_mille(500))];
            let before = self.peer(side).unfinished();
            self.peer(side).crash();
            let after = self.peer(side).unfinished();
            self.excused.extend(before.difference(&after));
            self.close(side);
            self.cut();
        }
        let server_idle = self.server.connection.is_none() && self.accepting.is_none();
        if server_idle && self.rng.per_mille(self.faults.session_end) {
            self.session_known = false;
            self.end_session(Side::Server);
        }
    }

    fn cut(&mut self) {
        if let Some(connection) = self.link.connection() {
            self.link.cut();
            for side in Side::BOTH {
                let at = self.now + self.rng.within(&(0..=15));
                self.notices.push((at, side, connection));
            }
        }
    }

    fn notice(&mut self) {
        let now = self.now;
        let due: Vec<_> = self.notices.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, side, connection) in due {
            let known = match side {
                Side::Client => self.connecting.map(|(opening, ..)| opening),
                Side::Server => self.accepting.map(|(opening, ..)| opening),
            };
            if known.or(self.peer(side).connection) == Some(connection) {
                self.close(side);
            }
        }
    }

    /// One side has no connection any more.
    fn close(&mut self, side: Side) {
        self.peer(side).disconnected();
        match side {
            Side::Client => {
                self.client_phase = client::Phase::Closed;
                self.connecting = None;
                self.connect_at = self.now + self.rng.within(&(0..=15));
            }
            Side::Server => {
                self.server_phase = server::Phase::Closed;
                self.accepting = None;
            }
        }
    }

    fn end_session(&mut self, side: Side) {
        let given_up = self.peer(side).end_session();
        self.excused.extend(given_up);
    }

    fn connect(&mut self) {
        let idle = self.client.connection.is_none() && self.connecting.is_none();
        if idle && self.now >= self.connect_at && self.client.disk_is_idle() {
            if self.rng.per_mille(self.faults.session_end) {
                self.clean = true;
                self.end_session(Side::Client);
            }
            let receive_maximum = self.some(1..=5);
            let connection = self.link.open();
            self.connecting = Some((connection, receive_maximum));
            self.client_phase = client::Phase::AwaitConnAck {
                extended_auth: false,
            };
            let packet = Packet::Connect {
                clean: self.clean,
                receive_maximum,
            };
            self.send(connection, Side::Client, packet);
        }
        if let Some((connection, clean, theirs)) = self.accepting
            && self.server.disk_is_idle()
        {
            self.accepting = None;
            let session_present = self.session_known && !clean;
            if !session_present {
                self.session_known = false;
                self.end_session(Side::Server);
            }
            let ours = self.some(1..=5);
            self.server.connected(connection, ours, theirs);
            self.server_phase = self.server_phase.accept(false);
            let packet = Packet::ConnAck {
                session_present,
                receive_maximum: ours,
            };
            self.send(connection, Side::Server, packet);
        }
    }

    fn receive(&mut self, side: Side, packet: Packet) {
        let connection = self.link.connection().expect("a packet came");
        self.packets.push((self.now, side, packet));
        match (side, packet) {
            (
                Side::Server,
                Packet::Connect {
                    clean,
                    receive_maximum,
                },
            ) => {
                self.close(Side::Server);
                self.server_phase = server::Phase::AwaitConnect;
                self.expect(side, packet);
                self.accepting = Some((connection, clean, receive_maximum));
            }
            (
                Side::Client,
                Packet::ConnAck {
                    session_present,
                    receive_maximum,
                },
            ) => {
                self.expect(side, packet);
                let (_, ours) = self.connecting.take().expect("the phase said so");
                if !session_present {
                    self.end_session(Side::Client);
                }
                (self.session_known, self.clean) = (true, false);
                self.client_phase = self.client_phase.handle_connack(ReasonCode::Success);
                self.client.connected(connection, ours, receive_maximum);
            }
            _ => {
                self.expect(side, packet);
                self.with(side, |peer, step| peer.receive(packet, step));
            }
        }
    }

    fn expect(&self, side: Side, packet: Packet) {
        let packet = packet.packet_type();
        match side {
            Side::Client => self
                .client_phase
                .expect(packet, Version::V5)
                .expect("a legal history"),
            Side::Server => self
                .server_phase
                .expect(packet, Version::V5)
                .expect("a legal history"),
        }
    }

    fn publish(&mut self) {
        for side in Side::BOTH {
            if self.rng.per_mille(250) {
                let qos = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];
                let qos = qos[usize::from(self.some(0..=2))];
                let number = u32::try_from(self.published.len()).expect("few messages");
                let message = Message { number, qos };
                self.published.push((side, message));
                self.with(side, |peer, step| peer.publish(message, step));
            }
        }
    }

    fn peer(&mut self, side: Side) -> &mut Peer {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    /// Lets one side act, and sends what it says.
    fn with(&mut self, side: Side, act: impl FnOnce(&mut Peer, &mut Step<'_>)) {
        let mut out = Vec::new();
        let disk_ms = self
            .faults
            .disk
            .as_ref()
            .map_or(0, |disk| self.rng.within(disk));
        let mut step = Step {
            now: self.now,
            disk_ms,
            out: &mut out,
        };
        act(self.peer(side), &mut step);
        if let Some(connection) = self.peer(side).connection {
            for packet in out {
                self.send(connection, side, packet);
            }
        }
    }

    fn send(&mut self, on: Connection, from: Side, packet: Packet) {
        self.link
            .send(on, from.other(), packet, self.now, &mut self.rng);
    }

    fn some(&mut self, range: RangeInclusive<u16>) -> u16 {
        let (low, high) = range.into_inner();
        let number = self.rng.within(&(low.into()..=high.into()));
        u16::try_from(number).expect("within the range")
    }

    fn check_received(&mut self, by: Side) {
        let delivered = std::mem::take(&mut self.peer(by).delivered);
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
            let numbers: Vec<u32> = delivered
                .iter()
                .filter(|m| m.qos == qos)
                .map(|m| m.number)
                .collect();
            let mut newest = None;
            let mut known = BTreeSet::new();
            for number in numbers
                .iter()
                .copied()
                .filter(|number| known.insert(*number))
            {
                assert!(
                    newest < Some(number),
                    "{number} is late at {qos:?}: {numbers:?}"
                );
                newest = Some(number);
            }
            if qos != QoS::AtLeastOnce {
                assert_eq!(known.len(), numbers.len(), "twice at {qos:?}: {numbers:?}");
            }
            for &(side, message) in &self.published {
                let arrived = known.contains(&message.number);
                if side == by || message.qos != qos {
                    assert!(!arrived, "{message:?} is not for {by:?}");
                } else if message.is_refused() {
                    assert!(!arrived, "{message:?} was refused");
                } else if qos != QoS::AtMostOnce && !self.excused.contains(&message.number) {
                    assert!(arrived, "{message:?} is missing");
                }
            }
        }
    }

    fn left(&self) -> String {
        let sides = [&self.client, &self.server];
        let left = sides.map(|peer| (&peer.inbound, &peer.outbound, &peer.queue));
        format!("{left:?}")
    }

    pub(crate) fn last_packets(&self) -> String {
        let mut text = String::from("the last packets received:\n");
        for (at, side, packet) in self.packets.iter().rev().take(40).rev() {
            writeln!(text, "{at:6} ms {side:?} <- {packet:?}").expect("a String takes all");
        }
        text
    }
}
