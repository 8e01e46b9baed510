//! Requests and answers.

use super::*;

/// The example of RFC 6455, section 1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

fn rules() -> Rules {
    Rules {
        path: "/mqtt".to_owned(),
        origins: Vec::new(),
    }
}

/// A request with one part of it replaced.
fn with(from: &str, to: &str) -> String {
    let request = format!(
        "GET /mqtt HTTP/1.1\r\nHost: broker\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Protocol: mqtt\r\n\r\n"
    );
    assert!(request.contains(from), "{from}");
    request.replace(from, to)
}

fn upgraded(request: &str) -> String {
    match answer(request.as_bytes(), &rules()) {
        Answer::Upgraded { used, response } => {
            assert_eq!(used, request.len());
            String::from_utf8(response).unwrap()
        }
        other => panic!("{request}: {other:?}"),
    }
}

fn status(request: &[u8], rules: &Rules) -> (String, Option<&'static str>) {
    match answer(request, rules) {
        Answer::Refused { response, why } => {
            let response = String::from_utf8(response).unwrap();
            let (head, body) = response.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("Content-Length: {}", body.len())));
            (response["HTTP/1.1 ".len()..][..3].to_owned(), why)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_is_answered_with_the_key_and_the_subprotocol_that_was_asked_for() {
    let response = upgraded(&with("GET", "GET"));
    assert!(response.starts_with("HTTP/1.1 101 "));
    assert!(response.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
    for (offered, chosen) in [
        ("mqtt", Some("mqtt")),
        ("mqttv3.1", Some("mqttv3.1")),
        ("mqttv3.1, mqtt", Some("mqttv3.1")),
        ("stomp ,mqtt", Some("mqtt")),
        ("stomp\r\nSec-WebSocket-Protocol: mqtt", Some("mqtt")),
    ] {
        let to = format!("Sec-WebSocket-Protocol: {offered}");
        let response = upgraded(&with("Sec-WebSocket-Protocol: mqtt", &to));
        let found = response.split_once("Sec-WebSocket-Protocol: ");
        let found = found.map(|(_, rest)| rest.lines().next().unwrap());
        assert_eq!(found, chosen, "{offered}");
    }
    let none = upgraded(&with("Sec-WebSocket-Protocol: mqtt\r\n", ""));
    assert!(!none.contains("Sec-WebSocket-Protocol"));
    for (from, to) in [
        ("Connection: Upgrade", "connection: keep-alive, upgrade"),
        ("Upgrade: websocket", "UPGRADE: WebSocket"),
        ("/mqtt", "/mqtt?token=7"),
        ("Host: broker", "Host: broker\r\nOrigin: http://broker"),
    ] {
        upgraded(&with(from, to));
    }
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    for (from, to, expected) in [
        ("GET", "POST", "400"),
        ("HTTP/1.1", "HTTP/1.0", "400"),
        ("/mqtt", "/other", "404"),
        ("Upgrade: websocket", "Upgrade: h2c", "400"),
        ("Connection: Upgrade", "Connection: close", "400"),
        ("Version: 13", "Version: 8", "426"),
        (KEY, "c2hvcnQ=", "400"),
        (KEY, "not base64 at all", "400"),
        ("Sec-WebSocket-Key", "X-Key", "400"),
        (
            "Host: broker",
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
            "400",
        ),
        ("Protocol: mqtt", "Protocol: stomp, wamp", "400"),
        ("Host: broker", "Content-Length: 5", "400"),
        ("Host: broker", "Transfer-Encoding: chunked", "400"),
        ("Host: broker", &"X: y\r\n".repeat(40)[..238], "431"),
    ] {
        let (found, why) = status(with(from, to).as_bytes(), &rules());
        assert_eq!(found, expected, "{to}");
        assert!(why.is_some());
    }
    let long = with("broker", &"x".repeat(REQUEST_BYTES));
    assert_eq!(status(long.as_bytes(), &rules()).0, "431");
    assert_eq!(status(&long.as_bytes()[..REQUEST_BYTES], &rules()).0, "431");
    assert_eq!(status(b"\x10\x10\x00\x04MQTT", &rules()).0, "400");
}

#[test]
fn a_browser_gets_a_page_that_says_what_this_is() {
    for path in ["/", "/mqtt", "/favicon.ico"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: broker\r\n\r\n");
        assert_eq!(
            status(request.as_bytes(), &rules()),
            ("426".to_owned(), None)
        );
    }
}

#[test]
fn pages_of_other_hosts_are_refused_unless_they_are_listed() {
    let all = Rules {
        origins: vec!["*".to_owned()],
        ..rules()
    };
    let with_origin = |origin: &str| {
        with(
            "Upgrade: websocket",
            &format!("Upgrade: websocket\r\n{origin}"),
        )
    };
    let request = with_origin("Origin: https://a.example");
    assert!(matches!(
        answer(request.as_bytes(), &all),
        Answer::Upgraded { .. }
    ));
    let rules = Rules {
        origins: vec!["https://a.example".to_owned()],
        ..rules()
    };
    for (origin, is_allowed) in [
        ("Origin: http://broker", true),
        ("Origin: https://Broker:8443", true),
        ("Origin: http://broker.example", false),
        ("Origin: http://broker\r\nOrigin: https://a.example", false),
        ("Origin: https://a.example", true),
        ("Origin: HTTPS://A.example", true),
        ("Origin: https://b.example", false),
        ("Origin: null", false),
        ("X: y", true),
    ] {
        let request = with_origin(origin);
        let answer = answer(request.as_bytes(), &rules);
        let is_upgraded = matches!(answer, Answer::Upgraded { .. });
        assert_eq!(is_upgraded, is_allowed, "{origin}");
    }
}

#[test]
fn a_request_may_come_in_pieces_with_frames_behind_it() {
    let request = with("GET", "GET");
    for end in 0..request.len() {
        let answer = answer(&request.as_bytes()[..end], &rules());
        assert_eq!(answer, Answer::Incomplete, "{end}");
    }
    let behind = format!("{request}\u{2}frames");
    let used = request.len();
    let answer = answer(behind.as_bytes(), &rules());
    assert!(matches!(answer, Answer::Upgraded { used: it, .. } if it == used));
}

/// [MQTT-6.0.0-3, MQTT311-6.0.0-3]
#[test]
fn a_client_understands_the_answer_to_its_request_and_no_other() {
    let nonce = [7; 16];
    let request = request("broker:8083", "/mqtt", nonce);
    let Answer::Upgraded { response, .. } = answer(&request, &rules()) else {
        panic!("its own request is refused");
    };
    assert_eq!(check_answer(&response, nonce), Ok(Some(response.len())));
    assert_eq!(check_answer(&response[..20], nonce), Ok(None));
    assert_eq!(check_answer(&response, [8; 16]), Err(NoUpgrade::Accept));
    assert_eq!(check_answer(b"\x20\x02\0\0", nonce), Err(NoUpgrade::NoHttp));
    let refused = check_answer(b"HTTP/1.1 404 Not Found\r\n\r\n", nonce);
    assert!(matches!(
        refused,
        Err(NoUpgrade::Status { status: 404, .. })
    ));
    let text = String::from_utf8(response).unwrap();
    let other = text.replace("Protocol: mqtt", "Protocol: stomp");
    assert_eq!(
        check_answer(other.as_bytes(), nonce),
        Err(NoUpgrade::Subprotocol)
    );
}
