//! Filters to subscriptions: asking the broker for them, and whose a message is.
//!
//! Each filter goes in a SUBSCRIBE of its own with a subscription identifier, where the broker
//! takes them. Some brokers send one copy of a message for all of a session's filters that match,
//! others one for each. In either case a subscription takes the copy of the first of its filters
//! that matches, and so takes each message once.
//!
//! Invariant: every filter of an entry is granted, or asked for on the present connection.
//! Identifiers depend on the filter alone, so that a session that outlives the client fits the
//! subscriptions of the next one.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::oneshot;
use unbroken_mqtt_proto::{
    Packet, PacketId, Property, PropertyBuf, QoS, ReasonCode, SubAck, Subscribe,
    SubscriptionFilter, Subscriptions, TopicFilters, TopicName, Unsubscribe,
};

use super::requests::{Request, Requests};
use super::sending::Sending;
use super::wire::Wire;
use super::{Granting, PublishRequest};
use crate::inbox::Inbox;
use crate::limits::IDENTIFIER_MAX;
use crate::{ConnectError, Event, Filter, Options, Session, SubscribeError};

pub(super) struct Routes {
    entries: Vec<Entry>,
    /// Filters that nobody reads any more, newest last; the broker may still send what it had
    /// queued for them.
    given_up: VecDeque<Arc<str>>,
    /// The broker is to be told, or was told and has not answered.
    endings: Vec<Ending>,
    filters_max: usize,
    /// The broker keeps the session while the client does not run. Then a subscription ends only
    /// where its owner asks for it.
    is_session_kept: bool,
    next_id: u64,
    requests: Requests,
    /// Where the messages of no entry go.
    unclaimed: Option<Arc<Inbox>>,
}

struct Entry {
    id: u64,
    inbox: Arc<Inbox>,
    /// Until the broker has granted every filter for the first time.
    reply: Option<Granting>,
    filters: Vec<Held>,
}

struct Held {
    filter: Filter,
    identifier: u32,
    /// The SUBSCRIBE without SUBACK.
    asked: Option<PacketId>,
    granted: Option<QoS>,
}

struct Ending {
    filters: Vec<Arc<str>>,
    asked: Option<PacketId>,
    reply: Option<oneshot::Sender<()>>,
}

/// Whose a message is.
pub(super) enum Route {
    /// Theirs, at least one.
    To(Vec<Arc<Inbox>>),
    /// It is one more copy of a message that comes by another filter.
    Copy,
    /// Of a subscription that was given up.
    GivenUp,
    /// Nobody has asked for it.
    Unknown,
}

impl Routes {
    pub(super) fn new(options: &Options, unclaimed: Option<Arc<Inbox>>) -> Self {
        Self {
            is_session_kept: matches!(options.session, Session::Kept { .. }),
            entries: Vec::new(),
            given_up: VecDeque::new(),
            endings: Vec::new(),
            filters_max: options.limits.filters_max,
            next_id: 0,
            requests: Requests::default(),
            unclaimed,
        }
    }

    /// Takes a subscription and asks for it; `None`: it was refused here.
    pub(super) fn add(
        &mut self,
        wish: PublishRequest,
        wire: Option<&mut Wire>,
        sending: &Sending,
    ) -> Option<u64> {
        let filters_max = self.filters_max;
        let is_claimed = |held: &Held| wish.filters.iter().any(|new| new.text == held.filter.text);
        let stays = |entry: &Entry, held: &Held| entry.inbox.has_owner() || !is_claimed(held);
        let held: usize = (self.entries.iter())
            .map(|entry| {
                entry
                    .filters
                    .iter()
                    .filter(|held| stays(entry, held))
                    .count()
            })
            .sum();
        if held + wish.filters.len() > filters_max {
            // Whoever wished may have stopped waiting.
            let _ = (wish.reply).send(Err(SubscribeError::TooMany { filters_max }));
            return None;
        }
        for entry in self
            .entries
            .iter_mut()
            .filter(|entry| !entry.inbox.has_owner())
        {
            entry.filters.retain(|held| !is_claimed(held));
        }
        self.entries.retain(|entry| !entry.filters.is_empty());
        let id = self.next_id;
        self.next_id += 1;
        let mut entry = Entry {
            id,
            inbox: wish.inbox,
            reply: Some(wish.reply),
            filters: Vec::with_capacity(wish.filters.len()),
        };
        for filter in wish.filters {
            self.given_up.retain(|given_up| *given_up != filter.text);
            let identifier = self.identifier(&filter.text, &entry.filters);
            entry.filters.push(Held {
                filter,
                identifier,
                asked: None,
                granted: None,
            });
        }
        self.entries.push(entry);
        if let Some(wire) = wire {
            self.ask(id, wire, sending);
        }
        Some(id)
    }

