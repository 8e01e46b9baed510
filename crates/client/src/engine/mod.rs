//! A client as a value: bytes, wishes and time go in, bytes come out, and answers leave through
//! the ends of channels, which never wait.
//!
//! - `wire`: packets to bytes, as far as the broker takes them.
//! - `sending`: our messages, from the wish to the acknowledgement.
//! - `receiving`: packets that come.
//! - `arrivals`: in which order messages of the broker are to be acknowledged.
//! - `routes`: filters to subscriptions.
//! - `requests`: SUBSCRIBE and UNSUBSCRIBE in the application's own words.
//!
//! Invariants: what outlives a connection is in `sending`, `arrivals`, `routes` and the session
//! halves of `unbroken-mqtt-proto`, the rest begins anew with [`Engine::greet`]; a wish is answered
//! exactly once.

mod arrivals;
mod receiving;
mod requests;
mod routes;
mod sending;
mod wire;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{broadcast, mpsc, oneshot};
use unbroken_mqtt_proto::connection::{alias, client::Phase};
use unbroken_mqtt_proto::session::Inbound;
use unbroken_mqtt_proto::{
    Connect, Disconnect, Packet, Property, PropertyBuf, QoS, ReasonCode, Version, Will,
};

use self::arrivals::Arrivals;
pub(crate) use self::requests::{Asked, Request};
use self::routes::Routes;
use self::sending::Sending;
pub(crate) use self::sending::{Batch, Outgoing, Reply};
use self::wire::Wire;
use crate::inbox::{Done, Inbox, Notice};
use crate::{
    ConnectError, Event, Filter, Message, Options, PublishError, Received, Session, SubscribeError,
};

/// What the application wishes.
#[derive(Debug)]
pub(crate) enum Command {
    Publish(Outgoing),
    PublishAll(Vec<Message>, Arc<Batch>),
    Subscribe(PublishRequest),
    Unsubscribe(u64, oneshot::Sender<()>),
    Request(Request),
    Ping(oneshot::Sender<()>),
    /// With properties, unless the usual ones do.
    Disconnect(
        Option<PropertyBuf>,
        oneshot::Sender<Result<(), ConnectError>>,
    ),
}

/// Why a client sends DISCONNECT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Goodbye {
    /// It connects again at once.
    UntilNextConnection,
    /// It ends, and with it a session that is for as long as it runs.
    ForGood,
    /// It ends, with these properties.
    With(PropertyBuf),
}

/// A subscription to be made.
#[derive(Debug)]
pub(crate) struct PublishRequest {
    pub(crate) filters: Vec<Filter>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) reply: Granting,
}

/// The handle of a subscription, and what its filters were granted.
type Granting = oneshot::Sender<Result<(u64, Vec<QoS>), SubscribeError>>;

pub(crate) struct Engine {
    options: Arc<Options>,
    phase: Phase,
    input: Vec<u8>,
    wire: Wire,
    /// CONNACK has said yes before.
    was_connected: bool,
    /// The session has messages from before this client began.
    is_resumed: bool,
    sending: Sending,
    /// Without a Receive Maximum of its own: Mosquitto 2 sends more than it is told, and taking
    /// that, which the packet ids bound, serves better than hanging up on it.
    inbound: Inbound,
    /// What the broker calls topics, as far as the application lets it.
    aliases: alias::Inbound,
    arrivals: Arrivals,
    routes: Routes,
    /// Messages of a resumed session whose subscription the application has not claimed yet.
    unclaimed: VecDeque<Received>,
    /// For each PINGREQ without PINGRESP: when it was asked for, and who waits for it.
    pings: VecDeque<(Instant, Vec<oneshot::Sender<()>>)>,
    /// Who waits for the next PINGREQ.
    ping_wishes: Vec<oneshot::Sender<()>>,
    notices: mpsc::UnboundedSender<Notice>,
    events: broadcast::Sender<Event>,
}

