//! What the broker knows of a client between CONNECT and the end of its session.

mod accounts;
mod backlog;
mod catch_up;
mod inbox;
mod info;
mod lifetime;
mod memberships;
mod outbox;
mod overdue;
mod progress;
mod queue_limits;
mod redelivery;
mod sessions;
mod shares;
mod stored;
mod stored_subscriptions;
mod subscriptions;
mod wanted;
mod will;

pub(crate) use backlog::{Backlog, TermsThen};
pub(crate) use info::LOOKS_MAX;
pub use info::{ClientInfo, Page, Place, SessionInfo, SleepingSession, SubscriptionInfo};
pub(crate) use memberships::Memberships;
use outbox::Outbox;
pub(crate) use outbox::{Delivery, Identifiers};
pub(crate) use overdue::Rules;
pub(crate) use queue_limits::QueueChange;
pub(crate) use sessions::Sessions;
pub(crate) use shares::SessionShares;
pub(crate) use stored::Kept;
pub(crate) use stored_subscriptions::list::StoredSubscriptions;
use subscriptions::Subscriptions;
pub use wanted::{Wanted, WantedSubscriptions};

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::session::Inbound;
use unbroken_mqtt_proto::{PacketId, QoS};

use crate::audit::ledger::Ledger;
use crate::connection::{Client, Connection, Connections};
use crate::durability::{WaitFor, Will};
use crate::ids::StoreId;
use crate::limits::{LOOK_AHEAD_MAX, Limits};
use crate::option_box::OptionBox;
use crate::policy::Mount;
use crate::position::Frontier;
use crate::shares::Network;
use crate::telemetry::DropTallies;

/// A session: state that outlives its connection if the client wishes. 440 bytes, and sessions are
/// many.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client_id: Arc<str>,
    /// Which one of its number, which is used again when it has ended.
    serial: u64,
    /// The index of its connection while it has one.
    connection: Option<u32>,
    /// The user whose it is; `None`: its clients had no name.
    user: Option<Arc<str>>,
    /// The mount that it is of, with which its subscriptions begin.
    mount: Option<Mount>,
    /// From where its client connected last, since the broker started.
    address: Option<Network>,
    /// Seconds it outlives its connection; `u32::MAX` is without end.
    expiry_s: u32,
    /// The last record that was asked for it.
    asked: StoreId,
    /// It began as one that stays, with a disk to stay on. None becomes one later: before it
    /// could, it has ended with its connection.
    stays: bool,
    /// What is kept of it on disk, if it stays.
    pub(crate) kept: Option<Box<Kept>>,
    /// When its last connection ended, while it has none.
    away_since: Option<Instant>,
    /// Names its present or last absence, so that a timer set in one is not taken for one of the
    /// next, nor for one of the next session with this number.
    absence: u64,
    pub(crate) subscriptions: Subscriptions,
    /// Of those, the shared ones.
    pub(crate) memberships: Memberships,
    pub(crate) inbound: Inbound,
    /// QoS 2 messages that are here, and whose PUBREC had to wait until after the connection: when
    /// they come again it still waits for what it promises.
    unanswered: OptionBox<Vec<(PacketId, WaitFor)>>,
    pub(crate) outbox: Outbox,
    will: Option<Box<Will>>,
    /// The disk has a will of this client.
    will_on_disk: bool,
    pub(crate) drops: DropTallies,
    pub(crate) ledger: Ledger,
}

const _: () = assert!(size_of::<Session>() <= 440, "the figure above");

impl Session {
    /// Whether a message of QoS 1 or 2 must not leave at once: its packet id is to be stored
    /// before, or it stands behind one that is held [MQTT-4.6.0-5, MQTT311-4.6.0-6].
    pub(crate) fn holds(&self, qos: QoS) -> bool {
        self.outbox.holds_unsent() || self.is_durable() && qos == QoS::ExactlyOnce
    }

    /// Whether a message that it is to have now stands behind what is held for its connection,
    /// because it has published it.
    #[inline]
    pub(crate) fn is_behind_answers(
        &self,
        connection: &Connection,
        publisher: Option<&Arc<str>>,
    ) -> bool {
        !connection.holds_nothing() && publisher.is_some_and(|from| *from == self.client_id)
    }

