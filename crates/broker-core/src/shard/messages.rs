//! Messages from other shards: each goes to the part of the shard it is for.
//!
//! A publication that another shard sent is only dropped when it has been routed: its maker has
//! lent it, and has it back once it holds the last reference (see [`crate::message`]). So is a
//! bundle; copies that are made out of one are this shard's.

use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::TopicFilter;

use crate::audit::receipt::News;
use crate::delivery::Item;
use crate::durability::Waiter;
use crate::ids::{Holder, HolderRef, LogId, SessionId, ShardId};
use crate::mesh::{Awaited, Bundle, MeshMessage, OutOfOrder, ShardMessage};
use crate::message::Message;
use crate::position::Position;
use crate::reason::FaultPlace;
use crate::retained::Slice;
use crate::shard::Shard;
use crate::shared::{GroupMessage, PendingJoin};

impl Shard {
    pub(crate) fn handle_message(&mut self, now: Instant, from: ShardId, message: ShardMessage) {
        if let Some(found) = self.mesh.receive(from, message.number) {
            let OutOfOrder { kind, first, count } = found;
            let findings = self.audit.findings();
            findings.fault(FaultPlace::Messages(from), kind, first, count);
        }
        match message.message {
            MeshMessage::Publish { message, awaited } => {
                self.take_routed(now, from, &message, awaited);
            }
            MeshMessage::Bundle(bundle) => self.take_bundle(now, &bundle),
            MeshMessage::InterestAdded {
                filter,
                want,
                barrier,
            } => {
                self.announcer()
                    .handle_interest_added(from, &filter, want, barrier);
            }
            MeshMessage::InterestRemoved { filter, want } => {
                self.announcer()
                    .handle_interest_removed(from, &filter, want);
            }
            MeshMessage::BarrierAsked { barrier } => self.announcer().answer_barrier(from, barrier),
            MeshMessage::BarrierReached { barrier, tail } => {
                let before = self.mesh.note_reached(from, barrier);
                self.begin_revived(now);
                // What was wanted of what came before has come.
                self.take_tail(from, tail);
                self.begin_in_log_of(from, before, barrier);
                self.release_subacks(now);
            }
            MeshMessage::Tail { tail, on_disk } => {
                self.take_tail(from, tail);
                self.gate.note_on_disk(position_in(from, on_disk));
            }
            MeshMessage::Full {
                holder,
                name,
                filters,
            } => self
                .router
                .add_full(holder_of(from, holder), &name, &filters),
            MeshMessage::Room { holder, filter } => self.take_room(from, holder, filter.as_deref()),
            MeshMessage::Group(message) => self.take_group_message(now, from, message),
            MeshMessage::Retain(message) => self.handle_retain_message(now, from, message),
            MeshMessage::Settled { token } => self.handle_settled(now, token),
            MeshMessage::RetainedQuery {
                token,
                session,
                filter,
                after,
            } => {
                self.handle_retained_query(from, token, session, &filter, after.as_deref());
            }
            MeshMessage::RetainedAnswer {
                token,
                session,
                messages,
                next,
            } => self.take_slice(now, session, token, Slice { messages, next }),
            MeshMessage::News {
                publisher,
                epoch,
                number,
                news,
            } => self.auditor(now).take_news(&publisher, epoch, number, news),
            MeshMessage::Stats(stats) => self.telemetry.note_shard(from, *stats),
            MeshMessage::Lane(message) => self.auditor(now).take_lane_message(from, message),
            MeshMessage::StatsAsked => self.answer_stats(now, from),
            MeshMessage::StatsAnswer(stats) => self.take_stats(now, &stats),
            MeshMessage::MemoryIsShort => self.connections.look_at_memory(),
        }
    }

    /// What another shard retains for a query of this session.
    fn take_slice(&mut self, now: Instant, session: SessionId, token: u64, slice: Slice) {
        self.retained.take_answer(session, token, slice);
        self.pump(now, session);
    }

