//! What can go wrong between a client and its broker, and the number that Mosquitto's commands exit
//! with for it.

use std::io;
use std::net::SocketAddr;

use unbroken_mqtt_proto::connection::{alias::AliasError, client::Violation};
use unbroken_mqtt_proto::session::{AckError, ReceiveMaximumExceeded};
use unbroken_mqtt_proto::{DecodeError, EncodeError, QoS, ReasonCode, Version};

/// Why a connection could not be made or did not last.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("Unable to connect: the host {host} cannot be found: {source}")]
    Resolve { host: String, source: io::Error },
    #[error("Unable to connect to {address}: {source}{}", connect_help(.source))]
    Connect {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("the broker did not answer the CONNECT within 30 seconds; is it an MQTT broker?")]
    NoAnswer,
    #[error("{}", refusal(*.version, *.reason, .text.as_deref()))]
    Refused {
        version: Version,
        reason: ReasonCode,
        text: Option<String>,
    },
    #[error("the broker ended the connection: {reason}{}", with_text(.text.as_deref()))]
    Disconnected {
        reason: ReasonCode,
        text: Option<String>,
    },
    #[error("the connection was lost{}", because(.0.as_ref()))]
    Lost(Option<io::Error>),
    #[error("the broker wants to continue an authentication, which this command cannot do")]
    AuthenticationContinues,
    #[error("the broker takes messages of QoS {max} at most")]
    QosNotSupported { max: QoS },
    #[error("the broker keeps no retained messages; publish without -r")]
    RetainNotSupported,
    #[error("the broker takes topic aliases up to {max} only")]
    TopicAliasInvalid { max: u16 },
    #[error("the broker goes on with a session that was to begin anew")]
    UnknownSession,
    #[error("the packet has {length} bytes, and the broker takes {max} at most")]
    TooLarge { length: usize, max: u32 },
    #[error("cannot send this: {0}")]
    Encode(#[from] EncodeError),
    #[error("the broker sent what is not MQTT: {0}")]
    Malformed(DecodeError),
    #[error("the broker sent what it may not: {0}")]
    Violation(#[from] Violation),
    #[error("the broker sent what it may not: {0}")]
    Alias(#[from] AliasError),
    #[error("the broker sent what it may not: {0}")]
    ReceiveMaximum(#[from] ReceiveMaximumExceeded),
    #[error("the broker sent what it may not: {0}")]
    Acknowledgement(AckError),
    #[error("{0}")]
    Io(io::Error),
}

impl ClientError {
    /// CONNACK's code as it was sent, or libmosquitto's number for the error.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Refused {
                version: Version::V5,
                reason,
                ..
            }
            | Self::Disconnected { reason, .. } => reason.code(),
            Self::Refused { reason, .. } => reason.to_connack_v3(),
            Self::Malformed(_)
            | Self::Violation(_)
            | Self::Alias(_)
            | Self::ReceiveMaximum(_)
            | Self::AuthenticationContinues
            | Self::UnknownSession
            | Self::Acknowledgement(_) => 2,
            Self::Lost(_) => 7,
            Self::TooLarge { .. } => 25,
            Self::QosNotSupported { .. } => 24,
            Self::RetainNotSupported => 28,
            Self::TopicAliasInvalid { .. } => 29,
            Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::NoAnswer
            | Self::Encode(_)
            | Self::Io(_) => 1,
        }
    }

    /// What a 5.0 broker is told if the error is its own.
    pub(super) fn broker_fault(&self) -> Option<ReasonCode> {
        match self {
            Self::Malformed(error) => Some(error.reason()),
            Self::Violation(error) => Some(error.reason()),
            Self::Alias(error) => Some(error.reason()),
            Self::ReceiveMaximum(_) => Some(ReasonCode::ReceiveMaximumExceeded),
            Self::Acknowledgement(_) => Some(ReasonCode::ProtocolError),
            _ => None,
        }
    }

    /// Whether another attempt may go better.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Lost(_) | Self::Connect { .. } | Self::Resolve { .. } | Self::NoAnswer
        )
    }
}

fn refusal(version: Version, reason: ReasonCode, text: Option<&str>) -> String {
    let why = match (version, reason.to_connack_v3()) {
        (Version::V5, _) => reason.name(),
        (_, 1) => "unacceptable protocol version",
        (_, 2) => "identifier rejected",
        (_, 3) => "broker unavailable",
        (_, 4) => "bad user name or password",
        (_, 5) => "not authorised",
        _ => "unknown reason",
    };
    let help = match reason {
        ReasonCode::BadUserNameOrPassword | ReasonCode::NotAuthorized => {
            "; give a user name with -u and its password with -P"
        }
        ReasonCode::UnsupportedProtocolVersion => "; try another version with -V",
        ReasonCode::ClientIdentifierNotValid => "; give another client id with -i",
        _ => "",
    };
    // A broker without more to say repeats the reason.
    let text = text.filter(|text| !text.eq_ignore_ascii_case(why));
    format!("Connection refused: {why}{}{help}", with_text(text))
}

fn with_text(text: Option<&str>) -> String {
    text.map_or(String::new(), |text| format!(" ({})", text.escape_debug()))
}

fn because(error: Option<&io::Error>) -> String {
    error.map_or(String::new(), |error| format!(": {error}"))
}

fn connect_help(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "; no broker listens there: check -h and -p, or start one with `unbroken serve`"
        }
        io::ErrorKind::TimedOut => "; check -h and -p, and the firewalls between",
        _ => "",
    }
}
