//! Sessions of browsers: a cookie whose digest is here. They end with the process.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::secret::{digest, new_secret};
use crate::limits::{SESSION_IDLE_MAX, SESSION_TIME_MAX, SESSIONS_MAX, SESSIONS_OF_ACCOUNT_MAX};

/// Those that have begun and not ended, by the digest of the cookie.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<HashMap<String, Session>>);

/// One.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) account: String,
    /// What writes must repeat in a header, which no other site can read.
    pub(crate) csrf: String,
    pub(crate) expires_ms: i64,
    /// Its key.
    digest: String,
    began: Instant,
    used: Instant,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session of {:?}", self.account)
    }
}

impl Session {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.began) >= SESSION_TIME_MAX
            || now.duration_since(self.used) >= SESSION_IDLE_MAX
    }
}

impl Sessions {
    /// Begins one, if its account is current in a moment in which none of its sessions can be
    /// ended; returns it with the cookie's value.
    pub(crate) fn begin(
        &self,
        account: &str,
        (now, now_ms): (Instant, i64),
        is_current: impl FnOnce() -> bool,
    ) -> Result<Option<(Session, String)>, getrandom::Error> {
        let secret = new_secret()?;
        let length_ms = i64::try_from(SESSION_TIME_MAX.as_millis()).unwrap_or(i64::MAX);
        let session = Session {
            digest: digest(&secret),
            account: account.to_owned(),
            csrf: new_secret()?,
            expires_ms: now_ms.saturating_add(length_ms),
            began: now,
            used: now,
        };
        let mut all = self.lock();
        if !is_current() {
            return Ok(None);
        }
        all.retain(|_, session| !session.is_over(now));
        while all.values().filter(|it| it.account == account).count() >= SESSIONS_OF_ACCOUNT_MAX {
            remove_oldest(&mut all, |it| it.account == account);
        }
        if all.len() >= SESSIONS_MAX {
            remove_oldest(&mut all, |_| true);
        }
        all.insert(session.digest.clone(), session.clone());
        Ok(Some((session, secret)))
    }

    /// The session of a cookie, which is used now.
    pub(crate) fn find(&self, secret: &str, now: Instant) -> Option<Session> {
        let key = digest(secret);
        let mut all = self.lock();
        let session = all.get_mut(&key)?;
        if session.is_over(now) {
            all.remove(&key);
            return None;
        }
        session.used = now;
        Some(session.clone())
    }

    /// Whether it has not ended; this is no use of it.
    pub(crate) fn has(&self, session: &Session, now: Instant) -> bool {
        let all = self.lock();
        all.get(&session.digest).is_some_and(|it| !it.is_over(now))
    }

    pub(crate) fn end(&self, secret: &str) {
        self.lock().remove(&digest(secret));
    }

    /// Ends all of an account.
    pub(crate) fn end_of(&self, account: &str) {
        self.lock().retain(|_, session| session.account != account);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of those that were not used for the longest time.
fn remove_oldest(all: &mut HashMap<String, Session>, which: impl Fn(&Session) -> bool) {
    let of_them = all.iter().filter(|(_, session)| which(session));
    let oldest = of_them.min_by_key(|(_, session)| session.used);
    if let Some(key) = oldest.map(|(key, _)| key.clone()) {
        all.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn begin(sessions: &Sessions, account: &str, now: Instant) -> (Session, String) {
        let begun = sessions.begin(account, (now, 0), || true);
        begun.unwrap().expect("its account is current")
    }

    #[test]
    fn a_session_ends_when_it_is_idle_or_old() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let (_, idle) = begin(&sessions, "ann", start);
        let used = start + SESSION_IDLE_MAX / 2;
        assert!(sessions.find(&idle, used).is_some());
        assert!(sessions.find(&idle, used + SESSION_IDLE_MAX).is_none());
        assert!(sessions.find(&idle, used).is_none(), "it is gone");
        let (_, busy) = begin(&sessions, "ann", start);
        let mut now = start;
        while now < start + SESSION_TIME_MAX {
            assert!(sessions.find(&busy, now).is_some());
            now += SESSION_IDLE_MAX / 2;
        }
        assert!(sessions.find(&busy, now).is_none());
    }

    #[test]
    fn an_account_has_so_many_sessions_at_most() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let (_, first) = begin(&sessions, "ann", now);
        let (_, other) = begin(&sessions, "bob", now);
        let later = now + Duration::from_secs(1);
        for _ in 0..SESSIONS_OF_ACCOUNT_MAX {
            begin(&sessions, "ann", later);
        }
        assert!(sessions.find(&first, later).is_none());
        assert!(sessions.find(&other, later).is_some());
        sessions.end_of("bob");
        assert!(sessions.find(&other, later).is_none());
    }
}