    /// Whether the next message that waits may get its packet id although the window is full. What
    /// a group gave may not: a restart takes what has an id for sent, and gives it to no other
    /// member.
    pub(crate) fn looks_ahead(&self, limits: &Limits) -> bool {
        let Some(kept) = self.kept.as_deref() else {
            return false;
        };
        let ahead = kept.ahead.get().map_or(0, VecDeque::len);
        let most = usize::from(self.outbox.window()).min(LOOK_AHEAD_MAX);
        let next = self.outbox.front();
        next.is_some_and(|(qos, next)| *qos == QoS::ExactlyOnce && next.group.is_none())
            && ahead < most
            && (ahead > 0 || !self.outbox.resending())
            && self.ledger.misses_nothing()
            && self.outbox.has_room_in_flight(limits)
    }

    /// Whether messages that have their packet ids wait for places in the window.
    pub(crate) fn is_ahead(&self) -> bool {
        let kept = self.kept.as_deref();
        kept.is_some_and(|kept| !kept.ahead.is_none())
    }

    /// Which one of its number, which is used again when it has ended.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// The user whose it is; `None`: its clients had no name.
    pub(crate) const fn user(&self) -> Option<&Arc<str>> {
        self.user.as_ref()
    }

    /// It is this user's from now on. Answers whether it was another's.
    pub(crate) fn set_user(&mut self, user: Option<Arc<str>>) -> bool {
        let is_another = self.user != user;
        self.user = user;
        is_another
    }

    /// The mount that it is of.
    pub(crate) const fn mount(&self) -> Option<&Mount> {
        self.mount.as_ref()
    }

    /// It is of this mount.
    pub(crate) fn set_mount(&mut self, mount: Option<Mount>) {
        self.mount = mount;
    }

    /// What its client calls a topic that the client has published to.
    pub(crate) fn own_topic<'a>(&self, topic: &'a str) -> &'a str {
        let own = self.mount.as_ref().and_then(|mount| mount.own(topic));
        own.unwrap_or(topic)
    }

    /// The topic that its client calls `own`.
    pub(crate) fn full_topic(&self, own: &str) -> String {
        match &self.mount {
            Some(mount) => mount.topic(own),
            None => own.to_owned(),
        }
    }

    /// From where its client connected last, since the broker started.
    pub(crate) fn address(&self) -> Option<Network> {
        self.address
    }

    /// Its client has connected from there. Answers from where before.
    fn set_address(&mut self, address: Option<Network>) -> Option<Network> {
        std::mem::replace(&mut self.address, address)
    }

    /// The last record that was asked for it.
    pub(crate) fn asked(&self) -> StoreId {
        self.asked
    }

    /// This record was asked for it.
    pub(crate) fn note_asked(&mut self, asked: StoreId) {
        self.asked = asked;
    }

    /// It stays from now on, on disk; what is routed to it is behind these ends of the logs.
    pub(crate) fn become_durable(&mut self, ends: &Frontier) {
        self.stays = true;
        self.kept
            .get_or_insert_with(|| Box::new(Kept::new(ends.clone())));
    }

    /// It is there again, as the disk had it.
    pub(crate) fn restore(&mut self, kept: Kept) {
        self.stays = true;
        self.kept = Some(Box::new(kept));
    }

    /// The client, as its final bytes name it.
    pub(crate) fn client(&self) -> Client {
        Client {
            id: Arc::clone(&self.client_id),
            mount: self.mount.clone(),
            is_watcher: self.ledger.is_watcher(),
        }
    }

    /// The client has acknowledged a message: unless its output waits for it already, more may be
    /// in flight.
    #[inline]
    pub(crate) fn widen(&mut self, connections: &Connections) {
        if self.outbox.is_narrow()
            && let Some(connection) = self.connection.and_then(|index| connections.at(index))
            && !connection.is_stalled()
        {
            self.outbox.widen();
        }
    }

    pub(crate) fn new(client_id: Arc<str>, serial: u64, ledger: Ledger) -> Self {
        Self {
            client_id,
            serial,
            connection: None,
            user: None,
            mount: None,
            address: None,
            expiry_s: 0,
            asked: StoreId::NOTHING,
            stays: false,
            kept: None,
            away_since: None,
            absence: 0,
            subscriptions: Subscriptions::default(),
            memberships: Memberships::default(),
            inbound: Inbound::new(),
            unanswered: OptionBox::default(),
            outbox: Outbox::new(),
            will: None,
            will_on_disk: false,
            drops: DropTallies::default(),
            ledger,
        }
    }
}
