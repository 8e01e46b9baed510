//! A raw MQTT client, over TCP or another transport.
//!
//! It does exactly what a test tells it: no acknowledgement, ping or reconnect of its own accord.
//! Packets that arrive while a test waits for an acknowledgement are kept in order and read later.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use crate::DEADLINE;
use crate::door::{Door, Stream};
use crate::raw::{
    self, Ack, AckKind, Codes, ConnAck, Connect, DISCONNECT, PINGREQ, Packet, Publish, Reason,
    Subscribe, Unsubscribe, Version, has_frame, take_frame,
};

/// One connection and what was read from it.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    version: Version,
    unread: Vec<u8>,
    inbox: VecDeque<Packet>,
    last_id: u16,
    connack: Option<ConnAck>,
}

impl Client {
    /// Opens a connection over TCP and sends nothing.
    pub fn open(address: SocketAddr, version: Version) -> Self {
        Self::through(&Door::tcp(address), None, version)
    }

    /// Opens a connection, does the handshakes of its transport, and sends nothing of MQTT. From
    /// another address of this machine, if one is given: all of 127.0.0.0/8 are.
    pub fn through(door: &Door, source: Option<Ipv4Addr>, version: Version) -> Self {
        let stream = door.open(source);
        let stream = stream.unwrap_or_else(|error| panic!("no connection to {door:?}: {error}"));
        Self {
            stream,
            version,
            unread: Vec::new(),
            inbox: VecDeque::new(),
            last_id: 0,
            connack: None,
        }
    }

    /// Opens a connection over TCP and is accepted.
    #[track_caller]
    pub fn connect(address: SocketAddr, connect: &Connect) -> Self {
        Self::open(address, connect.version).accepted(connect)
    }

    /// Connects on an open connection and is accepted.
    #[must_use]
    #[track_caller]
    pub fn accepted(mut self, connect: &Connect) -> Self {
        self.send(connect.encode());
        let connack = self.expect_connack();
        assert_eq!(
            connack.reason, 0,
            "{} was refused: {connack:?}",
            connect.client_id
        );
        self.connack = Some(connack);
        self
    }

    /// What the broker answered to a CONNECT that it accepted.
    pub fn connack(&self) -> &ConnAck {
        self.connack.as_ref().expect("this client was accepted")
    }

    /// Whether the broker had the session.
    pub fn session_present(&self) -> bool {
        self.connack().session_present
    }

    /// The version it speaks.
    pub fn version(&self) -> Version {
        self.version
    }

    /// A packet identifier not used on this connection before.
    pub fn next_id(&mut self) -> u16 {
        self.last_id += 1;
        self.last_id
    }

    /// Sends any bytes. A peer that has closed already is no failure here: what it said before is
    /// what the test asks for next.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Sends bytes written as hexadecimal text.
    pub fn send_hex(&mut self, text: &str) {
        self.send(raw::hex(text));
    }

    /// Sends a PUBLISH as it is, and waits for nothing.
    pub fn send_publish(&mut self, message: &Publish) {
        self.send(message.encode(self.version));
    }

    /// Sends an acknowledgement that means success.
    pub fn send_ack(&mut self, kind: AckKind, packet_id: u16) {
        self.send(raw::ack(kind, packet_id));
    }

    /// Publishes and completes the exchange its quality asks for; gives the first answer's reason.
    #[track_caller]
    pub fn publish(&mut self, message: Publish) -> u8 {
        if message.qos == 0 {
            self.send_publish(&message);
            return 0;
        }
        let id = self.next_id();
        let qos = message.qos;
        self.send_publish(&message.packet_id(id));
        if qos == 1 {
            return self.await_ack(AckKind::PubAck, id).reason;
        }
        let reason = self.await_ack(AckKind::PubRec, id).reason;
        if reason < 0x80 {
            self.send_ack(AckKind::PubRel, id);
            self.await_ack(AckKind::PubComp, id);
        }
        reason
    }

    /// Publishes messages of quality 1 or 2 in order, several at a time, and completes their
    /// exchanges.
    #[track_caller]
    pub fn publish_all(&mut self, messages: impl IntoIterator<Item = Publish>) {
        const AT_ONCE: u16 = 64;
        let mut free: VecDeque<u16> = (1..=AT_ONCE).collect();
        let mut messages = messages.into_iter();
        let mut next = messages.next();
        while next.is_some() || free.len() < usize::from(AT_ONCE) {
            if let Some(id) = free.pop_front_if(|_| next.is_some()) {
                let message = next.take().expect("there is one");
                self.send_publish(&message.packet_id(id));
                next = messages.next();
                continue;
            }
            match self.receive() {
                Packet::Ack(ack) if ack.kind == AckKind::PubRec => {
                    assert!(ack.reason < 0x80, "{ack:?}");
                    self.send_ack(AckKind::PubRel, ack.packet_id);
                }
                Packet::Ack(ack) => {
                    assert!(ack.reason < 0x80, "{ack:?}");
                    free.push_back(ack.packet_id);
                }
                other => panic!("expected an acknowledgement, got {other:?}"),
            }
        }
    }

