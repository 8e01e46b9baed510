//! The gateway to the scalability protocols: raw bytes on its SP side (here), the sockets of nng
//! and nanomsg (`programs`), and peers that harm others (`unfair`). A message that is not passed on
//! has a name.

mod peer;
mod programs;
mod rates;
mod unfair;

use std::net::{Ipv4Addr, TcpListener};

use peer::{PUB, PULL, PUSH, Peer, REP, REQ, SUB, gateway, header};
use unbroken_acceptance::raw::id::{CORRELATION_DATA, RESPONSE_TOPIC};
use unbroken_acceptance::raw::{Connect, Publish};
use unbroken_acceptance::{Broker, Launch, case};

/// A broker with one gateway that listens, called `it`.
#[track_caller]
fn broker(keys: &str) -> Broker {
    let broker = launch(keys).start();
    wait_until_ready(&broker, "it");
    broker
}

/// The gateway has subscribed and opened its lane.
#[track_caller]
fn wait_until_ready(broker: &Broker, name: &str) {
    broker.wait_for_log(&format!("sp gateway ready gateway={name}"));
}

/// Its log says when peers come and go.
fn launch(keys: &str) -> Launch {
    Launch::config(&table(keys)).argument("-v")
}

fn table(keys: &str) -> String {
    format!("[[gateway.sp]]\nname = \"it\"\nlisten = \"tcp://127.0.0.1:0\"\n{keys}\n")
}

/// Ends the broker in good order, and gives the gateway's last counts.
#[track_caller]
fn last_counts(mut broker: Broker) -> Vec<(String, u64)> {
    broker.ask_to_end();
    broker.wait();
    let line = broker.wait_for_log("sp gateway stopped");
    let counts = line.split_once("counts=").expect("it has counts").1;
    let counts = counts
        .split(' ')
        .filter_map(|word| word.trim().split_once('='));
    let number = |(name, count): (&str, &str)| Some((name.to_owned(), count.parse().ok()?));
    counts.filter_map(number).collect()
}

fn count(counts: &[(String, u64)], name: &str) -> u64 {
    let found = counts.iter().find(|(found, _)| found == name);
    found.map_or(0, |(_, count)| *count)
}

#[test]
fn what_peers_push_is_published_in_order_with_a_lane() {
    let broker = broker("socket = \"pull\"\ntopic = \"jobs\"");
    let mut client = broker.connect("client");
    client.subscribe_to("jobs", 1);
    let mut first = Peer::connect(gateway(&broker, "it"), PUSH);
    for number in 0..100 {
        first.send(format!("{number}").as_bytes());
    }
    for number in 0..100 {
        let message = client.take_message("jobs", &number.to_string());
        let names = message.properties.user().into_iter().map(|(name, _)| name);
        assert_eq!(names.collect::<Vec<_>>(), ["audit"]);
    }
    drop(first);
    let mut again = Peer::connect(gateway(&broker, "it"), PUSH);
    again.send(b"");
    client.take_message("jobs", "");
    let counts = last_counts(broker);
    assert_eq!(
        (count(&counts, "received"), count(&counts, "published")),
        (101, 101)
    );
}

/// The broker judges the gateway's lane as any publisher's, by windows of 1,024 messages.
#[test]
fn the_broker_proves_each_window_of_the_lane_of_a_gateway() {
    let broker = broker("socket = \"pull\"\ntopic = \"jobs\"");
    let mut watcher = broker.connect("watcher");
    watcher.subscribe_to("audit/checkpoint/+", 0);
    let mut peer = Peer::join(&broker, "it", PUSH);
    peer.send(b"0");
    let checkpoint = watcher.expect_publish();
    let lane = checkpoint.topic.rsplit('/').next().expect("it has levels");
    let mut windows = broker.connect("windows");
    windows.subscribe_to(&format!("$audit/{lane}/window"), 0);
    for number in 1..=3 * 1_024 {
        peer.send(format!("{number}").as_bytes());
    }
    for first in [0, 1_024, 2_048] {
        let window = windows.expect_publish().text();
        let expected = [
            format!("\"first\":{first},"),
            "\"state\":\"proven\"".to_owned(),
            "\"arrived\":1024".to_owned(),
        ];
        for part in expected {
            assert!(window.contains(&part), "{window}");
        }
    }
}

