//! Commands that listen: waiting until they do, without looking into them.
//!
//! A retained message is there before the command starts, and the command subscribes to its topic
//! too. When it prints that one, its subscriptions stand, because all of them were one request.

use unbroken_acceptance::raw::Publish;

use crate::command::Running;
use crate::room::Room;

const TOPIC: &str = "acceptance/ready";
const WORD: &str = "acceptance-is-ready";

/// Starts a command that subscribes and waits until it does.
pub(crate) fn start(room: &mut Room, line: &str) -> Running {
    let mut herald = room.broker().connect("herald");
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

/// Fills in the port of the broker, and its data directory.
pub(crate) fn with_port(room: &Room, line: &str) -> String {
    let mut line = line.to_owned();
    if line.contains("PORT") {
        line = line.replace("PORT", &room.broker().address().port().to_string());
    }
    if line.contains("DATA") {
        let data = room.broker().directory().join("data");
        line = line.replace("DATA", &data.display().to_string());
    }
    line
}
