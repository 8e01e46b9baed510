//! A listener on a unix socket, with Mosquitto's clients.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use unbroken_acceptance::Launch;
use unbroken_acceptance::tools::Tool;

use crate::programs::{Listening, has, mosquitto_pub};

const CONFIG: &str = "\
[[listeners]]
port = 0

[[listeners]]
socket = \"mqtt.sock\"
socket_mode = \"0640\"
";

#[test]
fn clients_over_a_unix_socket_and_over_tcp_reach_each_other() {
    if !has(Tool::Mosquitto) {
        return;
    }
    let broker = Launch::listeners(CONFIG).start();
    let path = broker.directory().join("mqtt.sock");
    let mode = fs::symlink_metadata(&path).expect("it is there");
    assert_eq!(mode.permissions().mode() & 0o7777, 0o640);
    let path = path.to_str().expect("a temporary directory has a name");
    let mut over_unix = Listening::start(&["--unix", path, "-t", "news", "-q", "2", "-v"]);
    let port = broker.address().port().to_string();
    let mut over_tcp = Listening::start(&["-p", &port, "-t", "news", "-v"]);
    for qos in ["0", "1", "2"] {
        let sent = mosquitto_pub(&["--unix", path, "-t", "news", "-m", qos, "-q", qos]);
        assert!(sent.0, "{}", sent.1);
        over_unix.wait_for(&format!("news {qos}"));
        over_tcp.wait_for(&format!("news {qos}"));
    }
    let long = "x".repeat(200_000);
    let sent = mosquitto_pub(&["-p", &port, "-t", "news", "-m", &long[..100_000], "-q", "1"]);
    assert!(sent.0, "{}", sent.1);
    over_unix.wait_for(&format!("news {}", &long[..100_000]));
}

#[test]
fn a_stale_socket_is_replaced_and_one_in_use_is_not() {
    let config = CONFIG.replace("mqtt.sock", "DIRECTORY/mqtt.sock");
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let path = directory.path().join("mqtt.sock");
    let config = config.replace("DIRECTORY", &directory.path().display().to_string());
    let other = UnixListener::bind(&path).expect("the directory is writable");
    let (status, text) = Launch::listeners(&config).run_to_end();
    assert!(!status.success());
    assert!(text.contains("cannot listen on unix:"), "{text}");
    drop(other); // it ends as a killed program does: its file stays
    assert!(path.exists());
    let mut broker = Launch::listeners(&config).start();
    broker.ask_to_end();
    assert!(broker.wait().success());
    assert!(!path.exists(), "its file ends with it");
}
