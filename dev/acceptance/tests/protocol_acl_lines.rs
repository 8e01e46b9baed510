//! Lines of an access control list that people get wrong: each is named where the file is read.

use std::fs;
use std::process::Command;

use unbroken_acceptance::process::binary;
use unbroken_acceptance::raw::{Connect, Subscribe};
use unbroken_acceptance::{Client, Launch};

/// Its access control list is in `acl`.
const LISTENER: &str = "[[listeners]]\nport = 0\nallow_anonymous = true\npassword_file = \"users\"\nacl_file = \"acl\"\n";

/// Ann's password is `secret`.
fn users() -> String {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let file = directory.path().join("users");
    let mut command = Command::new(binary());
    command.args(["passwd", "-H", "sha512-pbkdf2"]).arg(&file);
    command.args(["ann", "-b", "secret"]);
    let ended = command.output().expect("the binary runs");
    assert!(ended.status.success(), "{ended:?}");
    fs::read_to_string(&file).expect("it was written")
}

#[test]
fn lines_that_may_not_mean_what_they_seem_to_are_logged_at_start_and_reload() {
    let broker = Launch::listeners(LISTENER)
        .file("users", &users())
        .file("acl", "user ann\ntopic a/#\npattern read b/%u\n")
        .start();
    broker.wait_for_log("acl:3:1");
    broker.wait_for_log("stands below `user ann`, but it is for every client");
    fs::write(
        broker.directory().join("acl"),
        "user ann\ntopic read a/%u\n",
    )
    .expect("writable");
    broker.reload();
    broker.wait_for_log("acl:2:1");
    broker.wait_for_log("means the characters %u and %c as they are");

    let mut check = Command::new(binary());
    check
        .args(["check", "-c"])
        .arg(broker.directory().join("unbroken.toml"));
    let told = check.output().expect("the binary runs").stdout;
    let told = String::from_utf8(told).expect("it is text");
    assert!(told.contains("acl:2:1: `topic a/%u` means"), "{told}");
}

#[test]
fn a_subscribe_line_of_one_user_refuses_no_filter_of_others() {
    let broker = Launch::listeners(LISTENER)
        .file("users", &users())
        .file(
            "acl",
            "topic read #\nuser ann\ntopic subscribe a/#\ntopic read #\n",
        )
        .start();
    let connect = Connect::v5("ann").user_name("ann").password("secret");
    let mut ann = Client::connect(broker.address(), &connect);
    let mut bob = broker.connect("bob");
    let filters = Subscribe::to("a/#", 0).and("b/#", 0);
    assert_eq!(ann.subscribe(&filters), [0, 0x87]);
    assert_eq!(bob.subscribe(&filters), [0, 0]);
}
