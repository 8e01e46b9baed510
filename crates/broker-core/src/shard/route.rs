//! HOT: a message to its receivers: sessions and groups here, and the other shards.
//!
//! ```text
//! route:       receivers here: deliver · other shards: once each, alone or in a bundle
//!              groups here: one member · very many here: over several turns (crate::delivery)
//! group:       choose a member; here: deliver, elsewhere: GroupMessage::Deliver
//! there:       still a member? deliver : GroupMessage::Return, and the group chooses again
//! ```
//!
//! The route of a topic is cached with the generation of the subscription index, so that a repeated
//! topic costs one look-up instead of a walk through the tree. Receivers that may not have it are
//! marked in it: [`crate::policy`].
//!
//! Shared groups are fair: members take turns, connected ones first; if none is connected, the
//! sessions that stay queue in turn, as long as there is one that is granted more than QoS 0: the
//! others keep nothing. A message goes to a member whose Maximum Packet Size and rights let it have
//! it, if there is one.
//!
//! Invariants:
//! - A message is routed at the shard it came to, and matched once more at each shard that asked
//!   for it; it never travels further.
//! - A message of a group reaches one member, or is dropped by name. A group gets it back when the
//!   member's session ends before it had it, or its client comes back with a Maximum Packet Size
//!   that is too small for it.

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::{QoS, SubscriptionFilter, TopicName};

use crate::audit::receipt::News;
use crate::connection::anonymous;
use crate::delivery::Item;
use crate::durability::{Record, WaitFor, Waiter};
use crate::ids::{GroupId, GroupRef, Holder, HolderRef, Member, SessionId, ShardId};
use crate::limits::BUNDLED_FOR_MAX;
use crate::mesh::{Awaited, MeshMessage};
use crate::message::Message;
use crate::placement;
use crate::reason::{DropPlace, DropReason};
use crate::routing::{Grant, Routed, Terms};
use crate::session::{Delivery, Identifiers, Session};
use crate::shard::audit::carry_out;
use crate::shard::{Shard, deliverer};
use crate::shared::{Duty, GroupMessage};
use crate::telemetry::Dropped;

/// Sessions and shards.
impl Shard {
    /// Brings a message to all its receivers in the broker. `from`: the session it came from,
    /// if that lives here. Answers whether anybody does.
    pub(crate) fn route(
        &mut self,
        now: Instant,
        item: &mut Item<'_>,
        from: Option<SessionId>,
    ) -> bool {
        let Routed {
            mut wanted,
            mut shards,
            staying,
            sharing,
            expected,
        } = self.route_here(now, item, from);
        if staying != 0 {
            // It must be stored before they have it.
            item.store(&mut self.deliveries, &mut self.gate);
        }
        let others = shards.count_ones();
        while shards != 0 {
            let bit = shards & shards.wrapping_neg();
            let shard = ShardId(u8::try_from(bit.trailing_zeros()).expect("a u64 has 64 bits"));
            shards &= !bit;
            wanted = true;
            if others <= BUNDLED_FOR_MAX
                && self.mesh.bundle(shard, &item.publication, item.publisher)
            {
                continue;
            }
            let message = item.message_to_mail(&mut self.deliveries);
            // Whose groups are not known to keep messages may have one that does by now.
            let is_awaited = item.is_awaited && (item.is_expected || sharing & bit != 0);
            let awaited = is_awaited.then(|| self.expect_groups(item));
            self.mesh
                .send(shard, MeshMessage::Publish { message, awaited });
        }
        // The broker's own word is not a client's message without a receiver.
        if !wanted && !item.is_own_word() {
            let is_aside = self.audit.topics().is_aside(item.publication.topic);
            self.telemetry.unrouted(is_aside);
        }
        let shards = others;
        self.pass_on_news(now, item, News::Routed { expected, shards });
        wanted
    }

