//! Reason codes of MQTT 5.0, which also serve as the vocabulary inside the broker for all versions.

use core::fmt;

use crate::packet::PacketType::{
    self, Auth, ConnAck, Disconnect, PubAck, PubComp, PubRec, PubRel, SubAck, UnsubAck,
};

macro_rules! reason_codes {
    ($($(#[$doc:meta])* $code:literal $variant:ident $name:literal [$($packet:ident)*];)+) => {
        /// Why something succeeded or failed, as one byte on the wire.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum ReasonCode {
            $($(#[$doc])* $variant = $code,)+
        }

        impl ReasonCode {
            /// Every reason code, in order of value.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The standard's name for it. 0x00 is "Success" in every packet.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Whether the standard lists this code for that packet.
            ///
            /// [MQTT-3.2.2-8, MQTT-3.4.2-1, MQTT-3.5.2-1, MQTT-3.6.2-1, MQTT-3.7.2-1, MQTT-3.9.3-2]
            /// [MQTT-3.11.3-2, MQTT-3.14.2-1, MQTT-3.15.2-1]
            pub const fn is_allowed_in(self, packet: PacketType) -> bool {
                match self { $(Self::$variant => matches!(packet, $($packet)|*),)+ }
            }
        }

        impl TryFrom<u8> for ReasonCode {
            type Error = UnknownReasonCode;

            fn try_from(code: u8) -> Result<Self, Self::Error> {
                match code {
                    $($code => Ok(Self::$variant),)+
                    other => Err(UnknownReasonCode(other)),
                }
            }
        }
    };
}

reason_codes! {
    /// Also Normal Disconnection (DISCONNECT) and Granted QoS 0 (SUBACK).
    #[default]
    0x00 Success "Success"
        [ConnAck PubAck PubRec PubRel PubComp SubAck UnsubAck Disconnect Auth];
    /// The subscription was accepted at QoS 1.
    0x01 GrantedQoS1 "Granted QoS 1" [SubAck];
    /// The subscription was accepted at QoS 2.
    0x02 GrantedQoS2 "Granted QoS 2" [SubAck];
    /// The client leaves and wants its will published.
    0x04 DisconnectWithWillMessage "Disconnect with Will Message" [Disconnect];
    /// Accepted, though nobody receives it.
    0x10 NoMatchingSubscribers "No matching subscribers" [PubAck PubRec];
    /// There was nothing to unsubscribe from.
    0x11 NoSubscriptionExisted "No subscription existed" [UnsubAck];
    /// Another step of the exchange follows.
    0x18 ContinueAuthentication "Continue authentication" [Auth];
    /// The client starts the exchange again.
    0x19 ReAuthenticate "Re-authenticate" [Auth];
    /// Refused without saying why.
    0x80 UnspecifiedError "Unspecified error"
        [ConnAck PubAck PubRec SubAck UnsubAck Disconnect];
    /// The bytes are not a packet of this version.
    0x81 MalformedPacket "Malformed Packet" [ConnAck Disconnect];
    /// A well-formed packet that is not allowed, or not now.
    0x82 ProtocolError "Protocol Error" [ConnAck Disconnect];
    /// Valid, but not accepted by this receiver.
    0x83 ImplementationSpecificError "Implementation specific error"
        [ConnAck PubAck PubRec SubAck UnsubAck Disconnect];
    /// The server does not speak this version.
    0x84 UnsupportedProtocolVersion "Unsupported Protocol Version" [ConnAck];
    /// Well formed, but not allowed here.
    0x85 ClientIdentifierNotValid "Client Identifier not valid" [ConnAck];
    /// Wrong credentials.
    0x86 BadUserNameOrPassword "Bad User Name or Password" [ConnAck];
    /// Known, but not allowed to do this.
    0x87 NotAuthorized "Not authorized"
        [ConnAck PubAck PubRec SubAck UnsubAck Disconnect];
    /// Out of service.
    0x88 ServerUnavailable "Server unavailable" [ConnAck];
    /// Too much to do; later may work.
    0x89 ServerBusy "Server busy" [ConnAck Disconnect];
    /// Barred by an administrator.
    0x8A Banned "Banned" [ConnAck];
    /// Going down.
    0x8B ServerShuttingDown "Server shutting down" [Disconnect];
    /// Unknown method, or not the one in use.
    0x8C BadAuthenticationMethod "Bad authentication method" [ConnAck Disconnect];
    /// Nothing heard for one and a half times the keep alive.
    0x8D KeepAliveTimeout "Keep Alive timeout" [Disconnect];
    /// Another connection uses the client identifier.
    0x8E SessionTakenOver "Session taken over" [Disconnect];
    /// Well formed, but not accepted by this server.
    0x8F TopicFilterInvalid "Topic Filter invalid" [SubAck UnsubAck Disconnect];
    /// Well formed, but not accepted by this receiver.
    0x90 TopicNameInvalid "Topic Name invalid" [ConnAck PubAck PubRec Disconnect];
    /// The identifier is taken.
    0x91 PacketIdentifierInUse "Packet Identifier in use" [PubAck PubRec SubAck UnsubAck];
    /// Nothing in flight has this identifier.
    0x92 PacketIdentifierNotFound "Packet Identifier not found" [PubRel PubComp];
    /// More unacknowledged messages than agreed.
    0x93 ReceiveMaximumExceeded "Receive Maximum exceeded" [Disconnect];
    /// 0, or above the agreed maximum.
    0x94 TopicAliasInvalid "Topic Alias invalid" [Disconnect];
    /// Longer than this receiver accepts.
    0x95 PacketTooLarge "Packet too large" [ConnAck Disconnect];
    /// Too many messages in too short a time.
    0x96 MessageRateTooHigh "Message rate too high" [Disconnect];
    /// A limit set by the server's owner.
    0x97 QuotaExceeded "Quota exceeded" [ConnAck PubAck PubRec SubAck Disconnect];
    /// Closed by an administrator.
    0x98 AdministrativeAction "Administrative action" [Disconnect];
    /// The payload is not what its indicator says.
    0x99 PayloadFormatInvalid "Payload format invalid" [ConnAck PubAck PubRec Disconnect];
    /// The server keeps no retained messages.
    0x9A RetainNotSupported "Retain not supported" [ConnAck Disconnect];
    /// Above the server's Maximum QoS.
    0x9B QoSNotSupported "QoS not supported" [ConnAck Disconnect];
    /// For now.
    0x9C UseAnotherServer "Use another server" [ConnAck Disconnect];
    /// For good.
    0x9D ServerMoved "Server moved" [ConnAck Disconnect];
    /// Not for this client or not at all.
    0x9E SharedSubscriptionsNotSupported "Shared Subscriptions not supported" [SubAck Disconnect];
    /// Too many connections in too short a time.
    0x9F ConnectionRateExceeded "Connection rate exceeded" [ConnAck Disconnect];
    /// The connection had a time limit.
    0xA0 MaximumConnectTime "Maximum connect time" [Disconnect];
    /// Not for this client or not at all.
    0xA1 SubscriptionIdentifiersNotSupported "Subscription Identifiers not supported"
        [SubAck Disconnect];
    /// Not for this client or not at all.
    0xA2 WildcardSubscriptionsNotSupported "Wildcard Subscriptions not supported"
        [SubAck Disconnect];
}

/// A byte that the standard does not list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("0x{0:02X} is not a reason code")]
pub struct UnknownReasonCode(pub u8);

impl ReasonCode {
    /// The byte on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// 0x80 and above mean that the operation failed.
    pub const fn is_error(self) -> bool {
        self.code() >= 0x80
    }

    /// The CONNACK return code of 3.1 and 3.1.1 that says nearest the same: 0 to 5.
    pub const fn to_connack_v3(self) -> u8 {
        match self {
            Self::UnsupportedProtocolVersion => 1,
            Self::ClientIdentifierNotValid => 2,
            Self::BadUserNameOrPassword => 4,
            Self::NotAuthorized | Self::Banned | Self::BadAuthenticationMethod => 5,
            other if other.is_error() => 3, // "server unavailable" is all that is left to say
            _ => 0,
        }
    }

    /// The reason code for a CONNACK return code of 3.1 and 3.1.1; `None` for the reserved 6 to
    /// 255.
    pub const fn from_connack_v3(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Success,
            1 => Self::UnsupportedProtocolVersion,
            2 => Self::ClientIdentifierNotValid,
            3 => Self::ServerUnavailable,
            4 => Self::BadUserNameOrPassword,
            5 => Self::NotAuthorized,
            _ => return None,
        })
    }
}

impl From<ReasonCode> for u8 {
    fn from(reason: ReasonCode) -> Self {
        reason.code()
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:02X} {}", self.code(), self.name())
    }
}
