//! The packets before the first message: CONNECT, SUBSCRIBE and their answers.

use unbroken_mqtt_proto::{
    Connect, Packet, PacketId, Properties, Property, PropertyBuf, QoS, Subscribe,
    SubscriptionOptions, Subscriptions, Version, next_frame,
};

/// How all clients of a run present themselves.
#[derive(Debug, Clone)]
pub struct Identity {
    /// 3.1.1 unless told otherwise.
    pub version: Version,
    /// Sent if given.
    pub user_name: Option<String>,
    /// Sent if given.
    pub password: Option<String>,
    /// Seconds after which the broker may think a silent client gone, or 0 for never. Nobody sends
    /// PINGREQ, so it is to be longer than the run.
    pub keep_alive_s: u16,
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            version: Version::V3_1_1,
            user_name: None,
            password: None,
            keep_alive_s: 0,
        }
    }
}

/// Why a greeting came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GreetingError {
    /// The broker said no.
    #[error("the broker refused it: {0}")]
    Refused(String),
    /// The broker granted less than was asked.
    #[error("the broker granted filter {filter} only as 0x{granted:02X}, not QoS {asked}")]
    Granted {
        /// The refused filter.
        filter: String,
        /// What was wanted.
        asked: u8,
        /// What the broker answered.
        granted: u8,
    },
    /// It answered with something else.
    #[error("the broker answered with {0}")]
    Unexpected(String),
    /// Our own packet cannot be written.
    #[error("the packet cannot be encoded: {0}")]
    Unencodable(String),
}

/// What the broker lets a client do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// Unacknowledged messages it may have under way.
    pub(crate) receive_maximum: u16,
}

impl Identity {
    pub(crate) fn has_properties(&self) -> bool {
        self.version.has_properties()
    }

    /// Appends a CONNECT, with a clean session unless it is to stay.
    pub(crate) fn connect(
        &self,
        client_id: &str,
        stays: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), GreetingError> {
        let mut properties = PropertyBuf::new();
        if stays && self.has_properties() {
            properties
                .push(Property::SessionExpiryInterval(u32::MAX))
                .map_err(|error| GreetingError::Unencodable(error.to_string()))?;
        }
        let packet = Connect {
            version: self.version,
            clean_start: !stays,
            keep_alive: self.keep_alive_s,
            client_id,
            will: None,
            user_name: self.user_name.as_deref(),
            password: self.password.as_ref().map(String::as_bytes),
            properties: properties.as_properties(),
            bridge: false,
        };
        self.encode(Packet::Connect(packet), out)
    }

    pub(crate) fn accepted(&self, frame: &[u8]) -> Result<Accepted, GreetingError> {
        match self.decode(frame)? {
            Packet::ConnAck(answer) if answer.reason.is_error() => {
                Err(GreetingError::Refused(format!("{:?}", answer.reason)))
            }
            Packet::ConnAck(answer) => {
                let receive_maximum = answer.properties.receive_maximum().unwrap_or(u16::MAX);
                Ok(Accepted { receive_maximum })
            }
            other => Err(GreetingError::Unexpected(other.packet_type().to_string())),
        }
    }

    pub(crate) fn subscribe(
        &self,
        filters: &[String],
        qos: u8,
        out: &mut Vec<u8>,
    ) -> Result<(), GreetingError> {
        let qos =
            QoS::try_from(qos).map_err(|error| GreetingError::Unencodable(error.to_string()))?;
        let options = SubscriptionOptions {
            qos,
            ..SubscriptionOptions::default()
        };
        let filters: Vec<_> = filters
            .iter()
            .map(|filter| (filter.as_str(), options))
            .collect();
        let packet = Subscribe {
            packet_id: PacketId::new(1)
                .ok_or_else(|| GreetingError::Unencodable("id 0".to_owned()))?,
            properties: Properties::EMPTY,
            filters: Subscriptions::new(&filters),
        };
        self.encode(Packet::Subscribe(packet), out)
    }

    pub(crate) fn granted(
        &self,
        frame: &[u8],
        filters: &[String],
        asked: u8,
    ) -> Result<(), GreetingError> {
        let Packet::SubAck(answer) = self.decode(frame)? else {
            return Err(GreetingError::Unexpected(
                "something else than SUBACK".to_owned(),
            ));
        };
        for (filter, granted) in filters.iter().zip(answer.reasons) {
            if *granted != asked {
                let filter = filter.clone();
                return Err(GreetingError::Granted {
                    filter,
                    asked,
                    granted: *granted,
                });
            }
        }
        Ok(())
    }

    fn encode(&self, packet: Packet<'_>, out: &mut Vec<u8>) -> Result<(), GreetingError> {
        let encoded = packet.encode(self.version, out);
        encoded.map_err(|error| GreetingError::Unencodable(error.to_string()))
    }

    fn decode<'a>(&self, bytes: &'a [u8]) -> Result<Packet<'a>, GreetingError> {
        let unexpected =
            |error: &dyn std::fmt::Display| GreetingError::Unexpected(error.to_string());
        let frame = next_frame(bytes, u32::MAX).map_err(|error| unexpected(&error))?;
        let frame = frame.ok_or_else(|| unexpected(&"half a packet"))?;
        Packet::decode(frame, self.version).map_err(|error| unexpected(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_says_the_keep_alive_of_its_identity() {
        for keep_alive_s in [0, u16::MAX] {
            let identity = Identity {
                keep_alive_s,
                ..Identity::default()
            };
            let mut packet = Vec::new();
            identity.connect("a", false, &mut packet).unwrap();
            // Two bytes of fixed header, then name, level and flags.
            assert_eq!(packet[10..12], keep_alive_s.to_be_bytes());
        }
    }
}
