//! What the other shards learn of the sessions here: their interest, their places in shared groups,
//! and which of them have no room.
//!
//! ```text
//! session's shard:  filter ── InterestAdded ──> every other shard, which sends what matches
//!                   group  ── GroupMessage ───> the shard of the group
//!                   full   ── Full, with its subscriptions ──> every other shard
//!                   room   ── Room ──────────────────────────>
//! ```
//!
//! A shared group lives on the shard that its name and filter hash to, and members are sessions of
//! any shard. That shard announces the group's interest like that of a session. A group passes over
//! its full members, and is full itself when all of them are.
//!
//! Invariant: a part answers with a change, and what a change leads to is sent here, in the order
//! in which the changes were made.

use std::sync::Arc;

use unbroken_mqtt_proto::{QoS, SubscriptionFilter, TopicFilter};

use crate::audit::Audit;
use crate::connection::Connections;
use crate::durability::CommitGate;
use crate::ids::{
    GroupId, Holder, HolderRef, Member, Numbers, Readiness, SessionId, ShardId, Want,
};
use crate::mesh::{Mesh, MeshMessage};
use crate::placement;
use crate::policy::AccessControl;
use crate::routing::{Grant, InterestChange, Router, Subscriber};
use crate::session::{QueueChange, Session, Sessions};
use crate::shared::{GroupMessage, Keeping, PacketLimit, SharedGroups, share_text};

/// The parts that this is about.
pub(super) struct Announcer<'a> {
    pub(super) id: ShardId,
    pub(super) shards: u8,
    pub(super) sessions: &'a mut Sessions,
    pub(super) connections: &'a Connections,
    pub(super) access: &'a AccessControl,
    pub(super) router: &'a mut Router,
    pub(super) groups: &'a mut SharedGroups,
    pub(super) gate: &'a CommitGate,
    pub(super) audit: &'a mut Audit,
    pub(super) mesh: &'a mut Mesh,
    pub(super) numbers: &'a mut Numbers,
}

/// Interest.
impl Announcer<'_> {
    /// Another subscriber here wants this filter.
    pub(super) fn announce(&mut self, filter: &str, want: Want) {
        let change = self.router.add_interest(filter, want);
        self.send_interest(filter, change);
    }

    /// One fewer wants it.
    pub(super) fn withdraw(&mut self, filter: &str, want: Want) {
        let change = self.router.remove_interest(filter, want);
        self.send_interest(filter, change);
    }

    /// The other shards learn what this one wants, if that has changed.
    fn send_interest(&mut self, filter: &str, change: Option<InterestChange>) {
        let mesh = &mut *self.mesh;
        match change {
            None => {}
            Some(InterestChange::Added(want)) => {
                let barrier = mesh.issue_barrier();
                mesh.broadcast(|| MeshMessage::InterestAdded {
                    filter: filter.into(),
                    want,
                    barrier,
                });
            }
            Some(InterestChange::Removed(want)) => mesh.broadcast(|| {
                let filter = filter.into();
                MeshMessage::InterestRemoved { filter, want }
            }),
        }
    }

    pub(super) fn handle_interest_added(
        &mut self,
        from: ShardId,
        filter: &str,
        want: Want,
        barrier: u64,
    ) {
        if let Ok(filter) = TopicFilter::parse(filter) {
            // Another shard matches once more, so nothing of the grant but its presence counts.
            let grant = Grant {
                qos: QoS::ExactlyOnce,
                no_local: false,
                retain_as_published: true,
                identifier: None,
            };
            let subscriber = Subscriber::Shard(from, want);
            self.router.insert(filter, subscriber, grant);
            self.audit.note_filter(filter.as_str(), true);
        }
        self.answer_barrier(from, barrier);
    }

    /// All that another shard has announced up to here is in force.
    pub(super) fn answer_barrier(&mut self, from: ShardId, barrier: u64) {
        let (tail, _) = self.gate.log_ends().own();
        self.mesh
            .send(from, MeshMessage::BarrierReached { barrier, tail });
    }

    pub(super) fn handle_interest_removed(&mut self, from: ShardId, filter: &str, want: Want) {
        if let Ok(filter) = TopicFilter::parse(filter) {
            self.router.remove(filter, Subscriber::Shard(from, want));
            self.audit.note_filter(filter.as_str(), false);
        }
    }
}

