//! The authenticators of one listener, and how they are asked: one after the other, until one
//! answers.
//!
//! ```text
//! password file ─▶ stored users ─▶ certificate ─▶ tokens ─▶ HTTP hooks ─▶ anonymous ─▶ refused
//!      each: allow, deny, or "not mine": the next one is asked
//! ```
//!
//! Invariants:
//! - The order is that of [`ListenerAuth::new`], whatever the configuration's is.
//! - One answer decides: no later authenticator overrides a denial.
//! - A client that shows what an authenticator of its listener verifies is never anonymous.
//! - A refusal takes as long for a user that does not exist as for a wrong password: the stand-in
//!   hash is computed when nobody else has answered.
//!
//! Deliberately absent: threads and queues (`verifier`); what the parts verify.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use unbroken_broker_core::{Admission, ClientIdRules, Credentials, Grant, MountPoint};
use unbroken_mqtt_proto::ReasonCode;

use super::http_hook::HttpHook;
use super::recent_logins::{Login, RecentLogins};
use super::stored_users::StoredUsers;
use super::tokens::{TokenVerdict, TokenVerifier};
use crate::passwords::{Entry, Generation, Passwords, scram_keys};
use crate::scram::{ScramHash, ScramKeys};

/// The rules of one listener.
#[derive(Debug)]
pub(crate) struct ListenerAuth {
    /// Its name or address, for the log.
    pub(crate) label: Arc<str>,
    /// What it asks of client ids, which the shards decide by.
    pub(crate) client_ids: ClientIdRules,
    /// In which part of the topic tree its clients live, which the shards decide by.
    pub(crate) mount_point: Option<MountPoint>,
    methods: Box<[Method]>,
}

/// What a listener authenticates by.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuthSources {
    pub(crate) passwords: Option<Arc<Passwords>>,
    /// `None`: users of the store may not connect.
    pub(crate) stored_users: Option<Arc<StoredUsers>>,
    pub(crate) tokens: Vec<Arc<TokenVerifier>>,
    pub(crate) hooks: Vec<Arc<HttpHook>>,
    pub(crate) allow_anonymous: bool,
    pub(crate) client_ids: ClientIdRules,
    pub(crate) mount_point: Option<MountPoint>,
}

/// One authenticator.
#[derive(Clone, Debug)]
enum Method {
    /// Users and passwords of a file.
    PasswordFile(Arc<Passwords>),
    /// Users of the store.
    StoredUsers(Arc<StoredUsers>),
    /// The name in a certificate that the transport has verified.
    Certificate,
    /// Tokens of one issuer.
    Tokens(Arc<TokenVerifier>),
    /// A service is asked.
    Hook(Arc<HttpHook>),
    /// Nothing: a client without a name is let in.
    Anonymous,
}

/// What one authenticator says of a client.
#[derive(Debug)]
enum Answer {
    Allow(Grant),
    /// Why, as it is told the client, and for people.
    Deny(ReasonCode, &'static str),
    /// It shows nothing that this one verifies.
    NotMine,
    /// The answer takes a hash or a signature, which a shard does not compute.
    TakesLong,
    /// A thread of the hook has to ask its service.
    AskHook(Arc<HttpHook>),
}

/// What a service has said of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum HookVerdict {
    Allow(Grant),
    Deny,
    NotMine,
    /// It has not answered.
    Failed,
}

/// How far an attempt has come.
#[derive(Debug)]
pub(super) enum Step {
    Decided(Admission),
    /// It goes on where hashes are computed.
    TakesLong,
    /// It goes on with this hook.
    AskHook(Arc<HttpHook>),
}

/// A client that is being authenticated.
pub(super) struct Attempt {
    pub(super) credentials: Credentials,
    auth: Arc<ListenerAuth>,
    /// The method that is asked next.
    next: usize,
    /// A source of passwords does not have its user: it is refused as late as if one had.
    is_no_user: bool,
    /// What the hook that is asked next has said.
    verdict: Option<HookVerdict>,
    /// Whether a hash was computed for it.
    pub(super) has_hashed: bool,
}

/// Where an attempt is continued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum On {
    /// Nothing that takes long.
    Shard,
    /// Hashes.
    Thread,
}

