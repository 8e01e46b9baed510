//! Commands that listen: waiting until they do, without looking into them.
//!
//! A retained message is there before the command starts, and the command subscribes to its topic
//! too. When it prints that one, its subscriptions stand, because all of them were one request.

use std::time::Instant;

use crate::DEADLINE;
use crate::raw::{Publish, reason};

use crate::features::command::Running;
use crate::features::room::Room;

const TOPIC: &str = "acceptance/ready";
const WORD: &str = "acceptance-is-ready";

/// Starts a command that subscribes and waits until it does.
pub(crate) fn start(room: &mut Room, line: &str) -> Running {
    let mut herald = room.server().connect("herald");
    herald.publish(Publish::new(TOPIC, WORD).qos(1).retained());
    herald.disconnect();
    let line = format!("{} -t {TOPIC}", with_port(room, line));
    let mut running = Running::start(&line, room.directory(), None);
    let first = running.next_line();
    assert!(
        first.contains(WORD),
        "expected to hear that `{line}` listens, got {first:?}"
    );
    running
}

/// Fills in the port of the broker, its data directory, and the root that was kept.
pub(crate) fn with_port(room: &Room, line: &str) -> String {
    let mut line = line.to_owned();
    if line.contains("PORT") {
        line = line.replace("PORT", &room.server().address().port().to_string());
    }
    if line.contains("DATA") {
        let data = room.broker().data();
        line = line.replace("DATA", &data.display().to_string());
    }
    if line.contains("ROOT") {
        line = line.replace("ROOT", room.root.as_ref().expect("a root was kept"));
    }
    line
}

/// Waits until the broker has somebody for a topic. The question bears no stamp, so an audit leaves
/// it alone.
pub(crate) fn until_heard(room: &Room, topic: &str) {
    let mut asker = room.server().connect("asker");
    let begin = Instant::now();
    while asker.publish(Publish::new(topic, "").qos(1)) == reason::NO_MATCHING_SUBSCRIBERS {
        let waited = begin.elapsed();
        assert!(waited < DEADLINE, "nobody has subscribed to {topic}");
    }
    asker.disconnect();
}
