//! `[admin]`: where the admin server listens, and who may ask it. `unbroken serve` starts it beside
//! the broker.
//!
//! Invariant: beyond loopback it has TLS, and credentials are needed.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use super::Tls;
use super::changes::Applies;
use super::error::Problem;
use super::setting::Setting;
use super::table::{Key, Section, key};
use super::value::Kind;
use super::written::Origin;

/// Its keys.
pub(super) const SECTION: Section = Section {
    name: "admin",
    doc: "The admin server: a page, an API and metrics over HTTP.",
    keys: &[
        key!(
            "listen",
            Kind::AdminListen,
            Restart,
            [
                "An address with a port, 0 for a free one; auto: 127.0.0.1:7883, or nowhere if another",
                "program listens there; off: nowhere. An address beyond loopback needs a certificate."
            ],
            admin.listen
        ),
        key!(
            "certificate_file",
            Kind::Path,
            Restart,
            [
                "Its certificate and chain, in PEM: with one it speaks HTTPS. The files are read again on",
                "SIGHUP, and when they change."
            ],
            admin.certificate_file
        ),
        key!(
            "key_file",
            Kind::Path,
            Restart,
            ["The private key of the certificate, in PEM."],
            admin.key_file
        ),
        key!(
            "hosts",
            Kind::List,
            Restart,
            [
                "Host names under which it is reached, beside localhost and IP addresses: a request that",
                "names another host is refused."
            ],
            admin.hosts
        ),
        key!(
            "metrics",
            Kind::Choice(&["open", "token"]),
            Restart,
            [
                "Who may read /metrics: open, everyone who reaches it; token, only callers with a token",
                "or an account."
            ],
            admin.metrics
        ),
        key!(
            "anonymous",
            Kind::Choice(&["off", "viewer"]),
            Restart,
            [
                "What a caller without credentials may do: off, nothing; viewer, read all that an account",
                "with this role may. The second is refused beyond loopback."
            ],
            admin.anonymous
        ),
    ],
};

/// `[admin]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admin {
    /// Where the admin server listens.
    pub listen: AdminListen,
    /// Its certificate with its chain; `None`: it speaks HTTP in the clear.
    pub certificate_file: Option<PathBuf>,
    /// The private key of the certificate.
    pub key_file: Option<PathBuf>,
    /// Its host names, beside IP addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Who may read its metrics.
    pub metrics: AdminMetrics,
    /// What a caller without credentials may do.
    pub anonymous: Anonymous,
}

/// Who may read the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdminMetrics {
    /// Everyone who reaches the server.
    #[default]
    Open,
    /// Callers with a token or an account.
    Token,
}

/// What a caller without credentials may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// Nothing.
    #[default]
    Off,
    /// Read.
    Viewer,
}

impl Admin {
    /// Its certificate and key; `None`: it has none.
    pub fn tls(&self) -> Option<Tls> {
        let (certificate, key) = (self.certificate_file.clone()?, self.key_file.clone()?);
        Some(Tls {
            certificate_files: vec![certificate],
            key_files: vec![key],
            ..Tls::default()
        })
    }
}

/// What single values do not show. `origin`: where a key is written.
pub(super) fn mistakes(
    admin: &Admin,
    origin: impl Fn(&'static str) -> Option<Origin>,
) -> Vec<Problem> {
    let mut mistakes = Vec::new();
    let mut mistake = |keys: &[&'static str], message: String, help: &str| {
        let written = keys.iter().find_map(|key| origin(key));
        mistakes.push(Problem::new(written, message).help(help));
    };
    if admin.certificate_file.is_some() != admin.key_file.is_some() {
        let message = "`admin` has only one of `certificate_file` and `key_file`".to_owned();
        mistake(
            &["certificate_file", "key_file"],
            message,
            "HTTPS needs both: add the other one",
        );
        return mistakes;
    }
    let AdminListen::At(address) = admin.listen else {
        return mistakes;
    };
    if address.ip().is_loopback() {
        return mistakes;
    }
    if admin.tls().is_none() {
        let message = format!(
            "`admin.listen`: {address} is reachable from other machines without TLS: passwords \
             would cross the network in the clear"
        );
        let help = "in [admin] add `certificate_file = \"FILE\"` and `key_file = \"FILE\"`, both in \
                    PEM (`unbroken cert` makes them), or listen on 127.0.0.1";
        mistake(&["listen"], message, help);
    }
    if admin.anonymous != Anonymous::Off {
        let message = format!(
            "`admin.anonymous`: {address} is reachable from other machines, where callers need \
             credentials"
        );
        let help = "remove it, and make an account or a token for each caller";
        mistake(&["anonymous", "listen"], message, help);
    }
    mistakes
}

/// Where the admin server listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdminListen {
    /// At [`AdminListen::USUAL`], or nowhere if another program does.
    #[default]
    Auto,
    /// Nowhere.
    Off,
    /// There, or the broker does not start.
    At(SocketAddr),
}

impl AdminListen {
    /// 127.0.0.1:7883
    pub const USUAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7883);
}

impl fmt::Display for AdminListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}

impl FromStr for AdminListen {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => {
                let text = text.replace("localhost:", "127.0.0.1:");
                text.parse().map(Self::At).map_err(|_| ())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_addresses_are_read() {
        for (text, listen) in [
            ("auto", AdminListen::Auto),
            ("off", AdminListen::Off),
            ("127.0.0.1:7883", AdminListen::At(AdminListen::USUAL)),
            ("localhost:7883", AdminListen::At(AdminListen::USUAL)),
            ("[::1]:0", AdminListen::At("[::1]:0".parse().unwrap())),
            ("10.0.0.1:1", AdminListen::At("10.0.0.1:1".parse().unwrap())),
        ] {
            assert_eq!(text.parse(), Ok(listen), "{text}");
        }
        for text in ["", "on", "7883", "127.0.0.1", "example.org:1"] {
            assert_eq!(text.parse::<AdminListen>(), Err(()), "{text}");
        }
    }

    #[test]
    fn beyond_loopback_tls_and_credentials_are_needed() {
        let near = Admin {
            listen: "[::1]:1".parse().unwrap(),
            anonymous: Anonymous::Viewer,
            ..Admin::default()
        };
        let half = Admin {
            certificate_file: Some("c.pem".into()),
            ..Admin::default()
        };
        let far = Admin {
            listen: "0.0.0.0:7883".parse().unwrap(),
            ..Admin::default()
        };
        let safe = Admin {
            certificate_file: Some("c.pem".into()),
            key_file: Some("c.key".into()),
            ..far.clone()
        };
        let open = Admin {
            anonymous: Anonymous::Viewer,
            ..safe.clone()
        };
        for (admin, expected) in [
            (near, None),
            (half, Some("only one of")),
            (far, Some("without TLS")),
            (safe, None),
            (open, Some("credentials")),
        ] {
            let found = mistakes(&admin, |_| None);
            let found: Vec<_> = found.into_iter().map(|it| it.message).collect();
            match (expected, &*found) {
                (None, []) => {}
                (Some(part), [message]) if message.contains(part) => {}
                (expected, found) => panic!("{expected:?}, but {found:?}"),
            }
        }
    }
}