/// Shared groups.
impl Announcer<'_> {
    /// Makes a session a member. Answers the token to wait for if the group lives elsewhere.
    pub(super) fn join_group(
        &mut self,
        session: SessionId,
        group: &str,
        filter: TopicFilter<'_>,
        grant: Grant,
    ) -> Option<u64> {
        let owner = placement::of_group(group, filter.as_str(), self.shards);
        let fresh = self.numbers.issue();
        let state = self.sessions.get_mut(session)?;
        let serial = state.memberships.join(share_text(group, filter), fresh);
        let member = self.member(session, serial);
        let keeps = self.sessions.want_of(session, grant.qos) == Want::Staying;
        let limit = self.packet_limit(session);
        if owner == self.id {
            self.take_member(group, filter, (member, keeps), grant, limit);
            return None;
        }
        let token = self.numbers.issue();
        let (group, filter) = (group.into(), filter.as_str().into());
        self.mesh.send_about_group(
            owner,
            GroupMessage::Join {
                group,
                filter,
                member,
                keeps,
                grant,
                limit,
                token,
            },
        );
        Some(token)
    }

    pub(super) fn leave_group(&mut self, session: SessionId, group: &str, filter: TopicFilter<'_>) {
        let owner = placement::of_group(group, filter.as_str(), self.shards);
        let state = self.sessions.get_mut(session);
        let text = share_text(group, filter);
        let Some(serial) = state.and_then(|state| state.memberships.leave(&text)) else {
            return;
        };
        let member = self.member(session, serial);
        if owner == self.id {
            self.drop_member(group, filter, member);
        } else {
            let (group, filter) = (group.into(), filter.as_str().into());
            self.mesh.send_about_group(
                owner,
                GroupMessage::Leave {
                    group,
                    filter,
                    member,
                },
            );
        }
    }

    /// The groups of a session learn whether it is connected, and whether it is full.
    pub(super) fn announce_to_groups(&mut self, session_id: SessionId, connected: bool) {
        let session = self.sessions.get(session_id);
        let groups = session.map(|session| session.memberships.all());
        for (text, serial) in groups.into_iter().flatten() {
            self.announce_to_group(session_id, &text, serial, connected);
        }
    }

    /// The same of one that it is in.
    pub(super) fn announce_to_group(
        &mut self,
        session_id: SessionId,
        text: &str,
        serial: u64,
        connected: bool,
    ) {
        let session = self.sessions.get(session_id);
        let grant = session.and_then(|session| session.subscriptions.get(text));
        let keeps = grant.is_none_or(|grant| grant.qos > QoS::AtMostOnce);
        let readiness = match connected {
            _ if keeps && self.sessions.is_full(session_id) => Readiness::Full,
            true => Readiness::Ready,
            false if keeps => Readiness::Away,
            false => Readiness::Absent,
        };
        let Ok(SubscriptionFilter::Shared { group, filter }) = SubscriptionFilter::parse(text)
        else {
            return;
        };
        let owner = placement::of_group(group, filter.as_str(), self.shards);
        let member = self.member(session_id, serial);
        let limit = self.packet_limit(session_id);
        if owner == self.id {
            self.set_member_ready(group, filter, member, readiness, limit);
        } else {
            let (group, filter) = (group.into(), filter.as_str().into());
            self.mesh.send_about_group(
                owner,
                GroupMessage::Ready {
                    group,
                    filter,
                    member,
                    readiness,
                    limit,
                },
            );
        }
    }

    /// A session of this shard, as a group knows it.
    fn member(&self, session: SessionId, serial: u64) -> Member {
        Member {
            shard: self.id,
            session,
            serial,
        }
    }

    /// What the client of this session takes, if it is connected.
    pub(super) fn packet_limit(&self, session: SessionId) -> Option<PacketLimit> {
        let id = self.sessions.connection_of(session, self.connections)?;
        let connection = self.connections.get(id)?;
        Some(PacketLimit {
            bytes_max: connection.packet_bytes_max(),
            version: connection.version(),
            client: self.access.client_of(session).cloned(),
        })
    }

    /// A session joins a group of this shard, and gets each message that is its turn.
    pub(super) fn take_member(
        &mut self,
        group: &str,
        filter: TopicFilter<'_>,
        member: (Member, bool),
        grant: Grant,
        limit: Option<PacketLimit>,
    ) {
        let joined = self.groups.join(group, filter, member, grant, limit);
        if joined.is_new {
            self.router
                .insert(filter, Subscriber::Group(joined.id), grant);
            self.audit.note_filter(filter.as_str(), true);
            self.announce(filter.as_str(), Want::Passing);
        }
        self.note_keeping(filter, joined.keeping);
        self.announce_group_fullness(joined.id, joined.is_full, group, filter);
    }

    /// A session leaves a group of this shard.
    pub(super) fn drop_member(&mut self, group: &str, filter: TopicFilter<'_>, member: Member) {
        let Some(left) = self.groups.leave(group, filter, member) else {
            return;
        };
        self.note_keeping(filter, left.keeping);
        if left.was_last {
            self.router.remove(filter, Subscriber::Group(left.id));
            self.audit.note_filter(filter.as_str(), false);
            self.withdraw(filter.as_str(), Want::Passing);
        }
        self.announce_group_fullness(left.id, left.is_full, group, filter);
    }

    /// The other shards know whether a group has a member that keeps what it is given.
    fn note_keeping(&mut self, filter: TopicFilter<'_>, keeping: Keeping) {
        match keeping {
            Keeping::Begins => self.announce(filter.as_str(), Want::Sharing),
            Keeping::Ends => self.withdraw(filter.as_str(), Want::Sharing),
            Keeping::AsBefore => {}
        }
    }

    /// Whether a member of a group of this shard can take a message.
    pub(super) fn set_member_ready(
        &mut self,
        group: &str,
        filter: TopicFilter<'_>,
        member: Member,
        readiness: Readiness,
        limit: Option<PacketLimit>,
    ) {
        let changed = self
            .groups
            .set_readiness(group, filter, member, readiness, limit);
        if let Some((id, is_full)) = changed {
            self.announce_group_fullness(id, is_full, group, filter);
        }
    }

    /// All shards know whether all members of a group are full.
    fn announce_group_fullness(
        &mut self,
        id: GroupId,
        is_full: bool,
        group: &str,
        filter: TopicFilter<'_>,
    ) {
        let holder = Holder::Group(id);
        let was_full = self.router.is_full(self.holder(holder));
        match (was_full, is_full) {
            (false, true) => {
                let grant = Grant {
                    qos: QoS::ExactlyOnce, // each member keeps what has at least 1
                    no_local: false,
                    retain_as_published: false,
                    identifier: None,
                };
                let filters = [(filter.as_str().into(), grant)];
                self.announce_full(holder, &share_text(group, filter).into(), &filters);
            }
            (true, false) => self.announce_room(holder),
            _ => {}
        }
    }
}

