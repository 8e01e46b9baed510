//! Writes seeds for the fuzz targets `proxy`, `acl` and `websocket`, one file each, into the folder
//! given or `dev/fuzz/corpus`.

#![allow(clippy::print_stdout, reason = "a tool that says what it did")]

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Headers of version 1, and what is none.
const HEADERS: [&str; 8] = [
    "PROXY TCP4 192.0.2.1 10.0.0.1 1000 1883\r\nmqtt",
    "PROXY TCP6 2001:db8::1 2001:db8::2 1000 1883\r\n",
    "PROXY UNKNOWN\r\n",
    "PROXY UNKNOWN 2001:db8::1 2001:db8::2 65535 65535\r\n",
    "PROXY TCP4 192.0.2.1 10.0.0.1 1000",
    "PROXY TCP4 192.0.2.256 10.0.0.1 1000 1883\r\n",
    "PROXY TCP9 nonsense\r\n",
    "\u{10}\u{10}\0\u{4}MQTT",
];

/// User, client id, topic, list.
const QUESTIONS: [&str; 9] = [
    "ann\nc\na/b\nuser ann\ntopic read a/#\n",
    "\nc\nopen/1\ntopic readwrite open/+\n",
    "bob\nc\nx/c\npattern write x/%c\npattern deny x/%u\n",
    "+\nc\nx/a\npattern x/%u\n",
    "#\nc\nx/a/b\npattern x/%u\n",
    "a/b\nc\nx/a/b\npattern x/%u\n",
    "$SYS\nc\n$SYS/y\npattern %u/y\npattern #\n",
    "ann\n+\na/b\nuser ann\ntopic a/b\npattern %c/#\n",
    "{user}\n%u\n{user}/%u\npattern %u/%c\ntopic subscribe #\n",
];

const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
/// Fields behind the first line of a request.
const FIELDS: [&str; 7] = [
    "Host: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n",
    "Host: a\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqttv3.1, mqtt\r\n",
    "Host: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
     Origin: https://a.example\r\n",
    "Host: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
     Origin: https://b.example\r\n",
    "Host: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 8\r\n",
    "Host: a\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n",
    "Host: a\r\nHost: b\r\nX-Y : z\r\n folded\r\n",
];

fn main() -> io::Result<()> {
    let usual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dev/fuzz/corpus");
    let folder = env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from(usual), PathBuf::from);
    let headers = HEADERS.map(|header| header.as_bytes().to_owned());
    let headers = headers.into_iter().chain(second_version());
    let pieces = [[0, 1], [1, 0], [1, 7]];
    let headers: Vec<_> = headers
        .flat_map(|header| pieces.map(|setting| [&setting[..], &header].concat()))
        .collect();
    write(&folder.join("proxy"), &headers)?;
    let questions = QUESTIONS.map(|question| question.as_bytes().to_owned());
    write(&folder.join("acl"), &questions)?;
    let requests = FIELDS.iter().flat_map(|fields| {
        ["/mqtt", "/"].map(|path| format!("GET {path} HTTP/1.1\r\n{fields}{KEY}\r\n"))
    });
    let side = |side: u8, bytes: &[u8]| [&[side, 3][..], bytes].concat();
    let requests = requests.map(|request| side(0, request.as_bytes()));
    let frames = frames();
    let frames = frames
        .iter()
        .flat_map(|bytes| [2, 3].map(|of| side(of, bytes)));
    let answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                  Connection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\
                  Sec-WebSocket-Protocol: mqtt\r\n\r\n";
    let answer = side(1, answer.as_bytes());
    let all: Vec<_> = requests.chain(frames).chain([answer]).collect();
    write(&folder.join("websocket"), &all)
}

fn write(folder: &Path, seeds: &[Vec<u8>]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for (number, seed) in seeds.iter().enumerate() {
        fs::write(folder.join(format!("door-{number:03}")), seed)?;
    }
    println!("{} seeds in {}", seeds.len(), folder.display());
    Ok(())
}

/// Headers of version 2: for an address of each family, for the proxy itself, and with a verified
/// certificate.
fn second_version() -> Vec<Vec<u8>> {
    let header = |command: u8, family: u8, body: &[u8]| {
        let length = u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes();
        let start = [&b"\r\n\r\n\0\r\nQUIT\n"[..], &[command, family], &length];
        [&start.concat()[..], body, b"mqtt"].concat()
    };
    let four = [192, 0, 2, 1, 10, 0, 0, 1, 0x03, 0xe8, 0x07, 0x5b];
    let mut six = vec![0x20; 36];
    six[34] = 7;
    let name = b"\x03\0\0\0\0\x22\0\x03ann";
    let ssl = [&four[..], b"\x20\0\x0b", name].concat();
    vec![
        header(0x21, 0x11, &four),
        header(0x21, 0x21, &six),
        header(0x20, 0, b""),
        header(0x21, 0x11, &ssl),
        header(0x21, 0x31, &[0; 216]),
    ]
}

/// Frames with a mask and without: whole, in fragments with a ping between them, empty, and closed.
fn frames() -> Vec<Vec<u8>> {
    let masked = |first: u8, payload: &[u8]| {
        let length = u8::try_from(payload.len()).unwrap_or(125);
        [&[first, 0x80 | length, 1, 2, 3, 4][..], payload].concat()
    };
    let plain = |first: u8, payload: &[u8]| {
        let length = u8::try_from(payload.len()).unwrap_or(125);
        [&[first, length][..], payload].concat()
    };
    let of = |frame: &dyn Fn(u8, &[u8]) -> Vec<u8>| {
        vec![
            frame(0x82, b"\xc0\0\xc0\0\xc0"),
            [
                frame(0x02, b"\xc0"),
                frame(0x89, b"ping"),
                frame(0, b""),
                frame(0x80, b"\0"),
            ]
            .concat(),
            [frame(0x82, b""), frame(0x88, b"\x03\xe8")].concat(),
            frame(0x81, b"text"),
            [&[0x82, 0xfe, 1, 0, 1, 2, 3, 4][..], &[7; 256]].concat(),
        ]
    };
    [of(&masked), of(&plain)].concat()
}
