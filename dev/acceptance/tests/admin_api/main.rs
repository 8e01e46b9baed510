//! The admin API, asked by raw bytes.

mod access;
mod http;
mod pages;
mod schemathesis;
mod wrong_types;

use http::{Admin, encoded, texts};
use serde_json::{Value, json};
use unbroken_acceptance::raw::{Connect, Publish, Subscribe, Will};
use unbroken_acceptance::{Client, Launch};

const NOTHING: Value = Value::Null;

#[test]
fn a_client_is_listed_described_and_disconnected() {
    let admin = Admin::start(Launch::config(""));
    let id = "plant/1 ü";
    let connect = Connect::v5(id)
        .persistent()
        .keep_alive(60)
        .will(Will::new("plant/gone", "x"));
    let mut client = Client::connect(admin.broker.address(), &connect);
    client.subscribe_to("plant/#", 1);
    let _other = admin.broker.connect("other");
    let path = format!("/clients/{}", encoded(id));
    let shown = admin.get(&path);
    for (key, value) in [
        ("client_id", json!(id)),
        ("user", NOTHING),
        ("protocol", json!("5.0")),
        ("listener", json!(0)),
        ("keep_alive_s", json!(60)),
        ("subscriptions", json!(1)),
        ("queued", json!(0)),
        ("in_flight", json!(0)),
        ("will_topic", json!("plant/gone")),
        ("is_bridge", json!(false)),
    ] {
        assert_eq!(shown[key], value, "{key} in {shown}");
    }
    let since = shown["connected_since"].as_str().unwrap_or_default();
    assert!(since.starts_with("20") && since.ends_with('Z'), "{shown}");
    let listed = admin.all("/clients?search=plant/1", 10);
    assert_eq!(texts(&listed, "client_id"), [id]);
    assert_eq!(admin.all("/clients?listener=0", 10).len(), 2);
    assert_eq!(admin.all("/clients?user=nobody", 10), [NOTHING; 0]);
    admin.done("POST", &format!("{path}/disconnect"), &NOTHING);
    client.expect_disconnect(0x98);
    admin.refused("GET", &path, &NOTHING, 404);
    admin.refused("POST", &format!("{path}/disconnect"), &NOTHING, 404);
    assert_eq!(admin.all("/sessions?connected=false", 10).len(), 1);
}

#[test]
fn a_session_shows_what_waits_for_it_until_it_is_removed() {
    let admin = Admin::start(Launch::config("").durable());
    let connect = Connect::v5("sleeper").persistent();
    let mut sleeper = Client::connect(admin.broker.address(), &connect);
    sleeper.subscribe_to("plant/+", 1);
    sleeper.subscribe(&Subscribe::to("$share/crew/plant/#", 0x01));
    sleeper.disconnect();
    let mut publisher = admin.broker.connect("publisher");
    for _ in 0..3 {
        publisher.publish(Publish::new("plant/1", "21.5").qos(1));
    }
    let shown = admin.get("/sessions/sleeper");
    assert_eq!(shown["is_connected"], false, "{shown}");
    assert!(
        shown["queued"].as_u64().is_some_and(|it| it >= 3),
        "{shown}"
    );
    assert!(shown["away_since"].is_string(), "{shown}");
    let filters = texts(shown["subscription_list"].as_array().unwrap(), "filter");
    assert_eq!(filters, ["$share/crew/plant/#", "plant/+"]);
    let matching = admin.all("/subscriptions?topic=plant/7", 10);
    assert_eq!(texts(&matching, "client_id"), ["sleeper", "sleeper"]);
    assert_eq!(admin.all("/subscriptions?topic=garden/7", 10).len(), 0);
    assert_eq!(admin.all("/subscriptions?client=sleeper", 1).len(), 2);
    let exact = format!("/subscriptions?filter={}", encoded("plant/+"));
    assert_eq!(admin.all(&exact, 10).len(), 1);
    let groups = admin.all("/groups", 10);
    assert_eq!(texts(&groups, "group"), ["crew"]);
    assert_eq!(texts(&groups, "filter"), ["plant/#"]);
    let members = groups[0]["member_list"].as_array().unwrap();
    assert_eq!(texts(members, "client_id"), ["sleeper"]);
    assert_eq!(texts(members, "state"), ["away"]);
    admin.done("DELETE", "/sessions/sleeper", &NOTHING);
    admin.refused("GET", "/sessions/sleeper", &NOTHING, 404);
    admin.refused("DELETE", "/sessions/sleeper", &NOTHING, 404);
    assert_eq!(admin.all("/groups", 10).len(), 0);
}

