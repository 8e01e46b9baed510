//! What must hold, kept beside the broker from the outside: who was promised what, and what came.
//!
//! The oracle sees what clients send and receive, the moment a whole packet enters the broker, and
//! the broker's events. It knows a subscription as *certain* from the moment its client has seen
//! SUBACK until that client sends UNSUBSCRIBE, and as *possible* from SUBSCRIBE until UNSUBACK was
//! seen. A message taken while a subscription is certain must arrive or be named as dropped, and so
//! must one taken before whose publisher was told of its session ([`between`]); one that arrives
//! must match something possible.
//!
//! Time is counted in ticks: one for each thing noted, so that everything has an order.

mod between;
mod disk;
mod left_to_groups;
mod power;
mod received;
mod restart;
mod retained;
mod rights;
mod session;
mod stamps;
mod subscriptions;
mod wills;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use unbroken_broker_core::DropReason;
use unbroken_mqtt_proto::{PacketId, QoS, SubscriptionFilter, SubscriptionOptions, TopicName};

use self::between::Between;
use self::disk::Disk;
pub(crate) use self::disk::Request;
use self::left_to_groups::LeftToGroups;
use self::power::Synced;
pub(crate) use self::restart::Heard;
use self::rights::Rights;
use self::session::Session;
use self::stamps::Stamps;
use self::wills::{Left, Revived};
use crate::groups::Groups;
use crate::message::{Message, MessageId};
use crate::options::Options;

#[derive(Debug)]
pub(crate) struct Oracle {
    pub(crate) messages: Vec<Message>,
    /// By client: its present session, or the last one.
    pub(crate) sessions: Vec<Session>,
    groups: Groups,
    /// Every shared subscription that anybody ever asked for.
    shared_texts: BTreeSet<&'static str>,
    /// Of those, the ones that somebody asked for at QoS 0.
    lossy_groups: BTreeSet<&'static str>,
    /// Every subscription that a session that stays, or did, ever asked for at QoS 1 or 2.
    kept_texts: BTreeSet<&'static str>,
    tick: u64,
    serials: u64,
    /// Members may leave their groups, or come back and take only smaller packets: another one gets
    /// what waited for them, behind later ones.
    members_hand_over: bool,
    retained_fits: bool,
    /// Whoever wants a message keeps it: it is not dropped where it comes in.
    queues_fit: bool,
    /// Whoever stays keeps it in any case, or its publisher is refused.
    refuses: bool,
    /// The audit's own words may be too many.
    watched: bool,
    /// Whoever a group has chosen stays, and takes what it is given.
    members_keep: bool,
    left_to_groups: LeftToGroups,
    pub(crate) disk: Disk,
    synced: Synced,
    must_be_stored: BTreeSet<MessageId>,
    /// When the broker was last killed; 0 if it was not.
    killed_at: u64,
    /// It may be.
    can_be_killed: bool,
    /// By client: earlier sessions, whose end need not be on disk.
    past_sessions: Vec<Vec<Session>>,
    /// By client: the will of its last CONNECT, and one that a restart has found.
    left: Vec<Left>,
    revived: Vec<Option<Revived>>,
    /// Those of which the broker has nothing but a will.
    pub(crate) orphans: Vec<bool>,
    /// Messages that their publishers were refused because something was full.
    pub(crate) refused: u64,
    /// Named in events, by client and reason.
    told: BTreeMap<(usize, DropReason), u64>,
    pub(crate) stamps: Stamps,
    rights: Rights,
    between: Between,
}

/// A will, as CONNECT left it with the broker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Will {
    pub(crate) message: MessageId,
    pub(crate) delay_s: u32,
}

/// One entry of a SUBSCRIBE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) options: SubscriptionOptions,
    pub(crate) identifier: Option<u32>,
}

/// A PUBLISH as a client received it.
#[derive(Debug)]
pub(crate) struct Received<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    pub(crate) qos: QoS,
    pub(crate) dup: bool,
    pub(crate) retain: bool,
    pub(crate) packet_id: Option<PacketId>,
    pub(crate) identifiers: Vec<u32>,
    pub(crate) expiry_s: Option<u32>,
    pub(crate) v5: bool,
}