    /// The owner of a subscription has gone without a word. A kept session goes on collecting for
    /// its next start.
    pub(super) fn handle_dropped(&mut self, id: u64, wire: Option<&mut Wire>, sending: &Sending) {
        if !self.is_session_kept {
            self.give_up(id, None, wire, sending);
        } else if let Some(at) = self.entries.iter().position(|entry| entry.id == id) {
            let mut entry = self.entries.remove(at);
            entry.inbox.leave_open();
            let is_claimed = |held: &Held| {
                let mut others = self.all_filters();
                others.any(|other| other.filter.text == held.filter.text)
            };
            entry.filters.retain(|held| !is_claimed(held));
            if !entry.filters.is_empty() {
                self.entries.push(entry);
            }
        }
    }

    /// A subscription is to end at the broker. `reply` is answered with UNSUBACK.
    pub(super) fn give_up(
        &mut self,
        id: u64,
        reply: Option<oneshot::Sender<()>>,
        wire: Option<&mut Wire>,
        sending: &Sending,
    ) {
        let Some(at) = self.entries.iter().position(|entry| entry.id == id) else {
            if let Some(reply) = reply {
                // Whoever asked may have stopped waiting.
                let _ = reply.send(());
            }
            return;
        };
        let entry = self.entries.remove(at);
        let mut filters = Vec::new();
        for held in entry.filters {
            let text = held.filter.text;
            if self.all_filters().any(|other| other.filter.text == text) {
                continue;
            }
            if self.given_up.len() >= self.filters_max {
                self.given_up.pop_front();
            }
            self.given_up.push_back(Arc::clone(&text));
            filters.push(text);
        }
        self.endings.push(Ending {
            filters,
            asked: None,
            reply,
        });
        if let Some(wire) = wire {
            self.report_endings(wire, sending);
        }
    }

    /// A packet of the application's own.
    pub(super) fn request(&mut self, request: Request, wire: &mut Wire, sending: &Sending) {
        let id = sending.control_id(|id| self.is_used(id));
        self.requests.send(id, request, wire);
    }

    /// CONNACK said yes: asks for what the broker does not know.
    pub(super) fn handle_connected(
        &mut self,
        session_present: bool,
        wire: &mut Wire,
        sending: &Sending,
    ) {
        if !session_present {
            self.given_up.clear();
            for ending in self.endings.drain(..) {
                if let Some(reply) = ending.reply {
                    let _ = reply.send(());
                }
            }
            for held in self.entries.iter_mut().flat_map(|entry| &mut entry.filters) {
                held.granted = None;
            }
        }
        let ids: Vec<_> = self.entries.iter().map(|entry| entry.id).collect();
        for id in ids {
            self.ask(id, wire, sending);
        }
        self.report_endings(wire, sending);
    }

    pub(super) fn handle_disconnected(&mut self) {
        self.requests.handle_disconnected();
        for held in self.entries.iter_mut().flat_map(|entry| &mut entry.filters) {
            held.asked = None;
        }
        for ending in &mut self.endings {
            ending.asked = None;
        }
    }

