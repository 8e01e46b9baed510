//! The three protocol versions and every rule in which they differ.
//!
//! The packets are one model for all versions; code that must treat a version differently asks a
//! question of this file instead of comparing versions. Rules that need connection state (an empty
//! client id, a changed session expiry) are not here: they belong to the connection.

use core::fmt;

use crate::{packet::PacketType, reason::ReasonCode};

/// A protocol version, as negotiated by CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// MQTT 3.1: protocol name `MQIsdp`, level 3.
    V3_1,
    /// MQTT 3.1.1: protocol name `MQTT`, level 4.
    V3_1_1,
    /// MQTT 5.0: protocol name `MQTT`, level 5.
    V5,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Self; 3] = [Self::V3_1, Self::V3_1_1, Self::V5];

    /// The protocol level in CONNECT.
    pub const fn level(self) -> u8 {
        match self {
            Self::V3_1 => 3,
            Self::V3_1_1 => 4,
            Self::V5 => 5,
        }
    }

    /// The protocol name in CONNECT.
    pub const fn protocol_name(self) -> &'static str {
        match self {
            Self::V3_1 => "MQIsdp",
            Self::V3_1_1 | Self::V5 => "MQTT",
        }
    }

    /// The version a CONNECT's protocol name and level (without the bridge bit) ask for.
    pub fn from_name_and_level(name: &[u8], level: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|version| version.protocol_name().as_bytes() == name && version.level() == level)
    }

    /// Mosquitto's bridges set the top bit of the level; version 5 has No Local for what the bit
    /// means.
    pub const fn has_bridge_bit(self) -> bool {
        !matches!(self, Self::V5)
    }

    /// Packets carry a property section, acknowledgements a reason code, and the server may send
    /// DISCONNECT.
    pub const fn has_properties(self) -> bool {
        matches!(self, Self::V5)
    }

    /// The packet exists in this version: AUTH came with 5.0.
    pub const fn has_packet(self, packet: PacketType) -> bool {
        matches!(self, Self::V5) || !matches!(packet, PacketType::Auth)
    }

    /// UNSUBACK carries one reason code a filter.
    pub const fn has_unsuback_codes(self) -> bool {
        matches!(self, Self::V5)
    }

    /// CONNACK carries the session-present bit; 3.1 has a reserved byte there.
    pub const fn has_session_present(self) -> bool {
        !matches!(self, Self::V3_1)
    }

    /// A CONNECT may carry a password without a user name.
    ///
    /// [MQTT311-3.1.2-22]
    pub const fn allows_password_without_user_name(self) -> bool {
        matches!(self, Self::V5)
    }

    /// CONNECT's lowest flag must be 0; 3.1 calls it unused.
    ///
    /// [MQTT-3.1.2-3, MQTT311-3.1.2-3]
    pub const fn checks_reserved_connect_flag(self) -> bool {
        !matches!(self, Self::V3_1)
    }

    /// 3.1 lets a packet end before the user name or password that its flags announce, for devices
    /// older than the fields.
    pub const fn credentials_may_be_cut_off(self) -> bool {
        matches!(self, Self::V3_1)
    }

    /// The bits of a subscription's options byte that have a meaning.
    ///
    /// [MQTT-3.8.3-5, MQTT311-3.8.3-4]
    pub const fn subscription_option_bits(self) -> u8 {
        match self {
            Self::V3_1 | Self::V3_1_1 => 0b0000_0011,
            Self::V5 => 0b0011_1111,
        }
    }

    /// Whether a SUBACK or UNSUBACK may hold this code.
    ///
    /// [MQTT-3.9.3-2, MQTT-3.11.3-2, MQTT311-3.9.3-2]
    pub fn allows_filter_code(self, packet: PacketType, code: u8) -> bool {
        match self {
            Self::V3_1 | Self::V3_1_1 => matches!(code, 0..=2 | 0x80),
            Self::V5 => ReasonCode::try_from(code).is_ok_and(|code| code.is_allowed_in(packet)),
        }
    }

    /// A SUBACK's code as this version has it: 3.x knows one failure.
    pub const fn suback_code(self, code: u8) -> u8 {
        match self {
            Self::V3_1 | Self::V3_1_1 if code > 0x80 => 0x80,
            _ => code,
        }
    }

    /// Whether a packet may have these flags in its first byte.
    ///
    /// [MQTT-2.1.3-1, MQTT-3.6.1-1, MQTT-3.8.1-1, MQTT-3.10.1-1, MQTT-3.14.1-1, MQTT-3.15.1-1]
    /// [MQTT311-2.2.2-1, MQTT311-2.2.2-2, MQTT311-3.6.1-1, MQTT311-3.8.1-1]
    /// [MQTT311-3.10.1-1, MQTT311-3.14.1-1]
    pub const fn allows_flags(self, packet: PacketType, flags: u8) -> bool {
        if matches!(packet, PacketType::Publish) {
            return true; // they are fields of the packet
        }
        let fixed = packet.fixed_flags();
        match (self, packet) {
            // They are "not used", and some devices set them.
            (Self::V3_1, PacketType::Connect) => true,
            // PUBREL, SUBSCRIBE and UNSUBSCRIBE are sent at QoS 1, a repeated one with DUP set.
            (Self::V3_1, _) if fixed != 0 => flags & !DUP == fixed,
            _ => flags == fixed,
        }
    }
}

/// The flag of a packet that is sent again.
const DUP: u8 = 0b1000;

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V3_1 => "3.1",
            Self::V3_1_1 => "3.1.1",
            Self::V5 => "5.0",
        })
    }
}
