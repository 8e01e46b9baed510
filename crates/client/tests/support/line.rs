//! An audited line for tests: what comes out of it, and faults injected into single messages on its
//! way.

use std::ops::Range;
use std::time::Duration;

use unbroken_client::audit::{
    Absence, AuditedMessage, AuditedSubscriber, Delivery, PublisherOptions, SubscriberOptions,
};
use unbroken_client::{Client, Filter, Message};
use unbroken_merkle_log::ledger::{Event, LedgerLimits, Presence, State, Verdict};
use unbroken_merkle_log::{
    Algorithm, DropRun, EpochEnd, Hasher, Key, LaneId, LaneLimits, Property,
};
use unbroken_mqtt_proto::{
    Ack, Packet, PacketId, Property as Carried, PropertyBuf, Publish, QoS, Version, next_frame,
};

use super::relay::{Fate, Relay};
use super::within;

pub(crate) fn lane(id: u64) -> LaneId {
    LaneId::new(id).expect("not 0")
}

/// Keyed BLAKE3.
pub(crate) fn keyed(key: u8) -> Hasher {
    Hasher::new(Algorithm::Blake3, Some(&Key([key; 32]))).expect("there is a key")
}

/// Checkpoints so often that tests need not wait for them.
pub(crate) fn publisher(id: u64) -> PublisherOptions {
    let mut limits = LaneLimits::default();
    limits.heartbeat = Duration::from_millis(100);
    limits.idle_heartbeat = Duration::from_millis(500);
    PublisherOptions::new(lane(id)).lane_limits(limits)
}

pub(crate) fn subscriber(filter: &str) -> SubscriberOptions {
    let mut limits = LedgerLimits::default();
    limits.lateness = Duration::from_millis(200);
    let filter = Filter::new(filter).expect("the test's filter is one");
    SubscriberOptions::new(vec![filter]).limits(limits)
}

pub(crate) fn numbered(topic: &str, number: u64) -> Message {
    Message::new(topic, number.to_string().as_bytes()).expect("the test's topic is one")
}

/// Everything that a subscriber said.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Number in its lane, verdict, payload as text.
    pub(crate) messages: Vec<(u64, Verdict, String)>,
    pub(crate) events: Vec<Event>,
    pub(crate) asked: usize,
    /// Number, reason, and whether the broker said so.
    pub(crate) dropped: Vec<(u64, String, bool)>,
    /// Numbers that came as what others were made of, and then themselves.
    pub(crate) inputs: Vec<u64>,
    /// When it was not connected.
    pub(crate) absences: Vec<Absence>,
    /// Lanes, one for each checkpoint.
    pub(crate) checkpoints: Vec<u64>,
    /// A producer has said that its epoch is over.
    pub(crate) closed: bool,
    /// Directories of two producers under one id have come.
    pub(crate) two_producers: bool,
    /// One has said that its epoch was cut off.
    pub(crate) cut: bool,
    /// Lane and number of each message that was said to be lost.
    pub(crate) lost_of: Vec<(u64, u64)>,
    /// The lane of each move.
    pub(crate) moved_of: Vec<u64>,
    /// Lane, first number, state and declared drops of each window, as it was last said to be.
    pub(crate) windows: Vec<(u64, u64, State, u64)>,
}

impl Seen {
    pub(crate) fn take(&mut self, delivery: Delivery) {
        self.take_window(&delivery);
        match delivery {
            Delivery::Message(message) => self.take_message(message),
            Delivery::Event { lane, event, .. } => {
                match &event {
                    Event::Lost { numbers, .. } => {
                        let numbers = numbers.clone().map(|number| (lane.value(), number));
                        self.lost_of.extend(numbers);
                    }
                    Event::Moved(_) => self.moved_of.push(lane.value()),
                    _ => {}
                }
                self.events.push(event);
            }
            Delivery::Dropped { record, by_broker } => {
                let reason = record.reason.to_string();
                for number in record.runs.iter().flat_map(DropRun::numbers) {
                    self.dropped.push((number, reason.clone(), by_broker));
                }
            }
            Delivery::Asked { .. } => self.asked += 1,
            Delivery::Checkpoint { checkpoint, .. } => {
                self.checkpoints.push(checkpoint.lane.value());
                self.closed |= checkpoint.end == EpochEnd::Closed;
                self.cut |= checkpoint.end == EpochEnd::Cut;
            }
            Delivery::InputContradicted { number, .. } => self.inputs.push(number),
            Delivery::Away(absence) => self.absences.push(absence),
            // A lane that was expected, and of which something came some time after.
            Delivery::Expected {
                presence: Presence::Come(_),
                ..
            } => {}
            Delivery::Refused { why, .. } if why.contains("two producers use the id") => {
                self.two_producers = true;
            }
            Delivery::Refused { topic, why, .. } => panic!("{topic}: {why}"),
            other => panic!("{other:?}"),
        }
    }

