//! Clients coming and going.

use crate::program::{Program, Route};
use crate::raw::{Packet, Version, disconnect, hex};
use cucumber::{given, then, when};

use crate::features::peer::Peer;
use crate::features::room::Room;
use crate::features::scene::Scene;
use crate::features::words;

#[given(regex = r"^(\w+) connects(?: with (.+))?$")]
#[when(regex = r"^(\w+) connects(?: with (.+))?$")]
async fn connects(scene: &mut Scene, name: String, list: String) {
    scene
        .act(move |room| connect(room, room.version, &name, &list))
        .await;
}

#[given(regex = r"^(\w+) connects by MQTT (\S+?)(?: with (.+))?$")]
#[when(regex = r"^(\w+) connects by MQTT (\S+?)(?: with (.+))?$")]
async fn connects_by(scene: &mut Scene, name: String, version: String, list: String) {
    scene
        .act(move |room| connect(room, Version::from_text(&version), &name, &list))
        .await;
}

fn connect(room: &mut Room, version: Version, name: &str, list: &str) {
    let (connect, tool) = words::connect(version, name, list);
    match tool {
        None => room.connect(name, connect),
        Some(tool) => {
            room.make_room_for(&connect.client_id);
            let route = Route::tcp(room.server().address().port());
            let mut program = Program::start(tool);
            let connected = program.connect(&route, &connect);
            connected.unwrap_or_else(|why| panic!("{name} was refused: {why}"));
            room.connects.insert(name.to_owned(), connect);
            room.add(name, program);
        }
    }
}

#[when(regex = r"^(\w+) reconnects(?: with (.+))?$")]
async fn reconnects(scene: &mut Scene, name: String, list: String) {
    scene
        .act(move |room| {
            let before = room
                .connects
                .get(&name)
                .expect("it was connected before")
                .clone();
            if list.is_empty() {
                room.connect(&name, before);
            } else {
                connect(room, before.version, &name, &list);
            }
        })
        .await;
}

/// Another connection under the name of one that is connected.
#[when(regex = r"^(\w+) connects as (\w+)(?: with (.+))?$")]
async fn connects_as(scene: &mut Scene, name: String, other: String, list: String) {
    scene
        .act(move |room| {
            let (connect, _) = words::connect(room.version, &other, &list);
            room.connect(&name, connect);
        })
        .await;
}

#[when(regex = r"^(\w+) tries to connect(?: with (.+))?$")]
async fn tries_to_connect(scene: &mut Scene, name: String, list: String) {
    scene
        .act(move |room| {
            let (connect, tool) = words::connect(room.version, &name, &list);
            assert_eq!(tool, None, "only raw clients try");
            room.make_room_for(&connect.client_id);
            let client = room.server().attempt(&connect);
            room.add(&name, client);
        })
        .await;
}

#[then(regex = r"^(\w+) is refused because (.+)$")]
async fn is_refused(scene: &mut Scene, name: String, why: String) {
    scene
        .act(move |room| {
            let client = room.client(&name);
            let code = match client.version() {
                Version::V5 => words::reason_code(&why),
                _ => words::return_code(&why),
            };
            client.expect_connack_refusal(code);
        })
        .await;
}

#[then(regex = r"^(\w+) is accepted$")]
async fn is_accepted(scene: &mut Scene, name: String) {
    scene
        .act(move |room| assert_eq!(room.client(&name).expect_connack().reason, 0))
        .await;
}

#[then(regex = r"^(\w+) is cut off$")]
async fn is_cut_off(scene: &mut Scene, name: String) {
    scene
        .act(move |room| room.client(&name).expect_closed())
        .await;
}

#[then(regex = r"^(\w+) is cut off without an acknowledgement$")]
async fn is_cut_off_without_acknowledgement(scene: &mut Scene, name: String) {
    scene
        .act(move |room| {
            while let Some(packet) = room.client(&name).receive_or_close() {
                assert!(!matches!(packet, Packet::Ack(_)), "{packet:?}");
            }
        })
        .await;
}

/// The connection ends, or the answer is a refusal.
#[then(regex = r"^(\w+) never learns that it was stored$")]
async fn never_learns_that_it_was_stored(scene: &mut Scene, name: String) {
    scene
        .act(move |room| {
            while let Some(packet) = room.client(&name).receive_or_close() {
                if let Packet::Ack(ack) = packet {
                    assert!(ack.reason >= 0x80, "{ack:?}");
                    return;
                }
            }
        })
        .await;
}

/// A 5.0 client learns why; for 3.x it is enough that the connection ends.
#[then(regex = r"^(\w+) is cut off because (.+)$")]
async fn is_cut_off_because(scene: &mut Scene, name: String, why: String) {
    scene
        .act(move |room| room.client(&name).expect_dropped(words::reason_code(&why)))
        .await;
}

