//! Any bytes, as a stream of packets: they are frames and packets or errors, and what was decoded
//! can be sent and is then the same.
//!
//! Input: one byte that chooses the version (modulo 3), then what a peer sends.

#![no_main]

use libfuzzer_sys::fuzz_target;
use unbroken_mqtt_proto::{
    Connect, Packet, PacketType, ReasonCode, Version, frame_length, next_frame,
    publish::packet_id_offset,
};

/// A broker's, of the order of magnitude that is usual.
const LIMIT: u32 = 1 << 20;

fuzz_target!(|input: &[u8]| {
    let Some((&choice, mut bytes)) = input.split_first() else {
        return;
    };
    let version = Version::ALL[usize::from(choice) % Version::ALL.len()];
    loop {
        let length = frame_length(bytes, LIMIT);
        let frame = match next_frame(bytes, LIMIT) {
            Ok(Some(frame)) => frame,
            Ok(None) => {
                // Incomplete: either the header is, or the length it tells is not there yet.
                assert!(
                    length.is_ok_and(|length| length.is_none_or(|length| length > bytes.len()))
                );
                return;
            }
            Err(error) => {
                assert_eq!(length, Err(error));
                check_reason(error.reason());
                return;
            }
        };
        assert_eq!(length, Ok(Some(frame.bytes.len())));
        match Packet::decode(frame, version) {
            Ok(packet) => {
                check_round_trip(&packet, version);
                if let Packet::Connect(connect) = packet {
                    assert_eq!(Connect::decode_first(frame), Ok(connect));
                    assert_eq!(Connect::claimed_version(frame), Some(connect.version));
                }
                if let Packet::Publish(publish) = packet {
                    let offset = packet_id_offset(frame.bytes);
                    assert_eq!(offset.is_some(), publish.packet_id.is_some());
                }
                // Reads every lazily decoded part.
                let _ = format!("{packet:?}");
            }
            Err(error) => check_reason(error.reason()),
        }
        bytes = &bytes[frame.bytes.len()..];
    }
});

fn check_round_trip(packet: &Packet<'_>, version: Version) {
    let mut out = Vec::new();
    packet
        .encode(version, &mut out)
        .expect("what was decoded can be sent");
    let frame = next_frame(&out, u32::MAX)
        .expect("what we send has a valid header")
        .expect("what we send is whole");
    assert_eq!(frame.bytes.len(), out.len());
    assert_eq!(Packet::decode(frame, version).as_ref(), Ok(packet));
}

/// Every fault ends in a reason that a CONNACK or DISCONNECT may carry.
fn check_reason(reason: ReasonCode) {
    assert!(reason.is_error());
    assert!(
        reason.is_allowed_in(PacketType::Disconnect) || reason.is_allowed_in(PacketType::ConnAck)
    );
}
