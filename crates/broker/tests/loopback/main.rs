//! The server in this process, its clients raw bytes over the loopback: what the driver promises
//! whatever the shards decide.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod access;
mod client;
mod handle;
mod http_auth;
mod reload;
mod restart;
mod scram;
mod service;
mod tokens;
mod users;

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, Received, connect, connect_with_will, packet, publish, string, subscribe};
use unbroken_broker::Server;
use unbroken_broker::config::{Bind, Config, Listener};
use unbroken_broker::handle::{Cursor, Within};

fn config(shards: u8) -> Config {
    let mut config = Config::default();
    config.broker.shards = Some(shards);
    config.broker.sys_interval = None;
    config.storage.in_memory = true;
    config.listeners = vec![listener()];
    config
}

fn listener() -> Listener {
    Listener {
        bind: Ipv4Addr::LOCALHOST.into(),
        port: 0,
        ..Listener::default()
    }
}

fn start(config: Config) -> (Server, SocketAddr) {
    let server = Server::start(config).unwrap();
    let address = server.listeners()[0].address.tcp().unwrap();
    (server, address)
}

#[test]
fn a_message_reaches_its_subscriber_whatever_shards_the_two_live_on() {
    for shards in [1, 2, 8] {
        let (_server, address) = start(config(shards));
        let mut subscribers: Vec<_> = (0..16)
            .map(|n| {
                let mut client = Client::connect(address, &format!("subscriber-{n}"));
                client.subscribe(&format!("to/{n}"));
                client
            })
            .collect();
        for publisher in 0..4 {
            let mut client = Client::connect(address, &format!("publisher-{publisher}"));
            for n in 0..16 {
                client.send(&publish(
                    &format!("to/{n}"),
                    format!("{publisher}").as_bytes(),
                ));
            }
            for (n, subscriber) in subscribers.iter_mut().enumerate() {
                let (topic, payload) = subscriber.expect_message();
                assert_eq!(topic, format!("to/{n}"));
                assert_eq!(payload, format!("{publisher}").as_bytes());
            }
        }
    }
}

