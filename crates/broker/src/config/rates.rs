//! `[[rates]]`: what some clients may send in a second, and how many of them may connect.

use unbroken_broker_core::RateLimits;

use super::Listener;
use super::changes::Applies;
use super::setting::Setting;
use super::table::{Key, key};
use super::value::Kind;
use crate::bounds::RATE_RULES;

/// One of `[[rates]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateRule {
    /// Its name, for the log.
    pub name: Option<String>,
    /// Users that it is about; empty: all clients.
    pub users: Vec<String>,
    /// Names of roles that it is about; empty: all clients.
    pub roles: Vec<String>,
    /// Names of listeners that it is about; empty: all clients.
    pub listeners: Vec<String>,
    /// A list of users, roles or listeners is there and empty: it is about no client.
    pub is_for_none: bool,
    /// Which clients share what it allows.
    pub per: RatedBy,
    /// What it allows.
    pub limits: RateLimits,
}

/// Which clients share a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RatedBy {
    /// None: each client has it alone.
    #[default]
    Client,
    /// All clients of one user.
    User,
    /// All clients that it is about.
    All,
}

impl RateRule {
    /// How the log calls it.
    pub(crate) fn label(&self, index: usize) -> String {
        let name = self.name.as_ref();
        name.map_or_else(|| format!("{RATES}.{index}"), |name| format!("rate {name}"))
    }
}

/// The tables with mistakes: position, key, message, help.
pub(super) fn mistakes(
    tables: &[RateRule],
    listeners: &[Listener],
) -> Vec<(usize, &'static str, String, &'static str)> {
    let mut found = Vec::new();
    if tables.len() > RATE_RULES {
        let message = format!(
            "there are {} tables; there can be {RATE_RULES}",
            tables.len()
        );
        let help = "each client is compared with each: let `per = \"user\"` stand for many users";
        found.push((RATE_RULES, "per", message, help));
    }
    // One without a value, as in the example, is without effect.
    let is_used = |(_, table): &(usize, &RateRule)| {
        let is_for_none = table.is_for_none;
        **table
            != RateRule {
                is_for_none,
                ..RateRule::default()
            }
    };
    for (index, table) in tables.iter().enumerate().filter(is_used) {
        let RateLimits {
            max_connections,
            connections_per_second,
            ..
        } = table.limits;
        if table.limits == RateLimits::default() {
            let message = "it limits nothing".to_owned();
            let help = "add max_connections, connections_per_second, messages_per_second or \
                        bytes_per_second";
            found.push((index, "per", message, help));
        }
        for (key, limit) in [
            ("max_connections", max_connections),
            ("connections_per_second", connections_per_second),
        ] {
            if limit.is_some() && table.per == RatedBy::Client {
                let message = "one client has one connection: there is nothing to limit".to_owned();
                let help = "add `per = \"user\"` for all clients of each user together, or \
                            `per = \"all\"` for all clients of this table together";
                found.push((index, key, message, help));
            }
        }
        let is_there = |name: &String| listeners.iter().any(|it| it.name.as_ref() == Some(name));
        for name in table.listeners.iter().filter(|name| !is_there(name)) {
            let message = format!("no listener has the name `{name}`");
            let help = "give the listener this name: `name = \"NAME\"`";
            found.push((index, "listeners", message, help));
        }
    }
    found
}

/// The name of the array of tables whose keys are [`RATE_KEYS`].
pub(super) const RATES: &str = "rates";
/// What [`RATES`] is about.
pub(super) const RATES_DOC: &str = "What clients may send in a second, and how many may connect. A client has each table whose keys\n\
     # fit it, and all of them must have room; without keys a table is about all clients, and with an\n\
     # empty list about none. A client over its rate is not read until it has room again, and after\n\
     # limits.rate_patience it is disconnected. As many tables as needed. Read again on SIGHUP. See\n\
     # docs/rates.md.";

/// The keys of one `[[rates]]` table.
pub(super) const RATE_KEYS: &[Key<RateRule>] = &[
    key!("name", Kind::Text, Live, ["A name, for the log."], name),
    key!(
        "users",
        Kind::List,
        Live,
        ["Names of users, of whichever source, that it is about."],
        users
    ),
    key!(
        "roles",
        Kind::List,
        Live,
        ["Names of roles, of this file or of the store, whose clients it is about."],
        roles
    ),
    key!(
        "listeners",
        Kind::List,
        Live,
        ["Names of listeners whose clients it is about."],
        listeners
    ),
    key!(
        "per",
        Kind::Choice(&["client", "user", "all"]),
        Live,
        [
            "Which clients share what it allows. client: none, each has it alone. user: all clients of a",
            "user, on all listeners and shards; those without a user name count as one user. all: all",
            "clients that it is about."
        ],
        per
    ),
    key!(
        "max_connections",
        COUNT,
        Live,
        [
            "Connections at the same time, for per = \"user\" or \"all\". A client beyond them is refused",
            "with 0x97 (before 5.0: 3), unless it replaces a connection of its own."
        ],
        limits.max_connections
    ),
    key!(
        "connections_per_second",
        COUNT,
        Live,
        [
            "Connections in a second, for per = \"user\" or \"all\". A client beyond them is refused with",
            "0x9F (before 5.0: 3)."
        ],
        limits.connections_per_second
    ),
    key!(
        "messages_per_second",
        COUNT,
        Live,
        ["Messages that clients publish in a second. Up to one second's worth may come at once."],
        limits.messages_per_second
    ),
    key!(
        "bytes_per_second",
        Kind::Size {
            min: 1,
            max: u32::MAX as u64,
            absent: Some("unlimited")
        },
        Live,
        ["Bytes that clients send in a second, of all packets behind CONNECT, without TLS."],
        limits.bytes_per_second
    ),
];

const COUNT: Kind = Kind::Count {
    min: 1,
    max: u32::MAX as u64,
    absent: Some("unlimited"),
};

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    #[test]
    fn a_rate_limits_something_that_its_clients_share() {
        let listener = Listener {
            name: Some("public".to_owned()),
            ..Listener::default()
        };
        let found = |table: &RateRule| {
            let found = mistakes(slice::from_ref(table), slice::from_ref(&listener));
            let keys = found.into_iter().map(|(_, key, ..)| key);
            keys.collect::<Vec<_>>()
        };
        let of_connections = |per| RateRule {
            listeners: vec!["public".to_owned()],
            per,
            limits: RateLimits {
                max_connections: Some(1),
                ..RateLimits::default()
            },
            ..RateRule::default()
        };
        assert_eq!(found(&RateRule::default()), [""; 0]);
        assert_eq!(found(&of_connections(RatedBy::All)), [""; 0]);
        assert_eq!(found(&of_connections(RatedBy::Client)), ["max_connections"]);
        let mut table = of_connections(RatedBy::User);
        table.listeners.push("private".to_owned());
        assert_eq!(found(&table), ["listeners"]);
        table.limits = RateLimits::default();
        assert_eq!(found(&table), ["per", "listeners"]);
    }
}
