//! Signing in: a name and a password, or the link that makes the first account.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::accounts::{check_name, check_password};
use super::book::Account;
use super::sessions::Session;
use super::{Identity, Role, no_random};
use crate::limits::{PASSWORD_BYTES_MAX, SESSION_TIME_MAX};
use crate::problem::Problem;
use crate::time::now_ms;

/// Why a sign-in failed.
#[derive(Debug)]
pub(crate) enum Refusal {
    Problem(Problem),
    /// Too many attempts: try again after this time.
    Wait(Duration),
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Problem(problem) => problem.into_response(),
            Self::Wait(wait) => {
                let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
                let detail = format!("too many attempts: try again in {seconds} s");
                let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, detail);
                ([(header::RETRY_AFTER, seconds.to_string())], problem).into_response()
            }
        }
    }
}

impl Identity {
    /// The header that sets a session's cookie.
    pub(crate) fn new_cookie(&self, secret: &str, is_secure: bool) -> String {
        let secure = if is_secure { "; Secure" } else { "" };
        let (name, seconds) = (&self.rules().cookie, SESSION_TIME_MAX.as_secs());
        format!("{name}={secret}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
    }

    /// The header that removes it.
    pub(crate) fn no_cookie(&self) -> String {
        let name = &self.rules().cookie;
        format!("{name}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict")
    }

    /// The page that takes a link; its secret is in the fragment, which no proxy sees or logs.
    pub(crate) fn link_url(&self, secret: &str) -> Option<String> {
        let url = self.rules().url.as_ref()?;
        Some(format!("{url}/#link={secret}"))
    }

    /// Begins a session; returns it with the role and the cookie's value. An unknown name takes as
    /// long as a wrong password.
    pub(crate) async fn sign_in(
        &self,
        (name, password): (String, String),
        address: Option<IpAddr>,
    ) -> Result<(Session, Role, String), Refusal> {
        if check_name(&name).is_err() || password.len() > PASSWORD_BYTES_MAX {
            return Err(wrong().into()); // no account has such a name or password
        }
        let throttle = &self.0.throttle;
        let begun = throttle.begin(address, &name, Instant::now());
        begun.map_err(Refusal::Wait)?;
        let book = self.store().book();
        let account = book.account(&name).cloned();
        let hash = account.as_ref().map_or(STAND_IN, |it| &it.password);
        let is_right = self.matches(hash.to_owned(), password).await?;
        let Some(account) = account.filter(|_| is_right) else {
            let from = address.map(|address| address.to_string());
            tracing::warn!(name, from, "a sign-in to the admin server failed");
            return Err(wrong().into());
        };
        throttle.succeeded(address, &name);
        Ok(self.begin_session(&account)?)
    }

    /// Makes the first account, and begins a session.
    pub(crate) async fn use_link(
        &self,
        token: &str,
        (name, password): (String, String),
        address: Option<IpAddr>,
    ) -> Result<(Session, Role, String), Refusal> {
        check_name(&name)?;
        check_password(&password)?;
        let throttle = &self.0.throttle;
        let begun = throttle.begin(address, LINK, Instant::now());
        begun.map_err(Refusal::Wait)?;
        let is_good = self.0.link.is_good(token, Instant::now());
        if !is_good || !self.store().book().accounts.is_empty() {
            let detail = "the link was used, is too old, or there is an account already: \
                          `unbroken admin link` makes a new one while there is no account";
            return Err(Problem::new(StatusCode::FORBIDDEN, detail).into());
        }
        throttle.succeeded(address, LINK);
        let account = self.add_first_account(name, password).await?;
        Ok(self.begin_session(&account)?)
    }

    /// Ends the session of a cookie.
    pub(crate) fn sign_out(&self, headers: &axum::http::HeaderMap) {
        if let Some(secret) = self.cookie(headers) {
            self.0.sessions.end(secret);
        }
    }

    /// Changes the caller's own password, which the old one shows. All its sessions end.
    pub(crate) async fn change_own_password(
        &self,
        name: &str,
        (old, new): (String, String),
        address: Option<IpAddr>,
    ) -> Result<(), Refusal> {
        let book = self.store().book();
        let Some(account) = book.account(name) else {
            let detail = "only an account has a password, and no account made this request";
            return Err(Problem::new(StatusCode::CONFLICT, detail).into());
        };
        let begun = self.0.throttle.begin(address, name, Instant::now());
        begun.map_err(Refusal::Wait)?;
        if old.len() > PASSWORD_BYTES_MAX || !self.matches(account.password.clone(), old).await? {
            let detail = "the old password is wrong; nothing was changed";
            return Err(Problem::new(StatusCode::FORBIDDEN, detail).into());
        }
        self.0.throttle.succeeded(address, name);
        let change = super::AccountChange {
            password: Some(new),
            role: None,
        };
        self.change_account(name, change).await?;
        Ok(())
    }

    /// Of two that use the link at once, one makes the account.
    async fn add_first_account(&self, name: String, password: String) -> Result<Account, Problem> {
        let account = Account {
            name,
            role: Role::Admin,
            password: self.hash(password).await?,
            created_ms: now_ms(),
        };
        let first = account.clone();
        let add = move |book: &mut super::book::Book| {
            if !book.accounts.is_empty() {
                let detail = "another account was made meanwhile: sign in with it";
                return Err(Problem::new(StatusCode::CONFLICT, detail));
            }
            book.accounts.push(first);
            Ok(())
        };
        self.change(add).await?;
        self.0.link.end();
        Ok(account)
    }

    /// Of an account whose password was shown. If it has another one by now, or is removed, all its
    /// sessions have ended or will, and none begins.
    fn begin_session(&self, account: &Account) -> Result<(Session, Role, String), Problem> {
        let now = (Instant::now(), now_ms());
        let is_current = || {
            let book = self.store().book();
            let found = book.account(&account.name);
            found.is_some_and(|found| found.password == account.password)
        };
        let begun = self.0.sessions.begin(&account.name, now, is_current);
        let (session, secret) = begun.map_err(no_random)?.ok_or_else(wrong)?;
        Ok((session, account.role, secret))
    }
}

fn wrong() -> Problem {
    let detail = "the name or the password is wrong";
    Problem::new(StatusCode::UNAUTHORIZED, detail)
}

/// The throttle's name for attempts with a link; no account has a `:` in its name, and no name with
/// one is tried.
const LINK: &str = "link:";

/// The hash of an account that does not exist: no password fits it, and it costs as much as a new
/// one.
const STAND_IN: &str = "$argon2id$v=19$m=19456,t=2,p=1$c3RhbmQtaW4gb2Ygbm9ib2R5$\
                        AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

#[cfg(test)]
mod tests {
    use unbroken_broker::passwords::{Scheme, check_hash, make_hash};

