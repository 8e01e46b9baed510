//! SUBSCRIBE and UNSUBSCRIBE: what a session wants, made known to every shard before it is
//! acknowledged.
//!
//! ```text
//! SUBSCRIBE -> each filter granted or refused -> index here -> interest to the other shards
//!           -> SUBACK when all have applied it, and it is stored
//!                                |
//!                          $share/group/filter: joins the group on the shard that it lives on
//! ```
//!
//! Invariant: a message published anywhere in the broker after its subscriber saw SUBACK reaches
//! that subscriber.

mod in_force;
mod judged_again;
mod request;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::topic::{SubscriptionFilter, TopicFilter};
use unbroken_mqtt_proto::{
    Packet, PacketId, Properties, QoS, ReasonCode, RetainHandling, SubAck, Subscribe,
    SubscriptionOptions, Unsubscribe, Version,
};

use crate::connection::{Answer, Connection};
use crate::durability::WaitFor;
use crate::filter_size::FilterSize;
use crate::ids::{ConnectionId, LogId, SessionId, ShardId, StoreId};
use crate::limits::PAST_SUBSCRIPTIONS_AT_LEAST;
use crate::reason::Fault;
use crate::routing::{Grant, Granted, PendingSubAck, Subscriber};
use crate::session::Session;
use crate::settings::ShardOptions;
use crate::shard::Shard;
use crate::shard::mount::mounted_filters;
use crate::shared::GroupMessage;
use crate::telemetry::Event;

use request::{
    Answers, Keeping, Request, as_bridge, check_filters, codes_for, granted, identifier_of,
    invalid_filter, is_too_large,
};

impl Shard {
    pub(crate) fn handle_subscribe(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session_id: SessionId,
        subscribe: Subscribe<'_>,
    ) -> Result<(), Fault> {
        check_filters(subscribe.filters.iter().map(|(filter, _)| filter))?;
        self.deliverer(now).catch_up(session_id);
        let Some(connection) = self.connections.get(id) else {
            return Ok(());
        };
        let (is_bridge, version) = (connection.is_bridge(), connection.version());
        let identifier = identifier_of(&subscribe);
        let most = self.options.limits.subscriptions_per_session_max;
        let filters_max = most.max(FILTERS_AT_LEAST) as usize;
        let levels_max = self.options.limits.filter_levels_per_session_max;
        let own = subscribe.filters.iter().map(|(filter, _)| filter);
        let mounted = mounted_filters(connection, own, filters_max);
        let (mut answer, mut all) = (Answers::default(), FilterSize::default());
        // One SUBSCRIBE with many filters acts like many with one [MQTT-3.8.4-5, MQTT311-3.8.4-4].
        for (number, (text, mut options)) in subscribe.filters.iter().enumerate() {
            let mounted = mounted.as_ref().and_then(|them| them.get(number));
            let text = mounted.map_or(text, |mounted| mounted);
            let filter = SubscriptionFilter::parse(text).map_err(invalid_filter)?;
            all.add(FilterSize::of(filter.filter()));
            if answer.codes.len() >= filters_max || all.levels > levels_max {
                // More than a session may hold: some are repeated.
                answer.codes.push(ReasonCode::QuotaExceeded as u8);
                self.telemetry.refused(ReasonCode::QuotaExceeded);
                continue;
            }
            if is_bridge {
                as_bridge(filter, &mut options);
            }
            let mut request = Request {
                session: session_id,
                text,
                filter,
                options,
                identifier,
            };
            let code = self.take_request(&mut request, &mut answer)?;
            self.report_subscribed(version, &request, code);
            answer.codes.push(code as u8); // [MQTT-3.9.3-1, MQTT311-3.9.3-1]
        }
        self.turn.note_levels(all.levels.min(levels_max));
        self.hold_suback(now, id, session_id, Some(subscribe.packet_id), answer);
        self.release_subacks(now);
        Ok(())
    }

