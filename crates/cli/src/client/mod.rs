//! The connection of `pub` and `sub`: one blocking client on a plain socket.
//!
//! One thread reads the socket and hands what came to [`Client::next_event`] through a bounded
//! queue, which also carries lines of standard input and signals; so the client waits for all of
//! them, and for time, at one place. Everything is sent from the caller's thread.
//!
//! Invariants: acknowledgements are sent before their message is returned; a message that the
//! broker's window does not admit waits here in order; a session outlives its connection
//! ([`Client::reconnect`]).
//!
//! Deliberately absent: TLS, enhanced authentication, more than one connection. The async client
//! crate takes this module's place.

mod error;
mod incoming;
mod link;
mod trace;

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::connection::{alias, client::Phase};
use unbroken_mqtt_proto::session::{Inbound, Outbound, Resend};
use unbroken_mqtt_proto::{
    Ack, Connect, Disconnect, Packet, PacketId, Properties, PropertyBuf, Publish, QoS, ReasonCode,
    Subscribe, SubscriptionOptions, Subscriptions, TopicFilters, Unsubscribe, Version, Will,
    next_frame,
};

pub(crate) use error::ClientError;
use link::Wake;
pub(crate) use link::{Outside, OutsideSender};
use trace::Trace;

/// How to connect, and as whom.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The local address to connect from.
    pub(crate) bind: Option<String>,
    pub(crate) version: Version,
    pub(crate) client_id: String,
    pub(crate) clean_start: bool,
    pub(crate) keep_alive_s: u16,
    pub(crate) user_name: Option<String>,
    pub(crate) password: Option<Vec<u8>>,
    pub(crate) will: Option<(Message, PropertyBuf)>,
    pub(crate) properties: PropertyBuf,
    /// Our own bound of messages under way; the broker's may be smaller.
    pub(crate) inflight_max: u16,
    /// Print each packet, as Mosquitto's `-d` does.
    pub(crate) trace: bool,
}

/// An application message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) topic: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) properties: PropertyBuf,
}

/// A message that came, with what belongs to its transfer.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) message: Message,
    pub(crate) dup: bool,
    pub(crate) packet_id: Option<PacketId>,
}

/// What [`Client::next_event`] saw.
#[derive(Debug)]
pub(crate) enum Event {
    Message(Received),
    /// A QoS 1 or 2 message is finished; an error means the broker did not take it.
    Published {
        id: PacketId,
        reason: ReasonCode,
    },
    /// One code for each filter: the granted QoS or an error.
    Subscribed {
        codes: Vec<u8>,
    },
    Unsubscribed,
    /// Standard input or a signal.
    Outside(Outside),
    /// The time given has come.
    Deadline,
    /// CONNACK said yes. Seen by [`Client::connect`] only.
    Connected,
}

/// A connected client and its session.
pub(crate) struct Client {
    options: Options,
    stream: TcpStream,
    /// Counts connections: what an old one's reader still says is not heard.
    link: u32,
    wakes: Receiver<Wake>,
    waker: SyncSender<Wake>,
    phase: Phase,
    input: Vec<u8>,
    output: Vec<u8>,
    server: Server,
    last_sent: Instant,
    /// When PINGREQ went out, until PINGRESP comes.
    pinged: Option<Instant>,
    session: Session,
    aliases: alias::Inbound,
    /// Came while a connection was being made.
    early: VecDeque<Outside>,
}

/// What outlives a connection.
struct Session {
    outbound: Outbound<Rc<Message>>,
    /// QoS 1 and 2 messages that the window does not admit yet. No other packet waits for it
    /// [MQTT-3.3.4-8].
    waiting: VecDeque<Rc<Message>>,
    inbound: Inbound,
    /// For SUBSCRIBE and UNSUBSCRIBE, counting down from the top while PUBLISH counts up from 1, so
    /// that they do not meet [MQTT-2.2.1-3, MQTT311-2.3.1-2].
    next_control_id: PacketId,
}

