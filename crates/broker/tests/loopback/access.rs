//! Access rules of a running broker: at its start, and other ones while clients are connected.

use std::net::SocketAddr;
use std::time::Duration;

use unbroken_broker::handle::{
    Action, Actions, Ceiling, Effect, Event, Member, Role, Rule, RuleSet,
};
use unbroken_broker::{ReloadError, Server, ServerOptions};

use crate::client::{Client, Received, connect_as, packet, string, subscribe};
use crate::config;

/// A role of these members, with one rule for each action and filter.
fn role(member: Member, connect: Effect, rules: &[(Effect, Action, &str)]) -> Role {
    let rule = |(effect, action, filter): &(Effect, Action, &str)| Rule {
        effect: *effect,
        actions: Actions::from(*action),
        filter: (*filter).into(),
        ceiling: Ceiling::NONE,
        origin: "test".into(),
    };
    Role {
        name: "test".into(),
        members: vec![member],
        connect,
        ceiling: Ceiling::NONE,
        client_id: None,
        rules: rules.iter().map(rule).collect(),
        mount_point: None,
    }
}

/// Everybody receives everything but secrets, and publishes below its own client id.
fn roles() -> Vec<Role> {
    vec![
        role(
            Member::ANYBODY,
            Effect::Allow,
            &[
                (Effect::Allow, Action::Subscribe, "#"),
                (Effect::Allow, Action::Receive, "#"),
                (Effect::Allow, Action::Publish, "of/{client}/#"),
                (Effect::Deny, Action::Subscribe, "secret/#"),
            ],
        ),
        role(
            Member::client("*-guest"),
            Effect::Allow,
            &[(Effect::Deny, Action::Receive, "of/a/secret")],
        ),
        role(Member::client("banned-*"), Effect::Deny, &[]),
    ]
}

fn start(shards: u8, access: Vec<Role>) -> (Server, SocketAddr) {
    let mut options = ServerOptions::default();
    options.access = vec![RuleSet::of(access)];
    let server = Server::start_with(config(shards), options).unwrap();
    let address = server.listeners()[0].address.tcp().unwrap();
    (server, address)
}

/// Publishes at QoS 1 and answers the reason code.
fn publish(client: &mut Client, topic: &str, payload: &[u8]) -> u8 {
    let body = [&string(topic)[..], &[0, 1, 0], payload].concat();
    client.send(&packet(0x32, &body));
    match client.receive() {
        // Success is left out.
        Received::Packet(0x40, body) => body.get(2).copied().unwrap_or(0),
        other => panic!("not PUBACK: {other:?}"),
    }
}

fn try_subscribe(client: &mut Client, filter: &str) -> u8 {
    client.send(&subscribe(filter));
    match client.receive() {
        Received::Packet(0x90, body) => *body.last().unwrap(),
        other => panic!("not SUBACK: {other:?}"),
    }
}

/// Long enough on any machine.
const PATIENCE: Duration = Duration::from_mins(1);
const SUCCESS: u8 = 0;
const NO_MATCHING_SUBSCRIBERS: u8 = 0x10;
const NOT_AUTHORIZED: u8 = 0x87;

