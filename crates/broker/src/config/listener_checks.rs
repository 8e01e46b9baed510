//! What one key of a listener alone does not show: defaults that depend on other keys, listeners
//! that would admit all clients or none by accident, and two listeners in one place.

use std::collections::BTreeMap;

use super::error::Problem;
use super::load::{Reader, origin_of};
use super::table_arrays::{LISTENER_KEYS, LISTENERS};
use super::written::{Origin, Place};
use super::{Address, ForwardedHeader, Listener};

/// Sets the defaults that depend on other keys, and checks the keys against each other.
pub(super) fn complete(index: usize, listener: &mut Listener, reader: &mut Reader) {
    let is_written = |key| origin_of(&reader.origins, index, key).is_some();
    if !is_written("port") {
        listener.port = listener.protocol.default_port();
    }
    let ineffective = if listener.socket.is_some() {
        (
            &["bind", "port"][..],
            "the listener has a unix `socket`: remove one of them",
        )
    } else {
        (&["socket_mode", "socket_owner"][..], "it needs a `socket`")
    };
    refuse_ineffective(index, listener, ineffective, reader);
    if listener.trusted_proxies.is_empty() {
        let keys = &["proxy_common_name", "forwarded_header"][..];
        refuse_ineffective(
            index,
            listener,
            (keys, "it needs `trusted_proxies`"),
            reader,
        );
    }
    if listener.forwarded_header != ForwardedHeader::Off {
        let needs = "it is about PROXY headers, and `forwarded_header` replaces them";
        refuse_ineffective(index, listener, (&["proxy_common_name"], needs), reader);
    }
    check_websocket(index, listener, reader);
    check_tls(index, listener, reader);
    admit(index, listener, reader);
    check_secrecy(index, listener, reader);
}

/// What crosses a network in the clear does so only where that is written.
fn check_secrecy(index: usize, listener: &Listener, reader: &mut Reader) {
    if listener.insecure || !listener.is_in_the_clear() {
        return;
    }
    let message = format!(
        "the listener on {} is reachable from other machines without TLS: passwords and messages \
         would cross the network in the clear",
        listener.address()
    );
    let origin = reader.near(index, &["bind", "port", "protocol"]);
    let help = if matches!(origin, Some(Origin::Flag { .. })) {
        "add --insecure if that network is to be trusted, or give the listener TLS in a config file"
            .to_owned()
    } else {
        let protocol = if listener.protocol.has_websocket() {
            "wss"
        } else {
            "mqtts"
        };
        format!(
            "in its `[[listeners]]` table add `insecure = true` if that network is to be trusted, or \
             `protocol = \"{protocol}\"` with a certificate;\n        without a config file: \
             UNBROKEN__LISTENERS__{index}__INSECURE=true"
        )
    };
    reader
        .problems
        .push(Problem::new(origin, message).help(help));
}

const TLS_KEYS: [&str; 9] = [
    "certificate_file",
    "key_file",
    "client_ca_file",
    "require_client_certificate",
    "certificate_user",
    "crl_file",
    "enforce_crl_expiry",
    "min_tls_version",
    "max_handshakes",
];

fn check_websocket(index: usize, listener: &Listener, reader: &mut Reader) {
    if !listener.protocol.has_websocket() {
        let keys = &["websocket_path", "allowed_origins", "forwarded_header"];
        let needs = "it needs WebSocket: `protocol = \"ws\"` or `protocol = \"wss\"`";
        return refuse_ineffective(index, listener, (keys, needs), reader);
    }
    let path = &listener.websocket_path;
    let is_path = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_path || path.contains('?') || path.contains('#') {
        let message = format!("`{LISTENERS}.{index}.websocket_path`: `{path}` is not a path");
        let origin = reader.near(index, &["websocket_path"]);
        let help = "write it as in a URL, such as \"/mqtt\", without a query";
        reader
            .problems
            .push(Problem::new(origin, message).help(help));
    }
}