    /// Subscribes and gives the codes of the answer.
    #[track_caller]
    pub fn subscribe(&mut self, subscribe: &Subscribe) -> Vec<u8> {
        let id = self.next_id();
        self.send(subscribe.encode(self.version, id));
        let suback = self.await_matching("SUBACK", |packet| match packet {
            Packet::SubAck(codes) if codes.packet_id == id => Some(codes.clone()),
            _ => None,
        });
        suback.codes
    }

    /// Subscribes to one filter and expects to get the quality asked for.
    #[track_caller]
    pub fn subscribe_to(&mut self, filter: &str, options: u8) {
        let codes = self.subscribe(&Subscribe::to(filter, options));
        assert_eq!(codes, [options & 3], "subscription to {filter}");
    }

    /// Unsubscribes and gives the answer.
    #[track_caller]
    pub fn unsubscribe(&mut self, filters: &[&str]) -> Codes {
        let id = self.next_id();
        self.send(Unsubscribe::from(filters).encode(self.version, id));
        self.await_matching("UNSUBACK", |packet| match packet {
            Packet::UnsubAck(codes) if codes.packet_id == id => Some(codes.clone()),
            _ => None,
        })
    }

    /// Ends normally and waits until the broker has closed, so that it has seen the end.
    #[track_caller]
    pub fn disconnect(mut self) {
        self.send(DISCONNECT);
        self.drain_to_close();
    }

    /// Ends with a DISCONNECT given as bytes and waits until the broker has closed.
    #[track_caller]
    pub fn disconnect_with(mut self, bytes: &[u8]) {
        self.send(bytes);
        self.drain_to_close();
    }

    /// Loses the connection without a word, and waits until the broker has noticed: what is
    /// published afterwards is published while this client is away.
    #[track_caller]
    pub fn vanish(mut self) {
        self.finish_sending();
        self.drain_to_close();
    }

    /// Closes the sending half only: the broker sees the end, we still read what it says.
    pub fn finish_sending(&mut self) {
        let _ = self.stream.finish_sending();
    }

    /// The next packet; panics at the deadline and at a close.
    #[track_caller]
    pub fn receive(&mut self) -> Packet {
        match self.receive_or_close() {
            Some(packet) => packet,
            None => panic!("the broker closed the connection; a packet was expected"),
        }
    }

    /// The next packet, or `None` when the broker has closed the connection.
    #[track_caller]
    pub fn receive_or_close(&mut self) -> Option<Packet> {
        if let Some(packet) = self.inbox.pop_front() {
            return Some(packet);
        }
        self.read_packet()
    }

    /// The next packet, which must be a CONNACK.
    #[track_caller]
    pub fn expect_connack(&mut self) -> ConnAck {
        match self.receive() {
            Packet::ConnAck(connack) => connack,
            other => panic!("expected CONNACK, got {other:?}"),
        }
    }

    /// The next packet, which must be a PUBLISH; it is not acknowledged.
    #[track_caller]
    pub fn expect_publish(&mut self) -> Publish {
        match self.receive() {
            Packet::Publish(message) => message,
            other => panic!("expected PUBLISH, got {other:?}"),
        }
    }

    /// The next packet, which must be this message; it is not acknowledged.
    #[track_caller]
    pub fn expect_message(&mut self, topic: &str, payload: &str) -> Publish {
        let message = self.expect_publish();
        assert_eq!(
            (message.topic.as_str(), message.text().as_str()),
            (topic, payload)
        );
        message
    }

    /// The next packet, which must be this message; the exchange of its quality is completed.
    #[track_caller]
    pub fn take_message(&mut self, topic: &str, payload: &str) -> Publish {
        let message = self.expect_message(topic, payload);
        self.complete(&message);
        message
    }

    /// Sends what the quality of a received message asks for.
    #[track_caller]
    pub fn complete(&mut self, message: &Publish) {
        match message.qos {
            0 => {}
            1 => self.send_ack(AckKind::PubAck, message.packet_id),
            _ => {
                self.send_ack(AckKind::PubRec, message.packet_id);
                self.await_ack(AckKind::PubRel, message.packet_id);
                self.send_ack(AckKind::PubComp, message.packet_id);
            }
        }
    }

    /// The next packet, which must be this acknowledgement.
    #[track_caller]
    pub fn expect_ack(&mut self, kind: AckKind, packet_id: u16) -> Ack {
        match self.receive() {
            Packet::Ack(ack) if ack.kind == kind && ack.packet_id == packet_id => ack,
            other => panic!("expected {kind:?} for {packet_id}, got {other:?}"),
        }
    }

