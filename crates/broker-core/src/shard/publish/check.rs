//! What a client may say in a PUBLISH, before anything is done with it.

use unbroken_mqtt_proto::topic::{TopicError, TopicName};
use unbroken_mqtt_proto::{Publish, ReasonCode};

use crate::limits::Limits;
use crate::reason::Fault;

pub(super) fn check_topic(limits: &Limits, topic: TopicName<'_>) -> Result<(), Fault> {
    let name = topic.as_str();
    // A level more takes a byte more.
    let levels_max = usize::from(limits.topic_levels_max);
    if name.len() > usize::from(limits.topic_bytes_max)
        || name.len() >= levels_max && topic.levels().count() > levels_max
    {
        return Err(Fault::new(
            ReasonCode::TopicNameInvalid,
            "the topic is longer or deeper than the limits allow",
        ));
    }
    Ok(())
}

/// What a client may not say in the properties of a PUBLISH.
#[cold]
pub(super) fn check_properties(publish: &Publish<'_>) -> Result<(), Fault> {
    if publish
        .properties
        .subscription_identifiers()
        .next()
        .is_some()
    {
        // [MQTT-3.3.4-6]
        return Err(Fault::new(
            ReasonCode::ProtocolError,
            "a client sent a subscription identifier",
        ));
    }
    if let Some(topic) = publish.properties.response_topic()
        && TopicName::parse(topic).is_err()
    {
        // [MQTT-3.3.2-14]
        return Err(Fault::new(
            ReasonCode::ProtocolError,
            "the response topic is not a topic name",
        ));
    }
    Ok(())
}

pub(in crate::shard) fn invalid_topic(error: TopicError) -> Fault {
    Fault {
        reason: error.reason(),
        detail: error.to_string().into(),
    } // [MQTT-3.3.2-2]
}