    /// Takes the answer to a SUBSCRIBE; gives what is to be told of it.
    pub(super) fn handle_suback(
        &mut self,
        suback: &SubAck<'_>,
        wire: &mut Wire,
        sending: &Sending,
    ) -> Option<Event> {
        if self
            .requests
            .handle_answer(suback.packet_id, suback.reasons, self.waiting_unclaimed())
        {
            return None;
        }
        let reason = suback.reasons.first().copied()?;
        let reason = ReasonCode::try_from(reason).unwrap_or(ReasonCode::UnspecifiedError);
        let is_asked = |held: &Held| held.asked == Some(suback.packet_id);
        let entry = (self.entries.iter_mut()).find(|entry| entry.filters.iter().any(is_asked))?;
        let held = entry.filters.iter_mut().find(|held| is_asked(held))?;
        held.asked = None;
        if reason.is_error() {
            let (id, filter) = (entry.id, Arc::clone(&held.filter.text));
            entry.filters.retain(|held| held.filter.text != filter);
            let refused = SubscribeError::Refused {
                filter: Arc::clone(&filter),
                reason,
            };
            let event = if let Some(reply) = entry.reply.take() {
                // Whoever wished may have stopped waiting.
                let _ = reply.send(Err(refused));
                None
            } else {
                entry.inbox.end(refused);
                Some(Event::SubscriptionLost { filter, reason })
            };
            self.handle_dropped(id, Some(wire), sending);
            return event;
        }
        held.granted = QoS::try_from(reason.code()).ok();
        let granted: Option<Vec<_>> = entry.filters.iter().map(|held| held.granted).collect();
        if let Some(granted) = granted
            && let Some(reply) = entry.reply.take()
        {
            let id = entry.id;
            if reply.send(Ok((id, granted))).is_err() {
                // Whoever wished has stopped waiting.
                self.handle_dropped(id, Some(wire), sending);
            }
        }
        None
    }

    pub(super) fn handle_unsuback(&mut self, id: PacketId, reasons: &[u8]) {
        let waiting = self.waiting_unclaimed();
        if self.requests.handle_answer(id, reasons, waiting) {
            return;
        }
        let ended = self
            .endings
            .extract_if(.., |ending| ending.asked == Some(id));
        for ending in ended {
            if let Some(reply) = ending.reply {
                // Whoever asked may have stopped waiting.
                let _ = reply.send(());
            }
        }
    }

    /// Whose a message is, by its topic and the identifiers that came with it.
    pub(super) fn route(
        &self,
        topic: TopicName<'_>,
        identifiers: impl Iterator<Item = u32> + Clone,
    ) -> Route {
        let named = |held: &Held| identifiers.clone().any(|id| id == held.identifier);
        let is_named = self
            .all_filters()
            .any(|held| named(held) && held.matches(topic));
        let mut inboxes = Vec::new();
        let mut matches = false;
        for entry in &self.entries {
            let mut matching = entry.filters.iter().filter(|held| held.matches(topic));
            let Some(first) = matching.next() else {
                continue;
            };
            matches = true;
            // A copy of a group goes to one member only, so it cannot stand for the others.
            let plain = std::iter::once(first)
                .chain(matching)
                .find(|held| !held.is_shared());
            let is_theirs = match plain {
                _ if !is_named => true,
                Some(first_plain) => named(first_plain),
                None => entry
                    .filters
                    .iter()
                    .any(|held| named(held) && held.matches(topic)),
            };
            if is_theirs {
                inboxes.push(Arc::clone(&entry.inbox));
            }
        }
        if !inboxes.is_empty() {
            Route::To(inboxes)
        } else if matches {
            Route::Copy
        } else if let Some(unclaimed) = &self.unclaimed {
            Route::To(vec![Arc::clone(unclaimed)])
        } else if self.given_up.iter().any(|text| matches_text(text, topic)) {
            Route::GivenUp
        } else {
            Route::Unknown
        }
    }

    /// The inbox of this subscription, if it has a filter for the topic.
    pub(super) fn inbox_for(&self, id: u64, topic: &str) -> Option<&Inbox> {
        let topic = TopicName::parse(topic).ok()?;
        let entry = self.entries.iter().find(|entry| entry.id == id)?;
        let matches = entry.filters.iter().any(|held| held.matches(topic));
        matches.then_some(&entry.inbox)
    }

    pub(super) fn inboxes(&self) -> impl Iterator<Item = &Inbox> {
        let entries = self.entries.iter().map(|entry| &*entry.inbox);
        entries.chain(self.unclaimed.as_deref())
    }

    pub(super) fn end(&mut self, why: &ConnectError) {
        for entry in self.entries.drain(..) {
            let ended = SubscribeError::Ended(why.clone());
            entry.inbox.end(ended.clone());
            if let Some(reply) = entry.reply {
                let _ = reply.send(Err(ended));
            }
        }
        self.endings.clear();
        self.requests.end();
        if let Some(unclaimed) = &self.unclaimed {
            unclaimed.end(SubscribeError::Ended(why.clone()));
        }
    }

