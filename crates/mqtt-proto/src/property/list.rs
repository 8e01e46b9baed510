//! Sequences of properties: borrowed and validated, or being made.

use core::fmt;

use super::table::{Property, PropertyId};
use crate::{
    error::{DecodeError, EncodeError, Field},
    packet::{PacketType, PropertySection},
    primitive::Reader,
    qos::QoS,
};

/// Validated properties in their encoded form, without the length before them.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Properties<'a> {
    bytes: &'a [u8],
}

impl<'a> Properties<'a> {
    /// No properties.
    pub const EMPTY: Self = Self { bytes: &[] };

    /// The encoded sequence, without its length.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// How long the encoded sequence is, without its length field.
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// There are none.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The properties, in order.
    pub const fn iter(&self) -> Iter<'a> {
        // The packet type matters only for errors, which a validated sequence has none of.
        Iter {
            reader: Reader::new(PacketType::Publish, self.bytes),
        }
    }

    /// Checks an encoded sequence for the place where it stands: the way in for bytes that were
    /// kept, say on a disk.
    pub fn parse(bytes: &'a [u8], section: PropertySection) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(section.packet(), bytes);
        let mut seen: u64 = 0; // one bit an identifier; all are below 64
        while !reader.is_empty() {
            let id = reader.varint(Field::PropertyIdentifier)?;
            let Some(property) = PropertyId::from_identifier(id) else {
                return Err(DecodeError::UnknownProperty { section, id });
            };
            if !property.is_allowed_in(section) {
                return Err(DecodeError::MisplacedProperty { section, property });
            }
            let bit = 1u64 << (property as u8);
            if seen & bit != 0 && !property.may_repeat_in(section) {
                return Err(DecodeError::DuplicateProperty { section, property });
            }
            seen |= bit;
            if Property::read(property, &mut reader)?.is_none() {
                return Err(DecodeError::InvalidPropertyValue { section, property });
            }
        }
        Ok(Self { bytes })
    }

    /// The first property with this identifier.
    #[inline]
    fn find(&self, id: PropertyId) -> Option<Property<'a>> {
        if self.is_empty() {
            return None;
        }
        self.search(id)
    }

    fn search(&self, id: PropertyId) -> Option<Property<'a>> {
        let mut reader = self.iter().reader;
        loop {
            // As in `Iter::next`, only the end is an error. What is not asked for is not looked at.
            let found =
                PropertyId::from_identifier(reader.varint(Field::PropertyIdentifier).ok()?)?;
            if found == id {
                return Property::read(id, &mut reader).ok()?;
            }
            Property::skip(found, &mut reader).ok()?;
        }
    }
}

macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident $variant:ident $type:ty $(, or $default:expr)?;)+) => {
        impl<'a> Properties<'a> {
            $(getters! { @one $(#[$doc])* $name $variant $type $(, or $default)? })+
        }
    };
    (@one $(#[$doc:meta])* $name:ident $variant:ident $type:ty) => {
        $(#[$doc])*
        #[inline]
        pub fn $name(&self) -> Option<$type> {
            match self.find(PropertyId::$variant) {
                Some(Property::$variant(value)) => Some(value),
                _ => None,
            }
        }
    };
    (@one $(#[$doc:meta])* $name:ident $variant:ident $type:ty, or $default:expr) => {
        $(#[$doc])*
        #[inline]
        pub fn $name(&self) -> $type {
            match self.find(PropertyId::$variant) {
                Some(Property::$variant(value)) => value,
                _ => $default,
            }
        }
    };
}

getters! {
    /// The payload is text.
    payload_format_indicator PayloadFormatIndicator bool;
    /// Seconds.
    message_expiry_interval MessageExpiryInterval u32;
    /// Such as a MIME type.
    content_type ContentType &'a str;
    /// Where an answer should go.
    response_topic ResponseTopic &'a str;
    /// Belongs to the response topic.
    correlation_data CorrelationData &'a [u8];
    /// Seconds.
    session_expiry_interval SessionExpiryInterval u32;
    /// The server's choice.
    assigned_client_identifier AssignedClientIdentifier &'a str;
    /// Seconds.
    server_keep_alive ServerKeepAlive u16;
    /// Of enhanced authentication.
    authentication_method AuthenticationMethod &'a str;
    /// Of enhanced authentication; a secret.
    authentication_data AuthenticationData &'a [u8];
    /// Reason strings and user properties may come with any packet; so it is unless said otherwise.
    request_problem_information RequestProblemInformation bool, or true;
    /// Seconds.
    will_delay_interval WillDelayInterval u32;
    /// Response Information is wanted.
    request_response_information RequestResponseInformation bool, or false;
    /// From which a client makes response topics.
    response_information ResponseInformation &'a str;
    /// Other servers.
    server_reference ServerReference &'a str;
    /// For people.
    reason_string ReasonString &'a str;
    /// Absent means 65,535.
    receive_maximum ReceiveMaximum u16;
    /// Absent means 0.
    topic_alias_maximum TopicAliasMaximum u16;
    /// May be 0, which is no alias.
    topic_alias TopicAlias u16;
    /// The highest QoS the server accepts.
    maximum_qos MaximumQoS QoS, or QoS::ExactlyOnce;
    /// The server keeps retained messages.
    retain_available RetainAvailable bool, or true;
    /// Absent means no limit.
    maximum_packet_size MaximumPacketSize u32;
    /// The server takes filters with wildcards.
    wildcard_subscription_available WildcardSubscriptionAvailable bool, or true;
    /// The server takes subscription identifiers.
    subscription_identifier_available SubscriptionIdentifierAvailable bool, or true;
    /// The server takes shared subscriptions.
    shared_subscription_available SharedSubscriptionAvailable bool, or true;
}

impl<'a> Properties<'a> {
    /// One in a SUBSCRIBE at most, any number in a PUBLISH.
    pub fn subscription_identifiers(&self) -> impl Iterator<Item = u32> + Clone + use<'a> {
        self.iter().filter_map(|property| match property {
            Property::SubscriptionIdentifier(id) => Some(id),
            _ => None,
        })
    }

    /// Names and values, in order.
    pub fn user_properties(&self) -> impl Iterator<Item = (&'a str, &'a str)> + Clone + use<'a> {
        self.iter().filter_map(|property| match property {
            Property::UserProperty(name, value) => Some((name, value)),
            _ => None,
        })
    }
}

impl<'a> IntoIterator for Properties<'a> {
    type Item = Property<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &Properties<'a> {
    type Item = Property<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl fmt::Debug for Properties<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The properties of a [`Properties`], in order.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    reader: Reader<'a>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Property<'a>;

    fn next(&mut self) -> Option<Property<'a>> {
        // Every `Properties` was validated as a whole, so only the end of it ends the iteration.
        let id = self.reader.varint(Field::PropertyIdentifier).ok()?;
        Property::read(PropertyId::from_identifier(id)?, &mut self.reader).ok()?
    }
}

/// Properties being put together, with a buffer that can be used again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertyBuf(Vec<u8>);

impl PropertyBuf {
    /// Empty; allocates upon the first property.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Bytes that it holds on to, used or not.
    pub const fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Appends one property. A value that cannot be sent is refused and leaves the rest as it was.
    pub fn push(&mut self, property: Property<'_>) -> Result<(), EncodeError> {
        let before = self.0.len();
        property
            .write(&mut self.0)
            .inspect_err(|_| self.0.truncate(before))
    }

    /// Appends all of `properties`.
    pub fn extend(&mut self, properties: Properties<'_>) {
        self.0.extend_from_slice(properties.as_bytes());
    }

    /// Empties it and keeps the buffer.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// What was pushed. Whether a property may stand, or repeat, in a packet is checked when the
    /// packet is encoded.
    pub fn as_properties(&self) -> Properties<'_> {
        Properties { bytes: &self.0 }
    }
}