#[test]
fn a_listener_serves_all_its_addresses_with_one_port_and_one_limit() {
    let mut config = config(2);
    let loopback: [std::net::IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    config.listeners[0].bind = Bind::new(loopback.to_vec()).unwrap();
    config.listeners[0].max_connections = Some(2);
    let server = Server::start(config).unwrap();
    let opened = server.listeners().iter();
    let opened: Vec<_> = opened.map(|it| it.address.tcp().unwrap()).collect();
    assert_eq!([opened[0].ip(), opened[1].ip()], loopback);
    assert_eq!(opened[0].port(), opened[1].port());
    let mut v4 = Client::connect(opened[0], "v4");
    let mut v6 = Client::connect(opened[1], "v6");
    v4.subscribe("news");
    v6.send(&publish("news", b"x"));
    assert_eq!(v4.expect_message(), ("news".to_owned(), b"x".to_vec()));
    for address in opened {
        let mut third = Client::open(address);
        third.send(&connect("third"));
        third.expect_connack(0x97);
    }
    v6.ping();
}

#[test]
fn all_addresses_are_those_of_both_families() {
    let mut config = config(1);
    config.listeners[0].bind = Bind::all();
    let server = Server::start(config).unwrap();
    let port = server.listeners()[0].address.tcp().unwrap().port();
    let v4 = (Ipv4Addr::LOCALHOST, port).into();
    let v6 = (Ipv6Addr::LOCALHOST, port).into();
    let _both = [Client::connect(v4, "v4"), Client::connect(v6, "v6")];
    let clients = server
        .handle()
        .clients(Cursor::default(), Within::default());
    let addresses = clients.unwrap().entries.into_iter();
    let mut addresses: Vec<_> = addresses.map(|it| it.address.unwrap().ip()).collect();
    addresses.sort();
    // An address of IPv4 is one, and not mapped into IPv6.
    let expected: [std::net::IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    assert_eq!(addresses, expected);
}

#[test]
fn bytes_after_connect_move_with_the_connection() {
    let (_server, address) = start(config(8));
    for n in 0..32 {
        let topic = format!("own/{n}");
        let mut client = Client::open(address);
        client.send(
            &[
                connect(&format!("mover-{n}")),
                subscribe(&topic),
                publish(&topic, b"x"),
                vec![0xc0, 0],
            ]
            .concat(),
        );
        client.expect_connack(0);
        // SUBACK waits for the other shards; PINGRESP does not.
        let mut heard: Vec<u8> = (0..3)
            .map(|_| match client.receive() {
                Received::Packet(first, _) => first,
                Received::Closed => panic!("closed"),
            })
            .collect();
        heard.sort_unstable();
        assert_eq!(heard, [0x30, 0x90, 0xd0]);
    }
}

#[test]
fn a_connect_that_comes_byte_by_byte_is_understood() {
    let (_server, address) = start(config(2));
    for id in ["slow-a", "slow-b", "slow-c"] {
        let mut client = Client::open(address);
        for byte in connect(id) {
            client.send(&[byte]);
        }
        client.expect_connack(0);
        client.ping();
    }
}

#[test]
fn a_client_that_has_shut_down_its_side_still_gets_answers() {
    let (_server, address) = start(config(4));
    for n in 0..8 {
        let mut client = Client::open(address);
        client.send(&[connect(&format!("half-closed-{n}")), vec![0xc0, 0]].concat());
        client.stream().shutdown(Shutdown::Write).unwrap();
        client.expect_connack(0);
        assert_eq!(client.receive(), Received::Packet(0xd0, vec![]));
        assert_eq!(client.receive(), Received::Closed);
    }
}

#[test]
fn a_reset_publishes_the_will_and_a_disconnect_before_it_does_not() {
    let (server, address) = start(config(2));
    let mut heir = Client::connect(address, "heir");
    heir.subscribe("will/#");
    let mut publisher = Client::connect(address, "publisher");
    let flood = publish("flood", &vec![0; 100_000]).repeat(20);
    for n in 0..10 {
        for (farewell, will_published) in [(&[][..], true), (&[0xe0, 0][..], false)] {
            let mut client = Client::open(address);
            client.send(&connect_with_will(
                &format!("testator-{n}"),
                &format!("will/{n}"),
            ));
            client.expect_connack(0);
            client.subscribe("flood");
            // Closing with unread bytes is a reset, and the broker is writing more of them.
            publisher.send(&flood);
            client.send(farewell);
            drop(client);
            while server.handle().connections() > 2 {
                publisher.ping();
            }
            if will_published {
                assert_eq!(heir.expect_message().0, format!("will/{n}"));
            }
            publisher.send(&publish("will/marker", b""));
            assert_eq!(heir.expect_message().0, "will/marker");
        }
    }
}

#[test]
fn a_packet_larger_than_any_buffer_is_delivered() {
    let (_server, address) = start(config(2));
    let payload: Vec<u8> = (0..3_000_000u32).map(|n| n.to_le_bytes()[0]).collect();
    let mut subscriber = Client::connect(address, "large-subscriber");
    subscriber.subscribe("large");
    let mut publisher = Client::connect(address, "large-publisher");
    publisher.send(&publish("large", &payload));
    let (_, received) = subscriber.expect_message();
    assert!(received == payload, "{} bytes", received.len());
}

#[test]
fn shards_that_flood_each_other_lose_nothing_and_keep_order() {
    const MESSAGES: u32 = 30_000;
    const PAIRS: u32 = 4;
    let mut config = config(2);
    config.limits.output_bytes_max = u32::MAX;
    let (_server, address) = start(config);
    let clients: Vec<_> = (0..PAIRS)
        .map(|n| {
            let topic = format!("flood/{n}");
            let mut subscriber = Client::connect(address, &format!("flood-subscriber-{n}"));
            subscriber.subscribe(&topic);
            let publisher = Client::connect(address, &format!("flood-publisher-{n}"));
            (topic, subscriber, publisher)
        })
        .collect();
    let mut threads = Vec::new();
    for (topic, mut subscriber, mut publisher) in clients {
        threads.push(thread::spawn(move || {
            for n in 0..MESSAGES {
                publisher.send(&publish(&topic, &n.to_be_bytes()));
            }
        }));
        threads.push(thread::spawn(move || {
            for n in 0..MESSAGES {
                assert_eq!(subscriber.expect_message().1, n.to_be_bytes());
            }
        }));
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn a_subscriber_that_does_not_read_delays_no_other() {
    let (_server, address) = start(config(1));
    let mut idler = Client::connect(address, "idler");
    idler.subscribe("stream");
    let mut reader = Client::connect(address, "reader");
    reader.subscribe("done");
    let mut publisher = Client::connect(address, "publisher");
    // More than the kernel's buffers and the connection's output limit take together.
    let message = publish("stream", &vec![7; 64 * 1024]);
    for _ in 0..400 {
        publisher.send(&message);
    }
    publisher.send(&publish("done", b""));
    assert_eq!(reader.expect_message().0, "done");
    publisher.ping();
    // What was taken for it before is whole, and it is served again.
    for _ in 0..10 {
        assert_eq!(idler.expect_message().1.len(), 64 * 1024);
    }
}

#[test]
fn messages_that_a_closed_connection_did_not_take_count_as_lost() {
    const MESSAGES: u64 = 400;
    let mut config = config(1);
    config.broker.sys_interval = Some(Duration::from_secs(1));
    let (_server, address) = start(config);
    let mut idler = Client::connect(address, "idler");
    idler.subscribe("stream");
    let mut publisher = Client::connect(address, "publisher");
    // More than the kernel's buffers and the connection's output limit take together.
    let message = publish("stream", &vec![7; 64 * 1024]);
    for _ in 0..MESSAGES {
        publisher.send(&message);
    }
    publisher.ping();
    let _successor = Client::connect(address, "idler");
    let mut auditor = Client::connect(address, "auditor");
    auditor.subscribe("$SYS/broker/unbroken/dropped/+");
    let (mut slow, mut lost) = (0, 0);
    while slow == 0 || lost == 0 {
        let (topic, payload) = auditor.expect_message();
        let count = std::str::from_utf8(&payload).unwrap().parse().unwrap();
        match topic.rsplit('/').next().unwrap() {
            "slow-receiver" => slow = count,
            "connection-lost" => lost = count,
            _ => {}
        }
    }
    let mut taken = 0;
    while let Received::Packet(first, _) = idler.receive() {
        assert_eq!(first, 0x30);
        taken += 1;
    }
    assert_eq!(taken + slow + lost, MESSAGES, "{taken} {slow} {lost}");
}

#[test]
fn final_bytes_arrive_although_the_peer_keeps_sending() {
    let (_server, address) = start(config(1));
    let mut client = Client::connect(address, "babbler");
    let mut bytes = vec![0xf1, 0xff, 0xff, 0xff, 0xff]; // no packet begins like this
    bytes.resize(1_000_000, 0);
    // The broker may have stopped reading before all of it has gone.
    let _ = client.stream().write_all(&bytes);
    match client.receive() {
        Received::Packet(0xe0, body) => assert_eq!(body.first(), Some(&0x81)),
        other => panic!("no DISCONNECT: {other:?}"),
    }
    assert_eq!(client.receive(), Received::Closed);
}

#[test]
fn draining_closes_every_connection_and_ends() {
    let (server, address) = start(config(2));
    let mut clients: Vec<_> = (0..10)
        .map(|n| Client::connect(address, &format!("drained-{n}")))
        .collect();
    let silent = Client::open(address);
    let draining = thread::spawn(move || server.drain(Duration::from_secs(20)));
    for client in &mut clients {
        // No DISCONNECT, so that libmosquitto's clients connect again.
        assert_eq!(client.receive(), Received::Closed);
    }
    drop((clients, silent));
    draining.join().unwrap().unwrap();
    assert!(
        std::net::TcpStream::connect(address).is_err(),
        "the listener is closed"
    );
}

#[test]
fn draining_does_not_wait_for_a_client_that_has_its_fin_and_does_not_close() {
    let (server, address) = start(config(2));
    let mut holders: Vec<_> = (0..4)
        .map(|n| Client::connect(address, &format!("holder-{n}")))
        .collect();
    let mut publisher = Client::connect(address, "publisher");
    for holder in &mut holders {
        holder.subscribe("last");
    }
    publisher.send(&publish("last", b"words"));
    // A shard that stops does not wait for QoS 0 messages that are on their way from others.
    for holder in &holders {
        holder.wait_for_bytes();
    }
    let started = Instant::now();
    server.drain(Duration::from_mins(5)).unwrap();
    assert!(
        started.elapsed() < Duration::from_mins(1),
        "{:?}",
        started.elapsed()
    );
    // All of them have had everything all the same.
    for holder in &mut holders {
        assert_eq!(holder.expect_message(), ("last".into(), b"words".to_vec()));
        assert_eq!(holder.receive(), Received::Closed);
    }
}

#[test]
fn draining_waits_at_most_the_timeout_for_a_client_that_does_not_read() {
    let (server, address) = start(config(1));
    let mut idler = Client::connect(address, "idler");
    idler.subscribe("stream");
    let mut publisher = Client::connect(address, "publisher");
    publisher.send(&publish("stream", &vec![7; 64 * 1024]).repeat(200));
    publisher.ping();
    let started = Instant::now();
    server.drain(Duration::from_millis(100)).unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn connections_beyond_a_listeners_limit_are_refused_with_a_reason() {
    let mut config = config(1);
    config.listeners = vec![
        Listener {
            max_connections: Some(2),
            ..listener()
        },
        listener(),
    ];
    let (server, address) = start(config);
    let elsewhere = server.listeners()[1].address.tcp().unwrap();
    let first = Client::connect(address, "first");
    let mut second = Client::connect(address, "second");
    let refuse = |id: &str| {
        let mut client = Client::open(address);
        client.send(&connect(id));
        client.expect_connack(0x97);
        assert_eq!(client.receive(), Received::Closed);
    };
    refuse("third");
    let mut third = Client::connect(elsewhere, "third");
    refuse("third");
    third.ping();
    let mut again = Client::connect(address, "second");
    assert!(matches!(second.receive(), Received::Packet(0xe0, body) if body[0] == 0x8e));
    assert_eq!(second.receive(), Received::Closed);
    refuse("fourth");
    let mut moved = Client::connect(elsewhere, "second");
    again.receive();
    assert_eq!(again.receive(), Received::Closed);
    moved.ping();
    let _fourth = Client::connect(address, "fourth");
    refuse("fifth");
    drop((first, second, third, again, moved));
    while server.handle().connections() > 1 {
        thread::yield_now();
    }
    Client::connect(address, "third").ping();
}

#[test]
fn a_client_beyond_the_brokers_limit_is_refused_with_a_reason() {
    let mut config = config(2);
    config.limits.connections_max = 2;
    let (_server, address) = start(config);
    let _first = Client::connect(address, "first");
    let _second = Client::connect(address, "second");
    let mut third = Client::open(address);
    third.send(&connect("third"));
    third.expect_connack(0x97);
    assert_eq!(third.receive(), Received::Closed);
}

#[test]
fn retained_messages_of_all_shards_reach_a_subscriber_that_reads_late() {
    const RETAINED: usize = 5_000;
    let mut config = config(3);
    config.limits.output_bytes_max = 256 * 1024;
    let (_server, address) = start(config);
    let mut publisher = Client::connect(address, "keeper");
    for n in 0..RETAINED {
        let mut message = publish(&format!("kept/{n}"), &[1; 400]);
        message[0] |= 1; // RETAIN
        publisher.send(&message);
    }
    publisher.ping();
    let mut late = Client::connect(address, "late");
    late.send(&subscribe("kept/#"));
    let mut topics = std::collections::HashSet::new();
    let mut granted = false;
    while !granted || topics.len() < RETAINED {
        match late.receive() {
            Received::Packet(0x90, _) => granted = true,
            Received::Packet(0x31, body) => {
                let length = usize::from(body[0]) << 8 | usize::from(body[1]);
                assert!(topics.insert(body[2..2 + length].to_vec()), "each once");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_client_that_takes_no_answers_can_send_no_more_until_it_does_and_loses_none() {
    let mut config = config(1);
    config.limits.output_bytes_max = 64 * 1024;
    let (_server, address) = start(config);
    let mut client = Client::connect(address, "without-end");
    // A buffer that is not set grows to tens of MB, which hold millions of answers.
    socket2::SockRef::from(client.stream())
        .set_recv_buffer_size(64 * 1024)
        .unwrap();
    let mut writer = client.stream().try_clone().unwrap();
    writer
        .set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let payload = vec![b'x'; 1_024];
    let id = |number: u32| u16::try_from(number % 1_000 + 1).unwrap().to_be_bytes();
    let message = |number| {
        packet(
            0x32,
            &[&string("t")[..], &id(number), b"\0", &payload].concat(),
        )
    };
    let (mut sent, mut rest) = (0, message(0));
    while let Ok(count) = writer.write(&rest) {
        rest.drain(..count);
        if rest.is_empty() {
            sent += 1;
            rest = message(sent);
            // What the kernel holds for both directions is far less.
            assert!(sent < 500_000, "500 MB went, and no answer was taken");
        }
    }
    let expect_answer = |client: &mut Client, number| match client.receive() {
        Received::Packet(0x40, body) => assert_eq!(body[..2], id(number)),
        other => panic!("not PUBACK: {other:?}"),
    };
    for number in 0..sent {
        expect_answer(&mut client, number);
    }
    client.send(&rest);
    expect_answer(&mut client, sent);
    client.ping();
}

/// `ann` with the password `secret`, as mosquitto_passwd writes it (PBKDF2, 101 rounds).
const HASHED_SECRET: &str = concat!(
    "ann:$7$101$b33yDmWxkrhf1ndL$rHagF4zBHYnzbXmY9CnRvA03P7YsuoxO",
    "T88K8of0iWslx0stTHdfsRfafQLxNTc9p7nBDpRyXRsfZovOupRj7g==\n"
);