    use super::*;

    #[test]
    fn no_session_begins_with_a_password_that_was_changed_meanwhile() {
        let identity = Identity::open(None, crate::identity::Rules::default()).unwrap();
        let shown = Account {
            name: "ann".to_owned(),
            role: Role::Viewer,
            password: "old hash".to_owned(),
            created_ms: 0,
        };
        let set = |account: &Account| {
            let account = account.clone();
            let changed = identity.store().change(move |book| {
                book.accounts = vec![account];
                Ok(())
            });
            changed.unwrap();
        };
        set(&shown);
        assert!(identity.begin_session(&shown).is_ok());
        set(&Account {
            password: "new hash".to_owned(),
            ..shown.clone()
        });
        assert!(identity.begin_session(&shown).is_err());
    }

    #[test]
    fn an_unknown_name_costs_what_a_known_one_does() {
        check_hash(STAND_IN).unwrap();
        let cost = |hash: &str| hash.split('$').take(4).collect::<Vec<_>>().join("$");
        let made = make_hash(b"a password", Scheme::Argon2id).unwrap();
        assert_eq!(cost(STAND_IN), cost(&made));
        let bytes = |hash: &str| hash.rsplit('$').next().map(str::len);
        assert_eq!(bytes(STAND_IN), bytes(&made));
    }
}
