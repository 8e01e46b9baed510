//! Sockets that are not ours: nng by pynng, nng's `nngcat`, and nanomsg's `nanocat`.

use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use unbroken_acceptance::raw::Publish;
use unbroken_acceptance::raw::id::{CORRELATION_DATA, RESPONSE_TOPIC};
use unbroken_acceptance::tools::{self, Tool};
use unbroken_acceptance::{Broker, Client, DEADLINE, Launch, case};

use crate::peer::gateway;
use crate::wait_until_ready;

/// Whether a tool is there. One that is missing is counted, by the line that says so.
fn has(tool: Tool) -> bool {
    let is_installed = tool.is_installed();
    assert!(
        is_installed || !tools::required(),
        "{} is required",
        tool.name()
    );
    if !is_installed {
        // A closed standard output is no fault.
        let _ = writeln!(io::stdout(), "\n1 test (1 skipped)");
        case(&format!("skipped: {} is missing", tool.name()));
    }
    is_installed
}

/// One socket of nng.
struct Nng {
    child: Child,
    commands: ChildStdin,
    events: BufReader<ChildStdout>,
}

impl Nng {
    #[track_caller]
    fn start() -> Self {
        let mut command = Tool::Pynng.program();
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().expect("Python starts");
        let commands = child.stdin.take().expect("it is piped");
        let events = BufReader::new(child.stdout.take().expect("it is piped"));
        Self {
            child,
            commands,
            events,
        }
    }

    #[track_caller]
    fn dial(kind: &str, to: SocketAddr, topics: &[&str]) -> Self {
        let mut socket = Self::start();
        let to = to.to_string();
        socket.order(
            json!({"do": "open", "kind": kind, "dial": to, "topics": topics}),
            "open",
        );
        socket
    }

    /// With its address.
    #[track_caller]
    fn listen(kind: &str, at: &str) -> (Self, String) {
        let mut socket = Self::start();
        let topics = [""];
        let topics = if kind == "sub" { &topics[..] } else { &[] };
        let open = json!({"do": "open", "kind": kind, "listen": at, "topics": topics});
        let event = socket.order(open, "open");
        let address = event["address"].as_str().expect("it is a text").to_owned();
        (socket, address)
    }

    #[track_caller]
    fn order(&mut self, command: Value, expected: &str) -> Value {
        writeln!(self.commands, "{command}").expect("Python reads");
        let mut line = String::new();
        self.events
            .read_line(&mut line)
            .expect("Python writes lines");
        let event: Value = serde_json::from_str(&line).unwrap_or(Value::Null);
        assert_eq!(event["event"], expected, "{command}: {line:?}");
        event
    }

    #[track_caller]
    fn send(&mut self, body: &str) {
        self.order(json!({"do": "send", "body": body}), "sent");
    }

    #[track_caller]
    fn receive(&mut self) -> String {
        let event = self.order(json!({"do": "receive"}), "received");
        event["body"].as_str().expect("it is a text").to_owned()
    }

    #[track_caller]
    fn expect(&mut self, body: &str) {
        assert_eq!(self.receive(), body);
    }
}

