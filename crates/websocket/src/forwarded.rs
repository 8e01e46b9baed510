//! For whom a proxy has passed a request on: `Forwarded` (RFC 7239), else `X-Forwarded-For`.
//!
//! Whoever sends a request can write anything there, so it counts from a trusted proxy only, and of
//! it only what trusted proxies have appended. Both are the caller's to decide.

use std::net::{IpAddr, SocketAddr};

use crate::upgrade::HEADERS;

/// Where a request came from, as the proxies have it that passed it on: the last one is what the
/// proxy saw that sent it here. `None`: one that does not say it, or says it in a way that means
/// nothing.
pub fn chain(request: &[u8]) -> Vec<Option<IpAddr>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    if parsed.parse(request).is_err() {
        return Vec::new();
    }
    let values = |name: &str| {
        let of_name = |it: &&httparse::Header<'_>| it.name.eq_ignore_ascii_case(name);
        let fields = parsed.headers.iter().filter(of_name);
        // What is not UTF-8 means nothing.
        let texts = fields.map(|it| str::from_utf8(it.value).unwrap_or("?").to_owned());
        texts.collect::<Vec<_>>().join(",")
    };
    let forwarded = values("forwarded");
    if !forwarded.trim().is_empty() {
        return split(&forwarded, ',').map(node_of).collect();
    }
    let forwarded_for = values("x-forwarded-for");
    if forwarded_for.trim().is_empty() {
        return Vec::new();
    }
    split(&forwarded_for, ',').map(node).collect()
}

/// The `for` of an element such as `for="[2001:db8::1]:47011";proto=http`.
fn node_of(element: &str) -> Option<IpAddr> {
    let mut pairs = split(element, ';').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
    let value = value.trim();
    let quoted = value.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    node(quoted.unwrap_or(value))
}

/// An address, with or without a port and brackets.
fn node(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let with_port = || Some(text.parse::<SocketAddr>().ok()?.ip());
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let address = text.parse().ok().or_else(with_port).or_else(bracketed);
    address.map(|address: IpAddr| address.to_canonical())
}

/// The parts between separators that are in no quotation marks.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    text.split(move |character| {
        is_quoted ^= character == '"';
        character == separator && !is_quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_is_read_from_either_field() {
        let check = |fields: &str, expected: &[&str]| {
            let request = format!("GET /mqtt HTTP/1.1\r\nHost: broker\r\n{fields}\r\n\r\n");
            let expected: Vec<Option<IpAddr>> =
                expected.iter().map(|text| text.parse().ok()).collect();
            assert_eq!(chain(request.as_bytes()), expected, "{fields}");
        };
        check("X-Forwarded-For: 192.0.2.7", &["192.0.2.7"]);
        check(
            "X-Forwarded-For: 2001:db8::1 , 192.0.2.7:80\r\nx-forwarded-for: [::1], ::ffff:10.0.0.1",
            &["2001:db8::1", "192.0.2.7", "::1", "10.0.0.1"],
        );
        check(
            "Forwarded: for=192.0.2.60;proto=http;by=203.0.113.43, For=\"[2001:db8::1]:47011\"",
            &["192.0.2.60", "2001:db8::1"],
        );
        check(
            "Forwarded: for=\"a,b;c\", for=unknown, proto=http",
            &["?", "?", "?"],
        );
        check(
            "Forwarded: for=192.0.2.60\r\nX-Forwarded-For: 192.0.2.7",
            &["192.0.2.60"],
        );
        check("X-Forwarded-For: \u{e9}, 192.0.2.7", &["?", "192.0.2.7"]);
        check("Host: other", &[]);
        assert_eq!(chain(b"\x10\x10\x00\x04MQTT"), []);
    }
}
