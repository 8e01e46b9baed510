//! The table of properties. A row is all there is to say about one.

use core::{fmt, marker::PhantomData};

use crate::{
    error::{DecodeError, EncodeError, Field},
    packet::{PacketType, PropertySection},
    primitive::{self, Reader},
    qos::QoS,
};

/// A set of sections, one bit each.
type Places = u16;

const CONNECT: Places = place(PropertySection::Packet(PacketType::Connect));
const CONNACK: Places = place(PropertySection::Packet(PacketType::ConnAck));
const PUBLISH: Places = place(PropertySection::Packet(PacketType::Publish));
const PUBACK: Places = place(PropertySection::Packet(PacketType::PubAck));
const PUBREC: Places = place(PropertySection::Packet(PacketType::PubRec));
const PUBREL: Places = place(PropertySection::Packet(PacketType::PubRel));
const PUBCOMP: Places = place(PropertySection::Packet(PacketType::PubComp));
const SUBSCRIBE: Places = place(PropertySection::Packet(PacketType::Subscribe));
const SUBACK: Places = place(PropertySection::Packet(PacketType::SubAck));
const UNSUBACK: Places = place(PropertySection::Packet(PacketType::UnsubAck));
const DISCONNECT: Places = place(PropertySection::Packet(PacketType::Disconnect));
const AUTH: Places = place(PropertySection::Packet(PacketType::Auth));
const WILL: Places = place(PropertySection::Will);
const ACKS: Places = PUBACK | PUBREC | PUBREL | PUBCOMP | SUBACK | UNSUBACK;
const EVERYWHERE: Places = !0;

const fn place(section: PropertySection) -> Places {
    match section {
        PropertySection::Packet(packet) => 1 << packet as u8,
        PropertySection::Will => 1,
    }
}

const fn contains(places: Places, section: PropertySection) -> bool {
    places & place(section) != 0
}

/// How a value is laid out and which values there are. The type says it, so that a row of the table
/// is complete.
trait Wire<'a> {
    type Value;

    /// `None`: outside the range.
    fn read(reader: &mut Reader<'a>, field: Field) -> Result<Option<Self::Value>, DecodeError>;

    /// Passes over a value that was validated before.
    fn skip(reader: &mut Reader<'a>, field: Field) -> Result<(), DecodeError> {
        Self::read(reader, field).map(drop)
    }

    /// `Ok(false)`: outside the range.
    fn write(value: Self::Value, out: &mut Vec<u8>) -> Result<bool, EncodeError>;
}

/// A byte that is 0 or 1.
enum Flag {}
/// A byte that is 0 or 1, as a QoS.
enum QoSBelow2 {}
enum TwoBytes {}
enum FourBytes {}
enum VarInt {}
/// Not 0.
struct NonZero<T>(PhantomData<T>);
enum Binary {}
enum Text {}

impl Wire<'_> for Flag {
    type Value = bool;

    fn read(reader: &mut Reader<'_>, field: Field) -> Result<Option<bool>, DecodeError> {
        Ok(match reader.u8(field)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        })
    }

    fn write(value: bool, out: &mut Vec<u8>) -> Result<bool, EncodeError> {
        out.push(u8::from(value));
        Ok(true)
    }
}

impl Wire<'_> for QoSBelow2 {
    type Value = QoS;

    fn read(reader: &mut Reader<'_>, field: Field) -> Result<Option<QoS>, DecodeError> {
        let qos = QoS::try_from(reader.u8(field)?).ok();
        Ok(qos.filter(|&qos| qos < QoS::ExactlyOnce))
    }

    fn write(value: QoS, out: &mut Vec<u8>) -> Result<bool, EncodeError> {
        out.push(value.into());
        Ok(value < QoS::ExactlyOnce)
    }
}

impl Wire<'_> for TwoBytes {
    type Value = u16;

    fn read(reader: &mut Reader<'_>, field: Field) -> Result<Option<u16>, DecodeError> {
        reader.u16(field).map(Some)
    }

    fn write(value: u16, out: &mut Vec<u8>) -> Result<bool, EncodeError> {
        out.extend_from_slice(&value.to_be_bytes());
        Ok(true)
    }
}

impl Wire<'_> for FourBytes {
    type Value = u32;

    fn read(reader: &mut Reader<'_>, field: Field) -> Result<Option<u32>, DecodeError> {
        reader.u32(field).map(Some)
    }

    fn write(value: u32, out: &mut Vec<u8>) -> Result<bool, EncodeError> {
        out.extend_from_slice(&value.to_be_bytes());
        Ok(true)
    }
}

impl Wire<'_> for VarInt {
    type Value = u32;

    fn read(reader: &mut Reader<'_>, field: Field) -> Result<Option<u32>, DecodeError> {
        reader.varint(field).map(Some)
    }

    fn write(value: u32, out: &mut Vec<u8>) -> Result<bool, EncodeError> {
        primitive::put_varint(out, value as usize)?;
        Ok(true)
    }
}

