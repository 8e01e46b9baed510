//! Clients of other people over every transport that they have, each at every quality of service,
//! with a session that outlives the broker.

use std::process::Command;

use unbroken_acceptance::program::{Program, Route};
use unbroken_acceptance::raw::{Connect, Publish, Version};
use unbroken_acceptance::tools::Tool;
use unbroken_acceptance::{Broker, Launch, case};

use crate::certificates::Authority;
use crate::programs::{has, port_named};

const CONFIG: &str = "\
[[listeners]]
port = 0

[[listeners]]
socket = \"mqtt.sock\"

[[listeners]]
name = \"tls\"
protocol = \"mqtts\"
port = 0
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"

[[listeners]]
name = \"devices\"
protocol = \"mqtts\"
port = 0
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"
client_ca_file = \"DIRECTORY/ca.pem\"

[[listeners]]
name = \"ws\"
protocol = \"ws\"
port = 0

[[listeners]]
name = \"wss\"
protocol = \"wss\"
port = 0
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"
";

/// A durable broker with a listener of each kind.
struct Doors {
    broker: Broker,
    authority: Authority,
}

impl Doors {
    fn start() -> Self {
        let authority = Authority::new();
        authority.issue_client(1, "ann");
        let launch = Launch::listeners(&authority.in_config(CONFIG));
        let broker = launch.shards(3).durable().start();
        Self { broker, authority }
    }

    /// How to come in by this name of a listener, or by `mqtt` or `unix`.
    fn route(&self, name: &str) -> Route {
        let authority = Some(self.authority.path("ca.pem"));
        let port = |name| port_named(&self.broker, name);
        match name {
            "mqtt" => Route::tcp(self.broker.address().port()),
            "unix" => Route {
                scheme: "unix",
                socket: Some(self.broker.directory().join("mqtt.sock")),
                ..Route::default()
            },
            "tls" => Route {
                scheme: "mqtts",
                port: port(name),
                authority,
                ..Route::default()
            },
            "devices" => Route {
                scheme: "mqtts",
                port: port(name),
                authority,
                certificate: Some((
                    self.authority.path("ann.pem"),
                    self.authority.path("ann.key"),
                )),
                ..Route::default()
            },
            // A browser gets to know the authority when it starts.
            "ws" => Route {
                scheme: "ws",
                port: port(name),
                authority,
                ..Route::default()
            },
            "wss" => Route {
                scheme: "wss",
                port: port(name),
                authority,
                ..Route::default()
            },
            other => panic!("no listener is called {other}"),
        }
    }

    /// Stops the broker, and starts it again. After a kill it may send once more what was
    /// acknowledged in the last half second.
    fn restart(&mut self) {
        self.broker.ask_to_end();
        assert!(self.broker.wait().success());
        self.broker.start_again();
    }

    /// Publishes what a client that is away will find.
    fn publish_missed(&self, name: &str) {
        let mut plain = self.broker.connect("publisher");
        for qos in [1, 2] {
            plain.publish(Publish::new(&topic(name), format!("missed {qos}")).qos(qos));
        }
        plain.disconnect();
    }
}

fn topic(name: &str) -> String {
    format!("news/{name}")
}

