//! Keys that an issuer publishes: fetched in the background, by a thread of their own.
//!
//! ```text
//! fetch ── ok ──▶ in force, wait `refresh` ──▶ fetch
//!   └── failed ─▶ the last ones stay in force, wait 1 s, 2 s, 4 s … `refresh` ──▶ fetch
//!           an unknown key id brings the next fetch forward, once in `KEYS_PAUSE`
//! ```
//!
//! Invariants:
//! - The keys in force are those of the last answer that could be used, however long ago.
//! - The thread ends with the last verifier that uses it.
//!
//! Deliberately absent: a request that waits for keys. A client whose key is unknown is refused,
//! and comes again.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::TokenError;
use super::keys::KeySet;
use crate::authenticator::http_client::{HttpClient, without_query};
use crate::bounds::{KEYS_BYTES, KEYS_PAUSE, KEYS_TIMEOUT};
use crate::config::Jwt;

/// The keys of one issuer. Dropping it ends its thread.
pub(super) struct RemoteKeys(Arc<Shared>);

struct Shared {
    name: String,
    url: String,
    refresh: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    keys: Arc<KeySet>,
    /// Somebody has shown a key id that is unknown.
    is_asked: bool,
    is_closed: bool,
}

impl RemoteKeys {
    /// Begins to fetch; until there is an answer `keys` are in force.
    pub(super) fn start(rules: &Jwt, url: &str, keys: Arc<KeySet>) -> Result<Self, TokenError> {
        let client = client(rules, url)?;
        let shared = Arc::new(Shared {
            name: rules.name.clone(),
            url: url.to_owned(),
            refresh: rules.refresh,
            state: Mutex::new(State {
                keys,
                is_asked: false,
                is_closed: false,
            }),
            changed: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("token-keys".to_owned());
        let spawned = thread.spawn(move || of_thread.fetch_until_closed(&client));
        // Not joined: it may be waiting for the server, and ends behind that.
        spawned.map_err(|source| TokenError::Thread {
            name: rules.name.clone(),
            source,
        })?;
        Ok(Self(shared))
    }

    /// The keys in force.
    pub(super) fn keys(&self) -> Arc<KeySet> {
        Arc::clone(&self.0.lock().keys)
    }

    /// A token has an unknown key id: there may be new keys.
    pub(super) fn ask_soon(&self) {
        self.0.lock().is_asked = true;
        self.0.changed.notify_all();
    }
}

/// What fetches from this URL.
pub(super) fn client(rules: &Jwt, url: &str) -> Result<HttpClient, TokenError> {
    let client = HttpClient::new(url, rules.ca_file.as_deref(), KEYS_TIMEOUT, 1);
    client.map_err(|source| TokenError::Client {
        name: rules.name.clone(),
        source,
    })
}

impl Drop for RemoteKeys {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fetch_until_closed(&self, client: &HttpClient) {
        let mut failures = 0;
        loop {
            // A thread that ended would leave the last keys in force for ever.
            let fetched = catch_unwind(AssertUnwindSafe(|| self.fetch(client)));
            let fetched = fetched.unwrap_or_else(|_| Err("the thread has failed".to_owned()));
            let pause = match fetched {
                Ok(keys) => {
                    self.put_in_force(keys, failures);
                    failures = 0;
                    self.refresh
                }
                Err(error) => {
                    self.report(&error, failures);
                    failures += 1;
                    backoff(failures, self.refresh)
                }
            };
            if self.wait(pause) {
                return;
            }
        }
    }

    fn fetch(&self, client: &HttpClient) -> Result<KeySet, String> {
        let text = client.get(&self.url, KEYS_BYTES)?;
        KeySet::of_jwks(&text).map_err(|error| error.to_string())
    }

    fn put_in_force(&self, keys: KeySet, failures: u32) {
        let mut state = self.lock();
        if state.keys.len() == 0 || failures > 0 {
            let (name, keys) = (&self.name, keys.len());
            tracing::info!(jwt = name, keys, "the keys of tokens were fetched");
        }
        state.keys = Arc::new(keys);
    }

    fn report(&self, error: &str, failures: u32) {
        let in_force = self.lock().keys.len();
        let (name, url, failures) = (&self.name, without_query(&self.url), failures + 1);
        if in_force == 0 {
            tracing::error!(
                jwt = name,
                url,
                error,
                failures,
                "cannot fetch the keys of tokens; no token is accepted until they are there"
            );
        } else {
            tracing::warn!(
                jwt = name,
                url,
                error,
                failures,
                in_force,
                "cannot fetch the keys of tokens; the last ones stay in force"
            );
        }
    }

    /// Waits so long, or less if a key is missing. Whether there is nobody left to fetch for.
    fn wait(&self, pause: Duration) -> bool {
        let began = Instant::now();
        let mut state = self.lock();
        while !state.is_closed {
            let until = if state.is_asked {
                pause.min(KEYS_PAUSE)
            } else {
                pause
            };
            let left = until.saturating_sub(began.elapsed());
            if left.is_zero() {
                state.is_asked = false;
                return false;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// The pause behind so many failures in a row.
fn backoff(failures: u32, refresh: Duration) -> Duration {
    let doubled = 1_u64
        .checked_shl(failures.saturating_sub(1))
        .unwrap_or(u64::MAX);
    Duration::from_secs(doubled).min(refresh)
}

impl fmt::Debug for RemoteKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteKeys")
            .field("url", &without_query(&self.0.url))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_repeated_less_and_less_often() {
        let refresh = Duration::from_mins(1);
        let seconds = [1, 2, 3, 6, 7, 100].map(|n| backoff(n, refresh).as_secs());
        assert_eq!(seconds, [1, 2, 4, 32, 60, 60]);
    }
}
