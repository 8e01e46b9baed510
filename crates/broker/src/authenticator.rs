//! Authentication: decides each CONNECT by the authenticators of the listener that it came to.
//!
//! They are asked one after the other until one answers (`chain`). A CONNECT that needs no hash is
//! decided at once, on the shard's thread, and so is one whose login succeeded a short time ago
//! (`recent_logins`). Separate threads verify the others (`verifier`): good password hashes are
//! slow on purpose, and a shard that computed one would delay all its clients.
//!
//! ```text
//! CONNECT ─▶ chain of the listener ─▶ queue of its address ─▶ verifier: the chain goes on ─▶ event
//!              │ granted, refused       │ refused by name       │
//!              ▼                        ▼                       └─▶ remembered
//! ```
//!
//! A request whose client no longer waits, or has closed its connection, is not verified.
//!
//! Invariants:
//! - Each request has exactly one answer: at once, or by [`DriverEvent::Admission`], or none if its
//!   client no longer waits.
//! - A user name that was not verified is not a user: the client is anonymous.
//! - A request is decided by the rules in force when it was made.
//! - What a login costs others depends on how often its address has failed, never on how often it
//!   was right.
//!
//! Deliberately absent: rights (`broker-core` asks for them); where the steps of an enhanced
//! authentication are kept (`broker-core` has them with the connection).

mod chain;
mod enhanced;
mod failures;
mod http_client;
mod http_hook;
mod login_queue;
mod pending;
mod recent_logins;
mod stored_users;
mod tokens;
mod verifier;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_broker_core::{
    Admission, AuthStep, ClientIdRules, ConnectionId, Credentials, MountPoint, Peer, ShardId,
};
use unbroken_mqtt_proto::ReasonCode;

use crate::bans::Bans;
use crate::channel::EventSender;
use crate::rates::RateTable;
use crate::source::Source;
use chain::{Attempt, On, Step, refused};
pub(crate) use chain::{AuthSources, ListenerAuth};
pub(crate) use enhanced::Decision;
pub use http_client::HttpClientError;
pub(crate) use http_hook::HttpHook;
pub use http_hook::{HookError, check_hook};
use login_queue::Refusal;
use pending::PendingLogins;
use recent_logins::RecentLogins;
pub(crate) use stored_users::StoredUsers;
pub use tokens::{KeyError, TokenError, check_tokens};
pub(crate) use tokens::{TokenVerdict, TokenVerifier};
use verifier::{Common, Verification};
pub(crate) use verifier::{Verifier, verifier_threads};

/// The rules of all listeners, and the rates of their clients.
#[derive(Debug, Default)]
pub(crate) struct AuthRules {
    /// By their position in the configuration.
    pub(crate) listeners: Vec<Arc<ListenerAuth>>,
    /// Whose tokens some of them accept.
    pub(crate) tokens: Vec<Arc<TokenVerifier>>,
    /// What clients may send in a second, and how many of them may connect.
    pub(crate) rates: Arc<RateTable>,
}

impl AuthRules {
    /// The rules of one listener; `None`: it is gone since.
    pub(crate) fn listener(&self, number: u16) -> Option<&Arc<ListenerAuth>> {
        self.listeners.get(usize::from(number))
    }

    /// What listeners ask of client ids.
    pub(crate) fn client_ids(&self) -> Arc<[ClientIdRules]> {
        let listeners = self.listeners.iter();
        listeners.map(|auth| auth.client_ids.clone()).collect()
    }

    /// The mount points of listeners.
    pub(crate) fn mount_points(&self) -> Arc<[Option<MountPoint>]> {
        let listeners = self.listeners.iter();
        listeners.map(|auth| auth.mount_point.clone()).collect()
    }
}

/// Requests authentication; one for each shard.
#[derive(Debug)]
pub(crate) struct Authenticator {
    shard: ShardId,
    pending: Arc<PendingLogins<Verification>>,
    common: Arc<Common>,
    bans: Arc<Bans>,
}

