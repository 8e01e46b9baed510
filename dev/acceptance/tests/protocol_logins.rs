//! Passwords: what a login waits for, and what a flood of logins does to others.

use std::fs;
use std::net::Ipv4Addr;

use unbroken_acceptance::raw::{Connect, Publish, Version, disconnect, reason};
use unbroken_acceptance::{Broker, Client, Launch, case};

/// The password of alice is `secret`, and takes 101 rounds. The hash of mallory takes about a
/// second, and no password is known for it.
const USERS: &str = "\
alice:$7$101$LYA36uTTVWnKaVmL$ma2zMW1ICz0Y/bQFCbNsOvFsQ6cqsEauKE0srY2MQaw5V4XF58AsmRGaql1KUUzfFyGSHdoC2MFtGnxZupYyHw==
mallory:$7$1000000$LYA36uTTVWnKaVmL$ma2zMW1ICz0Y/bQFCbNsOvFsQ6cqsEauKE0srY2MQaw5V4XF58AsmRGaql1KUUzfFyGSHdoC2MFtGnxZupYyHw==
";
/// The password of alice is `hunter2`.
const CHANGED: &str = "\
alice:$6$XrD0LFwTJVwmIpwB$mVDsC7JT+UcD55iyMAWIY5hpM904g7bVP/Gym/xt7kB7fjUqUlDiN6kaYZWrYLLNXb4m44uP+vtXn/NPVMMeow==
";

const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

const SERVER_UNAVAILABLE: u8 = 3;

fn broker() -> Broker {
    let config = "[[listeners]]\naddress = \"127.0.0.1:0\"\npassword_file = \"users\"\n";
    Launch::listeners(config).file("users", USERS).start()
}

fn login(version: Version, client_id: &str, user: &str, password: &str) -> Connect {
    let connect = Connect::new(version, client_id);
    connect.user_name(user).password(password)
}

fn alice(client_id: &str) -> Connect {
    login(Version::V5, client_id, "alice", "secret")
}

fn guess(number: u32, user: &str) -> Connect {
    login(Version::V5, &format!("guess {number}"), user, "guess")
}

#[track_caller]
fn accepted_from(broker: &Broker, source: Ipv4Addr, connect: &Connect) {
    let connack = broker.attempt_from(source, connect).expect_connack();
    assert_eq!(connack.reason, 0, "{connack:?}");
}

#[test]
fn logins_of_closed_connections_keep_no_client_out() {
    let broker = broker();
    for number in 0..60 {
        drop(broker.attempt(&guess(number, "mallory")));
    }
    broker.accept(&alice("phone"));
}

#[test]
fn wrong_logins_of_one_address_keep_no_client_of_another_out() {
    let broker = broker();
    let guesses = (0..60).map(|number| broker.attempt_from(ELSEWHERE, &guess(number, "mallory")));
    let _guesses: Vec<Client> = guesses.collect();
    broker.accept(&alice("phone"));
}

/// All have one client id, so that the broker sees them in this order, however many shards it has.
#[track_caller]
fn last_refused_from_elsewhere(broker: &Broker, version: Version, logins: usize, expected: u8) {
    let login = login(version, "guess", "alice", "guess");
    let logins = (0..logins).map(|_| broker.attempt_from(ELSEWHERE, &login));
    let mut logins: Vec<Client> = logins.collect();
    let last = logins.last_mut().expect("there is one");
    last.expect_connack_refusal(expected);
}

#[test]
fn an_address_that_failed_too_often_is_refused_by_name_and_others_are_not() {
    let broker = broker();
    accepted_from(&broker, ELSEWHERE, &alice("known"));
    let wrong = reason::BAD_USER_NAME_OR_PASSWORD;
    for _ in 0..20 {
        last_refused_from_elsewhere(&broker, Version::V5, 1, wrong);
    }
    let waiting: Vec<Client> = (0..80)
        .map(|number| broker.attempt_from(ELSEWHERE, &guess(number, "alice")))
        .collect();
    last_refused_from_elsewhere(&broker, Version::V5, 20, reason::CONNECTION_RATE_EXCEEDED);
    broker.wait_for_log("too many logins from its address have failed");
    case("a 3.1.1 client from there");
    last_refused_from_elsewhere(&broker, Version::V3_1_1, 20, SERVER_UNAVAILABLE);
    case("from there, a user and password that was right a moment ago");
    accepted_from(&broker, ELSEWHERE, &alice("known too"));
    case("from elsewhere, one that is known and one that is not");
    broker.accept(&alice("phone"));
    let mut other = broker.attempt(&guess(1000, "alice"));
    other.expect_connack_refusal(wrong);
    drop(waiting);
}

#[test]
fn a_client_may_publish_and_close_without_waiting_for_its_login() {
    let broker = broker();
    let mut watch = broker.accept(&alice("watch"));
    watch.subscribe_to("a", 0);
    for (number, password) in ["secret", "secret", "wrong", "secret"].iter().enumerate() {
        case(password);
        let id = format!("hasty {number}");
        let mut hasty = broker.open();
        let connect = login(Version::V5, &id, "alice", password).encode();
        let publish = Publish::new("a", password).encode(Version::V5);
        hasty.send([connect, publish, disconnect(0)].concat());
        drop(hasty);
        if *password == "secret" {
            watch.expect_message("a", "secret");
        }
    }
}

#[test]
fn a_changed_password_file_forgets_who_was_in() {
    let broker = broker();
    broker.accept(&alice("phone"));
    broker.accept(&alice("phone"));
    let users = broker.directory().join("users");
    fs::write(&users, CHANGED).unwrap();
    broker.reload();
    broker.wait_for_log("configuration reloaded");
    let mut refused = broker.attempt(&alice("phone"));
    refused.expect_connack_refusal(reason::BAD_USER_NAME_OR_PASSWORD);
    broker.accept(&login(Version::V5, "phone", "alice", "hunter2"));
}
