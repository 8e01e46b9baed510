//! A service that is asked over HTTP whether a client may connect.
//!
//! ```text
//! attempt ─▶ remembered answer? ─▶ queue of its address ─▶ thread: POST ─▶ the chain goes on
//!              │ allow, deny          │ refused by name      │ no answer: refused (0x88)
//! ```
//!
//! Invariants:
//! - Without a usable answer nobody is let in, and no later authenticator is asked.
//! - A failure of the service costs its client's address nothing.
//! - An answer is remembered by all that was asked, under a key of this start; a failure is not.
//!
//! Deliberately absent: retries. A client comes again by itself.

mod cache;
mod question;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use unbroken_broker_core::Credentials;
use ureq::http::HeaderValue;

use super::chain::HookVerdict;
use super::http_client::{HttpClient, HttpClientError, without_query};
use super::login_queue::Refusal;
use super::pending::{Pending, PendingLogins};
use super::recent_logins::{LoginTag, RecentLogins};
use super::verifier::Verification;
use crate::bounds::{AUTHORIZATION_BYTES, HOOK_ANSWER_BYTES, HOOK_REPORT_PAUSE};
use crate::config::HttpAuth;
use crate::files;
use crate::source::Source;
use cache::Cache;

/// One `[[http_auth]]` table. Dropping it ends its threads.
pub(crate) struct HttpHook {
    pending: PendingLogins<Verification>,
    service: Arc<Service>,
}

/// What its threads share.
struct Service {
    rules: HttpAuth,
    client: HttpClient,
    authorization: Option<HeaderValue>,
    cache: Mutex<Cache>,
    health: Mutex<Health>,
}

/// What the log has to know of a service that fails.
#[derive(Debug, Default)]
struct Health {
    /// Failures since it has answered last.
    failures: u64,
    /// Whether the log has one of them.
    is_reported: bool,
    /// The last line about a failure: answers in between do not make the next one due.
    reported: Option<Instant>,
}

impl Health {
    /// It has answered: how often it had failed before, if the log knows of that.
    fn answered(&mut self) -> Option<u64> {
        let failures = std::mem::take(&mut self.failures);
        std::mem::take(&mut self.is_reported).then_some(failures)
    }

    /// It has failed: how often by now, if that is to be reported.
    fn failed(&mut self, now: Instant) -> Option<u64> {
        self.failures += 1;
        let is_due = |at: Instant| now.saturating_duration_since(at) >= HOOK_REPORT_PAUSE;
        if !self.reported.is_none_or(is_due) {
            return None;
        }
        self.reported = Some(now);
        self.is_reported = true;
        Some(self.failures)
    }
}

