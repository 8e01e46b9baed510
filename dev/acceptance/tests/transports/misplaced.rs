//! Clients that speak another protocol than their listener: one line of the log says what the
//! broker saw, and names the listener that is meant.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use unbroken_acceptance::{DEADLINE, Launch};

use crate::certificates::Authority;
use crate::programs::port_of;

const CONFIG: &str = "\
[[listeners]]
name = \"plain\"
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

#[test]
fn a_client_at_another_door_is_shown_to_its_own() {
    const HTTP: &[u8] = b"GET /mqtt HTTP/1.1\r\nHost: a\r\n\r\n";
    const MQTT: &[u8] = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd";
    const TLS: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x00";
    let authority = Authority::new();
    let broker = Launch::listeners(&authority.in_config(CONFIG)).start();
    let [mqtt, ws, wss] = ["mqtt", "ws", "wss"].map(|protocol| port_of(&broker, protocol));
    let at = "the listener at 127.0.0.1";
    for (port, sent, logged) in [
        (
            mqtt,
            HTTP,
            format!("the client speaks HTTP: it needs {at}:{ws} (ws), or {at}:{wss} (wss)"),
        ),
        (
            mqtt,
            TLS,
            format!("the client speaks TLS: it needs {at}:{wss} (wss)"),
        ),
        (
            ws,
            MQTT,
            format!(
                "the client speaks MQTT without WebSocket: it needs the listener plain at \
                 127.0.0.1:{mqtt} (mqtt)"
            ),
        ),
        (
            wss,
            MQTT,
            format!(
                "the client speaks MQTT without TLS: it needs the listener plain at \
                 127.0.0.1:{mqtt} (mqtt)"
            ),
        ),
        (
            wss,
            HTTP,
            format!(
                "the client speaks HTTP without TLS: it needs TLS on this port (https, wss), or \
                 {at}:{ws} (ws)"
            ),
        ),
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        stream.write_all(sent).expect("it is sent");
        let mut ignored = Vec::new();
        stream.read_to_end(&mut ignored).expect("it is closed");
        broker.wait_for_log(&logged);
    }
}
