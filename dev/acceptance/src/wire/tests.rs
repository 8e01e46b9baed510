use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;

use serde_json::{Value, json};

use super::*;
use crate::Server;

/// A server on a port of its own. Its thread ends with the test program.
fn serving<S: Session>(open: impl Fn() -> S + Clone + Send + 'static) -> SocketAddr {
    let listener = listen(0).expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    thread::spawn(move || serve(&listener, open));
    address
}

struct Peer(BufReader<TcpStream>);

impl Peer {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        let deadline = Some(crate::DEADLINE);
        stream.set_read_timeout(deadline).expect("it is not zero");
        Self(BufReader::new(stream))
    }

    fn ask(&mut self, line: &str) -> Value {
        writeln!(self.0.get_ref(), "{line}").expect("it reads");
        self.read()
    }

    fn read(&mut self) -> Value {
        let mut answer = String::new();
        self.0.read_line(&mut answer).expect("it answers");
        serde_json::from_str(&answer).expect("it answers in JSON")
    }
}

fn steps() -> Peer {
    Peer::connect(serving(|| Steps::new(None)))
}

#[test]
fn a_step_is_matched_by_the_registry_and_its_arguments_have_their_place_in_characters() {
    let mut peer = steps();
    let step = r#"["step_matches",{"name_to_match":"é publishes \"21\" to \"a/b\""}]"#;
    let answer = peer.ask(step);
    assert_eq!(answer[0], "success");
    let found = answer[1].as_array().expect("matches");
    assert_eq!(found.len(), 1, "{answer}");
    let expected = json!([
        {"val": "é", "pos": 0},
        {"val": "21", "pos": 13},
        {"val": "a/b", "pos": 21},
        {"val": null, "pos": null},
        {"val": null, "pos": null},
    ]);
    assert_eq!(found[0]["args"], expected);
    let source = found[0]["source"].as_str().expect("a place");
    assert!(source.contains("messages.rs:"), "{source}");
    assert!(
        found[0]["regexp"]
            .as_str()
            .is_some_and(|text| text.contains("publishes"))
    );
    let unknown = r#"["step_matches",{"name_to_match":"nobody knows this"}]"#;
    assert_eq!(peer.ask(unknown), json!(["success", []]));
}

#[test]
fn a_step_passes_fails_or_is_pending() {
    let nowhere = Server::at(([127, 0, 0, 1], 0).into());
    let mut peer = Peer::connect(serving(move || Steps::new(Some(nowhere.clone()))));
    assert_eq!(peer.ask(r#"["begin_scenario"]"#), json!(["success"]));
    let mut invoke = |name: &str, under: &str| {
        let step = json!(["step_matches", {"name_to_match": name}]);
        let found = peer.ask(&step.to_string());
        let found = &found[1][0];
        let args = found["args"].as_array().expect("arguments").iter();
        let mut args: Vec<_> = args.map(|arg| arg["val"].clone()).collect();
        if !under.is_empty() {
            args.push(json!(under));
        }
        peer.ask(&json!(["invoke", {"id": found["id"], "args": args}]).to_string())
    };
    let file = invoke("a file \"lines\":", "one\ntwo");
    assert_eq!(file, json!(["success"]));
    let failed = invoke("its output mentions \"one\"", "");
    assert_eq!(failed[0], "fail");
    assert_eq!(failed[1]["exception"], "panic");
    let message = failed[1]["message"].as_str().expect("a message");
    assert!(message.contains("a command was run"), "{message}");
    let pending = invoke("a broker with 3 shards", "");
    assert_eq!(pending[0], "pending", "{pending}");
    assert_eq!(invoke("a broker with 3 shards", "text")[0], "pending");
    assert_eq!(peer.ask(r#"["end_scenario"]"#), json!(["success"]));
}

#[test]
fn what_is_no_request_is_named_and_the_next_one_is_answered() {
    let mut peer = steps();
    for (line, expected) in [
        ("step_matches", "is not JSON"),
        ("{}", "begins with a name"),
        (r#"["dance"]"#, "no request is called \"dance\""),
        (r#"["invoke",{"id":"1"}]"#, "lacks \"args\""),
        (
            r#"["invoke",{"id":"none","args":[]}]"#,
            "no definition is called \"none\"",
        ),
        (
            r#"["invoke",{"id":"0","args":[1,2,3,4,5,6,7]}]"#,
            "7 arguments",
        ),
        (r#"["begin_scenario",{"tags":[1]}]"#, "lacks \"tags\""),
        (
            r#"["begin_scenario",{"tags":["tool:none"]}]"#,
            "no tool is called",
        ),
        (r#"["diff_ok"]"#, "no step has sent tables"),
    ] {
        let answer = peer.ask(line);
        assert_eq!(answer[0], "fail", "{line}");
        let message = answer[1]["message"].as_str().expect("a message");
        assert!(message.contains(expected), "{line}: {message}");
    }
    let snippet = r#"["snippet_text",
        {"step_keyword":"Then","multiline_arg_class":"","step_name":"all is well"}]"#;
    let answer = peer.ask(&snippet.replace('\n', ""));
    assert!(
        answer[1]
            .as_str()
            .is_some_and(|text| text.contains("all_is_well")),
        "{answer}"
    );
}

#[test]
fn a_line_without_end_is_refused_at_its_limit() {
    let mut peer = steps();
    let long = vec![b' '; usize::try_from(LINE_BYTES_MAX).expect("it is small")];
    peer.0.get_ref().write_all(&long).expect("it reads");
    let answer = peer.read();
    assert_eq!(answer[0], "fail", "{answer}");
    let mut rest = String::new();
    assert_eq!(peer.0.read_line(&mut rest).expect("it closes"), 0);
}

/// Says that it was asked.
struct Heard(mpsc::Sender<()>);

impl Session for Heard {
    fn answer(&mut self, _: &Request) -> Answer {
        let _ = self.0.send(());
        Answer::success()
    }
}

#[test]
fn one_connection_too_many_is_turned_away() {
    let (sender, answered) = mpsc::channel();
    let address = serving(move || Heard(sender.clone()));
    let mut peers = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        let mut peer = Peer::connect(address);
        peer.ask(r#"["begin_scenario"]"#);
        answered.recv().expect("it was asked");
        peers.push(peer);
    }
    let mut late = Peer::connect(address);
    let answer = late.read();
    assert_eq!(answer[0], "fail", "{answer}");
    let mut first = peers.swap_remove(0);
    assert_eq!(first.ask(r#"["end_scenario"]"#), json!(["success"]));
}
