//! What a client may say in a SUBSCRIBE, and what its filters come to.

use std::num::NonZeroU32;

use unbroken_mqtt_proto::topic::{SubscriptionFilter, TopicError, TopicFilter};
use unbroken_mqtt_proto::{QoS, ReasonCode, Subscribe, SubscriptionOptions, Version};

use crate::ids::{SessionId, StoreId};
use crate::limits::Limits;
use crate::reason::Fault;
use crate::routing::{Grant, Granted};

/// One filter of a SUBSCRIBE.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) session: SessionId,
    pub(super) text: &'a str,
    pub(super) filter: SubscriptionFilter<'a>,
    pub(super) options: SubscriptionOptions,
    pub(super) identifier: Option<NonZeroU32>,
}

impl Request<'_> {
    pub(super) fn grant(&self) -> Grant {
        Grant {
            qos: self.options.qos,
            no_local: self.options.no_local,
            retain_as_published: self.options.retain_as_published,
            identifier: self.identifier,
        }
    }
}

/// What the filters of a SUBSCRIBE come to.
#[derive(Default)]
pub(super) struct Answers<'a> {
    pub(super) codes: Vec<u8>,
    /// Those to be sent what is retained for them.
    pub(super) retained: Vec<(TopicFilter<'a>, Grant)>,
    pub(super) joins: Vec<u64>,
    /// The record of the last one.
    pub(super) stored: StoreId,
    /// Filter and era of those that are asked to be stored once they are in force everywhere.
    pub(super) filters: Vec<Granted>,
}

/// What is on disk of a subscription.
pub(super) enum Keeping {
    /// It is asked for, if it is kept.
    Asked(StoreId),
    /// From when on it holds is known only with the answers of the other shards; it is to be asked
    /// for then.
    OnceInForce { era: u32 },
}

/// Whether the filter is longer or deeper than the limits allow.
pub(super) fn is_too_large(limits: &Limits, request: &Request<'_>) -> bool {
    let levels = request.filter.filter().levels();
    request.text.len() > usize::from(limits.topic_bytes_max)
        || levels.count() > usize::from(limits.topic_levels_max)
}

/// A filter that breaks the protocol's rules ends the connection before any other of its packet is
/// looked at [MQTT-4.13.1-1, MQTT311-4.8.0-1].
pub(super) fn check_filters<'a>(filters: impl IntoIterator<Item = &'a str>) -> Result<(), Fault> {
    let mut filters = filters.into_iter();
    filters.try_for_each(|filter| {
        SubscriptionFilter::parse(filter)
            .map(drop)
            .map_err(invalid_filter)
    })
}

/// [MQTT-4.7.3-1, MQTT311-4.7.3-1] [MQTT-4.8.2-1] [MQTT-4.8.2-2]
pub(super) fn invalid_filter(error: TopicError) -> Fault {
    Fault {
        reason: error.reason(),
        detail: error.to_string().into(),
    }
}

/// What a bridge before 5.0 means by any subscription: it hears nothing that it brought, and sees
/// which messages are retained. No Local and a group exclude each other [MQTT-3.8.3-4].
pub(super) fn as_bridge(filter: SubscriptionFilter<'_>, options: &mut SubscriptionOptions) {
    options.no_local = matches!(filter, SubscriptionFilter::Plain(_));
    options.retain_as_published = true;
}

pub(super) fn granted(qos: QoS) -> ReasonCode {
    match qos {
        QoS::AtMostOnce => ReasonCode::Success,
        QoS::AtLeastOnce => ReasonCode::GrantedQoS1,
        QoS::ExactlyOnce => ReasonCode::GrantedQoS2,
    }
}

pub(super) fn identifier_of(subscribe: &Subscribe<'_>) -> Option<NonZeroU32> {
    let mut identifiers = subscribe.properties.subscription_identifiers();
    identifiers.next().and_then(NonZeroU32::new)
}

/// The codes of a SUBACK as this version has them.
pub(super) fn codes_for(version: Version, codes: &[u8]) -> Vec<u8> {
    match version {
        Version::V5 => codes.to_vec(),
        // [MQTT311-3.9.3-2]: before 5.0 there is one code for "no". 3.1 has none, and clients
        // understand this one.
        Version::V3_1 | Version::V3_1_1 => codes.iter().map(|code| (*code).min(0x80)).collect(),
    }
}
