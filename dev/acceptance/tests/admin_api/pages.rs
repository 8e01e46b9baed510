//! Pages of long lists: each entry is on one of them, and none is longer than asked for.

use std::collections::BTreeSet;

use unbroken_acceptance::raw::{Connect, Publish};
use unbroken_acceptance::{Client, Launch};

use crate::http::{Admin, texts};

/// More than the limit of any page, and than one look at a shard.
const SESSIONS: usize = 10_000;
const TOPICS: usize = 3_000;

#[test]
fn pages_of_ten_thousand_sessions_have_each_once() {
    let admin = Admin::start(Launch::config("").shards(2));
    for number in 0..SESSIONS {
        let connect = Connect::v311(&format!("session-{number}")).not_clean();
        Client::connect(admin.broker.address(), &connect).disconnect();
    }
    admin.wait_for("/node", |node| node["clients_connected"] == 0);
    let all: BTreeSet<_> = (0..SESSIONS)
        .map(|number| format!("session-{number}"))
        .collect();
    for limit in [1_000, 333] {
        let listed = admin.all("/sessions", limit);
        let names = texts(&listed, "client_id");
        assert_eq!(names.len(), SESSIONS, "pages of {limit}");
        let names: BTreeSet<_> = names.into_iter().map(str::to_owned).collect();
        assert_eq!(names, all, "pages of {limit}");
    }
    let found = admin.all("/sessions?search=session-77&connected=false", 50);
    let expected = all.iter().filter(|name| name.contains("session-77"));
    let found: BTreeSet<_> = texts(&found, "client_id").into_iter().collect();
    assert_eq!(found, expected.map(String::as_str).collect());
    assert_eq!(admin.all("/sessions?connected=true", 1_000).len(), 0);
    assert_eq!(admin.all("/sessions?search=nobody", 1_000).len(), 0);
}

#[test]
fn pages_of_retained_messages_and_of_the_tree_have_each_topic_once() {
    let admin = Admin::start(Launch::config("").shards(2));
    let mut publisher = admin.broker.connect("publisher");
    let messages = (0..TOPICS).map(|n| Publish::new(&format!("site/{n}/state"), "on"));
    publisher.publish_all(messages.map(|message| message.qos(1).retained()));
    let all: BTreeSet<_> = (0..TOPICS).map(|n| format!("site/{n}/state")).collect();
    for limit in [1_000, 70] {
        let listed = admin.all("/retained?filter=site/%23", limit);
        let topics: Vec<_> = texts(&listed, "topic");
        assert_eq!(topics.len(), TOPICS, "pages of {limit}");
        let topics: BTreeSet<_> = topics.into_iter().map(str::to_owned).collect();
        assert_eq!(topics, all, "pages of {limit}");
        let levels = admin.all("/topics?parent=site", limit);
        let names = texts(&levels, "name");
        assert!(names.is_sorted(), "pages of {limit}");
        assert_eq!(names.len(), TOPICS, "pages of {limit}");
    }
    let found = admin.all("/retained?search=/77/", 10);
    assert_eq!(texts(&found, "topic"), ["site/77/state"]);
}