/// What CONNACK said.
#[derive(Clone, Debug)]
struct Server {
    session_present: bool,
    keep_alive: Option<Duration>,
    packet_bytes_max: u32,
    qos_max: QoS,
    retain_available: bool,
    topic_alias_max: u16,
    client_id: Option<String>,
}

impl Client {
    /// Opens the connection and waits for CONNACK.
    pub(crate) fn connect(options: Options) -> Result<Self, ClientError> {
        let (waker, wakes) = sync_channel(WAKES_MAX);
        let stream = link::open(&options)?;
        let now = Instant::now();
        let mut client = Self {
            aliases: alias::Inbound::default(),
            phase: Phase::Closed,
            server: Server {
                session_present: false,
                keep_alive: None,
                packet_bytes_max: u32::MAX,
                qos_max: QoS::ExactlyOnce,
                retain_available: true,
                topic_alias_max: 0,
                client_id: None,
            },
            session: Session {
                outbound: Outbound::new(),
                waiting: VecDeque::new(),
                inbound: Inbound::new(),
                next_control_id: TOP_ID,
            },
            link: 0,
            early: VecDeque::new(),
            input: Vec::new(),
            output: Vec::new(),
            last_sent: now,
            pinged: None,
            options,
            stream,
            wakes,
            waker,
        };
        client.greet()?;
        Ok(client)
    }

    /// Opens a new connection for the same session. What was unfinished is sent again if the broker
    /// has kept the session, and as new if it has not.
    pub(crate) fn reconnect(&mut self) -> Result<(), ClientError> {
        // A broker that stops waits for the end of the old one. It may have ended already.
        let _ = self.stream.shutdown(Shutdown::Both);
        self.stream = link::open(&self.options)?;
        self.link += 1;
        self.input.clear();
        self.output.clear();
        self.pinged = None;
        self.session.outbound.handle_disconnected();
        self.session.inbound.handle_disconnected();
        self.greet()
    }

