//! Traces of the real broker: on the terminal, and through the API.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;
use unbroken_acceptance::process::binary;
use unbroken_acceptance::raw::{Connect, Publish};
use unbroken_acceptance::{Admin, Broker, DEADLINE, Launch};

/// A running `unbroken trace --json`.
struct Trace {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Trace {
    fn start(broker: &Broker, arguments: &[&str]) -> Self {
        let mut child = Command::new(binary())
            .args(["trace", "--json", "--for", "1m", "--data"])
            .arg(broker.data())
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Self { child, lines }
    }

    fn next(&mut self) -> Value {
        next_of(&mut self.lines)
    }

    /// The next step of this name.
    fn step(&mut self, name: &str) -> Value {
        loop {
            let step = self.next();
            if step["step"] == name {
                return step;
            }
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn next_of(lines: &mut Lines<BufReader<ChildStdout>>) -> Value {
    let line = lines.next().expect("another step").expect("text");
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// Does this until a trace shows it: the trace has begun.
fn until_seen(trace: &mut Trace, mut act: impl FnMut()) -> Value {
    use std::sync::atomic::{AtomicBool, Ordering};
    let seen = AtomicBool::new(false);
    let Trace { child, lines } = trace;
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let step = next_of(lines);
            seen.store(true, Ordering::SeqCst);
            step
        });
        let begin = std::time::Instant::now();
        while !seen.load(Ordering::SeqCst) && begin.elapsed() < DEADLINE {
            act();
        }
        if !seen.load(Ordering::SeqCst) {
            // Otherwise the reader would wait until the trace ends.
            let _ = child.kill();
        }
        first.join().expect("the trace shows it")
    })
}

#[test]
fn a_trace_shows_what_becomes_of_a_message() {
    // Each shard says its own receivers, in its own time.
    let broker = Launch::config("").durable().shards(1).start();
    let mut live = broker.connect("live");
    live.subscribe_to("plant/#", 1);
    let mut away = broker.accept(&Connect::v5("away").persistent());
    away.subscribe_to("plant/#", 1);
    away.disconnect();
    let mut trace = Trace::start(&broker, &["--topic", "plant/#", "--payload", "3"]);
    let mut publisher = broker.connect("publisher");
    let publish = |topic: &str, qos| Publish::new(topic, "21.5").qos(qos);
    let first = until_seen(&mut trace, || {
        publisher.publish(publish("plant/begin", 0));
        publisher.ping();
    });
    assert_eq!(first["step"], "received", "{first}");
    publisher.publish(publish("elsewhere", 1));
    publisher.publish(publish("plant/1", 1));
    let received = loop {
        let step = trace.step("received");
        if step["topic"] == "plant/1" {
            break step;
        }
        assert_eq!(step["topic"], "plant/begin", "{step}");
    };
    assert_eq!(received["client"], "publisher");
    assert_eq!(received["packet"], "PUBLISH");
    assert_eq!(received["qos"], 1);
    assert_eq!(received["bytes"], 4);
    assert_eq!(received["payload_base64"], "MjEu", "three bytes of it");
    let matched = trace.step("matched");
    assert_eq!(matched["receivers"], 2, "{matched}");
    assert_eq!(matched["access"], "allowed");
    let mut fates: Vec<_> = (0..2).map(|_| trace.next()).collect();
    fates.sort_by_key(|fate| fate["client"].to_string());
    let fate = |index: usize| (&fates[index]["client"], &fates[index]["step"]);
    assert_eq!(
        fate(0),
        (&Value::from("away"), &Value::from("stored")),
        "{fates:?}"
    );
    assert_eq!(
        fate(1),
        (&Value::from("live"), &Value::from("sent")),
        "{fates:?}"
    );
    assert_eq!(fates[0]["publisher"], "publisher");
}

#[test]
fn a_trace_of_a_client_shows_its_life_and_its_refusals() {
    let broker = Launch::config("").durable().start();
    let mut trace = Trace::start(&broker, &["--client", "one"]);
    let first = until_seen(&mut trace, || broker.connect("one").disconnect());
    assert_eq!(first["client"], "one", "{first}");
    let mut other = broker.connect("other");
    other.publish(Publish::new("t", "x").qos(1));
    let mut one = broker.connect("one");
    one.subscribe_to("t", 1);
    let subscribed = trace.step("subscribed");
    assert_eq!(subscribed["filter"], "t", "{subscribed}");
    assert_eq!(subscribed["access"], "granted");
    other.publish(Publish::new("t", "x").qos(1));
    let sent = trace.step("sent");
    assert_eq!(
        (&sent["client"], &sent["publisher"]),
        (&"one".into(), &"other".into())
    );
    let message = one.expect_publish();
    one.complete(&message);
    let acknowledged = trace.step("received");
    assert_eq!(acknowledged["packet"], "PUBACK", "{acknowledged}");
    // The broker keeps these topics to itself.
    one.publish(Publish::new("$SYS/forged", "x").qos(1));
    let dropped = trace.step("dropped");
    assert_eq!(dropped["reason"], "denied", "{dropped}");
    let answered = trace.step("answered");
    assert_eq!(answered["packet"], "PUBACK", "{answered}");
    one.disconnect();
    let ended = trace.step("disconnected");
    assert_eq!(ended["detail"], "by the client", "{ended}");
}

#[test]
fn a_mistake_in_a_trace_is_answered() {
    let broker = Launch::config("").durable().start();
    for (arguments, part) in [
        (&["--for", "1s"][..], "needs a client, a user or a topic"),
        (&["--topic", "a/#/b"], "topic filter"),
        (&["--client", "c", "--for", "2h"], "3600"),
        (&["--client", "c", "--for", "soon"], "--for"),
    ] {
        let mut command = Command::new(binary());
        let ran = command.arg("trace").arg("--data").arg(broker.data());
        let ran = ran.args(arguments).output().expect("the program runs");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(
            !ran.status.success() && said.contains(part),
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn traces_leave_room_for_other_commands() {
    let broker = Launch::config("").durable().start();
    let _traces = [(); 5].map(|()| {
        let mut trace = Trace::start(&broker, &["--client", "one"]);
        until_seen(&mut trace, || broker.connect("one").disconnect());
        trace
    });
    let mut command = Command::new(binary());
    let command = command.args(["ban", "list", "--data"]).arg(broker.data());
    let ran = command.output().expect("the program runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
}

fn exchange(admin: &Admin, method: &str, path: &str, body: &str) -> (u16, String) {
    let answer = admin.ask(method, path, body);
    (answer.status, answer.body)
}

#[test]
fn a_trace_is_read_as_server_sent_events() {
    let launch = Launch::config("")
        .argument("--admin")
        .argument("127.0.0.1:0");
    let broker = launch.start();
    let admin = &Admin::of(&broker);
    let ask = r#"{"client": "one", "for_s": 60}"#;
    let (status, body) = exchange(admin, "POST", "/api/v1/traces", ask);
    assert_eq!(status, 201, "{body}");
    let begun: Value = serde_json::from_str(&body).expect("JSON");
    let id = begun["id"].as_u64().expect("a number");
    let events = format!("/api/v1/traces/{id}/events");
    let viewer = admin.with_token("viewer", "viewer");
    assert_eq!(exchange(&viewer, "GET", &events, "").0, 403);
    let (address, headers) = (admin.address, &admin.headers);
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!("GET {events} HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    let mut lines = BufReader::new(stream)
        .lines()
        .map(|line| line.expect("text"));
    assert!(lines.next().is_some_and(|line| line.contains(" 200 ")));
    broker.connect("other").disconnect();
    let mut one = broker.connect("one");
    one.publish(Publish::new("t", "x").qos(1));
    let mut step = || {
        let data = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned));
        let data = data.expect("an event");
        serde_json::from_str::<Value>(&data).expect("JSON")
    };
    let connected = step();
    assert_eq!(connected["step"], "connected", "{connected}");
    assert_eq!(connected["client"], "one");
    assert_eq!(step()["packet"], "PUBLISH");
    // One stream at a time.
    assert_eq!(exchange(admin, "GET", &events, "").0, 409);
    let (status, list) = exchange(admin, "GET", "/api/v1/traces", "");
    assert_eq!(status, 200);
    assert!(list.contains("\"client\":\"one\""), "{list}");
    let path = format!("/api/v1/traces/{id}");
    assert_eq!(exchange(admin, "DELETE", &path, "").0, 204);
    assert_eq!(exchange(admin, "DELETE", &path, "").0, 404);
    assert!(lines.any(|line| line == "event: end"), "it is not read on");
    for (body, part) in [
        ("", "needs a client"),
        ("[]", "needs a client"),
        (r#"{"client": 5}"#, "JSON"),
        (r#"{"client": "c", "until": 5}"#, "until"),
        ("{}", "needs a client"),
        (r#"{"client": "c", "for_s": 0}"#, "3600"),
        (r#"{"topic": "a/#/b"}"#, "topic filter"),
        (r#"{"client": "c", "payload_bytes": 5000}"#, "payload_bytes"),
    ] {
        let (status, answer) = exchange(admin, "POST", "/api/v1/traces", body);
        assert_eq!(status, 400, "{body}: {answer}");
        assert!(answer.contains(part), "{body}: {answer}");
    }
    for path in ["/api/v1/traces/x/events", "/api/v1/traces/999/events"] {
        assert_eq!(exchange(admin, "GET", path, "").0, 404);
    }
}

#[test]
fn traces_are_limited_and_make_room_when_they_end() {
    let launch = Launch::config("")
        .argument("--admin")
        .argument("127.0.0.1:0");
    let broker = launch.start();
    let admin = &Admin::of(&broker);
    let begin = || exchange(admin, "POST", "/api/v1/traces", r#"{"client": "c"}"#);
    let ids: Vec<_> = (0..8)
        .map(|_| {
            let (status, body) = begin();
            assert_eq!(status, 201, "{body}");
            let begun: Value = serde_json::from_str(&body).expect("JSON");
            begun["id"].as_u64().expect("a number")
        })
        .collect();
    let (status, body) = begin();
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("8 traces"), "{body}");
    let path = format!("/api/v1/traces/{}", ids[0]);
    assert_eq!(exchange(admin, "DELETE", &path, "").0, 204);
    assert_eq!(begin().0, 201);
}
