//! SCRAM as MQTT 5.0's enhanced authentication, by a client of raw bytes that computes its proofs
//! itself.

use std::net::SocketAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha512};
use unbroken_broker::config::{Config, Listener};
use unbroken_broker::stored_access::{Change, Hash as StoredHash};

use super::client::{Client, Received, packet, string};
use super::{config, listener, start};

#[derive(Clone, Copy, PartialEq)]
enum Hash {
    Sha256,
    Sha512,
}

impl Hash {
    fn method(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha512 => "SCRAM-SHA-512",
        }
    }

    fn hmac(self, key: &[u8], text: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => {
                let mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
                mac.chain_update(text).finalize().into_bytes().to_vec()
            }
            Self::Sha512 => {
                let mac = Hmac::<Sha512>::new_from_slice(key).unwrap();
                mac.chain_update(text).finalize().into_bytes().to_vec()
            }
        }
    }

    fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    fn salted(self, password: &str, salt: &[u8], iterations: u32) -> Vec<u8> {
        match self {
            Self::Sha256 => {
                let mut out = vec![0; 32];
                pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), salt, iterations, &mut out);
                out
            }
            Self::Sha512 => {
                let mut out = vec![0; 64];
                pbkdf2::pbkdf2_hmac::<Sha512>(password.as_bytes(), salt, iterations, &mut out);
                out
            }
        }
    }
}

/// The client's side, as RFC 5802 has it.
struct Scram {
    hash: Hash,
    first_bare: String,
}

impl Scram {
    fn new(hash: Hash, user: &str) -> Self {
        let first_bare = format!("n={user},r=fyko+d2lbbFgONRv9qkxdawL");
        Self { hash, first_bare }
    }

    fn first(&self) -> String {
        format!("n,,{}", self.first_bare)
    }

    /// The last message, and the answer that shows that the server has the keys.
    fn last(&self, password: &str, answer: &str) -> (String, String) {
        let hash = self.hash;
        let mut parts = answer.split(',').map(|part| &part[2..]);
        let (nonce, salt) = (parts.next().unwrap(), parts.next().unwrap());
        let iterations = parts.next().unwrap().parse().unwrap();
        let salted = hash.salted(password, &STANDARD.decode(salt).unwrap(), iterations);
        let client_key = hash.hmac(&salted, b"Client Key");
        let bare = format!("c=biws,r={nonce}");
        let signed = format!("{},{answer},{bare}", self.first_bare);
        let signature = hash.hmac(&hash.digest(&client_key), signed.as_bytes());
        let proof: Vec<_> = client_key
            .iter()
            .zip(signature)
            .map(|(a, b)| a ^ b)
            .collect();
        let server = hash.hmac(&hash.hmac(&salted, b"Server Key"), signed.as_bytes());
        let last = format!("{bare},p={}", STANDARD.encode(proof));
        (last, format!("v={}", STANDARD.encode(server)))
    }
}

/// Authentication Method and Data, with the length of both.
fn properties(method: &str, data: &str) -> Vec<u8> {
    let body = [&[0x15][..], &string(method), &[0x16], &string(data)].concat();
    let mut length = Vec::new();
    let mut rest = body.len();
    while rest > 0x7f {
        length.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
        rest >>= 7;
    }
    length.push(u8::try_from(rest).unwrap());
    [length, body].concat()
}

fn connect(id: &str, method: &str, data: &str) -> Vec<u8> {
    let header = b"\0\x04MQTT\x05\x02\0\0".as_slice();
    packet(
        0x10,
        &[header, &properties(method, data), &string(id)].concat(),
    )
}

fn auth(reason: u8, method: &str, data: &str) -> Vec<u8> {
    packet(0xf0, &[&[reason], &*properties(method, data)].concat())
}

/// First byte, reason code, and the text behind Authentication Data, if there is one.
fn receive(client: &mut Client) -> (u8, u8, String) {
    let Received::Packet(first, body) = client.receive() else {
        return (0, 0, String::new());
    };
    let reason = if first == 0x20 { body[1] } else { body[0] };
    let data = body.windows(3).enumerate().find_map(|(at, window)| {
        let length = usize::from(window[1]) << 8 | usize::from(window[2]);
        let text = body.get(at + 3..at + 3 + length)?;
        let is_data = window[0] == 0x16 && (text.starts_with(b"r=") || text.starts_with(b"v="));
        is_data.then(|| String::from_utf8(text.to_vec()).unwrap())
    });
    (first, reason, data.unwrap_or_default())
}

