//! Shared subscriptions: one member of a group gets each message.
//!
//! A group lives on the shard that its name and filter hash to; members are sessions of any shard.
//! That shard wants the filter's messages like any subscriber, picks a member for each, and gets a
//! message back when the member's session ends before it had it.
//!
//! Fair: members take turns, connected ones first; if none is connected, the sessions that stay
//! queue in turn.

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::{SubscriptionFilter, TopicFilter};

use crate::clients::{Item, Terms};
use crate::ids::{GroupId, SessionId, ShardId};
use crate::mail::Letter;
use crate::message::Message;
use crate::output::DropReason;
use crate::placement;
use crate::session::{Delivery, Identifiers};
use crate::shard::Shard;
use crate::shared::Member;
use crate::subscriptions::{Grant, Subscriber};

impl Shard {
    /// Makes a session a member. Answers the token to wait for if the group lives elsewhere.
    pub(crate) fn join_group(
        &mut self,
        session: SessionId,
        group: &str,
        filter: TopicFilter<'_>,
        grant: Grant,
    ) -> Option<u64> {
        let owner = placement::of_group(group, filter.as_str(), self.options.shards);
        if owner == self.options.id {
            self.take_member(
                group,
                filter,
                Member {
                    shard: owner,
                    session,
                },
                grant,
            );
            return None;
        }
        let token = self.token();
        let (group, filter) = (group.into(), filter.as_str().into());
        self.mail(
            owner,
            Letter::ShareJoin {
                group,
                filter,
                session,
                grant,
                token,
            },
        );
        Some(token)
    }

    pub(crate) fn leave_group(&mut self, session: SessionId, group: &str, filter: TopicFilter<'_>) {
        let owner = placement::of_group(group, filter.as_str(), self.options.shards);
        if owner == self.options.id {
            self.drop_member(
                group,
                filter,
                Member {
                    shard: owner,
                    session,
                },
            );
        } else {
            let (group, filter) = (group.into(), filter.as_str().into());
            self.mail(
                owner,
                Letter::ShareLeave {
                    group,
                    filter,
                    session,
                },
            );
        }
    }

    /// Tells the groups of a session whether it is connected.
    pub(crate) fn tell_groups(&mut self, session_id: SessionId, ready: bool) {
        let Some(session) = self.clients.session_mut(session_id) else {
            return;
        };
        // `$share/…` sorts together, so a session without any pays one look-up.
        let shared: Vec<Box<str>> = session
            .subscriptions
            .range::<str, _>((
                std::ops::Bound::Included("$share/"),
                std::ops::Bound::Unbounded,
            ))
            .map(|(text, _)| text)
            .take_while(|text| text.starts_with("$share/"))
            .cloned()
            .collect();
        for text in shared {
            let Ok(SubscriptionFilter::Shared { group, filter }) = SubscriptionFilter::parse(&text)
            else {
                continue;
            };
            let owner = placement::of_group(group, filter.as_str(), self.options.shards);
            if owner == self.options.id {
                self.set_member_ready(
                    group,
                    filter,
                    Member {
                        shard: owner,
                        session: session_id,
                    },
                    ready,
                );
            } else {
                let (group, filter) = (group.into(), filter.as_str().into());
                self.mail(
                    owner,
                    Letter::ShareReady {
                        group,
                        filter,
                        session: session_id,
                        ready,
                    },
                );
            }
        }
    }

    pub(crate) fn take_member(
        &mut self,
        group: &str,
        filter: TopicFilter<'_>,
        member: Member,
        grant: Grant,
    ) {
        let (id, new) = self.groups.join(group, filter, member, grant);
        if new {
            self.index.insert(filter, Subscriber::Group(id), grant);
            self.announce(filter.as_str());
        }
    }

    pub(crate) fn drop_member(&mut self, group: &str, filter: TopicFilter<'_>, member: Member) {
        let Some(id) = self.groups.find(group, filter) else {
            return;
        };
        if self.groups.leave(id, member) {
            self.index.remove(filter, Subscriber::Group(id));
            self.withdraw(filter.as_str());
        }
    }

    pub(crate) fn set_member_ready(
        &mut self,
        group: &str,
        filter: TopicFilter<'_>,
        member: Member,
        ready: bool,
    ) {
        if let Some(id) = self.groups.find(group, filter) {
            self.groups.set_ready(id, member, ready);
        }
    }

    /// Gives a message to the member whose turn it is [MQTT-4.8.2-4], or to another than `not`.
    pub(crate) fn deliver_to_group(
        &mut self,
        now: Instant,
        id: GroupId,
        item: &mut Item<'_>,
        not: Option<Member>,
    ) {
        let chosen = match not {
            None => self.groups.choose(id),
            Some(not) => self.groups.choose_other(id, not),
        };
        let Some((member, grant)) = chosen else {
            return self.drop_of_publisher(now, item, DropReason::SessionEnded);
        };
        let me = self.options.id;
        if member.shard == me {
            self.deliver_as_member(now, member.session, grant, (me, id), item);
        } else {
            let message = item.message(&mut self.clients.pool);
            self.mail(
                member.shard,
                Letter::ShareDelivery {
                    session: member.session,
                    group: id,
                    grant,
                    message,
                },
            );
        }
    }

    /// The session was chosen; if it has gone meanwhile, the group gets the message back.
    pub(crate) fn deliver_as_member(
        &mut self,
        now: Instant,
        session: SessionId,
        grant: Grant,
        group: (ShardId, GroupId),
        item: &mut Item<'_>,
    ) {
        if self.clients.session_mut(session).is_none() {
            let delivery = Delivery {
                message: item.message(&mut self.clients.pool),
                retain: false,
                identifiers: Identifiers::new(),
                group: None,
            };
            return self.return_to_group(now, group, session, delivery.message);
        }
        let identifiers: Identifiers = grant.identifier.into_iter().collect();
        let terms = Terms {
            qos: grant.qos,
            retain: item.publication.retain && grant.retain_as_published,
            identifiers: &identifiers,
            group: Some(group),
        };
        self.clients.deliver(now, session, terms, item);
    }

    /// A member's session has ended with a message it had not acknowledged [MQTT-4.8.2-4].
    pub(crate) fn hand_over(
        &mut self,
        now: Instant,
        group: (ShardId, GroupId),
        from: SessionId,
        delivery: Delivery,
    ) {
        self.clients.stats.messages_waiting = self.clients.stats.messages_waiting.saturating_sub(1);
        self.return_to_group(now, group, from, delivery.message);
    }

    fn return_to_group(
        &mut self,
        now: Instant,
        group: (ShardId, GroupId),
        from: SessionId,
        message: Arc<Message>,
    ) {
        let (owner, id) = group;
        if owner == self.options.id {
            self.redistribute(
                now,
                id,
                Member {
                    shard: owner,
                    session: from,
                },
                &message,
            );
        } else {
            self.mail(
                owner,
                Letter::ShareReturn {
                    group: id,
                    session: from,
                    message,
                },
            );
        }
    }

    pub(crate) fn redistribute(
        &mut self,
        now: Instant,
        id: GroupId,
        not: Member,
        message: &Arc<Message>,
    ) {
        let mut item = Item::kept(message);
        self.clients.begin_item();
        self.deliver_to_group(now, id, &mut item, Some(not));
        item.finish(&mut self.clients.pool);
    }
}
