//! The admin server beyond loopback: HTTPS, renewal of its certificate, and what is refused.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use unbroken_acceptance::admin::{Answer, exchange, link};
use unbroken_acceptance::{Broker, Launch};

const CONFIG: &str = "\
[admin]
listen = \"LISTEN\"
certificate_file = \"admin.pem\"
key_file = \"admin.key\"
hosts = [\"broker.example.org\"]
";

type Identity = CertifiedKey<KeyPair>;

fn identity() -> Identity {
    generate_simple_self_signed(vec!["broker.example.org".to_owned()]).expect("a certificate")
}

fn launch(config: &str, identity: &Identity) -> Launch {
    // The environment of the suite says `off`, and a flag comes before it.
    Launch::config(config)
        .file("admin.pem", &identity.cert.pem())
        .file("admin.key", &identity.signing_key.serialize_pem())
}

/// A broker with an admin server on all addresses, and the port of that.
fn start(identity: &Identity) -> (Broker, u16) {
    let config = CONFIG.replace("LISTEN", "127.0.0.1:0");
    let launch = launch(&config, identity)
        .argument("--admin")
        .argument("0.0.0.0:0");
    let broker = launch.start();
    let line = broker.wait_for_log("admin server on https://0.0.0.0:");
    let port = line
        .trim()
        .rsplit(':')
        .next()
        .and_then(|port| port.parse().ok());
    (broker, port.expect("a port"))
}

/// Asks over TLS, trusting this certificate alone. `None`: the handshake fails.
fn ask(port: u16, trusted: &CertificateDer<'static>, request: &str) -> Option<Answer> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("broker.example.org").expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    while client.is_handshaking() {
        client.complete_io(&mut socket).ok()?;
    }
    Some(exchange(StreamOwned::new(client, socket), request))
}

fn request(method: &str, path: &str, headers: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: broker.example.org\r\n{headers}Connection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn https_protects_the_cookie_and_needs_credentials() {
    let identity = identity();
    let (broker, port) = start(&identity);
    let certificate = identity.cert.der().clone();
    let ask = |method: &str, path: &str, headers: &str, body: &str| {
        let request = request(method, path, headers, body);
        ask(port, &certificate, &request).expect("the certificate is its own")
    };
    broker.wait_for_log(&format!("https://broker.example.org:{port}/#link="));
    assert_eq!(ask("GET", "/healthz", "", "").status, 200);
    assert_eq!(ask("GET", "/api/v1/node", "", "").status, 401);
    let token = link(&broker);
    let body =
        format!("{{\"token\":\"{token}\",\"name\":\"ann\",\"password\":\"ann's password\"}}");
    let answer = ask("POST", "/api/v1/sign-in/link", "", &body);
    let cookie = answer.header("set-cookie").expect("a cookie").to_owned();
    assert!(cookie.ends_with("; Secure"), "{cookie}");
    let cookie = cookie.split(';').next().expect("a cookie");
    let me = ask("GET", "/api/v1/me", &format!("Cookie: {cookie}\r\n"), "");
    assert_eq!(me.field("name"), "ann");
    let metrics = ask("GET", "/metrics", "", "");
    let expiry = "unbroken_certificate_expiry_timestamp_seconds{file=";
    assert!(metrics.body.contains(expiry), "{metrics:?}");
    assert!(metrics.body.contains("admin.pem"), "{metrics:?}");
    // In the clear it says nothing.
    let socket = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let answer = exchange(socket, &request("GET", "/healthz", "", ""));
    assert_eq!(answer.status, 0, "{answer:?}");
}

#[test]
fn a_renewed_certificate_is_served_after_a_reload() {
    let (old, new) = (identity(), identity());
    let (broker, port) = start(&old);
    let get = request("GET", "/healthz", "", "");
    let old_works = || ask(port, old.cert.der(), &get).is_some_and(|it| it.status == 200);
    let new_works = || ask(port, new.cert.der(), &get).is_some_and(|it| it.status == 200);
    assert!(old_works() && !new_works());
    let write = |name: &str, text: &str| {
        fs::write(broker.directory().join(name), text).expect("its directory is writable");
    };
    write("admin.pem", "no certificate");
    broker.reload();
    broker.wait_for_log("cannot reload the configuration");
    assert!(old_works());
    write("admin.pem", &new.cert.pem());
    write("admin.key", &new.signing_key.serialize_pem());
    broker.reload();
    broker.wait_for_log("configuration reloaded");
    assert!(new_works() && !old_works());
}

#[test]
fn what_is_not_safe_does_not_start() {
    let identity = identity();
    let open = format!(
        "{}anonymous = \"viewer\"\n",
        CONFIG.replace("LISTEN", "127.0.0.1:0")
    );
    let half = "[admin]\nkey_file = \"admin.key\"\n";
    let wrong = "[admin]\ncertificate_file = \"unbroken.toml\"\nkey_file = \"admin.key\"\n";
    for (config, listen, code, expected) in [
        ("", "0.0.0.0:0", 78, "certificate_file = \"FILE\""),
        ("", "[::]:0", 78, "without TLS"),
        (&open, "0.0.0.0:0", 78, "admin.anonymous"),
        (half, "127.0.0.1:0", 78, "only one of"),
        (wrong, "127.0.0.1:0", 69, "unbroken.toml"),
    ] {
        let launch = launch(config, &identity)
            .argument("--admin")
            .argument(listen);
        let (status, log) = launch.run_to_end();
        assert_eq!(status.code(), Some(code), "{config}: {log}");
        assert!(log.contains(expected), "{config}: {log}");
    }
    let file = Path::new("admin.pem");
    let launch = launch(&CONFIG.replace("LISTEN", "0.0.0.0:0"), &identity);
    let checked = launch
        .file("admin.pem", "x")
        .argument("--admin")
        .argument("0.0.0.0:0");
    let (status, log) = checked.run_to_end();
    assert!(
        !status.success() && log.contains(&file.display().to_string()),
        "{log}"
    );
}