/// How a password is stored.
#[derive(Clone, Copy)]
enum Entry {
    /// As Mosquitto does.
    Seven,
    Scram(Hash),
}

/// Few rounds: the test computes them as often as the broker.
const ROUNDS: u32 = 101;

fn entry(password: &str, kind: Entry) -> String {
    let salt = b"salt of the test";
    let encode = |bytes: &[u8]| STANDARD.encode(bytes);
    match kind {
        Entry::Seven => {
            let salted = Hash::Sha512.salted(password, salt, ROUNDS);
            format!("$7${ROUNDS}${}${}", encode(salt), encode(&salted))
        }
        Entry::Scram(hash) => {
            let salted = hash.salted(password, salt, ROUNDS);
            let stored = hash.digest(&hash.hmac(&salted, b"Client Key"));
            let (stored, server) = (encode(&stored), hash.hmac(&salted, b"Server Key"));
            let name = hash.method().to_lowercase();
            format!(
                "${name}${ROUNDS}${}${stored}${}",
                encode(salt),
                encode(&server)
            )
        }
    }
}

fn with_users(users: &[(&str, &str, Entry)]) -> (Config, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users");
    let line = |(user, password, kind): &(&str, &str, Entry)| {
        format!("{user}:{}\n", entry(password, *kind))
    };
    let text: String = users.iter().map(line).collect();
    std::fs::write(&path, text).unwrap();
    let listener = Listener {
        allow_anonymous: false,
        password_file: Some(path),
        ..listener()
    };
    let config = Config {
        listeners: vec![listener],
        ..config(2)
    };
    (config, directory)
}

/// A connection that has had the broker's first message.
fn begun(address: SocketAddr, scram: &Scram) -> (Client, String) {
    let mut client = Client::open(address);
    client.send(&connect("c", scram.hash.method(), &scram.first()));
    let (first, reason, answer) = receive(&mut client);
    assert_eq!((first, reason), (0xf0, 0x18), "{answer}");
    (client, answer)
}

/// Reason code of the answer to a last message.
fn finish(client: &mut Client, scram: &Scram, last: &str) -> (u8, u8, String) {
    client.send(&auth(0x18, scram.hash.method(), last));
    receive(client)
}

fn come_in(address: SocketAddr, user: &str, password: &str) -> (Client, Scram) {
    let scram = Scram::new(Hash::Sha512, user);
    let (mut client, answer) = begun(address, &scram);
    let (last, expected) = scram.last(password, &answer);
    assert_eq!(finish(&mut client, &scram, &last), (0x20, 0, expected));
    (client, scram)
}

// [MQTT-4.12.0-1, MQTT-4.12.0-2, MQTT-4.12.0-3, MQTT-4.12.0-5]
#[test]
fn the_password_lets_its_user_in_and_both_sides_know_it() {
    let (config, _directory) = with_users(&[
        ("mosquitto", "seven", Entry::Seven),
        ("small", "256", Entry::Scram(Hash::Sha256)),
        ("large", "512", Entry::Scram(Hash::Sha512)),
    ]);
    let (_server, address) = start(config);
    for (hash, user, password, expected) in [
        (Hash::Sha512, "mosquitto", "seven", 0),
        (Hash::Sha256, "small", "256", 0),
        (Hash::Sha512, "large", "512", 0),
        (Hash::Sha512, "large", "513", 0x86),
        (Hash::Sha256, "small", "", 0x86),
        (Hash::Sha256, "mosquitto", "seven", 0x86), // its keys are for the other hash
        (Hash::Sha512, "nobody", "seven", 0x86),
    ] {
        let scram = Scram::new(hash, user);
        let (mut client, answer) = begun(address, &scram);
        let (last, proof) = scram.last(password, &answer);
        let (first, reason, data) = finish(&mut client, &scram, &last);
        assert_eq!((first, reason), (0x20, expected), "{user} {password}");
        if expected == 0 {
            assert_eq!(data, proof, "the server has shown that it has the keys");
            client.ping();
        } else {
            assert_eq!(client.receive(), Received::Closed);
        }
    }
}

