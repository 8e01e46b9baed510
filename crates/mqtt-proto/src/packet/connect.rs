//! CONNECT: the first packet of a client.

use core::fmt;

use super::{PacketType, PropertySection, put_properties, read_properties};
use crate::{
    deframer::Frame,
    error::{DecodeError, EncodeError, Field},
    primitive::{Reader, put_binary, put_string},
    property::{Properties, PropertyId},
    qos::QoS,
    version::Version,
};

const USER_NAME: u8 = 0b1000_0000;
const PASSWORD: u8 = 0b0100_0000;
const WILL_RETAIN: u8 = 0b0010_0000;
const WILL_QOS: u8 = 0b0001_1000;
const WILL_QOS_SHIFT: u32 = WILL_QOS.trailing_zeros();
const WILL: u8 = 0b0000_0100;
const CLEAN_START: u8 = 0b0000_0010;
const RESERVED: u8 = 0b0000_0001;
/// In the protocol level.
const BRIDGE: u8 = 0b1000_0000;

/// A client asks for a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Connect<'a> {
    /// The version the connection will speak.
    pub version: Version,
    /// Clean Session in 3.x, Clean Start in 5.0.
    pub clean_start: bool,
    /// In seconds; 0 turns it off.
    pub keep_alive: u16,
    /// May be empty; whether that is allowed is the server's decision.
    pub client_id: &'a str,
    /// To be published when the client is lost.
    pub will: Option<Will<'a>>,
    /// Who it says it is.
    pub user_name: Option<&'a str>,
    /// Any bytes.
    pub password: Option<&'a [u8]>,
    /// Empty in 3.x.
    pub properties: Properties<'a>,
    /// The top bit of the level, by which Mosquitto's bridges make themselves known.
    pub bridge: bool,
}

/// The message that the server publishes for a client that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub struct Will<'a> {
    pub topic: &'a str,
    pub payload: &'a [u8],
    pub qos: QoS,
    pub retain: bool,
    pub properties: Properties<'a>,
}

impl<'a> Connect<'a> {
    /// The first packet of a connection, when its version is not known yet.
    ///
    /// [MQTT-3.1.0-1, MQTT311-3.1.0-1]
    pub fn decode_first(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let first_byte = frame.first_byte;
        let expected = PacketType::Connect;
        match frame.packet_type() {
            None => return Err(DecodeError::UnknownPacketType { first_byte }),
            Some(packet) if packet != expected => {
                return Err(DecodeError::UnexpectedPacket { packet, expected });
            }
            Some(_) => {}
        }
        let claimed = Self::claimed_version(frame).unwrap_or(Version::V5);
        if !claimed.allows_flags(expected, frame.flags()) {
            return Err(DecodeError::ReservedFlags {
                packet: expected,
                flags: frame.flags(),
            });
        }
        let mut reader = Reader::new(expected, frame.body);
        let connect = Self::decode(&mut reader)?;
        reader.finish()?;
        Ok(connect)
    }

    /// The version in which the sender of this packet is to be answered, even if the rest is
    /// malformed or the version is none of ours. `None`: it does not speak MQTT.
    pub fn claimed_version(frame: Frame<'_>) -> Option<Version> {
        match read_version(&mut Reader::new(PacketType::Connect, frame.body)) {
            Ok((version, _)) => Some(version),
            Err(DecodeError::UnsupportedVersion { v5_style: true, .. }) => Some(Version::V5),
            Err(DecodeError::UnsupportedVersion { .. }) => Some(Version::V3_1_1),
            Err(_) => None,
        }
    }

    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (version, bridge) = read_version(reader)?;
        let flags = reader.u8(Field::ConnectFlags)?;
        check_flags(flags, version)?;
        let keep_alive = reader.u16(Field::KeepAlive)?;
        let section = PropertySection::Packet(PacketType::Connect);
        let properties = read_properties(reader, version, section)?;
        check_authentication(properties)?;
        // The payload's fields come in this order. // [MQTT-3.1.3-1, MQTT311-3.1.3-1]
        // [MQTT-3.1.3-3, MQTT-3.1.3-4, MQTT311-3.1.3-3, MQTT311-3.1.3-4]
        let client_id = reader.string(Field::ClientId)?;
        // [MQTT-3.1.2-9, MQTT311-3.1.2-9, MQTT311-3.1.2-11]
        let will = match flags & WILL {
            0 => None,
            _ => Some(Will::decode(reader, flags, version)?),
        };
        let is_cut_off =
            |reader: &Reader<'_>| version.credentials_may_be_cut_off() && reader.is_empty();
        // [MQTT-3.1.2-16, MQTT-3.1.2-17, MQTT-3.1.3-12]
        // [MQTT311-3.1.2-18, MQTT311-3.1.2-19, MQTT311-3.1.3-11]
        let user_name = match flags & USER_NAME {
            0 => None,
            _ if is_cut_off(reader) => None,
            _ => Some(reader.string(Field::UserName)?),
        };
        // [MQTT-3.1.2-18, MQTT-3.1.2-19, MQTT311-3.1.2-20, MQTT311-3.1.2-21]
        let password = match flags & PASSWORD {
            0 => None,
            _ if is_cut_off(reader) => None,
            _ => Some(reader.binary(Field::Password)?),
        };
        Ok(Self {
            version,
            clean_start: flags & CLEAN_START != 0,
            keep_alive,
            client_id,
            will,
            user_name,
            password,
            properties,
            bridge,
        })
    }

    pub(super) fn encode_body(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let flags = self.flags();
        check_flags(flags, self.version)
            .and_then(|()| check_authentication(self.properties))
            .map_err(EncodeError::Invalid)?;
        put_string(out, self.version.protocol_name())?;
        let bridge = if self.bridge && self.version.has_bridge_bit() {
            BRIDGE
        } else {
            0
        };
        out.extend_from_slice(&[self.version.level() | bridge, flags]);
        out.extend_from_slice(&self.keep_alive.to_be_bytes());
        let section = PropertySection::Packet(PacketType::Connect);
        put_properties(out, self.version, section, self.properties)?;
        put_string(out, self.client_id)?;
        if let Some(will) = &self.will {
            put_properties(out, self.version, PropertySection::Will, will.properties)?;
            put_string(out, will.topic)?;
            put_binary(out, will.payload)?;
        }
        if let Some(user_name) = self.user_name {
            put_string(out, user_name)?;
        }
        if let Some(password) = self.password {
            put_binary(out, password)?;
        }
        Ok(())
    }

    fn flags(&self) -> u8 {
        let when = |condition: bool, flag: u8| if condition { flag } else { 0 };
        let will = self.will.map_or(0, |will| {
            WILL | u8::from(will.qos) << WILL_QOS_SHIFT | when(will.retain, WILL_RETAIN)
        });
        will | when(self.clean_start, CLEAN_START)
            | when(self.user_name.is_some(), USER_NAME)
            | when(self.password.is_some(), PASSWORD)
    }
}

