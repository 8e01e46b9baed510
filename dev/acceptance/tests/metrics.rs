//! The names of metrics wherever they are written, what the histograms count, and a real
//! Prometheus that scrapes the broker and evaluates our alerts.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use unbroken_acceptance::raw::Publish;
use unbroken_acceptance::tools::{Tool, required};
use unbroken_acceptance::{Broker, DEADLINE, Launch, case};

const ADMIN: &str = "admin server on http://";

fn start(launch: Launch) -> (Broker, SocketAddr) {
    let broker = launch.argument("--admin").argument("127.0.0.1:0").start();
    let line = broker.wait_for_log(ADMIN);
    let (_, address) = line.split_once(ADMIN).expect("it was waited for");
    let address = address.trim().parse().expect("an address");
    (broker, address)
}

/// The body of the answer.
#[track_caller]
fn get(address: SocketAddr, path: &str) -> String {
    let (status, body) = try_get(address, path);
    assert_eq!(status, 200, "{body}");
    body
}

fn try_get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(address).expect("it listens");
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    socket.write_all(head.as_bytes()).expect("it reads");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("it answers");
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    (status.expect("a status"), body.to_owned())
}

fn value(metrics: &str, sample: &str) -> f64 {
    let mut lines = metrics.lines();
    let line = lines.find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    let value = line.unwrap_or_else(|| panic!("{sample} is not in {metrics}"));
    value.parse().expect("a number")
}

/// The metrics, each by the name that it is documented by, and all names of its samples.
struct Exposed {
    documented: BTreeSet<String>,
    samples: BTreeSet<String>,
}

impl Exposed {
    fn in_text(metrics: &str) -> Self {
        let (mut documented, mut samples) = (BTreeSet::new(), BTreeSet::new());
        for line in metrics.lines() {
            let Some(described) = line.strip_prefix("# TYPE ") else {
                continue;
            };
            let (name, kind) = described.split_once(' ').expect("a name and a type");
            let suffixes: &[&str] = match kind {
                "counter" => {
                    documented.insert(format!("{name}_total"));
                    &["_total"]
                }
                "histogram" => {
                    documented.insert(name.to_owned());
                    &["", "_bucket", "_sum", "_count"]
                }
                _ => {
                    documented.insert(name.to_owned());
                    &[""]
                }
            };
            samples.extend(suffixes.iter().map(|suffix| format!("{name}{suffix}")));
        }
        Self {
            documented,
            samples,
        }
    }
}

/// All words that begin like names of ours.
fn names_in(text: &str) -> BTreeSet<&str> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let words = text.split(|character| !is_part(character));
    let begins = |word: &&str| word.starts_with("unbroken_") || word.starts_with("process_");
    // `unbroken_audit_…_total` is a pattern.
    words
        .filter(begins)
        .filter(|word| !word.ends_with('_'))
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn each_metric_that_is_written_about_exists_and_each_is_written_about() {
    let (_broker, admin) = start(Launch::config(""));
    let exposed = Exposed::in_text(&get(admin, "/metrics"));
    let docs = read("docs/metrics.md");
    let dashboard = read("packaging/grafana/unbroken.json");
    let alerts = read("packaging/prometheus/alerts.yml");
    let tests = read("packaging/prometheus/alerts_test.yml");
    for (file, text) in [
        ("docs/metrics.md", &docs),
        ("unbroken.json", &dashboard),
        ("alerts.yml", &alerts),
        ("alerts_test.yml", &tests),
    ] {
        let names = names_in(text);
        assert!(names.len() > 5, "{file} has names: {names:?}");
        for name in names {
            assert!(exposed.samples.contains(name), "{file} has {name}");
        }
    }
    assert!(docs.contains("`unbroken_audit_…_total`"));
    let written = names_in(&docs);
    for name in &exposed.documented {
        let is_of_audit = name.starts_with("unbroken_audit_") && name.ends_with("_total");
        let is_written = is_of_audit || written.contains(&**name);
        assert!(is_written, "docs/metrics.md lacks {name}");
    }
}