/// Why an `[[http_auth]]` table cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HookError {
    /// A file cannot be read.
    #[error("http_auth `{name}`: cannot read {}: {source}", path.display())]
    Unreadable {
        /// The table.
        name: String,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file has no value of the header `Authorization`.
    #[error("http_auth `{name}`: {} is not one line of visible ASCII characters", path.display())]
    Authorization {
        /// The table.
        name: String,
        /// The file.
        path: PathBuf,
    },
    /// The service cannot be asked.
    #[error("http_auth `{name}`: {source}")]
    Client {
        /// The table.
        name: String,
        /// What is wrong.
        source: HttpClientError,
    },
    /// The system refused a thread.
    #[error("http_auth `{name}`: cannot start a thread: {source}")]
    Thread {
        /// The table.
        name: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Whether a table can be used, with the files that it names. Nobody is asked.
pub fn check_hook(rules: &HttpAuth) -> Result<(), HookError> {
    Service::new(rules).map(drop)
}

/// How many requests may be under way.
fn connections(rules: &HttpAuth) -> usize {
    usize::try_from(rules.connections).unwrap_or(1).max(1)
}

fn authorization(rules: &HttpAuth, path: &Path) -> Result<HeaderValue, HookError> {
    let text = files::read_text(path, AUTHORIZATION_BYTES);
    let text = text.map_err(|source| HookError::Unreadable {
        name: rules.name.clone(),
        path: path.to_owned(),
        source,
    })?;
    let value = Some(text.trim()).filter(|text| !text.is_empty() && text.is_ascii());
    let value = value.and_then(|text| HeaderValue::from_str(text).ok());
    let mut value = value.ok_or_else(|| HookError::Authorization {
        name: rules.name.clone(),
        path: path.to_owned(),
    })?;
    value.set_sensitive(true);
    Ok(value)
}

impl HttpHook {
    /// Starts the threads that ask.
    pub(crate) fn start(rules: &HttpAuth) -> Result<Self, HookError> {
        let name = || rules.name.clone();
        let connections = connections(rules);
        let service = Arc::new(Service::new(rules)?);
        let pending = PendingLogins::new(connections);
        for number in 0..connections {
            let (pending, service) = (pending.of_threads(), Arc::clone(&service));
            let thread = thread::Builder::new().name(format!("http-auth-{number}"));
            let spawned = thread.spawn(move || service.serve(&pending));
            // Not joined: it may be waiting for the service, and ends behind that.
            spawned.map_err(|source| HookError::Thread {
                name: name(),
                source,
            })?;
        }
        Ok(Self { pending, service })
    }

    /// The name of its table.
    pub(crate) fn name(&self) -> &str {
        &self.service.rules.name
    }

    /// What the service has said of the same question a short time ago.
    pub(super) fn remembered(
        &self,
        credentials: &Credentials,
        recent: &RecentLogins,
        now: Instant,
    ) -> Option<HookVerdict> {
        self.service.rules.cache_ttl?;
        let tag = question::tag(credentials, recent);
        lock(&self.service.cache).find(tag, now)
    }

    /// Queues a client for the threads.
    pub(super) fn push(
        &self,
        now: Instant,
        source: Source,
        login: Verification,
    ) -> Result<(), Refusal> {
        let bytes = login.attempt.bytes();
        let timeout = login.deadline.saturating_duration_since(now);
        self.pending.push(now, source, (login, bytes), timeout)
    }

    /// Takes a client out of the queue that no longer waits.
    pub(super) fn remove(&self, source: Source, is_it: impl Fn(&Verification) -> bool) {
        self.pending.remove(source, is_it);
    }
}

impl Service {
    fn new(rules: &HttpAuth) -> Result<Self, HookError> {
        let path = rules.authorization_file.as_deref();
        let authorization = path.map(|path| authorization(rules, path)).transpose()?;
        let ca_file = rules.ca_file.as_deref();
        let client = HttpClient::new(&rules.url, ca_file, rules.timeout, connections(rules));
        let client = client.map_err(|source| HookError::Client {
            name: rules.name.clone(),
            source,
        })?;
        Ok(Self {
            cache: Mutex::new(Cache::new(rules.cache_entries)),
            rules: rules.clone(),
            client,
            authorization,
            health: Mutex::default(),
        })
    }

    /// Asks for one client after the other, until nobody has the hook any more.
    fn serve(&self, pending: &Pending<Verification>) {
        while let Some((source, mut login)) = pending.next() {
            let began = Instant::now();
            let asked = catch_unwind(AssertUnwindSafe(|| self.ask(&login)));
            let verdict = asked.unwrap_or_else(|_| {
                self.report("the thread that asked it has failed");
                HookVerdict::Failed
            });
            login.attempt.take_verdict(verdict);
            let step = login.proceed();
            let took = Some(began.elapsed());
            pending.finish(source, !Verification::is_fault(&step), took);
            login.finish(source, step);
        }
    }

    fn ask(&self, login: &Verification) -> HookVerdict {
        let credentials = &login.attempt.credentials;
        let tag = question::tag(credentials, &login.common.recent);
        // Another client with the same question may have come first.
        if self.rules.cache_ttl.is_some()
            && let Some(known) = lock(&self.cache).find(tag, Instant::now())
        {
            return known;
        }
        let question = question::of(credentials, login.attempt.label());
        let authorization = self.authorization.as_ref();
        let answer =
            self.client
                .post_json(&self.rules.url, authorization, &question, HOOK_ANSWER_BYTES);
        let verdict = answer.and_then(|answer| question::verdict(credentials, &answer));
        match verdict {
            Ok(verdict) => {
                self.note_answer();
                self.remember(tag, &verdict);
                verdict
            }
            Err(error) => {
                self.report(&error);
                HookVerdict::Failed
            }
        }
    }

    fn remember(&self, tag: LoginTag, verdict: &HookVerdict) {
        if let Some(ttl) = self.rules.cache_ttl {
            let now = Instant::now();
            lock(&self.cache).insert(tag, verdict.clone(), now, ttl);
        }
    }

    /// It has answered: a failure before is over.
    fn note_answer(&self) {
        let recovered = lock(&self.health).answered();
        if let Some(failures) = recovered {
            let name = &self.rules.name;
            tracing::info!(http_auth = name, failures, "the service answers again");
        }
    }

    fn report(&self, error: &str) {
        let reported = lock(&self.health).failed(Instant::now());
        if let Some(failures) = reported {
            let (name, url) = (&self.rules.name, without_query(&self.rules.url));
            tracing::error!(
                http_auth = name,
                url,
                error,
                failures,
                "a service that authenticates clients does not answer; they are refused"
            );
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for HttpHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpHook")
            .field("name", &self.service.rules.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_service_that_fails_now_and_then_fills_no_log() {
        let (mut health, start) = (Health::default(), Instant::now());
        let mut lines = Vec::new();
        for tenth in 0..200 {
            let now = start + Duration::from_millis(100 * tenth);
            lines.extend(health.failed(now).map(|failures| (tenth, failures)));
            lines.extend(health.answered().map(|failures| (tenth, failures)));
        }
        assert_eq!(lines, [(0, 1), (0, 1), (100, 1), (100, 1)]);
    }

    #[test]
    fn an_authorization_is_one_line_in_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("authorization");
        let rules = HttpAuth {
            name: "door".to_owned(),
            url: "http://127.0.0.1:1/".to_owned(),
            authorization_file: Some(path.clone()),
            ..HttpAuth::default()
        };
        let missing = check_hook(&rules).unwrap_err().to_string();
        assert!(missing.contains("cannot read"), "{missing}");
        for (text, is_right) in [
            ("Bearer abc\n", true),
            ("", false),
            ("a\nb", false),
            ("\u{e9}", false),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(check_hook(&rules).is_ok(), is_right, "{text:?}");
        }
        std::fs::write(&path, "x".repeat(20_000)).unwrap();
        assert!(check_hook(&rules).is_err());
    }
}
