//! The client's side: which packets a server may send, and when.
//!
//! ```text
//!                    CONNACK 0x00                       AUTH 0x19 sent
//!   AwaitConnAck -------------------> Connected <------------------------> Reauthenticating
//!      |    ^  AUTH 0x18                                  AUTH 0x00
//!      +----+
//!   Closed <----- from everywhere: error, CONNACK with an error, DISCONNECT, loss
//! ```
//!
//! Deliberately absent: whether a packet's content is acceptable. The client may send before
//! CONNACK; nothing but CONNACK and AUTH may come back by then.

use thiserror::Error;

use crate::{PacketType, ReasonCode, Version};

/// Where the connection to a server stands, after CONNECT was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// CONNECT is out.
    AwaitConnAck {
        /// It named an authentication method, so AUTH may come (5.0).
        extended_auth: bool,
    },
    /// CONNACK said yes.
    Connected,
    /// As `Connected`, while we authenticate again (5.0).
    Reauthenticating,
    /// Nothing more is read.
    Closed,
}

impl Phase {
    /// Decides whether a packet may come now. For AUTH, [`handle_auth`](Self::handle_auth) has a
    /// second question.
    pub fn expect(self, packet: PacketType, version: Version) -> Result<(), Violation> {
        use PacketType as P;
        match (self, packet) {
            (Self::Closed, _) => Err(Violation::Closed),
            (_, P::Connect | P::Subscribe | P::Unsubscribe | P::PingReq) => {
                Err(Violation::ClientPacket)
            }
            // A 3.x server closes without a word.
            (_, P::Disconnect) if !version.has_properties() => Err(Violation::NotBefore5),
            _ if !version.has_packet(packet) => Err(Violation::NotBefore5),
            (Self::AwaitConnAck { .. }, P::ConnAck)
            | (
                Self::AwaitConnAck {
                    extended_auth: true,
                },
                P::Auth,
            ) => Ok(()),
            // [MQTT-4.12.0-6]
            (_, P::Auth) if self != Self::Reauthenticating => Err(Violation::AuthUnasked),
            // [MQTT-3.2.0-1] [MQTT-3.14.0-1] [MQTT311-3.2.0-1]
            (Self::AwaitConnAck { .. }, _) => Err(Violation::NotConnAck),
            // [MQTT-3.2.0-2]
            (Self::Connected | Self::Reauthenticating, P::ConnAck) => Err(Violation::SecondConnAck),
            (Self::Connected | Self::Reauthenticating, _) => Ok(()),
        }
    }

    /// The phase after AUTH that was expected; `reason` is what the server sent with it.
    pub fn handle_auth(self, reason: ReasonCode) -> Result<Self, Violation> {
        match (self, reason) {
            // [MQTT-4.12.0-2]
            (
                Self::AwaitConnAck {
                    extended_auth: true,
                }
                | Self::Reauthenticating,
                ReasonCode::ContinueAuthentication,
            ) => Ok(self),
            (Self::Reauthenticating, ReasonCode::Success) => Ok(Self::Connected),
            _ => Err(Violation::AuthStep),
        }
    }

    /// The phase after CONNACK that was expected.
    #[must_use]
    pub fn handle_connack(self, reason: ReasonCode) -> Self {
        match self {
            Self::AwaitConnAck { .. } if !reason.is_error() => Self::Connected,
            Self::AwaitConnAck { .. } => Self::Closed,
            other => other,
        }
    }

    /// After AUTH with Re-authenticate was sent.
    #[must_use]
    pub fn reauthenticate(self) -> Self {
        match self {
            Self::Connected => Self::Reauthenticating,
            other => other,
        }
    }

    /// Whether application messages flow.
    pub fn is_connected(self) -> bool {
        matches!(self, Self::Connected | Self::Reauthenticating)
    }
}

/// A packet that may not come now. The server's fault; the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// Another packet before CONNACK.
    #[error("a packet before CONNACK")]
    NotConnAck,
    /// CONNACK again.
    #[error("second CONNACK")]
    SecondConnAck,
    /// A packet that only clients send.
    #[error("a packet that only a client sends")]
    ClientPacket,
    /// AUTH or DISCONNECT in 3.1 or 3.1.1.
    #[error("a packet that servers send since MQTT 5.0")]
    NotBefore5,
    /// AUTH, though we began no exchange.
    #[error("AUTH, but no authentication is under way")]
    AuthUnasked,
    /// AUTH with a reason code that does not continue what is under way.
    #[error("AUTH with a reason code that does not fit")]
    AuthStep,
    /// A packet after the last one.
    #[error("a packet after the end")]
    Closed,
}

impl Violation {
    /// What a 5.0 server is told.
    pub fn reason(self) -> ReasonCode {
        match self {
            Self::NotConnAck
            | Self::SecondConnAck
            | Self::ClientPacket
            | Self::AuthUnasked
            | Self::AuthStep
            | Self::Closed => ReasonCode::ProtocolError,
            Self::NotBefore5 => ReasonCode::MalformedPacket,
        }
    }
}