/// Each listener in turn, by one program; then the broker is started again, and each listener
/// once more.
#[track_caller]
fn check(tool: Tool, version: Version, names: &[&str]) {
    if !has(tool) {
        return;
    }
    let mut doors = Doors::start();
    let mut plain = doors.broker.connect("plain");
    plain.subscribe_to("news/#", 2);
    let mut program = Program::start(tool);
    let connect = |name: &str| Connect::new(version, &format!("client-{name}")).persistent();
    for name in names {
        case(name);
        let connected = program.connect(&doors.route(name), &connect(name));
        connected.unwrap_or_else(|why| panic!("{name}: {why}"));
        assert!(!program.session_present());
        assert_eq!(program.subscribe(&topic(name), 2), 2);
        for qos in 0..3 {
            let long = format!("{name} {qos} {}", "x".repeat(70_000));
            for payload in ["short", &long] {
                program.publish(&Publish::new(&topic(name), payload).qos(qos));
                let message = program.message();
                assert_eq!((message.qos, message.text().as_str()), (qos, payload));
                plain.take_message(&topic(name), payload);
            }
        }
        program.disconnect();
        doors.publish_missed(name);
        for qos in [1, 2] {
            plain.take_message(&topic(name), &format!("missed {qos}"));
        }
    }
    drop(plain);
    doors.restart();
    for name in names {
        case(name);
        let connected = program.connect(&doors.route(name), &connect(name));
        connected.unwrap_or_else(|why| panic!("{name}: {why}"));
        assert!(program.session_present());
        for qos in [1, 2] {
            let message = program.message();
            assert_eq!(message.text(), format!("missed {qos}"));
            assert_eq!(message.qos, qos);
        }
        program.disconnect();
    }
}

#[test]
fn paho_for_python_over_all() {
    let names = ["mqtt", "tls", "devices", "ws", "wss", "unix"];
    check(Tool::PahoPython, Version::V5, &names);
}

#[test]
fn paho_for_go_over_all() {
    let names = ["mqtt", "tls", "devices", "ws", "wss", "unix"];
    check(Tool::PahoGo, Version::V3_1_1, &names);
}

#[test]
fn mqtt_js_over_all_but_a_unix_socket() {
    let names = ["mqtt", "tls", "devices", "ws", "wss"];
    check(Tool::MqttJs, Version::V3_1_1, &names);
}

#[test]
fn the_client_of_hivemq_over_all_but_a_unix_socket() {
    let names = ["mqtt", "tls", "devices", "ws", "wss"];
    check(Tool::HiveMq, Version::V5, &names);
}

#[test]
fn a_page_in_a_browser_over_websocket_and_with_tls() {
    check(Tool::Chromium, Version::V5, &["ws", "wss"]);
}

/// A certificate of another authority is none: neither over TLS nor over WebSocket with TLS.
#[test]
fn clients_refuse_a_broker_whose_authority_they_do_not_know() {
    let doors = Doors::start();
    let stranger = Authority::new();
    for tool in [Tool::PahoPython, Tool::PahoGo, Tool::MqttJs, Tool::HiveMq] {
        if !has(tool) {
            continue;
        }
        for name in ["tls", "wss"] {
            case(&format!("{} {name}", tool.name()));
            let route = Route {
                authority: Some(stranger.path("ca.pem")),
                ..doors.route(name)
            };
            let version = if tool == Tool::HiveMq {
                Version::V5
            } else {
                Version::V3_1_1
            };
            let connect = Connect::new(version, "stranger");
            let refused = Program::start(tool).connect(&route, &connect);
            assert!(refused.is_err(), "{} trusts {name}", tool.name());
        }
    }
    assert!(!doors.broker.log().contains("client=stranger"));
}

const WITH_CERTIFICATES: &str = "\
[[listeners]]
port = 0

[[listeners]]
name = \"devices\"
protocol = \"PROTOCOL\"
port = 0
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"
client_ca_file = \"DIRECTORY/ca.pem\"
crl_file = \"DIRECTORY/list.pem\"

