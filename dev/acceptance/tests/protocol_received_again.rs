//! What a publisher sends again is counted apart, by whether the connection had carried it before,
//! in bytes as they are on the wire.

use unbroken_acceptance::raw::{AckKind, Connect};
use unbroken_acceptance::{Broker, Client};

/// PUBLISH to `a` with the payload `x`: packet 1 at quality 1, packet 2 at quality 2, and both
/// again with DUP.
const FIRST_1: &str = "32 06 00 01 61 00 01 78";
const AGAIN_1: &str = "3a 06 00 01 61 00 01 78";
const FIRST_2: &str = "34 06 00 01 61 00 02 78";
const AGAIN_2: &str = "3c 06 00 01 61 00 02 78";

/// Waits until the counter shows the number.
#[track_caller]
fn counted(broker: &Broker, name: &str, count: u64) {
    let topic = format!("$SYS/audit/{name}");
    let mut auditor = broker.connect("auditor");
    auditor.subscribe_to(&topic, 0);
    loop {
        let message = auditor.expect_publish();
        let got: u64 = message.text().parse().expect("a counter is a number");
        if got == count {
            return;
        }
        assert!(got < count, "{name}: {got}, not {count}");
    }
}

#[track_caller]
fn sends(client: &mut Client, bytes: &str, answer: AckKind, packet_id: u16) {
    client.send_hex(bytes);
    client.expect_ack(answer, packet_id);
}

#[test]
fn what_comes_again_is_counted_by_the_connection_that_had_it() {
    for connect in [Connect::v5("pump"), Connect::v311("pump")] {
        let broker = Broker::with_config("[broker]\nsys_interval = \"1s\"\n");
        // A property length of 0 stands before the payload in 5.0 only.
        let bytes = |text: &str| match connect.version {
            unbroken_acceptance::raw::Version::V5 => {
                text.replacen(" 06 ", " 07 ", 1).replacen("78", "00 78", 1)
            }
            _ => text.to_owned(),
        };
        let connect = connect.clone().persistent();
        let mut pump = broker.accept(&connect);
        sends(&mut pump, &bytes(FIRST_1), AckKind::PubAck, 1);
        sends(&mut pump, &bytes(AGAIN_1), AckKind::PubAck, 1);
        sends(&mut pump, &bytes(FIRST_2), AckKind::PubRec, 2);
        sends(&mut pump, &bytes(AGAIN_2), AckKind::PubRec, 2);
        pump.vanish();
        let mut pump = broker.accept(&connect);
        assert!(pump.session_present());
        sends(&mut pump, &bytes(AGAIN_2), AckKind::PubRec, 2);
        counted(&broker, "received-again/on-one-connection", 2);
        counted(&broker, "received-again/after-a-reconnect", 1);
        // The one at quality 2 was taken in once.
        counted(&broker, "received", 3);
        counted(&broker, "duplicated", 0);
    }
}
