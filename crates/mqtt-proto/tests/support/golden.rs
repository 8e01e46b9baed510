//! The golden packets of `testdata/`, read as `testdata/README.md` says.

use std::{fs, path::Path};

use serde::Deserialize;
use unbroken_mqtt_proto::Version;

/// One row for one version.
#[derive(Debug)]
pub(crate) struct Golden {
    /// File, name and version, for messages.
    pub label: String,
    pub version: Version,
    pub limit: u32,
    pub bytes: Vec<u8>,
    pub expect: Expect,
}

#[derive(Debug)]
pub(crate) enum Expect {
    Incomplete,
    Packet { words: String, canonical: bool },
    Fault { variant: String, reason: u8 },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    packet: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    versions: Vec<String>,
    bytes: String,
    #[serde(default = "no_limit")]
    limit: u32,
    #[serde(default)]
    incomplete: bool,
    ok: Option<String>,
    #[serde(default = "yes")]
    canonical: bool,
    fault: Option<String>,
    reason: Option<u8>,
    #[serde(default, rename = "statements")]
    _statements: Vec<String>,
}

const fn no_limit() -> u32 {
    u32::MAX
}

const fn yes() -> bool {
    true
}

/// Every row of every file, once for each of its versions.
pub(crate) fn golden() -> Vec<Golden> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let file: File = toml::from_str(&fs::read_to_string(&path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file_name = path.file_stem().unwrap().to_str().unwrap();
        for row in file.packet {
            for version in &row.versions {
                let label = format!("{file_name}: {} ({version})", row.name);
                all.push(Golden {
                    version: parse_version(version),
                    limit: row.limit,
                    bytes: parse_hex(&row.bytes),
                    expect: row
                        .expect()
                        .unwrap_or_else(|| panic!("{label}: no expectation")),
                    label,
                });
            }
        }
    }
    all
}

impl Row {
    fn expect(&self) -> Option<Expect> {
        match (self.incomplete, &self.ok, &self.fault, self.reason) {
            (true, None, None, None) => Some(Expect::Incomplete),
            (false, Some(words), None, None) => Some(Expect::Packet {
                words: words.clone(),
                canonical: self.canonical,
            }),
            (false, None, Some(variant), Some(reason)) => Some(Expect::Fault {
                variant: variant.clone(),
                reason,
            }),
            _ => None,
        }
    }
}

fn parse_version(text: &str) -> Version {
    Version::ALL
        .into_iter()
        .find(|version| version.to_string() == text)
        .unwrap()
}

fn parse_hex(text: &str) -> Vec<u8> {
    text.split_whitespace()
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect()
}
