//! Stamped messages that were recorded, and are played with faults in them.
//!
//! The stamps are a producer's own, so what a fault does to a message is all that is wrong with it.

use crate::Launch;
use crate::raw::{Properties, Publish, Subscribe, id};
use cucumber::gherkin::Step;
use cucumber::{given, then, when};

use crate::features::command::Running;
use crate::features::room::Room;
use crate::features::scene::Scene;
use crate::features::steps::brokers::text_of;

const CHECKPOINTS: &str = "audit/checkpoint/";
/// The user property that a stamp is.
const STAMP: &str = "audit";

/// Each line is a message, numbered from 0.
#[given(regex = r#"^a recording of these lines on "([^"]*)":$"#)]
async fn a_recording(scene: &mut Scene, step: &Step, topic: String) {
    let lines = text_of(step);
    scene
        .act(move |room| record(room, &topic, "", &lines))
        .await;
}

/// Its producer has begun again on its lane, from number 0 on, and these are its messages.
#[given(
    regex = r#"^a recording of these lines on "([^"]*)", by the same producer after a restart:$"#
)]
async fn a_recording_of_the_next_epoch(scene: &mut Scene, step: &Step, topic: String) {
    let lines = text_of(step);
    scene
        .act(move |room| {
            let last = room.recording.last().expect("there was a recording");
            let lane = last.topic.trim_start_matches(CHECKPOINTS);
            let lane = format!(" --lane {lane}");
            room.recording.clear();
            record(room, &topic, &lane, &lines);
        })
        .await;
}

/// The example of `docs/audit.md`: five messages, and the checkpoint that closes their lane, made
/// in 1970.
#[given(r#"a recording on "plant/7" that is decades old"#)]
async fn an_old_recording(scene: &mut Scene) {
    scene
        .act(|room| {
            let messages = OLD_STAMPS.iter().enumerate().map(|(number, stamp)| {
                let stamp = Properties::none().with(id::USER_PROPERTY, (STAMP, *stamp));
                Publish {
                    properties: stamp,
                    ..Publish::new("plant/7", format!("21.{number}")).qos(1)
                }
            });
            room.recording = messages.collect();
            let topic = format!("{CHECKPOINTS}0102030405060708");
            let bytes = |digits: &str| u8::from_str_radix(digits, 16).expect("two digits");
            let payload: Vec<u8> = (0..OLD_CHECKPOINT.len())
                .step_by(2)
                .map(|at| bytes(&OLD_CHECKPOINT[at..at + 2]))
                .collect();
            room.recording.push(Publish::new(&topic, payload).qos(1));
        })
        .await;
}

const OLD_STAMPS: [&str; 5] = [
    "EQAAAAAAAAMBAgMEBQYHCAAAAAAAAAAA4kRL1qnMiqgv6Zf99GV0gA",
    "EQAAAAAAAAMBAgMEBQYHCAAAAAAAAAABciSHmXdHCdiWjkFvKQgBcg",
    "EQAAAAAAAAMBAgMEBQYHCAAAAAAAAAACu68aXgEz8MCPrLYDkT3njg",
    "EQAAAAAAAAMBAgMEBQYHCAAAAAAAAAADiolfZ3En6Gmr9yaObaDxBw",
    "EQAAAAAAAAMBAgMEBQYHCAAAAAAAAAAEkyCUw7opP7HznH2iu9VAnw",
];
const OLD_CHECKPOINT: &str = "\
    cdaace9a01010ac1010203040506070800000003000000020000000000000000\
    000000000000000500000000000f4240000a51f35315c5f54a5402c5fe23f6a8\
    00000000000000000000000000000000000a51f35315c5f54a5402c5fe23f6a8\
    000000000000000000000000000000006523abf49db89d4791e415f1f6f62d28\
    e2444bd672248799bbaf1a5e8a895f67932094c3";

fn record(room: &mut Room, topic: &str, arguments: &str, lines: &str) {
    // Another broker, so that the one of the scenario has heard nothing of it before.
    let broker = Launch::default().start();
    let mut recorder = broker.connect("recorder");
    let checkpoints = format!("{CHECKPOINTS}#");
    recorder.subscribe(&Subscribe::to(topic, 1).and(&checkpoints, 1));
    let port = broker.address().port();
    let line = format!("unbroken pipe -p {port} --to {topic}{arguments}");
    let ended = Running::start(&line, room.directory(), Some(lines)).finish();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    loop {
        let message = recorder.expect_publish();
        recorder.complete(&message);
        // The last checkpoint closes the lane.
        let is_last = is_checkpoint(&message) && message.payload[7] & 0x80 != 0;
        room.recording.push(message);
        if is_last {
            break;
        }
    }
    recorder.disconnect();
}

