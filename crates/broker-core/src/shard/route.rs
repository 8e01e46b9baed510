//! Shared subscriptions: one member of a group gets each message.
//!
//! A group lives on the shard that its name and filter hash to; members are sessions of any shard.
//! That shard wants the filter's messages like any subscriber, picks a member for each, and gets a
//! message back when the member's session ends before it had it.
//!
//! Fair: members take turns, connected ones first; if none is connected, the sessions that stay
//! queue in turn, as long as there is one that is granted more than QoS 0: the others keep nothing.
//! A message goes to a member whose Maximum Packet Size lets it have it, if there is one.

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::{QoS, SubscriptionFilter, TopicName};

use crate::audit::receipt::News;
use crate::durability::{Record, Until};
use crate::ids::{GroupId, GroupRef, Holder, Member, SessionId, ShardId};
use crate::item::Item;
use crate::mail::{Awaited, Duty, Letter};
use crate::message::Message;
use crate::placement;
use crate::reason::DropReason;
use crate::routing::{Grant, Terms};
use crate::session::{Delivery, Identifiers};
use crate::shard::Shard;

impl Shard {
    /// The full session that would have to keep this message, if there is one.
    pub(crate) fn full_receiver(
        &mut self,
        item: &Item<'_>,
        publisher: SessionId,
    ) -> Option<Arc<str>> {
        self.announce_queue_changes();
        if !self.router.has_full() || item.publication.qos == QoS::AtMostOnce {
            return None;
        }
        let topic = TopicName::parse(item.publication.topic).ok()?;
        let publisher = self.holder(Holder::Session(publisher));
        self.router.full_receiver(topic, publisher)
    }

    /// A message that a group was owed has no member to go to.
    fn drop_of_group(&mut self, now: Instant, item: &Item<'_>, reason: DropReason) {
        self.drop_of_publisher(now, item, reason);
        self.clients.news_of(item, News::Dropped(reason));
    }

    /// Gives a message to the member whose turn it is, with a duty if it was given before.
    pub(crate) fn deliver_to_group(
        &mut self,
        now: Instant,
        id: GroupId,
        item: &mut Item<'_>,
        duty: Duty,
    ) {
        let Some(chosen) = self.groups.choose(id, &item.publication) else {
            self.drop_of_group(now, item, DropReason::SessionEnded);
            return self.fulfil(now, duty, self.options.id, item);
        };
        let (member, grant, group) = (chosen.member, chosen.grant, chosen.group);
        if member.shard == self.options.id {
            self.deliver_as_member(now, member, grant, group, item, duty);
        } else {
            let message = item.message_to_mail(&mut self.clients.pool);
            let duty = match duty {
                Duty::None if item.is_awaited => Duty::Awaited {
                    token: self.expect_settled(item),
                    owing: self.groups.text(id).filter(|_| item.is_owed).cloned(),
                },
                again => again,
            };
            self.mail(
                member.shard,
                Letter::ShareDelivery {
                    member,
                    group,
                    grant,
                    message,
                    duty,
                },
            );
        }
    }

    /// What to ask of another shard whose groups get this message.
    pub(crate) fn expect_groups(&mut self, item: &mut Item<'_>) -> Awaited {
        Awaited {
            token: self.expect_settled(item),
            owed: item.is_owed,
        }
    }

    /// Whether a group with a member that keeps what it is given gets this message.
    pub(crate) fn is_shared(&mut self, topic: &str) -> bool {
        let Ok(topic) = TopicName::parse(topic) else {
            return false;
        };
        let route = self.router.route(topic);
        let groups = &self.groups;
        route.sharing != 0 || route.groups.iter().any(|group| groups.keeps(*group))
    }

    /// The session was chosen; if it has left the group meanwhile, that gets the message back, with
    /// the duty.
    pub(crate) fn deliver_as_member(
        &mut self,
        now: Instant,
        member: Member,
        grant: Grant,
        group: GroupRef,
        item: &mut Item<'_>,
        duty: Duty,
    ) {
        let session = self.clients.sessions.get(member.session.index());
        let text = session.and_then(|session| session.memberships.named(member.serial));
        let Some(text) = text.cloned() else {
            let message = item.message(&mut self.clients.pool);
            return self.return_to_group(now, group, message, duty);
        };
        // [MQTT-3.3.4-5]
        let identifiers: Identifiers = grant.identifier.into_iter().collect();
        let terms = Terms {
            qos: grant.qos, // [MQTT-4.8.2-3]
            retain: item.publication.retain && grant.retain_as_published,
            identifiers: &identifiers,
            group: Some(&text),
        };
        self.clients.deliver(now, member.session, terms, item);
        if item.is_owed {
            self.clients.note_given(&text, item);
        }
        self.fulfil(now, duty, group.shard, item);
    }

