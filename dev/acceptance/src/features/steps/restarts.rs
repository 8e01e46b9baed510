//! A broker that is killed and started again where it was, and the disk under it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::disk::Fault;
use crate::{Launch, User};
use cucumber::gherkin::Step;
use cucumber::{given, then, when};

use crate::features::room::Room;
use crate::features::scene::Scene;
use crate::features::steps::brokers::text_of;

#[given("a durable broker")]
async fn a_durable_broker(scene: &mut Scene) {
    start(scene, Launch::default().durable()).await;
}

#[given("a durable broker with the configuration:")]
async fn a_durable_broker_with_configuration(scene: &mut Scene, step: &Step) {
    start(scene, Launch::config(&text_of(step)).durable()).await;
}

#[given("a durable broker on a disk that may fail")]
async fn a_durable_broker_on_a_disk(scene: &mut Scene) {
    start(scene, Launch::default().on_a_disk_that_may_fail()).await;
}

#[given("a durable broker on a disk that may fail, with the configuration:")]
async fn a_durable_broker_on_a_disk_with_configuration(scene: &mut Scene, step: &Step) {
    let launch = Launch::config(&text_of(step));
    start(scene, launch.on_a_disk_that_may_fail()).await;
}

#[given(
    regex = r"^a broker of a user with (HOME|XDG_STATE_HOME) set, and no data directory named$"
)]
async fn a_users_broker(scene: &mut Scene, variable: String) {
    let user = match variable.as_str() {
        "HOME" => User::Home,
        _ => User::StateHome,
    };
    start(scene, Launch::default().durable().by(user)).await;
}

#[given("a broker of a user that keeps everything in memory")]
async fn a_users_broker_in_memory(scene: &mut Scene) {
    start(scene, Launch::default().by(User::Home)).await;
}

async fn start(scene: &mut Scene, launch: Launch) {
    scene
        .act(move |room| {
            room.start_as(launch);
        })
        .await;
}

#[when("the broker is killed")]
async fn is_killed(scene: &mut Scene) {
    scene.act(kill).await;
}

#[when("the broker is started again")]
async fn is_started_again(scene: &mut Scene) {
    scene.act(start_again).await;
}

#[when("the broker is killed and started again")]
async fn is_killed_and_started_again(scene: &mut Scene) {
    scene
        .act(|room| {
            kill(room);
            start_again(room);
        })
        .await;
}

fn kill(room: &mut Room) {
    room.broker_mut().kill();
    room.forget_clients();
}

fn start_again(room: &mut Room) {
    room.broker_mut().start_again();
    room.forget_clients();
}

#[when("the power is cut and comes back")]
async fn the_power_is_cut(scene: &mut Scene) {
    scene
        .act(|room| {
            kill(room);
            let lost = room.broker().disk().lose_all();
            lost.expect("its files can be written");
            start_again(room);
        })
        .await;
}

#[when("the ten seconds pass that a broker gives clients to come back")]
async fn ten_seconds_pass(scene: &mut Scene) {
    scene
        .act(|room| {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_secs(11) {
                room.server().let_a_second_pass();
            }
        })
        .await;
}

#[then(regex = r#"^its store is in "([^"]*)" of the user's home$"#)]
async fn its_store_is_in(scene: &mut Scene, place: String) {
    scene
        .act(move |room| {
            let store = room.broker().home().join(place).join("store");
            assert!(
                store.join("format").is_file(),
                "{} is none",
                store.display()
            );
        })
        .await;
}

#[then("the user's home is empty")]
async fn the_home_is_empty(scene: &mut Scene) {
    scene
        .act(|room| {
            let home = fs::read_dir(room.broker().home()).expect("it can be listed");
            let names: Vec<_> = home
                .map(|it| it.expect("it can be listed").path())
                .collect();
            assert_eq!(names, [""; 0].map(PathBuf::from));
        })
        .await;
}

#[when("its journal is overwritten with null bytes")]
async fn journal_is_overwritten(scene: &mut Scene) {
    scene
        .act(|room| overwrite(&room.broker().data(), |bytes| bytes.fill(0)))
        .await;
}