impl ListenerAuth {
    /// The authenticators in the order in which they are asked.
    pub(crate) fn new(label: Arc<str>, sources: AuthSources) -> Self {
        let mut methods = Vec::new();
        methods.extend(sources.passwords.map(Method::PasswordFile));
        methods.extend(sources.stored_users.map(Method::StoredUsers));
        methods.push(Method::Certificate);
        methods.extend(sources.tokens.into_iter().map(Method::Tokens));
        methods.extend(sources.hooks.into_iter().map(Method::Hook));
        methods.extend(sources.allow_anonymous.then_some(Method::Anonymous));
        Self {
            label,
            client_ids: sources.client_ids,
            mount_point: sources.mount_point,
            methods: methods.into(),
        }
    }

    /// Its users and their passwords, if it has a file of them.
    pub(super) fn passwords(&self) -> Option<&Passwords> {
        self.methods.iter().find_map(|method| match method {
            Method::PasswordFile(passwords) => Some(&**passwords),
            _ => None,
        })
    }

    fn stored_users(&self) -> Option<&StoredUsers> {
        self.methods.iter().find_map(|method| match method {
            Method::StoredUsers(users) => Some(&**users),
            _ => None,
        })
    }

    /// What the password of a name is compared with that no source has: of the entries of all
    /// sources each is as likely.
    fn stand_in(&self, user: &str) -> Entry {
        let (file, stored) = (self.passwords(), self.stored_users());
        let of_file = file.map_or(0, Passwords::len);
        let entries = of_file + stored.map_or(0, StoredUsers::len);
        let by_file = file.map(|file| file.stand_in_for(user, entries));
        let by_store = || stored.map(|stored| stored.stand_in_for(user, entries));
        let position = by_file.or_else(by_store).unwrap_or(0);
        let of_store = |position| stored?.stand_in(position);
        position
            .checked_sub(of_file)
            .and_then(of_store)
            .or_else(|| file.map(|file| file.stand_in(position)))
            .unwrap_or_default()
    }

    /// Whether a client can show by SCRAM that it knows a password.
    pub(super) fn has_scram(&self) -> bool {
        self.passwords().is_some() || self.stored_users().is_some()
    }

    /// The entry of a user: a name that the file has is the file's.
    fn entry(&self, user: &str) -> Option<Entry> {
        let of_file = self.passwords().and_then(|file| file.find(user));
        of_file.or_else(|| self.stored_users()?.find(user))
    }

    /// The keys by which a client shows that it is this user, and whether it can.
    pub(super) fn scram_keys(&self, hash: ScramHash, user: &str) -> (ScramKeys, bool) {
        let (file, stored) = (self.passwords(), self.stored_users());
        // The hashes are the secret: with all of them, all passwords can be guessed at anyway.
        let mut secret = user.as_bytes().to_vec();
        let generations = [
            file.map(|file| file.generation().clone()),
            stored.map(StoredUsers::generation),
        ];
        for generation in generations.iter().flatten() {
            secret = hash.hmac(generation.as_bytes(), &secret);
        }
        let like = file.and_then(|file| file.scram_stand_in(hash, &secret));
        let like = like.or_else(|| stored?.scram_stand_in(hash, &secret));
        scram_keys(hash, self.entry(user).as_ref(), like.as_ref(), secret)
    }

    /// Names what a user's proof is judged by.
    pub(super) fn scram_generation(&self, user: &str) -> Generation {
        let entry = self.entry(user);
        entry.map_or_else(Generation::default, |entry| entry.generation().clone())
    }

    /// Whether one of them verifies what such a client shows.
    fn verifies(&self, credentials: &Credentials) -> bool {
        self.methods.iter().any(|method| match method {
            Method::PasswordFile(_) | Method::StoredUsers(_) => credentials.user_name.is_some(),
            Method::Certificate => credentials.peer.certificate.is_some(),
            Method::Tokens(_) => credentials.password.is_some(),
            Method::Hook(_) => credentials.user_name.is_some() || credentials.password.is_some(),
            Method::Anonymous => false,
        })
    }
}

