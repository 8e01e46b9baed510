//! SUBSCRIBE: what a client wants to receive.

use core::fmt;

use super::{PacketType, PropertySection, put_properties, read_properties};
use crate::{
    error::{DecodeError, EncodeError, Field},
    primitive::{Reader, put_string},
    property::Properties,
    qos::{PacketId, QoS},
    version::Version,
};

const PACKET: PacketType = PacketType::Subscribe;

/// A client asks for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribe<'a> {
    /// Of the SUBACK to come.
    pub packet_id: PacketId,
    /// Empty in 3.x.
    pub properties: Properties<'a>,
    /// At least one when decoded.
    pub filters: Subscriptions<'a>,
}

/// How messages of one subscription are to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubscriptionOptions {
    /// At most this.
    pub qos: QoS,
    /// Not what the same client published.
    pub no_local: bool,
    /// Keep the publisher's retain flag.
    pub retain_as_published: bool,
    /// Whether retained messages come at once.
    pub retain_handling: RetainHandling,
}

/// When retained messages are sent upon a SUBSCRIBE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RetainHandling {
    /// At every SUBSCRIBE.
    #[default]
    SendAlways = 0,
    /// If the subscription did not exist.
    SendIfNew = 1,
    /// Not at all.
    DoNotSend = 2,
}

impl<'a> Subscribe<'a> {
    pub(super) fn decode(reader: &mut Reader<'a>, version: Version) -> Result<Self, DecodeError> {
        Ok(Self {
            packet_id: reader.packet_id()?,
            properties: read_properties(reader, version, PropertySection::Packet(PACKET))?,
            filters: Subscriptions::decode(reader, version)?,
        })
    }

    pub(super) fn encode_body(
        &self,
        version: Version,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        out.extend_from_slice(&self.packet_id.get().to_be_bytes());
        put_properties(
            out,
            version,
            PropertySection::Packet(PACKET),
            self.properties,
        )?;
        if self.filters.is_empty() {
            return Err(EncodeError::Invalid(DecodeError::EmptyList {
                packet: PACKET,
            }));
        }
        for (filter, options) in &self.filters {
            put_string(out, filter)?;
            out.push(options.to_byte() & version.subscription_option_bits());
        }
        Ok(())
    }
}

impl SubscriptionOptions {
    /// At this QoS, and otherwise as in 3.x.
    pub const fn at(qos: QoS) -> Self {
        Self {
            qos,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::SendAlways,
        }
    }

    /// As in a SUBSCRIBE of 5.0.
    pub const fn to_byte(self) -> u8 {
        self.qos as u8
            | (self.no_local as u8) << 2
            | (self.retain_as_published as u8) << 3
            | (self.retain_handling as u8) << 4
    }

    /// The reverse of [`to_byte`](Self::to_byte), with the bits that the version gives a meaning.
    pub fn from_byte(bits: u8, version: Version) -> Result<Self, DecodeError> {
        let (packet, field) = (PACKET, Field::SubscriptionOptions);
        if bits & !version.subscription_option_bits() != 0 {
            // [MQTT-3.8.3-5, MQTT311-3.8.3-4]
            return Err(DecodeError::ReservedBits {
                packet,
                field,
                bits,
            });
        }
        let Ok(qos) = QoS::try_from(bits & 0b11) else {
            return Err(DecodeError::InvalidQoS { packet, field });
        };
        let retain_handling = match bits >> 4 {
            0 => RetainHandling::SendAlways,
            1 => RetainHandling::SendIfNew,
            2 => RetainHandling::DoNotSend,
            _ => return Err(DecodeError::InvalidRetainHandling),
        };
        Ok(Self {
            qos,
            no_local: bits & 0b0100 != 0,
            retain_as_published: bits & 0b1000 != 0,
            retain_handling,
        })
    }
}

/// Filters with their options: validated bytes of a packet, or a list to be encoded. Equal if they
/// list the same.
#[derive(Clone, Copy)]
pub struct Subscriptions<'a>(List<'a>);

#[derive(Clone, Copy)]
enum List<'a> {
    Given(&'a [(&'a str, SubscriptionOptions)]),
    /// Validated for 5.0, or for 3.x, whose options are a subset.
    Received(Reader<'a>),
}

impl<'a> Subscriptions<'a> {
    /// A list to be encoded.
    pub const fn new(list: &'a [(&'a str, SubscriptionOptions)]) -> Self {
        Self(List::Given(list))
    }

    /// The filters with their options, in order.
    pub const fn iter(&self) -> SubscriptionsIter<'a> {
        SubscriptionsIter(self.0)
    }

    /// Whether it lists nothing; never so when decoded.
    pub const fn is_empty(&self) -> bool {
        match self.0 {
            List::Given(list) => list.is_empty(),
            List::Received(reader) => reader.is_empty(),
        }
    }

    fn decode(reader: &mut Reader<'a>, version: Version) -> Result<Self, DecodeError> {
        let received = *reader;
        if received.is_empty() {
            // [MQTT-3.8.3-2, MQTT311-3.8.3-3]
            return Err(DecodeError::EmptyList { packet: PACKET });
        }
        while !reader.is_empty() {
            reader.string(Field::TopicFilter)?; // [MQTT-3.8.3-1, MQTT311-3.8.3-1]
            SubscriptionOptions::from_byte(reader.u8(Field::SubscriptionOptions)?, version)?;
        }
        Ok(Self(List::Received(received)))
    }
}

/// The entries of [`Subscriptions`], in order.
#[derive(Clone)]
pub struct SubscriptionsIter<'a>(List<'a>);

impl<'a> Iterator for SubscriptionsIter<'a> {
    type Item = (&'a str, SubscriptionOptions);

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            List::Given(list) => {
                let (first, rest) = list.split_first()?;
                *list = rest;
                Some(*first)
            }
            // Validated as a whole, so only its end ends the iteration.
            List::Received(reader) => {
                let filter = reader.string(Field::TopicFilter).ok()?;
                let bits = reader.u8(Field::SubscriptionOptions).ok()?;
                Some((
                    filter,
                    SubscriptionOptions::from_byte(bits, Version::V5).ok()?,
                ))
            }
        }
    }
}

impl<'a> IntoIterator for &Subscriptions<'a> {
    type Item = (&'a str, SubscriptionOptions);
    type IntoIter = SubscriptionsIter<'a>;

    fn into_iter(self) -> SubscriptionsIter<'a> {
        self.iter()
    }
}

impl PartialEq for Subscriptions<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Subscriptions<'_> {}

impl fmt::Debug for Subscriptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Debug for SubscriptionsIter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}
