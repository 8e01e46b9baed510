//! What clients do of their own accord.

use std::collections::BTreeSet;

use unbroken_mqtt_proto::connection::alias;
use unbroken_mqtt_proto::session::Inbound;
use unbroken_mqtt_proto::{
    Connect, Disconnect, Packet, Properties, Property, PropertyBuf, QoS, ReasonCode,
    RetainHandling, Subscribe, SubscriptionOptions, Subscriptions, TopicFilters as Filters,
    Unsubscribe, Version, Will as ConnectWill,
};

use crate::client::Pending;
use crate::message::{
    CHECKPOINTS, FILTERS, Message, MessageId, RECEIPTS, SHARED_FILTERS, SHARED_TOPICS, TOPICS,
    WIDE_FILTERS, is_meek,
};
use crate::oracle::{Terms, Will};
use crate::world::{ConnectTerms, World};

impl World {
    /// Some client does something.
    pub(crate) fn act(&mut self) {
        let client = self.rng.below(self.options.clients);
        let Some(_) = self.clients[client].link else {
            return self.connect_somehow(client);
        };
        if !self.clients[client].connected {
            if self.options.cuts && self.rng.percent(5) {
                self.cut(client);
            }
            return;
        }
        match self.rng.below(100) {
            0..=49 => self.publish_some(client),
            50..=64 => self.subscribe_some(client),
            65..=71 if self.options.unsubscribes => self.unsubscribe_some(client),
            72..=76 if self.options.cuts => self.cut(client),
            77..=79 if self.options.goodbyes => self.say_goodbye(client),
            80..=84 => self.clients[client].write(&Packet::PingReq),
            _ => self.clients[client].answer(),
        }
        self.flush(client);
    }

    fn connect_somehow(&mut self, client: usize) {
        let o = &self.options;
        let v5 = self.clients[client].version == Version::V5;
        let stays = self.rng.percent(o.staying);
        let expiry_s = match (stays, v5) {
            (false, _) => 0,
            (true, true) if o.session_expiry => self.rng.number(1, 20),
            (true, _) => u32::MAX,
        };
        // Before 5.0 a session ends with its connection exactly if it began clean.
        let clean = if v5 {
            self.rng.percent(o.clean_starts)
        } else {
            !stays
        };
        let mut will = None;
        if o.wills && self.rng.percent(60) {
            let message = self.some_message(client);
            if self.options.kills > 0 {
                // What is found on disk says by its payload who left it.
                self.oracle.messages[message].clear = false;
            }
            let delays = v5 && self.rng.percent(50);
            let delay_s = if delays { self.rng.number(1, 10) } else { 0 };
            let is_denied = self.is_denied(client, message);
            will = (!is_denied).then_some(Will { message, delay_s });
        }
        let terms = ConnectTerms {
            clean,
            expiry_s,
            will,
        };
        self.connect(client, terms);
        if self.options.eager && self.rng.percent(50) {
            let message = self.some_message(client);
            self.oracle.messages[message].qos = QoS::AtMostOnce;
            self.clients[client].publish(&mut self.oracle, message);
            self.flush(client);
        }
    }

