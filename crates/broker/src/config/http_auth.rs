//! `[[http_auth]]`: services that are asked which clients may connect.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use super::Listener;
use super::changes::Applies;
use super::setting::Setting;
use super::table::{Key, key};
use super::tokens::{SAFE_URL, is_safe_url};
use super::value::Kind;

/// One of `[[http_auth]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAuth {
    /// The name by which listeners refer to it.
    pub name: String,
    /// Where it is asked.
    pub url: String,
    /// Authorities of its certificate; `None`: the system's.
    pub ca_file: Option<PathBuf>,
    /// A file with the value of the header `Authorization`; `None`: there is none.
    pub authorization_file: Option<PathBuf>,
    /// How long one question may take.
    pub timeout: Duration,
    /// Questions at the same time.
    pub connections: u32,
    /// How long an answer holds for the same client; `None`: it is asked each time.
    pub cache_ttl: Option<Duration>,
    /// Answers that are remembered.
    pub cache_entries: u32,
}

impl Default for HttpAuth {
    fn default() -> Self {
        Self {
            name: String::new(),
            url: String::new(),
            ca_file: None,
            authorization_file: None,
            timeout: Duration::from_secs(5),
            connections: 8,
            cache_ttl: Some(Duration::from_secs(30)),
            cache_entries: 10_000,
        }
    }
}

/// The tables with mistakes: position, key, message, help.
pub(super) fn mistakes(
    tables: &[HttpAuth],
    listeners: &[Listener],
) -> Vec<(usize, &'static str, String, &'static str)> {
    let mut names = BTreeSet::new();
    let mut found = Vec::new();
    let is_used = |(_, table): &(usize, &HttpAuth)| **table != HttpAuth::default();
    // One without a value, as in the example, is never asked.
    for (index, table) in tables.iter().enumerate().filter(is_used) {
        let mut wrong = |key, message, help| found.push((index, key, message, help));
        if table.name.is_empty() {
            let message = "it has no name".to_owned();
            wrong("name", message, "listeners refer to it by its name");
        }
        if !is_safe_url(&table.url) {
            let message = "it is no URL that begins with https://".to_owned();
            wrong("url", message, SAFE_URL);
        }
        if !names.insert(&table.name) {
            let message = format!("another table is called `{}` too", table.name);
            wrong("name", message, "give each its own name");
        }
        if !listeners
            .iter()
            .any(|it| it.http_auth.contains(&table.name))
        {
            let message = format!("no listener uses `{}`", table.name);
            let help = "in a `[[listeners]]` table add its name: `http_auth = [\"NAME\"]`";
            wrong("name", message, help);
        }
    }
    found
}

/// Names of tables that listeners use and that are not there: position of the listener, name.
pub(super) fn missing(tables: &[HttpAuth], listeners: &[Listener]) -> Vec<(usize, String)> {
    let is_there = |name: &String| tables.iter().any(|table| table.name == *name);
    let listeners = listeners.iter().enumerate();
    let missing = listeners.flat_map(|(index, listener)| {
        let names = listener.http_auth.iter().filter(|name| !is_there(name));
        names.map(move |name| (index, name.clone()))
    });
    missing.collect()
}

/// The name of the array of tables whose keys are [`HTTP_AUTH_KEYS`].
pub(super) const HTTP_AUTH: &str = "http_auth";
/// What [`HTTP_AUTH`] is about.
pub(super) const HTTP_AUTH_DOC: &str = "Services that are asked over HTTP whether a client may connect, for listeners whose `http_auth`\n\
     # names the table. As many tables as needed. Read again on SIGHUP. See docs/authentication.md.";

/// The keys of one `[[http_auth]]` table.
pub(super) const HTTP_AUTH_KEYS: &[Key<HttpAuth>] = &[
    key!(
        "name",
        Kind::Text,
        Live,
        ["A name, for listeners and the log."],
        name
    ),
    key!(
        "url",
        Kind::Text,
        Live,
        [
            "Where each client is POSTed as JSON: \"https://HOST/PATH\", or http:// on this machine. A",
            "service that does not answer lets in nobody."
        ],
        url
    ),
    key!(
        "ca_file",
        Kind::Path,
        Live,
        ["Authorities of its certificate, in PEM. Empty: the system's."],
        ca_file
    ),
    key!(
        "authorization_file",
        Kind::Path,
        Live,
        [
            "A file with the value of the header Authorization, such as \"Bearer …\", by which the",
            "service knows the broker."
        ],
        authorization_file
    ),
    key!(
        "timeout",
        Kind::Time {
            min: Duration::from_millis(100),
            max: Duration::from_mins(1),
            absent: None
        },
        Live,
        ["How long one question may take, with opening the connection."],
        timeout
    ),
    key!(
        "connections",
        Kind::Count {
            min: 1,
            max: 64,
            absent: None
        },
        Live,
        ["Questions at the same time; a thread and a connection each. Other clients wait."],
        connections
    ),
    key!(
        "cache_ttl",
        Kind::Time {
            min: Duration::from_secs(1),
            max: Duration::from_hours(24),
            absent: Some("off")
        },
        Live,
        [
            "How long an answer holds for a client that shows the same again. \"off\": it is asked each",
            "time."
        ],
        cache_ttl
    ),
    key!(
        "cache_entries",
        Kind::Count {
            min: 1,
            max: 1_000_000,
            absent: None
        },
        Live,
        ["Answers that are remembered, about 200 bytes each and their roles."],
        cache_entries
    ),
];

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    #[test]
    fn a_service_has_a_name_a_safe_url_and_a_listener() {
        let valid = HttpAuth {
            name: "hook".to_owned(),
            url: "https://example.org/mqtt".to_owned(),
            ..HttpAuth::default()
        };
        let user = Listener {
            http_auth: vec!["hook".to_owned()],
            ..Listener::default()
        };
        let found = |tables: &[HttpAuth], listener: &Listener| {
            let found = mistakes(tables, slice::from_ref(listener));
            let keys = found.into_iter().map(|(index, key, ..)| (index, key));
            keys.collect::<Vec<_>>()
        };
        assert_eq!(found(slice::from_ref(&valid), &user), []);
        assert_eq!(found(&[valid.clone(), valid.clone()], &user), [(1, "name")]);
        assert_eq!(
            found(slice::from_ref(&valid), &Listener::default()),
            [(0, "name")]
        );
        let open = HttpAuth {
            url: "http://example.org/mqtt".to_owned(),
            ..valid
        };
        assert_eq!(found(&[open], &user), [(0, "url")]);
        let missing = missing(&[], slice::from_ref(&user));
        assert_eq!(missing, [(0, "hook".to_owned())]);
    }
}