#[test]
fn names_and_labels_keep_to_the_conventions() {
    let (broker, admin) = start(Launch::config(""));
    let clients: Vec<_> = (0..100)
        .map(|number| broker.connect(&format!("client-{number}")))
        .collect();
    let text = get(admin, "/metrics");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        assert!(!line.contains("client-"), "no label for clients: {line}");
    }
    for described in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = described.split_once(' ').expect("a name and a type");
        let units = ["_seconds", "_bytes", "_messages"];
        if kind == "histogram" {
            assert!(units.iter().any(|unit| name.ends_with(unit)), "{name}");
        }
        assert!(!name.contains("_ms") && !name.contains("_us"), "{name}");
        assert!(
            !name.ends_with("_total"),
            "the suffix is the sample's: {name}"
        );
    }
    assert!(text.contains("unbroken_build_info{version=\""), "{text}");
    // The size of the answer does not depend on clients.
    let lines = text.lines().count();
    drop(clients);
    let deadline = Instant::now() + DEADLINE;
    while value(&get(admin, "/metrics"), "unbroken_clients_connected") > 0.0 {
        assert!(Instant::now() < deadline, "the clients are gone");
    }
    assert_eq!(get(admin, "/metrics").lines().count(), lines);
}

#[test]
fn histograms_count_messages_by_how_long_they_took() {
    for is_durable in [false, true] {
        let launch = Launch::config("");
        let launch = if is_durable { launch.durable() } else { launch };
        let (broker, admin) = start(launch);
        let mut subscriber = broker.connect("subscriber");
        subscriber.subscribe_to("plant/#", 0);
        let mut publisher = broker.connect("publisher");
        for _ in 0..3 {
            publisher.publish(Publish::new("plant/1", "21.5").qos(1));
            subscriber.receive();
        }
        // A turn is counted when it has ended, which may be behind the answer.
        let deadline = Instant::now() + DEADLINE;
        let text = loop {
            let text = get(admin, "/metrics");
            let acknowledged = value(&text, "unbroken_publish_to_ack_seconds_count");
            let sent = value(&text, "unbroken_publish_to_send_seconds_count");
            if acknowledged >= 3.0 && sent >= 3.0 {
                assert!(acknowledged < 4.0 && sent < 4.0, "{text}");
                break text;
            }
            assert!(Instant::now() < deadline, "durable: {is_durable}: {text}");
        };
        for name in ["publish_to_ack", "publish_to_send", "turn_duration"] {
            let sum = value(&text, &format!("unbroken_{name}_seconds_sum"));
            assert!(sum > 0.0 && sum < 100.0, "{name}: {sum}");
            let all = value(
                &text,
                &format!("unbroken_{name}_seconds_bucket{{le=\"+Inf\"}}"),
            );
            let count = value(&text, &format!("unbroken_{name}_seconds_count"));
            assert!((all - count).abs() < 0.5, "{name}");
        }
    }
}

#[test]
fn a_message_that_waits_counts_in_the_depth_of_its_queue() {
    let (broker, admin) = start(Launch::config(""));
    let absent = unbroken_acceptance::raw::Connect::v5("absent").persistent();
    let mut client = broker.accept(&absent);
    client.subscribe_to("plant/#", 1);
    client.disconnect();
    let mut publisher = broker.connect("publisher");
    for _ in 0..3 {
        publisher.publish(Publish::new("plant/1", "x").qos(1));
    }
    let text = get(admin, "/metrics");
    // Behind 0, 1 and 2 others.
    let at_most = |le| {
        let name = format!("unbroken_queue_depth_messages_bucket{{le=\"{le}\"}}");
        value(&text, &name)
    };
    for (le, count) in [("0.0", 1.0), ("1.0", 2.0), ("3.0", 3.0), ("+Inf", 3.0)] {
        assert!((at_most(le) - count).abs() < 0.5, "{le}: {text}");
    }
}

/// Whether Prometheus is there; without it the test is skipped, or fails if tools are required.
fn has_prometheus() -> bool {
    let is_there = Tool::Prometheus.is_installed();
    if !is_there {
        assert!(!required(), "there is no prometheus");
        case("skipped: there is no prometheus");
    }
    is_there
}