    /// Opens a connection and sends CONNECT.
    pub(crate) fn connect(&mut self, number: usize, terms: ConnectTerms) {
        let link = self.dial(number, terms);
        debug_assert_eq!(self.clients[number].link, Some(link));
        let o = self.options.clone();
        let v5 = self.clients[number].version == Version::V5;
        let mut properties = PropertyBuf::new();
        let mut receive_maximum = o.window;
        self.clients[number].packet_bytes_max = u32::MAX;
        if v5 {
            let mut add = |property| properties.push(property).expect("short");
            if terms.expiry_s > 0 {
                add(Property::SessionExpiryInterval(terms.expiry_s));
            }
            if self.rng.percent(40) {
                let maximum = self.rng.pick(&[1, 2, 10]);
                receive_maximum = receive_maximum.min(maximum);
                add(Property::ReceiveMaximum(maximum));
            }
            if o.aliases {
                let maximum = self.rng.pick(&[0, 1, 10]);
                add(Property::TopicAliasMaximum(maximum));
                self.clients[number].aliases_in = alias::Inbound::new(maximum);
            }
            if o.small_packets && number < o.clients && self.rng.percent(50) {
                add(Property::MaximumPacketSize(SMALL_PACKET));
                self.clients[number].packet_bytes_max = SMALL_PACKET;
            }
        }
        let will_properties = terms.will.map(|will| {
            let mut properties = PropertyBuf::new();
            if v5 {
                let mut add = |property| properties.push(property).expect("short");
                if will.delay_s > 0 {
                    add(Property::WillDelayInterval(will.delay_s));
                }
                if let Some(seconds) = self.oracle.messages[will.message].expiry_s {
                    add(Property::MessageExpiryInterval(seconds));
                }
            }
            properties
        });
        let payload = terms
            .will
            .map(|will| self.oracle.messages[will.message].payload(will.message));
        let will = terms.will.map(|will| {
            let message = &self.oracle.messages[will.message];
            ConnectWill {
                topic: message.topic,
                payload: payload.as_deref().unwrap_or_default(),
                qos: message.qos,
                retain: message.retain,
                properties: will_properties
                    .as_ref()
                    .map_or(Properties::EMPTY, PropertyBuf::as_properties),
            }
        });
        let client = &mut self.clients[number];
        client.receive_maximum = receive_maximum;
        client.inbound.set_receive_maximum(receive_maximum);
        if terms.clean {
            client.inbound = Inbound::new();
            client.inbound.set_receive_maximum(receive_maximum);
        }
        let keep_alive = if o.keep_alive { 5 } else { 0 };
        let id = client.id.clone();
        client.write(&Packet::Connect(Connect {
            version: client.version,
            bridge: false,
            clean_start: terms.clean,
            keep_alive,
            client_id: &id,
            will,
            user_name: None,
            password: None,
            properties: properties.as_properties(),
        }));
        self.flush(number);
    }

    fn some_message(&mut self, publisher: usize) -> MessageId {
        let o = &self.options;
        let shared = o.shared && self.rng.percent(40);
        let topic = if shared {
            self.rng.pick(&SHARED_TOPICS)
        } else {
            self.rng.pick(&TOPICS)
        };
        let retain = o.retained && !shared && self.rng.percent(40);
        let clear = retain && o.clears && self.rng.percent(25);
        let v5 = self.clients[publisher].version == Version::V5;
        let expires = v5 && o.message_expiry && !clear && self.rng.percent(40);
        let expiry_s = expires.then(|| self.rng.number(1, 6));
        let long = o.small_packets && self.rng.percent(20);
        let padding = if long {
            SMALL_PACKET as usize
        } else {
            self.rng.between(0, 30)
        };
        self.oracle.messages.push(Message {
            publisher,
            topic,
            qos: self
                .rng
                .pick(&[QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce]),
            retain,
            clear,
            expiry_s,
            padding,
            accepts: 0,
            first_accept: 0,
            last_accept: 0,
            accepted_at: None,
            acknowledged: None,
            found: None,
            erased: false,
            promised: false,
        });
        self.oracle.messages.len() - 1
    }

    fn publish_some(&mut self, client: usize) {
        for _ in 0..self.rng.between(1, self.options.burst) {
            let message = self.some_message(client);
            if !self.clients[client].publish(&mut self.oracle, message) {
                return;
            }
            self.note(|| format!("client {client} publishes message {message}"));
        }
    }

    fn subscribe_some(&mut self, client: usize) {
        if self.clients[client].pending.is_some() {
            return;
        }
        let v5 = self.clients[client].version == Version::V5;
        let identifier = (v5 && self.options.identifiers && self.rng.percent(70))
            .then(|| self.rng.number(1, 300));
        let again = self.options.wavers && self.rng.percent(60);
        let its_own = again.then(|| self.oracle.live_filters(client));
        let its_own = its_own.filter(|texts| !texts.is_empty());
        let mut texts = BTreeSet::new();
        for _ in 0..self.rng.between(1, 3) {
            texts.insert(if let Some(its_own) = &its_own {
                self.rng.pick(its_own)
            } else if self.options.watched && self.rng.percent(30) {
                if self.options.forwards {
                    CHECKPOINTS
                } else {
                    RECEIPTS
                }
            } else if self.options.shared && self.rng.percent(50) {
                self.rng.pick(&SHARED_FILTERS)
            } else if !self.options.shared && self.rng.percent(20) {
                self.rng.pick(&WIDE_FILTERS)
            } else {
                self.rng.pick(&FILTERS)
            });
        }
        let entries: Vec<_> = texts
            .into_iter()
            .map(|text| {
                let mut options = SubscriptionOptions::at(self.rng.pick(&[
                    QoS::AtMostOnce,
                    QoS::AtLeastOnce,
                    QoS::ExactlyOnce,
                    QoS::ExactlyOnce,
                ]));
                let certain = self.options.loyal || self.options.heirs;
                if certain && text.starts_with("$share/") {
                    options.qos = options.qos.max(QoS::AtLeastOnce);
                }
                if self.options.meek && is_meek(text) {
                    options.qos = QoS::AtMostOnce;
                }
                if v5 {
                    options.no_local = !text.starts_with("$share/") && self.rng.percent(15);
                    options.retain_as_published = self.rng.percent(30);
                    options.retain_handling = self.rng.pick(&[
                        RetainHandling::SendAlways,
                        RetainHandling::SendAlways,
                        RetainHandling::SendIfNew,
                        RetainHandling::DoNotSend,
                    ]);
                }
                (
                    text,
                    Terms {
                        options,
                        identifier,
                    },
                )
            })
            .collect();
        self.subscribe(client, entries);
    }