/// Epoch and lane are bytes 4 to 15 of the stamp, which is base64.
#[test]
fn with_a_spool_a_lane_goes_on_after_a_restart() {
    for (spool, goes_on) in [("spool = \"spool\"", true), ("", false)] {
        case(spool);
        let mut broker = launch(&format!("socket = \"pull\"\ntopic = \"t\"\n{spool}")).start();
        let mut lane = || {
            wait_until_ready(&broker, "it");
            let mut client = broker.connect("client");
            client.subscribe_to("t", 1);
            Peer::join(&broker, "it", PUSH).send(b"x");
            let message = client.take_message("t", "x");
            let (_, stamp) = message.properties.user()[0];
            broker.start_again();
            stamp[4..21].to_owned()
        };
        assert_eq!(lane() == lane(), goes_on);
    }
}

#[test]
fn a_body_of_a_publisher_begins_with_its_topic() {
    let broker = broker("socket = \"sub\"\ntopic = \"in\"");
    let mut client = broker.connect("client");
    client.subscribe_to("in/#", 1);
    let mut peer = Peer::connect(gateway(&broker, "it"), PUB);
    for body in [&b"no topic"[..], b"+\0x", b"\xff\0x", b"a/b\0payload\0"] {
        peer.send(body);
    }
    client.take_message("in/a/b", "payload\0");
    broker.wait_for_log("no separator ends its topic");
    let counts = last_counts(broker);
    assert_eq!(
        (count(&counts, "received"), count(&counts, "bad-topic")),
        (4, 3)
    );
}

#[test]
fn a_peer_that_breaks_the_protocol_is_disconnected_and_harms_no_other() {
    let broker = broker("socket = \"pull\"\ntopic = \"t\"\nmessage_bytes_max = \"4 B\"");
    let address = gateway(&broker, "it");
    let mut client = broker.connect("client");
    client.subscribe_to("t", 1);
    let mut good = Peer::connect(address, PUSH);
    good.send(b"1");
    client.take_message("t", "1");
    for (name, bytes, said) in [
        (
            "not SP",
            b"GET / HTTP/1.1\r\n".to_vec(),
            "no header of a scalability protocol",
        ),
        (
            "the wrong kind",
            header(PUB).to_vec(),
            "protocol 0x20, and pull needs push",
        ),
        (
            "too large",
            [&header(PUSH)[..], &5_u64.to_be_bytes(), b"12345"].concat(),
            "a message of 5 bytes; at most 4 are allowed",
        ),
        (
            "absurdly large",
            [&header(PUSH)[..], &u64::MAX.to_be_bytes()].concat(),
            "a message of 18446744073709551615 bytes",
        ),
    ] {
        case(name);
        let mut bad = Peer::open(address);
        bad.write(&bytes);
        bad.expect_closed();
        broker.wait_for_log(said);
        good.send(b"2");
        client.take_message("t", "2");
    }
    let counts = last_counts(broker);
    assert_eq!(
        (count(&counts, "faults"), count(&counts, "received")),
        (4, 5)
    );
}

