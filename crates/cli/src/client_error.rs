//! Errors between `pub` or `sub` and the broker, with the exit codes of Mosquitto's commands.

use std::fmt;
use std::io;

use unbroken_client::{
    BrokerFault, ConnectError, PublishError, ReasonCode, SubscribeError, Version,
};
use unbroken_mqtt_proto::Escaped;

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) enum ClientError {
    Connection { why: ConnectError, version: Version },
    Publish(PublishError),
    Subscribe(SubscribeError),
    Io(io::Error),
}

impl ClientError {
    pub(crate) fn connection(why: ConnectError, version: Version) -> Self {
        Self::Connection { why, version }
    }

    pub(crate) fn publish(why: PublishError, version: Version) -> Self {
        match why {
            PublishError::Ended(why) => Self::Connection { why, version },
            why => Self::Publish(why),
        }
    }

    pub(crate) fn subscribe(why: SubscribeError, version: Version) -> Self {
        match why {
            SubscribeError::Ended(why) => Self::Connection { why, version },
            why => Self::Subscribe(why),
        }
    }

    /// CONNACK's code as it was sent, or libmosquitto's number for the error.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Connection { why, version } => match why {
                ConnectError::Refused { reason, .. } if *version != Version::V5 => {
                    reason.to_connack_v3()
                }
                ConnectError::Refused { reason, .. }
                | ConnectError::Disconnected { reason, .. } => reason.code(),
                ConnectError::Broker(_) | ConnectError::UnknownSession => 2,
                ConnectError::Lost(_) | ConnectError::Silent => 7,
                ConnectError::Handshake { .. } => 8,
                _ => 1,
            },
            Self::Publish(PublishError::QosNotSupported { .. }) => 24,
            Self::Publish(PublishError::TooLarge { .. })
            | Self::Subscribe(SubscribeError::TooLarge { .. }) => 25,
            Self::Publish(PublishError::RetainNotSupported) => 28,
            Self::Publish(PublishError::TopicAliasNotSupported { .. }) => 29,
            Self::Publish(_) | Self::Subscribe(_) | Self::Io(_) => 1,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection { why, version } => connection(f, why, *version),
            Self::Publish(PublishError::QosNotSupported { max }) => {
                write!(f, "the broker takes messages of QoS {max} at most")
            }
            Self::Publish(PublishError::RetainNotSupported) => {
                write!(
                    f,
                    "the broker does not support retained messages; publish without -r"
                )
            }
            Self::Publish(PublishError::TooLarge { bytes, max, .. }) => {
                write!(
                    f,
                    "the packet has {bytes} bytes, and the broker takes {max} at most"
                )
            }
            Self::Publish(why) => write!(f, "{why}"),
            Self::Subscribe(why) => write!(f, "{why}"),
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}

fn connection(f: &mut fmt::Formatter<'_>, why: &ConnectError, version: Version) -> fmt::Result {
    match why {
        ConnectError::Resolve { to, source } => {
            let host = to.host();
            write!(
                f,
                "Unable to connect: the host {host} cannot be found: {source}"
            )
        }
        ConnectError::Connect {
            to,
            address,
            source,
        } => {
            let address = address.map_or(to.to_string(), |address| address.to_string());
            write!(
                f,
                "Unable to connect to {address}: {source}{}",
                connect_help(source)
            )
        }
        ConnectError::Handshake { to, source } => write!(
            f,
            "Unable to connect to {to}: {source}{}",
            handshake_help(source)
        ),
        ConnectError::NoAnswer { to } => write!(
            f,
            "Unable to connect to {to}: no answer within 30 seconds; is it an MQTT broker, with no firewall between?"
        ),
        ConnectError::Refused { reason, text, .. } => {
            f.write_str(&refusal(version, *reason, text.as_deref()))
        }
        ConnectError::Lost(error) => {
            let because = error.as_ref().map(|error| format!(": {error}"));
            write!(f, "the connection was lost{}", because.unwrap_or_default())
        }
        ConnectError::Silent => write!(f, "the connection was lost: {why}"),
        ConnectError::UnknownSession => {
            write!(
                f,
                "the broker resumed a session although a new one was requested"
            )
        }
        ConnectError::Broker(BrokerFault::Malformed(error)) => {
            write!(f, "the broker sent what is not MQTT: {error}")
        }
        ConnectError::Broker(BrokerFault::Authentication) => write!(
            f,
            "the broker wants to continue an authentication, which this command cannot do"
        ),
        ConnectError::Broker(fault) => write!(f, "the broker sent what it may not: {fault}"),
        ConnectError::Options(error) => write!(f, "cannot send this: {error}"),
        why => write!(f, "{why}"),
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
    let text = text.map(|text| format!(" ({})", Escaped::new(text)));
    format!(
        "Connection refused: {why}{}{help}",
        text.unwrap_or_default()
    )
}

/// By what the libraries say: they have no codes for these.
fn handshake_help(error: &io::Error) -> &'static str {
    let text = error.to_string();
    let helps = [
        (
            "BadSignature",
            "; name the authority of its certificate with --cafile",
        ),
        (
            "UnknownIssuer",
            "; name the authority of its certificate with --cafile",
        ),
        (
            "not valid for name",
            "; check -h, or accept any host with --insecure",
        ),
        (
            "NotValidForName",
            "; check -h, or accept any host with --insecure",
        ),
        (
            "InvalidContentType",
            "; its listener may speak no TLS: check -p",
        ),
        ("HTTP/1.1", "; check -p and --ws-path"),
        ("WebSocket", "; check -p and --ws-path"),
    ];
    let help = helps.iter().find(|(part, _)| text.contains(part));
    help.map_or("", |(_, help)| help)
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
