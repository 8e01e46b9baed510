//! Every golden packet is decoded, and encoded again; every beginning of it is refused or awaited,
//! never more.

#![allow(clippy::unwrap_used, reason = "a failed test is the point")]

mod support;

use support::{
    golden::{Expect, golden},
    words::describe,
};
use unbroken_mqtt_proto::{
    Connect, DecodeError, Packet, PacketType, Version, frame_length, next_frame,
};

/// As a connection does it: the first packet without knowing the version, every other with it.
fn decode(bytes: &[u8], limit: u32, version: Version) -> Result<Option<Packet<'_>>, DecodeError> {
    let Some(frame) = next_frame(bytes, limit)? else {
        return Ok(None);
    };
    let packet = Packet::decode(frame, version);
    if frame.packet_type() == Some(PacketType::Connect) {
        assert_eq!(packet, Connect::decode_first(frame).map(Packet::Connect));
    }
    packet.map(Some)
}

#[test]
fn golden_packets_decode_to_what_their_row_says() {
    let mut wrong = Vec::new();
    for row in golden() {
        let actual = match decode(&row.bytes, row.limit, row.version) {
            Ok(None) => "incomplete".to_owned(),
            Ok(Some(packet)) => describe(&packet),
            Err(error) => {
                let debug = format!("{error:?}");
                let variant = debug.split([' ', '{']).next().unwrap();
                format!("{variant} {}", error.reason())
            }
        };
        let expected = match &row.expect {
            Expect::Incomplete => "incomplete".to_owned(),
            Expect::Packet { words, .. } => words.clone(),
            Expect::Fault { variant, reason } => {
                format!(
                    "{variant} {}",
                    unbroken_mqtt_proto::ReasonCode::try_from(*reason).unwrap()
                )
            }
        };
        if actual != expected {
            wrong.push(format!(
                "{}\n  expected {expected}\n  actual   {actual}",
                row.label
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} rows differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn golden_packets_encode_to_the_bytes_they_came_from() {
    for row in golden() {
        let Expect::Packet { canonical, .. } = row.expect else {
            continue;
        };
        let packet = decode(&row.bytes, u32::MAX, row.version).unwrap().unwrap();
        let mut out = b"before".to_vec();
        packet
            .encode(row.version, &mut out)
            .unwrap_or_else(|error| panic!("{}: {error}", row.label));
        let encoded = out.strip_prefix(b"before").unwrap();
        assert_eq!(
            encoded == row.bytes,
            canonical,
            "{}: {encoded:02X?}",
            row.label
        );
        // A form that is not the shortest still means the same.
        let again = decode(encoded, u32::MAX, row.version).unwrap().unwrap();
        assert_eq!(again, packet, "{}", row.label);
    }
}

#[test]
fn a_packet_cut_off_anywhere_is_awaited_or_refused() {
    for row in golden() {
        let whole = frame_length(&row.bytes, row.limit).ok().flatten();
        for length in 0..row.bytes.len() {
            let part = &row.bytes[..length];
            if whole.is_some_and(|whole| length < whole) {
                assert_eq!(
                    next_frame(part, row.limit),
                    Ok(None),
                    "{} cut to {length}",
                    row.label
                );
            } else {
                let _ = decode(part, row.limit, row.version);
            }
        }
    }
}

/// Whatever the header says, the body may end anywhere: the same bytes with a header that fits
/// them.
#[test]
fn a_body_cut_off_anywhere_is_refused_or_another_valid_packet() {
    for row in golden() {
        let Ok(Some(frame)) = next_frame(&row.bytes, u32::MAX) else {
            continue;
        };
        for length in 0..frame.body.len().min(127) {
            let mut bytes = vec![frame.first_byte, u8::try_from(length).unwrap()];
            bytes.extend_from_slice(&frame.body[..length]);
            for version in Version::ALL {
                let Ok(Some(packet)) = decode(&bytes, u32::MAX, version) else {
                    continue;
                };
                let mut out = Vec::new();
                packet.encode(version, &mut out).unwrap();
                assert_eq!(
                    decode(&out, u32::MAX, version),
                    Ok(Some(packet)),
                    "{}",
                    row.label
                );
            }
        }
    }
}

#[test]
fn golden_packets_decode_under_any_version_without_panic() {
    for row in golden() {
        for version in Version::ALL {
            let _ = decode(&row.bytes, row.limit, version);
        }
    }
}

#[test]
fn golden_rows_have_different_names() {
    let mut labels: Vec<String> = golden().into_iter().map(|row| row.label).collect();
    let count = labels.len();
    labels.sort();
    labels.dedup();
    assert_eq!(labels.len(), count);
}
