//! What a service is asked, and what it answers: JSON.
//!
//! ```text
//! {"user": "ann", "password": "…", "client_id": "c1", "listener": "plant", "address": "10.0.0.7",
//!  "certificate": "name"}
//! {"result": "allow" | "deny" | "ignore", "user": "ann", "roles": ["r"], "claims": {"k": "v"},
//!  "expires": 2000000000}
//! ```
//!
//! Members without a value are left out of the question; of the answer only `result` is needed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use unbroken_broker_core::{Claims, Credentials, Grant};

use crate::authenticator::chain::HookVerdict;
use crate::authenticator::recent_logins::{LoginTag, RecentLogins};
use crate::authenticator::tokens::{after, text_of};

#[derive(Serialize)]
struct Question<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<&'a str>,
    /// One that is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    password_base64: Option<String>,
    client_id: &'a str,
    listener: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<&'a str>,
}

#[derive(Deserialize)]
struct Reply {
    result: Outcome,
    user: Option<String>,
    roles: Option<Vec<String>>,
    claims: Option<Map<String, Value>>,
    /// Seconds since 1970.
    expires: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Allow,
    Deny,
    Ignore,
}

/// The body of a question.
pub(super) fn of(credentials: &Credentials, listener: &str) -> Vec<u8> {
    let shown = credentials.password.as_deref();
    let password = shown.and_then(|password| std::str::from_utf8(password).ok());
    let is_binary = password.is_none();
    let question = Question {
        user: credentials.user_name.as_deref(),
        password,
        password_base64: shown.filter(|_| is_binary).map(|it| STANDARD.encode(it)),
        client_id: &credentials.client_id,
        listener,
        address: address(credentials),
        certificate: credentials.peer.certificate.as_deref(),
    };
    serde_json::to_vec(&question).expect("texts and their names are JSON")
}

/// Names all that is asked.
pub(super) fn tag(credentials: &Credentials, recent: &RecentLogins) -> LoginTag {
    // A member that is missing is another one than an empty one.
    let optional = |member: Option<&[u8]>| member.map_or_else(Vec::new, |it| [b"=", it].concat());
    let peer = &credentials.peer;
    let address = address(credentials);
    recent.tag_of(&[
        &optional(credentials.user_name.as_deref().map(str::as_bytes)),
        &optional(credentials.password.as_deref()),
        credentials.client_id.as_bytes(),
        &peer.listener.to_le_bytes(),
        &optional(address.as_deref().map(str::as_bytes)),
        &optional(peer.certificate.as_deref().map(str::as_bytes)),
    ])
}

fn address(credentials: &Credentials) -> Option<String> {
    let address = credentials.peer.address?.ip().to_canonical();
    Some(address.to_string())
}

/// What an answer says; an error is for people.
pub(super) fn verdict(credentials: &Credentials, answer: &[u8]) -> Result<HookVerdict, String> {
    let reply: Reply = serde_json::from_slice(answer)
        .map_err(|error| format!("its answer cannot be understood: {error}"))?;
    match reply.result {
        Outcome::Deny => return Ok(HookVerdict::Deny),
        Outcome::Ignore => return Ok(HookVerdict::NotMine),
        Outcome::Allow => {}
    }
    let until = match reply.expires {
        None => None,
        Some(end) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let left = end - now.unwrap_or_default().as_secs_f64();
            if left <= 0.0 || left.is_nan() {
                return Ok(HookVerdict::Deny);
            }
            after(left)
        }
    };
    let roles = reply.roles.unwrap_or_default();
    let roles = roles.into_iter().map(Arc::from).collect();
    let values = values(reply.claims.unwrap_or_default())?;
    let claims = Claims::new(roles, values).map_err(|error| error.to_string())?;
    let user = reply.user.map(Arc::from);
    Ok(HookVerdict::Allow(Grant {
        user: user.or_else(|| credentials.user_name.as_deref().map(Arc::from)),
        claims: (!claims.is_empty()).then(|| Arc::new(claims)),
        until,
        proof: None,
    }))
}

/// Texts, numbers and flags; `null` is none.
fn values(claims: Map<String, Value>) -> Result<BTreeMap<Box<str>, Box<str>>, String> {
    let present = claims.into_iter().filter(|(_, value)| !value.is_null());
    let values = present.map(|(name, value)| match text_of(&value) {
        Some(text) => Ok((name.into(), text.into())),
        None => Err(format!(
            "its answer cannot be understood: the claim `{name}` is no text, number or flag"
        )),
    });
    values.collect()
}

#[cfg(test)]
mod tests {
    use unbroken_broker_core::Peer;