impl<'a> Will<'a> {
    fn decode(reader: &mut Reader<'a>, flags: u8, version: Version) -> Result<Self, DecodeError> {
        let properties = read_properties(reader, version, PropertySection::Will)?;
        Ok(Self {
            topic: reader.string(Field::WillTopic)?, // [MQTT-3.1.3-11, MQTT311-3.1.3-10]
            payload: reader.binary(Field::WillPayload)?,
            qos: will_qos(flags)?,
            retain: flags & WILL_RETAIN != 0,
            properties,
        })
    }
}

/// The version asked for, and whether the peer is a bridge.
fn read_version(reader: &mut Reader<'_>) -> Result<(Version, bool), DecodeError> {
    // As bytes: a name that is not text is no better known than another.
    let name = reader.binary(Field::ProtocolName)?;
    if !Version::ALL
        .iter()
        .any(|version| version.protocol_name().as_bytes() == name)
    {
        return Err(DecodeError::UnknownProtocol); // [MQTT-3.1.2-1, MQTT311-3.1.2-1]
    }
    let level = reader.u8(Field::ProtocolLevel)?;
    let plain = level & !BRIDGE;
    let bridge = level != plain;
    match Version::from_name_and_level(name, plain) {
        Some(version) if !bridge || version.has_bridge_bit() => Ok((version, bridge)),
        _ => {
            let v5_style =
                name == Version::V5.protocol_name().as_bytes() && plain >= Version::V5.level();
            // [MQTT-3.1.2-2, MQTT311-3.1.2-2]
            Err(DecodeError::UnsupportedVersion { level, v5_style })
        }
    }
}

fn check_flags(flags: u8, version: Version) -> Result<(), DecodeError> {
    let packet = PacketType::Connect;
    if flags & RESERVED != 0 && version.checks_reserved_connect_flag() {
        let field = Field::ConnectFlags;
        return Err(DecodeError::ReservedBits {
            packet,
            field,
            bits: flags,
        }); // [MQTT-3.1.2-3, MQTT311-3.1.2-3]
    }
    if flags & WILL == 0 && flags & (WILL_QOS | WILL_RETAIN) != 0 {
        // [MQTT-3.1.2-11, MQTT-3.1.2-13]
        // [MQTT311-3.1.2-11, MQTT311-3.1.2-13, MQTT311-3.1.2-15]
        return Err(DecodeError::WillFlagsWithoutWill);
    }
    will_qos(flags)?;
    if flags & PASSWORD != 0
        && flags & USER_NAME == 0
        && !version.allows_password_without_user_name()
    {
        return Err(DecodeError::PasswordWithoutUserName); // [MQTT311-3.1.2-22]
    }
    Ok(())
}

// [MQTT-3.1.2-12, MQTT311-3.1.2-14]
fn will_qos(flags: u8) -> Result<QoS, DecodeError> {
    QoS::try_from((flags & WILL_QOS) >> WILL_QOS_SHIFT).map_err(|_| DecodeError::InvalidQoS {
        packet: PacketType::Connect,
        field: Field::ConnectFlags,
    })
}

/// Data without a method to use it by says nothing.
fn check_authentication(properties: Properties<'_>) -> Result<(), DecodeError> {
    if properties.is_empty()
        || properties.authentication_data().is_none()
        || properties.authentication_method().is_some()
    {
        return Ok(());
    }
    Err(DecodeError::MissingProperty {
        section: PropertySection::Packet(PacketType::Connect),
        property: PropertyId::AuthenticationMethod,
    })
}

/// The password by its size.
impl fmt::Debug for Connect<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect")
            .field("version", &self.version)
            .field("clean_start", &self.clean_start)
            .field("keep_alive", &self.keep_alive)
            .field("client_id", &self.client_id)
            .field("will", &self.will)
            .field("user_name", &self.user_name)
            .field("password_len", &self.password.map(<[u8]>::len))
            .field("properties", &self.properties)
            .field("bridge", &self.bridge)
            .finish()
    }
}
