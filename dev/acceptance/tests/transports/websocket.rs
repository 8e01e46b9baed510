//! Listeners with WebSocket, with bytes by hand.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use unbroken_acceptance::tools::Tool;
use unbroken_acceptance::{DEADLINE, Launch};

use crate::certificates::Authority;
use crate::programs::{has, port_of};

const CONFIG: &str = "\
[[listeners]]
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

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    stream
}

/// Asks for WebSocket, and no more than it must.
pub(crate) const REQUEST: &str = "GET /mqtt HTTP/1.1\r\nHost: localhost\r\n\
    Upgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

/// The same with more fields.
fn request(more: &str) -> String {
    format!("{}{more}\r\n", &REQUEST[..REQUEST.len() - 2])
}

/// A frame of a client, with a mask of zeros.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    const LONG: u8 = 0xfe;
    let masked = |short: u8| vec![0x80 | short];
    let short = u8::try_from(payload.len())
        .ok()
        .filter(|short| *short <= 125);
    let length = short.map_or_else(
        || {
            let long = u16::try_from(payload.len()).expect("it is not that long");
            [&[LONG][..], &long.to_be_bytes()].concat()
        },
        masked,
    );
    [&[first][..], &length, &[0; 4], payload].concat()
}

#[test]
fn frames_and_packets_need_not_fit() {
    let broker = Launch::listeners(&Authority::new().in_config(CONFIG)).start();
    let port = port_of(&broker, "ws");
    let session = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd\xc0\x00";
    let answer = [&frame(0x82, b"")[..0], b"\x20\x02\x00\x00\xd0\x00"].concat();
    for split in 1..session.len() {
        let mut stream = connect(port);
        let frames = [
            request("").into_bytes(),
            frame(0x02, &session[..split]),
            frame(0x89, b"ping"),
            frame(0x00, b""),
            frame(0x80, &session[split..]),
        ]
        .concat();
        stream.write_all(&frames).expect("it is sent");
        // Pong, and the packets in one frame or two.
        let (packets, pongs) = heard(&mut upgraded(stream), answer.len());
        assert_eq!((packets, pongs), (answer.clone(), 1), "{split}");
    }
}

/// [MQTT-6.0.0-1, MQTT311-6.0.0-1]
#[test]
fn a_frame_of_text_ends_the_connection() {
    let broker = Launch::listeners(&Authority::new().in_config(CONFIG)).start();
    let mut stream = connect(port_of(&broker, "ws"));
    let session = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd";
    let opening = [request("").as_bytes(), &frame(0x82, session)].concat();
    stream.write_all(&opening).expect("it is sent");
    let mut reader = upgraded(stream);
    assert_eq!(heard(&mut reader, 4).0, *b"\x20\x02\x00\x00");
    let text = frame(0x81, b"\xc0\x00");
    reader.get_mut().write_all(&text).expect("it is sent");
    let mut rest = Vec::new();
    let read = reader.read_to_end(&mut rest);
    read.expect("the connection ends in order");
    // The code of RFC 6455 for data that cannot be accepted.
    assert_eq!(rest, *b"\x88\x02\x03\xeb");
}

/// Reads frames until so many bytes of MQTT have come; counts the pongs among them.
#[track_caller]
fn heard(stream: &mut impl std::io::Read, count: usize) -> (Vec<u8>, usize) {
    let (mut bytes, mut pongs) = (Vec::new(), 0);
    while bytes.len() < count {
        let mut header = [0; 2];
        stream.read_exact(&mut header).expect("a frame");
        let mut payload = vec![0; usize::from(header[1])];
        stream.read_exact(&mut payload).expect("a frame");
        match header[0] {
            0x8a => pongs += 1,
            0x82 => bytes.extend(payload),
            other => panic!("{other:x}"),
        }
    }
    (bytes, pongs)
}

/// Skips the answer to a request.
#[track_caller]
fn upgraded(stream: TcpStream) -> BufReader<TcpStream> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).expect("an answer");
    }
    reader
}

/// Messages are no packets, and fragments are none either. Nor do empty ones mean anything, or what
/// comes between.
/// [MQTT-6.0.0-2, MQTT311-6.0.0-2]
#[test]
fn a_session_is_the_same_in_messages_and_fragments_of_any_size() {
    let broker = Launch::listeners(&Authority::new().in_config(CONFIG)).start();
    let port = port_of(&broker, "ws");
    let session = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd\
        \x82\x06\x00\x01\x00\x01a\x01\x32\x06\x00\x01a\x00\x07x\xc0\x00";
    let answers: [&[u8]; 5] = [
        b"\x20\x02\x00\x00",
        b"\x90\x03\x00\x01\x01",
        b"\x40\x02\x00\x07",
        b"\x32\x06\x00\x01a\x00\x01x",
        b"\xd0\x00",
    ];
    for size in 1..=session.len() {
        let pieces = || session.chunks(size);
        let last = pieces().count() - 1;
        // Each piece a message, with an empty message behind it.
        let messages = pieces().flat_map(|piece| [frame(0x82, piece), frame(0x82, b"")].concat());
        // All one message, with an empty fragment and a ping behind each.
        let fragments = pieces().enumerate().flat_map(|(number, piece)| {
            let first = u8::from(number == 0) * 2;
            if number == last {
                return frame(0x80 | first, piece);
            }
            [frame(first, piece), frame(0, b""), frame(0x89, b"?")].concat()
        });
        for (frames, pings) in [
            (messages.collect::<Vec<u8>>(), 0),
            (fragments.collect(), last),
        ] {
            let mut stream = connect(port);
            let bytes = [REQUEST.as_bytes(), &frames].concat();
            stream.write_all(&bytes).expect("it is sent");
            let (answer, pongs) = heard(&mut upgraded(stream), answers.concat().len());
            assert_eq!(pongs, pings, "{size}");
            // The message and its acknowledgement take different ways.
            for part in answers {
                let is_there = answer.windows(part.len()).any(|window| window == part);
                assert!(is_there, "{size}: {part:02x?} is not in {answer:02x?}");
            }
        }
    }
}

