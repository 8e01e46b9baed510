//! The golden packets of the codec, sent to the running broker over a raw socket.
//!
//! The codec's own tests read the same rows; here they show that the broker acts on what its
//! decoder finds: every malformed packet ends its connection, for the reason in the row, and no
//! packet at all harms anybody else. Rows that are valid say nothing about the answer: the broker
//! still refuses some of them.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use serde::Deserialize;
use unbroken_acceptance::raw::{Packet, Version, hex, reason};
use unbroken_acceptance::{Broker, Client, case};

/// The largest packet the broker under test takes; rows for a smaller limit are left out.
const LIMIT: u32 = 65_536;

#[derive(Deserialize)]
struct Rows {
    packet: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    versions: Vec<String>,
    bytes: String,
    limit: Option<u32>,
    fault: Option<String>,
    reason: Option<u8>,
}

impl Row {
    fn is_connect(&self) -> bool {
        self.first_byte() >> 4 == 1
    }

    fn first_byte(&self) -> u8 {
        hex(&self.bytes).first().copied().unwrap_or(0)
    }

    /// Packets the broker takes from no client, or from none that did not ask for them: it may say
    /// so before it looks at their content.
    fn is_out_of_place(&self) -> bool {
        matches!(self.first_byte() >> 4, 2 | 9 | 11 | 13 | 15)
    }
}

fn rows() -> Vec<Row> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/mqtt-proto/testdata");
    let mut rows = Vec::new();
    for entry in fs::read_dir(&directory).expect("the golden packets are in the repository") {
        let path = entry.expect("the directory can be listed").path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            let text = fs::read_to_string(&path).expect("a golden file can be read");
            let file: Rows =
                toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            rows.extend(file.packet);
        }
    }
    rows.retain(|row| row.limit.is_none_or(|limit| limit >= LIMIT));
    assert!(rows.len() > 250, "only {} rows were found", rows.len());
    rows
}

/// Tries every row that is chosen in each of its versions and tells all failures together.
#[track_caller]
fn try_all(choose: impl Fn(&Row) -> bool, attempt: impl Fn(&mut Client, &Row)) {
    let broker = Broker::with_config(&format!("[limits]\npacket_bytes_max = \"{LIMIT} B\"\n"));
    let mut bystander = broker.connect("bystander");
    let mut failures = Vec::new();
    for row in rows().iter().filter(|row| choose(row)) {
        for version in row.versions.iter().map(|text| Version::from_text(text)) {
            let tried = catch_unwind(AssertUnwindSafe(|| {
                let mut client = if row.is_connect() {
                    broker.open_as(version)
                } else {
                    broker.connect_as(version, "sender")
                };
                client.send_hex(&row.bytes);
                attempt(&mut client, row);
            }));
            if tried.is_err() {
                let name = format!("{} in {version:?}: {}", row.name, row.bytes);
                case(&format!("that was {name}"));
                failures.push(name);
            }
        }
    }
    bystander.expect_pong();
    assert!(
        failures.is_empty(),
        "{} rows failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn every_malformed_packet_ends_its_connection_for_the_reason_in_its_row() {
    let malformed = |row: &Row| row.fault.is_some();
    try_all(malformed, |client, row| {
        let reason = row.reason.expect("a fault has a reason");
        let unsupported = row.fault.as_deref() == Some("UnsupportedVersion");
        match (client.receive_or_close(), client.version()) {
            // A refused CONNECT may always be closed without a word.
            (None, _) if row.is_connect() && !unsupported => {}
            (Some(Packet::ConnAck(connack)), _) if unsupported => {
                let refusals = [1, reason::UNSUPPORTED_PROTOCOL_VERSION];
                assert!(refusals.contains(&connack.reason), "{connack:02x?}");
                client.expect_closed();
            }
            (Some(Packet::ConnAck(connack)), Version::V5) if row.is_connect() => {
                assert_eq!(connack.reason, reason, "{connack:02x?}");
                client.expect_closed();
            }
            (Some(Packet::Disconnect(told)), Version::V5) if !row.is_connect() => {
                let allowed = told.code == reason
                    || row.is_out_of_place() && told.code == reason::PROTOCOL_ERROR;
                assert!(allowed, "expected {reason:#04x}, got {told:02x?}");
                client.expect_closed();
            }
            (None, Version::V3_1 | Version::V3_1_1) => {}
            (other, _) => panic!("expected {reason:#04x}, got {other:02x?}"),
        }
    });
}

#[test]
fn valid_and_incomplete_packets_do_no_harm() {
    let others = |row: &Row| row.fault.is_none();
    try_all(others, |client, _| {
        client.finish_sending();
        client.drain_to_close();
    });
}
