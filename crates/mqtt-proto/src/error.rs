//! What can be wrong with bytes (the peer's fault) and with a packet to be sent (ours).
//!
//! Neither error holds bytes of the peer, so both may be logged as they are. There is no catch-all:
//! a new way to be wrong is a new variant, and says what the peer is told.

use core::fmt;

use crate::{
    packet::{PacketType, PropertySection},
    property::PropertyId,
    reason::ReasonCode,
    version::Version,
};

/// The peer sent something that is not a packet of its protocol version. The connection cannot go
/// on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it once")]
#[non_exhaustive]
pub enum DecodeError {
    #[error("{packet} of {length} bytes is over the limit of {limit}")]
    PacketTooLarge {
        packet: PacketType,
        length: u32,
        limit: u32,
    },
    #[error("first byte 0x{first_byte:02X} is not a packet type")]
    UnknownPacketType { first_byte: u8 },
    #[error("{packet} does not exist in MQTT {version}")]
    PacketNotInVersion {
        packet: PacketType,
        version: Version,
    },
    #[error("{packet} came where only {expected} may come")]
    UnexpectedPacket {
        packet: PacketType,
        expected: PacketType,
    },
    #[error("remaining length of {packet} is longer than four bytes")]
    OverlongLength { packet: PacketType },
    #[error("remaining length of {packet} is not in its shortest form")]
    NonMinimalLength { packet: PacketType },
    #[error("{packet} has flags 0b{flags:04b} in its first byte")]
    ReservedFlags { packet: PacketType, flags: u8 },
    #[error("{packet} ends within {field}")]
    Truncated { packet: PacketType, field: Field },
    #[error("{packet} goes on for {count} bytes after its end")]
    TrailingBytes { packet: PacketType, count: usize },
    #[error("{field} of {packet} is not a variable byte integer of one to four bytes")]
    OverlongInteger { packet: PacketType, field: Field },
    #[error("{field} of {packet} is not in its shortest form")]
    NonMinimalInteger { packet: PacketType, field: Field },
    #[error("{field} of {packet} is not well-formed UTF-8")]
    IllFormedUtf8 { packet: PacketType, field: Field },
    #[error("{field} of {packet} contains U+0000")]
    NullCharacter { packet: PacketType, field: Field },
    #[error("{packet} has packet identifier 0")]
    PacketIdZero { packet: PacketType },
    #[error("QoS 3 in {field} of {packet}")]
    InvalidQoS { packet: PacketType, field: Field },
    #[error("{packet} at QoS 0 has DUP set")]
    DupAtQoS0 { packet: PacketType },
    #[error("reserved bits are set in {field} of {packet}: 0b{bits:08b}")]
    ReservedBits {
        packet: PacketType,
        field: Field,
        bits: u8,
    },
    #[error("retain handling 3 in a subscription")]
    InvalidRetainHandling,
    #[error("protocol name is neither MQTT nor MQIsdp")]
    UnknownProtocol,
    #[error("protocol level {level} is not supported")]
    UnsupportedVersion {
        level: u8,
        /// The peer understands a CONNACK of 5.0, rather than one of 3.1.1.
        v5_style: bool,
    },
    #[error("will QoS or will retain is set without a will")]
    WillFlagsWithoutWill,
    #[error("a password without a user name")]
    PasswordWithoutUserName,
    #[error("{packet} lists nothing")]
    EmptyList { packet: PacketType },
    #[error("reason code 0x{code:02X} is not one of {packet}")]
    InvalidReasonCode { packet: PacketType, code: u8 },
    #[error("a refused CONNACK has session present set")]
    SessionPresentOnRefusal,
    #[error("property 0x{id:02X} in {section} is unknown")]
    UnknownProperty { section: PropertySection, id: u32 },
    #[error("{property} is not a property of {section}")]
    MisplacedProperty {
        section: PropertySection,
        property: PropertyId,
    },
    #[error("{property} comes twice in {section}")]
    DuplicateProperty {
        section: PropertySection,
        property: PropertyId,
    },
    #[error("{property} in {section} has a value outside its range")]
    InvalidPropertyValue {
        section: PropertySection,
        property: PropertyId,
    },
    #[error("{section} lacks {property}")]
    MissingProperty {
        section: PropertySection,
        property: PropertyId,
    },
}

