//! For whom a proxy has passed a request on: `Forwarded` (RFC 7239) or `X-Forwarded-For`.
//!
//! Whoever sends a request can write anything there, so it counts from a trusted proxy only, and of
//! it only what trusted proxies have appended. Both are the caller's to decide.

use std::net::{IpAddr, SocketAddr};

use crate::upgrade::HEADERS;

/// The field in which proxies say it. Only one counts: a proxy that appends to one passes on the
/// other as its client wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    /// `Forwarded`.
    Forwarded,
    /// `X-Forwarded-For`.
    XForwardedFor,
}

/// Where a request came from, as the proxies have it that passed it on: the last one is what the
/// proxy saw that sent it here. `None`: one that does not say it, or says it in a way that means
/// nothing.
pub fn chain(request: &[u8], field: Field) -> Vec<Option<IpAddr>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    if parsed.parse(request).is_err() {
        return Vec::new();
    }
    let name = match field {
        Field::Forwarded => "forwarded",
        Field::XForwardedFor => "x-forwarded-for",
    };
    let of_name = |it: &&httparse::Header<'_>| it.name.eq_ignore_ascii_case(name);
    let fields = parsed.headers.iter().filter(of_name);
    // What is not UTF-8 means nothing.
    let texts = fields.map(|it| str::from_utf8(it.value).unwrap_or("?"));
    let nodes = |text: &str| match field {
        Field::Forwarded => forwarded(text),
        Field::XForwardedFor => text.split(',').map(node).collect(),
    };
    texts.flat_map(nodes).collect()
}

/// Of one `Forwarded`. A quotation mark without another would hide what proxies have appended
/// behind it, so such a field says nothing at all.
fn forwarded(text: &str) -> Vec<Option<IpAddr>> {
    match split(text, ',') {
        Some(elements) => elements.into_iter().map(node_of).collect(),
        None => vec![None],
    }
}

/// The `for` of an element such as `for="[2001:db8::1]:47011";proto=http`.
fn node_of(element: &str) -> Option<IpAddr> {
    let pairs = split(element, ';')?;
    let mut pairs = pairs.into_iter().filter_map(|pair| pair.split_once('='));
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

/// The parts between separators that are in no quotation marks; `None`: the last quotation mark
/// has no other.
fn split(text: &str, separator: char) -> Option<Vec<&str>> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let is_border = |character| {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ => {}
        }
        character == separator && !is_quoted
    };
    let parts = text.split(is_border).collect();
    (!is_quoted).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(field: Field, fields: &str, expected: &[&str]) {
        let request = format!("GET /mqtt HTTP/1.1\r\nHost: broker\r\n{fields}\r\n\r\n");
        let expected: Vec<Option<IpAddr>> = expected.iter().map(|text| text.parse().ok()).collect();
        assert_eq!(chain(request.as_bytes(), field), expected, "{fields}");
    }

    #[test]
    fn the_chain_is_read_from_the_field_that_counts_and_no_other() {
        let both = "Forwarded: for=192.0.2.60\r\nX-Forwarded-For: 192.0.2.7";
        check(Field::XForwardedFor, both, &["192.0.2.7"]);
        check(Field::Forwarded, both, &["192.0.2.60"]);
        for field in [Field::Forwarded, Field::XForwardedFor] {
            check(field, "Host: other", &[]);
            assert_eq!(chain(b"\x10\x10\x00\x04MQTT", field), []);
        }
    }

    #[test]
    fn x_forwarded_for_is_a_list_whatever_quotation_marks_are_in_it() {
        for (fields, expected) in [
            ("X-Forwarded-For: 192.0.2.7", &["192.0.2.7"][..]),
            (
                "X-Forwarded-For: 2001:db8::1 , 192.0.2.7:80\r\nx-forwarded-for: [::1], ::ffff:10.0.0.1",
                &["2001:db8::1", "192.0.2.7", "::1", "10.0.0.1"],
            ),
            ("X-Forwarded-For: \u{e9}, 192.0.2.7", &["?", "192.0.2.7"]),
            ("X-Forwarded-For: \"x, 192.0.2.7", &["?", "192.0.2.7"]),
        ] {
            check(Field::XForwardedFor, fields, expected);
        }
    }

    #[test]
    fn forwarded_is_a_list_of_pairs_and_one_with_half_a_quotation_says_nothing() {
        for (fields, expected) in [
            (
                "Forwarded: for=192.0.2.60;proto=http;by=203.0.113.43, For=\"[2001:db8::1]:47011\"",
                &["192.0.2.60", "2001:db8::1"][..],
            ),
            (
                "Forwarded: for=\"a,b;c\", for=unknown, proto=http",
                &["?", "?", "?"],
            ),
            (
                "Forwarded: for=\"a\\\",b\", for=192.0.2.7",
                &["?", "192.0.2.7"],
            ),
            ("Forwarded: for=\"x, for=192.0.2.7", &["?"]),
            ("Forwarded: for=\"x\\\", for=192.0.2.7", &["?"]),
            (
                "Forwarded: for=\"x, for=\"[2001:db8::1]\", for=192.0.2.7",
                &["?"],
            ),
            (
                "Forwarded: for=\"x\r\nForwarded: for=\"[2001:db8::1]\"",
                &["?", "2001:db8::1"],
            ),
        ] {
            check(Field::Forwarded, fields, expected);
        }
    }
}