impl Oracle {
    pub(crate) fn new(options: &Options, clients: usize) -> Self {
        Self {
            messages: Vec::new(),
            sessions: (0..clients).map(|_| Session::default()).collect(),
            groups: Groups::default(),
            shared_texts: BTreeSet::new(),
            lossy_groups: BTreeSet::new(),
            kept_texts: BTreeSet::new(),
            tick: 0,
            serials: 0,
            members_hand_over: options.members_leave() || options.small_packets,
            retained_fits: !options.retains_few(),
            queues_fit: options.queues_keep() && !options.small_packets,
            refuses: options.refuses,
            watched: options.watched,
            members_keep: !options.members_leave() && !options.refusals,
            left_to_groups: LeftToGroups::new(options),
            disk: Disk::default(),
            synced: Synced::default(),
            must_be_stored: BTreeSet::new(),
            killed_at: 0,
            can_be_killed: options.kills > 0,
            past_sessions: (0..clients).map(|_| Vec::new()).collect(),
            left: vec![Left::default(); clients],
            revived: vec![None; clients],
            orphans: vec![false; clients],
            refused: 0,
            told: BTreeMap::new(),
            stamps: Stamps::default(),
            rights: Rights::default(),
            between: Between::default(),
        }
    }

    pub(crate) fn tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    // ---- messages ----

    /// The broker has taken a message from this client.
    pub(crate) fn accepted(&mut self, client: usize, id: MessageId, now: Instant) {
        let tick = self.tick();
        let message = &mut self.messages[id];
        message.accepts += 1;
        if message.accepts == 1 {
            message.first_accept = tick;
            message.accepted_at = Some(now);
        }
        message.last_accept = tick;
        message.erased = false;
        message.found = None;
        if message.clear {
            return;
        }
        if message.topic.starts_with("s/") {
            if self.rights.concern(message.topic) {
                return;
            }
            let members = self.sessions.iter().enumerate();
            let members = members.flat_map(|(client, session)| {
                let live = session
                    .filters
                    .iter()
                    .filter(|filter| filter.until.is_none());
                live.map(move |filter| {
                    let certain = filter.certain && session.exists;
                    (filter.text, (client, session.serial), certain)
                })
            });
            self.groups.accepted(id, self.messages[id].topic, members);
            return;
        }
        if self.may_be_refused(id) && !self.disk.has_asked_for(id) {
            // The broker takes it only now: who was to have it before does not count.
            self.must_be_stored.remove(&id);
        }
        let message = &self.messages[id];
        for (receiver, session) in self.sessions.iter_mut().enumerate() {
            let is_denied = self.rights.deny(receiver, message.topic);
            if !session.exists || session.copies.contains_key(&id) || is_denied {
                continue;
            }
            let own = receiver == client;
            let Some(expected) = session.expect(message, own) else {
                continue;
            };
            if expected.low >= QoS::AtLeastOnce && session.expiry_s > 0 {
                self.must_be_stored.insert(id);
            }
            session.outstanding.entry(id).or_insert(expected);
        }
        self.taken_between(id);
    }

    /// A message of QoS 2 came again under its id, since its publisher has not heard the answer. If
    /// that was a refusal it is new to the broker, which takes it only now [MQTT-4.3.3-9].
    pub(crate) fn came_again(&mut self, id: MessageId) {
        if self.may_be_refused(id) && !self.disk.has_asked_for(id) {
            self.messages[id].last_accept = self.tick();
            self.must_be_stored.remove(&id);
        }
    }

    /// Whether the broker may have refused this message to its publisher.
    fn may_be_refused(&self, id: MessageId) -> bool {
        let message = &self.messages[id];
        let few = message.retain && !self.retained_fits;
        (self.refuses || few) && message.acknowledged.is_none()
    }

    /// Its publisher was promised that it is retained.
    fn is_surely_kept(&self, id: MessageId) -> bool {
        self.retained_fits || self.messages[id].acknowledged.is_some()
    }

    /// The publisher has heard that a message was refused: no client has it, and it replaces none.
    pub(crate) fn was_refused(&mut self, id: MessageId, packet_id: PacketId) {
        let message = &mut self.messages[id];
        if message.retain && !self.retained_fits {
            message.accepts = message.accepts.saturating_sub(1);
            let publisher = message.publisher;
            self.sessions[publisher].unreleased.remove(&packet_id);
        }
    }

    /// The broker has taken PUBACK from this client.
    pub(crate) fn ended(&mut self, client: usize, packet_id: PacketId) {
        if self.can_be_killed {
            self.sessions[client].note_ended(packet_id);
        }
    }

    /// The publisher has seen PUBACK, or the first PUBREC.
    pub(crate) fn acknowledged(&mut self, id: MessageId) {
        let tick = self.tick();
        self.messages[id].acknowledged.get_or_insert(tick);
    }

    // ---- connections and sessions ----