#[test]
fn the_same_password_works_without_scram_too() {
    let (config, _directory) = with_users(&[("small", "256", Entry::Scram(Hash::Sha256))]);
    let (_server, address) = start(config);
    for (password, reason) in [("256", 0), ("257", 0x86)] {
        let mut client = Client::open(address);
        client.send(&crate::client::connect_as("c", "small", password));
        client.expect_connack(reason);
    }
}

#[test]
fn users_of_the_store_show_their_passwords_too() {
    let of_store = |kind| entry("stored", kind);
    let [small, large] = [Hash::Sha256, Hash::Sha512].map(|hash| of_store(Entry::Scram(hash)));
    let (mut config, _directory) = with_users(&[("both", "file", Entry::Seven)]);
    config.listeners[0].stored_users = true;
    let of_store_alone = Listener {
        password_file: None,
        ..config.listeners[0].clone()
    };
    for listener in [config.listeners[0].clone(), of_store_alone] {
        let has_file = listener.password_file.is_some();
        let (server, address) = start(Config {
            listeners: vec![listener],
            ..config.clone()
        });
        for name in ["ann", "both"] {
            let change = Change::AddUser {
                name: name.to_owned(),
                hash: StoredHash(format!("{small} {large}")),
            };
            server.handle().change_access(&change).unwrap();
        }
        let of_file = if has_file { 0x86 } else { 0 };
        for (hash, user, password, expected) in [
            (Hash::Sha256, "ann", "stored", 0),
            (Hash::Sha512, "ann", "stored", 0),
            (Hash::Sha512, "ann", "file", 0x86),
            (Hash::Sha512, "both", "stored", of_file), // a name of the file is the file's
            (Hash::Sha512, "nobody", "stored", 0x86),
        ] {
            let scram = Scram::new(hash, user);
            let (mut client, answer) = begun(address, &scram);
            let (last, _) = scram.last(password, &answer);
            let (first, reason, _) = finish(&mut client, &scram, &last);
            assert_eq!(
                (first, reason),
                (0x20, expected),
                "{user} {password} {has_file}"
            );
        }
        let mut client = Client::open(address);
        client.send(&crate::client::connect_as("c", "ann", "stored"));
        client.expect_connack(0);
        let name = "ann".to_owned();
        let change = Change::RemoveUser { name };
        server.handle().change_access(&change).unwrap();
        let scram = Scram::new(Hash::Sha256, "ann");
        let (mut client, answer) = begun(address, &scram);
        let (last, _) = scram.last("stored", &answer);
        assert_eq!(finish(&mut client, &scram, &last).1, 0x86);
    }
}

#[test]
fn an_unknown_user_gets_a_salt_that_stays_and_differs_from_others() {
    let (config, _directory) = with_users(&[("large", "512", Entry::Scram(Hash::Sha512))]);
    let (server, address) = start(config.clone());
    let salt = |address, user: &str| {
        let (_client, answer) = begun(address, &Scram::new(Hash::Sha512, user));
        let mut parts = answer.split(',').skip(1).map(str::to_owned);
        (parts.next().unwrap(), parts.next().unwrap())
    };
    let (known, eve, bob) = (
        salt(address, "large"),
        salt(address, "eve"),
        salt(address, "bob"),
    );
    assert_eq!(known.1, eve.1, "as many iterations");
    assert_eq!(known.0.len(), eve.0.len(), "as long a salt");
    assert!(eve.0 != bob.0 && eve.0 != known.0);
    drop(server);
    let (_server, address) = start(config);
    assert_eq!(salt(address, "eve"), eve, "also behind a restart");
}

