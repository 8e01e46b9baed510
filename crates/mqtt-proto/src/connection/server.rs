//! The server's side: which packets a client may send, and when.
//!
//! ```text
//!                 CONNECT with a method                   last step, CONNACK
//!   AwaitConnect -----------------------> Authenticating --------------------+
//!        |                                                                   v
//!        |  CONNECT without a method, CONNACK                            Connected
//!        +----------------------------------------------------------------> |  ^
//!                                                                AUTH 0x19  v  |  AUTH 0x00 sent
//!   Closed <----- from everywhere: error, DISCONNECT, loss        Reauthenticating
//! ```
//!
//! Deliberately absent: whether a packet's content is acceptable, and the time between CONNECT and
//! CONNACK: packets that arrive then wait until the phase is `Connected` or `Closed`
//! `[MQTT-3.1.4-6]`.

use thiserror::Error;

use crate::{PacketType, ReasonCode, Version};

/// Where a client's connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No packet has come.
    AwaitConnect,
    /// CONNECT named an authentication method, and the exchange goes on (5.0).
    Authenticating,
    /// CONNACK said yes.
    Connected {
        /// CONNECT named an authentication method, so AUTH may come (5.0).
        extended_auth: bool,
    },
    /// As `Connected`, while the client authenticates again (5.0).
    Reauthenticating,
    /// Nothing more is read.
    Closed,
}

impl Phase {
    /// Decides whether a packet may come now. For AUTH, [`handle_auth`](Self::handle_auth) has a
    /// second question.
    #[inline]
    pub fn expect(self, packet: PacketType, version: Version) -> Result<(), Violation> {
        use PacketType as P;
        match (self, packet) {
            (Self::Closed, _) => Err(Violation::Closed),
            (Self::AwaitConnect, P::Connect) => Ok(()),
            // [MQTT-3.1.0-1] [MQTT311-3.1.0-1]
            (Self::AwaitConnect, _) => Err(Violation::NotConnect),
            // [MQTT-3.1.0-2] [MQTT311-3.1.0-2]
            (_, P::Connect) => Err(Violation::SecondConnect),
            (_, P::ConnAck | P::SubAck | P::UnsubAck | P::PingResp) => Err(Violation::ServerPacket),
            _ if !version.has_packet(packet) => Err(Violation::AuthBefore5),
            // [MQTT-4.12.0-7]
            (
                Self::Connected {
                    extended_auth: false,
                },
                P::Auth,
            ) => Err(Violation::AuthWithoutMethod),
            (_, P::Auth | P::Disconnect) | (Self::Connected { .. } | Self::Reauthenticating, _) => {
                Ok(())
            }
            // [MQTT-3.1.2-30]
            (Self::Authenticating, _) => Err(Violation::NotAuthenticated),
        }
    }

    /// The phase after AUTH that was expected; `reason` is what the client sent with it.
    pub fn handle_auth(self, reason: ReasonCode) -> Result<Self, Violation> {
        match (self, reason) {
            // [MQTT-4.12.0-3]
            (Self::Authenticating | Self::Reauthenticating, ReasonCode::ContinueAuthentication) => {
                Ok(self)
            }
            // [MQTT-4.12.1-1]
            (
                Self::Connected {
                    extended_auth: true,
                },
                ReasonCode::ReAuthenticate,
            ) => Ok(Self::Reauthenticating),
            _ => Err(Violation::AuthStep),
        }
    }

    /// After a CONNECT that named a method, and whose exchange needs more steps.
    #[must_use]
    pub fn authenticate(self) -> Self {
        match self {
            Self::AwaitConnect => Self::Authenticating,
            other => other,
        }
    }

    /// After CONNACK, or AUTH, with Success was sent.
    #[must_use]
    pub fn accept(self, extended_auth: bool) -> Self {
        match self {
            Self::AwaitConnect => Self::Connected { extended_auth },
            Self::Authenticating | Self::Reauthenticating => Self::Connected {
                extended_auth: true,
            },
            Self::Connected { .. } | Self::Closed => self,
        }
    }

    /// Whether application messages flow.
    pub fn is_connected(self) -> bool {
        matches!(self, Self::Connected { .. } | Self::Reauthenticating)
    }
}

/// A packet that may not come now. The client's fault; the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// The first packet is not CONNECT. There is no version to answer in.
    #[error("the first packet is not CONNECT")]
    NotConnect,
    /// CONNECT again.
    #[error("second CONNECT")]
    SecondConnect,
    /// A packet that only servers send.
    #[error("a packet that only a server sends")]
    ServerPacket,
    /// AUTH in 3.1 or 3.1.1.
    #[error("AUTH before MQTT 5.0")]
    AuthBefore5,
    /// AUTH, though CONNECT named no method.
    #[error("AUTH, but CONNECT had no authentication method")]
    AuthWithoutMethod,
    /// AUTH with a reason code that does not continue what is under way.
    #[error("AUTH with a reason code that does not fit")]
    AuthStep,
    /// Another packet than AUTH and DISCONNECT before CONNACK.
    #[error("only AUTH and DISCONNECT may come before CONNACK")]
    NotAuthenticated,
    /// A packet after the last one.
    #[error("a packet after the end")]
    Closed,
}

impl Violation {
    /// What a 5.0 client is told.
    pub fn reason(self) -> ReasonCode {
        match self {
            Self::NotConnect
            | Self::SecondConnect
            | Self::ServerPacket
            | Self::AuthWithoutMethod
            | Self::AuthStep
            | Self::NotAuthenticated
            | Self::Closed => ReasonCode::ProtocolError,
            // Packet type 15 is reserved there.
            Self::AuthBefore5 => ReasonCode::MalformedPacket,
        }
    }
}
