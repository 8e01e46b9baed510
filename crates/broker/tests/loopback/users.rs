//! Users, roles and bans of a broker whose data is in memory, changed while it runs; raw bytes.

use std::net::SocketAddr;

use unbroken_broker::passwords::{Scheme, make_hash};
use unbroken_broker::stored_access::{BanTarget, Change, Hash, Holder};

use crate::client::{Client, Received, connect, connect_as};
use crate::{config, start};

const SUCCESS: u8 = 0;
const CLIENT_IDENTIFIER_NOT_VALID: u8 = 0x85;
const BAD_USER_NAME_OR_PASSWORD: u8 = 0x86;
const NOT_AUTHORIZED: u8 = 0x87;
const BANNED: u8 = 0x8a;
const ADMINISTRATIVE_ACTION: u8 = 0x98;

fn attempt(address: SocketAddr, bytes: &[u8], reason: u8) -> Client {
    let mut client = Client::open(address);
    client.send(bytes);
    client.expect_connack(reason);
    client
}

#[track_caller]
fn expect_disconnect(client: &mut Client, reason: u8) {
    match client.receive() {
        Received::Packet(0xe0, body) => assert_eq!(body[0], reason),
        other => panic!("not DISCONNECT: {other:?}"),
    }
    assert_eq!(client.receive(), Received::Closed);
}

fn add_user(name: &str, password: &str) -> Change {
    Change::AddUser {
        name: name.to_owned(),
        hash: Hash(make_hash(password.as_bytes(), Scheme::Argon2id).unwrap()),
    }
}

fn ban(target: BanTarget) -> Change {
    Change::Ban {
        target,
        since_ms: 1,
        until_ms: None,
        reason: String::new(),
    }
}

/// [MQTT-3.1.4-2]
#[test]
fn users_are_known_to_all_shards_as_soon_as_they_are_added() {
    for shards in [1, 3] {
        let mut config = config(shards);
        config.listeners[0].allow_anonymous = false;
        config.listeners[0].stored_users = true;
        let (server, address) = start(config);
        let change = |change: &Change| server.handle().change_access(change);
        let login = connect_as("a", "ann", "secret");
        attempt(address, &login, BAD_USER_NAME_OR_PASSWORD);
        change(&add_user("ann", "secret")).unwrap();
        change(&add_user("ann", "other")).unwrap_err();
        for n in 0..4 {
            let id = format!("client-{n}");
            attempt(address, &connect_as(&id, "ann", "secret"), SUCCESS);
            let wrong = connect_as(&id, "ann", "guess");
            attempt(address, &wrong, BAD_USER_NAME_OR_PASSWORD);
            attempt(address, &connect(&id), NOT_AUTHORIZED);
        }
        let name = "ann".to_owned();
        change(&Change::RemoveUser { name }).unwrap();
        attempt(address, &login, BAD_USER_NAME_OR_PASSWORD);
    }
}

#[test]
fn a_role_is_in_force_for_clients_that_are_connected_once_somebody_has_it() {
    let (server, address) = start(config(3));
    let change = |change: &Change| server.handle().change_access(change).unwrap();
    let mut clients = ["a", "b", "c"].map(|id| Client::connect(address, id));
    let role = || "crew".to_owned();
    change(&Change::AddRole { name: role() });
    for client in &mut clients {
        client.ping();
    }
    let to = Holder::User("ann".to_owned());
    change(&Change::Grant { role: role(), to });
    for client in &mut clients {
        expect_disconnect(client, NOT_AUTHORIZED);
    }
    change(&Change::RemoveRole { name: role() });
    Client::connect(address, "a").ping();
}

/// [MQTT-3.1.4-3]
#[test]
fn a_banned_client_is_disconnected_and_refused_until_the_ban_is_removed() {
    for shards in [1, 3] {
        let mut config = config(shards);
        config.listeners[0].stored_users = true;
        let (server, address) = start(config);
        let change = |change: &Change| server.handle().change_access(change).unwrap();
        change(&add_user("ann", "secret"));
        let by_id = BanTarget::Client("a".to_owned());
        let by_user = BanTarget::User("ann".to_owned());
        for (target, bytes) in [
            (by_id, connect("a")),
            (by_user, connect_as("b", "ann", "secret")),
        ] {
            let mut other = Client::connect(address, "other");
            let mut client = attempt(address, &bytes, SUCCESS);
            change(&ban(target.clone()));
            expect_disconnect(&mut client, ADMINISTRATIVE_ACTION);
            attempt(address, &bytes, BANNED);
            other.ping();
            change(&Change::Unban { target });
            attempt(address, &bytes, SUCCESS);
        }
    }
}

#[test]
fn connections_from_a_banned_address_are_closed() {
    let (server, address) = start(config(2));
    let change = |change: &Change| server.handle().change_access(change).unwrap();
    let mut client = Client::connect(address, "a");
    let target = || BanTarget::Address("127.0.0.0/8".to_owned());
    change(&ban(target()));
    expect_disconnect(&mut client, ADMINISTRATIVE_ACTION);
    assert_eq!(Client::open(address).receive(), Received::Closed);
    change(&Change::Unban { target: target() });
    Client::connect(address, "a").ping();
}

/// [MQTT-3.1.3-8]
#[test]
fn client_ids_are_bound_to_users_as_soon_as_the_configuration_says_so() {
    let mut config = config(2);
    config.listeners[0].stored_users = true;
    let (server, address) = start(config.clone());
    let added = server.handle().change_access(&add_user("ann", "secret"));
    added.unwrap();
    attempt(address, &connect_as("phone", "ann", "secret"), SUCCESS);
    config.listeners[0].client_id = Some("{user}-*".to_owned());
    server.handle().reload(config).unwrap();
    let login = |id: &str| connect_as(id, "ann", "secret");
    attempt(address, &login("phone"), CLIENT_IDENTIFIER_NOT_VALID);
    attempt(address, &login("ann-phone"), SUCCESS);
}
