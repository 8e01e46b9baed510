//! Raw bytes through real sockets.

use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use unbroken_merkle_log::{Epoch, Hasher, LaneId, Property as Audit};
use unbroken_mqtt_proto::{Packet, PacketId, Property, PropertyBuf, Publish, QoS};

use super::*;

/// CONNECT of 5.0 with client id `c`.
const CONNECT: &[u8] = b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x01c";
const CONNACK: &[u8] = b"\x20\x03\x00\x00\x00";

/// A client and a broker with a relay between them.
struct Line {
    relay: Relay,
    listener: TcpListener,
}

impl Line {
    async fn start(towards: Towards) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let broker = listener.local_addr().unwrap();
        let relay = Relay::start(broker, towards).await.unwrap();
        Self { relay, listener }
    }

    /// A connection: the client's end and the broker's, CONNECT and CONNACK exchanged.
    async fn connect(&self) -> (TcpStream, TcpStream) {
        let mut client = TcpStream::connect(self.relay.address()).await.unwrap();
        let (mut broker, _) = self.listener.accept().await.unwrap();
        pass(&mut client, &mut broker, CONNECT).await;
        pass(&mut broker, &mut client, CONNACK).await;
        (client, broker)
    }
}

/// Sends bytes, and demands them at the other end.
async fn pass(from: &mut TcpStream, to: &mut TcpStream, bytes: &[u8]) {
    from.write_all(bytes).await.unwrap();
    expect(to, bytes).await;
}

async fn expect(from: &mut TcpStream, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    from.read_exact(&mut read).await.unwrap();
    assert_eq!(read, bytes);
}

async fn expect_end(from: &mut TcpStream) {
    let mut byte = [0];
    // A close or a reset: both are an end.
    assert!(!matches!(from.read(&mut byte).await, Ok(1..)));
}

fn message(sequence: u64) -> Vec<u8> {
    let lane = LaneId::new(7).unwrap();
    let audit = Audit::stamp(&Hasher::xxh3(), lane, Epoch(0), sequence, b"t", b"21.5");
    let mut properties = PropertyBuf::new();
    let text = audit.to_text();
    properties
        .push(Property::UserProperty(Audit::NAME, &text))
        .unwrap();
    let mut bytes = Vec::new();
    Packet::Publish(Publish {
        dup: false,
        qos: QoS::AtLeastOnce,
        retain: false,
        topic: "t",
        packet_id: PacketId::new(5),
        properties: properties.as_properties(),
        payload: b"21.5",
    })
    .encode(Version::V5, &mut bytes)
    .unwrap();
    bytes
}

#[tokio::test]
async fn a_lost_message_is_acknowledged_between_two_packets_of_the_other_way() {
    let line = Line::start(Towards::Broker).await;
    let (mut client, mut broker) = line.connect().await;
    line.relay.inject(Injection::Lose).unwrap();
    // Half a packet is under way to the client when the acknowledgement comes up.
    broker.write_all(&[0xD0]).await.unwrap();
    client.write_all(&message(1)).await.unwrap();
    expect(&mut client, &[0x40, 2, 0, 5]).await;
    broker.write_all(&[0]).await.unwrap();
    expect(&mut client, &[0xD0, 0]).await;
    pass(&mut client, &mut broker, &message(2)).await;
    let done = line.relay.take_injected();
    assert_eq!(done.len(), 1);
    assert_eq!(
        (done[0].injection, done[0].message.audit.sequence),
        (Injection::Lose, 1)
    );
    assert_eq!(done[0].to_string(), "lost: number 1 on t");
}

#[tokio::test]
async fn only_the_chosen_way_has_faults_injected() {
    let line = Line::start(Towards::Clients).await;
    let (mut client, mut broker) = line.connect().await;
    line.relay.inject(Injection::Lose).unwrap();
    pass(&mut client, &mut broker, &message(1)).await;
    broker.write_all(&message(1)).await.unwrap();
    expect(&mut broker, &[0x40, 2, 0, 5]).await;
    assert_eq!(line.relay.pending(), 0);
}

#[tokio::test]
async fn a_held_message_is_released_by_time_alone() {
    let line = Line::start(Towards::Broker).await;
    let (mut client, mut broker) = line.connect().await;
    let hold = Injection::Hold(Duration::from_millis(200));
    line.relay.inject(hold).unwrap();
    let both = [message(1), message(2)].concat();
    client.write_all(&both).await.unwrap();
    let turned = [message(2), message(1)].concat();
    expect(&mut broker, &turned).await;
    assert_eq!(line.relay.take_injected()[0].injection, hold);
}

#[tokio::test]
async fn a_cut_breaks_what_is_connected_and_what_wants_to_until_it_is_mended() {
    let line = Line::start(Towards::Broker).await;
    let (mut client, mut broker) = line.connect().await;
    line.relay.cut();
    expect_end(&mut client).await;
    expect_end(&mut broker).await;
    let mut refused = TcpStream::connect(line.relay.address()).await.unwrap();
    expect_end(&mut refused).await;
    line.relay.mend();
    line.connect().await;
}

#[tokio::test]
async fn each_side_sees_how_the_other_ends() {
    let line = Line::start(Towards::Broker).await;
    let (mut client, mut broker) = line.connect().await;
    client.write_all(&[0xE0, 0]).await.unwrap();
    client.shutdown().await.unwrap();
    expect(&mut broker, &[0xE0, 0]).await;
    expect_end(&mut broker).await;
    pass(&mut broker, &mut client, &[0xD0, 0]).await;
    drop(broker);
    expect_end(&mut client).await;
}

#[tokio::test]
async fn what_is_no_mqtt_ends_the_connection_behind_what_is() {
    let line = Line::start(Towards::Broker).await;
    let (mut client, mut broker) = line.connect().await;
    client.write_all(&[0xC0, 0, 0x00]).await.unwrap();
    expect(&mut broker, &[0xC0, 0]).await;
    expect_end(&mut broker).await;
}
