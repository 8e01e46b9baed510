//! The configuration of `unbroken serve`: read, checked, explained, compared.
//!
//! Two types: `Written` has the values of all sources (file, environment, flags), each with its
//! origin; [`Config`] is complete, typed and cross-checked. [`Sources::load`] leads from one to the
//! other.
//!
//! Invariants:
//! - `table` is the only list of keys: reading, overriding, explaining, comparing and the example
//!   file all walk it, so a key cannot exist in one and be missing in another. Defaults are the
//!   `Default` of the types here and of [`Limits`].
//! - A later source wins: default, file, environment, flag. The origin of each value is kept.
//! - All mistakes of all sources are reported at once, each with its place.
//!
//! Deliberately absent: reading password files ([`crate::passwords`]), opening sockets, and
//! applying a changed configuration: [`changes`] only lists the differences.

mod admin;
mod changes;
mod error;
mod example;
mod foreign;
mod gateways;
mod http_auth;
mod listener;
mod listener_checks;
mod load;
mod network;
mod rates;
mod roles;
mod setting;
mod table;
mod table_arrays;
mod tokens;
mod units;
mod value;
mod written;

use std::path::{Path, PathBuf};
use std::time::Duration;

use unbroken_broker_core::{AuditRule, Limits};
use unbroken_store::Durability;
use unbroken_store::quarantine::OnCorruption;

pub use admin::{Admin, AdminListen, AdminMetrics, Anonymous};
pub(crate) use changes::in_force;
pub use changes::{Applies, Change, changes};
pub use error::{ConfigError, Problem};
pub use example::example;
pub use gateways::{SpGateway, SpSeparator, SpSocket};
pub use http_auth::HttpAuth;
pub use listener::{
    Address, Bind, CertificateUser, FileMode, ForwardedHeader, Listener, Protocol, Takeover, Tls,
    TlsVersion,
};
pub use load::{Effective, EffectiveValue, Sources};
pub use network::Network;
pub use rates::{RateRule, RatedBy};
pub(crate) use roles::rule_of;
pub use roles::{Role, RoleError};
pub use tokens::Jwt;
pub use unbroken_broker_core::{ClientIdSource, MountPoint};
pub use units::parse_duration;
pub use written::{FlagValue, Origin};

/// The configuration in use: complete and cross-checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The broker as a whole.
    pub broker: Broker,
    /// The listeners and their access rules. Never empty.
    pub listeners: Vec<Listener>,
    /// What clients may do; without roles everything that the listeners' lists allow.
    pub roles: Vec<Role>,
    /// What clients may send in a second.
    pub rates: Vec<RateRule>,
    /// Tokens that clients authenticate by.
    pub jwt: Vec<Jwt>,
    /// Services that say which clients may connect.
    pub http_auth: Vec<HttpAuth>,
    /// Choices that the protocol leaves to the broker.
    pub mqtt: Mqtt,
    /// Every limit.
    pub limits: Limits,
    /// Bans of addresses whose logins fail.
    pub bans: AutomaticBans,
    /// The data directory.
    pub storage: Storage,
    /// Proof of delivery.
    pub audit: Audit,
    /// The admin server, started beside the broker.
    pub admin: Admin,
    /// The log.
    pub log: Log,
    /// Gateways to nanomsg and nng, started beside the broker.
    pub gateways: Vec<SpGateway>,
}

/// `[broker]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// Shard threads; `None`: chosen by the number of cores.
    pub shards: Option<u8>,
    /// Time between two updates of the `$SYS` topics; `None`: they are not published.
    pub sys_interval: Option<Duration>,
    /// How long a stopping broker waits for clients to read what was sent to them.
    pub drain_timeout: Duration,
    /// Whether the event loop may wait to gather more messages.
    pub batching: Batching,
}

/// Whether the event loop and group commit may wait to gather more messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Batching {
    /// Under load, if that increases the throughput or lowers the cost of a message.
    #[default]
    Adaptive,
    /// Never.
    Off,
}

impl Default for Broker {
    fn default() -> Self {
        Self {
            shards: None,
            sys_interval: Some(Duration::from_secs(10)),
            drain_timeout: Duration::from_secs(5),
            batching: Batching::default(),
        }
    }
}

/// `[mqtt]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mqtt {
    /// The longest keep alive of 5.0 clients; `None`: as they request.
    pub server_keep_alive: Option<Duration>,
}