    /// Brings a message to the sessions and groups of this shard.
    pub(crate) fn route_here(
        &mut self,
        now: Instant,
        item: &mut Item<'_>,
        from: Option<SessionId>,
    ) -> Routed {
        let mut routed = Routed::default();
        let Ok(topic) = TopicName::parse(item.publication.topic) else {
            return routed;
        };
        if self.telemetry.tracer.is_on() {
            self.trace_matched(item, topic);
        }
        let mut groups = std::mem::take(&mut self.scratch.groups);
        groups.clear();
        // All whose filters match, and no others. [MQTT-3.3.2-3, MQTT311-3.3.2-3]
        let may_receive = |session| self.access.may_receive(session, topic.as_str());
        let route = self.router.judged(topic, may_receive);
        groups.extend_from_slice(&route.groups);
        (routed.shards, routed.staying) = (route.shards, route.staying);
        routed.sharing = route.sharing;
        let mut deliverer = deliverer!(self, now);
        let own = deliverer.deliver_to_all(route, topic, from, item, &mut routed);
        if let Some(session) = own {
            routed.expected += u32::from(self.deliver_to_publisher(now, session, topic, item));
        }
        for &group in &groups {
            routed.wanted = true;
            routed.expected += 1;
            if self.groups.keeps(group) {
                // If its member ends it goes to another, and that one may keep it.
                item.store(&mut self.deliveries, &mut self.gate);
            }
            self.deliver_to_group(now, group, item, Duty::None);
        }
        self.scratch.groups = groups;
        if item.is_fanned_out {
            self.schedule_fan_out(now);
        }
        routed
    }

    /// The publisher has subscriptions that match, and some of them say No Local: only the others
    /// count [MQTT-3.8.3-3].
    #[cold]
    fn deliver_to_publisher(
        &mut self,
        now: Instant,
        session: SessionId,
        topic: TopicName<'_>,
        item: &mut Item<'_>,
    ) -> bool {
        let Some(receiver) = self.router.receiver_of_own(topic, session) else {
            return false;
        };
        let mut terms = Terms::of(&receiver, item.publication.retain);
        terms.is_denied = !self.access.may_receive(session, topic.as_str());
        self.deliverer(now).deliver(session, terms, item);
        true
    }

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
        let publisher = HolderRef {
            shard: self.options.id,
            holder: Holder::Session(publisher),
        };
        self.router.full_receiver(topic, publisher)
    }

    /// A token for a request to another shard about this message, whose answer its acknowledgement
    /// waits for.
    pub(crate) fn expect_settled(&mut self, item: &mut Item<'_>) -> u64 {
        let token = item.until.settled.unwrap_or_else(|| self.numbers.issue());
        item.until.settled = Some(token);
        let position = item.position();
        self.gate.expect(token, position);
        token
    }
}

/// Shared groups.
impl Shard {
    /// Whether a group with a member that keeps what it is given gets this message.
    pub(crate) fn is_shared(&mut self, topic: &str) -> bool {
        let Ok(topic) = TopicName::parse(topic) else {
            return false;
        };
        let route = self.router.route(topic);
        let groups = &self.groups;
        route.sharing != 0 || route.groups.iter().any(|group| groups.keeps(*group))
    }

    /// What to ask of another shard whose groups get this message.
    pub(crate) fn expect_groups(&mut self, item: &mut Item<'_>) -> Awaited {
        Awaited {
            token: self.expect_settled(item),
            expected: item.is_expected,
        }
    }

    /// Gives a message to the member whose turn it is, with a duty if it was given before.
    fn deliver_to_group(&mut self, now: Instant, id: GroupId, item: &mut Item<'_>, duty: Duty) {
        let home = self.options.id;
        let (publication, access) = (&item.publication, &mut self.access);
        let Some(chosen) = self.groups.choose(id, publication, access) else {
            self.drop_of_group(now, item, DropReason::SessionEnded);
            return self.fulfil(now, duty, home, item);
        };
        let (member, grant, group) = (chosen.member, chosen.grant, chosen.group);
        if member.shard == home {
            if !self.deliver_as_member(now, member, grant, item) {
                debug_assert!(
                    false,
                    "a session leaves the groups of its own shard at once"
                );
                self.drop_of_group(now, item, DropReason::SessionEnded);
            }
            return self.fulfil(now, duty, home, item);
        }
        let message = item.message_to_mail(&mut self.deliveries);
        let duty = match duty {
            Duty::None if item.is_awaited => Duty::Awaited {
                token: self.expect_settled(item),
                owing: self.groups.text(id).filter(|_| item.is_expected).cloned(),
            },
            again => again,
        };
        self.mesh.send_about_group(
            member.shard,
            GroupMessage::Deliver {
                member,
                group,
                grant,
                message,
                duty,
            },
        );
    }