[[roles]]
name = \"only these may connect\"
users = [\"ann\", \"bob\"]
allow = [\"all #\"]
";

#[test]
fn certificates_of_clients_are_verified_over_websocket_as_they_are_over_tls() {
    if !has(Tool::PahoPython) {
        return;
    }
    for protocol in ["mqtts", "wss"] {
        case(protocol);
        let (authority, stranger) = (Authority::new(), Authority::new());
        for (serial, name) in [(1, "ann"), (2, "bob")] {
            authority.issue_client(serial, name);
        }
        stranger.issue_client(1, "eve");
        authority.revoke(&[]);
        let config = authority.in_config(WITH_CERTIFICATES);
        let broker = Launch::listeners(&config.replace("PROTOCOL", protocol)).start();
        let connect = |certificate: Option<(&Authority, &str)>, id: &str| {
            let route = Route {
                scheme: protocol,
                port: port_named(&broker, "devices"),
                authority: Some(authority.path("ca.pem")),
                certificate: certificate.map(|(of, name)| {
                    let file = |kind| of.path(&format!("{name}.{kind}"));
                    (file("pem"), file("key"))
                }),
                ..Route::default()
            };
            let mut program = Program::start(Tool::PahoPython);
            program.connect(&route, &Connect::v5(id)).map(|()| program)
        };
        let mut bob = connect(Some((&authority, "bob")), "first").expect("it is verified");
        assert_eq!(bob.subscribe("news", 1), 1);
        for (certificate, detail) in [
            (None, "peer sent no certificates"),
            // The authority has the same name, and another key.
            (Some((&stranger, "eve")), "BadSignature"),
        ] {
            assert!(connect(certificate, "refused").is_err(), "{detail}");
            broker.wait_for_log(detail);
        }
        authority.revoke(&[2]);
        broker.reload();
        broker.wait_for_log("configuration reloaded");
        assert!(connect(Some((&authority, "bob")), "refused").is_err());
        broker.wait_for_log("Revoked");
        // He who is connected stays, and who is not revoked connects.
        let mut ann = connect(Some((&authority, "ann")), "second").expect("it is verified");
        ann.publish(&Publish::new("news", "still here").qos(1));
        assert_eq!(bob.message().text(), "still here");
        assert!(!broker.log().contains("client=refused"));
    }
}

#[test]
fn the_clients_of_mosquitto_find_their_sessions_over_tls_with_certificates_and_over_unix_sockets() {
    if !has(Tool::Mosquitto) {
        return;
    }
    let mut doors = Doors::start();
    let names = ["tls", "devices", "unix"];
    let arguments = |doors: &Doors, name: &str| {
        let route = doors.route(name);
        let mut arguments = vec!["-i".to_owned(), format!("client-{name}")];
        let mut add = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
        add("-t", topic(name));
        add("-q", "2".to_owned());
        if let Some(socket) = &route.socket {
            add("--unix", socket.display().to_string());
        } else {
            add("-h", "localhost".to_owned());
            add("-p", route.port.to_string());
            add("--cafile", doors.authority.name("ca.pem"));
        }
        if let Some((certificate, key)) = &route.certificate {
            add("--cert", certificate.display().to_string());
            add("--key", key.display().to_string());
        }
        arguments
    };
    for name in names {
        let mut subscribe = Command::new("mosquitto_sub");
        let subscribe = subscribe.args(arguments(&doors, name)).args(["-c", "-E"]);
        assert!(subscribe.status().expect("it starts").success(), "{name}");
        doors.publish_missed(name);
        for qos in ["0", "1", "2"] {
            let mut publish = Command::new("mosquitto_pub");
            publish.args(
                arguments(&doors, name)
                    .iter()
                    .map(|word| match word.as_str() {
                        // The session of that name is the subscriber's.
                        word if word.starts_with("client-") => "other",
                        word => word,
                    }),
            );
            // The last counts.
            publish.args(["-q", qos, "-m", &format!("sent {qos}")]);
            assert!(publish.status().expect("it starts").success(), "{name}");
        }
    }
    doors.restart();
    for name in names {
        let mut subscribe = Command::new("mosquitto_sub");
        let subscribe = subscribe.args(arguments(&doors, name));
        // Of quality 0 nothing waits for a client that is away. One publisher's order is kept.
        let output = subscribe
            .args(["-c", "-C", "4"])
            .output()
            .expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout);
        let of = |word: &str| -> Vec<_> {
            text.lines()
                .filter_map(|line| line.strip_prefix(word))
                .collect()
        };
        assert_eq!(of("missed "), ["1", "2"], "{name}: {text}");
        assert_eq!(of("sent ").len(), 2, "{name}: {text}");
    }
}
