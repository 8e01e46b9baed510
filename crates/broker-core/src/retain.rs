//! Retained messages: kept on the shard their topic hashes to, asked for slice by slice.
//!
//! A subscription walks through the retained messages that match it, shard by shard and slice by
//! slice, as fast as its connection takes them. While it walks, live messages go their own way; a
//! retained copy older than a live message that the session was already given on that topic is left
//! out.
//!
//! Invariant: a retained message has no position in a log, so whoever is given it needs none.
//!
//! Invariant: the acknowledgement of a retained QoS 1 or 2 message leaves after the topic's shard
//! has it, so that whoever learns of the acknowledgement and then subscribes anywhere in the broker
//! gets it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::QoS;
use unbroken_mqtt_proto::topic::{TopicFilter, TopicName};

use crate::audit::verdict::finds_verdict;
use crate::clients::Clients;
use crate::durability::{Record, Until};
use crate::ids::{Errand, SessionId, ShardId, StoreId};
use crate::item::{Item, Storing};
use crate::limits::RETAINED_SLICE;
use crate::mail::Letter;
use crate::message::Message;
use crate::placement;
use crate::reason::DropReason;
use crate::retained::{Asked, RetainedScan};
use crate::routing::{Grant, Terms};
use crate::session::Identifiers;
use crate::shard::Shard;
use crate::timers::Timer;

impl Shard {
    /// Keeps (empty payload: forgets) the message of its topic. At QoS 1 and 2 its acknowledgement
    /// waits for that.
    pub(crate) fn retain(&mut self, now: Instant, item: &mut Item<'_>, qos: QoS) {
        let owner = placement::of_topic(item.publication.topic, self.options.shards);
        // It outlives its place in the log, so that with a place has a copy of its own.
        let may_be_stored = self.options.settings.durable && item.publication.qos > QoS::AtMostOnce;
        let pool = &mut self.clients.pool;
        let message = if may_be_stored {
            pool.message(&item.publication, item.publisher)
        } else {
            item.message(pool)
        };
        if owner == self.options.id {
            return item.wait_for(self.set_retained(now, message, None));
        }
        let token = (qos > QoS::AtMostOnce).then(|| self.expect_settled(item));
        let errand = match item.storing {
            Storing::IfWanted(Some(marker)) => marker.retained,
            _ => None,
        };
        let letter = Letter::Retain {
            message,
            token,
            errand,
        };
        self.mail(owner, letter);
    }

    /// A token for a letter about this message, whose answer its acknowledgement waits for.
    pub(crate) fn expect_settled(&mut self, item: &mut Item<'_>) -> u64 {
        let token = item.until.settled.unwrap_or_else(|| self.token());
        item.until.settled = Some(token);
        let position = item.position();
        self.clients.promises.expect_settled(token, position);
        token
    }

    pub(crate) fn handle_retain(
        &mut self,
        now: Instant,
        from: ShardId,
        message: Arc<Message>,
        token: Option<u64>,
        errand: Option<Errand>,
    ) {
        let stored = self.set_retained(now, message, errand);
        if let Some(token) = token {
            let until = Until::stored(stored);
            self.clients.settle_when(now, until, from, token);
        }
    }

    /// Answers the request that this shard's part in it is stored with.
    fn set_retained(
        &mut self,
        now: Instant,
        message: Arc<Message>,
        errand: Option<Errand>,
    ) -> StoreId {
        let Ok(topic) = TopicName::parse(message.topic()) else {
            return StoreId::NOTHING;
        };
        let refuses = message.publisher().and_then(|_| self.store_refuses());
        if refuses == Some(DropReason::StoreFailed) {
            // What is on disk stays, so that is what is shown. Whoever waits is never answered.
            self.drop_of_publisher(now, &Item::kept(&message), DropReason::StoreFailed);
            return self.store_retained(&message, |message| Record::Retained { message, errand });
        }
        if message.payload().is_empty() {
            if let Some(old) = self.retained.remove(topic) {
                self.uncount_retained(&old); // [MQTT-3.3.1-6, MQTT311-3.3.1-10]
            }
            return self.store_unretained(&message, errand); // [MQTT-3.3.1-7, MQTT311-3.3.1-11]
        }
        // The old message makes room for the new one, in one step, since other shards want that
        // room too. If it is not enough neither is kept: a full store must not go on showing an old
        // value as the current one.
        let old = self.retained.remove(topic);
        let counted = refuses.is_none() && self.count_retained(&message, old.as_deref());
        if let Some(old) = old.filter(|_| !counted) {
            self.uncount_retained(&old);
        }
        if !counted {
            let why = refuses.unwrap_or(DropReason::RetainedFull);
            let item = Item::kept(&message);
            self.drop_of_publisher(now, &item, why);
            return self.store_unretained(&message, errand);
        }
        self.set_counted(now, topic, &message);
        self.store_retained(&message, |message| Record::Retained { message, errand })
    }