impl Attempt {
    pub(super) const fn new(credentials: Credentials, auth: Arc<ListenerAuth>) -> Self {
        Self {
            credentials,
            auth,
            next: 0,
            is_no_user: false,
            verdict: None,
            has_hashed: false,
        }
    }

    /// Bytes that it holds while it waits.
    pub(super) fn bytes(&self) -> usize {
        let Credentials {
            client_id,
            user_name,
            password,
            ..
        } = &self.credentials;
        let user_name = user_name.as_ref().map_or(0, |name| name.len());
        let password = password.as_ref().map_or(0, |password| password.len());
        client_id.len() + user_name + password
    }

    /// The name or address of its listener.
    pub(super) fn label(&self) -> &str {
        &self.auth.label
    }

    /// A hook has answered: it is asked no more.
    pub(super) fn take_verdict(&mut self, verdict: HookVerdict) {
        self.verdict = Some(verdict);
    }

    /// The hooks that may have it in their queues.
    pub(super) fn hooks(auth: &ListenerAuth) -> impl Iterator<Item = &HttpHook> {
        auth.methods.iter().filter_map(|method| match method {
            Method::Hook(hook) => Some(&**hook),
            _ => None,
        })
    }

    /// Asks until one authenticator decides, or takes too long here.
    pub(super) fn proceed(&mut self, on: On, recent: &RecentLogins, now: Instant) -> Step {
        let auth = Arc::clone(&self.auth);
        while let Some(method) = auth.methods.get(self.next) {
            match self.ask(method, on, recent, now) {
                Answer::Allow(grant) => return Step::Decided(Admission::Granted(grant)),
                Answer::Deny(reason, detail) => {
                    let detail = self.deny(on, reason, detail);
                    let detail = Cow::Borrowed(detail);
                    return Step::Decided(Admission::Refused { reason, detail });
                }
                Answer::NotMine => self.next += 1,
                Answer::TakesLong => return Step::TakesLong,
                Answer::AskHook(hook) => return Step::AskHook(hook),
            }
        }
        if self.is_no_user && on == On::Shard {
            return Step::TakesLong;
        }
        self.hash_stand_in();
        Step::Decided(refused(if auth.verifies(&self.credentials) {
            ReasonCode::BadUserNameOrPassword
        } else {
            ReasonCode::NotAuthorized
        }))
    }

