//! Backup and restore.

use super::*;

/// A store that was restored says that it was.
pub(crate) fn without_store_health(export: &str) -> String {
    let lines = export.split_inclusive('\n');
    lines
        .filter(|line| !line.contains(r#""standing""#))
        .collect()
}

#[test]
fn a_backup_is_restored_as_it_was_by_file_and_by_pipe() {
    let store = Filled::new();
    let at = |name: &str| store.temp.path().join(name);
    let export = |path: &Path| run(path, &["db", "export"]).well().text;
    let before = export(&store.path());
    let (file, copy) = (at("monday.backup"), at("copy"));
    let made = store.run(&["backup", file.to_str().unwrap()]).well();
    assert!(
        made.errors.starts_with("20 messages, 10 values: "),
        "{made:?}"
    );
    assert_eq!(mode(&file), 0o600, "it is for this user alone");
    let again = store.run(&["backup", file.to_str().unwrap()]);
    again.badly(73, "it is there already");
    run(&copy, &["restore", file.to_str().unwrap()]).well();
    let restored = |path: &Path| without_store_health(&export(path));
    assert_eq!(restored(&copy), before);
    assert_eq!(mode(&copy), 0o700);
    let again = run(&copy, &["restore", file.to_str().unwrap()]);
    again.badly(73, "is not empty");

    let piped = store.run(&["backup", "-"]).well();
    assert_eq!(piped.bytes, fs::read(&file).unwrap());
    let other = at("other");
    let mut child = start(command(&other, &["restore", "-"]).stdin(Stdio::piped()));
    child.stdin.take().unwrap().write_all(&piped.bytes).unwrap();
    Ended::from(child.wait_with_output().unwrap()).well();
    assert_eq!(restored(&other), before);

    let cut = at("cut");
    fs::write(&cut, &piped.bytes[..piped.bytes.len() - 1]).unwrap();
    let refused = run(&at("none"), &["restore", cut.to_str().unwrap()]);
    refused.badly(65, "the backup is damaged at byte");
    run(&at("none"), &["db", "export"]).badly(66, "there is no store in it");
    let mut names: Vec<_> = fs::read_dir(store.temp.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected = ["copy", "cut", "monday.backup", "none", "other", "store"];
    assert_eq!(names, expected);
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_backup_that_was_killed_is_reported_with_the_next_step() {
    let store = Filled::new();
    let file = store.temp.path().join("monday.backup");
    fs::write(store.temp.path().join("monday.backup.partial"), "half").unwrap();
    let refused = store.run(&["backup", file.to_str().unwrap()]);
    refused.badly(73, "remove it");
}

#[test]
fn a_store_is_restored_beside_what_a_killed_broker_has_left_and_into_no_other_users_directory() {
    let store = Filled::new();
    let at = |name: &str| store.temp.path().join(name);
    let file = at("monday.backup");
    store.run(&["backup", file.to_str().unwrap()]).well();
    let restore = ["restore", file.to_str().unwrap()];
    let left = at("left");
    fs::create_dir(&left).unwrap();
    drop(UnixListener::bind(left.join("control")).unwrap());
    fs::write(left.join("failed"), "unbroken-failed 1\nno space\n").unwrap();
    run(&left, &restore).well();
    assert!(!left.join("failed").exists(), "it was another store's");
    let export = ["db", "export"];
    assert_eq!(
        without_store_health(&run(&left, &export).well().text),
        store.run(&export).well().text
    );

    let others = at("others");
    fs::create_dir(&others).unwrap();
    // Only root can give a directory to somebody else.
    if chown(&others, Some(12_345), None).is_ok() {
        run(&others, &restore).badly(77, "belongs to user 12345, and this is user 0");
        assert_eq!(fs::read_dir(&others).unwrap().count(), 0);
    }
}