    /// Sends SUBSCRIBE.
    pub(crate) fn subscribe(&mut self, number: usize, entries: Vec<(&'static str, Terms)>) {
        self.note(|| format!("client {number} subscribes: {entries:?}"));
        let client = &mut self.clients[number];
        let id = client.next_subscribe_id();
        let list: Vec<_> = entries
            .iter()
            .map(|(text, terms)| (*text, terms.options))
            .collect();
        let mut properties = PropertyBuf::new();
        if let Some(identifier) = entries.first().and_then(|(_, terms)| terms.identifier) {
            properties
                .push(Property::SubscriptionIdentifier(identifier))
                .expect("not 0");
        }
        client.write(&Packet::Subscribe(Subscribe {
            packet_id: id,
            properties: properties.as_properties(),
            filters: Subscriptions::new(&list),
        }));
        let since = self.oracle.subscribing(number, &entries);
        client.pending = Some(Pending::Subscribe { id, entries, since });
        self.flush(number);
    }

    fn unsubscribe_some(&mut self, number: usize) {
        let choice = self.rng.below(100);
        let Some(text) = self.oracle.some_filter(number, choice) else {
            return;
        };
        let client = &mut self.clients[number];
        if client.pending.is_some() {
            return;
        }
        let id = client.next_subscribe_id();
        client.write(&Packet::Unsubscribe(Unsubscribe {
            packet_id: id,
            properties: Properties::EMPTY,
            filters: Filters::new(&[text]),
        }));
        client.pending = Some(Pending::Unsubscribe { id, text });
        self.oracle.unsubscribing(number, text);
        self.note(|| format!("client {number} unsubscribes from {text}"));
    }

    /// Sends DISCONNECT and closes behind it.
    pub(crate) fn say_goodbye(&mut self, number: usize) {
        let Some(link) = self.clients[number].link else {
            return;
        };
        self.note(|| format!("client {number} says goodbye on link {link}"));
        let terms = self.links[link].terms;
        let client = &mut self.clients[number];
        let v5 = client.version == Version::V5;
        let mut properties = PropertyBuf::new();
        if v5 && terms.expiry_s > 0 && self.options.session_expiry && self.rng.percent(30) {
            let seconds = self.rng.number(0, 10);
            properties
                .push(Property::SessionExpiryInterval(seconds))
                .expect("a number");
        }
        let with_will = v5 && self.rng.percent(20);
        let reason = if with_will {
            ReasonCode::DisconnectWithWillMessage
        } else {
            ReasonCode::Success
        };
        client.write(&Packet::Disconnect(Disconnect {
            reason,
            properties: properties.as_properties(),
        }));
        self.flush(number);
        self.leave(number);
    }

    /// Ends whatever connection and session a client still has, so that nothing of it remains.
    pub(crate) fn end_session(&mut self, number: usize) {
        let terms = ConnectTerms {
            clean: true,
            expiry_s: 0,
            will: None,
        };
        self.connect(number, terms);
        self.settle();
        self.say_goodbye(number);
        self.settle();
    }

    /// Publishes an empty retained message.
    pub(crate) fn clear_retained(&mut self, number: usize, topic: &'static str) {
        self.oracle.messages.push(Message {
            publisher: number,
            topic,
            qos: QoS::AtLeastOnce,
            retain: true,
            clear: true,
            expiry_s: None,
            padding: 0,
            accepts: 0,
            first_accept: 0,
            last_accept: 0,
            accepted_at: None,
            acknowledged: None,
            found: None,
            erased: false,
            promised: false,
        });
        let message = self.oracle.messages.len() - 1;
        let sent = self.clients[number].publish(&mut self.oracle, message);
        assert!(sent, "a client that has been answered may publish");
        self.flush(number);
        self.settle();
    }
}

/// Below it what the broker says itself still fits.
const SMALL_PACKET: u32 = 100;