    fn ask(&mut self, id: u64, wire: &mut Wire, sending: &Sending) {
        let mut wrong = None;
        loop {
            let packet_id = sending.control_id(|id| self.is_used(id));
            let entry = self.entries.iter_mut().find(|entry| entry.id == id);
            let Some(held) = entry.and_then(|entry| {
                let mut filters = entry.filters.iter_mut();
                filters.find(|held| held.granted.is_none() && held.asked.is_none())
            }) else {
                break;
            };
            held.asked = Some(packet_id);
            if let Err(error) = put_subscribe(packet_id, held, wire) {
                wrong = Some(error);
                break;
            }
        }
        let Some(error) = wrong else {
            return;
        };
        if let Some(at) = self.entries.iter().position(|entry| entry.id == id) {
            let entry = self.entries.remove(at);
            entry.inbox.end(SubscribeError::Invalid(error));
            if let Some(reply) = entry.reply {
                let _ = reply.send(Err(SubscribeError::Invalid(error)));
            }
        }
    }

    fn report_endings(&mut self, wire: &mut Wire, sending: &Sending) {
        for at in 0..self.endings.len() {
            let packet_id = sending.control_id(|id| self.is_used(id));
            let Some(ending) = self.endings.get_mut(at) else {
                break;
            };
            if ending.asked.is_some() {
                continue;
            }
            let filters: Vec<&str> = ending.filters.iter().map(|text| &**text).collect();
            let unsubscribe = Packet::Unsubscribe(Unsubscribe {
                packet_id,
                properties: unbroken_mqtt_proto::Properties::EMPTY,
                filters: TopicFilters::new(&filters),
            });
            // Without filters there is nothing to say; those that there are were sent before.
            if filters.is_empty() || wire.put(&unsubscribe).is_err() {
                if let Some(reply) = ending.reply.take() {
                    let _ = reply.send(());
                }
                ending.filters.clear();
            } else {
                ending.asked = Some(packet_id);
            }
        }
        self.endings.retain(|ending| !ending.filters.is_empty());
    }

    fn waiting_unclaimed(&self) -> usize {
        self.unclaimed.as_ref().map_or(0, |inbox| inbox.len())
    }

    fn is_used(&self, id: PacketId) -> bool {
        let mut endings = self.endings.iter();
        self.requests.is_used(id)
            || self.all_filters().any(|held| held.asked == Some(id))
            || endings.any(|ending| ending.asked == Some(id))
    }

    fn all_filters(&self) -> impl Iterator<Item = &Held> {
        self.entries.iter().flat_map(|entry| &entry.filters)
    }

    /// One for each filter, the same one for the same filter.
    fn identifier(&self, text: &str, own: &[Held]) -> u32 {
        let hash = xxhash_rust::xxh3::xxh3_64(text.as_bytes());
        let spread = hash % u64::from(IDENTIFIER_MAX);
        let mut identifier = u32::try_from(spread).expect("below 2^14") + 1;
        let is_taken = |identifier| {
            let mut all = self.all_filters().chain(own);
            all.any(|held| held.identifier == identifier && *held.filter.text != *text)
        };
        while is_taken(identifier) {
            identifier = identifier % IDENTIFIER_MAX + 1;
        }
        identifier
    }
}

impl Held {
    fn matches(&self, topic: TopicName<'_>) -> bool {
        matches_text(&self.filter.text, topic)
    }

    fn is_shared(&self) -> bool {
        SubscriptionFilter::parse(&self.filter.text).is_ok_and(|filter| filter.group().is_some())
    }
}

fn matches_text(filter: &str, topic: TopicName<'_>) -> bool {
    SubscriptionFilter::parse(filter).is_ok_and(|filter| filter.filter().matches(topic))
}

fn put_subscribe(
    packet_id: PacketId,
    held: &Held,
    wire: &mut Wire,
) -> Result<(), unbroken_mqtt_proto::EncodeError> {
    let mut properties = PropertyBuf::new();
    if wire.takes_identifiers() {
        properties.push(Property::SubscriptionIdentifier(held.identifier))?;
    }
    let filters = [(&*held.filter.text, held.filter.options)];
    wire.put(&Packet::Subscribe(Subscribe {
        packet_id,
        properties: properties.as_properties(),
        filters: Subscriptions::new(&filters),
    }))
}
