//! Rules about who depends on whom.
//!
//! The house is built in rows: a crate depends only on crates in rows above its own, so that the
//! pure libraries stay pure and no two crates need each other. Development dependencies count as
//! well.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::Outcome;

/// The rows, from the top. A new crate is added here, which is the decision about its place.
const ROWS: [&[&str]; 9] = [
    &["session-channels-macros", "unbroken-terminal"],
    &[
        "unbroken-mqtt-proto",
        "unbroken-merkle-log",
        "unbroken-hash-ring",
        "session-channels",
        "unbroken-payload-seal",
        "unbroken-websocket",
    ],
    &[
        "unbroken-broker-core",
        "unbroken-client",
        "unbroken-mosquitto-files",
        "unbroken-store",
        "unbroken-workloads",
    ],
    &["unbroken-persist"],
    &[
        "unbroken-broker",
        "unbroken-load",
        "unbroken-demo",
        "unbroken-sp-gateway",
    ],
    &["unbroken-admin"],
    &["unbroken"],
    &[
        "unbroken-acceptance",
        "unbroken-bench",
        "unbroken-simulator",
        "xtask",
    ],
    &[
        "unbroken-attack",
        "unbroken-channel-bench",
        "unbroken-crash",
    ],
];

/// Who must not see the inside of a payload, by whatever way.
const MUST_NOT_OPEN_SEALS: [&str; 2] = ["unbroken-broker-core", "unbroken-broker"];
const SEALS: &str = "unbroken-payload-seal";

/// The workspace's packages, each with the packages it names as dependencies.
pub(super) type Packages = BTreeMap<String, BTreeSet<String>>;

/// Reads the output of `cargo metadata --no-deps`.
pub(super) fn packages(metadata: &str) -> Outcome<Packages> {
    let metadata: Value = serde_json::from_str(metadata).map_err(|error| error.to_string())?;
    let name = |value: &Value| value["name"].as_str().map(str::to_owned);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut packages = Packages::new();
    for package in list(&metadata["packages"]) {
        let dependencies = list(&package["dependencies"]);
        packages.insert(
            name(&package).ok_or("cargo lists a package without a name")?,
            dependencies.iter().filter_map(name).collect(),
        );
    }
    Ok(packages)
}

pub(super) fn order(packages: &Packages) -> Vec<String> {
    let row = |name: &str| ROWS.iter().position(|row| row.contains(&name));
    let mut problems = Vec::new();
    for (package, dependencies) in packages {
        let Some(own) = row(package) else {
            problems.push(format!("{package} has no row: give it one in {}", file!()));
            continue;
        };
        for dependency in dependencies
            .iter()
            .filter(|name| packages.contains_key(*name))
        {
            if row(dependency).is_some_and(|its| its >= own) {
                problems.push(format!("{package} depends on {dependency}, not above it"));
            }
        }
    }
    problems
}

pub(super) fn sealed(packages: &Packages) -> Vec<String> {
    let mut problems = Vec::new();
    for start in MUST_NOT_OPEN_SEALS {
        let mut seen = BTreeSet::new();
        let mut waiting = vec![start];
        while let Some(package) = waiting.pop() {
            if seen.insert(package) {
                waiting.extend(
                    packages
                        .get(package)
                        .into_iter()
                        .flatten()
                        .map(String::as_str),
                );
            }
        }
        if seen.contains(SEALS) {
            problems.push(format!("{start} depends on {SEALS}"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn house(edges: &[(&str, &str)]) -> Packages {
        let mut packages = Packages::new();
        for (from, to) in edges {
            packages.entry((*to).to_owned()).or_default();
            packages
                .entry((*from).to_owned())
                .or_default()
                .insert((*to).to_owned());
        }
        packages
    }

    #[test]
    fn an_edge_to_the_same_row_or_below_is_found() {
        let good = [
            ("unbroken-broker", "unbroken-broker-core"),
            ("unbroken-broker", "mio"),
        ];
        let mut good = house(&good);
        good.remove("mio"); // a package of others has no row and needs none
        assert_eq!(order(&good), Vec::<String>::new());
        for bad in ["unbroken-client", "unbroken-broker"] {
            let problems = order(&house(&[("unbroken-broker-core", bad)]));
            assert_eq!(problems.len(), 1, "{problems:?}");
        }
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        assert_eq!(order(&house(&[("unbroken", "unbroken-new")])).len(), 1);
    }

    #[test]
    fn a_way_from_the_broker_to_the_seal_is_found() {
        let direct = ("unbroken-broker", SEALS);
        assert_eq!(sealed(&house(&[direct])).len(), 1);
        let around = [("unbroken-broker-core", "other"), ("other", SEALS)];
        assert_eq!(sealed(&house(&around)).len(), 1);
        assert_eq!(sealed(&house(&[("unbroken", SEALS)])), Vec::<String>::new());
    }

    #[test]
    fn packages_are_read_from_what_cargo_prints() {
        let text = r#"{"packages":[{"name":"a","dependencies":[{"name":"b"},{"name":"c"}]}]}"#;
        let packages = packages(text).expect("the text is what cargo prints");
        let expect: BTreeSet<_> = ["b".to_owned(), "c".to_owned()].into();
        assert_eq!(packages["a"], expect);
    }
}
