//! Any bytes as what lies in the store: whatever is accepted is exactly what we would have written.
//!
//! Input: one byte that chooses the form (modulo 8), then the bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use unbroken_store::session::{Cursor, Head, Inbound, Outbound, Subscription, Will, parse_key};
use unbroken_store::{MessageBytes, MessageRecord};

fuzz_target!(|input: &[u8]| {
    let [form, bytes @ ..] = input else {
        return;
    };
    let again = match form % 8 {
        0 => {
            if let Ok(message) = MessageBytes::parse(bytes.to_vec()) {
                assert_eq!(message.topic(), message.record().topic);
            }
            MessageRecord::decode(bytes).map(|record| record.encode().into_bytes())
        }
        1 => Head::decode(bytes).map(|head| head.encode()),
        2 => Subscription::decode(bytes).map(|subscription| subscription.encode()),
        3 => Cursor::decode(bytes).map(|cursor| cursor.encode()),
        4 => Outbound::decode(bytes).map(|outbound| outbound.encode()),
        5 => Inbound::decode(bytes).map(|inbound| inbound.encode()),
        6 => Will::decode(bytes).map(|will| will.encode()),
        _ => {
            if let Ok(key) = parse_key(bytes) {
                assert!(bytes.starts_with(key.client) && bytes.len() > key.client.len());
            }
            return;
        }
    };
    if let Ok(again) = again {
        assert_eq!(again, bytes);
    }
});