    /// A session of this shard was chosen by a group of another; if it has left the group
    /// meanwhile, that gets the message back, with the duty.
    pub(crate) fn take_from_group(
        &mut self,
        now: Instant,
        (member, grant): (Member, Grant),
        group: GroupRef,
        message: Arc<Message>,
        duty: Duty,
    ) {
        let mut item = Item::kept(&message);
        self.deliverer(now).begin_item(false);
        if self.deliver_as_member(now, member, grant, &mut item) {
            return self.fulfil(now, duty, group.shard, &mut item);
        }
        let message = GroupMessage::Return {
            group,
            message,
            duty,
        };
        self.mesh.send_about_group(group.shard, message);
    }

    /// Brings a message to the session that was chosen. Answers whether that is still a member.
    fn deliver_as_member(
        &mut self,
        now: Instant,
        member: Member,
        grant: Grant,
        item: &mut Item<'_>,
    ) -> bool {
        let session = self.sessions.get(member.session);
        let text = session.and_then(|session| session.memberships.named(member.serial));
        let Some(text) = text.cloned() else {
            return false;
        };
        // [MQTT-3.3.4-5]
        let identifiers: Identifiers = grant.identifier.into_iter().collect();
        let access = &mut self.access;
        let terms = Terms {
            qos: grant.qos, // [MQTT-4.8.2-3]
            retain: item.publication.retain && grant.retain_as_published,
            identifiers: &identifiers,
            group: Some(&text),
            is_denied: !access.may_receive(member.session, item.publication.topic),
        };
        self.deliverer(now).deliver(member.session, terms, item);
        if item.is_expected {
            item.note_given(&mut self.gate, &text);
        }
        true
    }

    /// A message was given to a session of this shard, or dropped by name. `home`: the shard of the
    /// group.
    fn fulfil(&mut self, now: Instant, duty: Duty, home: ShardId, item: &mut Item<'_>) {
        match duty {
            Duty::None => {}
            Duty::Awaited { token, owing } => {
                if let Some(group) = owing {
                    item.note_given(&mut self.gate, &group);
                }
                let until = WaitFor::stored(item.until.stored);
                let waiter = Waiter::Shard(home, token);
                self.wake_when(now, until, waiter);
            }
            Duty::HandedOver(hand_over) => {
                self.gate.ask(Record::HandedOn { hand_over });
                let holder = placement::of_hand_over(hand_over, self.options.shards);
                if holder == self.options.id {
                    self.groups.end_hand_over(hand_over);
                } else {
                    self.mesh
                        .send_about_group(holder, GroupMessage::HandedOn { hand_over });
                }
            }
        }
    }

    /// Counts and tells a message that has no receiver to be told of: its publisher is named.
    pub(crate) fn drop_of_publisher(&mut self, now: Instant, item: &Item<'_>, reason: DropReason) {
        self.drop_at_share(now, item, reason, None);
    }

    /// The same; `share`: what is used up, if it is that.
    pub(crate) fn drop_at_share(
        &mut self,
        now: Instant,
        item: &Item<'_>,
        reason: DropReason,
        share: Option<&Arc<str>>,
    ) {
        let is_aside = self.audit.topics().is_aside(item.publication.topic);
        self.telemetry.count_drop(reason, is_aside);
        let client_id = item.publisher.map_or_else(anonymous, Arc::clone);
        let drop = Dropped {
            client_id: &client_id,
            message: &item.publication,
            publisher: item.publisher,
            place: DropPlace::Broker,
            reason,
            full: share,
        };
        self.telemetry.dropped_of_publisher(now, &drop);
    }

