//! Callers and their roles: accounts, tokens, sessions, and the admin history.
//!
//! ```text
//! request ──▶ guard ── cookie, token or unix socket ──▶ Caller ──▶ require(role) ──▶ handler
//!                │ none                                              │
//!                ▼                                                   ▼
//!               401                                         admin history, for writes
//! ```
//!
//! [`guard::check`] finds the [`Caller`] of each request, and [`require`] compares the caller's
//! role with the one that a route needs.
//!
//! Invariants:
//! - What is not named as open needs a caller (`guard`): a new route is closed.
//! - Passwords, cookies, tokens and links are kept as hashes only.
//! - A changed or removed account is so for its next request: sessions have no role of their own.
//! - There is no account and no password at first: a link that is good once makes the first one.

mod accounts;
pub(crate) mod book;
pub(crate) mod guard;
pub(crate) mod history;
mod link;
mod scope;
mod secret;
pub(crate) mod sessions;
mod sign_in;
mod standing;
mod throttle;
mod tokens;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use utoipa::ToSchema;

pub(crate) use self::accounts::AccountChange;
use self::book::Store;
use self::history::History;
use self::link::Link;
pub(crate) use self::scope::Scope;
use self::sessions::Sessions;
pub(crate) use self::sign_in::Refusal;
pub(crate) use self::standing::Standing;
use self::throttle::Throttle;
use crate::limits::{CHANGING_MAX, HASHING_MAX, TURN_TIMEOUT, WRITES_MAX};
use crate::problem::Problem;

/// What a caller may do; each role may do what those before it may.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// Read.
    Viewer,
    /// Change what clients and messages do: disconnect, remove, publish, trace.
    Operator,
    /// Change who may do what: users, roles, bans, accounts, tokens, configuration.
    Admin,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        })
    }
}

/// The maker of a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// Name of the account; `token:NAME` of a token, `unix:USER` at the unix socket.
    pub(crate) name: Arc<str>,
    pub(crate) role: Role,
}

/// What the configuration says about callers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) metrics_need_caller: bool,
    /// Whether a caller without credentials may read.
    pub(crate) anonymous_reads: bool,
    /// Name of the session's cookie. It differs from that of another broker on this host, because
    /// browsers send the cookies of a host to all of its ports.
    pub(crate) cookie: String,
    /// `http://127.0.0.1:7883`
    pub(crate) url: Option<String>,
}

/// Accounts, tokens, sessions and the history. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Identity(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    store: Store,
    sessions: Sessions,
    throttle: Throttle,
    link: Link,
    history: History,
    rules: Rules,
    hashing: Arc<Semaphore>,
    changing: Arc<Semaphore>,
    /// Writes of callers …
    writing: Arc<Semaphore>,
    /// … and of those who have no credentials yet.
    signing_in: Arc<Semaphore>,
}

impl Identity {
    /// Reads what a directory has; without one all of it ends with the process.
    pub(crate) fn open(directory: Option<&Path>, rules: Rules) -> Result<Self, String> {
        Ok(Self(Arc::new(Parts {
            store: Store::open(directory)?,
            history: History::open(directory)?,
            sessions: Sessions::default(),
            throttle: Throttle::default(),
            link: Link::default(),
            rules,
            hashing: Arc::new(Semaphore::new(HASHING_MAX)),
            changing: Arc::new(Semaphore::new(CHANGING_MAX)),
            writing: Arc::new(Semaphore::new(WRITES_MAX)),
            signing_in: Arc::new(Semaphore::new(WRITES_MAX)),
        })))
    }

    pub(crate) fn history(&self) -> &History {
        &self.0.history
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.0.rules
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0.store
    }

    /// A link for the first account, if there is none.
    pub(crate) fn first_link(&self) -> Result<Option<String>, Problem> {
        if !self.store().book().accounts.is_empty() {
            return Ok(None);
        }
        self.0
            .link
            .make(Instant::now())
            .map(Some)
            .map_err(no_random)
    }

    /// Changes the book on a thread that may wait for the disk.
    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut book::Book) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let identity = self.clone();
        in_turn(&self.0.changing, move || identity.store().change(change)).await?
    }

    /// Hashes a password on a thread of its own.
    async fn hash(&self, password: String) -> Result<String, Problem> {
        let hash = move || {
            let scheme = unbroken_broker::passwords::Scheme::Argon2id;
            let hash = unbroken_broker::passwords::make_hash(password.as_bytes(), scheme);
            hash.map_err(|error| internal(&error.to_string()))
        };
        in_turn(&self.0.hashing, hash).await?
    }

    /// Compares a password with a hash on a thread of its own.
    async fn matches(&self, hash: String, password: String) -> Result<bool, Problem> {
        let compare = move || unbroken_broker::passwords::matches(&hash, password.as_bytes());
        in_turn(&self.0.hashing, compare).await
    }
}

/// Runs on a thread that may wait, once there is one.
async fn in_turn<T: Send + 'static>(
    turns: &Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let busy = || {
        let detail = "too many passwords and accounts are being checked; try again later";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    };
    let turn = timeout(TURN_TIMEOUT, Arc::clone(turns).acquire_owned());
    let turn = turn.await.map_err(|_| busy())?.map_err(|_| busy())?;
    let work = tokio::task::spawn_blocking(move || {
        let _held = turn;
        work()
    });
    work.await.map_err(|error| internal(&error.to_string()))
}

fn internal(why: &str) -> Problem {
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        format!("the request failed: {why}"),
    )
}

fn no_random(error: getrandom::Error) -> Problem {
    internal(&format!("the system has no random bytes: {error}"))
}

/// Refuses callers whose role is below the one that the route needs.
pub(crate) async fn require(
    role: Role,
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Response {
    if caller.role < role {
        let detail = format!(
            "{} has the role {}, and this needs {role}",
            caller.name, caller.role
        );
        return Problem::new(StatusCode::FORBIDDEN, detail).into_response();
    }
    next.run(request).await
}
