//! When certificates expire: in `unbroken check`, as text and as JSON, and in the metrics.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use unbroken_acceptance::Launch;
use unbroken_acceptance::process::binary;

use crate::certificates::Authority;

const CONFIG: &str = "\
[[listeners]]
port = 0
protocol = \"mqtts\"
allow_anonymous = true
certificate_file = \"DIRECTORY/server.pem\"
key_file = \"DIRECTORY/server.key\"
";

/// 2100-01-01 in seconds since 1970.
const IN_2100: i64 = 4_102_444_800;

fn check(authority: &Authority, more: &[&str]) -> String {
    authority.write("broker.toml", &authority.in_config(CONFIG));
    let mut check = Command::new(binary());
    check
        .args(["check", "-c"])
        .arg(authority.path("broker.toml"));
    let output = check.args(more).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("it is text")
}

#[test]
fn check_says_when_a_certificate_expires_and_that_one_has() {
    let authority = Authority::new();
    for (year, line, is_over) in [
        (
            2100,
            "# expires: FILE (certificate) on 2100-01-01, in ",
            false,
        ),
        (2020, "# expired: FILE (certificate) on 2020-01-01", true),
    ] {
        authority.issue_server_until(year);
        let file = authority.name("server.pem");
        let text = check(&authority, &[]);
        assert!(text.contains(&line.replace("FILE", &file)), "{text}");
        let json: serde_json::Value =
            serde_json::from_str(&check(&authority, &["--json"])).expect("it is JSON");
        let expiries = json["expiries"].as_array().expect("a list");
        assert_eq!(expiries.len(), 1, "{json}");
        assert_eq!(expiries[0]["file"], file);
        assert_eq!(expiries[0]["what"], "certificate");
        let days = expiries[0]["days_left"].as_i64().expect("a number");
        assert_eq!(days < 0, is_over, "{json}");
        if !is_over {
            assert_eq!(expiries[0]["not_after"], IN_2100);
        }
    }
}

#[test]
fn the_metrics_have_the_time_at_which_a_certificate_expires() {
    let authority = Authority::new();
    authority.issue_server_until(2100);
    let config = "[[listeners]]\nport = 0\n\n".to_owned() + &authority.in_config(CONFIG);
    let launch = Launch::listeners(&config).argument("--admin");
    let broker = launch.argument("127.0.0.1:0").start();
    let line = broker.wait_for_log("admin server on http://");
    let (_, address) = line.split_once("http://").expect("it was waited for");
    let mut socket = TcpStream::connect(address.trim()).expect("it listens");
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    socket.write_all(request.as_bytes()).expect("it is sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("it is text");
    let name = "unbroken_certificate_expiry_timestamp_seconds";
    let sample = format!(
        "{name}{{file=\"{}\",what=\"certificate\"}} {IN_2100}",
        authority.name("server.pem")
    );
    assert!(answer.contains(&sample), "{answer}");
}