    /// The broker has let a client in.
    pub(crate) fn connected(
        &mut self,
        client: usize,
        (link, shard): (usize, usize),
        (present, clean, expiry_s): (bool, bool, u32),
        will: Option<Will>,
    ) {
        self.tick += 1;
        self.serials += 1;
        let session = &mut self.sessions[client];
        assert!(
            session.link.is_none(),
            "client {client} has two connections"
        );
        assert!(
            present == session.exists,
            "client {client}: session present is {present}, but its session {}",
            if session.exists {
                "exists"
            } else {
                "does not exist"
            }
        );
        assert!(!(clean && present), "client {client} wanted a new session");
        if !present {
            let begun = if expiry_s > 0 {
                self.disk.last_begun(client)
            } else {
                0
            };
            let new = Session {
                serial: self.serials,
                exists: true,
                begun,
                ..Session::default()
            };
            let old = std::mem::replace(session, new);
            if self.can_be_killed && old.begun > 0 {
                self.past_sessions[client].push(old);
            }
        }
        session.link = Some(link);
        session.repeats.taken_back.clear(); // nothing is on its way over the one before
        session.present = present;
        session.shard = shard;
        session.expiry_s = expiry_s;
        session.ends_at = None;
        session.ends_by = None;
        session.will = will;
        session.will_due = None;
        session.cut_off = false;
        self.left[client] = Left::new(will, expiry_s, self);
        self.revived[client] = None;
    }

    /// The connection has ended. `goodbye`: with a DISCONNECT that cancels the will. `failed`: the
    /// broker has no store any more.
    pub(crate) fn disconnected(
        &mut self,
        client: usize,
        goodbye: bool,
        failed: bool,
        now: Instant,
    ) {
        self.tick += 1;
        let session = &mut self.sessions[client];
        let Some(link) = session.link.take() else {
            panic!("client {client} was disconnected twice");
        };
        let expiry_s = session.expiry_s;
        session.ends_at =
            (expiry_s != u32::MAX).then(|| now + Duration::from_secs(expiry_s.into()));
        session.ends_by = session.ends_at;
        let stays_on_disk = failed && self.will_stays_on_disk(client);
        let session = &mut self.sessions[client];
        session.cut_off = failed;
        if goodbye || stays_on_disk {
            session.will = None;
        }
        if goodbye {
            self.will_is_over(client);
        }
        let will = self.sessions[client].will;
        self.excuse(client, link);
        if let Some(will) = will {
            if will.delay_s == 0 || expiry_s == 0 {
                self.will_published(client, now);
            } else {
                let after = will.delay_s.min(expiry_s);
                self.sessions[client].will_due = Some(now + Duration::from_secs(after.into()));
            }
        }
    }

    pub(crate) fn expiry_changed(&mut self, client: usize, expiry_s: u32) {
        self.sessions[client].expiry_s = expiry_s;
    }

    pub(crate) fn session_ended(&mut self, client: usize, clean: bool, now: Instant) {
        self.tick += 1;
        let session = &mut self.sessions[client];
        if !session.exists && self.orphans[client] {
            // It had ended with the broker, and only its will was left.
            self.orphans[client] = false;
            return;
        }
        assert!(session.exists, "the session of client {client} ended twice");
        assert!(
            session.link.is_none(),
            "the session of client {client} ended while it is connected"
        );
        assert!(
            clean || session.ends_at.is_some_and(|at| at <= now),
            "the session of client {client} ended early"
        );
        self.will_published(client, now);
        self.end(client);
    }

    /// Nothing is owed to this session any more.
    fn end(&mut self, client: usize) {
        let session = &mut self.sessions[client];
        session.exists = false;
        session.outstanding.clear();
        session.retained.clear();
        for filter in &session.filters {
            self.groups.left(filter.text, (client, session.serial));
        }
    }

    /// Timers of this shard have run: delayed wills that were due are out.
    /// `failed`: the shard has no store any more, and leaves on disk what is there.
    pub(crate) fn timers_ran(&mut self, shard: usize, failed: bool, now: Instant) {
        for client in 0..self.sessions.len() {
            let session = &self.sessions[client];
            if session.shard != shard {
                continue;
            }
            let overdue = session.exists && session.ends_by.is_some_and(|by| by <= now);
            assert!(
                !overdue || failed,
                "the session of client {client} has outlived its time"
            );
            let due = session.will_due.is_some_and(|at| at <= now);
            if due && !(failed && self.will_stays_on_disk(client)) {
                self.will_published(client, now);
            }
        }
    }

