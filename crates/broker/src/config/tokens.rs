//! `[[jwt]]`: tokens by which clients authenticate, and the keys that verify them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use super::Listener;
use super::changes::Applies;
use super::setting::Setting;
use super::table::{Key, key};
use super::value::Kind;

/// One of `[[jwt]]`: how tokens of one issuer are verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jwt {
    /// The name by which listeners refer to it.
    pub name: String,
    /// The signatures that are accepted, by their names in RFC 7518.
    pub algorithms: Vec<String>,
    /// A secret for `HS…`, or a public key in PEM.
    pub key_file: Option<PathBuf>,
    /// A set of keys, as RFC 7517 has it.
    pub jwks_file: Option<PathBuf>,
    /// Where such a set is fetched from.
    pub jwks_url: Option<String>,
    /// Authorities of the server of that URL; `None`: the system's.
    pub ca_file: Option<PathBuf>,
    /// Time between two fetches.
    pub refresh: Duration,
    /// The issuer that a token must name; `None`: it need not name one.
    pub issuer: Option<String>,
    /// Audiences of which a token must name one; empty: it must name none.
    pub audience: Vec<String>,
    /// By how much clocks may differ.
    pub leeway: Duration,
    /// Whether a token without an end is refused.
    pub require_expiry: bool,
    /// The claim that names the user.
    pub user_claim: String,
    /// Whether the user name of CONNECT must be the same.
    pub match_user_name: bool,
    /// The claim that lists roles.
    pub roles_claim: String,
}

impl Default for Jwt {
    fn default() -> Self {
        Self {
            name: String::new(),
            algorithms: Vec::new(),
            key_file: None,
            jwks_file: None,
            jwks_url: None,
            ca_file: None,
            refresh: Duration::from_mins(10),
            issuer: None,
            audience: Vec::new(),
            leeway: Duration::from_secs(30),
            require_expiry: true,
            user_claim: "sub".to_owned(),
            match_user_name: false,
            roles_claim: "roles".to_owned(),
        }
    }
}

/// Key, message, help.
pub(super) type Mistake = (&'static str, String, &'static str);

impl Jwt {
    fn mistakes(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let mut wrong = |key, message: &str, help| mistakes.push((key, message.to_owned(), help));
        if self.name.is_empty() {
            wrong(
                "name",
                "it has no name",
                "listeners refer to it by its name",
            );
        }
        let sources = [
            self.key_file.is_some(),
            self.jwks_file.is_some(),
            self.jwks_url.is_some(),
        ];
        if sources.into_iter().filter(|is_there| *is_there).count() != 1 {
            wrong(
                "key_file",
                "there is not exactly one source of keys",
                "give one of `key_file`, `jwks_file` and `jwks_url`",
            );
        }
        if let Some(url) = &self.jwks_url
            && !is_safe_url(url)
        {
            wrong(
                "jwks_url",
                "it is no URL that begins with https://",
                SAFE_URL,
            );
        }
        if self.user_claim.is_empty() {
            wrong("user_claim", "it is empty", "the usual one is \"sub\"");
        }
        let families: BTreeSet<_> = self.algorithms.iter().map(|name| family(name)).collect();
        if families.is_empty() {
            wrong("algorithms", "it is empty", ALGORITHMS_HELP);
        } else if families.contains(&None) {
            wrong("algorithms", "one of them is unknown", ALGORITHMS_HELP);
        } else if families.len() > 1 && self.key_file.is_some() {
            wrong(
                "algorithms",
                "one key cannot serve them all",
                "with `key_file` name algorithms of one kind: HS, RS and PS, ES, or EdDSA",
            );
        }
        mistakes
    }
}

/// The kind of key that an algorithm needs.
fn family(algorithm: &str) -> Option<&'static str> {
    match algorithm {
        "HS256" | "HS384" | "HS512" => Some("secret"),
        "RS256" | "RS384" | "RS512" | "PS256" | "PS384" | "PS512" => Some("RSA"),
        "ES256" | "ES384" => Some("EC"),
        "EdDSA" => Some("Ed"),
        _ => None,
    }
}