#[when("a sector in the middle of its oldest journal is overwritten with null bytes")]
async fn sector_is_overwritten(scene: &mut Scene) {
    scene
        .act(|room| {
            overwrite(&room.broker().data(), |bytes| {
                let used = bytes.iter().rposition(|byte| *byte != 0);
                let middle = used.expect("something is in it") / 2;
                bytes[middle..middle + 512].fill(0);
            });
        })
        .await;
}

/// Changes the oldest journal.
fn overwrite(data: &Path, change: impl Fn(&mut Vec<u8>)) {
    let files = fs::read_dir(data.join("store/engine")).expect("the store has an engine");
    let paths = files.map(|file| file.expect("it can be listed").path());
    let journals = paths.filter(|path| path.extension().is_some_and(|it| it == "jnl"));
    let journal = journals.min().expect("the engine has a journal");
    let mut bytes = fs::read(&journal).expect("it can be read");
    change(&mut bytes);
    fs::write(journal, bytes).expect("it can be written");
}

/// The last of the engine's trees is that of the newest messages, which a start reads.
#[when("what was written first is damaged on its disk")]
async fn what_was_written_first_is_damaged(scene: &mut Scene) {
    scene
        .act(|room| {
            let trees = room.broker().data().join("store/engine/keyspaces");
            let names = fs::read_dir(&trees).expect("the engine has trees");
            let names = names.map(|name| name.expect("it can be listed").file_name());
            let mut numbers: Vec<u32> = names
                .filter_map(|name| name.to_str()?.parse().ok())
                .collect();
            numbers.sort_unstable();
            let older = numbers[numbers.len() - 2].to_string();
            let tables = trees.join(older).join("tables");
            for table in fs::read_dir(tables).expect("the tree has tables") {
                let table = table.expect("it can be listed").path();
                let mut bytes = fs::read(&table).expect("it can be read");
                let part = bytes.len() / 4;
                bytes[part..2 * part].fill(0);
                fs::write(table, bytes).expect("it can be written");
            }
        })
        .await;
}

#[then("its damaged data lies beside the new")]
async fn damaged_data_lies_beside(scene: &mut Scene) {
    scene
        .act(|room| {
            let files = fs::read_dir(room.broker().data()).expect("it can be listed");
            let mut paths = files.map(|file| file.expect("it can be listed").path());
            let is_report = paths.any(|path| path.join("damage.txt").is_file());
            assert!(is_report, "nothing was set aside");
        })
        .await;
}

#[then(regex = r#"^the report there mentions "([^"]*)"$"#)]
async fn report_mentions(scene: &mut Scene, part: String) {
    scene
        .act(move |room| {
            let files = fs::read_dir(room.broker().data()).expect("it can be listed");
            let mut paths = files.map(|file| file.expect("it can be listed").path());
            let report = paths.find_map(|path| fs::read_to_string(path.join("damage.txt")).ok());
            let report = report.expect("nothing was set aside");
            assert!(report.contains(&part), "{part:?} is not in it:\n{report}");
        })
        .await;
}

#[then(
    regex = r#"^(?:it does not start again|another broker on its data does not start) and says "([^"]*)"$"#
)]
async fn does_not_start(scene: &mut Scene, part: String) {
    scene
        .act(move |room| {
            let (status, log) = room.broker().start_another();
            assert!(!status.success(), "it ended with {status}");
            assert!(log.contains(&part), "{part:?} is not in the log:\n{log}");
        })
        .await;
}

#[when(regex = r"^the disk (is full|does not write any more|does not sync once)$")]
async fn the_disk_fails(scene: &mut Scene, how: String) {
    let fault = match how.as_str() {
        "is full" => Fault::Full,
        "does not write any more" => Fault::Write,
        _ => Fault::Sync,
    };
    scene
        .act(move |room| {
            let disk = room.broker().disk();
            disk.fail(fault, 0).expect("it can be told");
        })
        .await;
}

#[when("the broker loses what is not safe on its disk")]
async fn loses_what_is_not_safe(scene: &mut Scene) {
    scene
        .act(|room| {
            let lost = room.broker().disk().lose_all();
            lost.expect("its files can be written");
        })
        .await;
}