    /// Keeps a message that is on disk already, or names it if the limits do not allow it.
    pub(crate) fn keep_retained(&mut self, now: Instant, message: Arc<Message>) {
        let Ok(topic) = TopicName::parse(message.topic()) else {
            return;
        };
        if self.count_retained(&message, None) {
            self.set_counted(now, topic, &message);
        } else {
            let item = Item::kept(&message);
            self.drop_of_publisher(now, &item, DropReason::RetainedFull);
        }
    }

    fn set_counted(&mut self, now: Instant, topic: TopicName<'_>, message: &Arc<Message>) {
        if let Some(at) = message.publication().expires {
            self.timers
                .set(at.max(now), Timer::Retained(Arc::downgrade(message)));
        }
        // [MQTT-3.3.1-5, MQTT311-3.3.1-5, MQTT311-3.3.1-7]
        self.retained.set(topic, Arc::clone(message));
    }

    pub(crate) fn store_unretained(
        &mut self,
        message: &Arc<Message>,
        errand: Option<Errand>,
    ) -> StoreId {
        self.store_retained(message, |message| Record::Unretained {
            topic: message.topic().into(),
            errand,
        })
    }

    /// Asks for what became of a client's retained message. The broker's own are made anew.
    fn store_retained(
        &mut self,
        message: &Arc<Message>,
        record: impl FnOnce(Arc<Message>) -> Record,
    ) -> StoreId {
        if !self.options.settings.durable || message.publisher().is_none() {
            return StoreId::NOTHING;
        }
        let Clients {
            promises, outputs, ..
        } = &mut self.clients;
        promises.ask(outputs, record(Arc::clone(message)))
    }

    pub(crate) fn expire_retained(&mut self, now: Instant, message: &Weak<Message>) {
        let Some(message) = message.upgrade() else {
            return;
        };
        let Ok(topic) = TopicName::parse(message.topic()) else {
            return;
        };
        if self
            .retained
            .get(topic)
            .is_some_and(|kept| Arc::ptr_eq(kept, &message))
        {
            self.retained.remove(topic);
            self.uncount_retained(&message);
            self.store_unretained(&message, None);
            let item = Item::kept(&message);
            self.drop_of_publisher(now, &item, DropReason::Expired);
        }
    }

    /// Counts a message towards the limits in place of the one that it replaces, which stays
    /// counted if there is no room. The broker's own (`$SYS`) are few, and must not fill a small
    /// store.
    fn count_retained(&mut self, message: &Message, old: Option<&Message>) -> bool {
        let limits = &self.clients.limits;
        let totals = &self.options.totals;
        let limited = |message: &Message| match message.publisher() {
            Some(_) => (1, message.publication().cost()),
            None => (0, 0),
        };
        let (new_count, new_bytes) = limited(message);
        let (old_count, old_bytes) = old.map_or((0, 0), limited);
        let messages_max = limits.retained_messages_max.into();
        let messages = &totals.retained_messages;
        if !messages.try_replace(old_count, new_count, messages_max) {
            return false;
        }
        let bytes = &totals.retained_bytes;
        if !bytes.try_replace(old_bytes, new_bytes, limits.retained_bytes_max) {
            messages.try_replace(new_count, old_count, u64::MAX);
            return false;
        }
        let old = old.map(|old| old.publication().cost());
        let telemetry = &mut self.clients.telemetry;
        telemetry.retained(message.publication().cost(), old);
        true
    }

    pub(crate) fn uncount_retained(&mut self, message: &Message) {
        let cost = message.publication().cost();
        self.clients.telemetry.unretained(cost);
        if message.publisher().is_some() {
            self.options.totals.retained_messages.subtract(1);
            self.options.totals.retained_bytes.subtract(cost);
        }
    }

