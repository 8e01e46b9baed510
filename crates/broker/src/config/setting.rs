//! Fields of the configuration to and from [`Value`], each type once.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use unbroken_broker_core::{AuditAction, DeniedPublish, Effect, MountPoint, QueueFull, StoreFull};

use unbroken_store::Durability;
use unbroken_store::quarantine::OnCorruption;

use super::value::Value;
use super::{
    AdminListen, AdminMetrics, Anonymous, Batching, Bind, CertificateUser, ClientIdSource,
    FileMode, ForwardedHeader, LogFormat, LogLevel, Network, OnError, Protocol, RatedBy,
    SpSeparator, SpSocket, Takeover, TlsVersion,
};

/// A field's own type, to and from [`Value`]. `from_value` gets only what the key's kind let
/// through.
pub(super) trait Setting: Sized {
    fn to_value(&self) -> Value;
    fn from_value(value: Value) -> Option<Self>;
}

macro_rules! number_settings {
    ($($number:ty),*) => {$(
        impl Setting for $number {
            fn to_value(&self) -> Value {
                Value::Number(u64::from(*self))
            }
            fn from_value(value: Value) -> Option<Self> {
                match value {
                    Value::Number(n) => n.try_into().ok(),
                    _ => None,
                }
            }
        }
    )*};
}
number_settings!(u8, u16, u32, u64);

impl Setting for bool {
    fn to_value(&self) -> Value {
        Value::Flag(*self)
    }
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Flag(flag) => Some(flag),
            _ => None,
        }
    }
}

impl Setting for Duration {
    fn to_value(&self) -> Value {
        Value::Time(*self)
    }
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Time(time) => Some(time),
            _ => None,
        }
    }
}

impl Setting for String {
    fn to_value(&self) -> Value {
        Value::Text(self.clone())
    }
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Text(text) => Some(text),
            Value::Absent => Some(Self::new()),
            _ => None,
        }
    }
}

impl Setting for Vec<String> {
    fn to_value(&self) -> Value {
        Value::List(self.clone())
    }
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::List(texts) => Some(texts),
            _ => None,
        }
    }
}

impl Setting for PathBuf {
    fn to_value(&self) -> Value {
        Value::Text(self.display().to_string())
    }
    fn from_value(value: Value) -> Option<Self> {
        String::from_value(value).map(Self::from)
    }
}

impl Setting for Bind {
    fn to_value(&self) -> Value {
        Value::List(self.addresses().iter().map(IpAddr::to_string).collect())
    }
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::List(texts) => {
                let addresses = texts.iter().map(|text| text.parse().ok());
                Self::new(addresses.collect::<Option<_>>()?)
            }
            _ => None,
        }
    }
}

impl Setting for Vec<PathBuf> {
    fn to_value(&self) -> Value {
        Value::List(self.iter().map(|path| path.display().to_string()).collect())
    }
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::List(paths) => Some(paths.into_iter().map(PathBuf::from).collect()),
            _ => None,
        }
    }
}

impl Setting for Vec<Network> {
    fn to_value(&self) -> Value {
        Value::List(self.iter().map(Network::to_string).collect())
    }
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::List(texts) => texts.iter().map(|text| text.parse().ok()).collect(),
            _ => None,
        }
    }
}

impl Setting for AdminListen {
    fn to_value(&self) -> Value {
        Value::Text(self.to_string())
    }
    fn from_value(value: Value) -> Option<Self> {
        String::from_value(value)?.parse().ok()
    }
}

impl Setting for FileMode {
    fn to_value(&self) -> Value {
        Value::Text(self.to_string())
    }
    fn from_value(value: Value) -> Option<Self> {
        Self::parse(&String::from_value(value)?)
    }
}

impl Setting for MountPoint {
    fn to_value(&self) -> Value {
        Value::Text(self.as_str().to_owned())
    }
    fn from_value(value: Value) -> Option<Self> {
        Self::parse(&String::from_value(value)?).ok()
    }
}

impl<T: Setting> Setting for Option<T> {
    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::Absent, T::to_value)
    }
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Absent => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

macro_rules! word_settings {
    ($($word:ty { $($variant:ident = $text:literal),+ })*) => {$(
        impl Setting for $word {
            fn to_value(&self) -> Value {
                let text = match self {
                    $(Self::$variant => $text,)+
                };
                Value::Text(text.to_owned())
            }
            fn from_value(value: Value) -> Option<Self> {
                match value {
                    Value::Text(text) => match &*text {
                        $($text => Some(Self::$variant),)+
                        _ => None,
                    },
                    _ => None,
                }
            }
        }
    )*};
}
word_settings! {
    Durability { Strict = "strict", Relaxed = "relaxed", Off = "off" }
    OnCorruption { Quarantine = "quarantine", Refuse = "refuse" }
    Batching { Adaptive = "adaptive", Off = "off" }
    OnError { Exit = "exit", ReadOnly = "read_only" }
    DeniedPublish { Acknowledge = "acknowledge", Disconnect = "disconnect" }
    QueueFull { DropOldest = "drop_oldest", Refuse = "refuse" }
    StoreFull { DropOldest = "drop_oldest", Refuse = "refuse" }
    LogFormat { Human = "human", Json = "json" }
    Effect { Allow = "allow", Deny = "deny" }
    RatedBy { Client = "client", User = "user", All = "all" }
    Protocol { Mqtt = "mqtt", Mqtts = "mqtts", Ws = "ws", Wss = "wss" }
    CertificateUser {
        Off = "off", CommonName = "common_name", Dns = "dns", Email = "email", Uri = "uri"
    }
    ClientIdSource { Connect = "connect", User = "user" }
    Takeover { SameUser = "same_user", Anyone = "anyone" }
    ForwardedHeader { Off = "off", Forwarded = "forwarded", XForwardedFor = "x-forwarded-for" }
    TlsVersion { V1_2 = "1.2", V1_3 = "1.3" }
    SpSocket {
        Pub = "pub", Sub = "sub", Push = "push", Pull = "pull", Req = "req", Rep = "rep"
    }
    SpSeparator {
        Auto = "auto", None = "none", Nul = "nul", Space = "space", Newline = "newline"
    }
    AdminMetrics { Open = "open", Token = "token" }
    Anonymous { Off = "off", Viewer = "viewer" }
    AuditAction { Stamp = "stamp", Verify = "verify", Off = "off" }
}

impl Setting for LogLevel {
    fn to_value(&self) -> Value {
        Value::Text(self.as_str().to_owned())
    }
    fn from_value(value: Value) -> Option<Self> {
        [
            Self::Error,
            Self::Warn,
            Self::Info,
            Self::Debug,
            Self::Trace,
        ]
        .into_iter()
        .find(|level| level.to_value() == value)
    }
}

/// Seconds that the protocol carries as a number with `u32::MAX` for "without end".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExpirySeconds(pub(super) u32);

impl Setting for ExpirySeconds {
    fn to_value(&self) -> Value {
        match self.0 {
            u32::MAX => Value::Absent,
            seconds => Value::Time(Duration::from_secs(seconds.into())),
        }
    }
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Absent => Some(Self(u32::MAX)),
            Value::Time(time) => time.as_secs().try_into().ok().map(Self),
            _ => None,
        }
    }
}