/// So many verifiers, and an authenticator for each shard; `answers` are channels to the shards.
/// `boot_key` is random.
pub(crate) fn authenticator(
    answers: Vec<EventSender>,
    boot_key: [u8; 32],
    threads: usize,
    bans: &Arc<Bans>,
) -> (Vec<Authenticator>, Vec<Verifier>) {
    let shards = u8::try_from(answers.len()).expect("a shard's number is a u8");
    let common = Arc::new(Common::new(RecentLogins::new(boot_key), answers));
    let pending = Arc::new(PendingLogins::new(threads));
    let verifiers = (0..threads).map(|_| Verifier::new(&pending)).collect();
    let authenticators = (0..shards)
        .map(|shard| Authenticator {
            shard: ShardId(shard),
            pending: Arc::clone(&pending),
            common: Arc::clone(&common),
            bans: Arc::clone(bans),
        })
        .collect();
    (authenticators, verifiers)
}

impl Authenticator {
    /// The decision if no password is to be verified; otherwise it comes as an event, if it comes
    /// within `timeout`.
    pub(crate) fn authenticate(
        &self,
        auth_rules: &AuthRules,
        (connection, credentials): (ConnectionId, Credentials),
        now: Instant,
        timeout: Duration,
    ) -> Option<Admission> {
        let Some(listener_auth) = auth_rules.listener(credentials.peer.listener) else {
            return Some(refused(ReasonCode::NotAuthorized)); // a listener that is gone since
        };
        if let Some(detail) = self.ban(&credentials, now) {
            return Some(banned(detail));
        }
        let source = Source::of(credentials.peer.address.map(|address| address.ip()));
        let mut attempt = Attempt::new(credentials, Arc::clone(listener_auth));
        let step = attempt.proceed(On::Shard, &self.common.recent, now);
        let bytes = attempt.bytes();
        let login = Verification {
            shard: self.shard,
            connection,
            deadline: now + timeout,
            attempt,
            common: Arc::clone(&self.common),
        };
        let pushed = match step {
            Step::Decided(admission) => return Some(admission),
            Step::TakesLong => self.pending.push(now, source, (login, bytes), timeout),
            Step::AskHook(hook) => hook.push(now, source, login),
        };
        pushed.err().map(admission_of)
    }

    /// The next step of an enhanced authentication, decided at once: its keys are stored.
    pub(crate) fn authenticate_by_steps(
        &self,
        auth_rules: &AuthRules,
        (credentials, step): (Credentials, AuthStep),
        now: Instant,
    ) -> Decision {
        if let Some(detail) = self.ban(&credentials, now) {
            return Decision::Admission(banned(detail));
        }
        let listener_auth = auth_rules.listener(credentials.peer.listener);
        let Some(auth) = listener_auth.filter(|auth| auth.has_scram()) else {
            return Decision::Admission(refused(ReasonCode::BadAuthenticationMethod));
        };
        let source = Source::of(credentials.peer.address.map(|address| address.ip()));
        let may_fail = self.pending.may_fail(now, source);
        let recent = &self.common.recent;
        let user_name = credentials.user_name.as_deref();
        let (is_again, mut tag) = (step.is_again, None);
        let may_prove = |user: &str| {
            let known = enhanced::tag(recent, user, &credentials.peer, auth);
            tag = Some(known);
            let is_itself = is_again && user_name == Some(user);
            may_fail || is_itself || recent.knows(known, now)
        };
        let decision = enhanced::take(auth, user_name, step, may_prove);
        match (&decision, tag) {
            (Decision::Admission(Admission::Granted(_)), Some(tag)) => recent.remember(tag, now),
            (Decision::Admission(admission), tag) if verifier::is_fault(admission) => {
                if may_fail {
                    self.pending.note_failure(now, source);
                } else if let Some(tag) = tag {
                    // One guess for each login at most.
                    recent.forget(tag);
                }
            }
            _ => {}
        }
        decision
    }