    /// A wrong token of a user that no source has looks like the wrong password of one that a
    /// source has.
    fn deny(&mut self, on: On, reason: ReasonCode, detail: &'static str) -> &'static str {
        if on == On::Shard || !self.is_no_user {
            return detail;
        }
        self.hash_stand_in();
        if reason != ReasonCode::BadUserNameOrPassword {
            return detail;
        }
        tracing::debug!(listener = self.label(), detail, "a login was refused");
        reason.name()
    }

    /// What a user would have cost, if a source of passwords was asked for one that it has not.
    fn hash_stand_in(&mut self) {
        if std::mem::take(&mut self.is_no_user) {
            let (user, password) = self.shown();
            let is_right = self.auth.stand_in(user).verify(password);
            debug_assert!(!is_right, "no source has such a user");
            self.has_hashed = true;
        }
    }

    fn ask(&mut self, method: &Method, on: On, recent: &RecentLogins, now: Instant) -> Answer {
        match method {
            Method::PasswordFile(passwords) => {
                let find = |user: &str| passwords.find(user);
                self.ask_passwords(find, on, recent, now)
            }
            Method::StoredUsers(users) => {
                let find = |user: &str| users.find(user);
                self.ask_passwords(find, on, recent, now)
            }
            Method::Certificate => match &self.credentials.peer.certificate {
                // The transport gives a name only where certificates name users.
                Some(user) => Answer::Allow(Grant::user(Arc::clone(user))),
                None => Answer::NotMine,
            },
            Method::Tokens(_) if self.credentials.password.is_none() => Answer::NotMine,
            Method::Tokens(_) if on == On::Shard => Answer::TakesLong,
            Method::Tokens(verifier) => self.ask_verifier(verifier),
            Method::Hook(hook) => self.ask_hook(hook, recent, now),
            Method::Anonymous if self.auth.verifies(&self.credentials) => Answer::NotMine,
            Method::Anonymous => Answer::Allow(Grant::anonymous()),
        }
    }

    fn ask_passwords(
        &mut self,
        find: impl FnOnce(&str) -> Option<Entry>,
        on: On,
        recent: &RecentLogins,
        now: Instant,
    ) -> Answer {
        if self.credentials.user_name.is_none() {
            return Answer::NotMine;
        }
        let (user, password) = self.shown();
        let Some(entry) = find(user) else {
            self.is_no_user = true;
            return Answer::NotMine;
        };
        let tag = recent.tag(&Login {
            user,
            password,
            listener: self.credentials.peer.listener,
            generation: entry.generation(),
        });
        if recent.knows(tag, now) {
            return Answer::Allow(Grant::user(user));
        }
        if on == On::Shard {
            return Answer::TakesLong;
        }
        let is_right = entry.verify(password);
        let answer = if is_right {
            recent.remember(tag, Instant::now());
            Answer::Allow(Grant::user(user))
        } else {
            let reason = ReasonCode::BadUserNameOrPassword;
            Answer::Deny(reason, reason.name())
        };
        self.has_hashed = true;
        answer
    }

    fn ask_verifier(&self, verifier: &TokenVerifier) -> Answer {
        let user_name = self.credentials.user_name.as_deref();
        let (_, password) = self.shown();
        match verifier.verify(user_name, password, SystemTime::now()) {
            TokenVerdict::Valid(grant) => Answer::Allow(grant),
            TokenVerdict::Invalid(why) => Answer::Deny(ReasonCode::BadUserNameOrPassword, why),
            TokenVerdict::Expired => {
                Answer::Deny(ReasonCode::NotAuthorized, "its token has expired")
            }
            TokenVerdict::NoKeys => Answer::Deny(
                ReasonCode::ServerUnavailable,
                "the keys of its token's issuer are not there yet",
            ),
            TokenVerdict::NotMine => Answer::NotMine,
        }
    }

    fn ask_hook(&mut self, hook: &Arc<HttpHook>, recent: &RecentLogins, now: Instant) -> Answer {
        let said = self.verdict.take();
        let said = said.or_else(|| hook.remembered(&self.credentials, recent, now));
        match said {
            None => Answer::AskHook(Arc::clone(hook)),
            Some(HookVerdict::Allow(grant)) => Answer::Allow(grant),
            Some(HookVerdict::Deny) => {
                let reason = ReasonCode::NotAuthorized;
                Answer::Deny(reason, "the service that was asked does not allow it")
            }
            Some(HookVerdict::NotMine) => Answer::NotMine,
            Some(HookVerdict::Failed) => Answer::Deny(
                ReasonCode::ServerUnavailable,
                "the service that has to allow it does not answer",
            ),
        }
    }

    /// User name and password, empty where there are none.
    fn shown(&self) -> (&str, &[u8]) {
        let user = self.credentials.user_name.as_deref();
        let password = self.credentials.password.as_deref();
        (user.unwrap_or_default(), password.unwrap_or_default())
    }
}

pub(super) fn refused(reason: ReasonCode) -> Admission {
    Admission::Refused {
        reason,
        detail: Cow::Borrowed(reason.name()),
    }
}

#[cfg(test)]
mod tests {
    use unbroken_broker_core::Peer;

    use super::*;

    fn file() -> Arc<Passwords> {
        let users = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/users");
        Arc::new(Passwords::read(users.as_ref()).unwrap())
    }

    /// What a client shows: user name, password, name in its certificate.
    type Shown<'a> = (Option<&'a str>, Option<&'a str>, Option<&'a str>);

    fn attempt(sources: &AuthSources, (user, password, certificate): Shown<'_>) -> Attempt {
        let auth = ListenerAuth::new("test".into(), sources.clone());
        let credentials = Credentials {
            client_id: "c".into(),
            user_name: user.map(Into::into),
            password: password.map(|password| password.as_bytes().into()),
            step: None,
            peer: Peer {
                certificate: certificate.map(Into::into),
                ..Peer::default()
            },
        };
        Attempt::new(credentials, Arc::new(auth))
    }

    fn user(name: &str) -> Admission {
        Admission::Granted(Grant::user(name))
    }

