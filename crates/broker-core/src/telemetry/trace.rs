//! Traces: what happens to the packets of some clients, as it happens.
//!
//! Invariants:
//! - While no trace is active, each step of a packet or a message costs one branch
//!   ([`Tracer::is_on`]), and nothing else.
//! - Traces, the steps that wait to be taken, and what a step names are bounded. A step without
//!   room is counted.
//!
//! Deliberately absent: when a trace ends, and who reads it, which is the driver's matter.

use std::collections::HashSet;
use std::sync::Arc;

use unbroken_mqtt_proto::{PacketId, PacketType, Publish, QoS, ReasonCode, TopicFilter, TopicName};

use super::Event;
use crate::limits::{TRACED_CLIENTS_MAX, TRACED_STEPS_MAX};
use crate::message::Publication;
use crate::reason::DropReason;

/// What a trace is about: everything for which all of these hold.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TraceFilter {
    /// The client with this id sends or receives it.
    pub client_id: Option<Arc<str>>,
    /// A client of this user does, as far as the shard knows the client.
    pub user: Option<Arc<str>>,
    /// It has a topic that matches this filter.
    pub topic: Option<Arc<str>>,
    /// So many bytes of payloads are shown.
    pub payload_bytes: u16,
}

/// A step of what a trace is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Traced {
    /// The number of the trace.
    pub trace: u64,
    /// Whose packet, copy or event it is; `None`: it is about a message and all its receivers here.
    pub client_id: Option<Arc<str>>,
    /// The user of that client, if it is known.
    pub user: Option<Arc<str>>,
    /// Whose message it is, if it is another client's.
    pub publisher: Option<Arc<str>>,
    /// The topic of the message.
    pub topic: Option<Box<str>>,
    /// What happened.
    pub step: TraceStep,
}

/// What happened in one step.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TraceStep {
    /// A packet came, no PUBLISH.
    Received {
        /// Its type.
        packet: PacketType,
        /// All of its bytes.
        bytes: usize,
        /// Its packet id, if it has one.
        packet_id: Option<u16>,
    },
    /// A PUBLISH came.
    Published {
        /// As it was sent.
        qos: QoS,
        /// As it was sent.
        retain: bool,
        /// As it was sent.
        dup: bool,
        /// Its packet id, if it has one.
        packet_id: Option<u16>,
        /// Bytes of the payload.
        payload_bytes: usize,
        /// The first of them, if the trace shows any.
        payload: Box<[u8]>,
    },
    /// The message may be published, and its receivers on this shard are known.
    Matched {
        /// Sessions that subscribed to it.
        receivers: usize,
        /// The first of them.
        names: Vec<Arc<str>>,
        /// Shared groups.
        groups: usize,
        /// Other shards that get it.
        shards: u32,
    },
    /// It has gone to the output of a receiver.
    Sent {
        /// As it was granted.
        qos: QoS,
    },
    /// It waits for a receiver, behind so many.
    Queued {
        /// As it was granted.
        qos: QoS,
        /// Messages in front of it.
        behind: usize,
    },
    /// It waits for a receiver on disk.
    Stored {
        /// As it was granted.
        qos: QoS,
    },
    /// Messages are not delivered.
    Dropped {
        /// Why.
        reason: DropReason,
        /// How many; the topic is that of the last.
        count: u64,
    },
    /// A packet of the client's was answered.
    Answered {
        /// With this.
        packet: PacketType,
        /// The id of both.
        packet_id: u16,
        /// What it says, if it says anything.
        reason: Option<ReasonCode>,
    },
    /// Something happened to the client.
    Event(Event),
}

/// The clients of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parties<'a> {
    pub(crate) client_id: Option<&'a Arc<str>>,
    pub(crate) user: Option<&'a Arc<str>>,
    pub(crate) publisher: Option<&'a Arc<str>>,
}

/// The traces of one shard.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    traces: Vec<Trace>,
    /// Not taken yet.
    steps: Vec<Traced>,
}

#[derive(Debug)]
struct Trace {
    number: u64,
    filter: TraceFilter,
    /// Clients of its user that were seen.
    clients: HashSet<Arc<str>>,
    /// Its steps that are not taken yet, and those for which there was no room beside them.
    waiting: usize,
    missed: u64,
}