    /// Notes that a new subscription is to be sent what is retained for it.
    pub(crate) fn add_retained_scan(
        &mut self,
        session: SessionId,
        filter: TopicFilter<'_>,
        grant: Grant,
    ) {
        let (shard, last) = if filter.has_wildcard() {
            (ShardId(0), ShardId(self.options.shards - 1))
        } else {
            let owner = placement::of_topic(filter.as_str(), self.options.shards);
            (owner, owner)
        };
        let token = self.token();
        let found = VecDeque::from_iter(self.lane_answer(filter.as_str()));
        let scans_max = self.clients.limits.subscriptions_per_session_max as usize;
        let Some(session) = self.clients.session_mut(session) else {
            return;
        };
        if session.retained.len() >= scans_max {
            // Only by subscribing to the same again, faster than it is answered: once is enough.
            session.retained.remove(filter.as_str());
        }
        session.retained.push_back(RetainedScan {
            token,
            filter: filter.as_str().into(),
            grant,
            shard,
            last,
            after: None,
            asked: None,
            more: found.is_empty(),
            found,
            waits: true,
        });
    }

    /// The same for a subscription that was there before the broker started: it is sent all of it,
    /// since nobody knows how far it was.
    pub(crate) fn restore_retained_scan(
        &mut self,
        session: SessionId,
        filter: TopicFilter<'_>,
        grant: Grant,
    ) {
        self.add_retained_scan(session, filter, grant);
        let session = self.clients.session_mut(session);
        if let Some(scan) = session.and_then(|session| session.retained.back_mut()) {
            scan.waits = false; // its SUBACK has left, or will not
        }
    }

    /// Begins the scans with these tokens.
    pub(crate) fn begin_retained(
        &mut self,
        now: Instant,
        session_id: SessionId,
        tokens: Range<u64>,
    ) {
        if tokens.is_empty() {
            return;
        }
        let Some(session) = self.clients.session_mut(session_id) else {
            return;
        };
        let mut asking = Vec::new();
        for scan in session.retained.range_mut(tokens) {
            scan.waits =
                finds_verdict(&scan.filter) && self.options.settings.sys_interval.is_some();
            if scan.waits {
                asking.push(scan.token);
            }
        }
        for token in asking {
            self.ask_for_verdict(now, session_id, token);
        }
        self.pump(now, session_id);
    }

    /// Goes on with the session's first scan while there is room for what it finds. After some
    /// slices the others have their turn, and this goes on in the next one.
    pub(crate) fn pump_retained(&mut self, now: Instant, session_id: SessionId) {
        // Of that, copies that were found may be older.
        self.clients.catch_up(now, session_id);
        let session = self.clients.sessions.get(session_id.index());
        if session.is_none_or(|session| session.connection.is_none()) {
            return; // what is found now may be replaced before it comes back
        }
        for _ in 0..RETAINED_SLICES_A_TURN {
            let Some(scan) = self.front_scan(session_id) else {
                return;
            };
            if scan.waits {
                return;
            }
            if scan.found.is_empty() && scan.more && !self.ask_for_slice(session_id) {
                return;
            }
            if !self.send_found(now, session_id) {
                return;
            }
        }
        self.timers.set(now + NEXT_TURN, Timer::Scan(session_id));
    }

    /// Asks for the next slice of the first scan. Answers whether it is here at once.
    fn ask_for_slice(&mut self, session_id: SessionId) -> bool {
        let (me, token) = (self.options.id, self.token());
        let Some(scan) = self.front_scan(session_id) else {
            return false;
        };
        let shard = scan.shard;
        let (filter, after) = (Arc::clone(&scan.filter), scan.after.take());
        scan.asked = Some(Asked {
            token,
            after: after.clone(),
            is_answered: false,
            last: None,
        });
        if shard == me {
            let (messages, next) = self.scan_retained(&filter, after.as_deref());
            self.take_retained(session_id, token, messages, next);
            return true;
        }
        scan.waits = true;
        let letter = Letter::RetainedQuery {
            token,
            session: session_id,
            filter: (*filter).into(),
            after,
        };
        self.mail(shard, letter);
        false
    }

    fn front_scan(&mut self, session_id: SessionId) -> Option<&mut RetainedScan> {
        self.clients.session_mut(session_id)?.retained.front_mut()
    }

    /// Whether this message would go straight out rather than fill the queue.
    fn room_for_retained(&self, session_id: SessionId, qos: QoS) -> bool {
        let Some(session) = self.clients.sessions.get(session_id.index()) else {
            return false;
        };
        let connection = session
            .connection
            .and_then(|index| self.clients.connections.at(index));
        let window = qos == QoS::AtMostOnce
            || (session.queue.is_empty()
                && !session.is_behind()
                && session.window_open(&self.clients.limits)
                && !session.outbound.resending());
        let output_max = self.clients.limits.output_bytes_max as usize;
        window && connection.is_some_and(|connection| connection.unwritten() <= output_max / 2)
    }