#[test]
fn a_message_is_pushed_to_one_peer_and_waits_while_there_is_none() {
    let broker = broker("socket = \"push\"\nfilter = \"work/#\"");
    let mut client = broker.connect("client");
    let work = |payload: &str| Publish::new("work/a", payload).qos(1);
    client.publish(work("0"));
    client.publish_all(["1", "2", "3"].map(work));
    let mut first = Peer::join(&broker, "it", PULL);
    for number in 0..=3 {
        first.expect(number.to_string());
    }
    first.leave(&broker, "it");
    client.publish_all(["4", "5"].map(work));
    let mut both = [
        Peer::join(&broker, "it", PULL),
        Peer::join(&broker, "it", PULL),
    ];
    both[0].expect("4");
    both[0].expect("5");
    client.publish_all((6..16).map(|number| work(&number.to_string())));
    // Each takes the next one when its socket has the last: in turn.
    let mut received: Vec<_> = (0..10).map(|index| both[index % 2].receive()).collect();
    received.sort_by_key(|body| (body.len(), body.clone()));
    assert_eq!(
        received,
        (6..16)
            .map(|number| number.to_string().into_bytes())
            .collect::<Vec<_>>()
    );
    assert_eq!(count(&last_counts(broker), "sent"), 16);
}

#[test]
fn pushed_messages_outlive_the_broker_and_come_once_each_in_order() {
    let mut broker = launch("socket = \"push\"\nfilter = \"work\"")
        .durable()
        .start();
    wait_until_ready(&broker, "it");
    let mut client = broker.connect("client");
    let work = |number: usize| Publish::new("work", number.to_string()).qos(1);
    client.publish(work(0));
    client.publish_all((1..50).map(work));
    broker.start_again();
    let mut peer = Peer::join(&broker, "it", PULL);
    for number in 0..50 {
        peer.expect(number.to_string());
    }
}

/// Its socket is full, so what it does not take waits in the broker, by the broker's own account.
#[test]
fn a_peer_that_does_not_read_stops_the_broker_and_loses_nothing() {
    const MESSAGES: usize = 800;
    let broker = broker("socket = \"push\"\nfilter = \"work\"");
    let mut client = broker.connect("client");
    let payload = |number: usize| format!("{number:>32768}");
    let work = |number: usize| Publish::new("work", payload(number)).qos(1);
    client.publish(work(0));
    let mut peer = Peer::join(&broker, "it", PULL);
    client.publish_all((1..MESSAGES).map(work));
    let mut watcher = broker.connect("watcher");
    // The filter decides the rest of the client id.
    let connected = broker.wait_for_log("connected client=sp-it-");
    let id = connected
        .split("client=")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let id = id.expect("the line has it");
    watcher.subscribe_to(&format!("$audit/account/{id}"), 0);
    let account = watcher.expect_publish().text();
    let field = |name: &str| -> usize {
        let rest = account.split_once(&format!("\"{name}\":")).expect(name).1;
        let digits = rest
            .split(|c: char| !c.is_ascii_digit())
            .next()
            .expect("there is one");
        digits.parse().expect("it is a number")
    };
    assert_eq!(field("expected"), MESSAGES, "{account}");
    assert_eq!(field("sent") + field("waiting"), MESSAGES, "{account}");
    assert!(field("in_flight") <= 256, "{account}");
    assert!(field("waiting") > 0, "{account}");
    for number in 0..MESSAGES {
        peer.expect(payload(number));
    }
    assert_eq!(count(&last_counts(broker), "sent"), MESSAGES as u64);
}

#[test]
fn a_slow_subscriber_misses_messages_by_name_and_the_fast_one_none() {
    const MESSAGES: u64 = 1_000;
    let broker = broker("socket = \"pub\"\nfilter = \"news/#\"");
    let mut client = broker.connect("client");
    let mut fast = Peer::join(&broker, "it", SUB);
    let slow = Peer::join(&broker, "it", SUB);
    let payload = "x".repeat(32_768);
    let news = |number: u64| Publish::new(&format!("news/{number}"), &payload).qos(1);
    client.publish(news(0));
    for number in 0..MESSAGES {
        fast.expect(format!("news/{number}\0{payload}"));
        if number + 1 < MESSAGES {
            client.publish(news(number + 1));
        }
    }
    let counts = last_counts(broker);
    let missed = count(&counts, "slow-peer") + count(&counts, "peer-gone");
    assert!(count(&counts, "slow-peer") > 0, "{counts:?}");
    assert_eq!(count(&counts, "sent") + missed, 2 * MESSAGES, "{counts:?}");
    drop(slow);
}