#[test]
fn topics_are_a_tree_with_values() {
    let admin = Admin::start(Launch::config("").shards(3));
    let mut publisher = admin.broker.connect("meter");
    for (topic, payload) in [
        ("plant/1/temp", "21.5"),
        ("plant/1/rpm", "900"),
        ("plant", "on"),
        ("garden/1", "wet"),
        ("/odd", "y"),
    ] {
        publisher.publish(Publish::new(topic, payload).qos(1).retained());
    }
    let long = "z".repeat(10_000);
    publisher.publish(Publish::new("plant/long", &long).qos(1).retained());
    let levels = |path: &str| {
        let nodes = admin.all(path, 2).into_iter();
        let nodes = nodes.filter(|node| !node["name"].as_str().unwrap().starts_with('$'));
        let node = |node: Value| {
            let name = node["name"].as_str().unwrap().to_owned();
            (name, node["retained"] == true, node["children"] == true)
        };
        nodes.map(node).collect::<Vec<_>>()
    };
    let level = |name: &str, retained, children| (name.to_owned(), retained, children);
    assert_eq!(
        levels("/topics"),
        [
            level("", false, true),
            level("garden", false, true),
            level("plant", true, true)
        ]
    );
    assert_eq!(
        levels("/topics?parent=plant"),
        [level("1", false, true), level("long", true, false)]
    );
    assert_eq!(
        levels("/topics?empty_parent=true"),
        [level("odd", true, false)]
    );
    assert!(levels("/topics?parent=none").is_empty());
    let found = admin.all("/topics?search=rpm", 10);
    assert_eq!(texts(&found, "topic"), ["plant/1/rpm"]);
    assert_eq!(found[0]["value"]["text"], "900");
    assert_eq!(found[0]["value"]["publisher"], "meter");
    let shown = admin.get("/topics/value?topic=plant/long");
    assert_eq!(shown["payload_bytes"], 10_000, "{shown}");
    assert_eq!(shown["text"].as_str().unwrap().len(), 4_096);
    assert_eq!(shown["is_truncated"], true);
    let path = "/topics/value?topic=plant/long&download=true";
    let whole = admin.send("GET", path, "text/plain", "");
    assert_eq!((whole.status, whole.body), (200, long.into_bytes()));
    assert!(
        whole.head.contains("application/octet-stream"),
        "{}",
        whole.head
    );
    let retained = admin.all(&format!("/retained?filter={}", encoded("plant/#")), 1);
    assert_eq!(retained.len(), 4);
    admin.done("DELETE", "/retained?topic=plant/1/rpm", &NOTHING);
    admin.refused("DELETE", "/retained?topic=plant/1/rpm", &NOTHING, 404);
    admin.refused("GET", "/topics/value?topic=plant/1/rpm", &NOTHING, 404);
    admin.refused("GET", "/topics/value?topic=plant/%23", &NOTHING, 400);
}