#[test]
fn the_alerts_pass_their_own_tests() {
    if !has_prometheus() {
        return;
    }
    let directory = root().join("packaging/prometheus");
    for arguments in [
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "alerts_test.yml"],
    ] {
        let mut promtool = Command::new("promtool");
        let ran = promtool.args(arguments).current_dir(&directory).output();
        let ran = ran.expect("promtool runs");
        let said = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{arguments:?}: {said}");
    }
}

struct Prometheus {
    child: Child,
    address: SocketAddr,
    _directory: tempfile::TempDir,
}

impl Prometheus {
    /// Scrapes this address each second, and evaluates our alerts.
    fn start(target: SocketAddr) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let rules = root().join("packaging/prometheus/alerts.yml");
        let rules = rules.canonicalize().expect("it is there");
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{:?}]\n\
             scrape_configs:\n  - job_name: unbroken\n    static_configs:\n      \
             - targets: [\"{target}\"]\n",
            rules.display().to_string()
        );
        let file = directory.path().join("prometheus.yml");
        fs::write(&file, config).expect("its directory is writable");
        let mut child = Tool::Prometheus
            .program()
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.path().join("data").display()
            ))
            .arg("--web.listen-address=127.0.0.1:0")
            .stderr(Stdio::piped())
            .spawn()
            .expect("prometheus starts");
        let log = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut lines = log.lines().map_while(Result::ok);
        let address = lines.find_map(|line| {
            let (_, address) = line.split_once("msg=\"Listening on\" address=")?;
            address.trim().parse().ok()
        });
        std::thread::spawn(move || lines.for_each(drop)); // it must not wait for a reader
        Self {
            child,
            address: address.expect("it says where it listens"),
            _directory: directory,
        }
    }

    fn ask(&self, path: &str) -> Value {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let (status, body) = try_get(self.address, path);
            if status == 200 {
                return serde_json::from_str(&unchunked(&body)).expect("an answer in JSON");
            }
            // It starts.
            assert!(Instant::now() < deadline, "{status}: {body}");
            std::thread::park_timeout(Duration::from_millis(100));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A body that may have come in chunks.
fn unchunked(body: &str) -> String {
    if body.starts_with('{') {
        return body.to_owned();
    }
    let (mut whole, mut rest) = (String::new(), body);
    while let Some((length, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length.trim(), 16).unwrap_or(0);
        whole.push_str(after.get(..length).unwrap_or_default());
        rest = after.get(length + 2..).unwrap_or_default();
    }
    whole
}

#[test]
fn a_real_prometheus_scrapes_the_broker_and_evaluates_the_alerts() {
    if !has_prometheus() {
        return;
    }
    let (broker, admin) = start(Launch::config(""));
    let _client = broker.connect("client");
    let prometheus = Prometheus::start(admin);
    let deadline = Instant::now() + DEADLINE * 2;
    let mut last = Value::Null;
    let is_done = |last: &mut Value| {
        *last = prometheus.ask("/api/v1/query?query=unbroken_clients_connected");
        let result = &last["data"]["result"][0]["value"][1];
        result.as_str() == Some("1")
    };
    while !is_done(&mut last) {
        assert!(Instant::now() < deadline, "not scraped: {last}");
        std::thread::park_timeout(Duration::from_millis(100));
    }
    let target = &prometheus.ask("/api/v1/targets")["data"]["activeTargets"][0];
    assert_eq!(target["lastError"], "", "{target}");
    let has_unknown = |rules: &Value| {
        let groups = rules["data"]["groups"].as_array().expect("groups");
        let rules = groups.iter().filter_map(|group| group["rules"].as_array());
        rules.flatten().any(|rule| rule["health"] != "ok")
    };
    loop {
        let rules = prometheus.ask("/api/v1/rules");
        if !has_unknown(&rules) {
            break;
        }
        assert!(Instant::now() < deadline, "not evaluated: {rules}");
        std::thread::park_timeout(Duration::from_millis(100));
    }
    let alerts = prometheus.ask("/api/v1/alerts");
    assert_eq!(
        alerts["data"]["alerts"],
        serde_json::json!([]),
        "a quiet broker raises none"
    );
}
