//! Every phase of a connection, on both sides, against every packet and every version, and every
//! AUTH step.

use std::fmt::Debug;

use unbroken_mqtt_proto::connection::{client, server};
use unbroken_mqtt_proto::{PacketType, ReasonCode, Version};

use crate::compare;

const SERVER: [server::Phase; 6] = [
    server::Phase::AwaitConnect,
    server::Phase::Authenticating,
    server::Phase::Connected {
        extended_auth: false,
    },
    server::Phase::Connected {
        extended_auth: true,
    },
    server::Phase::Reauthenticating,
    server::Phase::Closed,
];

const CLIENT: [client::Phase; 5] = [
    client::Phase::AwaitConnAck {
        extended_auth: false,
    },
    client::Phase::AwaitConnAck {
        extended_auth: true,
    },
    client::Phase::Connected,
    client::Phase::Reauthenticating,
    client::Phase::Closed,
];

const AUTH: [ReasonCode; 3] = [
    ReasonCode::Success,
    ReasonCode::ContinueAuthentication,
    ReasonCode::ReAuthenticate,
];

// [MQTT-3.1.0-1] [MQTT-3.1.0-2] [MQTT-3.1.2-30] [MQTT-3.2.0-1] [MQTT-3.2.0-2] [MQTT-3.14.0-1]
// [MQTT-4.12.0-6] [MQTT-4.12.0-7] [MQTT311-3.1.0-1] [MQTT311-3.1.0-2] [MQTT311-3.2.0-1]
#[test]
fn every_phase_answers_every_packet_as_recorded() {
    let mut text = String::new();
    let violation = |v: server::Violation| (v.reason(), format!("{v:?}"));
    for version in Version::ALL {
        let expect = |phase: server::Phase, packet| {
            phase
                .expect(packet, version)
                .map(|()| "ok".to_owned())
                .map_err(violation)
        };
        section(
            &mut text,
            &format!("server, {version}"),
            &SERVER,
            &PacketType::ALL,
            expect,
        );
    }
    section(
        &mut text,
        "server, AUTH by reason",
        &SERVER,
        &AUTH,
        |phase, reason| phase.handle_auth(reason).map(name).map_err(violation),
    );
    let violation = |v: client::Violation| (v.reason(), format!("{v:?}"));
    for version in Version::ALL {
        let expect = |phase: client::Phase, packet| {
            phase
                .expect(packet, version)
                .map(|()| "ok".to_owned())
                .map_err(violation)
        };
        section(
            &mut text,
            &format!("client, {version}"),
            &CLIENT,
            &PacketType::ALL,
            expect,
        );
    }
    section(
        &mut text,
        "client, AUTH by reason",
        &CLIENT,
        &AUTH,
        |phase, reason| phase.handle_auth(reason).map(name).map_err(violation),
    );
    compare("phases.txt", &text, include_str!("../snapshots/phases.txt"));
}

#[test]
fn what_the_owner_did_moves_a_server_phase_on() {
    use server::Phase::{Authenticating, AwaitConnect, Closed, Connected, Reauthenticating};
    let [plain, extended] = [false, true].map(|extended_auth| Connected { extended_auth });
    assert_eq!(SERVER.map(server::Phase::authenticate)[0], Authenticating);
    assert_eq!(AwaitConnect.accept(false), plain);
    assert_eq!(AwaitConnect.accept(true), extended);
    assert_eq!(Authenticating.accept(true), extended);
    assert_eq!(Reauthenticating.accept(true), extended);
    assert_eq!(Closed.accept(true), Closed);
    let connected = SERVER.map(server::Phase::is_connected);
    assert_eq!(connected, [false, false, true, true, true, false]);
}

#[test]
fn connack_decides_where_a_client_goes() {
    let waiting = CLIENT[0];
    assert_eq!(
        waiting.handle_connack(ReasonCode::Success),
        client::Phase::Connected
    );
    assert_eq!(
        waiting.handle_connack(ReasonCode::NotAuthorized),
        client::Phase::Closed
    );
    assert_eq!(
        client::Phase::Connected.reauthenticate(),
        client::Phase::Reauthenticating
    );
    assert_eq!(waiting.reauthenticate(), waiting);
    assert_eq!(
        CLIENT.map(client::Phase::is_connected),
        [false, false, true, true, false]
    );
}

/// A table with a row for each event and a column for each phase.
fn section<P: Debug + Copy, E: ToString + Copy>(
    text: &mut String,
    title: &str,
    phases: &[P],
    events: &[E],
    decide: impl Fn(P, E) -> Result<String, (ReasonCode, String)>,
) {
    let mut row = |label: &str, cells: Vec<String>| {
        let cells: Vec<String> = cells.iter().map(|cell| format!(" {cell:20}")).collect();
        text.push_str(format!("{label:26}{}", cells.concat()).trim_end());
        text.push('\n');
    };
    row(title, phases.iter().map(|phase| name(*phase)).collect());
    for event in events {
        let cell = |phase: &P| match decide(*phase, *event) {
            Ok(next) => next,
            Err((reason, violation)) => format!("{:02X} {violation}", reason as u8),
        };
        row(&event.to_string(), phases.iter().map(cell).collect());
    }
    text.push('\n');
}

/// A phase without the words that its field needs in Rust.
fn name<P: Debug>(phase: P) -> String {
    let text = format!("{phase:?}");
    text.replace(" { extended_auth: false }", "")
        .replace(" { extended_auth: true }", "+auth")
}