    fn take_window(&mut self, delivery: &Delivery) {
        if let Delivery::Event { lane, event, .. } = delivery
            && let Event::Window {
                numbers,
                state,
                account,
            } = event
        {
            let (lane, first) = (lane.value(), numbers.start);
            self.windows
                .retain(|(other, start, ..)| (*other, *start) != (lane, first));
            self.windows.push((lane, first, *state, account.dropped));
        }
    }

    pub(crate) fn take_message(&mut self, message: AuditedMessage) {
        self.note(&message);
        message.acknowledge();
    }

    pub(crate) fn note(&mut self, message: &AuditedMessage) {
        let number = message
            .property()
            .map_or(u64::MAX, |property| property.sequence);
        let verdict = message.verdict().unwrap_or(Verdict::NotAudited);
        let text = String::from_utf8_lossy(message.payload()).into_owned();
        self.messages.push((number, verdict, text));
    }

    /// Numbers of all proven windows together.
    pub(crate) fn proven(&self) -> u64 {
        let mut proven: Vec<Range<u64>> = Vec::new();
        for event in &self.events {
            if let Event::Window { numbers, state, .. } = event {
                proven.retain(|other| other.start != numbers.start);
                if *state == State::Proven {
                    proven.push(numbers.clone());
                }
            }
        }
        proven
            .iter()
            .map(|numbers| numbers.end - numbers.start)
            .sum()
    }

    /// Messages that are not simply in order, as number and verdict.
    pub(crate) fn faults(&self) -> Vec<(u64, Verdict)> {
        let faults = self.messages.iter();
        let faults = faults.filter(|(_, verdict, _)| *verdict != Verdict::InOrder);
        faults
            .map(|(number, verdict, _)| (*number, *verdict))
            .collect()
    }

    /// Numbers that were said to be lost.
    pub(crate) fn lost(&self) -> Vec<u64> {
        let lost = self.events.iter().filter_map(|event| match event {
            Event::Lost { numbers, .. } => Some(numbers.clone()),
            _ => None,
        });
        lost.flatten().collect()
    }

    /// Each number once, as an application would take them.
    pub(crate) fn taken(&self) -> Vec<(u64, &str)> {
        use Verdict::{Ahead, Found, InOrder, Late, Repaired};
        let new = |verdict| matches!(verdict, InOrder | Ahead | Late | Found | Repaired);
        let taken = self.messages.iter();
        let taken = taken.filter(|(_, verdict, _)| new(*verdict));
        let mut taken: Vec<_> = taken.map(|(number, _, text)| (*number, &**text)).collect();
        taken.sort_unstable();
        taken
    }
}

/// Takes what comes until so much is proven.
pub(crate) async fn until_proven(subscriber: &mut AuditedSubscriber, seen: &mut Seen, size: u64) {
    until(subscriber, seen, "the proof", |seen| seen.proven() >= size).await;
}

/// Takes what comes until a condition holds.
pub(crate) async fn until(
    subscriber: &mut AuditedSubscriber,
    seen: &mut Seen,
    what: &str,
    holds: impl Fn(&Seen) -> bool,
) {
    let result = within(what, async {
        while !holds(seen) {
            seen.take(subscriber.next().await.expect("the client goes on"));
        }
    });
    if tokio::time::timeout(super::DEADLINE / 2, result)
        .await
        .is_err()
    {
        panic!(
            "waited too long for {what}; seen so far: {} messages, {} checkpoints, {} asked for; \
             {:?} {:?} {:?}",
            seen.messages.len(),
            seen.checkpoints.len(),
            seen.asked,
            seen.windows,
            seen.faults(),
            seen.events
        );
    }
}

/// Takes what comes until these windows are as expected: lane, first number, state, drops.
pub(crate) async fn until_windows(
    subscriber: &mut AuditedSubscriber,
    seen: &mut Seen,
    expect: &[(u64, u64, State, u64)],
) {
    until(subscriber, seen, "the windows", |seen| {
        expect.iter().all(|window| seen.windows.contains(window))
    })
    .await;
}