/// Whether what is sent to this URL can be read on its way by nobody: `http` is for this machine.
pub(super) fn is_safe_url(url: &str) -> bool {
    let has_host = |rest: &str| !rest.is_empty() && !rest.starts_with(['/', ':']);
    if let Some(rest) = url.strip_prefix("https://") {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let is_one_word = !rest.contains(char::is_whitespace);
        return has_host(rest) && is_one_word && !authority.contains('@');
    }
    let Some(rest) = url.strip_prefix("http://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    !authority.contains('@') && ["127.0.0.1", "::1", "localhost"].contains(&host)
}

/// The tables with mistakes: position, key, message, help.
pub(super) fn mistakes(
    tables: &[Jwt],
    listeners: &[Listener],
) -> Vec<(usize, &'static str, String, &'static str)> {
    let mut names = BTreeSet::new();
    let mut found = Vec::new();
    let is_used = |(_, table): &(usize, &Jwt)| **table != Jwt::default();
    // One without a value, as in the example, verifies nothing.
    for (index, table) in tables.iter().enumerate().filter(is_used) {
        let mistakes = table.mistakes().into_iter();
        found.extend(mistakes.map(|(key, message, help)| (index, key, message, help)));
        if !names.insert(&table.name) {
            let message = format!("another table is called `{}` too", table.name);
            found.push((index, "name", message, "give each its own name"));
        }
        if !listeners.iter().any(|it| it.jwt.contains(&table.name)) {
            let message = format!("no listener uses `{}`", table.name);
            let help = "in a `[[listeners]]` table add its name: `jwt = [\"NAME\"]`";
            found.push((index, "name", message, help));
        }
    }
    found
}

/// Names of tables that listeners use and that are not there: position of the listener, name.
pub(super) fn missing(tables: &[Jwt], listeners: &[Listener]) -> Vec<(usize, String)> {
    let is_there = |name: &String| tables.iter().any(|table| table.name == *name);
    let listeners = listeners.iter().enumerate();
    let missing = listeners.flat_map(|(index, listener)| {
        let names = listener.jwt.iter().filter(|name| !is_there(name));
        names.map(move |name| (index, name.clone()))
    });
    missing.collect()
}

pub(super) const SAFE_URL: &str = "write it as \"https://HOST/PATH\", without a user and a password, which `authorization_file` of \
     `[[http_auth]]` has; http:// is for 127.0.0.1, [::1] and localhost alone";
const ALGORITHMS_HELP: &str = "name those that the issuer uses: HS256, HS384, HS512, RS256, RS384, \
    RS512, PS256, PS384, PS512, ES256, ES384, EdDSA";

/// The name of the array of tables whose keys are [`JWT_KEYS`].
pub(super) const JWT: &str = "jwt";
/// What [`JWT`] is about.
pub(super) const JWT_DOC: &str = "Tokens (JWT) that clients show as their password, for listeners whose `jwt` names the table.\n\
     # As many tables as needed. Read again on SIGHUP. See docs/authentication.md.";

/// The keys of one `[[jwt]]` table.
pub(super) const JWT_KEYS: &[Key<Jwt>] = &[
    key!(
        "name",
        Kind::Text,
        Live,
        ["A name, for listeners and the log."],
        name
    ),
    key!(
        "algorithms",
        Kind::List,
        Live,
        [
            "The signatures that are accepted, as the issuer makes them: HS256, HS384, HS512, RS256,",
            "RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA."
        ],
        algorithms
    ),
    key!(
        "key_file",
        Kind::Path,
        Live,
        [
            "The key: for HS256 to HS512 a secret as long as their hash at least, without its line",
            "end; for others a public key in PEM."
        ],
        key_file
    ),
    key!(
        "jwks_file",
        Kind::Path,
        Live,
        ["Instead of key_file, a set of keys in JSON (JWKS)."],
        jwks_file
    ),
    key!(
        "jwks_url",
        Kind::Text,
        Live,
        [
            "Instead of key_file, where the issuer publishes such a set. Fetched in the background;",
            "when it cannot be, the last one stays in force."
        ],
        jwks_url
    ),
    key!(
        "ca_file",
        Kind::Path,
        Live,
        ["Authorities of that server's certificate, in PEM. Empty: the system's."],
        ca_file
    ),
    key!(
        "refresh",
        Kind::Time {
            min: Duration::from_secs(10),
            max: Duration::from_hours(24 * 7),
            absent: None
        },
        Live,
        ["Time between two fetches. An unknown key id brings the next one forward."],
        refresh
    ),
    key!(
        "issuer",
        Kind::Text,
        Live,
        [
            "The issuer (`iss`) that a token must name. A token of another issuer is left to what is",
            "asked next."
        ],
        issuer
    ),
    key!(
        "audience",
        Kind::List,
        Live,
        ["Audiences (`aud`) of which a token must name one. Empty: it must name none."],
        audience
    ),
    key!(
        "leeway",
        Kind::Time {
            min: Duration::ZERO,
            max: Duration::from_hours(1),
            absent: None
        },
        Live,
        ["By how much the clocks of issuer and broker may differ."],
        leeway
    ),
    key!(
        "require_expiry",
        Kind::Flag,
        Live,
        ["Whether a token without an end (`exp`) is refused."],
        require_expiry
    ),
    key!(
        "user_claim",
        Kind::Text,
        Live,
        ["The claim that names the client's user."],
        user_claim
    ),
    key!(
        "match_user_name",
        Kind::Flag,
        Live,
        ["Whether the user name in CONNECT must be the same. false: it does not count."],
        match_user_name
    ),
    key!(
        "roles_claim",
        Kind::Text,
        Live,
        [
            "The claim that lists the client's roles, an array or a text with blanks between; dots",
            "lead into objects (\"realm_access.roles\"). Roles of the configuration have `granted`."
        ],
        roles_claim
    ),
];

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    #[test]
    fn what_would_verify_nothing_or_too_much_is_refused() {
        let valid = Jwt {
            name: "plant".to_owned(),
            algorithms: vec!["ES256".to_owned()],
            key_file: Some("key.pem".into()),
            ..Jwt::default()
        };
        let user = Listener {
            jwt: vec!["plant".to_owned()],
            ..Listener::default()
        };
        let check = |change: fn(&mut Jwt), key, words: &str| {
            let mut table = valid.clone();
            change(&mut table);
            let found = mistakes(&[table], slice::from_ref(&user));
            let [(0, found_key, message, _)] = &*found else {
                panic!("{words}: {found:?}");
            };
            assert_eq!(*found_key, key, "{message}");
            assert!(message.contains(words), "{message}");
        };
        assert_eq!(
            mistakes(slice::from_ref(&valid), slice::from_ref(&user)),
            []
        );
        check(|it| it.algorithms.clear(), "algorithms", "empty");
        check(
            |it| it.algorithms = vec!["none".into()],
            "algorithms",
            "unknown",
        );
        check(
            |it| it.algorithms.push("HS256".into()),
            "algorithms",
            "one key",
        );
        check(|it| it.key_file = None, "key_file", "exactly one");
        check(
            |it| it.jwks_file = Some("f".into()),
            "key_file",
            "exactly one",
        );
        check(|it| it.user_claim.clear(), "user_claim", "empty");
        let url = |it: &mut Jwt| {
            it.key_file = None;
            it.jwks_url = Some("http://example.org/keys".into());
        };
        check(url, "jwks_url", "https://");
        let unused = mistakes(&[valid], &[Listener::default()]);
        assert!(
            unused[0].2.contains("no listener uses `plant`"),
            "{unused:?}"
        );
    }

    #[test]
    fn http_is_for_this_machine_alone() {
        for url in [
            "https://example.org",
            "https://example.org:8443/a?b",
            "https://example.org/a@b",
            "http://127.0.0.1:8080/x",
            "http://[::1]/x",
            "http://localhost",
        ] {
            assert!(is_safe_url(url), "{url}");
        }
        for url in [
            "",
            "https://",
            "https:///x",
            "https://user:secret@example.org/x",
            "https://user@example.org",
            "ftp://localhost",
            "http://example.org",
            "http://localhost@example.org/",
            "http://localhost.example.org/",
            "http://127.0.0.1.example.org/",
        ] {
            assert!(!is_safe_url(url), "{url}");
        }
    }
}
