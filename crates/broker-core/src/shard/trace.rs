//! What traces show of packets and routes; see [`crate::telemetry`].

use std::sync::Arc;

use unbroken_mqtt_proto::{Frame, PacketType, Publish, TopicName};

use crate::delivery::Item;
use crate::ids::{SessionId, ShardId};
use crate::limits::TRACED_RECEIVERS_MAX;
use crate::session::Session;
use crate::shard::Shard;
use crate::telemetry::{Parties, TraceFilter, TraceStep, Traced};

/// What the driver asks for.
impl Shard {
    /// Its number.
    pub fn id(&self) -> ShardId {
        self.options.id
    }

    /// Begins a trace: its steps can be [taken](Self::take_traced) from now on.
    pub fn begin_trace(&mut self, number: u64, filter: TraceFilter) {
        self.telemetry.tracer.begin(number, filter);
    }

    /// Ends it.
    pub fn end_trace(&mut self, number: u64) {
        self.telemetry.tracer.end(number);
    }

    /// Takes the steps of all traces since the last call, and of which trace how many are missing
    /// among them because there were too many. To be called at the end of each turn.
    pub fn take_traced(&mut self) -> (Vec<Traced>, Vec<(u64, u64)>) {
        self.telemetry.tracer.take()
    }
}

impl Shard {
    #[cold]
    pub(super) fn trace_publish(
        &mut self,
        session: SessionId,
        publish: &Publish<'_>,
        topic: TopicName<'_>,
    ) {
        let parties = parties(self.sessions.get(session));
        let tracer = &mut self.telemetry.tracer;
        tracer.published(parties, topic.as_str(), publish);
    }

    /// A packet that is no PUBLISH.
    #[cold]
    pub(super) fn trace_packet(&mut self, session: SessionId, frame: Frame<'_>) {
        let Some(packet) = frame.packet_type() else {
            return;
        };
        let has_id =
            (PacketType::PubAck as u8..=PacketType::UnsubAck as u8).contains(&(packet as u8));
        let id = frame.body.first_chunk().filter(|_| has_id);
        let step = TraceStep::Received {
            packet,
            bytes: frame.bytes.len(),
            packet_id: id.map(|id| u16::from_be_bytes(*id)),
        };
        let parties = parties(self.sessions.get(session));
        let tracer = &mut self.telemetry.tracer;
        tracer.step(parties, None, |_| step.clone());
    }

    /// A message is about to go to its receivers here.
    #[cold]
    pub(super) fn trace_matched(&mut self, item: &Item<'_>, topic: TopicName<'_>) {
        let route = self.router.route(topic);
        let sessions = &self.sessions;
        let receivers = route.receivers.iter();
        let named = receivers.filter_map(|receiver| sessions.get(receiver.session));
        let names = named.map(|session| Arc::clone(&session.client_id));
        let step = TraceStep::Matched {
            receivers: route.receivers.len(),
            names: names.take(TRACED_RECEIVERS_MAX).collect(),
            groups: route.groups.len(),
            shards: route.shards.count_ones(),
        };
        let parties = Parties {
            publisher: item.publisher,
            ..Parties::default()
        };
        let tracer = &mut self.telemetry.tracer;
        tracer.copy(parties, &item.publication, &step);
    }
}

fn parties(session: Option<&Session>) -> Parties<'_> {
    Parties {
        client_id: session.map(|session| &session.client_id),
        user: session.and_then(Session::user),
        publisher: None,
    }
}