    /// A message that a group was owed has no member to go to.
    fn drop_of_group(&mut self, now: Instant, item: &Item<'_>, reason: DropReason) {
        self.drop_of_publisher(now, item, reason);
        item.news(News::Dropped(reason), self.audit.findings());
    }

    /// A member's session has ended with a message it had not acknowledged, or its client no longer
    /// takes it. The group is named by its filter as it is written: a restart does not change that.
    /// `kept`: the disk had it for the session.
    pub(crate) fn hand_over(
        &mut self,
        now: Instant,
        text: &Arc<str>,
        delivery: Delivery,
        kept: bool,
    ) {
        self.telemetry.ended(1);
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
            let message = GroupMessage::HandOver {
                group: Arc::clone(text),
                message,
                duty,
            };
            self.mesh.send_about_group(owner, message);
        }
    }

    /// Between the end of one session and the beginning for another no session has the message on
    /// disk, if they are on different shards.
    fn note_handed_over(&mut self, group: &Arc<str>, message: &Arc<Message>) -> Duty {
        if self.options.shards == 1 {
            return Duty::None; // both are stored together
        }
        let hand_over = self.groups.begin_hand_over(message.position());
        let (group, message) = (Arc::clone(group), Arc::clone(message));
        self.gate.ask(Record::HandedOver {
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

    /// A member of a group of this shard has left before it was given a message: that goes to
    /// another.
    pub(crate) fn take_back(
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
        self.deliverer(now).begin_item(false);
        if item.publication.expired(now) {
            self.drop_of_group(now, &item, DropReason::Expired); // [MQTT-3.3.2-5]
            self.fulfil(now, duty, self.options.id, &mut item);
        } else if let Some(group) = group {
            self.deliver_to_group(now, group, &mut item, duty);
        } else {
            self.drop_of_group(now, &item, DropReason::SessionEnded);
            self.fulfil(now, duty, self.options.id, &mut item);
        }
        item.finish(&mut self.deliveries);
    }

    /// The client of a session has connected: its groups learn it, and get back what is too large
    /// for the client now.
    pub(crate) fn rejoin_groups(&mut self, now: Instant, id: SessionId) {
        self.announcer().announce_to_groups(id, true);
        let limit = self.announcer().packet_limit(id);
        let Some(limit) = limit.filter(|limit| limit.bytes_max < u32::MAX) else {
            return;
        };
        let session = self.sessions.get(id);
        let kept = session.is_some_and(Session::is_durable);
        let taken = self.deliverer(now).take_too_large(id, &limit);
        if taken.is_empty() {
            return;
        }
        for delivery in taken {
            if let Some(group) = delivery.group.clone() {
                self.hand_over(now, &group, delivery, kept);
            }
        }
        // Stored with what the group is given: after a restart only one of both has the message.
        let Self { sessions, gate, .. } = self;
        if let Some(session) = sessions.get_mut(id) {
            session.persist_progress(gate);
        }
    }
}

/// What is found on the way.
impl Shard {
    /// Names and passes on what was found, and publishes what is to be reported.
    pub(crate) fn settle_audit(&mut self, now: Instant) {
        loop {
            self.name_findings(now);
            // What is on its way to those who get a report leads to more reports.
            let reports = self.audit.take_reports();
            if reports.is_empty() || self.stopping {
                break;
            }
            for report in reports {
                let mut item = Item::borrowed(report.publication(now), None);
                self.route(now, &mut item, None);
                item.finish(&mut self.deliveries);
            }
        }
        // By itself, since this is behind each input.
        let Self {
            audit,
            mesh,
            gate,
            timers,
            ..
        } = self;
        carry_out(now, audit, mesh, gate, timers);
    }

    /// What became known of a message that was routed, if it is followed; and what was found on the
    /// way.
    #[inline]
    pub(crate) fn pass_on_news(&mut self, now: Instant, item: &Item<'_>, news: News) {
        item.news(news, self.audit.findings());
        self.name_findings(now);
    }

    /// Names and passes on what was found.
    #[inline]
    fn name_findings(&mut self, now: Instant) {
        while let Some(finding) = self.audit.take_finding() {
            self.auditor(now).name_finding(finding);
        }
    }
}
