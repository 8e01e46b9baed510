//! Users, roles, rules, bans, and what is denied.

use serde_json::json;
use unbroken_acceptance::raw::Connect;
use unbroken_acceptance::{Client, Launch};

use crate::NOTHING;
use crate::http::{Admin, texts};

const STORED_USERS: &str = "[[listeners]]\nport = 0\nstored_users = true\n";

fn ann(id: &str, password: &str) -> Connect {
    Connect::v5(id).user_name("ann").password(password)
}

#[test]
fn users_and_roles_are_changed_while_clients_connect() {
    let admin = Admin::start(Launch::listeners(STORED_USERS).durable());
    admin.refused("PUT", "/users/ann", &json!({}), 400);
    admin.done("PUT", "/users/ann", &json!({"password": "secret"}));
    assert_eq!(
        admin.get("/users")["items"],
        json!([{"name": "ann", "roles": []}])
    );
    let connect = ann("c1", "secret");
    let _client = Client::connect(admin.broker.address(), &connect);
    let rules = json!([
        {"effect": "allow", "rule": "publish,subscribe,receive plant/#"},
        {"effect": "deny", "rule": "publish plant/off"},
    ]);
    admin.done(
        "PUT",
        "/roles/crew",
        &json!({"rules": rules, "users": ["ann"]}),
    );
    let roles = admin.get("/roles");
    assert_eq!(roles["items"][0]["rules"], rules, "{roles}");
    assert_eq!(roles["items"][0]["users"], json!(["ann"]), "{roles}");
    assert_eq!(
        admin.get("/users?search=a")["items"][0]["roles"],
        json!(["crew"])
    );
    let ask = |action: &str, topic: &str| {
        let asked = json!({"user": "ann", "client": "c1", "action": action, "topic": topic});
        let (status, answer) = admin.call("POST", "/access/explain", &asked);
        assert_eq!(status, 200, "{answer}");
        answer
    };
    assert_eq!(ask("publish", "plant/1")["allowed"], true);
    let denied = ask("publish", "plant/off");
    assert_eq!(
        (&denied["allowed"], &denied["role"]),
        (&json!(false), &json!("crew")),
        "{denied}"
    );
    let change = json!({"remove_rules": [rules[1]], "revoke": ["ann"], "grant": ["eve"]});
    admin.done("PATCH", "/roles/crew", &change);
    assert_eq!(admin.get("/roles")["items"][0]["users"], json!(["eve"]));
    let wrong = json!({"add_rules": [{"effect": "allow", "rule": "write a"}]});
    let why = admin.refused("PATCH", "/roles/crew", &wrong, 400);
    assert!(why.contains("`write` is not publish"), "{why}");
    admin.done(
        "PUT",
        "/users/ann",
        &json!({"password": "other", "roles": ["crew"]}),
    );
    admin.refused("PUT", "/users/ann", &json!({"roles": ["none"]}), 400);
    admin.done("DELETE", "/roles/crew", &NOTHING);
    admin.refused("DELETE", "/roles/crew", &NOTHING, 404);
    admin.done("DELETE", "/users/ann", &NOTHING);
    admin.refused("DELETE", "/users/ann", &NOTHING, 404);
}

#[test]
fn a_ban_ends_connections_until_it_is_removed() {
    let admin = Admin::start(Launch::config(""));
    let mut client = admin.broker.connect("loud");
    let ban = json!({"client": "loud", "for_s": 3600, "reason": "too loud"});
    admin.done("POST", "/bans", &ban);
    client.expect_disconnect(0x98);
    let mut again = Client::open(
        admin.broker.address(),
        unbroken_acceptance::raw::Version::V5,
    );
    again.send(Connect::v5("loud").encode());
    again.expect_connack_refusal(0x8A);
    let bans = admin.all("/bans", 1);
    assert_eq!(texts(&bans, "target"), ["loud"]);
    assert_eq!(bans[0]["is_automatic"], false);
    assert_eq!(bans[0]["reason"], "too loud");
    admin.done("POST", "/bans", &json!({"address": "10.0.0.0/8"}));
    assert_eq!(admin.all("/bans", 1).len(), 2);
    for (wrong, words) in [
        (json!({}), "exactly one"),
        (json!({"client": "a", "user": "b"}), "exactly one"),
        (json!({"address": "10.0.0"}), "no IP address"),
        (json!({"client": "a", "until": "tomorrow"}), "no time"),
        (
            json!({"client": "a", "until": "2020-01-01T00:00:00Z"}),
            "ended already",
        ),
    ] {
        let why = admin.refused("POST", "/bans", &wrong, 400);
        assert!(why.contains(words), "{why}");
    }
    admin.done("DELETE", "/bans?client=loud", &NOTHING);
    admin.refused("DELETE", "/bans?client=loud", &NOTHING, 404);
    let _client = admin.broker.connect("loud");
}

#[test]
fn denied_attempts_are_remembered() {
    let admin = Admin::start(Launch::listeners(STORED_USERS).durable());
    admin.done("PUT", "/users/ann", &json!({"password": "secret"}));
    let mut client = Client::open(
        admin.broker.address(),
        unbroken_acceptance::raw::Version::V5,
    );
    client.send(ann("guesser", "wrong").encode());
    client.expect_connack_refusal(0x86);
    let denied = admin.wait_for("/access/denied?search=guesser", |denied| {
        denied["items"][0].is_object()
    });
    let item = &denied["items"][0];
    assert_eq!(item["what"], "connect", "{denied}");
    assert_eq!(item["user"], "ann", "{denied}");
    assert_eq!(denied["missed"], 0, "{denied}");
}

#[test]
fn roles_of_callers_decide_what_they_may_change() {
    let admin = Admin::start(Launch::config(""));
    let (viewer, operator) = (admin.as_role("viewer"), admin.as_role("operator"));
    let message = json!({"topic": "plant/1", "payload": "on"}).to_string();
    let question = json!({"action": "publish", "topic": "plant/1"}).to_string();
    let ban = json!({"client": "loud"}).to_string();
    for (method, path, body, of_viewer, of_operator) in [
        ("GET", "/clients", "", 200, 200),
        ("GET", "/users", "", 200, 200),
        ("POST", "/access/explain", &*question, 200, 200),
        ("POST", "/publish", &*message, 403, 204),
        ("DELETE", "/sessions/none", "", 403, 404),
        ("POST", "/clients/none/disconnect", "", 403, 404),
        ("POST", "/bans", &*ban, 403, 403),
        ("PUT", "/users/ann", "{\"password\":\"secret\"}", 403, 403),
        ("DELETE", "/roles/none", "", 403, 403),
        ("POST", "/config/reload", "", 403, 403),
    ] {
        let path = format!("/api/v1{path}");
        for (caller, expected) in [(&viewer, of_viewer), (&operator, of_operator)] {
            let answer = caller.ask(method, &path, body);
            assert_eq!(answer.status, expected, "{method} {path}: {}", answer.body);
        }
    }
}