#[then(regex = r"^the broker tells (\w+) that ([^0-9]+)$")]
async fn broker_tells(scene: &mut Scene, name: String, why: String) {
    scene
        .act(move |room| {
            room.client(&name)
                .expect_disconnect(words::reason_code(&why));
        })
        .await;
}

/// Some messages may have been acknowledged before it went too far.
#[then(regex = r"^the broker tells (\w+) that (.+) after (\d+) acknowledgements$")]
async fn broker_tells_after(scene: &mut Scene, name: String, why: String, count: usize) {
    scene
        .act(move |room| {
            let client = room.client(&name);
            for _ in 0..count {
                assert!(matches!(client.receive(), Packet::Ack(_)));
            }
            client.expect_disconnect(words::reason_code(&why));
        })
        .await;
}

#[then(regex = r"^(\w+) still has its session$")]
async fn still_has_its_session(scene: &mut Scene, name: String) {
    scene
        .act(move |room| assert!(room.peer(&name).session_present(), "the session is new"))
        .await;
}

#[then(regex = r"^(\w+) starts without a session$")]
async fn starts_without_a_session(scene: &mut Scene, name: String) {
    scene
        .act(move |room| assert!(!room.peer(&name).session_present(), "the session is old"))
        .await;
}

#[then(regex = r"^(\w+) learns that it may publish up to QoS (\d), and nothing retained$")]
async fn is_told_its_limits(scene: &mut Scene, name: String, max_qos: u32) {
    scene
        .act(move |room| {
            use crate::raw::id::{MAXIMUM_QOS, RETAIN_AVAILABLE};
            let connack = room.client(&name).connack();
            let told = [MAXIMUM_QOS, RETAIN_AVAILABLE].map(|id| connack.properties.number(id));
            assert_eq!(told, [Some(max_qos), Some(0)], "{connack:?}");
        })
        .await;
}

/// What it sent is acknowledged first: a client that comes back does not send it again.
#[then(regex = r"^(\w+) is answered, and cut off because (.+)$")]
async fn is_answered_and_cut_off(scene: &mut Scene, name: String, why: String) {
    scene
        .act(move |room| {
            let client = room.client(&name);
            let reason = words::reason_code(&why);
            let expected = match client.version() {
                Version::V5 => reason,
                _ => 0,
            };
            match client.receive() {
                Packet::Ack(ack) => assert_eq!(ack.reason, expected, "{ack:?}"),
                other => panic!("not an acknowledgement: {other:?}"),
            }
            client.expect_dropped(reason);
        })
        .await;
}

#[then(regex = r"^(\w+) is given a client id$")]
async fn is_given_a_client_id(scene: &mut Scene, name: String) {
    scene
        .act(move |room| {
            use crate::raw::id::ASSIGNED_CLIENT_IDENTIFIER;
            let connack = room.client(&name).connack();
            let given = connack.properties.text(ASSIGNED_CLIENT_IDENTIFIER);
            assert!(given.is_some_and(|id| !id.is_empty()), "{connack:?}");
        })
        .await;
}

#[given(regex = r"^(\w+) disconnects$")]
#[when(regex = r"^(\w+) disconnects$")]
async fn disconnects(scene: &mut Scene, name: String) {
    scene.act(move |room| room.remove(&name).disconnect()).await;
}

#[when(regex = r"^(\w+) disconnects and asks for its will$")]
async fn disconnects_with_will(scene: &mut Scene, name: String) {
    scene
        .act(move |room| match room.remove(&name) {
            Peer::Raw(client) => client.disconnect_with(&disconnect(0x04)),
            Peer::Program(_) => panic!("this library has no such end"),
        })
        .await;
}

#[given(regex = r"^(\w+) loses its connection$")]
#[when(regex = r"^(\w+) loses its connection$")]
async fn loses_its_connection(scene: &mut Scene, name: String) {
    scene.act(move |room| room.remove(&name).vanish()).await;
}

#[when(regex = r"^(\w+) says nothing any more$")]
async fn says_nothing(scene: &mut Scene, name: String) {
    scene
        .act(move |room| {
            room.client(&name);
            room.last_actor = Some(name);
        })
        .await;
}

#[then(regex = r"^(\w+) is still connected$")]
async fn is_still_connected(scene: &mut Scene, name: String) {
    scene.act(move |room| room.client(&name).ping()).await;
}

#[when(regex = r"^(\w+) sends (?:the bytes )?`([0-9a-f ]+)`$")]
async fn sends_bytes(scene: &mut Scene, name: String, bytes: String) {
    scene
        .act(move |room| room.client(&name).send(hex(&bytes)))
        .await;
}

#[when(regex = r"^(\w+) opens a connection and sends `([0-9a-f ]+)`$")]
async fn opens_and_sends(scene: &mut Scene, name: String, bytes: String) {
    scene
        .act(move |room| {
            let mut client = room.server().open_as(room.version);
            client.send(hex(&bytes));
            room.add(&name, client);
        })
        .await;
}
