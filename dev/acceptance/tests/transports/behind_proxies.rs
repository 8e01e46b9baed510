//! HAProxy and nginx in front of the broker, as `docs/behind-a-proxy.md` configures them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use tempfile::TempDir;
use unbroken_acceptance::door::Door;
use unbroken_acceptance::program::{Program, Route};
use unbroken_acceptance::raw::{Connect, Publish, Version, reason};
use unbroken_acceptance::tools::{self, Tool};
use unbroken_acceptance::{Broker, Client, DEADLINE, Launch};

use crate::certificates::Authority;
use crate::pages::{blocks, replaced};
use crate::programs::{has, mosquitto_pub, port_named};

const PAGE: &str = "behind-a-proxy.md";
/// Where clients come from: other addresses of this machine than the proxy's own.
const HERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
const THERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 10);
/// In front of the page's configuration: with roles, a client that has none may not connect.
const MORE: &str = "\
[limits]
connections_max = 20

[[roles]]
name = \"only these may connect\"
users = [\"ann\", \"bob\"]
allow = [\"all #\"]

";

/// The broker of the page, and the authority of the proxies' certificates.
struct Stage {
    broker: Broker,
    authority: Authority,
}

impl Stage {
    fn set() -> Self {
        let authority = Authority::new();
        authority.issue_client(1, "ann");
        let server = ["server.pem", "server.key"].map(|name| {
            fs::read_to_string(authority.path(name)).expect("the authority has written it")
        });
        authority.write("both.pem", &server.concat());
        let made = Command::new(unbroken_acceptance::process::binary())
            .args(["passwd", "users", "bob", "-b", "secret"])
            .current_dir(authority.path("."))
            .status();
        assert!(made.expect("it starts").success());
        let [config] = &blocks(PAGE, "toml")[..] else {
            panic!("the broker has one configuration");
        };
        let users = format!("\"{}\"", authority.name("users"));
        let words = [
            ("port = 1884", "port = 0"),
            ("port = 1885", "port = 0"),
            ("port = 8083", "port = 0"),
            ("port = 8085", "port = 0"),
            ("\"users\"", &users),
        ];
        let config = format!("{MORE}{}", replaced(config, &words));
        let broker = Launch::listeners(&config).start();
        Self { broker, authority }
    }

    /// Where the broker listens, as a proxy writes it.
    fn upstream(&self, name: &str) -> String {
        format!("127.0.0.1:{}", port_named(&self.broker, name))
    }

    /// A client behind this proxy has its own address, and its own share of the connections.
    #[track_caller]
    fn check_addresses(&self, proxy: SocketAddr) {
        let connect = |name: &str| Connect::v5(name).user_name("bob").password("secret");
        let through = |from: Ipv4Addr, name: &str| {
            let mut client = Client::through(&Door::tcp(proxy), Some(from), Version::V5);
            client.send(connect(name).encode());
            client
        };
        let mut clients = Vec::new();
        loop {
            let name = format!("here-{}", clients.len());
            let mut client = through(HERE, &name);
            let connack = client.expect_connack();
            if connack.reason != 0 {
                assert_eq!(connack.reason, reason::QUOTA_EXCEEDED, "{connack:?}");
                break;
            }
            clients.push(client);
        }
        assert!((2..20).contains(&clients.len()), "{}", clients.len());
        let line = self.broker.wait_for_log("client=here-1 ");
        assert!(line.contains("address=127.0.0.9:"), "{line}");
        let mut there = through(THERE, "there");
        assert_eq!(there.expect_connack().reason, 0);
        let line = self.broker.wait_for_log("client=there ");
        assert!(line.contains("address=127.0.0.10:"), "{line}");
        // And messages pass, large ones too.
        let first = &mut clients[0];
        there.subscribe_to("news", 2);
        let long = "x".repeat(200_000);
        for payload in ["short", &long] {
            first.publish(Publish::new("news", payload).qos(2));
            there.take_message("news", payload);
        }
    }
}

/// A running proxy, ended when it is dropped.
struct Proxy {
    child: Child,
    _directory: TempDir,
}

impl Proxy {
    /// Starts it with a configuration, and waits until it listens there.
    #[track_caller]
    fn start(tool: Tool, config: &str, ports: &[SocketAddr]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let file = directory.path().join("proxy.conf");
        fs::write(&file, config).expect("the directory is writable");
        let mut command = tool.program();
        match tool {
            Tool::HaProxy => command.args(["-db", "-f"]).arg(&file),
            _ => command
                .arg("-p")
                .arg(directory.path())
                .arg("-c")
                .arg(&file)
                .args(["-e", "stderr"]),
        };
        let child = command.stdin(Stdio::null()).spawn();
        let mut proxy = Self {
            child: child.expect("it starts"),
            _directory: directory,
        };
        let since = Instant::now();
        for port in ports {
            while TcpStream::connect(port).is_err() {
                let ended = proxy.child.try_wait().expect("it is a child");
                assert_eq!(ended, None, "{} ends", tool.name());
                assert!(
                    since.elapsed() < DEADLINE,
                    "{} does not listen",
                    tool.name()
                );
                thread::yield_now();
            }
        }
        proxy
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Neither of them can choose a port itself, so one is chosen for it.
fn free_port() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .expect("a loopback port is free")
}

#[test]
fn haproxy_names_the_address_of_each_client_and_the_user_of_its_certificate() {
    if !has(Tool::HaProxy) || !has(Tool::Mosquitto) {
        return;
    }
    let stage = Stage::set();
    let (plain, devices) = (free_port(), free_port());
    let [block] = &blocks(PAGE, "haproxy")[..] else {
        panic!("HAProxy has one configuration");
    };
    let config = replaced(
        block,
        &[
            ("bind :1883", &format!("bind {plain}")),
            ("bind :8883", &format!("bind {devices}")),
            ("/etc/haproxy/server.pem", &stage.authority.name("both.pem")),
            (
                "/etc/haproxy/devices-ca.pem",
                &stage.authority.name("ca.pem"),
            ),
            ("127.0.0.1:1884", &stage.upstream("proxied")),
            ("127.0.0.1:1885", &stage.upstream("proxied devices")),
        ],
    );
    let _proxy = Proxy::start(Tool::HaProxy, &config, &[plain, devices]);
    let port = devices.port().to_string();
    let ca = stage.authority.name("ca.pem");
    let common = [
        "-h",
        "localhost",
        "-p",
        &port,
        "--cafile",
        &ca,
        "-A",
        "127.0.0.9",
        "-t",
        "news",
        "-m",
        "x",
        "-q",
        "1",
    ];
    let certificate = stage.authority.name("ann.pem");
    let key = stage.authority.name("ann.key");
    let own = ["-i", "device", "--cert", &certificate, "--key", &key];
    let (succeeded, text) = mosquitto_pub(&[&common[..], &own].concat());
    assert!(succeeded, "{text}{}", stage.broker.log());
    let line = stage.broker.wait_for_log("client=device ");
    assert!(line.contains("address=127.0.0.9:"), "{line}");
    // Without a certificate the broker does not even hear of it.
    assert!(!mosquitto_pub(&[&common[..], &["-i", "nobody"]].concat()).0);
    stage.check_addresses(plain);
    assert!(!stage.broker.log().contains("client=nobody"));
}

/// What is around a block of the page: it runs in the foreground, and in its own directory.
fn nginx(block: &str, scratch: &str) -> String {
    let module = tools::NGINX_STREAMS;
    let own = "access_log off; client_body_temp_path body; proxy_temp_path proxy;
        fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;";
    let block = block.replace("http {", &format!("http {{ {own}"));
    format!(
        "daemon off;\nmaster_process off;\npid {scratch}/nginx.pid;\nload_module {module};\n\
         events {{}}\n{block}"
    )
}

#[test]
fn nginx_names_the_address_of_each_client_with_and_without_tls() {
    if !has(Tool::Nginx) || !has(Tool::OpenSsl) {
        return;
    }
    let stage = Stage::set();
    let (plain, pages) = (free_port(), free_port());
    let block = &blocks(PAGE, "nginx")[0];
    let config = replaced(
        block,
        &[
            ("listen 1883", &format!("listen {plain}")),
            ("listen 8084", &format!("listen {pages}")),
            ("/etc/nginx/server.pem", &stage.authority.name("server.pem")),
            ("/etc/nginx/server.key", &stage.authority.name("server.key")),
            ("127.0.0.1:1884", &stage.upstream("proxied")),
            ("127.0.0.1:8083", &stage.upstream("proxied pages")),
        ],
    );
    let scratch = stage.authority.name(".");
    let _proxy = Proxy::start(Tool::Nginx, &nginx(&config, &scratch), &[plain, pages]);
    connect_over_websocket(&stage, pages);
    let line = stage.broker.wait_for_log("client=page ");
    assert!(line.contains("address=127.0.0.9:"), "{line}");
    stage.check_addresses(plain);
}

/// OpenSSL connects from another address, and a CONNECT in one frame of WebSocket is acknowledged.
fn connect_over_websocket(stage: &Stage, proxy: SocketAddr) {
    let mut client = Tool::OpenSsl
        .program()
        .args(["s_client", "-quiet", "-no_ign_eof", "-bind", "127.0.0.9:0"])
        .args(["-connect", &proxy.to_string(), "-servername", "localhost"])
        .args(["-CAfile", &stage.authority.name("ca.pem")])
        .args(["-verify_return_error"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut input = client.stdin.take().expect("it is piped");
    let mut output = client.stdout.take().expect("it is piped");
    let request = "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
                   Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\
                   X-Forwarded-For: 192.0.2.1\r\nForwarded: for=192.0.2.1\r\n\r\n";
    let connect = Connect::new(Version::V3_1_1, "page")
        .user_name("bob")
        .password("secret")
        .encode();
    let length = u8::try_from(connect.len()).expect("it is short");
    let frame = [&[0x82, 0x80 | length, 0, 0, 0, 0][..], &connect].concat();
    input.write_all(request.as_bytes()).expect("it is sent");
    input.write_all(&frame).expect("it is sent");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\x82\x04\x20\x02\x00\x00") {
        let mut byte = [0];
        let read = output.read_exact(&mut byte);
        read.unwrap_or_else(|error| panic!("{error} behind {:?}", answer.escape_ascii()));
        answer.extend(byte);
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "));
    let _ = client.kill();
    let _ = client.wait();
}

#[test]
fn pages_reach_the_broker_through_a_location_of_nginx() {
    if !has(Tool::Nginx) || !has(Tool::OpenSsl) {
        return;
    }
    let stage = Stage::set();
    let port = free_port();
    let block = &blocks(PAGE, "nginx")[1];
    let config = replaced(
        block,
        &[
            ("listen 443", &format!("listen {port}")),
            ("/etc/nginx/server.pem", &stage.authority.name("server.pem")),
            ("/etc/nginx/server.key", &stage.authority.name("server.key")),
            ("127.0.0.1:8085", &stage.upstream("pages")),
        ],
    );
    let scratch = stage.authority.name(".");
    let _proxy = Proxy::start(Tool::Nginx, &nginx(&config, &scratch), &[port]);
    // Whatever it says itself of its address.
    connect_over_websocket(&stage, port);
    let line = stage.broker.wait_for_log("client=page ");
    assert!(line.contains("address=127.0.0.9:"), "{line}");
    if !has(Tool::MqttJs) {
        return;
    }
    let route = Route {
        scheme: "wss",
        port: port.port(),
        authority: Some(stage.authority.path("ca.pem")),
        ..Route::default()
    };
    let connect = |name: &str, password: &str| {
        let connect = Connect::v5(name).user_name("bob");
        connect.password(password)
    };
    let mut program = Program::start(Tool::MqttJs);
    let connected = program.connect(&route, &connect("script", "secret"));
    connected.unwrap_or_else(|why| panic!("{why}\n{}", stage.broker.log()));
    program.subscribe("news", 2);
    for qos in 0..3 {
        let long = format!("{qos} {}", "x".repeat(100_000));
        program.publish(&Publish::new("news", &long).qos(qos));
        assert_eq!(program.message().text(), long);
    }
    let refused = Program::start(Tool::MqttJs).connect(&route, &connect("other", "guessed"));
    assert!(
        refused.is_err_and(|why| why.contains("134")),
        "0x86 is its answer"
    );
}
