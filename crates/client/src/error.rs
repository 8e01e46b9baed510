//! What can go wrong, one type for each thing that is asked of a client.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use unbroken_mqtt_proto::connection::{alias::AliasError, client::Violation};
use unbroken_mqtt_proto::session::{AckError, ReceiveMaximumExceeded};
use unbroken_mqtt_proto::{
    DecodeError, EncodeError, Escaped, PacketId, QoS, ReasonCode, TopicError,
};

use crate::{ConnectTo, Message, TotalDuration};

/// Why there is no connection. Cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectError {
    /// The host has no address.
    #[error("cannot find the host of {to}: {source}; check its name")]
    Resolve {
        /// Where to.
        to: ConnectTo,
        /// What the system says.
        source: Arc<io::Error>,
    },
    /// Nothing answers there.
    #[error("cannot connect to {to}: {source}; check that a broker listens there")]
    Connect {
        /// Where to.
        to: ConnectTo,
        /// The last of the host's addresses, if it has one.
        address: Option<SocketAddr>,
        /// What the system says.
        source: Arc<io::Error>,
    },
    /// What lies below MQTT could not be opened.
    #[error(
        "{to}: the TLS or WebSocket handshake failed: {source}; check certificates, names and the \
         protocol of its listener"
    )]
    Handshake {
        /// Where to.
        to: ConnectTo,
        /// What failed.
        source: Arc<io::Error>,
    },
    /// Something takes connections there and does not answer.
    #[error("{to} did not answer within one try's time; check that it is an MQTT broker")]
    NoAnswer {
        /// Where to.
        to: ConnectTo,
    },
    /// CONNACK said no.
    #[error("{to} refused the connection: {reason}{}{}", text_of(.text.as_deref()), refusal_help(*.reason))]
    Refused {
        /// Who refused.
        to: ConnectTo,
        /// Why; in 3.x the nearest.
        reason: ReasonCode,
        /// In the broker's words.
        text: Option<Arc<str>>,
    },
    /// A DISCONNECT came.
    #[error("the broker ended the connection: {reason}{}", text_of(.text.as_deref()))]
    Disconnected {
        /// Why.
        reason: ReasonCode,
        /// In the broker's words.
        text: Option<Arc<str>>,
    },
    /// The connection broke.
    #[error("the connection was lost: {}", lost(.0.as_deref()))]
    Lost(Option<Arc<io::Error>>),
    /// No sign of the broker for a whole keep alive after it was asked for one.
    #[error("the broker has been silent for longer than the keep alive")]
    Silent,
    /// The broker resumed a session although a new one was requested.
    #[error(
        "the broker resumed a session although a new one was requested: it does not keep to \
             MQTT"
    )]
    UnknownSession,
    /// The broker sent what it may not.
    #[error("the broker does not keep to MQTT: {0}")]
    Broker(BrokerFault),
    /// The application has dropped so many messages without acknowledging them that the broker
    /// would soon send nothing more. The client left the connection itself; on the next one they
    /// come again.
    #[error(
        "{count} messages were dropped without being acknowledged, half of what the broker may send \
         or more; they come again on a new connection. Acknowledge what is not wanted, too"
    )]
    LeftOpen {
        /// How many.
        count: usize,
    },
    /// The broker is to keep the session under a name that the next start would not have.
    #[error(
        "a session that is kept needs a client id that is the same at each start, or nobody could \
         take it up: give one (Options::client_id), or use another session"
    )]
    Nameless,
    /// The options cannot be put into a CONNECT.
    #[error("the options make no CONNECT: {0}")]
    Options(#[from] EncodeError),
    /// The patience ended.
    #[error("gave up after {} s; the last try: {last}", .patience.0.as_secs())]
    GaveUp {
        /// How long it lasted.
        patience: TotalDuration,
        /// Why the last try failed.
        last: Arc<Self>,
    },
    /// The application ended the client.
    #[error("the client was ended")]
    Ended,
}