impl Engine {
    pub(crate) fn new(
        options: Options,
        notices: mpsc::UnboundedSender<Notice>,
        events: broadcast::Sender<Event>,
        unclaimed: Option<Arc<Inbox>>,
    ) -> Self {
        Self {
            phase: Phase::Closed,
            input: Vec::new(),
            wire: Wire::new(&options),
            was_connected: false,
            is_resumed: false,
            sending: Sending::new(),
            inbound: Inbound::new(),
            aliases: alias::Inbound::default(),
            arrivals: Arrivals::default(),
            routes: Routes::new(&options, unclaimed),
            unclaimed: VecDeque::new(),
            pings: VecDeque::new(),
            ping_wishes: Vec::new(),
            notices,
            events,
            options: Arc::new(options),
        }
    }

    pub(crate) fn options(&self) -> Arc<Options> {
        Arc::clone(&self.options)
    }

    /// Begins a connection with CONNECT.
    pub(crate) fn greet(&mut self, now: Instant) -> Result<(), ConnectError> {
        let options = Arc::clone(&self.options);
        let given = options.properties.as_properties();
        self.phase = Phase::AwaitConnAck {
            extended_auth: given.authentication_method().is_some(),
        };
        self.aliases = alias::Inbound::new(given.topic_alias_maximum().unwrap_or(0));
        self.input.clear();
        self.wire.begin(now);
        let properties = connect_properties(&options)?;
        let mut will_properties = PropertyBuf::new();
        if let Some(will) = &options.will {
            will_properties.extend(will.message.properties());
            if will.delay_s > 0 {
                will_properties.push(Property::WillDelayInterval(will.delay_s))?;
            }
        }
        let connect = Connect {
            version: options.version,
            clean_start: self.starts_new_session(),
            keep_alive: options.keep_alive_s,
            client_id: &options.client_id,
            will: options.will.as_ref().map(|will| Will {
                topic: &will.message.topic,
                payload: &will.message.payload,
                qos: will.message.qos,
                retain: will.message.retain,
                properties: will_properties.as_properties(),
            }),
            user_name: options.user_name.as_deref(),
            password: options.password.as_deref(),
            properties: properties.as_properties(),
            bridge: false,
        };
        self.wire.put(&Packet::Connect(connect))?;
        Ok(())
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.phase.is_connected()
    }

    pub(crate) fn handle_command(&mut self, command: Command) {
        match command {
            Command::Publish(outgoing) => {
                let wire = self.phase.is_connected().then_some(&mut self.wire);
                self.sending.handle_publish_request(outgoing, wire);
            }
            Command::PublishAll(messages, batch) => {
                let wire = self.phase.is_connected().then_some(&mut self.wire);
                self.sending.handle_batch(messages, &batch, wire);
            }
            Command::Request(request) if self.phase.is_connected() => {
                self.routes.request(request, &mut self.wire, &self.sending);
            }
            Command::Request(request) => request.fail(SubscribeError::NotAnswered),
            Command::Subscribe(wish) => self.handle_subscribe(wish),
            Command::Unsubscribe(id, reply) => self.handle_unsubscribe(id, Some(reply)),
            Command::Ping(reply) => {
                self.ping_wishes.retain(|wish| !wish.is_closed());
                self.ping_wishes.push(reply);
            }
            // The driver's own.
            Command::Disconnect(..) => {}
        }
    }

    /// Answers a wish that came too late.
    pub(crate) fn refuse(command: Command, why: &ConnectError) {
        match command {
            Command::Publish(outgoing) => outgoing.fail(PublishError::Ended(why.clone())),
            Command::PublishAll(_, batch) => batch.fail(why),
            Command::Request(request) => request.fail(SubscribeError::Ended(why.clone())),
            Command::Subscribe(wish) => {
                // Whoever wished may have stopped waiting.
                let _ = wish.reply.send(Err(SubscribeError::Ended(why.clone())));
            }
            // Their callers take the end of the channel for the end of the client.
            Command::Unsubscribe(..) | Command::Ping(_) | Command::Disconnect(..) => {}
        }
    }