    /// A message was given to a session of this shard, or to nobody and by name. `home`: the shard
    /// of the group.
    fn fulfil(&mut self, now: Instant, duty: Duty, home: ShardId, item: &mut Item<'_>) {
        match duty {
            Duty::None => {}
            Duty::Awaited { token, owing } => {
                if let Some(group) = owing {
                    self.clients.note_given(&group, item);
                }
                let until = Until::stored(item.until.stored);
                self.clients.settle_when(now, until, home, token);
            }
            Duty::HandedOver(hand_over) => {
                self.clients.note_handed_on(hand_over);
                let holder = placement::of_hand_over(hand_over, self.options.shards);
                if holder == self.options.id {
                    self.groups.end_hand_over(hand_over);
                } else {
                    self.mail(holder, Letter::ShareHandedOn { hand_over });
                }
            }
        }
    }

    /// A member's session has ended with a message it had not acknowledged. The group is named by
    /// its filter as it is written, which a restart does not change. `kept`: the disk had it for
    /// the session.
    pub(crate) fn hand_over(
        &mut self,
        now: Instant,
        text: &Arc<str>,
        delivery: Delivery,
        kept: bool,
    ) {
        self.clients.telemetry.ended(1);
        // A session that ends with its connection holds on to no log.
        let message = match delivery.message.position() {
            Some(_) if !kept => Arc::new(delivery.message.in_no_log()),
            _ => delivery.message,
        };
        let Ok(SubscriptionFilter::Shared { group, filter }) = SubscriptionFilter::parse(text)
        else {
            return;
        };
        let owner = placement::of_group(group, filter.as_str(), self.options.shards);
        let duty = if kept {
            self.note_handed_over(text, &message)
        } else {
            Duty::None
        };
        if owner == self.options.id {
            self.hand_on(now, text, &message, duty);
        } else {
            let letter = Letter::ShareHandOver {
                group: Arc::clone(text),
                message,
                duty,
            };
            self.mail(owner, letter);
        }
    }

    /// Between the end of one session and the beginning for another nobody has the message on disk,
    /// if they are on different shards.
    fn note_handed_over(&mut self, group: &Arc<str>, message: &Arc<Message>) -> Duty {
        if self.options.shards == 1 {
            return Duty::None; // both are stored together
        }
        let hand_over = self.groups.begin_hand_over(message.position());
        let (group, message) = (Arc::clone(group), Arc::clone(message));
        self.clients.ask(Record::HandedOver {
            hand_over,
            group,
            message,
        });
        Duty::HandedOver(hand_over)
    }

    /// Gives a message to another member of a group, if that has one.
    pub(crate) fn hand_on(&mut self, now: Instant, text: &str, message: &Arc<Message>, duty: Duty) {
        let group = match SubscriptionFilter::parse(text) {
            Ok(SubscriptionFilter::Shared { group, filter }) => self.groups.find(group, filter),
            _ => None,
        };
        self.give_again(now, group, message, duty);
    }

    fn return_to_group(
        &mut self,
        now: Instant,
        group: GroupRef,
        message: Arc<Message>,
        duty: Duty,
    ) {
        if group.shard == self.options.id {
            self.redistribute(now, group, &message, duty);
        } else {
            let letter = Letter::ShareReturn {
                group,
                message,
                duty,
            };
            self.mail(group.shard, letter);
        }
    }

    /// Gives a message to somebody else. Whoever gave it back has left before, and
    /// mail is in order.
    pub(crate) fn redistribute(
        &mut self,
        now: Instant,
        group: GroupRef,
        message: &Arc<Message>,
        duty: Duty,
    ) {
        let group = self.groups.resolve(group);
        self.give_again(now, group, message, duty);
    }

    /// `group`: none if it has dissolved.
    fn give_again(
        &mut self,
        now: Instant,
        group: Option<GroupId>,
        message: &Arc<Message>,
        duty: Duty,
    ) {
        let mut item = Item::kept(message);
        self.clients.begin_item(false);
        if item.publication.expired(now) {
            self.drop_of_group(now, &item, DropReason::Expired); // [MQTT-3.3.2-5]
            self.fulfil(now, duty, self.options.id, &mut item);
        } else if let Some(group) = group {
            self.deliver_to_group(now, group, &mut item, duty);
        } else {
            self.drop_of_group(now, &item, DropReason::SessionEnded);
            self.fulfil(now, duty, self.options.id, &mut item);
        }
        item.finish(&mut self.clients.pool);
    }
}