/// How a broker breaks the protocol.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BrokerFault {
    /// It is no packet.
    #[error("{0}")]
    Malformed(#[from] DecodeError),
    /// Not now, or not from a broker.
    #[error("{0}")]
    Violation(#[from] Violation),
    /// An alias that is not set.
    #[error("{0}")]
    Alias(#[from] AliasError),
    /// More than was announced.
    #[error("{0}")]
    ReceiveMaximum(#[from] ReceiveMaximumExceeded),
    /// Of the wrong kind.
    #[error("{0}")]
    Acknowledgement(#[from] AckError),
    /// Enhanced authentication, which this client cannot do.
    #[error("AUTH, which was not asked for")]
    Authentication,
}

impl BrokerFault {
    /// What a 5.0 broker is told.
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::Malformed(error) => error.reason(),
            Self::Violation(error) => error.reason(),
            Self::Alias(error) => error.reason(),
            Self::ReceiveMaximum(_) => ReasonCode::ReceiveMaximumExceeded,
            Self::Acknowledgement(_) | Self::Authentication => ReasonCode::ProtocolError,
        }
    }
}

impl ConnectError {
    /// Whether another connection has the client id now; see [`TakenOver`](crate::TakenOver).
    pub fn is_taken_over(&self) -> bool {
        let taken_over = ReasonCode::SessionTakenOver;
        matches!(self, Self::Disconnected { reason, .. } if *reason == taken_over)
    }

    /// Whether there is no connection because nothing answered or the connection broke. False: the
    /// broker gave a reason, in CONNACK or DISCONNECT, or broke the protocol.
    pub fn is_loss(&self) -> bool {
        matches!(
            self,
            Self::Resolve { .. }
                | Self::Connect { .. }
                | Self::Handshake { .. }
                | Self::NoAnswer { .. }
                | Self::Lost(_)
                | Self::Silent
        )
    }

    /// Whether another try may go better.
    pub fn may_pass(&self) -> bool {
        use ReasonCode as R;
        match self {
            Self::Refused { reason, .. } | Self::Disconnected { reason, .. } => !matches!(
                reason,
                R::UnsupportedProtocolVersion
                    | R::ClientIdentifierNotValid
                    | R::BadUserNameOrPassword
                    | R::NotAuthorized
                    | R::Banned
                    | R::BadAuthenticationMethod
                    | R::SessionTakenOver
                    | R::ServerMoved
            ),
            Self::Options(_)
            | Self::Nameless
            | Self::GaveUp { .. }
            | Self::Ended
            | Self::UnknownSession => false,
            Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::Handshake { .. }
            | Self::NoAnswer { .. }
            | Self::Lost(_)
            | Self::Silent
            | Self::LeftOpen { .. }
            | Self::Broker(_) => true,
        }
    }
}

/// Why a message was not published.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PublishError {
    /// The broker did not take it.
    #[error("the broker did not take the message for {topic:?}: {reason}{}", text_of(.text.as_deref()))]
    Refused {
        /// Of the message.
        topic: Arc<str>,
        /// Of the message.
        packet_id: PacketId,
        /// Why.
        reason: ReasonCode,
        /// In the broker's words.
        text: Option<Arc<str>>,
    },
    /// The broker takes no such QoS.
    #[error("the broker takes messages of QoS {max} at most: publish at that")]
    QosNotSupported {
        /// The highest.
        max: QoS,
    },
    /// The broker does not support retained messages.
    #[error("the broker does not support retained messages: publish without retain")]
    RetainNotSupported,
    /// The message has a [topic alias](crate::Property::TopicAlias) that the broker does not take.
    #[error("the broker takes topic aliases up to {max} only")]
    TopicAliasNotSupported {
        /// The highest; 0 also where the client chooses aliases itself
        /// ([`topic_aliases_max`](crate::Limits::topic_aliases_max)).
        max: u16,
    },
    /// The broker takes no such packet.
    #[error(
        "the message for {topic:?} makes a packet of {bytes} bytes, and the broker takes {max} at most: split it"
    )]
    TooLarge {
        /// Of the message.
        topic: Arc<str>,
        /// How large.
        bytes: usize,
        /// The largest.
        max: u32,
    },
    /// It makes no packet.
    #[error("the message makes no packet: {0}")]
    Invalid(#[from] EncodeError),
    /// The client ended before the message was acknowledged: it may or may not have arrived.
    #[error("the client ended before the message was acknowledged: {0}")]
    Ended(ConnectError),
}

/// A message that was not taken, with the message.
#[derive(Debug, thiserror::Error)]
pub enum TrySendError {
    /// As many messages as the limits allow are unfinished.
    #[error(
        "{unfinished_max} messages are unfinished, the most that the limits allow: try later or wait with publish"
    )]
    Full {
        /// The limit.
        unfinished_max: usize,
        /// The message.
        message: Box<Message>,
    },
    /// The client has ended.
    #[error("the client has ended: {why}")]
    Ended {
        /// Why.
        why: ConnectError,
        /// The message.
        message: Box<Message>,
    },
}

impl TrySendError {
    /// The message that was not taken.
    pub fn into_message(self) -> Message {
        match self {
            Self::Full { message, .. } | Self::Ended { message, .. } => *message,
        }
    }
}

/// Why there is no subscription.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SubscribeError {
    /// A filter is none.
    #[error("{filter:?} is no filter: {source}")]
    Filter {
        /// As it was written.
        filter: String,
        /// What is wrong with it.
        source: TopicError,
    },
    /// The broker did not take it. None of the subscription's filters is kept.
    #[error("the broker refused the filter {filter:?}: {reason}")]
    Refused {
        /// Which.
        filter: Arc<str>,
        /// Why; in 3.x there is one reason for all.
        reason: ReasonCode,
    },
    /// More filters than the limits allow.
    #[error(
        "{filters_max} filters are the most that the limits allow: end subscriptions or raise filters_max"
    )]
    TooMany {
        /// The limit.
        filters_max: usize,
    },
    /// It makes no packet.
    #[error("the subscription makes no packet: {0}")]
    Invalid(#[from] EncodeError),
    /// The broker takes no such packet.
    #[error("the packet has {bytes} bytes, and the broker takes {max} at most")]
    TooLarge {
        /// How large.
        bytes: usize,
        /// The largest.
        max: u32,
    },
    /// There is no connection, or it ended before the broker answered.
    #[error("the connection ended before the broker answered")]
    NotAnswered,
    /// The client ended first.
    #[error("the client ended: {0}")]
    Ended(ConnectError),
}

fn text_of(text: Option<&str>) -> String {
    text.map_or(String::new(), |text| format!(" ({})", Escaped::new(text)))
}

fn lost(error: Option<&io::Error>) -> String {
    error.map_or("the broker closed it".to_owned(), ToString::to_string)
}

fn refusal_help(reason: ReasonCode) -> &'static str {
    match reason {
        ReasonCode::BadUserNameOrPassword | ReasonCode::NotAuthorized => {
            "; check user name and password"
        }
        ReasonCode::UnsupportedProtocolVersion => "; try another version",
        ReasonCode::ClientIdentifierNotValid => "; choose another client id",
        _ => "",
    }
}