// [MQTT-4.12.0-4]
#[test]
fn a_message_that_is_not_of_this_exchange_is_refused() {
    let (config, _directory) = with_users(&[("ann", "secret", Entry::Scram(Hash::Sha512))]);
    let (_server, address) = start(config);
    let scram = Scram::new(Hash::Sha512, "ann");
    let change = |change: fn(&str) -> String| {
        let (mut client, answer) = begun(address, &scram);
        let (last, _) = scram.last("secret", &answer);
        let (first, reason, _) = finish(&mut client, &scram, &change(&last));
        assert_eq!(client.receive(), Received::Closed);
        (first, reason)
    };
    assert_eq!(
        change(|last| last.replace("r=fyko", "r=fyka")),
        (0x20, 0x87),
        "nonce"
    );
    assert_eq!(
        change(|last| last.replace("c=biws", "c=eSws")),
        (0x20, 0x87)
    );
    assert_eq!(change(|_| "nonsense".to_owned()), (0x20, 0x87));
    assert_eq!(change(|_| String::new()), (0x20, 0x87));
    for first in ["", "n,,", "p=tls-unique,,n=ann,r=x", "n,a=root,n=ann,r=x"] {
        let mut client = Client::open(address);
        client.send(&connect("c", "SCRAM-SHA-512", first));
        assert_eq!(receive(&mut client).1, 0x87, "{first}");
    }
}

// [MQTT-4.12.0-1]
#[test]
fn a_method_that_is_not_known_is_refused() {
    let (with_file, _directory) = with_users(&[("ann", "secret", Entry::Scram(Hash::Sha512))]);
    for (config, method) in [(with_file, "SCRAM-SHA-1"), (config(1), "SCRAM-SHA-256")] {
        let (_server, address) = start(config);
        let mut client = Client::open(address);
        client.send(&connect("c", method, "n,,n=ann,r=x"));
        client.expect_connack(0x8c);
        assert_eq!(client.receive(), Received::Closed);
    }
}

// [MQTT-4.12.1-1, MQTT-4.12.1-2] [MQTT-4.12.0-5, MQTT-4.12.0-7]
#[test]
fn a_client_authenticates_again_as_itself_and_by_the_same_method() {
    let users = [
        ("ann", "secret", Entry::Scram(Hash::Sha512)),
        ("bob", "other", Entry::Scram(Hash::Sha512)),
    ];
    let (config, _directory) = with_users(&users);
    let (_server, address) = start(config);
    let again = |client: &mut Client, user: &str, password: &str| {
        let scram = Scram::new(Hash::Sha512, user);
        client.send(&auth(0x19, "SCRAM-SHA-512", &scram.first()));
        let (first, reason, answer) = receive(client);
        assert_eq!((first, reason), (0xf0, 0x18));
        let (last, proof) = scram.last(password, &answer);
        let (first, reason, data) = finish(client, &scram, &last);
        (first, reason, data == proof)
    };
    let (mut client, _) = come_in(address, "ann", "secret");
    for _ in 0..2 {
        assert_eq!(again(&mut client, "ann", "secret"), (0xf0, 0, true));
        client.ping();
    }
    assert_eq!(
        again(&mut client, "bob", "other"),
        (0xe0, 0x87, false),
        "another user"
    );
    let (mut client, _) = come_in(address, "ann", "secret");
    assert_eq!(again(&mut client, "ann", "wrong"), (0xe0, 0x87, false));
    for (reason, method) in [
        (0x19, "SCRAM-SHA-256"),
        (0x18, "SCRAM-SHA-512"),
        (0x00, "SCRAM-SHA-512"),
    ] {
        let (mut client, scram) = come_in(address, "ann", "secret");
        client.send(&auth(reason, method, &scram.first()));
        let (first, reason, _) = receive(&mut client);
        assert_eq!((first, reason), (0xe0, 0x82), "{method}");
    }
}

#[test]
fn guesses_by_scram_cost_an_address_its_tokens_too() {
    let (config, _directory) = with_users(&[("ann", "secret", Entry::Scram(Hash::Sha512))]);
    let (_server, address) = start(config);
    let scram = Scram::new(Hash::Sha512, "ann");
    let mut reasons = Vec::new();
    for _ in 0..40 {
        let mut client = Client::open(address);
        client.send(&connect("c", "SCRAM-SHA-512", &scram.first()));
        let (first, reason, answer) = receive(&mut client);
        if first == 0x20 {
            reasons.push(reason);
            continue;
        }
        let nonce = answer.split(',').next().unwrap();
        let last = format!("c=biws,{nonce},p={}", STANDARD.encode([0; 64]));
        reasons.push(finish(&mut client, &scram, &last).1);
    }
    assert_eq!(reasons[0], 0x86);
    assert!(reasons.contains(&0x9f), "{reasons:?}");
}
