//! The broker's own life: how it is set up, signalled, and ended.

use crate::Launch;
use crate::raw::Version;
use cucumber::gherkin::Step;
use cucumber::{given, then, when};

use crate::features::command::Running;
use crate::features::room::Room;
use crate::features::scene::Scene;

#[given("a broker")]
async fn a_broker(scene: &mut Scene) {
    scene.act(Room::start).await;
}

#[given("a broker with the configuration:")]
async fn a_broker_with_configuration(scene: &mut Scene, step: &Step) {
    let config = text_of(step);
    scene
        .act(move |room| {
            room.start_as(Launch::config(&config));
        })
        .await;
}

#[given("a broker with listeners of its own:")]
async fn a_broker_with_listeners(scene: &mut Scene, step: &Step) {
    let config = text_of(step);
    scene
        .act(move |room| {
            room.start_as(Launch::listeners(&config));
        })
        .await;
}

/// `./` in the configuration is the directory of the files that the scenario has written.
#[given("a broker beside these files, with listeners of its own:")]
async fn a_broker_beside_files(scene: &mut Scene, step: &Step) {
    let config = text_of(step);
    scene
        .act(move |room| {
            let here = format!("\"{}/", room.directory().display());
            room.start_as(Launch::listeners(&config.replace("\"./", &here)));
        })
        .await;
}

#[given(expr = "a broker with {int} shards")]
async fn a_broker_with_shards(scene: &mut Scene, count: u32) {
    scene
        .act(move |room| {
            room.start_as(Launch::default().shards(count));
        })
        .await;
}

#[given(regex = r#"^a broker that lets in only the user "([^"]*)" with the password "([^"]*)"$"#)]
async fn a_broker_with_a_password_file(scene: &mut Scene, user: String, password: String) {
    scene
        .act(move |room| {
            let line = format!("unbroken passwd users {user} -b {password}");
            let made = Running::start(&line, room.directory(), None).finish();
            assert_eq!(made.code, Some(0), "{made:?}");
            start_with_password_file(room, "users");
        })
        .await;
}

#[given(regex = r#"^a broker whose listener has the password file "([^"]*)"$"#)]
async fn a_broker_with_this_password_file(scene: &mut Scene, name: String) {
    scene
        .act(move |room| start_with_password_file(room, &name))
        .await;
}

fn start_with_password_file(room: &mut Room, name: &str) {
    let path = room.directory().join(name);
    let config = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\npassword_file = \"{}\"\n",
        path.display()
    );
    room.start_as(Launch::listeners(&config));
}

#[given(expr = "clients speak MQTT {word}")]
async fn clients_speak(scene: &mut Scene, version: String) {
    scene
        .act(move |room| room.version = Version::from_text(&version))
        .await;
}

#[when("the configuration is changed to:")]
async fn configuration_is_changed(scene: &mut Scene, step: &Step) {
    let config = text_of(step);
    scene
        .act(move |room| room.broker().rewrite_config(&config))
        .await;
}

#[when("the operator reloads the configuration")]
async fn operator_reloads(scene: &mut Scene) {
    scene.act(|room| room.broker().reload()).await;
}

#[when("the operator stops the broker")]
async fn operator_stops_the_broker(scene: &mut Scene) {
    scene.act(|room| room.broker().ask_to_end()).await;
}

#[then(expr = "the broker ends with code {int}")]
async fn broker_ends(scene: &mut Scene, code: i32) {
    scene
        .act(move |room| assert_eq!(room.broker_mut().wait().code(), Some(code)))
        .await;
}

#[given("a second passes")]
#[when("a second passes")]
async fn a_second_passes(scene: &mut Scene) {
    scene.act(|room| room.server().let_a_second_pass()).await;
}

#[then(regex = r#"^the broker's log mentions "([^"]*)"$"#)]
async fn log_mentions(scene: &mut Scene, part: String) {
    scene
        .act(move |room| {
            room.broker().wait_for_log(&part);
        })
        .await;
}

#[then(regex = r#"^the broker's log does not mention "([^"]*)"$"#)]
async fn log_does_not_mention(scene: &mut Scene, part: String) {
    scene
        .act(move |room| {
            let log = room.broker().log();
            assert!(!log.contains(&part), "{part:?} is in the log");
        })
        .await;
}

/// The text under a step, with the line break at its end that a file has.
pub(super) fn text_of(step: &Step) -> String {
    let text = step
        .docstring
        .as_deref()
        .expect("the step has a text under it");
    format!("{}\n", text.trim_matches('\n'))
}
