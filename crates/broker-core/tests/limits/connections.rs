//! Limits of connections: their number, open files, and time without a CONNECT.

use super::*;

#[test]
fn one_connection_too_many_is_told_so_and_leaving_makes_room() {
    let mut broker = broker(|limits| limits.connections_max = 1);
    let first = join(&mut broker, "a");
    let (second, answer) = asked(&mut broker, Version::V5, "b");
    assert_eq!(answer, ["CONNACK 0 97"]);
    assert!(!broker.is_open(second));
    assert_eq!(asked(&mut broker, Version::V3_1_1, "b").1, ["CONNACK 0 88"]);
    broker.cut(first);
    assert_eq!(asked(&mut broker, Version::V5, "b").1, ["CONNACK 0 00"]);
}

#[test]
fn at_the_limit_a_client_takes_the_place_of_its_own_connection() {
    for shards in [1, 3] {
        let mut limits = Limits::default();
        limits.connections_max = 2;
        let mut broker = Broker::with(shards, limits, Settings::default());
        let first = join(&mut broker, "a");
        let other = join(&mut broker, "b");
        let (second, answer) = asked(&mut broker, Version::V5, "a");
        assert_eq!(answer, ["CONNACK 0 00"]);
        assert_eq!(broker.take(first), ["DISCONNECT 8e"]);
        assert!(broker.is_open(other));
        assert_eq!(asked(&mut broker, Version::V5, "c").1, ["CONNACK 0 97"]);
        broker.cut(second);
        let (third, answer) = asked(&mut broker, Version::V5, "c");
        assert_eq!(answer, ["CONNACK 0 00"]);
        assert_eq!(asked(&mut broker, Version::V5, "d").1, ["CONNACK 0 97"]);
        broker.cut(third);
        broker.cut(other);
        join(&mut broker, "d");
        join(&mut broker, "e");
        assert_eq!(asked(&mut broker, Version::V5, "f").1, ["CONNACK 0 97"]);
    }
}

#[test]
fn a_place_that_becomes_free_before_connect_is_given_to_who_waits() {
    let mut broker = broker(|limits| limits.connections_max = 1);
    let first = join(&mut broker, "a");
    let second = broker.open(Version::V5);
    broker.cut(first);
    broker.send(second, Packet::Connect(connect("b")));
    assert_eq!(broker.take(second), ["CONNACK 0 00"]);
    assert_eq!(asked(&mut broker, Version::V5, "c").1, ["CONNACK 0 97"]);
}

#[test]
fn a_connection_without_a_place_has_little_time_for_its_connect() {
    let mut broker = broker(|limits| limits.connections_max = 1);
    let first = join(&mut broker, "a");
    let silent = broker.open(Version::V5);
    broker.advance(Duration::from_secs(3));
    assert!(!broker.is_open(silent));
    assert!(broker.is_open(first));
}

#[test]
fn silent_connections_without_a_place_make_room_for_the_owner_of_one() {
    for shards in [1, 3] {
        let mut limits = Limits::default();
        limits.connections_max = 1;
        let mut broker = Broker::with(shards, limits, Settings::default());
        let first = join(&mut broker, "a");
        let silent: Vec<_> = (0..1_000).map(|_| broker.open(Version::V5)).collect();
        let open = |broker: &Broker| silent.iter().filter(|it| broker.is_open(**it)).count();
        let most = RESERVE_MAX as usize / 2;
        assert!(
            (most - 2..=most).contains(&open(&broker)),
            "{}",
            open(&broker)
        );
        assert!(!broker.is_open(silent[0]) && broker.is_open(silent[999]));
        let owner = broker.open(Version::V5);
        let others: Vec<_> = (0..100).map(|_| broker.open(Version::V5)).collect();
        broker.send(owner, Packet::Connect(connect("a")));
        assert_eq!(broker.take(owner), ["CONNACK 0 00"]);
        assert_eq!(broker.take(first), ["DISCONNECT 8e"]);
        assert!(others.iter().all(|other| broker.is_open(*other)));
    }
}

#[test]
fn who_has_sent_a_connect_is_not_ended_for_silence() {
    let mut broker = broker(|limits| limits.connections_max = 1);
    join(&mut broker, "a");
    broker.hold_admissions = true;
    let (owner, _) = asked(&mut broker, Version::V5, "a");
    for _ in 0..1_000 {
        broker.open(Version::V5);
    }
    assert!(broker.is_open(owner));
    broker.admit();
    assert_eq!(broker.take(owner), ["CONNACK 0 00"]);
}

#[test]
fn a_connection_without_a_place_may_send_a_small_connect_only() {
    let mut broker = broker(|limits| limits.connections_max = 1);
    let first = join(&mut broker, "a");
    let header = [0x10, 0xF0, 0xFF, 0x17]; // 384 KiB but a few
    let large = [0x10, 0x81, 0x80, 0x04]; // 65,537 bytes behind it
    for header in [header, large] {
        let other = broker.open(Version::V5);
        broker.send_bytes(other, &header);
        assert!(!broker.is_open(other), "{header:?}");
        let refused = |event: &Event| {
            matches!(event, Event::Refused { reason: ReasonCode::QuotaExceeded, detail, .. }
                if detail.contains("limits.connections_max") && detail.contains("65536"))
        };
        assert!(broker.events.drain(..).any(|event| refused(&event)));
    }
    let small = broker.open(Version::V5);
    broker.send_bytes(small, &[0x10, 0xFC, 0xFF, 0x03]); // 65,536 bytes in all
    assert!(broker.is_open(small));
    let later = broker.open(Version::V5);
    broker.cut(first);
    broker.send_bytes(later, &large);
    assert!(broker.is_open(later), "a place has become free");
}

