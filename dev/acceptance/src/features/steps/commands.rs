//! Commands: ours as a user types them, and Mosquitto's beside them.

use cucumber::gherkin::Step;
use cucumber::{given, then, when};

use crate::features::command::Running;
use crate::features::listing;
use crate::features::room::Room;
use crate::features::scene::Scene;
use crate::features::steps::brokers::text_of;
use crate::process::signal;

#[given(regex = r#"^a file "([^"]*)":$"#)]
#[when(regex = r#"^a file "([^"]*)":$"#)]
async fn a_file(scene: &mut Scene, step: &Step, name: String) {
    let content = text_of(step);
    scene
        .act(move |room| room.write_file(&name, &content))
        .await;
}

#[given(regex = r#"^a file "([^"]*)" that (only its owner|everybody) can read:$"#)]
async fn a_file_for(scene: &mut Scene, step: &Step, name: String, who: String) {
    let content = text_of(step);
    let mode = if who == "everybody" { 0o644 } else { 0o600 };
    scene
        .act(move |room| {
            room.write_file(&name, &content);
            room.allow_file(&name, mode);
        })
        .await;
}

#[when(regex = r#"^in the file "([^"]*)" `([^`]*)` becomes `([^`]*)`$"#)]
async fn in_the_file(scene: &mut Scene, name: String, old: String, new: String) {
    scene
        .act(move |room| {
            let content = room.read_file(&name);
            assert!(content.contains(&old), "{old} is not in {content}");
            room.write_file(&name, &content.replace(&old, &new));
        })
        .await;
}

#[given(regex = r"^I run `([^`]+)`$")]
#[when(regex = r"^I run `([^`]+)`$")]
async fn i_run(scene: &mut Scene, line: String) {
    scene.act(move |room| run(room, &line, None)).await;
}

#[when(regex = r"^I run `([^`]+)` with the input:$")]
async fn i_run_with_input(scene: &mut Scene, step: &Step, line: String) {
    let input = text_of(step);
    scene.act(move |room| run(room, &line, Some(&input))).await;
}

fn run(room: &mut Room, line: &str, input: Option<&str>) {
    let line = listing::with_port(room, line);
    room.finished = Some(Running::start(&line, room.directory(), input).finish());
}

/// A command that subscribes; the step ends when it listens.
#[given(regex = r"^(\w+) listens by `([^`]+)`$")]
#[when(regex = r"^(\w+) listens by `([^`]+)`$")]
async fn listens_by(scene: &mut Scene, name: String, line: String) {
    scene
        .act(move |room| {
            let running = listing::start(room, &line);
            room.running.insert(name, running);
        })
        .await;
}

/// A command that subscribes and prints nothing of a message without a stamp. Nobody else may have
/// subscribed to that topic before it.
#[given(regex = r#"^(\w+) runs `([^`]+)` and listens to "([^"]*)"$"#)]
#[when(regex = r#"^(\w+) runs `([^`]+)` and listens to "([^"]*)"$"#)]
async fn runs_and_listens(scene: &mut Scene, name: String, line: String, topic: String) {
    scene
        .act(move |room| {
            let line = listing::with_port(room, &line);
            let running = Running::start(&line, room.directory(), None);
            room.running.insert(name, running);
            listing::until_heard(room, &topic);
        })
        .await;
}

/// Waits for the subscription of a command whose predecessor had one, which is known to be gone.
#[then(regex = r#"^a message to "([^"]*)" has a receiver$"#)]
async fn has_a_receiver(scene: &mut Scene, topic: String) {
    scene
        .act(move |room| listing::until_heard(room, &topic))
        .await;
}

#[then(regex = r#"^(\w+) prints a line with "([^"]*)"$"#)]
async fn prints_a_line_with(scene: &mut Scene, name: String, part: String) {
    scene
        .act(move |room| {
            let running = room.running.get_mut(&name).expect("it is running");
            running.line_with(&part);
        })
        .await;
}

#[then(regex = r#"^(\w+) warns "([^"]*)"$"#)]
async fn warns(scene: &mut Scene, name: String, part: String) {
    scene
        .act(move |room| room.running[&name].warns(&part))
        .await;
}

#[when(regex = r"^(\w+) is stopped$")]
async fn is_stopped(scene: &mut Scene, name: String) {
    scene
        .act(move |room| signal(room.running[&name].pid(), "TERM"))
        .await;
}