    pub(crate) fn handle_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Done(serial, done) => {
                // Of a session that ends with its connection nothing comes again, so nothing is
                // gained by leaving it open.
                let least = if self.starts_new_session() {
                    Done::Taken
                } else {
                    Done::LeftOpen
                };
                self.arrivals.done(serial, done.max(least));
                self.answer_arrivals();
            }
            Notice::Dropped(id) => {
                let wire = self.phase.is_connected().then_some(&mut self.wire);
                self.routes.handle_dropped(id, wire, &self.sending);
            }
            Notice::Ended(id) => self.handle_unsubscribe(id, None),
        }
    }

    /// What was left open counts as under way at the broker, which sends nothing more when as many
    /// are as may be. It comes again on a new connection, so before that there should be one.
    pub(crate) fn check_left_open(&self) -> Result<(), ConnectError> {
        let limits = &self.options.limits;
        let window = match self.options.version {
            Version::V5 => limits.receive_maximum,
            // Which it cannot be told. It is taken for as large as what the client sends.
            Version::V3_1 | Version::V3_1_1 => limits.receive_maximum.min(limits.inflight_max_3x),
        };
        let count = self.arrivals.left_open();
        if count >= usize::from(window / 2).max(1) {
            return Err(ConnectError::LeftOpen { count });
        }
        Ok(())
    }

    /// Bytes that came, to be appended to, and bytes to be written.
    pub(crate) fn buffers(&mut self) -> (&mut Vec<u8>, &[u8]) {
        (&mut self.input, self.wire.output())
    }

    /// So many bytes of the output are written.
    pub(crate) fn written(&mut self, bytes: usize, now: Instant) {
        self.wire.written(bytes, now);
    }

    pub(crate) fn output_len(&self) -> usize {
        self.wire.output().len()
    }

    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        self.wire.take_output()
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        if !self.ping_wishes.is_empty() {
            return Some(self.wire.last_written());
        }
        let keep_alive = self.wire.keep_alive()?;
        Some(match self.pings.front() {
            Some((asked, _)) => *asked + keep_alive,
            None => self.wire.last_written() + keep_alive,
        })
    }

    /// Asks the broker for a sign, or gives it up.
    ///
    /// [MQTT-3.1.2-20, MQTT311-3.1.2-23]
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Result<(), ConnectError> {
        if let (Some(keep_alive), Some((asked, _))) = (self.wire.keep_alive(), self.pings.front())
            && now >= *asked + keep_alive
        {
            return Err(ConnectError::Silent);
        }
        let is_due = (self.wire.keep_alive())
            .is_some_and(|keep_alive| now >= self.wire.last_written() + keep_alive);
        if !self.ping_wishes.is_empty() || is_due && self.pings.is_empty() {
            self.wire.put(&Packet::PingReq)?;
            let waiting = std::mem::take(&mut self.ping_wishes);
            self.pings.push_back((now, waiting));
        }
        Ok(())
    }

    /// Puts DISCONNECT behind everything else.
    ///
    /// [MQTT-3.14.4-1, MQTT-3.14.4-2, MQTT311-3.14.4-1, MQTT311-3.14.4-2]
    pub(crate) fn send_disconnect(&mut self, goodbye: &Goodbye) {
        let mut disconnect = Disconnect::new(ReasonCode::Success);
        let mut properties = PropertyBuf::new();
        let ends_session = *goodbye == Goodbye::ForGood
            && matches!(self.options.session, Session::WhileRunning { .. })
            && self.options.version == Version::V5;
        if ends_session {
            // One property is within the bounds of a PropertyBuf.
            let _ = properties.push(Property::SessionExpiryInterval(0));
            disconnect.properties = properties.as_properties();
        }
        if let Goodbye::With(given) = goodbye {
            disconnect.properties = given.as_properties();
        }
        if self
            .wire
            .put_if_taken(&Packet::Disconnect(disconnect))
            .is_err()
        {
            // Without a property its three bytes are within every limit.
            let _ = (self.wire).put(&Packet::Disconnect(Disconnect::new(ReasonCode::Success)));
        }
        self.phase = Phase::Closed;
    }

    /// The connection is gone.
    pub(crate) fn lost(&mut self) {
        self.phase = Phase::Closed;
        self.sending.handle_disconnected();
        self.inbound.handle_disconnected();
        self.arrivals.handle_disconnected();
        self.routes.handle_disconnected();
        for (_, waiting) in self.pings.drain(..) {
            let open = waiting.into_iter().filter(|wish| !wish.is_closed());
            self.ping_wishes.extend(open);
        }
    }

    /// The client is gone: everything that waits is told why.
    pub(crate) fn end(&mut self, why: &ConnectError) {
        self.phase = Phase::Closed;
        self.sending.end(why);
        self.routes.end(why);
        self.pings.clear();
        self.ping_wishes.clear();
        self.report(Event::Ended { why: why.clone() });
    }

    pub(crate) fn report(&self, event: Event) {
        // Nobody need be watching.
        let _ = self.events.send(event);
    }

    fn starts_new_session(&self) -> bool {
        match self.options.session {
            Session::Temporary => true,
            Session::WhileRunning { .. } => {
                !self.was_connected || self.options.version != Version::V5
            }
            Session::Kept { .. } => false,
        }
    }

    fn handle_subscribe(&mut self, wish: PublishRequest) {
        let wire = self.phase.is_connected().then_some(&mut self.wire);
        let Some(id) = self.routes.add(wish, wire, &self.sending) else {
            return;
        };
        let mut left = VecDeque::new();
        for message in std::mem::take(&mut self.unclaimed) {
            match self.routes.inbox_for(id, &message.topic) {
                // It found room when it came.
                Some(inbox) => {
                    let _ = inbox.push(message);
                }
                None => left.push_back(message),
            }
        }
        self.unclaimed = left;
    }

    fn handle_unsubscribe(&mut self, id: u64, reply: Option<oneshot::Sender<()>>) {
        let wire = self.phase.is_connected().then_some(&mut self.wire);
        self.routes.give_up(id, reply, wire, &self.sending);
    }

    /// Sends the acknowledgements that are due, in the order in which the messages came.
    ///
    /// [MQTT-4.6.0-2, MQTT-4.6.0-3, MQTT311-4.6.0-2, MQTT311-4.6.0-3]
    fn answer_arrivals(&mut self) {
        while let Some((id, qos, done)) = self.arrivals.next_answer() {
            if qos == QoS::AtLeastOnce || done == Done::LeftOpen {
                self.inbound.acknowledged(id);
            } else {
                self.inbound.received(id);
            }
            if done != Done::LeftOpen {
                self.wire.acknowledge(id, qos, done);
            }
        }
    }
}

fn connect_properties(options: &Options) -> Result<PropertyBuf, ConnectError> {
    let mut properties = PropertyBuf::new();
    if options.version != Version::V5 {
        return Ok(properties);
    }
    let given = options.properties.as_properties();
    let expiry_s = match options.session {
        Session::Temporary => 0,
        Session::WhileRunning { expiry_s } | Session::Kept { expiry_s } => expiry_s,
    };
    if expiry_s > 0 && given.session_expiry_interval().is_none() {
        properties.push(Property::SessionExpiryInterval(expiry_s))?;
    }
    let limits = &options.limits;
    // What is not said is that there is no limit.
    if limits.receive_maximum < u16::MAX && given.receive_maximum().is_none() {
        properties.push(Property::ReceiveMaximum(limits.receive_maximum.max(1)))?;
    }
    if limits.packet_bytes_max < u32::MAX && given.maximum_packet_size().is_none() {
        properties.push(Property::MaximumPacketSize(limits.packet_bytes_max.max(1)))?;
    }
    properties.extend(given);
    Ok(properties)
}