    fn decided(step: Step) -> Option<Admission> {
        match step {
            Step::Decided(admission) => Some(admission),
            Step::TakesLong | Step::AskHook(_) => None,
        }
    }

    /// `at_once`: a shard decides, without a hash.
    #[track_caller]
    fn check(sources: &AuthSources, shown: Shown<'_>, at_once: bool, expected: Admission) {
        let recent = RecentLogins::new([1; 32]);
        let mut attempt = attempt(sources, shown);
        let mut step = attempt.proceed(On::Shard, &recent, Instant::now());
        let is_decided = matches!(step, Step::Decided(_));
        assert_eq!(is_decided, at_once, "{shown:?}");
        if !is_decided {
            step = attempt.proceed(On::Thread, &recent, Instant::now());
        }
        let decided = decided(step);
        assert_eq!(decided, Some(expected), "{shown:?}");
        assert_eq!(attempt.has_hashed, !at_once, "{shown:?}");
    }

    #[test]
    fn the_first_authenticator_that_answers_decides() {
        let wrong = || refused(ReasonCode::BadUserNameOrPassword);
        let nobody = || refused(ReasonCode::NotAuthorized);
        let anonymous = || Admission::Granted(Grant::anonymous());
        let (alice, eve, secret) = (Some("alice"), Some("eve"), Some("secret"));
        let device = Some("device");

        let all = AuthSources {
            passwords: Some(file()),
            allow_anonymous: true,
            ..AuthSources::default()
        };
        check(&all, (alice, secret, None), false, user("alice"));
        check(&all, (alice, secret, device), false, user("alice"));
        check(&all, (alice, Some("no"), device), false, wrong());
        check(&all, (alice, None, None), false, wrong());
        check(&all, (eve, secret, device), true, user("device"));
        check(&all, (eve, secret, None), false, wrong());
        check(&all, (None, None, device), true, user("device"));
        check(&all, (None, None, None), true, anonymous());
        check(&all, (None, secret, None), true, anonymous());

        let open = AuthSources {
            allow_anonymous: true,
            ..AuthSources::default()
        };
        check(&open, (None, None, None), true, anonymous());
        check(&open, (eve, secret, None), true, anonymous());
        check(&open, (eve, secret, device), true, user("device"));

        let file = AuthSources {
            passwords: Some(file()),
            ..AuthSources::default()
        };
        check(&file, (None, None, None), true, nobody());
        check(&file, (None, secret, None), true, nobody());
        check(&file, (eve, secret, None), false, wrong());
        check(&AuthSources::default(), (eve, secret, None), true, nobody());
    }

    #[test]
    fn a_wrong_token_does_not_show_whether_the_file_has_its_user() {
        let rules = crate::config::Jwt {
            algorithms: vec!["HS256".to_owned()],
            ..Default::default()
        };
        let verifier = TokenVerifier::with_key(&rules, &[7; 32]).unwrap();
        let sources = AuthSources {
            passwords: Some(file()),
            tokens: vec![Arc::new(verifier)],
            ..AuthSources::default()
        };
        // {"alg":"HS256"}, {}, and no signature of it.
        let token = Some("eyJhbGciOiJIUzI1NiJ9.e30.AAAA");
        let wrong = || refused(ReasonCode::BadUserNameOrPassword);
        check(&sources, (Some("alice"), token, None), false, wrong());
        check(&sources, (Some("eve"), token, None), false, wrong());
    }

    #[test]
    fn a_user_of_an_earlier_authenticator_is_no_users_of_a_later_one() {
        let recent = RecentLogins::new([1; 32]);
        let all = AuthSources {
            passwords: Some(file()),
            allow_anonymous: true,
            ..AuthSources::default()
        };
        let shown = (Some("alice"), Some("no"), Some("alice"));
        let mut attempt = attempt(&all, shown);
        let on_shard = attempt.proceed(On::Shard, &recent, Instant::now());
        assert_eq!(decided(on_shard), None);
        let on_thread = attempt.proceed(On::Thread, &recent, Instant::now());
        assert_eq!(
            decided(on_thread),
            Some(refused(ReasonCode::BadUserNameOrPassword))
        );
    }
}
