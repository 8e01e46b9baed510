//! Messages to send, and messages that came.

use std::fmt;
use std::sync::Arc;

use unbroken_mqtt_proto::{
    EncodeError, PacketId, Properties, Property, PropertyBuf, QoS, TopicError, TopicName,
};

use crate::inbox::Acknowledgement;

/// A message to be published. Cheap to clone: topic and payload are shared.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    pub(crate) topic: Arc<str>,
    pub(crate) payload: Arc<[u8]>,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) properties: PropertyBuf,
    /// Takes the place of `properties` when the broker may have had the message before.
    pub(crate) properties_again: Option<PropertyBuf>,
}

impl Message {
    /// At QoS 1, not retained. The topic has no wildcards and at most 65,535 bytes.
    pub fn new(
        topic: impl Into<Arc<str>>,
        payload: impl Into<Arc<[u8]>>,
    ) -> Result<Self, TopicError> {
        let topic = topic.into();
        TopicName::parse(&topic)?;
        Ok(Self {
            topic,
            payload: payload.into(),
            qos: QoS::AtLeastOnce,
            retain: false,
            properties: PropertyBuf::new(),
            properties_again: None,
        })
    }

    /// At another QoS.
    #[must_use]
    pub fn qos(mut self, qos: QoS) -> Self {
        self.qos = qos;
        self
    }

    /// To be kept by the broker as the topic's last message.
    #[must_use]
    pub fn retained(mut self) -> Self {
        self.retain = true;
        self
    }

    /// The seconds after which the broker need not deliver it any more (5.0).
    pub fn expiry_s(self, seconds: u32) -> Result<Self, EncodeError> {
        self.with(Property::MessageExpiryInterval(seconds))
    }

    /// With a name and a value for whoever receives it (5.0); each at most 65,535 bytes.
    pub fn user_property(self, name: &str, value: &str) -> Result<Self, EncodeError> {
        self.with(Property::UserProperty(name, value))
    }

    /// Where an answer should go (5.0).
    pub fn response_topic(self, topic: &str) -> Result<Self, EncodeError> {
        self.with(Property::ResponseTopic(topic))
    }

    /// By which the asker knows what is answered (5.0).
    pub fn correlation_data(self, data: &[u8]) -> Result<Self, EncodeError> {
        self.with(Property::CorrelationData(data))
    }

    /// Such as a MIME type (5.0).
    pub fn content_type(self, name: &str) -> Result<Self, EncodeError> {
        self.with(Property::ContentType(name))
    }

    /// With all of these too (5.0).
    #[must_use]
    pub fn with_properties(mut self, properties: Properties<'_>) -> Self {
        self.properties.extend(properties);
        self
    }

    /// The same with another payload.
    #[must_use]
    pub fn with_payload(&self, payload: impl Into<Arc<[u8]>>) -> Self {
        Self {
            topic: Arc::clone(&self.topic),
            payload: payload.into(),
            properties: self.properties.clone(),
            properties_again: self.properties_again.clone(),
            ..*self
        }
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// What a 3.x broker would not be told.
    pub fn properties(&self) -> Properties<'_> {
        self.properties.as_properties()
    }

    fn with(mut self, property: Property<'_>) -> Result<Self, EncodeError> {
        self.properties.push(property)?;
        Ok(self)
    }
}

/// Payloads do not get into logs.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("topic", &self.topic)
            .field("payload_len", &self.payload.len())
            .field("qos", &self.qos)
            .field("retain", &self.retain)
            .finish_non_exhaustive()
    }
}

/// A message that came. One that is dropped without [`acknowledge`](Self::acknowledge) from a
/// subscription that acknowledges by hand comes again on the next connection; those behind it do
/// not wait for it ([`Acknowledging::ByHand`](crate::Acknowledging::ByHand)).
pub struct Received {
    pub(crate) topic: Arc<str>,
    pub(crate) payload: Arc<[u8]>,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) dup: bool,
    pub(crate) packet_id: Option<PacketId>,
    pub(crate) properties: Arc<PropertyBuf>,
    pub(crate) acknowledgement: Option<Acknowledgement>,
}

impl Received {
    /// The topic it was published to.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The payload, to be kept or passed on without a copy.
    pub fn shared_payload(&self) -> Arc<[u8]> {
        Arc::clone(&self.payload)
    }

    /// The QoS at which it came.
    pub fn qos(&self) -> QoS {
        self.qos
    }

    /// Whether it is what the broker had kept for a new subscriber, or, with retain as published,
    /// whether it is kept.
    pub fn is_retained(&self) -> bool {
        self.retain
    }

    /// Whether the broker says that it may have sent it before.
    pub fn is_repeated(&self) -> bool {
        self.dup
    }

    /// The packet id of this copy; QoS 0 has none.
    pub fn packet_id(&self) -> Option<PacketId> {
        self.packet_id
    }

    /// Everything a 5.0 broker passed on with it.
    pub fn properties(&self) -> Properties<'_> {
        self.properties.as_properties()
    }

    /// The first value of a user property.
    pub fn user_property(&self, name: &str) -> Option<&str> {
        let mut all = self.properties().user_properties();
        all.find_map(|(found, value)| (found == name).then_some(value))
    }

    /// All values of a user property, in order.
    pub fn user_properties<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let all = self.properties().user_properties();
        all.filter_map(move |(found, value)| (found == name).then_some(value))
    }

    /// Tells the broker that the message is safe here. Acknowledgements leave in the order in which
    /// messages came, so this one waits for those before it.
    pub fn acknowledge(mut self) {
        self.acknowledge_now();
    }

    /// As [`acknowledge`](Self::acknowledge), and says that the work which the message was sent for
    /// is done. A 5.0 broker is told by the user property `audit` = `processed` in PUBACK or
    /// PUBREC; Unbroken shows it in the message's receipt.
    pub fn acknowledge_processed(mut self) {
        if let Some(acknowledgement) = self.acknowledgement.take() {
            acknowledgement.give_processed();
        }
    }

    pub(crate) fn acknowledge_now(&mut self) {
        if let Some(acknowledgement) = self.acknowledgement.take() {
            acknowledgement.give();
        }
    }

    /// The same message for one more owner.
    pub(crate) fn share(&self) -> Self {
        Self {
            topic: Arc::clone(&self.topic),
            payload: Arc::clone(&self.payload),
            properties: Arc::clone(&self.properties),
            acknowledgement: self.acknowledgement.as_ref().map(Acknowledgement::share),
            ..*self
        }
    }

    /// The same message, for whom acknowledging is not.
    pub(crate) fn without_acknowledgement(&self) -> Self {
        Self {
            topic: Arc::clone(&self.topic),
            payload: Arc::clone(&self.payload),
            properties: Arc::clone(&self.properties),
            acknowledgement: None,
            ..*self
        }
    }

    /// What is left to do after the message is put away.
    pub(crate) fn take_acknowledgement(&mut self) -> Option<Acknowledgement> {
        self.acknowledgement.take()
    }
}

/// Payloads do not get into logs.
impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received")
            .field("topic", &self.topic)
            .field("payload_len", &self.payload.len())
            .field("qos", &self.qos)
            .field("retain", &self.retain)
            .field("dup", &self.dup)
            .finish_non_exhaustive()
    }
}
