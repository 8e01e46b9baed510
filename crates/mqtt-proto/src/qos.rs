//! Quality of service levels and packet identifiers: the two numbers every delivery promise hangs
//! on.

use core::{fmt, num::NonZeroU16};

/// How often a message may and must arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum QoS {
    /// 0: sent once, never acknowledged.
    #[default]
    AtMostOnce = 0,
    /// 1: acknowledged by PUBACK, may arrive again.
    AtLeastOnce = 1,
    /// 2: PUBREC, PUBREL, PUBCOMP; arrives exactly once.
    ExactlyOnce = 2,
}

/// The value 3, or more, where a QoS was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a QoS")]
pub struct InvalidQoS(pub u8);

impl TryFrom<u8> for QoS {
    type Error = InvalidQoS;

    fn try_from(value: u8) -> Result<Self, Self::Error> {
        match value {
            0 => Ok(Self::AtMostOnce),
            1 => Ok(Self::AtLeastOnce),
            2 => Ok(Self::ExactlyOnce),
            other => Err(InvalidQoS(other)),
        }
    }
}

impl From<QoS> for u8 {
    fn from(qos: QoS) -> Self {
        qos as Self
    }
}

impl fmt::Display for QoS {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&u8::from(*self), f)
    }
}

/// A packet identifier; 0 does not exist.
///
/// [MQTT-2.2.1-3, MQTT-2.2.1-4, MQTT311-2.3.1-1]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketId(NonZeroU16);

impl PacketId {
    /// The identifier a sequence starts with.
    pub const FIRST: Self = Self(NonZeroU16::MIN);

    /// `None` for 0.
    pub const fn new(id: u16) -> Option<Self> {
        match NonZeroU16::new(id) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }

    /// As a plain number.
    pub const fn get(self) -> u16 {
        self.0.get()
    }

    /// The identifier after this one; 1 follows 65,535.
    #[must_use]
    pub const fn next(self) -> Self {
        match self.0.checked_add(1) {
            Some(id) => Self(id),
            None => Self::FIRST,
        }
    }
}

impl fmt::Display for PacketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