#[test]
fn who_gives_a_wrong_password_does_not_learn_whether_an_id_is_connected() {
    for shards in [1, 3] {
        let mut limits = Limits::default();
        limits.connections_max = 1;
        let mut broker = Broker::with(shards, limits, Settings::default());
        let first = join(&mut broker, "a");
        for client_id in ["a", "b"] {
            broker.hold_admissions = true;
            let (stranger, answer) = asked(&mut broker, Version::V5, client_id);
            assert_eq!(answer, [""; 0]);
            broker.refuse();
            assert_eq!(broker.take(stranger), ["CONNACK 0 86"]);
        }
        assert!(broker.is_open(first));
    }
}

#[test]
fn a_connection_without_a_place_waits_for_the_answer_about_its_password_for_a_moment() {
    let mut broker = broker(|limits| limits.connections_max = 1);
    join(&mut broker, "a");
    broker.hold_admissions = true;
    let (stranger, _) = asked(&mut broker, Version::V5, "b");
    broker.advance(Duration::from_secs(2));
    assert_eq!(broker.take(stranger), ["CONNACK 0 89"]);
}

#[test]
fn at_the_limit_of_open_files_a_client_takes_its_place_and_others_are_told_of_that_limit() {
    let room = Room {
        places: 1,
        reserve: 1,
    };
    let mut broker = Broker::in_room(room, 1, Limits::default(), Settings::default());
    join(&mut broker, "a");
    assert_eq!(asked(&mut broker, Version::V5, "b").1, ["CONNACK 0 97"]);
    let refused = |event: &Event| {
        matches!(event, Event::Refused { detail, .. }
            if detail.contains("open files") && detail.contains("ulimit"))
    };
    assert!(broker.events.iter().any(refused), "{:?}", broker.events);
    assert_eq!(asked(&mut broker, Version::V5, "a").1, ["CONNACK 0 00"]);
}

#[test]
fn a_connection_without_connect_is_closed_in_time() {
    let mut broker = broker(|limits| limits.connect_timeout = Duration::from_secs(3));
    let client = broker.open(Version::V5);
    broker.advance(Duration::from_secs(3));
    assert!(!broker.is_open(client));
}

#[test]
fn who_waits_for_an_answer_about_its_password_is_not_taken_for_silent() {
    let timeout = Duration::from_secs(3);
    let nearly = Duration::from_secs(2);
    let mut broker = broker(|limits| limits.connect_timeout = timeout);
    broker.hold_admissions = true;
    let client = broker.open(Version::V5);
    broker.advance(nearly);
    broker.send(client, Packet::Connect(connect("a")));
    broker.advance(nearly);
    assert!(broker.is_open(client));
    broker.admit();
    assert_eq!(broker.take(client), ["CONNACK 0 00"]);
    broker.advance(2 * timeout);
    assert!(broker.is_open(client));
}

#[test]
fn who_gets_no_answer_about_its_password_is_told_that_the_broker_is_busy() {
    let timeout = Duration::from_secs(3);
    for (version, answer) in [
        (Version::V5, "CONNACK 0 89"),
        (Version::V3_1_1, "CONNACK 0 88"),
    ] {
        let mut broker = broker(|limits| limits.connect_timeout = timeout);
        broker.hold_admissions = true;
        let (client, _) = asked(&mut broker, version, "a");
        broker.advance(timeout);
        assert_eq!(broker.take(client), [answer]);
        let refused = |event: &Event| {
            matches!(event, Event::Refused { client_id: Some(id), detail, .. }
                if &**id == "a" && detail.contains("password"))
        };
        assert!(broker.events.iter().any(refused), "{:?}", broker.events);
        broker.admit();
        assert_eq!(broker.take(client), [""; 0]);
    }
}

#[test]
fn nobody_is_taken_for_silent_whom_the_broker_has_not_listened_to() {
    let timeout = Duration::from_secs(3);
    let mut broker = broker(|limits| limits.connect_timeout = timeout);
    let heard = broker.now;
    let stranger = broker.open(Version::V5);
    let client = broker.open(Version::V5);
    let packet = Connect {
        keep_alive: 2,
        ..connect("a")
    };
    broker.send(client, Packet::Connect(packet));
    broker.take(client);
    // The broker stands still for long, or cannot read for so long.
    broker.heard = Some(heard);
    for _ in 0..10 {
        broker.advance(timeout);
        assert!(broker.is_open(client) && broker.is_open(stranger));
    }
    broker.send(client, Packet::PingReq);
    broker.heard = None;
    broker.advance(Duration::from_secs(1));
    assert!(broker.is_open(client) && !broker.is_open(stranger));
    broker.advance(timeout);
    assert_eq!(broker.take(client), ["PINGRESP", "DISCONNECT 8d"]);
}