#[when(regex = r"^(\w+) is killed$")]
async fn is_killed(scene: &mut Scene, name: String) {
    scene
        .act(move |room| signal(room.running[&name].pid(), "KILL"))
        .await;
}

#[given(regex = r#"^its output is kept as "([^"]*)"$"#)]
#[when(regex = r#"^its output is kept as "([^"]*)"$"#)]
async fn its_output_is_kept(scene: &mut Scene, name: String) {
    scene
        .act(move |room| {
            let finished = room.finished.as_ref().expect("a command was run");
            room.write_file(&name, &finished.output);
        })
        .await;
}

#[then(regex = r#"^(\w+) prints "([^"]*)"$"#)]
async fn prints(scene: &mut Scene, name: String, expected: String) {
    scene
        .act(move |room| {
            let running = room.running.get_mut(&name).expect("it is running");
            assert_eq!(running.next_line(), expected);
        })
        .await;
}

#[then(regex = r"^(\w+) prints JSON with (.+)$")]
async fn prints_json(scene: &mut Scene, name: String, pairs: String) {
    scene
        .act(move |room| {
            let line = room
                .running
                .get_mut(&name)
                .expect("it is running")
                .next_line();
            let object: serde_json::Value =
                serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            for pair in pairs.split(" and ") {
                let (key, value) = pair.split_once('=').expect("a pair has a value");
                let expected: serde_json::Value =
                    serde_json::from_str(value).unwrap_or_else(|_| value.into());
                assert_eq!(object[key], expected, "{key} in {line}");
            }
        })
        .await;
}

#[given(regex = r"^(\w+) ends with code (\d+)$")]
#[then(regex = r"^(\w+) ends with code (\d+)$")]
async fn it_ends(scene: &mut Scene, name: String, code: i32) {
    scene
        .act(move |room| {
            if name != "it" {
                let running = room.running.remove(&name).expect("it is running");
                room.finished = Some(running.finish());
            }
            let finished = room.finished.as_ref().expect("a command was run");
            assert_eq!(finished.code, Some(code), "{finished:#?}");
        })
        .await;
}

#[then(regex = r#"^its output is "([^"]*)"$"#)]
async fn its_output_is(scene: &mut Scene, expected: String) {
    scene
        .act(move |room| {
            let finished = room.finished.as_ref().expect("a command was run");
            assert_eq!(
                finished.output.trim_end_matches('\n'),
                expected,
                "{finished:#?}"
            );
        })
        .await;
}

#[then("its output is:")]
async fn its_output_is_text(scene: &mut Scene, step: &Step) {
    let expected = text_of(step);
    scene
        .act(move |room| {
            let finished = room.finished.as_ref().expect("a command was run");
            assert_eq!(finished.output, expected, "{finished:#?}");
        })
        .await;
}

#[then(regex = r#"^its output mentions "([^"]*)"$"#)]
async fn its_output_mentions(scene: &mut Scene, part: String) {
    scene
        .act(move |room| {
            let finished = room.finished.as_ref().expect("a command was run");
            assert!(finished.output.contains(&part), "{finished:#?}");
        })
        .await;
}

/// Lines of the demonstration: what was done, then "named after 0.62 s", and "repaired after".
#[then("its output has the time at which each of these was named and repaired:")]
async fn its_output_has_the_times(scene: &mut Scene, step: &Step) {
    let incidents = text_of(step);
    scene
        .act(move |room| {
            let finished = room.finished.as_ref().expect("a command was run");
            for incident in incidents.lines() {
                for what in [": named after ", ": repaired after "] {
                    let lines = finished.output.lines();
                    let mut times = lines
                        .filter(|line| line.starts_with(incident))
                        .filter_map(|line| line.split_once(what)?.1.split_once(" s"))
                        .map(|(seconds, _)| seconds.parse::<f64>());
                    assert!(
                        times.any(|time| time.is_ok()),
                        "{incident}{what}: {finished:#?}"
                    );
                }
            }
        })
        .await;
}

#[then(regex = r#"^its errors mention "([^"]*)"$"#)]
async fn its_errors_mention(scene: &mut Scene, part: String) {
    scene
        .act(move |room| {
            let part = listing::with_port(room, &part);
            let finished = room.finished.as_ref().expect("a command was run");
            assert!(
                finished.errors.contains(&part),
                "`{}`: {finished:#?}",
                finished.line
            );
        })
        .await;
}
