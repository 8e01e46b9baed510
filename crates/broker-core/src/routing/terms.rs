//! What one receiver is to get of a message.

use std::num::NonZeroU32;
use std::sync::Arc;

use unbroken_mqtt_proto::QoS;

use crate::routing::Receiver;

/// What one session is to get of a message.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    /// The highest QoS granted.
    pub(crate) qos: QoS,
    /// The retain flag to send.
    pub(crate) retain: bool,
    pub(crate) identifiers: &'a [NonZeroU32],
    /// The group that has chosen it, as its filter is written.
    pub(crate) group: Option<&'a Arc<str>>,
    /// The client may not receive this.
    pub(crate) is_denied: bool,
}

impl<'a> Terms<'a> {
    /// Of one receiver of a route. `retain`: as published.
    pub(crate) fn of(receiver: &'a Receiver, retain: bool) -> Self {
        Self {
            qos: receiver.qos,
            // [MQTT-3.3.1-12, MQTT311-3.3.1-9] [MQTT-3.3.1-13]
            retain: retain && receiver.retain_as_published,
            identifiers: &receiver.identifiers,
            group: None,
            is_denied: receiver.is_denied,
        }
    }
}
