//! A rate of one listener: its clients are slowed and refused, and those of another are not.

use std::net::{Ipv4Addr, SocketAddr};

use unbroken_acceptance::raw::{AckKind, Connect, Packet, Publish, reason};
use unbroken_acceptance::{Client, Launch};

use crate::programs::port_named;

const CONFIG: &str = "\
[broker]
sys_interval = \"1s\"

[limits]
rate_patience = \"1s\"

[[listeners]]
name = \"private\"
port = 0

[[listeners]]
name = \"public\"
port = 0

[[rates]]
listeners = [\"public\"]
messages_per_second = 1
";
const MESSAGES: u16 = 9;

fn burst(client: &mut Client) {
    let version = client.version();
    let messages = (1..=MESSAGES).map(|id| Publish::new("a", "x").qos(1).packet_id(id));
    let bytes: Vec<_> = messages.map(|message| message.encode(version)).collect();
    client.send(bytes.concat());
}

#[test]
fn a_rate_of_messages_of_one_listener_is_no_other_listeners() {
    let broker = Launch::listeners(CONFIG).start();
    let [mut private, mut public] = ["private", "public"].map(|name| {
        let port = port_named(&broker, name);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Client::connect(address, &Connect::v5(name))
    });
    burst(&mut public);
    burst(&mut private);
    for number in 1..=MESSAGES {
        private.expect_ack(AckKind::PubAck, number);
    }
    let refused = loop {
        match public.receive() {
            Packet::Ack(ack) => assert!(ack.packet_id < MESSAGES, "it was not slowed"),
            Packet::Disconnect(told) => break told.code,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused, reason::MESSAGE_RATE_TOO_HIGH);
}