    /// Waits for this acknowledgement; what arrives before it is kept for later.
    #[track_caller]
    pub fn await_ack(&mut self, kind: AckKind, packet_id: u16) -> Ack {
        self.await_matching(
            &format!("{kind:?} for {packet_id}"),
            |packet| match packet {
                Packet::Ack(ack) if ack.kind == kind && ack.packet_id == packet_id => {
                    Some(ack.clone())
                }
                _ => None,
            },
        )
    }

    /// The next packet, which must be a SUBACK.
    #[track_caller]
    pub fn expect_suback(&mut self) -> Codes {
        match self.receive() {
            Packet::SubAck(codes) => codes,
            other => panic!("expected SUBACK, got {other:?}"),
        }
    }

    /// Pings and waits for the answer; what arrives before it is kept for later. Afterwards the
    /// broker has handled everything this client sent before.
    #[track_caller]
    pub fn ping(&mut self) {
        self.send(PINGREQ);
        self.await_matching("PINGRESP", |packet| {
            (*packet == Packet::PingResp).then_some(())
        });
    }

    /// Pings and expects the answer to be the very next packet.
    #[track_caller]
    pub fn expect_pong(&mut self) {
        self.send(PINGREQ);
        assert_eq!(self.receive(), Packet::PingResp);
    }

    /// A DISCONNECT with this reason, then the end of the connection.
    #[track_caller]
    pub fn expect_disconnect(&mut self, reason: u8) -> Reason {
        let disconnect = self.expect_any_disconnect();
        assert_eq!(disconnect.code, reason, "reason of {disconnect:02x?}");
        disconnect
    }

    /// A DISCONNECT with any reason that is an error, then the end of the connection.
    #[track_caller]
    pub fn expect_any_disconnect(&mut self) -> Reason {
        match self.receive_or_close() {
            Some(Packet::Disconnect(reason)) => {
                assert!(reason.code >= 0x80, "no error: {reason:02x?}");
                // [MQTT-3.14.4-1, MQTT-3.14.4-2]
                self.expect_closed();
                reason
            }
            other => panic!("expected DISCONNECT, got {other:?}"),
        }
    }

    /// A DISCONNECT with one of these reasons, then the end of the connection.
    #[track_caller]
    pub fn expect_disconnect_one_of(&mut self, reasons: &[u8]) {
        let disconnect = self.expect_any_disconnect();
        assert!(
            reasons.contains(&disconnect.code),
            "{disconnect:02x?}, not in {reasons:02x?}"
        );
    }

    /// The end of the connection and nothing before it.
    #[track_caller]
    pub fn expect_closed(&mut self) {
        if let Some(packet) = self.receive_or_close() {
            panic!("expected the connection to be closed, got {packet:?}");
        }
    }

    /// Closed as its version asks: 5.0 with a DISCONNECT that names `reason`, 3.x without a word.
    #[track_caller]
    pub fn expect_dropped(&mut self, reason: u8) {
        if self.version == Version::V5 {
            self.expect_disconnect(reason);
        } else {
            self.expect_closed();
        }
    }

    /// A CONNECT that is not accepted: a CONNACK with one of the reasons and then the end, or the
    /// end at once, which the standard always allows.
    #[track_caller]
    pub fn expect_refused(&mut self, reasons: &[u8]) {
        match self.receive_or_close() {
            None => {}
            Some(Packet::ConnAck(connack)) => {
                assert!(
                    reasons.contains(&connack.reason),
                    "not one of {reasons:02x?}: {connack:?}"
                );
                // [MQTT-3.2.2-6]
                assert!(
                    !connack.session_present,
                    "a refusal with a session: {connack:?}"
                );
                self.expect_closed();
            }
            Some(other) => panic!("expected a refusal, got {other:?}"),
        }
    }

    /// A CONNECT that is not accepted, with a CONNACK that says why.
    #[track_caller]
    pub fn expect_connack_refusal(&mut self, reason: u8) -> ConnAck {
        let connack = self.expect_connack();
        assert_eq!(connack.reason, reason, "{connack:02x?}");
        // [MQTT-3.2.2-6]
        assert!(
            !connack.session_present,
            "a refusal with a session: {connack:?}"
        );
        self.expect_closed();
        connack
    }

    /// Whether nothing has arrived and nothing does for a while. Not a proof that nothing will:
    /// only for telling apart connections of which all but one are known to be told something.
    pub fn is_silent(&mut self) -> bool {
        self.inbox.is_empty() && !self.fill(Instant::now() + Duration::from_millis(300))
    }