impl<'a, T: Wire<'a, Value: Copy + Default + PartialEq>> Wire<'a> for NonZero<T> {
    type Value = T::Value;

    fn read(reader: &mut Reader<'a>, field: Field) -> Result<Option<T::Value>, DecodeError> {
        let value = T::read(reader, field)?;
        Ok(value.filter(|&value| value != T::Value::default()))
    }

    fn write(value: T::Value, out: &mut Vec<u8>) -> Result<bool, EncodeError> {
        Ok(T::write(value, out)? && value != T::Value::default())
    }
}

impl<'a> Wire<'a> for Binary {
    type Value = &'a [u8];

    fn read(reader: &mut Reader<'a>, field: Field) -> Result<Option<&'a [u8]>, DecodeError> {
        reader.binary(field).map(Some)
    }

    fn write(value: &[u8], out: &mut Vec<u8>) -> Result<bool, EncodeError> {
        primitive::put_binary(out, value)?;
        Ok(true)
    }
}

impl<'a> Wire<'a> for Text {
    type Value = &'a str;

    fn read(reader: &mut Reader<'a>, field: Field) -> Result<Option<&'a str>, DecodeError> {
        reader.string(field).map(Some)
    }

    fn skip(reader: &mut Reader<'a>, field: Field) -> Result<(), DecodeError> {
        reader.binary(field).map(drop)
    }

    fn write(value: &str, out: &mut Vec<u8>) -> Result<bool, EncodeError> {
        primitive::put_string(out, value)?;
        Ok(true)
    }
}

macro_rules! property_table {
    ($($(#[$doc:meta])* $id:literal $variant:ident $name:literal
        ($($value:ident: $type:ty as $wire:ty),+), once $once:expr, many $many:expr;)+) => {
        /// Which property it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum PropertyId {
            $($(#[$doc])* $variant = $id,)+
        }

        /// A property with its value.
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub enum Property<'a> {
            $($(#[$doc])* $variant($($type),+),)+
        }

        impl PropertyId {
            /// Every property, in order of identifier.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            pub(super) const fn from_identifier(id: u32) -> Option<Self> {
                match id {
                    $($id => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The standard's name for it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Whether the property may stand there at all.
            pub const fn is_allowed_in(self, section: PropertySection) -> bool {
                match self { $(Self::$variant => contains($once | $many, section),)+ }
            }

            /// Whether it may stand there more than once.
            pub const fn may_repeat_in(self, section: PropertySection) -> bool {
                match self { $(Self::$variant => contains($many, section),)+ }
            }
        }

        // User data in full, secrets by their size.
        impl fmt::Debug for Property<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if let Self::AuthenticationData(data) = self {
                    return write!(f, "AuthenticationData({} bytes)", data.len());
                }
                match self {
                    $(Self::$variant($($value),+) => {
                        f.debug_tuple(stringify!($variant))$(.field($value))+.finish()
                    })+
                }
            }
        }

        impl<'a> Property<'a> {
            /// Which property it is.
            pub const fn id(&self) -> PropertyId {
                match self { $(Self::$variant(..) => PropertyId::$variant,)+ }
            }

            /// Reads the value of property `id`; `None` if it is outside its range.
            pub(super) fn read(
                id: PropertyId,
                reader: &mut Reader<'a>,
            ) -> Result<Option<Self>, DecodeError> {
                let field = Field::Property(id);
                Ok(match id {
                    $(PropertyId::$variant => {
                        $(let $value = <$wire as Wire<'a>>::read(reader, field)?;)+
                        match ($($value,)+) {
                            ($(Some($value),)+) => Some(Self::$variant($($value),+)),
                            _ => None,
                        }
                    })+
                })
            }

            /// Passes over the value of property `id`, which was validated before.
            pub(super) fn skip(id: PropertyId, reader: &mut Reader<'a>) -> Result<(), DecodeError> {
                let field = Field::Property(id);
                match id {
                    $(PropertyId::$variant => {
                        $(<$wire as Wire<'a>>::skip(reader, field)?;)+
                    })+
                }
                Ok(())
            }

            /// Appends identifier and value. After an error `out` may hold a part of it.
            pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
                out.push(self.id() as u8); // all identifiers are below 128: a varint of one byte
                let in_range = match *self {
                    $(Self::$variant($($value),+) => {
                        $(<$wire as Wire<'a>>::write($value, out)?)&&+
                    })+
                };
                if in_range {
                    Ok(())
                } else {
                    Err(EncodeError::InvalidPropertyValue { property: self.id() })
                }
            }
        }
    };
}

property_table! {
    /// The payload is UTF-8 text, rather than unspecified bytes.
    0x01 PayloadFormatIndicator "Payload Format Indicator"
        (value: bool as Flag), once PUBLISH | WILL, many 0;
    /// Seconds.
    0x02 MessageExpiryInterval "Message Expiry Interval"
        (value: u32 as FourBytes), once PUBLISH | WILL, many 0;
    /// Such as a MIME type.
    ///
    /// [MQTT-3.3.2-19]
    0x03 ContentType "Content Type"
        (value: &'a str as Text), once PUBLISH | WILL, many 0;
    /// Where an answer should go.
    ///
    /// [MQTT-3.3.2-13]
    0x08 ResponseTopic "Response Topic"
        (value: &'a str as Text), once PUBLISH | WILL, many 0;
    /// By which the asker knows what is answered.
    0x09 CorrelationData "Correlation Data"
        (value: &'a [u8] as Binary), once PUBLISH | WILL, many 0;
    /// 1 to 268,435,455.
    0x0B SubscriptionIdentifier "Subscription Identifier"
        (value: u32 as NonZero<VarInt>), once SUBSCRIBE, many PUBLISH;
    /// Seconds; 0xFFFFFFFF is never.
    0x11 SessionExpiryInterval "Session Expiry Interval"
        (value: u32 as FourBytes), once CONNECT | CONNACK | DISCONNECT, many 0;
    /// The server's choice for a client that had none.
    0x12 AssignedClientIdentifier "Assigned Client Identifier"
        (value: &'a str as Text), once CONNACK, many 0;
    /// Seconds; replaces what the client asked for.
    0x13 ServerKeepAlive "Server Keep Alive"
        (value: u16 as TwoBytes), once CONNACK, many 0;
    /// Of enhanced authentication.
    0x15 AuthenticationMethod "Authentication Method"
        (value: &'a str as Text), once CONNECT | CONNACK | AUTH, many 0;
    /// Of enhanced authentication; a secret.
    0x16 AuthenticationData "Authentication Data"
        (value: &'a [u8] as Binary), once CONNECT | CONNACK | AUTH, many 0;
    /// Whether reason strings and user properties may come with any packet.
    0x17 RequestProblemInformation "Request Problem Information"
        (value: bool as Flag), once CONNECT, many 0;
    /// Seconds.
    0x18 WillDelayInterval "Will Delay Interval"
        (value: u32 as FourBytes), once WILL, many 0;
    /// Whether Response Information is wanted.
    0x19 RequestResponseInformation "Request Response Information"
        (value: bool as Flag), once CONNECT, many 0;
    /// From which a client makes response topics.
    0x1A ResponseInformation "Response Information"
        (value: &'a str as Text), once CONNACK, many 0;
    /// Other servers.
    0x1C ServerReference "Server Reference"
        (value: &'a str as Text), once CONNACK | DISCONNECT, many 0;
    /// For people.
    0x1F ReasonString "Reason String"
        (value: &'a str as Text), once CONNACK | ACKS | DISCONNECT | AUTH, many 0;
    /// Unacknowledged messages above QoS 0 that the sender of this property accepts.
    0x21 ReceiveMaximum "Receive Maximum"
        (value: u16 as NonZero<TwoBytes>), once CONNECT | CONNACK, many 0;
    /// The highest topic alias that the sender of this property accepts.
    0x22 TopicAliasMaximum "Topic Alias Maximum"
        (value: u16 as TwoBytes), once CONNECT | CONNACK, many 0;
    /// 0 is no alias, but has a reason code of its own, so the connection refuses it.
    ///
    /// [MQTT-3.3.2-8]
    0x23 TopicAlias "Topic Alias"
        (value: u16 as TwoBytes), once PUBLISH, many 0;
    /// The highest QoS of a PUBLISH that the server accepts, if it is not 2.
    0x24 MaximumQoS "Maximum QoS"
        (value: QoS as QoSBelow2), once CONNACK, many 0;
    /// Whether the server keeps retained messages.
    0x25 RetainAvailable "Retain Available"
        (value: bool as Flag), once CONNACK, many 0;
    /// A name and a value; their order and repetition count.
    ///
    /// [MQTT-1.5.7-1]
    0x26 UserProperty "User Property"
        (name: &'a str as Text, value: &'a str as Text), once 0, many EVERYWHERE;
    /// Bytes of a whole packet that the sender of this property accepts.
    0x27 MaximumPacketSize "Maximum Packet Size"
        (value: u32 as NonZero<FourBytes>), once CONNECT | CONNACK, many 0;
    /// Whether the server takes filters with wildcards.
    0x28 WildcardSubscriptionAvailable "Wildcard Subscription Available"
        (value: bool as Flag), once CONNACK, many 0;
    /// Whether the server takes subscription identifiers.
    0x29 SubscriptionIdentifierAvailable "Subscription Identifier Available"
        (value: bool as Flag), once CONNACK, many 0;
    /// Whether the server takes shared subscriptions.
    0x2A SharedSubscriptionAvailable "Shared Subscription Available"
        (value: bool as Flag), once CONNACK, many 0;
}

impl fmt::Display for PropertyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