    use super::*;

    fn credentials(user: Option<&str>, password: Option<&[u8]>) -> Credentials {
        Credentials {
            client_id: "c1".into(),
            user_name: user.map(Into::into),
            password: password.map(Into::into),
            step: None,
            peer: Peer {
                address: Some("[::ffff:192.0.2.7]:4321".parse().unwrap()),
                ..Peer::default()
            },
        }
    }

    #[test]
    fn a_question_has_what_the_client_shows() {
        let ask = |user, password| {
            let question = of(&credentials(user, password), "plant");
            String::from_utf8(question).unwrap()
        };
        assert_eq!(
            ask(Some("ann"), Some(b"a\"b")),
            r#"{"user":"ann","password":"a\"b","client_id":"c1","listener":"plant","address":"192.0.2.7"}"#
        );
        assert_eq!(
            ask(None, Some(&[0xff, 0])),
            r#"{"password_base64":"/wA=","client_id":"c1","listener":"plant","address":"192.0.2.7"}"#
        );
        assert_eq!(
            ask(None, None),
            r#"{"client_id":"c1","listener":"plant","address":"192.0.2.7"}"#
        );
    }

    #[test]
    fn another_question_has_another_tag() {
        let recent = RecentLogins::new([1; 32]);
        let base = || credentials(Some("ann"), Some(b"secret"));
        let known = tag(&base(), &recent);
        assert!(tag(&base(), &recent) == known);
        let changes: [fn(&mut Credentials); 8] = [
            |it| it.user_name = Some("bob".into()),
            |it| it.user_name = Some("".into()),
            |it| it.user_name = None,
            |it| it.password = Some(b"Secret"[..].into()),
            |it| it.client_id = "c2".into(),
            |it| it.peer.listener = 1,
            |it| it.peer.address = None,
            |it| it.peer.certificate = Some("ann".into()),
        ];
        for change in changes {
            let mut other = base();
            change(&mut other);
            assert!(tag(&other, &recent) != known, "{:?}", of(&other, "l"));
        }
        let mut moved = base();
        moved.peer.address = Some("192.0.2.7:1".parse().unwrap());
        assert!(tag(&moved, &recent) == known, "the port does not count");
    }

    #[test]
    fn an_answer_says_allow_deny_or_ignore_and_nothing_else_counts() {
        let check = |answer: &str| verdict(&credentials(Some("ann"), None), answer.as_bytes());
        let allow = |name: &str| Ok(HookVerdict::Allow(Grant::user(name)));
        assert_eq!(check(r#"{"result":"allow"}"#), allow("ann"));
        assert_eq!(
            check(r#"{"result":"allow","user":"bob","x":1}"#),
            allow("bob")
        );
        assert_eq!(
            check(r#"{"result":"deny","user":"bob"}"#),
            Ok(HookVerdict::Deny)
        );
        assert_eq!(check(r#"{"result":"ignore"}"#), Ok(HookVerdict::NotMine));
        let over = r#"{"result":"allow","expires":1000000000}"#;
        assert_eq!(check(over), Ok(HookVerdict::Deny));
        let with_roles = r#"{"result":"allow","roles":["r"],"claims":{"site":"n"}}"#;
        let Ok(HookVerdict::Allow(grant)) = check(with_roles) else {
            panic!("it is allowed");
        };
        let claims = grant.claims.unwrap();
        assert_eq!(
            (claims.roles().next(), claims.value("site")),
            (Some("r"), Some("n"))
        );
        let without = r#"{"result":"allow","user":null,"roles":null,"claims":null,"expires":null}"#;
        assert_eq!(check(without), allow("ann"));
        let of_kinds = r#"{"result":"allow","claims":{"n":7,"f":true,"none":null}}"#;
        let Ok(HookVerdict::Allow(grant)) = check(of_kinds) else {
            panic!("it is allowed");
        };
        let claims = grant.claims.unwrap();
        let found = ["n", "f", "none"].map(|name| claims.value(name));
        assert_eq!(found, [Some("7"), Some("true"), None]);
        for wrong in [
            "",
            "allow",
            "{}",
            r#"{"result":"ALLOW"}"#,
            r#"{"result":true}"#,
            r#"{"result":"allow","roles":"r"}"#,
            r#"{"result":"allow","expires":"soon"}"#,
            r#"{"result":"allow","claims":{"a":[1]}}"#,
        ] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
        let much = "x".repeat(9_000);
        assert!(check(&format!(r#"{{"result":"allow","roles":["{much}"]}}"#)).is_err());
    }
}
