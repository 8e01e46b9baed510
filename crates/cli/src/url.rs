//! `mqtt://[user[:password]@]host[:port]/topic`, the form of `-L`, with `mqtts`, `ws` and `wss`
//! instead of `mqtt` too; or `unix:/path`, a socket.

use unbroken_client::{AddressError, ConnectTo};

/// The parts of a URL, percent-decoded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: Scheme,
    pub(crate) user_name: Option<String>,
    pub(crate) password: Option<String>,
    /// Empty where a socket is named.
    pub(crate) host: String,
    /// The path of a unix socket, instead of a host.
    pub(crate) socket: Option<String>,
    pub(crate) port: Option<u16>,
    pub(crate) topic: Option<String>,
}

/// What a URL asks for below MQTT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scheme {
    pub(crate) has_tls: bool,
    pub(crate) has_websocket: bool,
}

impl Scheme {
    /// MQTT alone.
    const PLAIN: Self = Self {
        has_tls: false,
        has_websocket: false,
    };

    fn parse(text: &str) -> Option<Self> {
        let (has_tls, has_websocket) = match text {
            "mqtt" => (false, false),
            "mqtts" => (true, false),
            "ws" => (false, true),
            "wss" => (true, true),
            _ => return None,
        };
        Some(Self {
            has_tls,
            has_websocket,
        })
    }
}

impl Url {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            Err(format!(
                "`{text}` is not mqtt://[user[:password]@]host[:port]/topic: {why}"
            ))
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return Self::of_socket(path).ok_or_else(|| {
                format!("`{text}` is not unix:PATH with a path that begins with / or a dot")
            });
        }
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => match Scheme::parse(scheme) {
                Some(scheme) => (scheme, rest),
                None => return wrong("the scheme is none of mqtt, mqtts, ws and wss"),
            },
            None => return wrong("it does not begin with mqtt://"),
        };
        let (authority, topic) = match rest.split_once('/') {
            Some((authority, topic)) => (authority, Some(topic).filter(|topic| !topic.is_empty())),
            None => (rest, None),
        };
        // The last @: one in a password that was not encoded does no harm.
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let (user_name, password) = match user.map(|user| user.split_once(':')) {
            Some(Some((name, password))) => (Some(decode(name)), Some(decode(password))),
            Some(None) => (user.map(decode), None),
            None => (None, None),
        };
        let (host, port) = match ConnectTo::parts(host) {
            Ok(parts) => parts,
            Err(AddressError::NoHost(_)) => return wrong("there is no host"),
            Err(_) => return wrong("the port is not a number of 1 to 65535"),
        };
        Ok(Self {
            scheme,
            user_name,
            password,
            host: host.to_owned(),
            socket: None,
            port,
            topic: topic.map(str::to_owned),
        })
    }

    fn of_socket(path: &str) -> Option<Self> {
        path.starts_with(['/', '.']).then(|| Self {
            scheme: Scheme::PLAIN,
            user_name: None,
            password: None,
            host: String::new(),
            socket: Some(path.to_owned()),
            port: None,
            topic: None,
        })
    }
}

/// Replaces `%40` and the like. What is not such a sequence, or leads to ill-formed text, stays.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex
            .filter(|_| *first == b'%')
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() {
            after.get(2..).unwrap_or_default()
        } else {
            after
        };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parts<'a> = (
        Option<&'a str>,
        Option<&'a str>,
        &'a str,
        Option<u16>,
        Option<&'a str>,
    );

    fn check(text: &str, expect: Parts<'_>) {
        let url = Url::parse(text).unwrap();
        let parts = (
            url.user_name.as_deref(),
            url.password.as_deref(),
            url.host.as_str(),
            url.port,
            url.topic.as_deref(),
        );
        assert_eq!(parts, expect, "{text}");
    }

    #[test]
    fn every_part_of_a_url_is_found() {
        check("mqtt://h", (None, None, "h", None, None));
        check("mqtt://h/", (None, None, "h", None, None));
        check(
            "mqtt://h:1884/a/b",
            (None, None, "h", Some(1884), Some("a/b")),
        );
        check("mqtt://u@h/a", (Some("u"), None, "h", None, Some("a")));
        check(
            "mqtt://u:p:q@h/a",
            (Some("u"), Some("p:q"), "h", None, Some("a")),
        );
        check(
            "mqtt://u%40x:p%3a@h//a/%",
            (Some("u@x"), Some("p:"), "h", None, Some("/a/%")),
        );
        check(
            "mqtt://[::1]:1884/a",
            (None, None, "::1", Some(1884), Some("a")),
        );
        check("mqtt://[::1]/a", (None, None, "::1", None, Some("a")));
    }

    #[test]
    fn the_scheme_says_what_is_below_mqtt() {
        for (text, has_tls, has_websocket) in [
            ("mqtt://h", false, false),
            ("mqtts://h", true, false),
            ("ws://h", false, true),
            ("wss://h", true, true),
        ] {
            let expected = Scheme {
                has_tls,
                has_websocket,
            };
            assert_eq!(Url::parse(text).unwrap().scheme, expected, "{text}");
        }
    }

    #[test]
    fn a_socket_is_named_by_its_path() {
        let url = Url::parse("unix:/run/mqtt.sock").unwrap();
        assert_eq!(url.socket.as_deref(), Some("/run/mqtt.sock"));
        assert_eq!((url.scheme, url.topic), (Scheme::PLAIN, None));
        assert_eq!(Url::parse("mqtt://h/a").unwrap().socket, None);
    }

    #[test]
    fn what_is_wrong_with_a_url_is_said() {
        for (text, why) in [
            ("unix:", "begins with / or a dot"),
            ("unix:mqtt.sock", "begins with / or a dot"),
            ("localhost/a", "does not begin with mqtt://"),
            ("http://h/a", "the scheme is none of mqtt"),
            ("mqtt:///a", "there is no host"),
            ("mqtt://h:x/a", "the port is not a number"),
            ("mqtt://[::1]1884/a", "the port is not a number"),
            ("mqtt://h:70000/a", "the port is not a number"),
        ] {
            let error = Url::parse(text).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