/// By its process id, without a word.
impl Drop for Nng {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const KINDS: [(&str, &str); 6] = [
    ("pull", "push"),
    ("sub", "pub"),
    ("push", "pull"),
    ("pub", "sub"),
    ("rep", "req"),
    ("req", "rep"),
];

/// One gateway of each kind, called like it; `place` says where.
fn tables(mut place: impl FnMut(&str) -> String) -> String {
    let table = |(kind, _): (&str, &str)| {
        let place = place(kind);
        format!(
            "[[gateway.sp]]\nname = \"{kind}\"\nsocket = \"{kind}\"\n{place}\n\
             topic = \"in/{kind}\"\nfilter = \"out/{kind}/#\"\n"
        )
    };
    KINDS.map(table).concat()
}

/// How long a message is waited for until another is sent.
const POLL: Duration = Duration::from_millis(50);

/// What the client of [`talk`] subscribes to.
fn connect(broker: &Broker) -> Client {
    for (kind, _) in KINDS {
        wait_until_ready(broker, kind);
    }
    let mut client = broker.connect("client");
    for filter in ["in/pull", "in/rep", "in/answers"] {
        client.subscribe_to(filter, 1);
    }
    client
}

/// Messages through the gateway of each kind, both ways where there are two.
#[track_caller]
fn talk(broker: &Broker, client: &mut Client, peers: &mut [Nng; 6], round: usize) {
    let text = |what: &str| format!("{what} {round}");
    let [push, publisher, pull, subscriber, req, rep] = peers;
    push.send(&text("pushed"));
    client.take_message("in/pull", &text("pushed"));
    // A publisher drops what it sends before its own side of the connection is ready.
    let mut reader = broker.connect(&text("reader"));
    reader.subscribe_to("in/sub/#", 1);
    let since = Instant::now();
    let published = loop {
        assert!(
            since.elapsed() < DEADLINE,
            "nothing comes from the publisher"
        );
        publisher.send(&text("a/b\0published"));
        if let Some(message) = reader.poll_message(POLL) {
            break message;
        }
    };
    assert_eq!(
        (&*published.topic, published.text()),
        ("in/sub/a/b", text("published"))
    );
    let out = |kind: &str, payload: &str| Publish::new(&format!("out/{kind}/x"), payload).qos(1);
    client.publish(out("push", &text("work")));
    pull.expect(&text("work"));
    client.publish(out("pub", &text("news")));
    subscriber.expect(&text("out/pub/x\0news"));

    req.send(&text("question"));
    let request = client.take_message("in/rep", &text("question"));
    let topic = request.properties.text(RESPONSE_TOPIC).expect("it has one");
    let data = request
        .properties
        .binary(CORRELATION_DATA)
        .expect("it has some");
    let answer = Publish::new(topic, text("answer")).qos(1);
    client.publish(answer.property(CORRELATION_DATA, data));
    req.expect(&text("answer"));

    let request = out("req", &text("order")).property(RESPONSE_TOPIC, "in/answers");
    client.publish(request);
    rep.expect(&text("order"));
    rep.send(&text("done"));
    client.take_message("in/answers", &text("done"));
}

#[test]
fn sockets_of_nng_dial_gateways_of_each_kind() {
    if !has(Tool::Pynng) {
        return;
    }
    let config = tables(|_| "listen = \"tcp://127.0.0.1:0\"".to_owned());
    let broker = Launch::config(&config).argument("-v").start();
    let mut client = connect(&broker);
    let mut peers = KINDS.map(|(kind, theirs)| {
        let topics = if theirs == "sub" {
            &["out/pub/"][..]
        } else {
            &[]
        };
        let peer = Nng::dial(theirs, gateway(&broker, kind), topics);
        broker.wait_for_log(&format!("sp peer connected gateway={kind} "));
        peer
    });
    for round in 0..3 {
        talk(&broker, &mut client, &mut peers, round);
    }
}

#[test]
fn gateways_of_each_kind_dial_sockets_of_nng_and_come_back_to_them() {
    if !has(Tool::Pynng) {
        return;
    }
    let listening = KINDS.map(|(_, theirs)| Nng::listen(theirs, "127.0.0.1:0"));
    let addresses = listening.each_ref().map(|(_, address)| address.clone());
    let mut peers = listening.map(|(peer, _)| peer);
    let place = |kind: &str| {
        let index = KINDS
            .iter()
            .position(|(ours, _)| *ours == kind)
            .expect("it is one");
        format!(
            "connect = \"tcp://{}\"\nretry = \"100ms\"",
            addresses[index]
        )
    };
    let broker = Launch::config(&tables(place)).argument("-v").start();
    let mut client = connect(&broker);
    for round in 1..=3 {
        for (kind, _) in KINDS {
            broker.wait_for_log_times(&format!("sp peer connected gateway={kind} "), round);
        }
        talk(&broker, &mut client, &mut peers, round);
        // Killed, and started again where they were.
        for ((peer, address), (_, theirs)) in peers.iter_mut().zip(&addresses).zip(KINDS) {
            let _ = peer.child.kill();
            let _ = peer.child.wait();
            *peer = Nng::listen(theirs, address).0;
        }
    }
}

/// A peer that is killed and started again gets what waited for it.
#[test]
fn work_waits_for_a_socket_of_nng_that_is_killed() {
    if !has(Tool::Pynng) {
        return;
    }
    let config = "[[gateway.sp]]\nname = \"it\"\nsocket = \"push\"\nfilter = \"work\"\n\
                  listen = \"tcp://127.0.0.1:0\"\n";
    let broker = Launch::config(config).argument("-v").start();
    wait_until_ready(&broker, "it");
    let mut client = broker.connect("client");
    let work = |number: usize| Publish::new("work", number.to_string()).qos(1);
    let mut pull = Nng::dial("pull", gateway(&broker, "it"), &[]);
    client.publish(work(0));
    pull.expect("0");
    drop(pull);
    broker.wait_for_log("sp peer left gateway=it ");
    client.publish_all((1..100).map(work));
    let mut pull = Nng::dial("pull", gateway(&broker, "it"), &[]);
    for number in 1..100 {
        pull.expect(&number.to_string());
    }
}

/// `nngcat` and `nanocat` take work and ask.
#[test]
fn cats_of_nng_and_nanomsg_take_work_and_ask() {
    if !has(Tool::SpCats) {
        return;
    }
    let config = tables(|_| "listen = \"tcp://127.0.0.1:0\"".to_owned());
    let broker = Broker::with_config(&config);
    let mut client = connect(&broker);
    for (cat, dial) in [("nngcat", "--dial"), ("nanocat", "--connect")] {
        case(cat);
        let start = |kind: &str, ours: &str, more: &[&str]| {
            let to = format!("tcp://{}", gateway(&broker, ours));
            let mut command = Command::new(cat);
            command
                .args([kind, dial, &to, "--quoted", "--recv-timeout", "15"])
                .args(more);
            Cat::start(&mut command)
        };
        let mut pull = start("--pull", "push", &[]);
        client.publish(Publish::new("out/push/x", "work").qos(1));
        pull.expect("\"work\"");
        drop(pull);

        let mut req = start("--req", "rep", &["--data", "question"]);
        let request = client.take_message("in/rep", "question");
        let topic = request.properties.text(RESPONSE_TOPIC).expect("it has one");
        let data = request
            .properties
            .binary(CORRELATION_DATA)
            .expect("it has some");
        let answer = Publish::new(topic, "answer").qos(1);
        client.publish(answer.property(CORRELATION_DATA, data));
        req.expect("\"answer\"");
    }
}

/// A cat that prints what it receives. Dropping it ends it.
struct Cat {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Cat {
    fn start(command: &mut Command) -> Self {
        let piped = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = piped.spawn().expect("it is installed");
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, lines }
    }

    #[track_caller]
    fn expect(&mut self, text: &str) {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("it prints lines");
        assert_eq!(line.trim_end(), text);
    }
}

impl Drop for Cat {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