#[test]
fn a_published_message_reaches_subscribers() {
    let admin = Admin::start(Launch::config(""));
    let mut subscriber = admin.broker.connect("subscriber");
    subscriber.subscribe_to("plant/#", 1);
    let message = json!({"topic": "plant/1", "payload": "grün", "qos": 1, "retain": true});
    admin.done("POST", "/publish", &message);
    let received = subscriber.expect_message("plant/1", "grün");
    assert_eq!(received.qos, 1);
    let bytes = json!({"topic": "plant/2", "payload_base64": "AP8="});
    admin.done("POST", "/publish", &bytes);
    assert_eq!(subscriber.expect_publish().payload, [0, 0xFF]);
    for (wrong, words) in [
        (json!({"topic": "plant/#"}), "is no topic"),
        (json!({"topic": "a", "qos": 3}), "0, 1 or 2"),
        (
            json!({"topic": "a", "payload": "", "payload_base64": ""}),
            "leave one out",
        ),
        (json!({"topic": "a", "payload_base64": "?"}), "no base64"),
    ] {
        let why = admin.refused("POST", "/publish", &wrong, 400);
        assert!(why.contains(words), "{why}");
    }
    let reserved = json!({"topic": "$SYS/broker/version", "payload": "9"});
    admin.refused("POST", "/publish", &reserved, 409);
}

#[test]
fn the_node_and_its_configuration_are_described() {
    let config = "[limits]\nconnections_max = 500\n\n[log]\nlevel = \"debug\"\n";
    let launch = Launch::config(config).environment("UNBROKEN__BROKER__DRAIN_TIMEOUT", "3s");
    let admin = Admin::start(launch);
    let node = admin.get("/node");
    assert_eq!(node["store"], "memory", "{node}");
    assert_eq!(node["process_id"], admin.broker.pid(), "{node}");
    assert!(node["resident_bytes"].as_u64() > Some(0), "{node}");
    let listeners = admin.all("/listeners", 10);
    let address = admin.broker.address().to_string();
    assert_eq!(texts(&listeners, "address"), [address]);
    assert_eq!(admin.get("/certificates")["items"], json!([]));
    let setting = |name: &str| {
        let found = admin.all(&format!("/config?search={name}"), 1_000);
        let found = found.into_iter().find(|it| it["name"] == name);
        found.unwrap_or_else(|| panic!("there is {name}"))
    };
    let connections = setting("limits.connections_max");
    assert_eq!(connections["value"], "500", "{connections}");
    assert_eq!(connections["source"], "file", "{connections}");
    let origin = connections["origin"].as_str().unwrap();
    assert!(origin.contains("unbroken.toml:"), "{origin}");
    assert_eq!(setting("broker.drain_timeout")["source"], "environment");
    assert_eq!(setting("admin.listen")["source"], "flag");
    assert_eq!(setting("broker.sys_interval")["source"], "default");
    let rewritten = "[limits]\nconnections_max = 400\n\n[broker]\nsys_interval = \"5s\"\n";
    admin.broker.rewrite_config(rewritten);
    let (status, reloaded) = admin.call("POST", "/config/reload", &NOTHING);
    assert_eq!(status, 200, "{reloaded}");
    assert!(
        reloaded["changes"].to_string().contains("500 -> 400"),
        "{reloaded}"
    );
    assert_eq!(setting("limits.connections_max")["value"], "400");
    assert_eq!(setting("broker.sys_interval")["after_restart"], "\"5s\"");
    admin
        .broker
        .rewrite_config("[limits]\nconnections_max = \"many\"\n");
    let why = admin.refused("POST", "/config/reload", &NOTHING, 409);
    assert!(why.contains("connections_max"), "{why}");
}

#[test]
fn logs_are_the_newest_events() {
    let admin = Admin::start(Launch::config(""));
    let _client = admin.broker.connect("logged-client");
    let found = admin.wait_for("/logs?search=logged-client&level=info", |found| {
        found["items"][0].is_object()
    });
    let event = &found["items"][0];
    assert_eq!(event["level"], "info", "{found}");
    assert_eq!(event["fields"]["client"], "logged-client", "{found}");
    assert_eq!(admin.get("/logs?level=error")["items"], json!([]));
    admin.refused("GET", "/logs?level=loud", &NOTHING, 400);
}
