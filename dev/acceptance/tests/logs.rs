//! What the real broker logs: one event a line, of the level that it deserves.

use serde_json::Value;
use unbroken_acceptance::raw::{Connect, Publish, Version};
use unbroken_acceptance::{Broker, Launch};

/// The lines of the log with this text.
fn lines(broker: &Broker, part: &str) -> Vec<String> {
    let log = broker.log();
    let lines = log.lines().filter(|line| line.contains(part));
    lines.map(str::to_owned).collect()
}

const BAD_USER_NAME_OR_PASSWORD: u8 = 0x86;
const NOT_AUTHORIZED: u8 = 0x87;
/// The password of alice is `secret`.
const USERS: &str = "\
alice:$7$101$LYA36uTTVWnKaVmL$ma2zMW1ICz0Y/bQFCbNsOvFsQ6cqsEauKE0srY2MQaw5V4XF58AsmRGaql1KUUzfFyGSHdoC2MFtGnxZupYyHw==
";

#[test]
fn connected_and_refused_name_the_user() {
    let config = "[[listeners]]\naddress = \"127.0.0.1:0\"\npassword_file = \"users\"\n";
    let broker = Launch::listeners(config).file("users", USERS).start();
    let alice = Connect::new(Version::V5, "a")
        .user_name("alice")
        .password("secret");
    broker.accept(&alice);
    let line = broker.wait_for_log("connected client=a");
    assert!(line.contains("user=alice"), "{line}");
    let mallory = Connect::new(Version::V5, "m")
        .user_name("mallory")
        .password("x");
    let mut refused = broker.attempt(&mallory);
    refused.expect_refused(&[BAD_USER_NAME_OR_PASSWORD, NOT_AUTHORIZED]);
    let line = broker.wait_for_log("refused client=m");
    assert!(
        line.contains(" WARN ") && line.contains("user=mallory"),
        "{line}"
    );
}

#[test]
fn a_takeover_is_routine() {
    let broker = Broker::start();
    let _first = broker.connect("twice");
    let _second = broker.connect("twice");
    let line = broker.wait_for_log("disconnected by the broker");
    assert!(
        line.contains(" INFO ") && line.contains("client=twice"),
        "{line}"
    );
}

#[test]
fn a_stopping_broker_logs_each_listener_and_no_client() {
    let mut broker = Broker::start();
    let clients: Vec<_> = (0..20)
        .map(|number| broker.connect(&format!("client-{number}")))
        .collect();
    broker.ask_to_end();
    let _ = broker.wait();
    let told = lines(&broker, "the broker stops");
    assert_eq!(told.len(), 1, "{}", broker.log());
    assert!(told[0].contains("connections=20"), "{}", told[0]);
    assert!(
        lines(&broker, "disconnected by the broker").is_empty(),
        "{}",
        broker.log()
    );
    drop(clients);
}

#[test]
fn what_a_sender_has_chosen_is_no_warning() {
    let broker = Broker::start();
    let mut away = broker.accept(&Connect::v5("away").persistent());
    away.subscribe_to("t", 0);
    away.disconnect();
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("t", "x"));
    let line = broker.wait_for_log("reason=\"not-connected\"");
    assert!(
        line.contains(" INFO ") && line.contains("client=away"),
        "{line}"
    );
}

#[test]
fn each_line_of_a_json_log_is_an_object() {
    let broker = Launch::config("[log]\nformat = \"json\"\n").start();
    broker.connect("a\u{e9}\"b").disconnect();
    broker.wait_for_log("disconnected");
    let records: Vec<Value> = lines(&broker, "{\"")
        .iter()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect();
    let of_client = |record: &&Value| record["client"] == "a\u{e9}\"b";
    let messages: Vec<_> = records
        .iter()
        .filter(of_client)
        .map(|it| &it["message"])
        .collect();
    assert_eq!(&messages[..2], ["connected", "disconnected"], "{records:?}");
}