impl Tracer {
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.traces.is_empty()
    }

    pub(crate) fn begin(&mut self, number: u64, filter: TraceFilter) {
        self.traces.push(Trace {
            number,
            filter,
            clients: HashSet::new(),
            waiting: 0,
            missed: 0,
        });
    }

    pub(crate) fn end(&mut self, number: u64) {
        self.traces.retain(|trace| trace.number != number);
    }

    /// The steps since the last call, and how many are missing among them of which trace.
    pub(crate) fn take(&mut self) -> (Vec<Traced>, Vec<(u64, u64)>) {
        let take_missed = |trace: &mut Trace| {
            trace.waiting = 0;
            (trace.number, std::mem::take(&mut trace.missed))
        };
        let missed = self.traces.iter_mut().map(take_missed);
        let missed = missed.filter(|(_, missed)| *missed > 0).collect();
        (std::mem::take(&mut self.steps), missed)
    }

    /// A step for each trace that is about it.
    #[cold]
    pub(crate) fn step(
        &mut self,
        parties: Parties<'_>,
        topic: Option<&str>,
        step: impl Fn(&TraceFilter) -> TraceStep,
    ) {
        for trace in &mut self.traces {
            if !trace.is_about(parties, topic) {
                continue;
            }
            if trace.waiting >= TRACED_STEPS_MAX {
                trace.missed += 1;
                continue;
            }
            trace.waiting += 1;
            let publisher = parties.publisher;
            let is_another = publisher.filter(|name| Some(*name) != parties.client_id);
            self.steps.push(Traced {
                trace: trace.number,
                client_id: parties.client_id.cloned(),
                user: parties.user.cloned(),
                publisher: is_another.cloned(),
                topic: topic.map(Into::into),
                step: step(&trace.filter),
            });
        }
    }

    /// Steps that are not taken yet.
    pub(crate) fn waiting(&self) -> usize {
        self.steps.len()
    }

    /// The PUBLISH that came behind so many steps is put back, and comes again.
    pub(crate) fn put_back(&mut self, before: usize) {
        let behind = self.steps.split_off(before.min(self.steps.len()));
        for step in behind {
            if !matches!(step.step, TraceStep::Published { .. }) {
                self.steps.push(step);
                continue;
            }
            let of_it = |trace: &&mut Trace| trace.number == step.trace;
            if let Some(trace) = self.traces.iter_mut().find(of_it) {
                trace.waiting -= 1;
            }
        }
    }

    /// A PUBLISH came, on this whole topic.
    #[cold]
    pub(crate) fn published(&mut self, parties: Parties<'_>, topic: &str, publish: &Publish<'_>) {
        self.step(parties, Some(topic), |filter| {
            let shown = publish.payload.len().min(filter.payload_bytes.into());
            TraceStep::Published {
                qos: publish.qos,
                retain: publish.retain,
                dup: publish.dup,
                packet_id: publish.packet_id.map(PacketId::get),
                payload_bytes: publish.payload.len(),
                payload: publish.payload[..shown].into(),
            }
        });
    }

    /// Something became of one receiver's copy of a message.
    #[cold]
    pub(crate) fn copy(
        &mut self,
        parties: Parties<'_>,
        publication: &Publication<'_>,
        step: &TraceStep,
    ) {
        self.step(parties, Some(publication.topic), |_| step.clone());
    }

    #[cold]
    pub(crate) fn dropped(
        &mut self,
        parties: Parties<'_>,
        topic: &str,
        (reason, count): (DropReason, u64),
    ) {
        let topic = (!topic.is_empty()).then_some(topic);
        self.step(parties, topic, |_| TraceStep::Dropped { reason, count });
    }

    /// Something happened to a client.
    #[cold]
    pub(crate) fn event(&mut self, event: &Event) {
        let user = match event {
            Event::Connected { user, .. } => user.clone(),
            Event::Refused { user_name, .. } => user_name.as_deref().map(Into::into),
            // Has a step for each message.
            Event::Dropped { .. } => return,
            _ => None,
        };
        let parties = Parties {
            client_id: event.client_id(),
            user: user.as_ref(),
            publisher: None,
        };
        let topic = match event {
            Event::WillPublished { topic, .. } => Some(&**topic),
            _ => None,
        };
        self.step(parties, topic, |_| TraceStep::Event(event.clone()));
    }
}

