//! Delivery as the admin server shows it: a message that is lost on purpose is named, and nothing
//! is green that is not known.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use unbroken_acceptance::raw::{Connect, Publish, Version, disconnect, id};
use unbroken_acceptance::{Broker, Launch};

/// An admin server, asked with a token.
struct Admin(unbroken_acceptance::Admin);

#[track_caller]
fn admin_of(broker: &Broker) -> Admin {
    Admin(unbroken_acceptance::Admin::of(broker))
}

impl Admin {
    /// Of the same broker after a restart.
    fn again(self, broker: &Broker) -> Self {
        Self(unbroken_acceptance::Admin {
            headers: self.0.headers,
            ..unbroken_acceptance::Admin::stranger(broker)
        })
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let answer = self.0.ask(method, &format!("/api/v1{path}"), body);
        let text = &answer.body;
        let body = serde_json::from_str(text).unwrap_or_else(|_| Value::from(&**text));
        (answer.status, body)
    }

    /// Lines of the stream.
    fn live(&self) -> impl Iterator<Item = String> + use<> {
        let mut socket = TcpStream::connect(self.0.address).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let head = format!(
            "GET /api/v1/live HTTP/1.1\r\nHost: {}\r\n{}\r\n",
            self.0.address, self.0.headers
        );
        socket.write_all(head.as_bytes()).expect("it reads");
        let lines = BufReader::new(socket).lines();
        lines.map(|line| line.expect("it goes on"))
    }