/// [MQTT-6.0.0-4, MQTT311-6.0.0-4]
#[test]
fn the_subprotocol_that_is_asked_for_is_the_one_that_is_answered() {
    let broker = Launch::listeners(&Authority::new().in_config(CONFIG)).start();
    let port = port_of(&broker, "ws");
    for (asked, answered) in [
        (None, None),
        (Some("mqtt"), Some("mqtt")),
        (Some("mqttv3.1"), Some("mqttv3.1")),
        (Some("mqttv3.1, mqtt"), Some("mqttv3.1")),
        (Some("chat,mqtt"), Some("mqtt")),
    ] {
        let field = asked.map(|list| format!("Sec-WebSocket-Protocol: {list}\r\n"));
        let mut stream = connect(port);
        let request = request(&field.unwrap_or_default());
        stream.write_all(request.as_bytes()).expect("it is sent");
        let answer = BufReader::new(stream).lines().map_while(Result::ok);
        let answer: Vec<_> = answer.take_while(|line| !line.is_empty()).collect();
        let field = answer
            .iter()
            .find_map(|line| line.strip_prefix("Sec-WebSocket-Protocol: "));
        assert!(answer[0].contains("101"), "{answer:?}");
        assert_eq!(field, answered, "{asked:?}");
    }
}

/// No other listener is needed, and it listens where it is told to and nowhere else.
#[test]
fn a_listener_with_websocket_alone_listens_at_its_own_address_only() {
    let config = "[[listeners]]\nprotocol = \"ws\"\nport = 0\n";
    let broker = Launch::listeners(config).start();
    let port = broker.address().port();
    let mut stream = connect(port);
    stream.write_all(REQUEST.as_bytes()).expect("it is sent");
    upgraded(stream);
    assert!(TcpStream::connect(("127.0.0.2", port)).is_err());
}

#[test]
fn curl_opens_a_websocket_and_gets_a_page_that_helps() {
    if !has(Tool::Curl) {
        return;
    }
    let authority = Authority::new();
    let broker = Launch::listeners(&authority.in_config(CONFIG)).start();
    for scheme in ["http", "https"] {
        let protocol = if scheme == "http" { "ws" } else { "wss" };
        let url = format!("{scheme}://localhost:{}/", port_of(&broker, protocol));
        let curl = |more: &[&str], path: &str| {
            let mut curl = Tool::Curl.program();
            curl.args(["-sS", "-i", "--http1.1", "--max-time", "10"]);
            curl.args(["--cacert", &authority.name("ca.pem")])
                .args(more);
            let output = curl.arg(format!("{url}{path}")).output();
            let output = output.expect("it starts");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let page = curl(&[], "");
        assert!(page.contains("This is an MQTT broker"), "{page}");
        // It ends the connection itself, when the time is over that it waits for more.
        let upgrade = [
            "--max-time",
            "1",
            "-H",
            "Connection: Upgrade",
            "-H",
            "Upgrade: websocket",
            "-H",
            "Sec-WebSocket-Version: 13",
            "-H",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            "-H",
            "Sec-WebSocket-Protocol: mqtt",
        ];
        let answer = curl(&upgrade, "mqtt");
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        // Of the sample key in RFC 6455.
        assert!(answer.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{answer}");
        assert!(curl(&upgrade, "other").starts_with("HTTP/1.1 404 "));
    }
}

#[test]
fn what_is_no_websocket_gets_an_answer_that_helps() {
    let allowed = "protocol = \"ws\"\nallowed_origins = [\"https://a.example\"]";
    let config = Authority::new().in_config(CONFIG);
    let config = config
        .split("\n\n")
        .take(2)
        .collect::<Vec<_>>()
        .join("\n\n");
    let broker = Launch::listeners(&config.replace("protocol = \"ws\"", allowed)).start();
    let port = port_of(&broker, "ws");
    let origin = request("Origin: https://b.example\r\n");
    let connect_packet = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd";
    for (sent, answer, logged) in [
        (
            &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            "This is an MQTT broker",
            None,
        ),
        (
            origin.as_bytes(),
            "403 Forbidden",
            Some("not among `allowed_origins`"),
        ),
        (connect_packet, "", Some("MQTT without WebSocket")),
        (
            b"\x16\x03\x01\x02\x00\x01\x00",
            "",
            Some("protocol = \\\"wss\\\""),
        ),
    ] {
        let mut stream = connect(port);
        stream.write_all(sent).expect("it is sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it is closed");
        assert!(text.contains(answer), "{text}");
        assert_eq!(text.is_empty(), answer.is_empty(), "{text}");
        if let Some(logged) = logged {
            broker.wait_for_log(&logged.replace("\\\"", "\""));
        }
    }
    // The other way round: on a listener with MQTT alone.
    for (sent, logged) in [
        (
            &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            "the client speaks HTTP",
        ),
        (b"\x16\x03\x01\x02\x00\x01\x00\x00", "the client speaks TLS"),
    ] {
        let mut stream = connect(broker.address().port());
        stream.write_all(sent).expect("it is sent");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("it is closed");
        broker.wait_for_log(logged);
    }
}
