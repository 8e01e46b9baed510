//! Access rules: the same answers as Mosquitto's for the same `acl_file`, and what a SUBSCRIBE, a
//! PUBLISH and a delivery get, before and after a reload.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use unbroken_acceptance::process::binary;
use unbroken_acceptance::raw::{AckKind, Connect, Publish, Subscribe, Version};
use unbroken_acceptance::{Broker, Client, Launch, Mosquitto, case};

/// A client that asks.
struct Asker {
    user: Option<&'static str>,
    client_id: &'static str,
}

const ASKERS: [Asker; 10] = [
    asker(None, "c1"),
    asker(None, "x"),
    asker(Some("ann"), "c2"),
    asker(Some("ann"), "ann"),
    asker(Some("bob"), "c3"),
    asker(Some("bob"), "a"),
    asker(Some("x"), "c4"),
    asker(Some("x"), "b"),
    asker(Some("ann"), "+"),
    asker(Some("bob"), "#"),
];
const USERS: [&str; 4] = ["ann", "bob", "x", ROOT];
/// May do everything.
const ROOT: &str = "root";
const PASSWORD: &str = "secret";
const NOT_AUTHORIZED: u8 = 0x87;

const fn asker(user: Option<&'static str>, client_id: &'static str) -> Asker {
    Asker { user, client_id }
}

impl Asker {
    fn connect(&self) -> Connect {
        connect(self.user, self.client_id)
    }
}

fn connect(user: Option<&str>, client_id: &str) -> Connect {
    let connect = Connect::v5(client_id);
    match user {
        Some(user) => connect.user_name(user).password(PASSWORD),
        None => connect,
    }
}

/// Numbers that differ from seed to seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % end as u64).expect("it is below a usize")
    }

    fn one_of<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// One to four levels, and behind them perhaps `#`.
    fn levels(&mut self, of: &[&str], may_end_with_hash: bool) -> String {
        let mut levels: Vec<_> = (0..=self.below(3)).map(|_| self.one_of(of)).collect();
        if may_end_with_hash && self.below(3) == 0 {
            levels.push("#");
        }
        levels.join("/")
    }

    /// An access control list in which root may do everything.
    fn acl(&mut self) -> String {
        let mut text = String::new();
        let sections = ["", "user ann\n", "user bob\n", "user ann\n"];
        for section in sections {
            text.push_str(section);
            for _ in 0..self.below(7) {
                let access = self.one_of(&["", "read ", "write ", "readwrite ", "deny "]);
                let filter = self.levels(&["a", "b", "x", "ann", "+", "$x"], true);
                let _ = writeln!(text, "topic {access}{filter}");
            }
            for _ in 0..self.below(3) {
                let access = self.one_of(&["", "read ", "write ", "readwrite ", "deny "]);
                let filter = self.levels(&["a", "b", "%u", "%c", "x%c", "%u%c", "+"], true);
                let _ = writeln!(text, "pattern {access}{filter}");
            }
        }
        text + "user root\ntopic #\ntopic $x/#\n"
    }

    fn topics(&mut self, count: usize) -> Vec<String> {
        let mut topics = BTreeSet::new();
        while topics.len() < count {
            let topic = self.levels(&["a", "b", "x", "ann", "bob", "xa", "c2", "$x", ""], false);
            if !topic.is_empty() {
                topics.insert(topic);
            }
        }
        topics.into_iter().collect()
    }
}

/// Which topics each asker may publish to, and which it receives, as this broker answers.
fn answers(address: SocketAddr, topics: &[String]) -> Vec<[Vec<bool>; 2]> {
    let mut published = Vec::new();
    for asker in &ASKERS {
        let mut client = Client::connect(address, &asker.connect());
        published.push(may_publish(&mut client, topics));
        client.disconnect();
    }
    let mut root = Client::connect(address, &connect(Some(ROOT), "root"));
    let mut receivers: Vec<_> = ASKERS
        .iter()
        .map(|asker| {
            let mut client = Client::connect(address, &asker.connect());
            let all = Subscribe::to("#", 0).and("$x/#", 0);
            assert_eq!(client.subscribe(&all), [0, 0]);
            client
        })
        .collect();
    assert!(may_publish(&mut root, topics).iter().all(|may| *may));
    let received = receivers.iter_mut().map(|client| {
        // What was acknowledged to root is written to the receivers, before the answer to this.
        client.ping();
        let mut seen = BTreeSet::new();
        while let Some(message) = client.poll_message(Duration::ZERO) {
            seen.insert(message.topic);
        }
        topics.iter().map(|topic| seen.contains(topic)).collect()
    });
    published
        .into_iter()
        .zip(received)
        .map(|(publish, receive)| [publish, receive])
        .collect()
}