    /// A message that this shard wants.
    fn take_routed(
        &mut self,
        now: Instant,
        from: ShardId,
        message: &Arc<Message>,
        awaited: Option<Awaited>,
    ) {
        self.audit
            .check_unaltered(&message.publication(), message.publisher());
        if let Some(position) = message.position() {
            self.gate.note_log_end(position);
        }
        let mut item = Item::kept(message);
        item.is_awaited = awaited.is_some();
        item.is_expected = awaited.is_some_and(|awaited| awaited.expected);
        self.take_crossed(now, &mut item);
        if let Some(Awaited { token, .. }) = awaited {
            let waiter = Waiter::Shard(from, token);
            self.wake_when(now, item.until, waiter);
        }
    }

    fn take_bundle(&mut self, now: Instant, bundle: &Bundle) {
        let publisher = bundle.publisher();
        for publication in bundle.publications() {
            self.audit.check_unaltered(&publication, publisher);
            let mut item = Item::borrowed(publication, publisher);
            self.take_crossed(now, &mut item);
            item.finish(&mut self.deliveries);
        }
    }

    fn take_group_message(&mut self, now: Instant, from: ShardId, message: GroupMessage) {
        match message {
            GroupMessage::Join {
                group,
                filter,
                member,
                keeps,
                grant,
                limit,
                token,
            } => {
                if let Ok(filter) = TopicFilter::parse(&filter) {
                    self.announcer()
                        .take_member(&group, filter, (member, keeps), grant, limit);
                }
                // Answered when every shard knows of the group.
                let barrier = self.mesh.latest_barrier();
                let shard = from;
                self.groups.hold_join(PendingJoin {
                    barrier,
                    shard,
                    token,
                });
                self.release_subacks(now);
            }
            GroupMessage::Joined { token } => {
                self.router.subacks().handle_joined(token);
                self.release_subacks(now);
            }
            GroupMessage::Leave {
                group,
                filter,
                member,
            } => {
                if let Ok(filter) = TopicFilter::parse(&filter) {
                    self.announcer().drop_member(&group, filter, member);
                }
            }
            GroupMessage::Ready {
                group,
                filter,
                member,
                readiness,
                limit,
            } => {
                if let Ok(filter) = TopicFilter::parse(&filter) {
                    self.announcer()
                        .set_member_ready(&group, filter, member, readiness, limit);
                }
            }
            GroupMessage::Deliver {
                member,
                group,
                grant,
                message,
                duty,
            } => self.take_from_group(now, (member, grant), group, message, duty),
            GroupMessage::Return {
                group,
                message,
                duty,
            } => self.take_back(now, group, &message, duty),
            GroupMessage::HandOver {
                group,
                message,
                duty,
            } => self.hand_on(now, &group, &message, duty),
            GroupMessage::HandedOn { hand_over } => self.groups.end_hand_over(hand_over),
        }
    }

    /// A session or group of another shard has room again, or one of its subscriptions has.
    fn take_room(&mut self, from: ShardId, holder: Holder, filter: Option<&str>) {
        let of = holder_of(from, holder);
        match filter {
            Some(filter) => self.router.remove_full_filter(of, filter),
            None => self.router.remove_full(of),
        }
    }

    fn answer_stats(&mut self, now: Instant, from: ShardId) {
        let stats = Box::new(self.stats_now(now));
        self.mesh.send(from, MeshMessage::StatsAnswer(stats));
    }

    /// A message that came in on another shard.
    fn take_crossed(&mut self, now: Instant, item: &mut Item<'_>) {
        let expected = self.route_here(now, item, None).expected;
        self.pass_on_news(now, item, News::Expected(expected));
    }

    fn take_tail(&mut self, of: ShardId, number: u64) {
        self.gate.note_log_end(position_in(of, number));
    }
}

fn holder_of(shard: ShardId, holder: Holder) -> HolderRef {
    HolderRef { shard, holder }
}

/// Of a message in the log of this shard.
fn position_in(shard: ShardId, number: u64) -> Position {
    let log = LogId(shard.0.into());
    Position { log, number }
}