    /// Waits without a connection; returns early with what came from outside.
    pub(crate) fn rest(&mut self, time: Duration) -> Option<Outside> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.wakes.recv_timeout(left) {
                Ok(Wake::Outside(outside)) => return Some(outside),
                Ok(Wake::Bytes { .. } | Wake::Ended { .. }) => {}
                Err(_) => return None,
            }
        }
    }

    /// Lets standard input or a signal reach [`Self::next_event`].
    pub(crate) fn outside(&self) -> OutsideSender {
        OutsideSender::new(self.waker.clone())
    }

    /// Sends a message, or keeps it until the window admits it.
    pub(crate) fn publish(&mut self, message: Message) -> Result<(), ClientError> {
        self.check(&message)?;
        if message.qos == QoS::AtMostOnce {
            return self.send_publish(&message, None, false);
        }
        self.session.waiting.push_back(Rc::new(message));
        self.send_waiting()
    }

    /// Whether this broker takes such a message at all.
    fn check(&self, message: &Message) -> Result<(), ClientError> {
        let Server {
            qos_max,
            retain_available,
            topic_alias_max,
            ..
        } = self.server;
        let alias = message.properties.as_properties().topic_alias();
        if message.qos > qos_max {
            return Err(ClientError::QosNotSupported { max: qos_max }); // [MQTT-3.2.2-11]
        }
        if message.retain && !retain_available {
            return Err(ClientError::RetainNotSupported); // [MQTT-3.2.2-14]
        }
        // [MQTT-3.2.2-17] [MQTT-3.2.2-18]
        if alias.is_some_and(|alias| alias > topic_alias_max) {
            return Err(ClientError::TopicAliasInvalid {
                max: topic_alias_max,
            });
        }
        Ok(())
    }

    /// QoS 1 and 2 messages that are not finished.
    pub(crate) fn unfinished(&self) -> usize {
        self.session.outbound.inflight() + self.session.waiting.len()
    }

    /// Whether a QoS 1 or 2 message would leave at once.
    pub(crate) fn window_open(&self) -> bool {
        self.session.waiting.is_empty() && self.session.outbound.window_open()
    }

    pub(crate) fn subscribe(
        &mut self,
        filters: &[(&str, SubscriptionOptions)],
        properties: Properties<'_>,
    ) -> Result<PacketId, ClientError> {
        let packet_id = self.session.next_control_id();
        for (filter, options) in filters {
            self.trace().subscribe(packet_id, filter, *options);
        }
        let filters = Subscriptions::new(filters);
        self.send(&Packet::Subscribe(Subscribe {
            packet_id,
            properties,
            filters,
        }))?;
        Ok(packet_id)
    }

    pub(crate) fn unsubscribe(
        &mut self,
        filters: &[&str],
        properties: Properties<'_>,
    ) -> Result<(), ClientError> {
        let packet_id = self.session.next_control_id();
        for filter in filters {
            self.trace().unsubscribe(packet_id, filter);
        }
        let filters = TopicFilters::new(filters);
        self.send(&Packet::Unsubscribe(Unsubscribe {
            packet_id,
            properties,
            filters,
        }))
    }

    /// Whether [`Self::next_event`] has something to return or to work on without waiting, as far
    /// as is known.
    pub(crate) fn has_input(&self) -> bool {
        matches!(
            next_frame(&self.input, PACKET_BYTES_MAX),
            Ok(Some(_)) | Err(_)
        )
    }

    /// Waits for the next thing to happen, until `deadline` if there is one. Keeps the connection
    /// alive meanwhile.
    pub(crate) fn next_event(&mut self, deadline: Option<Instant>) -> Result<Event, ClientError> {
        if let Some(outside) = self.early.pop_front() {
            return Ok(Event::Outside(outside));
        }
        loop {
            if let Some(event) = self.handle_input()? {
                return Ok(event);
            }
            self.flush()?;
            let now = Instant::now();
            let ping_due = self.keep_alive(now)?;
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Ok(Event::Deadline);
            }
            let until = [deadline, ping_due].into_iter().flatten().min();
            let wake = match until {
                Some(until) => self
                    .wakes
                    .recv_timeout(until.saturating_duration_since(now)),
                // The client holds a sender itself: the queue cannot end.
                None => self
                    .wakes
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected),
            };
            match wake {
                Ok(Wake::Bytes { link, bytes }) if link == self.link => {
                    self.input.extend_from_slice(&bytes);
                }
                Ok(Wake::Ended { link, error }) if link == self.link => {
                    return Err(ClientError::Lost(error));
                }
                Ok(Wake::Outside(outside)) => return Ok(Event::Outside(outside)),
                Ok(Wake::Bytes { .. } | Wake::Ended { .. }) | Err(_) => {}
            }
        }
    }

    /// Says goodbye and waits a moment for the broker to have heard it: closing at once, with
    /// messages unread, would make the system reset the connection, and the broker would take the
    /// client for lost.
    pub(crate) fn disconnect(
        mut self,
        reason: ReasonCode,
        properties: Properties<'_>,
    ) -> Result<(), ClientError> {
        self.trace().sending("DISCONNECT");
        self.send(&Packet::Disconnect(Disconnect { reason, properties }))?;
        self.flush()?;
        self.phase = Phase::Closed;
        // Nothing follows DISCONNECT but the close. [MQTT-3.14.4-1, MQTT311-3.14.4-2]
        // [MQTT-3.14.4-2, MQTT311-3.14.4-1]
        // It may be gone already; then the reader says why.
        let _ = self.stream.shutdown(Shutdown::Write);
        self.last_words().map_or(Ok(()), Err)
    }

    fn greet(&mut self) -> Result<(), ClientError> {
        let reader = self.stream.try_clone().map_err(ClientError::Io)?;
        link::read(reader, self.link, self.waker.clone()).map_err(ClientError::Io)?;
        let options = self.options.clone();
        self.aliases = alias::Inbound::new(
            options
                .properties
                .as_properties()
                .topic_alias_maximum()
                .unwrap_or(0),
        );
        self.session.inbound.set_receive_maximum(
            options
                .properties
                .as_properties()
                .receive_maximum()
                .unwrap_or(u16::MAX),
        );
        let authentication_method = options.properties.as_properties().authentication_method();
        self.phase = Phase::AwaitConnAck {
            extended_auth: authentication_method.is_some(),
        };
        self.trace().sending("CONNECT");
        self.send(&Packet::Connect(Connect {
            version: options.version,
            clean_start: options.clean_start,
            keep_alive: options.keep_alive_s,
            client_id: &options.client_id,
            will: options.will.as_ref().map(|(will, properties)| Will {
                topic: &will.topic,
                payload: &will.payload,
                qos: will.qos,
                retain: will.retain,
                properties: properties.as_properties(),
            }),
            user_name: options.user_name.as_deref(),
            password: options.password.as_deref(),
            properties: options.properties.as_properties(),
            bridge: false,
        }))?;
        let deadline = Instant::now() + CONNACK_TIMEOUT;
        let mut early = VecDeque::new();
        loop {
            match self.next_event(Some(deadline))? {
                Event::Connected => break,
                Event::Deadline => return Err(ClientError::NoAnswer),
                Event::Outside(outside) => early.push_back(outside),
                // `Phase::expect` lets nothing else through before CONNACK.
                _ => {}
            }
        }
        self.early.append(&mut early);
        self.resume()
    }

    /// Sends what the last connection left unfinished.
    fn resume(&mut self) -> Result<(), ClientError> {
        // Ours ends with the broker's; what was not taken over begins anew. [MQTT-3.2.2-5]
        if !self.server.session_present {
            self.session.inbound = Inbound::new();
            let left: Vec<_> = self
                .session
                .outbound
                .drain()
                .map(|left| left.message)
                .collect();
            for message in left.into_iter().rev() {
                self.session.waiting.push_front(message);
            }
        }
        self.send_waiting()
    }

    /// Sends again what is due, then what waits, as far as the window goes.
    fn send_waiting(&mut self) -> Result<(), ClientError> {
        while let Some(resend) = self.session.outbound.poll_resend() {
            match resend {
                Resend::Publish {
                    id, dup, message, ..
                } => {
                    let message = Rc::clone(message);
                    self.send_publish(&message, Some(id), dup)?;
                }
                Resend::PubRel { id } => self.send_pubrel(id, ReasonCode::Success)?,
            }
        }
        while self.session.outbound.window_open() {
            let Some(message) = self.session.waiting.pop_front() else {
                break;
            };
            match self
                .session
                .outbound
                .begin(message.qos, Rc::clone(&message))
            {
                Ok(id) => self.send_publish(&message, Some(id), false)?,
                Err(message) => {
                    self.session.waiting.push_front(message);
                    break;
                }
            }
        }
        Ok(())
    }

    fn send_publish(
        &mut self,
        message: &Message,
        packet_id: Option<PacketId>,
        dup: bool,
    ) -> Result<(), ClientError> {
        // Again: this may be another broker than the one the message was first meant for.
        self.check(message)?;
        let publish = Publish {
            dup,
            qos: message.qos,
            retain: message.retain,
            topic: &message.topic,
            packet_id,
            properties: message.properties.as_properties(),
            payload: &message.payload,
        };
        self.trace().publish("sending", &publish, &message.topic);
        self.send(&Packet::Publish(publish))
    }

    fn send_pubrel(&mut self, packet_id: PacketId, reason: ReasonCode) -> Result<(), ClientError> {
        self.trace().answering("PUBREL", packet_id);
        self.send(&Packet::PubRel(Ack {
            packet_id,
            reason,
            properties: Properties::EMPTY,
        }))
    }

    /// Encodes a packet; it leaves with the next flush, or now if much waits.
    fn send(&mut self, packet: &Packet<'_>) -> Result<(), ClientError> {
        let before = self.output.len();
        packet.encode(self.options.version, &mut self.output)?;
        let length = self.output.len() - before;
        // [MQTT-3.2.2-15]
        if length > self.server.packet_bytes_max as usize {
            self.output.truncate(before);
            return Err(ClientError::TooLarge {
                length,
                max: self.server.packet_bytes_max,
            });
        }
        if self.output.len() >= OUTPUT_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<(), ClientError> {
        if self.output.is_empty() {
            return Ok(());
        }
        let written = link::write(&mut self.stream, &self.output);
        self.output.clear();
        self.last_sent = Instant::now();
        // Why the broker closed may be among what it sent before: that says more than a failed
        // write does.
        written.map_err(|error| self.last_words().unwrap_or(ClientError::Lost(Some(error))))
    }

    /// Reads to the end of the connection, for a moment at most. What is returned: a DISCONNECT
    /// that names a fault, or a connection that did not end in an orderly way, which means that the
    /// broker may not have read everything.
    fn last_words(&mut self) -> Option<ClientError> {
        let deadline = Instant::now() + GOODBYE;
        let mut lost = None;
        while let Ok(wake) = self
            .wakes
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            match wake {
                Wake::Bytes { link, bytes } if link == self.link => {
                    self.input.extend_from_slice(&bytes);
                }
                Wake::Ended { link, error } if link == self.link => {
                    lost = error.map(|error| ClientError::Lost(Some(error)));
                    break;
                }
                _ => {}
            }
        }
        let mut rest = self.input.as_slice();
        while let Ok(Some(frame)) = next_frame(rest, PACKET_BYTES_MAX) {
            rest = rest.get(frame.bytes.len()..).unwrap_or_default();
            if let Ok(Packet::Disconnect(last)) = Packet::decode(frame, self.options.version)
                && last.reason.is_error()
            {
                let text = last.properties.reason_string().map(str::to_owned);
                return Some(ClientError::Disconnected {
                    reason: last.reason,
                    text,
                });
            }
        }
        lost
    }

    /// Sends PINGREQ when it is due [MQTT-3.1.2-20, MQTT311-3.1.2-23]; returns when to look again.
    fn keep_alive(&mut self, now: Instant) -> Result<Option<Instant>, ClientError> {
        let Some(keep_alive) = self.server.keep_alive.filter(|_| self.phase.is_connected()) else {
            return Ok(None);
        };
        if let Some(pinged) = self.pinged {
            let due = pinged + keep_alive;
            return if now < due {
                Ok(Some(due))
            } else {
                Err(ClientError::Lost(None))
            };
        }
        if now < self.last_sent + keep_alive {
            return Ok(Some(self.last_sent + keep_alive));
        }
        self.trace().sending("PINGREQ");
        self.pinged = Some(now);
        self.send(&Packet::PingReq)?;
        self.flush()?;
        Ok(Some(now + keep_alive))
    }

    fn trace(&self) -> Trace<'_> {
        let id = self
            .server
            .client_id
            .as_deref()
            .unwrap_or(&self.options.client_id);
        Trace::new(self.options.trace, id)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Ends the reader's thread; it may have ended already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Session {
    fn next_control_id(&mut self) -> PacketId {
        let id = self.next_control_id;
        self.next_control_id = PacketId::new(id.get() - 1).unwrap_or(TOP_ID);
        id
    }
}

const TOP_ID: PacketId = match PacketId::new(u16::MAX) {
    Some(id) => id,
    None => PacketId::FIRST,
};
/// Reads, lines and signals that may wait; with the size of a read it bounds what is held: 4 MiB.
const WAKES_MAX: usize = 64;
const PACKET_BYTES_MAX: u32 = u32::MAX;
/// Encoded bytes that make one write.
const OUTPUT_BYTES: usize = 64 * 1024;
const CONNACK_TIMEOUT: Duration = Duration::from_secs(30);
const GOODBYE: Duration = Duration::from_secs(1);