    /// Why a client is banned, as far as its CONNECT shows.
    fn ban(&self, credentials: &Credentials, now: Instant) -> Option<&'static str> {
        let address = credentials.peer.address.map(|address| address.ip());
        let user_name = credentials.user_name.as_deref();
        address
            .and_then(|address| self.bans.of_address(address, now))
            .or_else(|| self.bans.of_client(&credentials.client_id))
            .or_else(|| self.bans.of_user(user_name?))
    }

    /// The last word about a client from this address, whichever source has decided: a user that
    /// is banned by now is refused, and a failed login is counted.
    pub(crate) fn review(
        &self,
        admission: Admission,
        address: Option<SocketAddr>,
        now: Instant,
    ) -> Admission {
        match &admission {
            Admission::Granted(grant) => {
                let user = grant.user.as_deref();
                let ban = user.and_then(|user| self.bans.of_user(user));
                ban.map_or(admission, banned)
            }
            Admission::Refused { reason, .. } => {
                if let Some(address) = address
                    && *reason == ReasonCode::BadUserNameOrPassword
                    && let Some(ban) = self.bans.note_failure(address.ip(), now)
                {
                    tracing::warn!(
                        address = %ban.address,
                        duration = ?ban.left,
                        "the address is banned: too many logins from it have failed"
                    );
                }
                admission
            }
        }
    }

    /// The client has closed this connection, and does not wait for the answer.
    pub(crate) fn cancel(&self, auth_rules: &AuthRules, connection: ConnectionId, peer: &Peer) {
        let source = Source::of(peer.address.map(|address| address.ip()));
        let shard = self.shard;
        let is_it = |login: &Verification| login.connection == connection && login.shard == shard;
        self.pending.remove(source, is_it);
        let listener_auth = auth_rules.listener(peer.listener);
        for hook in listener_auth
            .into_iter()
            .flat_map(|auth| Attempt::hooks(auth))
        {
            hook.remove(source, is_it);
        }
    }
}

fn admission_of(refusal: Refusal) -> Admission {
    let (reason, detail) = match refusal {
        Refusal::Full => (
            ReasonCode::ServerBusy,
            "too many logins wait for verification",
        ),
        Refusal::TooSlow => (
            ReasonCode::ServerBusy,
            "its password would not be checked in time: others wait",
        ),
        Refusal::TooManyFailures => (
            ReasonCode::ConnectionRateExceeded,
            "too many logins from its address have failed; more of them are not checked for now",
        ),
    };
    Admission::Refused {
        reason,
        detail: Cow::Borrowed(detail),
    }
}