    #[track_caller]
    fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, "");
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    #[track_caller]
    fn post(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.ask("POST", path, &body.to_string());
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// Asks until the answer is like that.
    #[track_caller]
    fn wait(&self, path: &str, within: Duration, is_it: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let answer = self.get(path);
            if is_it(&answer) {
                return answer;
            }
            assert!(begin.elapsed() < within, "{path} is still {answer:#}");
            thread::yield_now();
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn without_traffic_it_is_empty_and_with_it_green() {
    let broker = Launch::config("").with_admin().start();
    let admin = admin_of(&broker);
    let empty = admin.get("/delivery");
    assert_eq!(empty["state"], "empty", "{empty:#}");
    let mut subscriber = broker.connect("subscriber");
    subscriber.subscribe_to("plant/#", 1);
    let mut publisher = broker.connect("publisher");
    publisher.publish(Publish::new("plant/1", "21.5").qos(1));
    let message = subscriber.expect_publish();
    subscriber.complete(&message);
    let green = admin.wait("/delivery", PATIENCE, |it| it["acknowledged"] == 1);
    assert_eq!(green["state"], "green", "{green:#}");
    for (figure, count) in [
        ("published", 1),
        ("expected", 1),
        ("delivered", 1),
        ("in_flight", 0),
    ] {
        assert_eq!(green[figure], count, "{figure} in {green:#}");
    }
    assert!(
        green["not_seen"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
    );
    let cells = admin.wait("/delivery/checkpoints", PATIENCE, |it| {
        it["items"]
            .as_array()
            .is_some_and(|all| all.iter().any(|cell| cell["state"] == "proven"))
    });
    assert!(cells["as_of"].is_string(), "{cells:#}");
}

#[test]
fn a_dropped_message_is_red_and_named() {
    let broker = Launch::config("[limits]\nqueue_messages_max = 2\n")
        .with_admin()
        .start();
    let admin = admin_of(&broker);
    let mut live = admin.live();
    assert!(live.any(|line| line == "event: snapshot"));
    let mut subscriber = broker.accept(&Connect::v5("sleeper").persistent());
    subscriber.subscribe_to("plant/#", 1);
    subscriber.disconnect();
    let mut publisher = broker.connect("pump-7");
    for number in 0..3 {
        publisher.publish(Publish::new(&format!("plant/{number}"), "x").qos(1));
    }
    let red = admin.wait("/delivery", PATIENCE, |it| it["state"] == "red");
    assert_eq!(red["dropped"], 1, "{red:#}");
    assert!(live.any(|line| line == "event: incident"));
    assert_eq!(red["dropped_by_reason"]["queue-full"], 1, "{red:#}");
    let incidents = admin.get("/incidents");
    let [incident] = &incidents["items"].as_array().expect("a list")[..] else {
        panic!("not one incident: {incidents:#}");
    };
    for (key, value) in [
        ("kind", "dropped"),
        ("reason", "queue-full"),
        ("publisher", "pump-7"),
        ("subscriber", "sleeper"),
        ("hop", "broker_to_subscriber"),
        ("state", "open"),
    ] {
        assert_eq!(incident[key], value, "{key} in {incident:#}");
    }
    let (first, topic) = (incident["first"].as_u64(), incident["topic"].as_str());
    let number = first.expect("a number");
    assert_eq!(topic, Some(&*format!("plant/{number}")), "{incident:#}");
    assert_eq!(incident["reason_code"], 3);
    let id = incident["id"].as_u64().expect("an id");
    let detail = admin.get(&format!("/incidents/{id}"));
    assert_eq!(detail["is_repairable"], false, "{detail:#}");
    let neighbours = [&detail["previous"], &detail["next"]];
    assert!(
        neighbours.iter().any(|it| it["outcome"] == "not_named"),
        "{detail:#}"
    );
    let proof = admin.get(&format!("/incidents/{id}/proof"));
    assert_eq!(proof["evidence"]["incident"]["id"], id, "{proof:#}");
    let (status, problem) = admin.ask("POST", &format!("/incidents/{id}/repair"), "");
    assert_eq!(status, 409, "{problem:#}");
    let note = format!("/incidents/{id}/note");
    let (status, problem) = admin.ask("POST", &note, r#"{"ignore": true}"#);
    assert_eq!(status, 400, "{problem:#}");
    let ignored = admin.post(&note, &json!({"text": "a test", "ignore": true}));
    assert_eq!(
        (&ignored["state"], &ignored["note"]),
        (&json!("ignored"), &json!("a test"))
    );
    assert_ne!(admin.get("/delivery")["state"], "red");
}

#[test]
fn after_a_kill_totals_say_since_when_and_red_stays_red() {
    let mut broker = Launch::config("[limits]\nqueue_messages_max = 1\n")
        .with_admin()
        .durable()
        .start();
    let admin = admin_of(&broker);
    // In memory, and it acknowledges nothing.
    let one_at_a_time = Connect::v5("slow").property(id::RECEIVE_MAXIMUM, 1);
    let mut subscriber = broker.accept(&one_at_a_time);
    subscriber.subscribe_to("plant/#", 1);
    let mut publisher = broker.connect("pump-7");
    for number in 0..3 {
        publisher.publish(Publish::new(&format!("plant/{number}"), "x").qos(1));
    }
    let red = admin.wait("/delivery", PATIENCE, |it| it["state"] == "red");
    let file = broker.data().join("delivery").join("incidents.json");
    let begin = Instant::now();
    while !file.exists() {
        assert!(
            begin.elapsed() < PATIENCE,
            "{} was not written",
            file.display()
        );
        thread::yield_now();
    }
    broker.kill();
    broker.start_again();
    let admin = admin.again(&broker);
    let after = admin.get("/delivery");
    assert_eq!(after["state"], "red", "{after:#}");
    assert_eq!(after["after_crash"], true, "{after:#}");
    assert!(after["since"].as_str() > red["since"].as_str(), "{after:#}");
    assert!(
        after["sentence"]
            .as_str()
            .is_some_and(|it| it.contains("after a crash"))
    );
    let incidents = admin.get("/incidents");
    let kinds: Vec<&Value> = incidents["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|it| &it["kind"])
        .collect();
    assert_eq!(kinds, ["crash", "dropped"], "{incidents:#}");
    let cells = admin.get("/delivery/checkpoints");
    assert_eq!(cells["items"][0]["state"], "unknown", "{cells:#}");
}

#[test]
fn an_incident_and_its_note_are_there_after_a_restart() {
    let mut broker = Launch::config("[limits]\nqueue_messages_max = 1\n")
        .with_admin()
        .durable()
        .start();
    let admin = admin_of(&broker);
    let one_at_a_time = Connect::v5("slow").property(id::RECEIVE_MAXIMUM, 1);
    let mut subscriber = broker.accept(&one_at_a_time);
    subscriber.subscribe_to("plant/#", 1);
    let mut publisher = broker.connect("pump-7");
    for _ in 0..3 {
        publisher.publish(Publish::new("plant/1", "x").qos(1));
    }
    admin.wait("/delivery", PATIENCE, |it| it["state"] == "red");
    let note = json!({"text": "pump-7 is new"});
    let noted = admin.post("/incidents/0/note", &note);
    broker.ask_to_end();
    broker.wait();
    broker.start_again();
    let admin = admin.again(&broker);
    let after = admin.get("/incidents/0");
    for field in ["note", "publisher", "subscriber", "first", "words"] {
        let (before, after) = (&noted[field], &after["incident"][field]);
        assert_eq!(after, before, "{field} in {after:#}");
    }
    let log = broker.log();
    assert!(!log.contains("it continues without"), "{log}");
}

#[test]
fn a_stream_has_a_snapshot_and_the_series_have_points() {
    let broker = Launch::config("").with_admin().start();
    let admin = admin_of(&broker);
    let mut lines = admin.live();
    assert!(lines.any(|line| line.starts_with("content-type: text/event-stream")));
    assert!(lines.any(|line| line == "event: snapshot"));
    let data = lines.find_map(|line| line.strip_prefix("data: ").map(ToOwned::to_owned));
    let snapshot: Value = serde_json::from_str(&data.expect("data")).expect("JSON");
    for part in [
        "id", "as_of", "delivery", "rates", "node", "drops", "latency",
    ] {
        assert!(!snapshot[part].is_null(), "{part} in {snapshot:#}");
    }
    assert_eq!(snapshot["delivery"]["state"], "empty");
    let series = admin.wait(
        "/series?names=clients,received_per_s&points=100",
        PATIENCE,
        |it| {
            let points = it["series"]["clients"]["avg"].as_array();
            points.is_some_and(|points| points.iter().any(Value::is_number))
        },
    );
    assert!(
        series["step_s"].as_u64().is_some_and(|step| step >= 1),
        "{series:#}"
    );
    assert!(series["series"]["received_per_s"]["max"].is_array());
    for wrong in ["names=nothing", "points=0", "points=x", "from=yesterday"] {
        let (status, problem) = admin.ask("GET", &format!("/series?{wrong}"), "");
        assert_eq!(status, 400, "{wrong}: {problem}");
    }
}

#[test]
fn lanes_are_listed_page_by_page() {
    const CLIENTS: usize = 10_000;
    let broker = Launch::config("").with_admin().start();
    let admin = admin_of(&broker);
    let address = broker.address();
    thread::scope(|scope| {
        for part in 0..4 {
            scope.spawn(move || {
                (part..CLIENTS)
                    .step_by(4)
                    .for_each(|at| leave_lane(address, at));
            });
        }
    });
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = admin.get(&format!("/lanes?limit=1000{cursor}"));
        let items = page["items"].as_array().expect("a list");
        assert!(items.len() <= 1_000);
        found.extend(items.iter().map(|lane| lane["publisher"].to_string()));
        let Some(next) = page["next"].as_str() else {
            break;
        };
        cursor = format!("&cursor={next}");
    }
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), CLIENTS);
    let page = admin.get("/lanes?search=pump-999&limit=1000");
    let items = page["items"].as_array().expect("a list");
    assert_eq!(items.len(), 11, "{page:#}"); // 999 and 9990 to 9999
    let id = items[0]["id"].as_str().expect("an id");
    let lane = admin.get(&format!("/lanes/{id}"));
    assert_eq!(lane["epochs"][0]["next"], 1, "{lane:#}");
    assert_eq!(lane["epochs"][0]["state"], "counted", "{lane:#}");
    assert_eq!(admin.get("/demonstration")["state"], "none");
    for (path, status) in [
        ("/lanes/0000000000000001", 404),
        ("/lanes/xyz", 400),
        ("/lanes?cursor=zzz", 400),
        ("/lanes?limit=0", 400),
        ("/lanes?limit=1001", 400),
        ("/incidents/99", 404),
        ("/incidents/x", 404),
        ("/incidents?cursor=x", 400),
    ] {
        assert_eq!(admin.ask("GET", path, "").0, status, "{path}");
    }
}

/// Publishes one message in a session that stays.
fn leave_lane(address: SocketAddr, at: usize) {
    let connect = Connect::v5(&format!("pump-{at}")).persistent();
    let publish = Publish::new("plant/1", "x");
    let packets = [connect.encode(), publish.encode(Version::V5), disconnect(0)].concat();
    let mut socket = TcpStream::connect(address).expect("it listens");
    socket.write_all(&packets).expect("it reads");
    let _ = socket.read_to_end(&mut Vec::new()); // until the broker has read it all
}

#[test]
fn the_demonstration_names_and_repairs_what_it_is_told_to_break() {
    let broker = Launch::config("").with_admin().start();
    demonstrate(&admin_of(&broker));
}

#[test]
fn the_demonstration_runs_where_clients_need_a_name() {
    let config = "[[listeners]]\nbind = \"127.0.0.1\"\nport = 0\nallow_anonymous = false\n\
                  stored_users = true\n";
    let launch = Launch::listeners(config).with_admin();
    demonstrate(&admin_of(&launch.durable().start()));
}

#[test]
fn a_user_that_a_killed_broker_has_left_is_removed() {
    let config = "[[listeners]]\nbind = \"127.0.0.1\"\nport = 0\nallow_anonymous = false\n\
                  stored_users = true\n";
    let mut broker = Launch::listeners(config).with_admin().durable().start();
    let admin = admin_of(&broker);
    admin.post("/demonstration", &json!({}));
    let users = admin.get("/users");
    assert_ne!(users["items"], json!([]), "{users:#}");
    broker.kill();
    broker.start_again();
    let admin = admin.again(&broker);
    for list in ["/users", "/roles"] {
        admin.wait(list, PATIENCE, |it| {
            !it["items"].to_string().contains("unbroken-inside-")
        });
    }
}

#[track_caller]
fn demonstrate(admin: &Admin) {
    let started = admin.post("/demonstration", &json!({}));
    assert_eq!(started["state"], "running", "{started:#}");
    admin.wait("/demonstration", PATIENCE, |it| {
        it["verified"].as_u64() > Some(20)
    });
    for (at, kind) in ["drop", "duplicate", "reorder", "alter"]
        .into_iter()
        .enumerate()
    {
        admin.post("/demonstration/fault", &json!({"kind": kind}));
        let named = admin.wait("/demonstration", PATIENCE, |it| {
            let fault = &it["faults"][at];
            fault["named_at"].is_string() && fault["repaired_at"].is_string()
        });
        let fault = &named["faults"][at];
        assert!(
            fault["number"].is_u64() && fault["lane"].is_string(),
            "{fault:#}"
        );
    }
    admin.wait("/delivery/checkpoints?limit=1", PATIENCE, |it| {
        it["items"][0]["state"] == "proven"
    });
    let lane = admin.get("/demonstration")["lane"].clone();
    let incidents = admin.wait("/incidents", PATIENCE, |it| {
        let all = it["items"].as_array().expect("a list");
        let kinds = ["lost", "duplicated", "reordered", "altered"];
        kinds
            .iter()
            .all(|kind| all.iter().any(|it| it["kind"] == *kind))
    });
    for incident in incidents["items"].as_array().expect("a list") {
        assert_eq!(incident["lane"], lane, "{incident:#}");
        assert_eq!(incident["is_stamped"], true, "{incident:#}");
    }
    let (status, ended) = admin.ask("DELETE", "/demonstration", "");
    assert_eq!(
        (status, &ended["state"]),
        (200, &json!("ended")),
        "{ended:#}"
    );
    // Also what the broker names when its clients have ended.
    admin.wait("/incidents?state=open", PATIENCE, |it| {
        it["items"] == json!([])
    });
    assert_eq!(admin.get("/delivery")["state"], "green");
}