#[test]
fn a_message_above_the_limit_is_dropped_by_name() {
    let broker = broker("socket = \"push\"\nfilter = \"t\"\nmessage_bytes_max = \"10 B\"");
    let mut client = broker.connect("client");
    let sent =
        ["0123456789", "0123456789a", "end"].map(|payload| Publish::new("t", payload).qos(1));
    client.publish_all(sent);
    let mut peer = Peer::connect(gateway(&broker, "it"), PULL);
    peer.expect("0123456789");
    peer.expect("end");
    broker.wait_for_log("reason=\"too-large\"");
    assert_eq!(count(&last_counts(broker), "too-large"), 1);
}

#[test]
fn a_request_of_a_peer_is_answered_by_an_mqtt_client() {
    let broker = broker("socket = \"rep\"\ntopic = \"ask\"");
    let address = gateway(&broker, "it");
    let mut responder = broker.connect("responder");
    responder.subscribe_to("ask", 1);
    let mut peers = [Peer::connect(address, REQ), Peer::connect(address, REQ)];
    // Through a device, and directly; the same id in both, which are different connections.
    let ways = [&[0, 0, 0, 9, 0x80, 0, 0, 1][..], &[0x80, 0, 0, 1]];
    let mut asked = Vec::new();
    for (number, (peer, way)) in peers.iter_mut().zip(ways).enumerate() {
        peer.send(&[way, format!("question {number}").as_bytes()].concat());
        asked.push(responder.take_message("ask", &format!("question {number}")));
    }
    for (number, request) in asked.iter().enumerate().rev() {
        assert_eq!(request.properties.text(RESPONSE_TOPIC), Some("sp/reply/it"));
        let data = request
            .properties
            .binary(CORRELATION_DATA)
            .expect("it has one");
        let response = |payload: &str| Publish::new("sp/reply/it", payload).qos(1);
        responder.publish(response("nobody asked"));
        let answer = response(&format!("answer {number}"));
        responder.publish(answer.property(CORRELATION_DATA, data));
        peers[number].expect([ways[number], format!("answer {number}").as_bytes()].concat());
    }
    peers[0].send(b"\0\0\0\0");
    broker.wait_for_log("without a request id");
    let counts = last_counts(broker);
    let expected = [
        ("received", 3),
        ("sent", 2),
        ("late-reply", 2),
        ("bad-request", 1),
    ];
    for (name, expected) in expected {
        assert_eq!(count(&counts, name), expected, "{name}: {counts:?}");
    }
}

#[test]
fn a_request_of_an_mqtt_client_goes_to_the_next_peer_when_the_first_is_gone() {
    let broker = broker("socket = \"req\"\nfilter = \"do\"");
    let address = gateway(&broker, "it");
    let mut client = broker.connect("client");
    client.subscribe_to("answers", 1);
    client.publish(Publish::new("do", "no response topic").qos(1));
    let request = Publish::new("do", "2+2").qos(1);
    let request = request.property(RESPONSE_TOPIC, "answers");
    client.publish(request.property(CORRELATION_DATA, &b"id"[..]));
    let mut first = Peer::connect(address, REP);
    let body = first.receive();
    assert_eq!(&body[4..], b"2+2");
    drop(first);
    let mut second = Peer::connect(address, REP);
    let body = second.receive();
    assert_eq!((body[0] & 0x80, &body[4..]), (0x80, &b"2+2"[..]));
    second.send(&[&[0x80, 0xff, 0xff, 0xff], &b"to nothing"[..]].concat());
    second.send(&[&body[..4], b"4"].concat());
    let answer = client.take_message("answers", "4");
    assert_eq!(answer.properties.binary(CORRELATION_DATA), Some(&b"id"[..]));
    let counts = last_counts(broker);
    let expected = [
        ("sent", 2),
        ("published", 1),
        ("late-reply", 1),
        ("no-response-topic", 1),
    ];
    for (name, expected) in expected {
        assert_eq!(count(&counts, name), expected, "{name}: {counts:?}");
    }
}

