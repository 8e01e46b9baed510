//! Connections of the admin server to its own broker, as a client on a listener of this machine.
//!
//! Where clients must have a name, a user of the store is added with a random password and a role
//! for a few topics, and removed with the last use.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use axum::http::StatusCode;
use unbroken_broker::BrokerHandle;
use unbroken_broker::config::Protocol;
use unbroken_broker::passwords::{Scheme, make_hash};
use unbroken_broker::stored_access::{Change, Hash, Holder};
use unbroken_client::{ConnectError, Options, RetryDuration, TotalDuration};
use unbroken_demo::random_lane;

use crate::broker::Broker;
use crate::problem::Problem;

/// Where to connect to, and as whom.
#[derive(Debug)]
pub(crate) struct Inside {
    pub(crate) address: SocketAddr,
    user: Option<User>,
}

/// A user that is there while this is.
struct User {
    name: String,
    password: String,
    handle: BrokerHandle,
}

impl Inside {
    /// Finds a way, for clients that need these rules.
    pub(crate) async fn open(broker: &Broker, rules: Vec<String>) -> Result<Self, Problem> {
        let Some(address) = loopback(broker.handle()) else {
            let detail = "no listener speaks plain MQTT over TCP without a proxy: add one on \
                          loopback, such as `bind = \"127.0.0.1\"`";
            return Err(Problem::new(StatusCode::CONFLICT, detail));
        };
        let plain = Self {
            address,
            user: None,
        };
        let has_rules = has_rules(broker.handle());
        if !has_rules && plain.is_admitted().await.is_ok() {
            return Ok(plain);
        }
        let user = broker
            .ask(move |handle| User::add(handle.clone(), &rules))
            .await;
        let user = user.map_err(|why| Problem::new(StatusCode::SERVICE_UNAVAILABLE, why))??;
        let named = Self {
            address,
            user: Some(user),
        };
        match named.is_admitted().await {
            Ok(()) => Ok(named),
            Err(why) => {
                let detail = format!(
                    "the listener on {address} does not let in a user of the store ({why}): set \
                     `stored_users` there, or add a listener on loopback that does"
                );
                Err(Problem::new(StatusCode::CONFLICT, detail))
            }
        }
    }

    /// How to connect through `address`.
    pub(crate) fn options(&self, address: SocketAddr) -> Options {
        let pause = |ms| RetryDuration(Duration::from_millis(ms));
        let options = Options::from(address).pauses(pause(20), pause(500));
        match &self.user {
            None => options,
            Some(user) => options.credentials(user.name.as_str(), user.password.as_str()),
        }
    }

    async fn is_admitted(&self) -> Result<(), ConnectError> {
        let options = self
            .options(self.address)
            .patience(TotalDuration(Duration::ZERO));
        options.connect().await?.disconnect().await;
        Ok(())
    }
}

/// An address of an open listener that this process reaches without TLS.
fn loopback(handle: &BrokerHandle) -> Option<SocketAddr> {
    let open = handle.listeners().iter();
    let plain =
        open.filter(|open| open.protocol == Protocol::Mqtt && open.trusted_proxies.is_empty());
    let mut addresses: Vec<SocketAddr> = plain.filter_map(|open| open.address.tcp()).collect();
    addresses.sort_by_key(|address| !address.ip().is_loopback());
    let address = addresses.first()?;
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    Some(SocketAddr::new(ip, address.port()))
}

/// Whether clients without a name may be restricted.
fn has_rules(handle: &BrokerHandle) -> bool {
    let config = handle.config();
    !config.roles.is_empty() || config.listeners.iter().any(|it| it.acl_file.is_some())
}

impl User {
    fn add(handle: BrokerHandle, rules: &[String]) -> Result<Self, Problem> {
        let name = format!("{USER_PREFIX}{}", random_lane());
        let password = format!("{}{}", random_lane(), random_lane());
        let failed = |why: String| Problem::new(StatusCode::CONFLICT, why);
        let hash = make_hash(password.as_bytes(), Scheme::Pbkdf2);
        let hash = Hash(hash.map_err(|error| failed(error.to_string()))?);
        let user = Self {
            name: name.clone(),
            password,
            handle,
        };
        let role = || name.clone();
        let changes = [
            Change::AddUser {
                name: name.clone(),
                hash,
            },
            Change::AddRole { name: role() },
        ];
        let rules = rules.iter().map(|rule| Change::AddRule {
            role: role(),
            denies: false,
            text: rule.clone(),
        });
        let grant = Change::Grant {
            role: role(),
            to: Holder::User(name.clone()),
        };
        for change in changes.into_iter().chain(rules).chain([grant]) {
            let changed = user.handle.change_access(&change);
            changed.map_err(|error| failed(error.to_string()))?;
        }
        Ok(user)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        remove(self.handle.clone(), vec![self.name.clone()]);
    }
}

/// Removes users and roles that a run has left which was killed.
pub(crate) fn remove_leftovers(handle: &BrokerHandle) {
    let left: BTreeSet<String> = handle.stored_access(|stored| {
        let names = stored.users().keys().chain(stored.roles().keys());
        let names = names.filter(|name| name.starts_with(USER_PREFIX));
        names.cloned().collect()
    });
    if !left.is_empty() {
        remove(handle.clone(), left.into_iter().collect());
    }
}

/// On a thread: it waits for the disk, and who asks for it may not.
fn remove(handle: BrokerHandle, names: Vec<String>) {
    std::thread::spawn(move || {
        for name in names {
            let (user, role) = handle.stored_access(|stored| {
                let has_user = stored.users().contains_key(&name);
                (has_user, stored.roles().contains_key(&name))
            });
            let changes = [
                user.then(|| Change::RemoveUser { name: name.clone() }),
                role.then(|| Change::RemoveRole { name: name.clone() }),
            ];
            for change in changes.into_iter().flatten() {
                if let Err(error) = handle.change_access(&change) {
                    tracing::warn!(%error, "a user of the admin server cannot be removed");
                }
            }
        }
    });
}

/// Of users of the store that are the admin server's.
const USER_PREFIX: &str = "unbroken-inside-";

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("User");
        shown.field("name", &self.name).finish_non_exhaustive()
    }
}