    fn will_published(&mut self, client: usize, now: Instant) {
        let session = &mut self.sessions[client];
        session.will_due = None;
        if let Some(will) = session.will.take() {
            self.will_is_over(client);
            self.accepted(client, will.message, now);
        }
    }

    /// What was on its way over a connection at QoS 0 may be lost with it.
    pub(crate) fn excuse(&mut self, client: usize, link: usize) {
        let messages = &self.messages;
        let session = &mut self.sessions[client];
        session
            .outstanding
            .retain(|_, expected| expected.low > QoS::AtMostOnce || expected.link != Some(link));
        for filter in session.filters.iter().filter(|f| f.until.is_none()) {
            let low = filter.terms.iter().map(|terms| terms.options.qos).min();
            let low = low.unwrap_or(QoS::AtMostOnce);
            self.groups.excuse(filter.text, |id| {
                messages[id].qos.min(low) == QoS::AtMostOnce
            });
        }
    }

    // ---- drops and totals ----

    pub(crate) fn told_drops(
        &mut self,
        client: Option<usize>,
        reason: DropReason,
        (count, refused): (u64, bool),
    ) {
        let session = client.and_then(|client| self.sessions.get(client));
        let stays = session.is_some_and(|session| session.exists && session.expiry_s > 0);
        assert!(
            !self.refuses || refused || self.watched || reason != DropReason::QueueFull || !stays,
            "a session that stays was too full for {count} messages that nobody was refused"
        );
        self.left_to_groups.told_drops(reason, count);
        let client = client.unwrap_or(usize::MAX);
        *self.told.entry((client, reason)).or_insert(0) += count;
    }

    /// What was named as dropped for a client whose session goes on.
    pub(crate) fn told_by(&self, client: usize) -> u64 {
        let ends = |reason| {
            matches!(
                reason,
                DropReason::ConnectionLost | DropReason::SessionEnded
            )
        };
        self.told
            .iter()
            .filter(|((of, reason), _)| *of == client && !ends(*reason))
            .map(|(_, count)| count)
            .sum()
    }

    pub(crate) fn told_for(&self, reason: DropReason) -> u64 {
        let told = self.told.iter().filter(|((_, why), _)| *why == reason);
        told.map(|(_, count)| count).sum()
    }

    /// When everything has come to rest: what each client has not got, and how many the groups have
    /// not.
    pub(crate) fn missing(&self) -> (Vec<Vec<MessageId>>, Vec<MessageId>) {
        let of_clients = self
            .sessions
            .iter()
            .map(|session| {
                let missing = session.outstanding.keys().copied();
                missing.filter(|id| !self.may_be_refused(*id)).collect()
            })
            .collect();
        let mut of_groups = self.groups.missing();
        of_groups.retain(|id| !self.may_be_refused(*id));
        (of_clients, of_groups)
    }
}

/// Nothing may be dropped for a reason that this run does not give.
pub(crate) fn check_reasons(options: &Options, dropped: impl Fn(DropReason) -> u64) {
    for reason in DropReason::ALL {
        let count = dropped(reason);
        let possible = match reason {
            DropReason::QueueFull => !options.queues_fit(),
            DropReason::TooOld => options.queue_age_s < u32::MAX,
            DropReason::StoreFull => options.store_fills(),
            DropReason::SlowReceiver => options.output_bytes < 1_000_000,
            DropReason::Expired => options.message_expiry,
            DropReason::TooLargeForReceiver => options.small_packets,
            DropReason::SessionEnded => options.members_leave(),
            DropReason::NotConnected => options.staying > 0 || options.wills,
            DropReason::RetainedFull => options.retains_few(),
            DropReason::RefusedByReceiver => options.refusals,
            DropReason::ConnectionLost => true,
            DropReason::StoreFailed => options.read_only,
            DropReason::NotAuthorized => options.has_rules(),
            _ => false,
        };
        assert!(
            possible || count == 0,
            "{count} messages were dropped as {}, for which this run has no cause",
            reason.name()
        );
    }
}

/// Whether a filter, shared or not, matches.
pub(crate) fn matches(text: &str, topic: &str) -> bool {
    let (Ok(filter), Ok(topic)) = (SubscriptionFilter::parse(text), TopicName::parse(topic)) else {
        return false;
    };
    let group = filter.group().is_some();
    group == topic.as_str().starts_with("s/") && filter.filter().matches(topic)
}

/// Times are on disk in milliseconds.
const ROUNDED: Duration = Duration::from_millis(2);
/// A session that is restored may stay for so long, since its client could not come before.
const GRACE: Duration = Duration::from_secs(10);