const fn banned(detail: &'static str) -> Admission {
    Admission::Refused {
        reason: ReasonCode::Banned,
        detail: Cow::Borrowed(detail),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use unbroken_broker_core::Grant;

    use super::*;
    use crate::channel::{DriverEvent, EventReceiver, event_channel};
    use crate::passwords::{Passwords, Scheme, make_hash};
    use crate::scram::ScramHash;
    use crate::scram::tests::last_of;

    const TIMEOUT: Duration = Duration::from_hours(1);

    /// A client with the rules of its listener.
    struct TestClient {
        authenticator: Authenticator,
        auth_rules: AuthRules,
        now: Instant,
    }

    impl TestClient {
        fn authenticate(&self, serial: u32, password: &str) -> Option<Admission> {
            self.authenticate_within(serial, password, TIMEOUT)
        }

        fn authenticate_within(
            &self,
            serial: u32,
            password: &str,
            timeout: Duration,
        ) -> Option<Admission> {
            let connection = connection(serial);
            let credentials = Credentials {
                client_id: "c".into(),
                user_name: Some("alice".into()),
                password: Some(password.as_bytes().into()),
                step: None,
                peer: Peer::default(),
            };
            let verification = (connection, credentials);
            self.authenticator
                .authenticate(&self.auth_rules, verification, self.now, timeout)
        }
    }

    const fn connection(serial: u32) -> ConnectionId {
        ConnectionId { index: 0, serial }
    }

    fn granted() -> Admission {
        Admission::Granted(Grant::user("alice"))
    }

    fn rules(users: &Path) -> AuthRules {
        let sources = AuthSources {
            passwords: Some(Arc::new(Passwords::read(users).unwrap())),
            ..AuthSources::default()
        };
        rules_of(sources)
    }

    fn rules_of(sources: AuthSources) -> AuthRules {
        AuthRules {
            listeners: vec![Arc::new(ListenerAuth::new("test".into(), sources))],
            ..AuthRules::default()
        }
    }

    fn one_listener() -> (TestClient, Verifier, EventReceiver) {
        let users = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/users");
        let (outside, receiver) = event_channel();
        let (mut authenticators, mut verifiers) =
            authenticator(vec![outside], [7; 32], 1, &Arc::default());
        let client = TestClient {
            authenticator: authenticators.remove(0),
            auth_rules: rules(users.as_ref()),
            now: Instant::now(),
        };
        (client, verifiers.remove(0), receiver)
    }

    /// The answers so far, by the serial number of their connection.
    fn answers(receiver: &mut EventReceiver) -> Vec<(u32, Admission)> {
        let mut answers = Vec::new();
        while let Ok(event) = receiver.try_recv() {
            match event {
                DriverEvent::Admission {
                    connection,
                    admission,
                } => answers.push((connection.serial, admission)),
                other => panic!("{other:?}"),
            }
        }
        answers
    }

    #[test]
    fn a_password_of_a_client_past_its_deadline_is_not_verified() {
        let (client, verifier, mut receiver) = one_listener();
        assert_eq!(
            client.authenticate_within(1, "secret", Duration::ZERO),
            None
        );
        assert_eq!(client.authenticate(2, "secret"), None);
        drop(client);
        verifier.run();
        assert_eq!(answers(&mut receiver), [(2, granted())]);
    }

    #[test]
    fn a_password_of_a_closed_connection_is_not_verified() {
        let (client, verifier, mut receiver) = one_listener();
        for serial in 1..4 {
            assert_eq!(client.authenticate(serial, "secret"), None);
        }
        let peer = Peer::default();
        let rules = &client.auth_rules;
        client.authenticator.cancel(rules, connection(1), &peer);
        client.authenticator.cancel(rules, connection(9), &peer);
        drop(client);
        verifier.run();
        assert_eq!(answers(&mut receiver), [(2, granted()), (3, granted())]);
    }

    #[test]
    fn a_login_that_succeeded_is_granted_at_once_until_the_file_changes() {
        let (mut client, mut verifier, mut receiver) = one_listener();
        assert_eq!(client.authenticate(1, "secret"), None);
        assert_eq!(client.authenticate(2, "wrong"), None);
        verifier.run_until_idle();
        let wrong = refused(ReasonCode::BadUserNameOrPassword);
        let expected = [(1, granted()), (2, wrong)];
        assert_eq!(answers(&mut receiver), expected);
        assert_eq!(client.authenticate(3, "secret"), Some(granted()));
        assert_eq!(client.authenticate(4, "wrong"), None, "it is hashed again");

        let directory = tempfile::tempdir().unwrap();
        let changed = directory.path().join("users");
        let text = include_str!("../testdata/users");
        std::fs::write(&changed, text).unwrap();
        client.auth_rules = rules(&changed);
        let same = client.authenticate(5, "secret");
        assert_eq!(same, Some(granted()), "read again, with the same content");
        std::fs::write(&changed, text.replace("carol", "caroline")).unwrap();
        client.auth_rules = rules(&changed);
        assert_eq!(client.authenticate(6, "secret"), None);
    }

    #[test]
    fn an_address_that_has_failed_too_often_still_gets_in_whom_it_got_in_before() {
        let (client, mut verifier, mut receiver) = one_listener();
        assert_eq!(client.authenticate(0, "secret"), None);
        verifier.run_until_idle();
        let timeout = Duration::from_secs(1);
        let mut last = None;
        for serial in 1..100 {
            last = client.authenticate_within(serial, "wrong", timeout);
            verifier.run_until_idle();
        }
        let Some(Admission::Refused { reason, detail }) = last else {
            panic!("{last:?}");
        };
        assert_eq!(reason, ReasonCode::ConnectionRateExceeded);
        assert!(detail.contains("too many logins"), "{detail}");
        assert!(answers(&mut receiver).len() < 99, "some were not hashed");
        let known = client.authenticate_within(100, "secret", timeout);
        assert_eq!(known, Some(granted()));
    }

    /// All steps of SCRAM; `again`: as this user, who is let in already.
    fn prove(client: &TestClient, user: &str, password: &str, again: Option<&str>) -> Admission {
        let take = |data: &str, exchange| {
            let credentials = Credentials {
                client_id: "c".into(),
                user_name: again.map(Into::into),
                password: None,
                step: None,
                peer: Peer::default(),
            };
            let step = AuthStep {
                method: "SCRAM-SHA-512".into(),
                data: Some(data.as_bytes().into()),
                exchange,
                is_again: again.is_some(),
            };
            let authenticator = &client.authenticator;
            authenticator.authenticate_by_steps(&client.auth_rules, (credentials, step), client.now)
        };
        let bare = format!("n={user},r=x");
        let Decision::Challenge(answer, exchange) = take(&format!("n,,{bare}"), None) else {
            panic!("the first step proves nothing");
        };
        let answer = String::from_utf8(answer.into()).unwrap();
        let last = last_of(ScramHash::Sha512, password, &bare, &answer);
        match take(&last, Some(exchange)) {
            Decision::Admission(admission) => admission,
            Decision::Challenge(..) => panic!("there is no third step"),
        }
    }

    #[test]
    fn a_user_proves_itself_from_an_address_at_which_others_have_failed() {
        let (client, _verifier, _receiver) = one_listener();
        let reason = |user, password, again| match prove(&client, user, password, again) {
            Admission::Granted(_) => ReasonCode::Success,
            Admission::Refused { reason, .. } => reason,
        };
        assert_eq!(reason("alice", "secret", None), ReasonCode::Success);
        let wrong = ReasonCode::BadUserNameOrPassword;
        let too_many = ReasonCode::ConnectionRateExceeded;
        assert_eq!(reason("eve", "no", None), wrong);
        let mut last = wrong;
        for _ in 0..100 {
            last = reason("eve", "no", None);
        }
        assert_eq!(last, too_many);
        assert_eq!(reason("alice", "secret", None), ReasonCode::Success);
        assert_eq!(reason("alice", "Secret", None), wrong);
        assert_eq!(reason("alice", "secret", None), too_many, "one guess only");
        let again = Some("alice");
        assert_eq!(reason("eve", "secret", again), too_many);
        assert_eq!(reason("alice", "secret", again), ReasonCode::Success);
        assert_eq!(reason("alice", "secret", None), ReasonCode::Success);
    }

    #[test]
    fn the_first_source_that_has_a_name_decides_and_the_next_knows_the_others() {
        let (mut client, mut verifier, mut receiver) = one_listener();
        let stored = Arc::new(StoredUsers::default());
        let hash = |password: &[u8]| make_hash(password, Scheme::Pbkdf2).unwrap();
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/users");
        let file = Arc::new(Passwords::read(file.as_ref()).unwrap());
        let both = |passwords| AuthSources {
            passwords,
            stored_users: Some(Arc::clone(&stored)),
            ..AuthSources::default()
        };
        client.auth_rules = rules_of(both(Some(file)));
        stored.set("alice", &hash(b"of the store"));
        assert_eq!(client.authenticate(1, "of the store"), None);
        assert_eq!(client.authenticate(2, "secret"), None);
        verifier.run_until_idle();
        let wrong = || refused(ReasonCode::BadUserNameOrPassword);
        assert_eq!(answers(&mut receiver), [(1, wrong()), (2, granted())]);

        client.auth_rules = rules_of(both(None));
        assert_eq!(client.authenticate(3, "secret"), None, "another source");
        assert_eq!(client.authenticate(4, "of the store"), None);
        verifier.run_until_idle();
        assert_eq!(answers(&mut receiver), [(3, wrong()), (4, granted())]);
        stored.set("bob", &hash(b"his"));
        let again = client.authenticate(5, "of the store");
        assert_eq!(again, Some(granted()), "it is remembered");
        stored.remove("alice");
        assert_eq!(client.authenticate(6, "of the store"), None);
        verifier.run_until_idle();
        assert_eq!(answers(&mut receiver), [(6, wrong())]);
    }

    #[test]
    fn clients_of_one_user_are_hashed_once_when_they_come_together() {
        let (client, mut verifier, mut receiver) = one_listener();
        for serial in 0..50 {
            assert_eq!(client.authenticate(serial, "secret"), None);
        }
        let hashed = verifier.run_until_idle();
        assert_eq!((hashed, answers(&mut receiver).len()), (1, 50));
    }
}