/// A listener with TLS has certificates, each with its key; another one has none.
fn check_tls(index: usize, listener: &Listener, reader: &mut Reader) {
    if !listener.protocol.has_tls() {
        let needs = "it needs TLS: `protocol = \"mqtts\"` or `protocol = \"wss\"`";
        return refuse_ineffective(index, listener, (&TLS_KEYS, needs), reader);
    }
    if listener.tls.client_ca_file.is_none() {
        let keys = &["require_client_certificate", "certificate_user", "crl_file"];
        let needs = "it needs a `client_ca_file`";
        refuse_ineffective(index, listener, (keys, needs), reader);
    }
    let (certificates, keys) = (&listener.tls.certificate_files, &listener.tls.key_files);
    if !certificates.is_empty() && certificates.len() == keys.len() {
        return;
    }
    let message = format!(
        "the listener on {} has {} certificates and {} keys for TLS",
        listener.address(),
        certificates.len(),
        keys.len()
    );
    let origin = reader.near(index, &["certificate_file", "key_file", "protocol"]);
    let help = "in its `[[listeners]]` table add `certificate_file = \"FILE\"` and \
                `key_file = \"FILE\"`, both in PEM; several of both in an array each";
    reader
        .problems
        .push(Problem::new(origin, message).help(help));
}

/// Reports keys that have another value than their default and no effect.
fn refuse_ineffective(
    index: usize,
    listener: &Listener,
    (keys, why): (&[&'static str], &str),
    reader: &mut Reader,
) {
    let default = Listener::default();
    let is_changed = |name| {
        let key = LISTENER_KEYS.iter().find(|key| key.name == name);
        key.is_some_and(|key| (key.get)(listener) != (key.get)(&default))
    };
    for key in keys.iter().filter(|key| is_changed(**key)) {
        if let Some(origin) = origin_of(&reader.origins, index, key) {
            let message = format!("`{LISTENERS}.{index}.{key}` has no effect");
            let problem = Problem::new(Some(origin), message).help(why);
            reader.problems.push(problem);
        }
    }
}

/// The default for anonymous clients; refuses a listener that would admit all or none by accident.
fn admit(index: usize, listener: &mut Listener, reader: &mut Reader) {
    let said = Place {
        section: LISTENERS,
        index: Some(index),
        key: "allow_anonymous",
    };
    let local = listener.is_local();
    if !reader.origins.contains_key(&said) {
        listener.allow_anonymous = !listener.has_logins()
            && if listener.verifies_certificates() {
                listener.requires_certificate() && !listener.names_users()
            } else {
                local
            };
    }
    if listener.allow_anonymous || listener.has_logins() || listener.names_users() {
        return;
    }
    let address = listener.address();
    let message = if local {
        format!(
            "no client could connect to {address}: anonymous clients are refused, and there is no \
             password file"
        )
    } else {
        format!(
            "the listener on {address} is reachable from other machines, and does not specify \
             which clients may connect"
        )
    };
    let anonymous = if local {
        "remove `allow_anonymous = false`"
    } else {
        "`allow_anonymous = true`"
    };
    let origin = reader.near(index, &["allow_anonymous", "bind", "port"]);
    let help = if matches!(origin, Some(Origin::Flag { .. })) && !local {
        "add --password-file FILE (make one with `unbroken passwd FILE USER`), or \
         --allow-anonymous to admit every client"
            .to_owned()
    } else {
        format!(
            "in its `[[listeners]]` table add `password_file = \"FILE\"` (make one with \
             `unbroken passwd FILE USER`)\n        or `stored_users = true` (add them with \
             `unbroken user add USER`),\n        or {anonymous} to admit every client; without a \
             config file: UNBROKEN__LISTENERS__{index}__PASSWORD_FILE=FILE\n        \
             or UNBROKEN__LISTENERS__{index}__ALLOW_ANONYMOUS=true"
        )
    };
    reader
        .problems
        .push(Problem::new(origin, message).help(help));
}

/// Each place may have one listener; a free port is none yet.
pub(super) fn check_addresses(
    listeners: &[Listener],
    origins: &BTreeMap<Place, Origin>,
    has_address: impl Fn(usize) -> bool,
) -> Vec<Problem> {
    let mut seen: BTreeMap<Address, usize> = BTreeMap::new();
    let mut problems = Vec::new();
    let listeners = listeners.iter().enumerate();
    let is_fixed = |listener: &Listener| listener.socket.is_some() || listener.port != 0;
    for (index, listener) in listeners.filter(|(index, l)| is_fixed(l) && has_address(*index)) {
        for address in listener.addresses() {
            let message = format!("are both on {address}");
            if let Some(first) = seen.insert(address, index) {
                let keys = ["socket", "port", "bind"];
                let origin = keys.iter().find_map(|key| origin_of(origins, index, key));
                let message = format!("listeners {first} and {index} {message}");
                let help = "give each its own port or socket";
                problems.push(Problem::new(origin, message).help(help));
            }
        }
    }
    problems
}
