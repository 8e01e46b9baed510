//! What only the whole configuration shows.

use std::collections::HashMap;

use super::{Conf, Owner};
use crate::mistake::{Findings, Mistake, Place};

/// Options of a bridge that need each other.
const PAIRS: &[(&str, &str)] = &[
    ("bridge_psk", "bridge_identity"),
    ("bridge_identity", "bridge_psk"),
];
/// Options of a listener that need another.
const TLS: &[(&str, &str)] = &[
    ("certfile", "keyfile"),
    ("keyfile", "certfile"),
    ("cafile", "certfile"),
    ("capath", "certfile"),
];

pub(super) fn whole(conf: &Conf, findings: &mut Findings) {
    for (index, bridge) in conf.bridges.iter().enumerate() {
        let owner = Owner::Bridge(index);
        let has = |names: &[&str]| {
            let mut settings = conf.of(owner);
            settings.any(|setting| names.contains(&setting.option.name))
        };
        for (names, what) in [
            (&["address", "addresses"][..], "an `address` line"),
            (&["topic"], "a `topic` line"),
        ] {
            if !has(names) {
                let expected = format!("{what} for the bridge `{}`", bridge.name);
                findings.mistake(missing(&bridge.place, expected));
            }
        }
        needs(conf, owner, PAIRS, findings);
    }
    needs(conf, Owner::DefaultListener, TLS, findings);
    for index in 0..conf.listeners.len() {
        needs(conf, Owner::Listener(index), TLS, findings);
    }
    same_client_ids(conf, findings);
}

fn needs(conf: &Conf, owner: Owner, pairs: &[(&str, &str)], findings: &mut Findings) {
    for (name, other) in pairs {
        if let (Some(setting), None) = (conf.get(owner, name), conf.get(owner, other)) {
            let expected = format!("`{other}` beside `{name}`");
            findings.mistake(missing(&setting.place, expected));
        }
    }
}

/// Two bridges cannot be one client of the broker.
fn same_client_ids(conf: &Conf, findings: &mut Findings) {
    let mut known = HashMap::new();
    for index in 0..conf.bridges.len() {
        let Some(setting) = conf.get(Owner::Bridge(index), "local_clientid") else {
            continue;
        };
        if known.insert(setting.value.to_string(), index).is_some() {
            let expected = "a `local_clientid` that no bridge above has".to_owned();
            findings.mistake(missing(&setting.place, expected));
        }
    }
}

fn missing(place: &Place, expected: String) -> Mistake {
    Mistake {
        place: place.clone(),
        expected,
        found: "none in the whole configuration".to_owned(),
    }
}