#[test]
fn a_request_without_a_reply_is_given_up_by_name() {
    let broker = broker("socket = \"req\"\nfilter = \"do\"\nreply_timeout = \"50ms\"");
    let mut peer = Peer::connect(gateway(&broker, "it"), REP);
    let mut client = broker.connect("client");
    client.subscribe_to("answers", 1);
    let request = Publish::new("do", "lost")
        .qos(1)
        .property(RESPONSE_TOPIC, "answers");
    client.publish(request);
    let first = peer.receive();
    broker.wait_for_log("has waited too long for a reply");
    peer.send(&[&first[..4], b"too late"].concat());
    broker.wait_for_log("reason=\"late-reply\"");
    client.expect_nothing_from(&mut broker.connect("other"));
}

#[test]
fn a_gateway_that_connects_comes_back_to_its_peer() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let keys = format!(
        "[[gateway.sp]]\nsocket = \"pull\"\nconnect = \"tcp://{address}\"\ntopic = \"t\"\n"
    );
    let broker = Broker::with_config(&keys);
    broker.wait_for_log(&format!(
        "connecting to tcp://{address} (sp, pull) as pull-{address}"
    ));
    let mut client = broker.connect("client");
    client.subscribe_to("t", 1);
    for payload in ["first", "second", "third"] {
        let mut peer = Peer::accept(&listener, PUSH);
        peer.send(payload.as_bytes());
        client.take_message("t", payload);
    }
}

#[test]
fn a_gateway_gives_up_after_its_time_and_the_broker_goes_on() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let keys = format!(
        "[[gateway.sp]]\nsocket = \"push\"\nconnect = \"tcp://{address}\"\ngive_up = \"150ms\"\n"
    );
    let broker = Broker::with_config(&keys);
    broker.wait_for_log(&format!("gave up connecting to tcp://{address}"));
    broker.connect("client").expect_pong();
}

#[test]
fn an_address_in_use_ends_the_broker_with_the_reason() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let keys = format!("[[gateway.sp]]\nlisten = \"tcp://{address}\"\n");
    let (status, said) = Launch::config(&keys).run_to_end();
    assert_eq!(status.code(), Some(69), "{said}");
    assert!(
        said.contains(&format!("cannot listen on tcp://{address}: ")),
        "{said}"
    );
}

/// A listener with a password file admits a gateway with a user and a secret.
#[test]
fn a_gateway_logs_in_as_its_user() {
    for (secret, said) in [
        ("secret", "connected client=sp-it"),
        ("guess", "sp gateway ended"),
    ] {
        case(secret);
        let gateway = table("socket = \"pull\"\nuser = \"alice\"\nsecret_file = \"secret\"");
        let listener = "[[listeners]]\naddress = \"127.0.0.1:0\"\npassword_file = \"users\"\n";
        let launch = Launch::listeners(&format!("{listener}{gateway}")).file("users", USERS);
        let broker = launch.file("secret", &format!("{secret}\n")).start();
        broker.wait_for_log(said);
        let refused = broker.attempt(&Connect::v5("anonymous")).expect_connack();
        assert_ne!(refused.reason, 0);
    }
}

/// The password of alice is `secret`.
const USERS: &str = "\
alice:$7$101$LYA36uTTVWnKaVmL$ma2zMW1ICz0Y/bQFCbNsOvFsQ6cqsEauKE0srY2MQaw5V4XF58AsmRGaql1KUUzfFyGSHdoC2MFtGnxZupYyHw==
";
