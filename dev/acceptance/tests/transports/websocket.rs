//! Listeners with WebSocket, with and without TLS: paho for Python, MQTT.js, and bytes by hand.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};
use unbroken_acceptance::tools::Tool;
use unbroken_acceptance::{DEADLINE, Launch};

use crate::certificates::Authority;
use crate::programs::{has, port_of};

const CONFIG: &str = "\
[[listeners]]
port = 0

[[listeners]]
protocol = \"ws\"
port = 0

[[listeners]]
protocol = \"wss\"
port = 0
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"
";

/// A program on top of a client library.
struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    fn start(tool: Tool) -> Self {
        let mut command = tool.program();
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("it starts");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Self {
            child,
            input,
            output,
        }
    }

    /// Has it do something, and waits for the event that follows.
    #[track_caller]
    fn does(&mut self, command: &Value, event: &str) -> Value {
        writeln!(self.input, "{command}").expect("it reads");
        self.waits_for(event)
    }

    #[track_caller]
    fn waits_for(&mut self, event: &str) -> Value {
        loop {
            let mut line = String::new();
            let count = self.output.read_line(&mut line).expect("it can be read");
            assert!(count > 0, "no {event}");
            let found: Value = serde_json::from_str(&line).expect("JSON");
            if found["event"] == event {
                return found;
            }
            assert_ne!(found["event"], "error", "{line}");
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn clients_of_browsers_exchange_messages_with_all_others() {
    let authority = Authority::new();
    let config = authority.in_config(CONFIG);
    for tool in [Tool::PahoPython, Tool::MqttJs] {
        if !has(tool) {
            continue;
        }
        for shards in [1, 3] {
            let broker = Launch::listeners(&config).shards(shards).start();
            let mut plain = broker.connect("plain");
            plain.subscribe_to("news", 2);
            for scheme in ["ws", "wss"] {
                let mut client = Client::start(tool);
                let connect = json!({
                    "do": "connect", "port": port_of(&broker, scheme), "version": "5.0",
                    "id": format!("{scheme}-{}", tool.name()), "clean": true,
                    "scheme": scheme, "ca": authority.name("ca.pem"),
                });
                client.does(&connect, "connected");
                let subscribe = json!({"do": "subscribe", "filter": "news", "qos": 2});
                client.does(&subscribe, "subscribed");
                for qos in 0..3 {
                    let long = format!("{scheme} {qos} {}", "x".repeat(70_000));
                    for payload in ["short", &long] {
                        let publish = json!({
                            "do": "publish", "topic": "news", "payload": payload, "qos": qos,
                            "retain": false,
                        });
                        writeln!(client.input, "{publish}").expect("it reads");
                        assert_eq!(client.waits_for("message")["payload"], payload);
                        plain.take_message("news", payload);
                    }
                }
                client.does(&json!({"do": "disconnect"}), "disconnected");
            }
        }
    }
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    stream
}

fn request(more: &str) -> String {
    format!(
        "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{more}\r\n"
    )
}

/// A frame of a client, with a mask of zeros.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("it is short");
    [&[first, 0x80 | length, 0, 0, 0, 0][..], payload].concat()
}

#[test]
fn frames_and_packets_need_not_fit() {
    let broker = Launch::listeners(&Authority::new().in_config(CONFIG)).start();
    let port = port_of(&broker, "ws");
    let session = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd\xc0\x00";
    let answer = [&frame(0x82, b"")[..0], b"\x20\x02\x00\x00\xd0\x00"].concat();
    for split in 1..session.len() {
        let mut stream = connect(port);
        let frames = [
            request("").into_bytes(),
            frame(0x02, &session[..split]),
            frame(0x89, b"ping"),
            frame(0x00, b""),
            frame(0x80, &session[split..]),
        ]
        .concat();
        stream.write_all(&frames).expect("it is sent");
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).expect("an answer");
        }
        // Pong, and the packets in one frame or two.
        let (mut packets, mut pongs) = (Vec::new(), 0);
        while packets.len() < answer.len() {
            let mut header = [0; 2];
            reader.read_exact(&mut header).expect("a frame");
            let mut payload = vec![0; usize::from(header[1])];
            reader.read_exact(&mut payload).expect("a frame");
            match header[0] {
                0x8a => pongs += 1,
                0x82 => packets.extend(payload),
                other => panic!("{other:x}"),
            }
        }
        assert_eq!((packets, pongs), (answer.clone(), 1), "{split}");
    }
}

#[test]
fn what_is_no_websocket_gets_an_answer_that_helps() {
    let allowed = "protocol = \"ws\"\nallowed_origins = [\"https://a.example\"]";
    let config = Authority::new().in_config(CONFIG);
    let config = config
        .split("\n\n")
        .take(2)
        .collect::<Vec<_>>()
        .join("\n\n");
    let broker = Launch::listeners(&config.replace("protocol = \"ws\"", allowed)).start();
    let port = port_of(&broker, "ws");
    let origin = request("Origin: https://b.example\r\n");
    let connect_packet = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd";
    for (sent, answer, logged) in [
        (
            &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            "This is an MQTT broker",
            None,
        ),
        (
            origin.as_bytes(),
            "403 Forbidden",
            Some("not among `allowed_origins`"),
        ),
        (connect_packet, "", Some("MQTT without WebSocket")),
        (
            b"\x16\x03\x01\x02\x00\x01\x00",
            "",
            Some("protocol = \\\"wss\\\""),
        ),
    ] {
        let mut stream = connect(port);
        stream.write_all(sent).expect("it is sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it is closed");
        assert!(text.contains(answer), "{text}");
        assert_eq!(text.is_empty(), answer.is_empty(), "{text}");
        if let Some(logged) = logged {
            broker.wait_for_log(&logged.replace("\\\"", "\""));
        }
    }
    // The other way round: on a listener with MQTT alone.
    for (sent, logged) in [
        (
            &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            "the client speaks HTTP",
        ),
        (b"\x16\x03\x01\x02\x00\x01\x00\x00", "the client speaks TLS"),
    ] {
        let mut stream = connect(broker.address().port());
        stream.write_all(sent).expect("it is sent");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("it is closed");
        broker.wait_for_log(logged);
    }
}