#[test]
fn each_client_gets_its_own_verdict_before_and_after_other_rules() {
    for shards in [1, 3] {
        let (server, address) = start(shards, roles());
        let mut banned = Client::open(address);
        banned.send(&crate::client::connect("banned-1"));
        banned.expect_connack(NOT_AUTHORIZED);
        assert_eq!(banned.receive(), Received::Closed);

        let [mut a, mut b] = ["a", "b"].map(|id| Client::connect(address, id));
        let mut all = Client::connect(address, "all");
        let mut guest = Client::connect(address, "x-guest");
        assert_eq!(try_subscribe(&mut all, "secret/x"), NOT_AUTHORIZED);
        assert_eq!(try_subscribe(&mut all, "$share/g/secret/#"), NOT_AUTHORIZED);
        assert_eq!(try_subscribe(&mut all, "#"), SUCCESS);
        assert_eq!(try_subscribe(&mut guest, "#"), SUCCESS);
        for _ in 0..10 {
            assert_eq!(publish(&mut a, "of/a/x", b"a"), SUCCESS);
            assert_eq!(publish(&mut b, "of/a/x", b"b"), NOT_AUTHORIZED);
            for client in [&mut all, &mut guest] {
                assert_eq!(
                    client.expect_message(),
                    ("of/a/x".to_owned(), b"a".to_vec())
                );
            }
        }
        assert_eq!(publish(&mut a, "of/a/secret", b"s"), SUCCESS);
        assert_eq!(publish(&mut a, "of/a/x", b"open"), SUCCESS);
        assert_eq!(all.expect_message().1, b"s");
        assert_eq!(all.expect_message().1, b"open");
        assert_eq!(guest.expect_message().1, b"open", "and not the secret");

        // Now b may do what a may not, and guests have to go.
        let events = server.handle().events(100).unwrap();
        let other = vec![
            role(
                Member::ANYBODY,
                Effect::Allow,
                &[
                    (Effect::Allow, Action::Subscribe, "#"),
                    (Effect::Allow, Action::Receive, "#"),
                ],
            ),
            role(
                Member::client("b"),
                Effect::Allow,
                &[(Effect::Allow, Action::Publish, "#")],
            ),
            role(Member::client("*-guest"), Effect::Deny, &[]),
            role(
                Member::client("all"),
                Effect::Allow,
                &[(Effect::Deny, Action::Subscribe, "#")],
            ),
        ];
        server
            .handle()
            .set_access(vec![RuleSet::of(other)], PATIENCE)
            .unwrap();
        assert!(
            matches!(guest.receive(), Received::Packet(0xe0, body) if body[0] == NOT_AUTHORIZED)
        );
        assert_eq!(guest.receive(), Received::Closed);
        assert_eq!(publish(&mut a, "of/a/x", b"a"), NOT_AUTHORIZED);
        let nobody = publish(&mut b, "of/a/x", b"b");
        assert_eq!(
            nobody, NO_MATCHING_SUBSCRIBERS,
            "the subscription has ended"
        );
        all.ping();
        let is_revoked = |event: &Event| matches!(event, Event::SubscriptionRevoked { filter, .. } if &**filter == "#");
        while !is_revoked(&events.next(PATIENCE).unwrap()) {}

        // Rules that cannot be compiled change nothing, and none at all allow everything.
        let wrong = role(
            Member::ANYBODY,
            Effect::Allow,
            &[(Effect::Allow, Action::Publish, "#/x")],
        );
        let refused = server
            .handle()
            .set_access(vec![RuleSet::of(vec![wrong])], PATIENCE);
        assert!(
            matches!(refused, Err(ReloadError::Policy(_))),
            "{refused:?}"
        );
        assert_eq!(publish(&mut a, "of/a/x", b"a"), NOT_AUTHORIZED);
        server.handle().set_access(Vec::new(), PATIENCE).unwrap();
        assert_eq!(publish(&mut a, "of/a/x", b"a"), NO_MATCHING_SUBSCRIBERS);
        assert_eq!(try_subscribe(&mut all, "#"), SUCCESS);
        assert_eq!(publish(&mut b, "of/a/x", b"b"), SUCCESS);
        assert_eq!(all.expect_message().1, b"b");
    }
}

#[test]
fn a_role_is_given_by_user_listener_and_address() {
    let network = |network: &str, bits| Member {
        network: Some((network.parse().unwrap(), bits)),
        ..Member::ANYBODY
    };
    let listener = |listener| Member {
        listener: Some(listener),
        ..Member::ANYBODY
    };
    let anonymous = Member {
        user: Some(None),
        ..Member::ANYBODY
    };
    let certificate = Member {
        certificate: Some("a".into()),
        ..Member::ANYBODY
    };
    let cases = [
        (network("127.0.0.0", 8), SUCCESS),
        (network("10.0.0.0", 8), NOT_AUTHORIZED),
        (listener(0), SUCCESS),
        (listener(1), NOT_AUTHORIZED),
        (anonymous, SUCCESS),
        (Member::user("a"), NOT_AUTHORIZED),
        (certificate, NOT_AUTHORIZED),
    ];
    let (server, address) = start(1, Vec::new());
    for (member, expected) in cases {
        let what = format!("{member:?}");
        let role = role(member, Effect::Allow, &[]);
        server
            .handle()
            .set_access(vec![RuleSet::of(vec![role])], PATIENCE)
            .unwrap();
        let mut client = Client::open(address);
        // No password file is asked about the name, so it is nobody's.
        client.send(&connect_as("a", "a", "secret"));
        let Received::Packet(0x20, body) = client.receive() else {
            panic!("no CONNACK")
        };
        assert_eq!(body[1], expected, "{what}");
    }
}