impl Trace {
    fn is_about(&mut self, parties: Parties<'_>, topic: Option<&str>) -> bool {
        let names = [parties.client_id, parties.publisher];
        if let Some(wanted) = &self.filter.client_id
            && !names.contains(&Some(wanted))
        {
            return false;
        }
        if let Some(wanted) = &self.filter.user {
            let is_of_user = parties.user == Some(wanted);
            if let Some(client_id) = parties.client_id
                && is_of_user
                && self.clients.len() < TRACED_CLIENTS_MAX
                && !self.clients.contains(client_id)
            {
                self.clients.insert(Arc::clone(client_id));
            }
            let was_seen = |name: &Arc<str>| self.clients.contains(name);
            if !is_of_user && !names.into_iter().flatten().any(was_seen) {
                return false;
            }
        }
        self.filter.topic.as_deref().is_none_or(|filter| {
            let filter = TopicFilter::parse(filter).ok();
            let topic = topic.and_then(|topic| TopicName::parse(topic).ok());
            filter
                .zip(topic)
                .is_some_and(|(filter, topic)| filter.matches(topic))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(filter: &TraceFilter, steps: &[(&str, Option<&str>, &str)]) -> Vec<bool> {
        let mut tracer = Tracer::default();
        tracer.begin(1, filter.clone());
        let mut found = Vec::new();
        for (client, user, topic) in steps {
            let (client, user): (Arc<str>, _) = (Arc::from(*client), user.map(Arc::from));
            let parties = Parties {
                client_id: Some(&client),
                user: user.as_ref(),
                publisher: None,
            };
            let topic = Some(*topic).filter(|topic| !topic.is_empty());
            tracer.step(parties, topic, |_| TraceStep::Sent {
                qos: QoS::AtMostOnce,
            });
            found.push(!tracer.take().0.is_empty());
        }
        found
    }

    #[test]
    fn all_that_a_filter_asks_for_must_hold() {
        let steps = [
            ("a", Some("u"), "t/1"),
            ("a", None, "s"),
            ("b", Some("v"), "t/2"),
            ("b", None, ""),
        ];
        let of = |client: Option<&str>, user: Option<&str>, topic: Option<&str>| {
            let filter = TraceFilter {
                client_id: client.map(Into::into),
                user: user.map(Into::into),
                topic: topic.map(Into::into),
                payload_bytes: 0,
            };
            about(&filter, &steps)
        };
        assert_eq!(of(Some("a"), None, None), [true, true, false, false]);
        // A client whose user was seen is known by its id.
        assert_eq!(of(None, Some("u"), None), [true, true, false, false]);
        assert_eq!(of(None, None, Some("t/+")), [true, false, true, false]);
        assert_eq!(
            of(Some("b"), None, Some("t/+")),
            [false, false, true, false]
        );
        assert_eq!(of(None, None, Some("no/#/filter")), [false; 4]);
    }

    #[test]
    fn a_busy_trace_leaves_a_quiet_one_its_steps() {
        let quiet = TraceFilter {
            topic: Some("quiet".into()),
            ..TraceFilter::default()
        };
        let mut tracer = Tracer::default();
        tracer.begin(1, TraceFilter::default());
        tracer.begin(2, quiet);
        let drop = (DropReason::QueueFull, 1);
        for _ in 0..TRACED_STEPS_MAX {
            tracer.dropped(Parties::default(), "t", drop);
        }
        tracer.dropped(Parties::default(), "quiet", drop);
        let (steps, missed) = tracer.take();
        assert_eq!(steps.last().map(|step| step.trace), Some(2));
        assert_eq!(missed, [(1, 1)]);
        assert_eq!(tracer.take(), (vec![], vec![]));
    }

    #[test]
    fn steps_without_room_are_counted() {
        let mut tracer = Tracer::default();
        assert!(!tracer.is_on());
        tracer.begin(1, TraceFilter::default());
        for _ in 0..TRACED_STEPS_MAX + 3 {
            tracer.dropped(Parties::default(), "t", (DropReason::QueueFull, 1));
        }
        let (steps, missed) = tracer.take();
        assert_eq!((steps.len(), missed), (TRACED_STEPS_MAX, vec![(1, 3)]));
        tracer.end(1);
        tracer.dropped(Parties::default(), "t", (DropReason::QueueFull, 1));
        assert!(!tracer.is_on() && tracer.take().0.is_empty());
    }
}
