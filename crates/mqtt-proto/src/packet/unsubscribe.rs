//! UNSUBSCRIBE: what a client no longer wants.

use core::fmt;

use super::{PacketType, PropertySection, put_properties, read_properties};
use crate::{
    error::{DecodeError, EncodeError, Field},
    primitive::{Reader, put_string},
    property::Properties,
    qos::PacketId,
    version::Version,
};

const PACKET: PacketType = PacketType::Unsubscribe;

/// A client ends subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    /// Of the UNSUBACK to come.
    pub packet_id: PacketId,
    /// Empty in 3.x.
    pub properties: Properties<'a>,
    /// At least one when decoded.
    pub filters: TopicFilters<'a>,
}

impl<'a> Unsubscribe<'a> {
    pub(super) fn decode(reader: &mut Reader<'a>, version: Version) -> Result<Self, DecodeError> {
        Ok(Self {
            packet_id: reader.packet_id()?,
            properties: read_properties(reader, version, PropertySection::Packet(PACKET))?,
            filters: TopicFilters::decode(reader)?,
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
        self.filters
            .iter()
            .try_for_each(|filter| put_string(out, filter))
    }
}

/// Filters: validated bytes of a packet, or a list to be encoded. Equal if they list the same.
#[derive(Clone, Copy)]
pub struct TopicFilters<'a>(List<'a>);

#[derive(Clone, Copy)]
enum List<'a> {
    Given(&'a [&'a str]),
    Received(Reader<'a>),
}

impl<'a> TopicFilters<'a> {
    /// A list to be encoded.
    pub const fn new(list: &'a [&'a str]) -> Self {
        Self(List::Given(list))
    }

    /// The filters, in order.
    pub const fn iter(&self) -> TopicFiltersIter<'a> {
        TopicFiltersIter(self.0)
    }

    /// Whether it lists nothing; never so when decoded.
    pub const fn is_empty(&self) -> bool {
        match self.0 {
            List::Given(list) => list.is_empty(),
            List::Received(reader) => reader.is_empty(),
        }
    }

    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let received = *reader;
        if received.is_empty() {
            // [MQTT-3.10.3-2, MQTT311-3.10.3-2]
            return Err(DecodeError::EmptyList { packet: PACKET });
        }
        while !reader.is_empty() {
            reader.string(Field::TopicFilter)?; // [MQTT-3.10.3-1, MQTT311-3.10.3-1]
        }
        Ok(Self(List::Received(received)))
    }
}

/// The entries of [`TopicFilters`], in order.
#[derive(Clone)]
pub struct TopicFiltersIter<'a>(List<'a>);

impl<'a> Iterator for TopicFiltersIter<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        match &mut self.0 {
            List::Given(list) => {
                let (first, rest) = list.split_first()?;
                *list = rest;
                Some(first)
            }
            // Validated as a whole, so only its end ends the iteration.
            List::Received(reader) => reader.string(Field::TopicFilter).ok(),
        }
    }
}

impl<'a> IntoIterator for &TopicFilters<'a> {
    type Item = &'a str;
    type IntoIter = TopicFiltersIter<'a>;

    fn into_iter(self) -> TopicFiltersIter<'a> {
        self.iter()
    }
}

impl PartialEq for TopicFilters<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for TopicFilters<'_> {}

impl fmt::Debug for TopicFilters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Debug for TopicFiltersIter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}
