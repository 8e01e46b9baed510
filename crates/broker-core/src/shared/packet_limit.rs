//! What a member of a group can take: a message whose copy is too large for it, or that its client
//! may not receive, goes to another.

use std::num::NonZeroU32;
use std::sync::Arc;

use unbroken_mqtt_proto::{QoS, Version};

use crate::message::Publication;
use crate::policy::Subject;
use crate::routing::Grant;

/// What a member takes: its Maximum Packet Size, the version in which a packet is written, and what
/// access rules know of its client.
#[derive(Clone, Debug)]
pub(crate) struct PacketLimit {
    pub(crate) bytes_max: u32,
    pub(crate) version: Version,
    pub(crate) client: Option<Arc<Subject>>,
}

impl PacketLimit {
    /// Of a member that has not been connected.
    pub(super) const NONE: Self = Self {
        bytes_max: u32::MAX,
        version: Version::V5,
        client: None,
    };

    /// Whether the member's copy of this message is not too large [MQTT-3.1.2-24].
    pub(super) fn allows(&self, publication: &Publication<'_>, grant: Grant) -> bool {
        self.takes(
            publication,
            grant.qos.min(publication.qos),
            grant.identifier,
        )
    }

    /// The same of a copy with this QoS and subscription identifier.
    pub(crate) fn takes(
        &self,
        publication: &Publication<'_>,
        qos: QoS,
        identifier: Option<NonZeroU32>,
    ) -> bool {
        self.bytes_max == u32::MAX
            || copy_bytes(publication, self.version, qos, identifier) <= u64::from(self.bytes_max)
    }
}

/// What the PUBLISH of a receiver takes, in bytes, exactly; without a topic alias.
fn copy_bytes(
    publication: &Publication<'_>,
    version: Version,
    qos: QoS,
    identifier: Option<NonZeroU32>,
) -> u64 {
    let varint = |value: usize| match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    };
    let mut rest = 2 + publication.topic.len() + publication.payload.len();
    if qos > QoS::AtMostOnce {
        rest += 2;
    }
    if version.has_properties() {
        let mut properties = publication.properties.as_bytes().len();
        if publication.expires.is_some() {
            properties += EXPIRY_BYTES;
        }
        if let Some(identifier) = identifier {
            properties += 1 + varint(identifier.get() as usize);
        }
        rest += varint(properties) + properties;
    }
    (1 + varint(rest) + rest) as u64
}

/// The Message Expiry Interval, which is none of the publication's properties.
const EXPIRY_BYTES: usize = 1 + 4;