/// Whether each publication at QoS 1 is let through.
fn may_publish(client: &mut Client, topics: &[String]) -> Vec<bool> {
    for (id, topic) in (1..).zip(topics) {
        client.send_publish(&Publish::new(topic, "").qos(1).packet_id(id));
    }
    (1..)
        .zip(topics)
        .map(
            |(id, topic)| match client.await_ack(AckKind::PubAck, id).reason {
                NOT_AUTHORIZED => false,
                reason => {
                    assert!(reason < 0x80, "{topic}: {reason:#04x}");
                    true
                }
            },
        )
        .collect()
}

/// The answers as a table for `unbroken access test`.
fn table(topics: &[String], answers: &[[Vec<bool>; 2]]) -> String {
    let mut text = String::new();
    for (asker, both) in ASKERS.iter().zip(answers) {
        for (action, allowed) in ["publish", "receive"].iter().zip(both) {
            for (topic, is_allowed) in topics.iter().zip(allowed) {
                let verdict = if *is_allowed { "allow" } else { "deny" };
                let (user, client_id) = (asker.user.unwrap_or("-"), asker.client_id);
                let _ = writeln!(text, "{verdict} {user} {client_id} {action} {topic}");
            }
        }
    }
    text
}

/// A password file that Mosquitto reads too.
fn passwords() -> Vec<u8> {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let file = directory.path().join("users");
    for user in USERS {
        let mut command = Command::new(binary());
        command.args(["passwd", "-H", "sha512-pbkdf2"]);
        command.arg(&file).args([user, "-b", PASSWORD]);
        let ended = command.output().expect("the binary runs");
        assert!(ended.status.success(), "{ended:?}");
    }
    fs::read(&file).expect("it was written")
}

/// Files, topics for each, and so two questions for each topic and asker: 100,000.
const FILES: u64 = 10;
const TOPICS: usize = 500;

#[test]
fn an_acl_file_means_what_it_means_to_mosquitto() {
    let Some(installed) = Mosquitto::installed() else {
        return;
    };
    let users = passwords();
    let users_text = String::from_utf8(users.clone()).expect("it is text");
    let (mut questions, mut allowed) = (0, 0);
    for seed in 0..FILES {
        let mut random = Random(seed);
        let acl = random.acl();
        let topics = random.topics(TOPICS);
        case(&format!("seed {seed}:\n{acl}"));
        let files: [(&str, &[u8]); 2] = [("acl", acl.as_bytes()), ("users", &users)];
        let lines = "password_file DIR/users\nacl_file DIR/acl\nmax_inflight_messages 0\n";
        let mosquitto = installed.start(lines, &files);
        let theirs = answers(mosquitto.address(), &topics);
        drop(mosquitto);

        let broker = with_acl(&acl, &users_text);
        let ours = answers(broker.address(), &topics);
        for ((asker, theirs), ours) in ASKERS.iter().zip(&theirs).zip(&ours) {
            let (user, client_id) = (asker.user, asker.client_id);
            for (action, (theirs, ours)) in
                ["publish", "receive"].iter().zip(theirs.iter().zip(ours))
            {
                for (topic, (theirs, ours)) in topics.iter().zip(theirs.iter().zip(ours)) {
                    assert_eq!(
                        ours, theirs,
                        "seed {seed}: {user:?} {client_id} {action} {topic}\n{acl}"
                    );
                    questions += 1;
                    allowed += u32::from(*theirs);
                }
            }
        }
        let told = test_table(&broker, &table(&topics, &theirs));
        let lines = ASKERS.len() * TOPICS * 2;
        assert_eq!(told, format!("{lines} as expected, 0 not\n"), "seed {seed}");
    }
    assert_eq!(questions, 100_000);
    assert!((10_000..90_000).contains(&allowed), "{allowed} allowed");
}

fn with_acl(acl: &str, users: &str) -> Broker {
    Launch::listeners(
        "[[listeners]]\nport = 0\nallow_anonymous = true\npassword_file = \"users\"\nacl_file = \"acl\"\n",
    )
    .file("acl", acl)
    .file("users", users)
    .shards(1)
    .start()
}

/// What `unbroken access test` prints for the broker's configuration.
fn test_table(broker: &Broker, table: &str) -> String {
    let path = broker.directory().join("expected");
    fs::write(&path, table).expect("its directory is writable");
    let mut command = Command::new(binary());
    command.args(["access", "test"]).arg(&path).arg("-c");
    command.arg(broker.directory().join("unbroken.toml"));
    let ended = command.output().expect("the binary runs");
    String::from_utf8(ended.stdout).expect("it is text")
}

const GRANTED: u8 = 0;
const FAILURE: u8 = 0x80;