impl DecodeError {
    /// What the peer is told, in a CONNACK or DISCONNECT where its version has one.
    pub const fn reason(&self) -> ReasonCode {
        match self {
            Self::PacketTooLarge { .. } => ReasonCode::PacketTooLarge,
            Self::UnknownProtocol | Self::UnsupportedVersion { .. } => {
                ReasonCode::UnsupportedProtocolVersion
            }
            // Parsed, but not allowed by the protocol.
            Self::PacketNotInVersion { .. }
            | Self::UnexpectedPacket { .. }
            | Self::PacketIdZero { .. }
            | Self::InvalidRetainHandling
            | Self::InvalidQoS {
                field: Field::SubscriptionOptions,
                ..
            }
            | Self::EmptyList { .. }
            | Self::InvalidReasonCode { .. }
            | Self::SessionPresentOnRefusal
            | Self::DuplicateProperty { .. }
            | Self::InvalidPropertyValue { .. }
            | Self::MissingProperty { .. } => ReasonCode::ProtocolError,
            // Not parsed.
            Self::UnknownPacketType { .. }
            | Self::OverlongLength { .. }
            | Self::NonMinimalLength { .. }
            | Self::ReservedFlags { .. }
            | Self::Truncated { .. }
            | Self::TrailingBytes { .. }
            | Self::OverlongInteger { .. }
            | Self::NonMinimalInteger { .. }
            | Self::IllFormedUtf8 { .. }
            | Self::NullCharacter { .. }
            | Self::InvalidQoS { .. }
            | Self::DupAtQoS0 { .. }
            | Self::ReservedBits { .. }
            | Self::WillFlagsWithoutWill
            | Self::PasswordWithoutUserName
            | Self::UnknownProperty { .. }
            | Self::MisplacedProperty { .. } => ReasonCode::MalformedPacket,
        }
    }
}

/// We were asked to send a packet that the peer could not decode. A fault on this side; nothing was
/// written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it once")]
#[non_exhaustive]
pub enum EncodeError {
    #[error("{packet} would be longer than a packet can be")]
    PacketTooLong { packet: PacketType },
    #[error("a string or binary value of {length} bytes is longer than 65,535")]
    ValueTooLong { length: usize },
    #[error("a string contains U+0000")]
    NullCharacter,
    #[error("{value} does not fit a variable byte integer")]
    IntegerTooLarge { value: usize },
    #[error("{property} has a value outside its range")]
    InvalidPropertyValue { property: PropertyId },
    #[error("{packet} does not exist in MQTT {version}")]
    PacketNotInVersion {
        packet: PacketType,
        version: Version,
    },
    #[error("PUBLISH needs a packet identifier above QoS 0 and none at QoS 0")]
    PacketIdMismatch,
    #[error("the peer would refuse this packet: {0}")]
    Invalid(DecodeError),
}

/// Where in a packet something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the standard's")]
#[non_exhaustive]
pub enum Field {
    ProtocolName,
    ProtocolLevel,
    ConnectFlags,
    KeepAlive,
    ClientId,
    WillTopic,
    WillPayload,
    UserName,
    Password,
    AcknowledgeFlags,
    ReasonCode,
    TopicName,
    PacketId,
    TopicFilter,
    SubscriptionOptions,
    FixedHeader,
    PropertyLength,
    PropertyIdentifier,
    Property(PropertyId),
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ProtocolName => "protocol name",
            Self::ProtocolLevel => "protocol level",
            Self::ConnectFlags => "connect flags",
            Self::KeepAlive => "keep alive",
            Self::ClientId => "client identifier",
            Self::WillTopic => "will topic",
            Self::WillPayload => "will payload",
            Self::UserName => "user name",
            Self::Password => "password",
            Self::AcknowledgeFlags => "acknowledge flags",
            Self::ReasonCode => "reason code",
            Self::TopicName => "topic name",
            Self::PacketId => "packet identifier",
            Self::TopicFilter => "topic filter",
            Self::SubscriptionOptions => "subscription options",
            Self::FixedHeader => "fixed header",
            Self::PropertyLength => "property length",
            Self::PropertyIdentifier => "property identifier",
            Self::Property(property) => return fmt::Display::fmt(property, f),
        })
    }
}
