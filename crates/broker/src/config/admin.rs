//! `[admin]`: where the admin server listens. `unbroken serve` starts it beside the broker.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use super::changes::Applies;
use super::setting::Setting;
use super::table::{Key, Section, key};
use super::value::Kind;

/// Its keys.
pub(super) const SECTION: Section = Section {
    name: "admin",
    doc: "The admin server: health and metrics over HTTP.",
    keys: &[
        key!(
            "listen",
            Kind::AdminListen,
            Restart,
            [
                "An address of loopback with a port, 0 for a free one; auto: 127.0.0.1:7883, or nowhere if",
                "another program listens there; off: nowhere."
            ],
            admin.listen
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
    ],
};

/// `[admin]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admin {
    /// Where the admin server listens.
    pub listen: AdminListen,
    /// Its host names, beside IP addresses and `localhost`.
    pub hosts: Vec<String>,
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
                let address: SocketAddr = text.parse().map_err(|_| ())?;
                // Beyond loopback it would need TLS and credentials, which it has not.
                let is_near = address.ip().is_loopback();
                is_near.then_some(Self::At(address)).ok_or(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_addresses_of_loopback_are_read() {
        for (text, listen) in [
            ("auto", AdminListen::Auto),
            ("off", AdminListen::Off),
            ("127.0.0.1:7883", AdminListen::At(AdminListen::USUAL)),
            ("localhost:7883", AdminListen::At(AdminListen::USUAL)),
            ("[::1]:0", AdminListen::At("[::1]:0".parse().unwrap())),
        ] {
            assert_eq!(text.parse(), Ok(listen), "{text}");
        }
        for text in [
            "",
            "on",
            "7883",
            "127.0.0.1",
            "0.0.0.0:7883",
            "[::]:1",
            "10.0.0.1:1",
        ] {
            assert_eq!(text.parse::<AdminListen>(), Err(()), "{text}");
        }
    }
}