#[test]
fn with_an_acl_file_every_filter_is_granted_unless_subscribe_lines_say_which() {
    let acl = "pattern readwrite #\n";
    let broker = Launch::listeners(LISTENER).file("acl", acl).start();
    let mut client = broker.connect("c");
    assert_eq!(client.subscribe(&Subscribe::to("secret/#", 0)), [GRANTED]);

    let acl = "topic readwrite #\npattern subscribe of/%c/#\n";
    let broker = Launch::listeners(LISTENER).file("acl", acl).start();
    for (version, refused) in [(Version::V5, NOT_AUTHORIZED), (Version::V3_1_1, FAILURE)] {
        let mut client = broker.connect_as(version, "c");
        let filters = Subscribe::to("of/c/+", 0)
            .and("of/d", 0)
            .and("#", 0)
            .and("$share/g/of/c/#", 0);
        let codes = [GRANTED, refused, refused, GRANTED];
        assert_eq!(client.subscribe(&filters), codes);
        client.disconnect();
    }
}

/// Its access control list is in `acl`.
const LISTENER: &str = "[[listeners]]\nport = 0\nname = \"plant\"\nacl_file = \"acl\"\n";

fn role(lines: &str) -> String {
    format!("[[roles]]\n{lines}\n")
}

#[test]
fn roles_and_an_acl_file_must_both_allow_and_both_are_read_again() {
    for shards in [1, 3] {
        case(&format!("{shards} shards"));
        let roles =
            role("clients = [\"a\", \"b\"]\nallow = [\"all #\"]\ndeny = [\"publish x/role\"]");
        let acl = "topic readwrite x/#\ntopic deny x/acl\n";
        let broker = Launch::listeners(&(LISTENER.to_owned() + &roles))
            .file("acl", acl)
            .shards(shards)
            .start();
        broker
            .attempt(&Connect::v5("stranger"))
            .expect_connack_refusal(NOT_AUTHORIZED);
        let [mut a, mut b] = ["a", "b"].map(|id| broker.connect(id));
        b.subscribe_to("#", 0);
        let mut answer = |topic: &str| a.publish(Publish::new(topic, "m").qos(1));
        assert!(answer("x/1") < FAILURE);
        for denied in ["x/role", "x/acl", "y"] {
            assert_eq!(answer(denied), NOT_AUTHORIZED, "{denied}");
        }
        b.take_message("x/1", "m");

        let only_a = role("clients = [\"a\"]\nallow = [\"publish #\"]")
            + &role("clients = [\"b\"]\nallow = [\"subscribe,receive x/#\"]");
        fs::write(broker.directory().join("acl"), "topic readwrite #\n").expect("it is writable");
        broker.rewrite_config(&(LISTENER.to_owned() + &only_a));
        broker.reload();
        broker.wait_for_log("configuration changed");
        // `#` is more than b may subscribe to now.
        broker.wait_for_log("subscription ended: it is not allowed any more");
        for now_allowed in ["x/role", "x/acl", "y"] {
            assert!(a.publish(Publish::new(now_allowed, "n").qos(1)) < FAILURE);
        }
        assert_eq!(b.publish(Publish::new("x/1", "n").qos(1)), NOT_AUTHORIZED);
        b.subscribe_to("x/#", 0);
        for round in 0..10 {
            let text = round.to_string();
            assert!(a.publish(Publish::new("x/1", &text).qos(1)) < FAILURE);
            assert_eq!(b.publish(Publish::new("x/1", "b").qos(1)), NOT_AUTHORIZED);
            b.take_message("x/1", &text);
        }
        assert_eq!(b.subscribe(&Subscribe::to("#", 0)), [NOT_AUTHORIZED]);
    }
}

#[test]
fn an_acl_file_that_is_wrong_changes_nothing_and_is_named() {
    let broker = Launch::listeners(LISTENER)
        .file("acl", "topic readwrite a\n")
        .start();
    let mut client = broker.connect("c");
    let acl = broker.directory().join("acl");
    fs::write(&acl, "topic rw b\n").expect("it is writable");
    broker.reload();
    broker.wait_for_log("acl:1:7: expected `read`, `write`");
    assert!(client.publish(Publish::new("a", "").qos(1)) < FAILURE);
    assert_eq!(client.publish(Publish::new("b", "").qos(1)), NOT_AUTHORIZED);
    fs::remove_file(&acl).expect("it is there");
    broker.reload();
    broker.wait_for_log("cannot read the access control list");
    assert!(client.publish(Publish::new("a", "").qos(1)) < FAILURE);

    let (status, log) = Launch::listeners(LISTENER).run_to_end();
    assert!(!status.success());
    assert!(log.contains("cannot read the access control list"), "{log}");
}