pub(crate) async fn publish_all(
    publisher: &unbroken_client::audit::AuditedPublisher<impl Sized>,
    topic: &str,
    numbers: Range<u64>,
) {
    let mut stamped = Vec::new();
    for number in numbers {
        stamped.push(
            publisher
                .send(numbered(topic, number))
                .await
                .expect("there is room"),
        );
    }
    for stamped in stamped {
        let published = within("an acknowledgement", stamped.published()).await;
        published.expect("the broker takes it");
    }
}

/// What happens to one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Lose,
    Duplicate,
    /// With the next one.
    Swap,
    Alter,
    /// A copy with another payload and the same property follows.
    Inject,
    /// With another payload, and a property that fits it.
    Forge,
    /// The same, made with a key that is not the lane's.
    ForgeWithKey,
}

/// Injections messages of a topic on their way to the client, each number the first time it comes.
pub(crate) fn inject(relay: &Relay, topic: &'static str, injections: Vec<(u64, Fault)>) {
    let mut injections = injections;
    let mut held: Option<Vec<u8>> = None;
    relay.inject_to_client(move |packet| {
        let Some((number, publish)) = stamped(packet, topic) else {
            return Fate::pass(packet);
        };
        let mut fate = Fate::pass(packet);
        if let Some(held) = held.take() {
            fate.pass.push(held);
        }
        let Some(at) = injections
            .iter()
            .position(|(injected, _)| *injected == number)
        else {
            return fate;
        };
        match injections.remove(at).1 {
            Fault::Lose => {
                fate.pass.remove(0);
                fate.answer.extend(publish.packet_id.map(acknowledge));
            }
            Fault::Duplicate => fate.pass.insert(1, as_another(&publish, publish.payload)),
            Fault::Swap => held = Some(fate.pass.remove(0)),
            Fault::Alter => {
                fate.pass[0] = encode(&Publish {
                    payload: b"altered",
                    ..publish
                });
            }
            Fault::Forge => fate.pass[0] = forge(&publish, &Hasher::xxh3()),
            Fault::ForgeWithKey => fate.pass[0] = forge(&publish, &keyed(66)),
            Fault::Inject => fate.pass.insert(1, as_another(&publish, b"injected")),
        }
        fate
    });
}

/// A PUBLISH with a property, to this topic.
fn stamped<'a>(packet: &'a [u8], topic: &str) -> Option<(u64, Publish<'a>)> {
    let frame = next_frame(packet, u32::MAX).ok()??;
    let Ok(Packet::Publish(publish)) = Packet::decode(frame, Version::V5) else {
        return None;
    };
    let mut properties = publish.properties.user_properties();
    let (_, text) = properties.find(|(name, _)| *name == Property::NAME)?;
    let property = Property::parse_text(text).ok()?;
    (publish.topic == topic).then_some((property.sequence, publish))
}

/// What only a descent can find: XXH3-128 has no key.
fn forge(publish: &Publish<'_>, hasher: &Hasher) -> Vec<u8> {
    let (payload, topic) = (b"forged", publish.topic.as_bytes());
    let mut properties = publish.properties.user_properties();
    let (_, text) = properties.next().expect("it has a property");
    let own = Property::parse_text(text).expect("it was read before");
    let (lane, epoch, sequence) = (own.lane, own.epoch, own.sequence);
    let forged = Property::stamp(hasher, lane, epoch, sequence, topic, payload);
    let mut properties = PropertyBuf::new();
    let text = forged.to_text();
    let carried = Carried::UserProperty(Property::NAME, &text);
    properties.push(carried).expect("it fits");
    encode(&Publish {
        properties: properties.as_properties(),
        payload,
        ..*publish
    })
}

/// The same at QoS 0, so that the broker does not see an answer that it does not expect.
fn as_another(publish: &Publish<'_>, payload: &[u8]) -> Vec<u8> {
    encode(&Publish {
        qos: QoS::AtMostOnce,
        packet_id: None,
        dup: false,
        payload,
        ..*publish
    })
}

fn encode(publish: &Publish<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let packet = Packet::Publish(*publish);
    packet.encode(Version::V5, &mut bytes).expect("it was one");
    bytes
}

/// What the client would have answered at QoS 1.
fn acknowledge(id: PacketId) -> Vec<u8> {
    let mut bytes = Vec::new();
    let packet = Packet::PubAck(Ack::success(id));
    packet.encode(Version::V5, &mut bytes).expect("it is small");
    bytes
}

pub(crate) async fn connect(options: unbroken_client::Options) -> Client {
    within("a connection", options.connect())
        .await
        .expect("the broker is there")
}