    fn scan_retained(
        &self,
        filter: &str,
        after: Option<&str>,
    ) -> (Vec<Arc<Message>>, Option<Box<str>>) {
        let mut found = Vec::new();
        let Ok(filter) = TopicFilter::parse(filter) else {
            return (found, None);
        };
        let next = self
            .retained
            .scan(filter, after, RETAINED_SLICE, |message| {
                found.push(Arc::clone(message));
            });
        (found, next)
    }

    pub(crate) fn handle_retained_query(
        &mut self,
        from: ShardId,
        token: u64,
        session: SessionId,
        filter: &str,
        after: Option<&str>,
    ) {
        let (messages, next) = self.scan_retained(filter, after);
        self.mail(
            from,
            Letter::RetainedAnswer {
                token,
                session,
                messages,
                next,
            },
        );
    }

    /// Takes a slice that was found for a scan, if it still waits for that answer.
    pub(crate) fn take_retained(
        &mut self,
        session_id: SessionId,
        token: u64,
        messages: Vec<Arc<Message>>,
        next: Option<Box<str>>,
    ) {
        if let Some(scan) = self.front_scan(session_id)
            && let Some(asked) = scan.asked.as_mut().filter(|asked| asked.token == token)
        {
            asked.is_answered = true;
            scan.waits = false;
            scan.more = next.is_some();
            scan.after = next;
            scan.found = messages.into();
        }
    }

    /// Sends what the first scan has found, message by message while there is room, and moves it on
    /// when that was all. Answers whether there was room for all of it.
    fn send_found(&mut self, now: Instant, session_id: SessionId) -> bool {
        while let Some(scan) = self.front_scan(session_id) {
            let grant = scan.grant;
            let Some(message) = scan.found.front().map(Arc::clone) else {
                break;
            };
            let publication = message.publication();
            if !self.room_for_retained(session_id, grant.qos.min(publication.qos)) {
                return false;
            }
            let Some(session) = self.clients.session_mut(session_id) else {
                return false;
            };
            // One scan does not overtake another: each subscription gets its copy.
            let mut scans = std::mem::take(&mut session.retained);
            // [MQTT-3.8.3-3]
            let own = grant.no_local && message.publisher() == Some(&session.client_id);
            let token = scans.front_mut().map(|scan| {
                scan.found.pop_front();
                if let Some(asked) = &mut scan.asked {
                    asked.last = Some(Arc::clone(&message));
                }
                scan.token
            });
            let newer_given = token.is_some_and(|token| {
                scans.is_overtaken(token, publication.topic, publication.stamp)
            });
            if !newer_given && !own && !publication.expired(now) {
                self.send_retained(now, session_id, grant, &message);
            }
            if let Some(session) = self.clients.session_mut(session_id) {
                session.retained = scans;
            }
            self.clients.pool.release(message);
        }
        if let Some(session) = self.clients.session_mut(session_id)
            && let Some(scan) = session.retained.front_mut()
            && !scan.more
        {
            if scan.shard == scan.last {
                let done = session.retained.pop_front();
                if let Some(done) = done
                    && session.kept.is_some()
                    && !session.retained.has(&done.filter)
                {
                    self.clients.end_scan(session_id, &done.filter);
                }
            } else {
                scan.shard = ShardId(scan.shard.0 + 1);
                scan.more = true;
            }
        }
        true
    }

    fn send_retained(
        &mut self,
        now: Instant,
        session_id: SessionId,
        grant: Grant,
        message: &Arc<Message>,
    ) {
        let mut item = Item::kept(message);
        // Its receipt is about those it was routed to.
        if let Some(mark) = &mut item.publication.mark {
            mark.tracked = false;
        }
        self.clients.begin_item(false);
        // [MQTT-3.3.4-5]
        let identifiers: Identifiers = grant.identifier.into_iter().collect();
        let terms = Terms {
            qos: grant.qos,
            retain: true, // [MQTT311-3.3.1-8]
            identifiers: &identifiers,
            group: None,
        };
        self.clients.deliver(now, session_id, terms, &mut item);
        item.finish(&mut self.clients.pool);
    }
}

/// How many slices one session's scan may take at a time.
const RETAINED_SLICES_A_TURN: usize = 4;
/// Later than now, so that a turn of the loop comes between.
const NEXT_TURN: Duration = Duration::from_nanos(1);