    /// One filter: the fault ends the connection, the code is this filter's answer. The request is
    /// lowered to the QoS that is allowed.
    fn take_request<'a>(
        &mut self,
        request: &mut Request<'a>,
        answer: &mut Answers<'a>,
    ) -> Result<ReasonCode, Fault> {
        let new = match self.subscribe(request, &mut answer.joins)? {
            Ok(new) => new,
            Err(reason) => return Ok(reason),
        };
        let Request {
            session,
            text,
            options,
            identifier,
            ..
        } = *request;
        // Also where it replaces one. [MQTT-3.8.4-4, MQTT311-3.8.4-3] [MQTT311-3.3.1-6]
        let wanted = match options.retain_handling {
            RetainHandling::SendAlways => true, // [MQTT-3.3.1-9]
            RetainHandling::SendIfNew => new,   // [MQTT-3.3.1-10]
            RetainHandling::DoNotSend => false, // [MQTT-3.3.1-11]
        };
        let query = match request.filter {
            SubscriptionFilter::Plain(filter) if wanted => Some(filter),
            _ => None, // a shared subscription gets nothing retained
        };
        let queries = query.is_some();
        let grant = request.grant();
        answer.retained.extend(query.map(|filter| (filter, grant)));
        match self.keep_subscription(session, text, options, identifier, queries) {
            Keeping::Asked(asked) => answer.stored = asked.max(answer.stored),
            Keeping::OnceInForce { era } => answer.filters.push(Granted {
                filter: text.into(),
                era,
                barrier: self.mesh.latest_barrier(),
            }),
        }
        // [MQTT-3.8.4-7, MQTT311-3.8.4-5]
        Ok(granted(grant.qos))
    }

    fn report_subscribed(&mut self, version: Version, request: &Request<'_>, code: ReasonCode) {
        if let Some(session) = self.sessions.get(request.session) {
            let client_id = Arc::clone(&session.client_id);
            self.event(Event::Subscribed {
                client_id,
                filter: request.text.into(),
                reason: code,
                sent: version.suback_code(code as u8),
            });
        }
        if code.is_error() {
            self.telemetry.refused(code);
        }
    }

    /// Keeps the SUBACK until its subscriptions are in force everywhere, and stored. Without a
    /// packet id there is none, but they are put in force in the same way.
    fn hold_suback(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        session: SessionId,
        packet_id: Option<PacketId>,
        answer: Answers<'_>,
    ) {
        // Queries begin with SUBACK: a retained message that was acknowledged before is then found
        // for sure. They exist from now on, so that they see what live messages overtake them.
        let first = self.numbers.next();
        for (filter, grant) in answer.retained {
            self.add_query(now, session, filter, grant, true);
        }
        let state = self.sessions.get(session);
        let suback = PendingSubAck {
            connection,
            session,
            serial: state.map(Session::serial).unwrap_or_default(),
            packet_id,
            codes: answer.codes,
            filters: answer.filters,
            barrier: self.mesh.latest_barrier(),
            joins: answer.joins,
            stored: answer.stored,
            retained: first..self.numbers.next(),
        };
        self.connections.burden(connection, suback.cost());
        self.router.subacks().hold(suback);
    }

    /// One filter. The outer error ends the connection, the inner one is this filter's answer.
    /// Answers whether the session did not have the filter.
    fn subscribe(
        &mut self,
        request: &mut Request<'_>,
        joins: &mut Vec<u64>,
    ) -> Result<Result<bool, ReasonCode>, Fault> {
        if is_too_large(&self.options.limits, request) {
            return Ok(Err(ReasonCode::TopicFilterInvalid));
        }
        if request.options.no_local && request.filter.group().is_some() {
            // [MQTT-3.8.3-4]
            return Err(Fault::new(
                ReasonCode::ProtocolError,
                "No Local on a shared subscription",
            ));
        }
        let filter = request.filter.filter();
        let Ok(max_qos) = self.judge_filter(request.session, filter) else {
            return Ok(Err(ReasonCode::NotAuthorized));
        };
        request.options.qos = request.options.qos.min(max_qos); // [MQTT-3.2.2-10]
        if !self.has_room_for_past(request) {
            return Ok(Err(ReasonCode::QuotaExceeded));
        }
        let before = match self.insert_subscription(request) {
            Ok(before) => before,
            Err(reason) => return Ok(Err(reason)),
        };
        match request.filter {
            SubscriptionFilter::Plain(filter) => self.route_to(request, filter, before),
            SubscriptionFilter::Shared { group, filter } => {
                joins.extend(self.join_as(request, group, filter, before.is_none()));
            }
        }
        Ok(Ok(before.is_none()))
    }

    /// Whether the session may have another version of this subscription on disk.
    fn has_room_for_past(&mut self, request: &Request<'_>) -> bool {
        let per_session = self.options.limits.subscriptions_per_session_max;
        let past_max = per_session.max(PAST_SUBSCRIPTIONS_AT_LEAST) as usize;
        let (options, identifier) = (request.options, request.identifier);
        let Self { sessions, gate, .. } = self;
        let Some(session) = sessions.get_mut(request.session) else {
            return true;
        };
        if !session.is_full_of_past(request.text, options, identifier, past_max) {
            return true;
        }
        // Past ones of a session that keeps up are there until progress is stored.
        session.persist_progress(gate);
        !session.is_full_of_past(request.text, options, identifier, past_max)
    }

    /// Gives the session the subscription. Answers the QoS of the one that it replaces.
    fn insert_subscription(&mut self, request: &Request<'_>) -> Result<Option<QoS>, ReasonCode> {
        let ShardOptions { limits, totals, .. } = &self.options;
        let size = FilterSize::of(request.filter.filter());
        let Some(session) = self.sessions.get_mut(request.session) else {
            return Err(ReasonCode::UnspecifiedError);
        };
        let before = session.subscriptions.get(request.text);
        let before = before.map(|grant| grant.qos);
        if before.is_none() {
            let has_room = session.subscriptions.has_room(size, limits);
            let shares = &mut self.shares;
            if !has_room
                || shares
                    .take_subscription(session, size, totals, limits)
                    .is_err()
            {
                return Err(ReasonCode::QuotaExceeded);
            }
            self.telemetry.subscribed();
        }
        // [MQTT-3.8.4-3, MQTT311-3.8.4-3]
        session
            .subscriptions
            .insert(request.text.into(), request.grant());
        Ok(before)
    }

    /// Puts a subscription into the router, in place of one with the QoS `before`, and announces
    /// it.
    fn route_to(&mut self, request: &Request<'_>, filter: TopicFilter<'_>, before: Option<QoS>) {
        let (session, grant) = (request.session, request.grant());
        // In place of an older one, so that no message falls between. [MQTT-3.8.4-4]
        self.router
            .insert(filter, Subscriber::Session(session), grant);
        self.announcer()
            .announce_full_filter(session, filter.as_str(), grant);
        if before.is_none() {
            self.audit.note_filter(filter.as_str(), true);
        }
        let want = self.sessions.want_of(session, grant.qos);
        let before = before.map(|qos| self.sessions.want_of(session, qos));
        if before != Some(want) {
            // Before the other is withdrawn, so that no message falls between.
            self.announcer().announce(filter.as_str(), want);
            if let Some(before) = before {
                self.announcer().withdraw(filter.as_str(), before);
            }
        }
    }

    /// Makes the session a member of a group. Answers the token of the join, if the group lives on
    /// another shard.
    fn join_as(
        &mut self,
        request: &Request<'_>,
        group: &str,
        filter: TopicFilter<'_>,
        is_new: bool,
    ) -> Option<u64> {
        let (session, text) = (request.session, request.text);
        if is_new {
            self.telemetry.joined_group();
        }
        let join = self
            .announcer()
            .join_group(session, group, filter, request.grant());
        if self.sessions.is_full(session)
            && let Some(state) = self.sessions.get(session)
            && let Some(serial) = state.memberships.serial(text)
        {
            self.announcer()
                .announce_to_group(session, text, serial, true);
        }
        join
    }

    /// Puts one subscription that is restored into the index, or its session into the group.
    pub(crate) fn put_subscription(
        &mut self,
        session_id: SessionId,
        parsed: SubscriptionFilter<'_>,
        grant: Grant,
    ) {
        match parsed {
            SubscriptionFilter::Plain(filter) => {
                self.router
                    .insert(filter, Subscriber::Session(session_id), grant);
                self.audit.note_filter(filter.as_str(), true);
                let want = self.sessions.want_of(session_id, grant.qos);
                self.announcer().announce(filter.as_str(), want);
            }
            SubscriptionFilter::Shared { group, filter } => {
                self.telemetry.joined_group();
                // Messages are published after every shard was restored.
                let _ = self
                    .announcer()
                    .join_group(session_id, group, filter, grant);
            }
        }
    }

    pub(crate) fn handle_unsubscribe(
        &mut self,
        now: Instant,
        id: ConnectionId,
        session_id: SessionId,
        unsubscribe: Unsubscribe<'_>,
    ) -> Result<(), Fault> {
        check_filters(unsubscribe.filters.iter())?;
        self.deliverer(now).catch_up(session_id);
        let mut codes = Vec::new();
        let mut stored = StoreId::NOTHING;
        // [MQTT-3.10.4-6, MQTT311-3.10.4-6]
        let mount = self
            .connections
            .get(id)
            .and_then(Connection::mount)
            .cloned();
        for text in &unsubscribe.filters {
            let mounted = mount.as_ref().map(|mount| mount.filter(text));
            let text = mounted.as_deref().unwrap_or(text);
            // The same character for character. [MQTT-3.10.4-1, MQTT311-3.10.4-1]
            let code = if let Some(asked) = self.end_subscription_to(session_id, text) {
                self.tell_unsubscribed(session_id, text);
                stored = asked.max(stored);
                ReasonCode::Success
            } else {
                ReasonCode::NoSubscriptionExisted
            };
            codes.push(code as u8);
        }
        // [MQTT-3.10.4-5, MQTT311-3.10.4-5] [MQTT-3.11.3-1]; before 5.0 there is no list of codes.
        // [MQTT-3.10.4-4, MQTT311-3.10.4-4]
        let unsuback = Answer::UnsubAck(unsubscribe.packet_id, codes.into());
        self.deliverer(now)
            .answer(id, WaitFor::stored(stored), unsuback);
        // A query for a later subscription may have stood behind one that is gone.
        self.pump(now, session_id);
        Ok(())
    }

    /// Ends a subscription, if the session has it. Answers what asks for that to be on disk.
    pub(crate) fn end_subscription_to(&mut self, id: SessionId, text: &str) -> Option<StoreId> {
        let grant = self.sessions.get_mut(id)?.subscriptions.remove(text)?;
        if let Ok(parsed) = SubscriptionFilter::parse(text) {
            self.unsubscribe(id, parsed, grant);
        }
        let Self { sessions, gate, .. } = self;
        Some(sessions.unsubscribe(id, gate, text))
    }

    /// Notes a subscription of a session that stays, and asks for it to be on disk, if it is in
    /// force everywhere.
    fn keep_subscription(
        &mut self,
        id: SessionId,
        filter: &str,
        options: SubscriptionOptions,
        identifier: Option<NonZeroU32>,
        scans: bool,
    ) -> Keeping {
        let Some(session) = self.sessions.get_mut(id) else {
            return Keeping::Asked(StoreId::NOTHING);
        };
        let Some(kept) = session.kept.as_deref_mut() else {
            return Keeping::Asked(StoreId::NOTHING);
        };
        let tails = self.gate.log_ends().all();
        let mesh = &self.mesh;
        let unaware = others(&self.options).filter(|shard| !mesh.is_up_to_date(*shard));
        let unaware = unaware.map(|shard| LogId(shard.0.into()));
        let joins: Vec<_> = unaware
            .filter(|log| !kept.holds_in(*log, filter, options.qos))
            .collect();
        let mut replaced = kept.subscribe(filter, options, identifier, tails, &joins);
        if scans {
            kept.begin_scan(filter);
        }
        let era = kept
            .subscription(filter)
            .map(|subscription| subscription.era);
        let mut unstored = None;
        if !joins.is_empty() {
            unstored = replaced.take();
        } else if let Some(subscription) = kept.stop_yielding(filter, tails) {
            // It is the one on disk.
            unstored = replaced.replace(subscription);
        }
        let is_changed = replaced.is_some() || unstored.is_some();
        // The client was not yet told of this one.
        if let Some(subscription) = unstored {
            session.persist_unsubscription(&mut self.gate, subscription);
        }
        let keeping = match era {
            Some(era) if !joins.is_empty() => Keeping::OnceInForce { era },
            _ => Keeping::Asked(session.persist_subscription(&mut self.gate, filter, replaced)),
        };
        if is_changed {
            self.sessions.touch(id);
        }
        keeping
    }

    /// Reports what a session had: so many events a packet can cause, and no more.
    fn tell_unsubscribed(&mut self, session_id: SessionId, filter: &str) {
        if let Some(session) = self.sessions.get_mut(session_id) {
            let client_id = Arc::clone(&session.client_id);
            let filter = filter.into();
            self.event(Event::Unsubscribed { client_id, filter });
        }
    }

    /// Takes one subscription, already off its session, out of the index.
    fn unsubscribe(&mut self, session_id: SessionId, parsed: SubscriptionFilter<'_>, grant: Grant) {
        self.telemetry.unsubscribed();
        let size = FilterSize::of(parsed.filter());
        self.options.totals.unsubscribe(size);
        self.turn.note_levels(size.levels);
        if let Some(session) = self.sessions.get(session_id) {
            self.shares.end_subscription(session);
        }
        match parsed {
            SubscriptionFilter::Plain(filter) => {
                // [MQTT-3.10.4-2, MQTT311-3.10.4-2]
                self.router.remove(filter, Subscriber::Session(session_id));
                self.announcer()
                    .announce_filter_room(session_id, filter.as_str());
                self.audit.note_filter(filter.as_str(), false);
                // Deliveries that have begun are finished. [MQTT-3.10.4-3, MQTT311-3.10.4-3]
                self.retained.remove_queries(session_id, filter.as_str());
                let want = self.sessions.want_of(session_id, grant.qos);
                self.announcer().withdraw(filter.as_str(), want);
            }
            SubscriptionFilter::Shared { group, filter } => {
                self.telemetry.left_group();
                self.announcer().leave_group(session_id, group, filter);
            }
        }
    }

    /// The session ends: all its subscriptions do.
    pub(crate) fn unsubscribe_all(&mut self, session_id: SessionId) {
        let Some(session) = self.sessions.get_mut(session_id) else {
            return;
        };
        for (text, grant) in std::mem::take(&mut session.subscriptions) {
            if let Ok(parsed) = SubscriptionFilter::parse(&text) {
                self.unsubscribe(session_id, parsed, grant);
            }
        }
        self.retained.end_session(session_id);
    }

    /// Sends the SUBACKs that wait for nothing any more, and answers other shards whose
    /// sessions' joins are in force.
    pub(crate) fn release_subacks(&mut self, now: Instant) {
        let reached = self.mesh.reached_barrier();
        while let Some(mut suback) = self.router.subacks().take_passed(reached) {
            self.put_in_force(&mut suback);
            if suback.filters.is_empty() {
                self.router.subacks().hold_until_stored(suback);
            } else {
                suback.barrier = self.mesh.latest_barrier();
                self.router.subacks().hold(suback);
            }
        }
        let stored = self.gate.stored();
        while let Some(suback) = self.router.subacks().take_ready(stored) {
            self.release_suback(now, &suback);
        }
        while let Some(join) = self.groups.take_join(reached) {
            let token = join.token;
            self.mesh
                .send_about_group(join.shard, GroupMessage::Joined { token });
        }
    }

    fn release_suback(&mut self, now: Instant, suback: &PendingSubAck) {
        self.connections
            .unburden(now, suback.connection, suback.cost(), &self.options.limits);
        self.send_suback(suback);
        self.begin_queries(now, suback.session, suback.retained.clone());
    }

    /// [MQTT-3.8.4-1, MQTT311-3.8.4-1] [MQTT-3.8.4-6, MQTT311-3.8.4-5]
    fn send_suback(&mut self, suback: &PendingSubAck) {
        let (Some(packet_id), Some(connection)) =
            (suback.packet_id, self.connections.get(suback.connection))
        else {
            return;
        };
        let codes = codes_for(connection.version(), &suback.codes);
        // The id of its SUBSCRIBE, and no properties. [MQTT-2.2.1-6, MQTT311-2.3.1-7]
        // [MQTT-3.8.4-2, MQTT311-3.8.4-2] [MQTT-3.9.2-1, MQTT-3.9.2-2]
        let packet = SubAck {
            packet_id,
            properties: Properties::EMPTY,
            reasons: &codes,
        };
        let Self {
            connections,
            telemetry,
            ..
        } = self;
        let index = suback.connection.index;
        connections.send(telemetry, index, &Packet::SubAck(packet));
    }
}

/// Filters of one SUBSCRIBE that are looked at, however few a session may hold.
const FILTERS_AT_LEAST: u32 = 2;

/// The shards but this one.
fn others(options: &ShardOptions) -> impl Iterator<Item = ShardId> + use<> {
    let me = options.id;
    let shards = (0..options.shards).map(ShardId);
    shards.filter(move |shard| *shard != me)
}