    /// The size of the next packet on the wire, which is forgotten.
    #[track_caller]
    pub fn expect_frame_length(&mut self) -> usize {
        assert!(
            self.inbox.is_empty(),
            "a packet was read before: {:?}",
            self.inbox
        );
        assert!(
            self.fill(Instant::now() + DEADLINE),
            "nothing arrived within {DEADLINE:?}"
        );
        let before = self.unread.len();
        take_frame(&mut self.unread).expect("the broker closed before it answered");
        before - self.unread.len()
    }

    /// Everything `publisher` made the broker send to this client so far, each exchange completed:
    /// a marker from the same publisher takes the same way and must not overtake.
    #[track_caller]
    pub fn messages_from(&mut self, publisher: &mut Self) -> Vec<Publish> {
        const MARKER: &str = "acceptance/marker";
        self.subscribe_to(MARKER, 0);
        publisher.publish(Publish::new(MARKER, "marker"));
        let mut messages = Vec::new();
        loop {
            let message = self.expect_publish();
            if message.topic == MARKER {
                self.unsubscribe(&[MARKER]);
                return messages;
            }
            self.complete(&message);
            messages.push(message);
        }
    }

    /// Reads so many messages and SUBACKs in whatever order they come; gives the messages, whose
    /// exchanges are completed.
    #[track_caller]
    pub fn messages_and_subacks(&mut self, messages: usize, mut subacks: usize) -> Vec<Publish> {
        let mut got = Vec::new();
        while got.len() < messages || subacks > 0 {
            match self.receive() {
                Packet::Publish(message) => {
                    self.complete(&message);
                    got.push(message);
                }
                Packet::SubAck(_) => subacks = subacks.checked_sub(1).expect("a SUBACK too many"),
                other => panic!("expected PUBLISH or SUBACK, got {other:?}"),
            }
        }
        got
    }

    /// Nothing has been sent to this client by what `publisher` did so far.
    #[track_caller]
    pub fn expect_nothing_from(&mut self, publisher: &mut Self) {
        let messages = self.messages_from(publisher);
        assert!(messages.is_empty(), "expected nothing, got {messages:?}");
    }

    /// The next message if one arrives within `patience`; its exchange is completed.
    #[track_caller]
    pub fn poll_message(&mut self, patience: Duration) -> Option<Publish> {
        if self.inbox.is_empty() && !self.fill(Instant::now() + patience) {
            return None;
        }
        let message = self.expect_publish();
        self.complete(&message);
        Some(message)
    }

    /// Reads and forgets everything until the broker closes.
    #[track_caller]
    pub fn drain_to_close(&mut self) {
        while self.receive_or_close().is_some() {}
    }

    #[track_caller]
    fn await_matching<T>(&mut self, what: &str, matching: impl Fn(&Packet) -> Option<T>) -> T {
        let mut kept = VecDeque::new();
        loop {
            let Some(packet) = self.receive_or_close() else {
                panic!("the broker closed while {what} was expected; before: {kept:?}");
            };
            if let Some(found) = matching(&packet) {
                kept.append(&mut self.inbox);
                self.inbox = kept;
                return found;
            }
            if let Packet::Disconnect(reason) = &packet {
                panic!("{reason:02x?} while {what} was expected; before: {kept:?}");
            }
            kept.push_back(packet);
        }
    }

    #[track_caller]
    fn read_packet(&mut self) -> Option<Packet> {
        assert!(
            self.fill(Instant::now() + DEADLINE),
            "nothing arrived within {DEADLINE:?}"
        );
        let Some((first_byte, body)) = take_frame(&mut self.unread) else {
            let half = &self.unread;
            assert!(
                half.is_empty(),
                "closed in the middle of a packet: {}",
                raw::to_hex(half)
            );
            return None;
        };
        Some(Packet::parse(self.version, first_byte, &body))
    }

    /// Reads until a whole packet or the end of the connection is there; false at the deadline.
    fn fill(&mut self, deadline: Instant) -> bool {
        let mut chunk = [0; 16 * 1024];
        while !has_frame(&self.unread) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.stream
                .set_read_timeout(left)
                .expect("the time left is not zero");
            match self.stream.read(&mut chunk) {
                Ok(0) => return true,
                Ok(length) => self.unread.extend(&chunk[..length]),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    _ => return true,
                },
            }
        }
        true
    }
}

/// Reads several clients in turn until they have got `count` messages between them.
#[track_caller]
pub fn collect(clients: &mut [&mut Client], count: usize) -> Vec<Vec<Publish>> {
    let deadline = Instant::now() + DEADLINE;
    let mut messages = vec![Vec::new(); clients.len()];
    while messages.iter().map(Vec::len).sum::<usize>() < count {
        assert!(
            Instant::now() < deadline,
            "{count} messages did not arrive: {messages:?}"
        );
        for (client, got) in clients.iter_mut().zip(&mut messages) {
            got.extend(client.poll_message(Duration::from_millis(5)));
        }
    }
    messages
}