fn is_checkpoint(message: &Publish) -> bool {
    message.topic.starts_with(CHECKPOINTS)
}

#[when("the recording is played")]
async fn is_played(scene: &mut Scene) {
    scene.act(|room| play(room, "")).await;
}

/// As in "without number 3, with number 5 twice, with number 7 altered, without its checkpoints".
#[when(regex = r"^the recording is played (with.*)$")]
async fn is_played_with(scene: &mut Scene, faults: String) {
    scene.act(move |room| play(room, &faults)).await;
}

fn play(room: &mut Room, faults: &str) {
    let recording = room.recording.clone();
    let (mut checkpoints, messages): (Vec<_>, Vec<_>) =
        recording.into_iter().partition(is_checkpoint);
    let mut played: Vec<(usize, Publish)> = messages.into_iter().enumerate().collect();
    for fault in faults.split(", ").filter(|fault| !fault.is_empty()) {
        match fault {
            "without its checkpoints" => checkpoints.clear(),
            // Their tags.
            "with its checkpoints altered" => checkpoints.iter_mut().for_each(|checkpoint| {
                let last = checkpoint.payload.last_mut();
                *last.expect("a checkpoint has bytes") ^= 1;
            }),
            _ => inject(&mut played, fault),
        }
    }
    let played = played.into_iter().map(|(_, message)| message);
    publish(room, played.chain(checkpoints));
}

#[when("the checkpoints of the recording are played")]
async fn checkpoints_are_played(scene: &mut Scene) {
    scene
        .act(|room| {
            let recording = room.recording.clone().into_iter();
            publish(room, recording.filter(is_checkpoint));
        })
        .await;
}

fn publish(room: &Room, messages: impl Iterator<Item = Publish>) {
    let mut player = room.server().connect("player");
    player.publish_all(messages.map(|message| Publish {
        dup: false,
        retain: false,
        ..message
    }));
    player.disconnect();
}

fn inject(played: &mut Vec<(usize, Publish)>, fault: &str) {
    let place = |played: &[(usize, Publish)], number: &str| {
        let number: usize = number.parse().expect("a number");
        let mut messages = played.iter();
        let place = messages.position(|(its, _)| *its == number);
        place.unwrap_or_else(|| panic!("no number {number}"))
    };
    match fault.split(' ').collect::<Vec<_>>()[..] {
        ["without", "number", number] => {
            let at = place(played, number);
            played.remove(at);
        }
        ["with", "number", number, "twice"] => {
            let at = place(played, number);
            played.insert(at, played[at].clone());
        }
        ["with", "number", number, "altered"] => {
            let at = place(played, number);
            played[at].1.payload.push(b'0');
        }
        ["with", "number", number, "unstamped"] => {
            let at = place(played, number);
            restamp(&mut played[at].1, |_| Vec::new());
        }
        ["with", "number", number, "stamped", "twice"] => {
            let at = place(played, number);
            restamp(&mut played[at].1, |stamp| vec![stamp.clone(), stamp]);
        }
        ["with", "number", number, "stamped", "unreadably"] => {
            let at = place(played, number);
            restamp(&mut played[at].1, |stamp| vec![stamp + "!"]);
        }
        _ => panic!("no fault is called {fault:?}"),
    }
}

/// Gives a message these stamps in the place of its own.
fn restamp(message: &mut Publish, stamps: impl Fn(String) -> Vec<String>) {
    let user = message.properties.user().into_iter();
    let (_, own) = user
        .clone()
        .find(|(name, _)| *name == STAMP)
        .expect("it is stamped");
    let stamps = stamps(own.to_owned())
        .into_iter()
        .map(|stamp| (STAMP.to_owned(), stamp));
    let others = user.filter(|(name, _)| *name != STAMP);
    let others = others.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let all = others.chain(stamps);
    message.properties = all.fold(Properties::none(), |properties, (name, value)| {
        properties.with(id::USER_PROPERTY, (name.as_str(), value.as_str()))
    });
}

#[then(regex = r"^(\w+) shows the root of the lane, which is kept as ROOT$")]
async fn shows_the_root(scene: &mut Scene, name: String) {
    scene
        .act(move |room| {
            let running = room.running.get_mut(&name).expect("it is running");
            let line = running.line_with(", lane root ");
            let (_, root) = line.rsplit_once(' ').expect("it was found behind a space");
            room.root = Some(root.to_owned());
        })
        .await;
}