/// Sessions and groups without room.
impl Announcer<'_> {
    /// A session has become full, or has room again.
    #[cold]
    pub(super) fn announce_queue_change(&mut self, change: QueueChange) {
        match change {
            QueueChange::Full(id) => self.announce_full_session(id),
            QueueChange::Room(id) => self.announce_session_room(id),
        }
    }

    fn announce_full_session(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        let client_id = Arc::clone(&session.client_id);
        let keeps = session.subscriptions.iter().filter(|(text, grant)| {
            let parsed = SubscriptionFilter::parse(text);
            grant.qos > QoS::AtMostOnce && matches!(parsed, Ok(SubscriptionFilter::Plain(_)))
        });
        let filters: Box<[_]> = keeps.map(|(text, grant)| (text.into(), *grant)).collect();
        let connected = session.is_connected();
        self.announce_full(Holder::Session(id), &client_id, &filters);
        self.announce_to_groups(id, connected);
    }

    fn announce_session_room(&mut self, id: SessionId) {
        self.announce_room(Holder::Session(id));
        let session = self.sessions.get(id);
        let connected = session.is_some_and(Session::is_connected);
        self.announce_to_groups(id, connected);
    }

    /// The session ends: it is not full any more.
    pub(super) fn end_fullness(&mut self, id: SessionId) {
        if self.sessions.end_full(id) {
            self.announce_session_room(id);
        }
    }

    /// A session or group of this shard, as all shards know it.
    fn holder(&self, holder: Holder) -> HolderRef {
        let shard = self.id;
        HolderRef { shard, holder }
    }

    /// All shards know of a session or group that is full, or is and has another subscription.
    fn announce_full(&mut self, holder: Holder, name: &Arc<str>, filters: &[(Box<str>, Grant)]) {
        self.mesh.broadcast(|| MeshMessage::Full {
            holder,
            name: Arc::clone(name),
            filters: filters.into(),
        });
        self.router.add_full(self.holder(holder), name, filters);
    }

    /// All shards know that a session or group has room again, or has ended.
    fn announce_room(&mut self, holder: Holder) {
        self.mesh.broadcast(|| MeshMessage::Room {
            holder,
            filter: None,
        });
        self.router.remove_full(self.holder(holder));
    }

    /// A session has subscribed, or replaced a subscription: all shards know, if it is full.
    pub(super) fn announce_full_filter(&mut self, id: SessionId, filter: &str, grant: Grant) {
        if self.sessions.is_full(id)
            && let Some(session) = self.sessions.get(id)
        {
            let client_id = Arc::clone(&session.client_id);
            self.announce_full(Holder::Session(id), &client_id, &[(filter.into(), grant)]);
        }
    }

    /// A subscription of a session has ended: all shards know, if it is full.
    pub(super) fn announce_filter_room(&mut self, id: SessionId, filter: &str) {
        if self.sessions.is_full(id) {
            let holder = Holder::Session(id);
            self.mesh.broadcast(|| MeshMessage::Room {
                holder,
                filter: Some(filter.into()),
            });
            self.router.remove_full_filter(self.holder(holder), filter);
        }
    }
}
