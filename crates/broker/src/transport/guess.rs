//! The first bytes of a connection that speaks another protocol than its listener.

use crate::config::Protocol;

/// A protocol, by its first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guess {
    Mqtt,
    Tls,
    Http,
    Proxy,
}

/// The protocol that begins so, if it is one that clients of a broker may speak.
pub(crate) fn guess(first: &[u8]) -> Option<Guess> {
    const METHODS: [&[u8]; 6] = [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"OPTIONS ", b"PRI "];
    const PROXY: [&[u8]; 2] = [b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n"];
    let begins_with = |begins: &[&[u8]]| begins.iter().any(|begin| first.starts_with(begin));
    match first {
        // A handshake record of SSL 3 or TLS, whatever its version.
        [0x16, 3, ..] => Some(Guess::Tls),
        // CONNECT: its remaining length, and a protocol name of 4 or 6 bytes.
        [0x10, rest @ ..] if is_connect(rest) => Some(Guess::Mqtt),
        _ if begins_with(&METHODS) => Some(Guess::Http),
        _ if begins_with(&PROXY) => Some(Guess::Proxy),
        _ => None,
    }
}

fn is_connect(behind_type: &[u8]) -> bool {
    let length_bytes = behind_type.iter().take_while(|byte| **byte >= 0x80).count() + 1;
    let name = behind_type.get(length_bytes..).unwrap_or_default();
    name.starts_with(b"\0\x04MQTT") || name.starts_with(b"\0\x06MQIsdp")
}

/// What a client speaks instead of its listener's protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Foreign {
    /// A part of a sentence.
    pub(crate) speaks: &'static str,
    /// The protocols of listeners that serve such a client, the most likely first.
    pub(crate) needs: &'static [Protocol],
}

impl Guess {
    /// On a listener with TLS.
    pub(crate) const fn on_tls(self) -> Option<Foreign> {
        match self {
            Self::Mqtt => Some(Foreign {
                speaks: "the client speaks MQTT without TLS",
                needs: &[Protocol::Mqtts, Protocol::Mqtt],
            }),
            Self::Http => Some(Foreign {
                speaks: "the client speaks HTTP without TLS",
                needs: &[Protocol::Wss, Protocol::Ws],
            }),
            Self::Proxy => Some(PROXY_HEADER),
            Self::Tls => None,
        }
    }

    /// On a listener with WebSocket.
    pub(crate) const fn on_websocket(self) -> Option<Foreign> {
        match self {
            Self::Mqtt => Some(Foreign {
                speaks: "the client speaks MQTT without WebSocket",
                needs: &[Protocol::Mqtt, Protocol::Mqtts],
            }),
            Self::Tls => Some(Foreign {
                speaks: "the client speaks TLS",
                needs: &[Protocol::Wss, Protocol::Mqtts],
            }),
            Self::Proxy => Some(PROXY_HEADER),
            Self::Http => None,
        }
    }

    /// On a listener with MQTT alone.
    pub(crate) const fn on_mqtt(self) -> Option<Foreign> {
        match self {
            Self::Tls => Some(Foreign {
                speaks: "the client speaks TLS",
                needs: &[Protocol::Mqtts, Protocol::Wss],
            }),
            Self::Http => Some(Foreign {
                speaks: "the client speaks HTTP",
                needs: &[Protocol::Ws, Protocol::Wss],
            }),
            Self::Proxy => Some(PROXY_HEADER),
            Self::Mqtt => None,
        }
    }
}

const PROXY_HEADER: Foreign = Foreign {
    speaks: "the client sends a PROXY header: the listener has no proxy that it trusts",
    needs: &[],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_known_by_their_first_bytes() {
        for (bytes, expected) in [
            (&b"GET / HTTP/1.1\r\n"[..], Some(Guess::Http)),
            (b"\x16\x03\x01\x02\x00\x01", Some(Guess::Tls)),
            (b"\x10\x10\x00\x04MQTT\x04", Some(Guess::Mqtt)),
            (b"\x10\x80\x01\x00\x06MQIsdp\x03", Some(Guess::Mqtt)),
            (b"PROXY TCP4 ", Some(Guess::Proxy)),
            (b"\r\n\r\n\0\r\nQUIT\n\x21", Some(Guess::Proxy)),
            (b"\x10\xff\xff\xff\xff\xff", None),
            (b"SSH-2.0-", None),
            (b"", None),
        ] {
            assert_eq!(guess(bytes), expected, "{bytes:?}");
        }
    }
}