/// `[bans]`: when an address is banned because its logins have failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutomaticBans {
    /// After so many failed logins; `None`: never.
    pub failed_logins: Option<u32>,
    /// Within this time.
    pub window: Duration,
    /// For this time.
    pub duration: Duration,
}

impl Default for AutomaticBans {
    fn default() -> Self {
        Self {
            failed_logins: None,
            window: Duration::from_mins(1),
            duration: Duration::from_mins(10),
        }
    }
}

/// `[storage]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// Whether sessions, queues and retained messages are in memory only.
    pub in_memory: bool,
    /// The data directory; `None`: the user's own.
    pub directory: Option<PathBuf>,
    /// The directory of the control socket of a broker that stores nothing; `None`: it has none.
    pub control: Option<PathBuf>,
    /// Safety of acknowledged data.
    pub durability: Durability,
    /// Behaviour at a start with a damaged store.
    pub on_corruption: OnCorruption,
    /// Behaviour when the store fails.
    pub on_error: OnError,
}

/// Behaviour when the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The broker ends.
    #[default]
    Exit,
    /// The broker continues for clients that need no storage.
    ReadOnly,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            in_memory: false,
            directory: None,
            control: None,
            durability: Durability::Strict,
            on_corruption: OnCorruption::Quarantine,
            on_error: OnError::Exit,
        }
    }
}

impl Storage {
    /// The directory of the store; `None`: all data is in memory.
    pub fn place(&self) -> Option<PathBuf> {
        (!self.in_memory).then(|| self.directory.clone().unwrap_or_else(users_directory))
    }

    /// The directory of the control socket, if nothing is stored and there is one.
    pub fn memory_control(&self) -> Option<&Path> {
        self.control.as_deref().filter(|_| self.in_memory)
    }
}

/// The customary place of persistent data: of the machine for root, else of the user.
fn users_directory() -> PathBuf {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let user = nix::unistd::Uid::effective().as_raw();
    directory_of(user, variable("XDG_STATE_HOME"), variable("HOME"))
}

/// For a user without a home: a directory beside those of all users.
fn directory_of(user: u32, state: Option<PathBuf>, home: Option<PathBuf>) -> PathBuf {
    const ROOT: u32 = 0;
    if user == ROOT {
        return "/var/lib/unbroken".into();
    }
    let state = state.filter(|path| path.is_absolute());
    let home = home.filter(|path| !path.as_os_str().is_empty());
    match state.or_else(|| home.map(|home| home.join(".local/state"))) {
        Some(state) => state.join("unbroken"),
        None => format!("/var/tmp/unbroken-{user}").into(),
    }
}

/// `[audit]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Whether the broker numbers and hashes received messages.
    pub stamping: bool,
    /// The first levels of the audit's topics.
    pub prefix: String,
    /// Treatment of messages by client and topic; the first matching rule applies.
    pub rules: Vec<AuditRule>,
}

impl Default for Audit {
    fn default() -> Self {
        Self {
            stamping: true,
            prefix: "audit".to_owned(),
            rules: Vec::new(),
        }
    }
}

/// `[log]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// For people or for programs.
    pub format: LogFormat,
    /// The least severe level that is logged.
    pub level: LogLevel,
    /// Directives of `tracing`'s filter, which override `level`; `None`: none.
    pub filter: Option<String>,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            format: LogFormat::Human,
            level: LogLevel::Info,
            filter: None,
        }
    }
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One readable line for each event.
    Human,
    /// One JSON object for each event.
    Json,
}

/// The level of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the ones everybody knows")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    /// The level's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn each_user_has_a_data_directory_of_its_own() {
        let path = |text: &str| Some(PathBuf::from(text));
        for (user, state, home, expected) in [
            (0, path("/state"), path("/root"), "/var/lib/unbroken"),
            (7, path("/state"), path("/home/a"), "/state/unbroken"),
            (
                7,
                path("state"),
                path("/home/a"),
                "/home/a/.local/state/unbroken",
            ),
            (
                7,
                path(""),
                path("/home/a"),
                "/home/a/.local/state/unbroken",
            ),
            (7, None, path(""), "/var/tmp/unbroken-7"),
            (8, None, None, "/var/tmp/unbroken-8"),
        ] {
            assert_eq!(directory_of(user, state, home), Path::new(expected));
        }
    }
}
