//! The account of one session, told to whoever subscribes to it: `$audit/account/<client id>`; or
//! of all that there are: `$audit/account/#`.
//!
//! It is looked at once a second, told if it has changed, and every ten seconds anyhow, for whoever
//! came later. The shard of the client does so while any shard has a subscription to exactly that,
//! or to all. Of a session that has ended it says so, once if nobody asks for that one alone.
//!
//! Invariants: an account that nobody watches costs nothing; at most [`STATEMENTS_MAX`] of a shard
//! are watched, one more is not told.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::json::Object;
use super::lane::lane_of;
use super::watch::{PREFIX, Told};
use crate::clients::Clients;
use crate::limits::STATEMENTS_MAX;
use crate::placement;
use crate::shard::Shard;

/// Accounts of this shard that somebody watches, by client.
#[derive(Debug, Default)]
pub(crate) struct Statements {
    watched: BTreeMap<Box<str>, Statement>,
    /// Filters in the index that ask for all.
    all: u32,
}

#[derive(Debug, Default)]
struct Statement {
    /// Filters in the index that ask for this one.
    filters: u32,
    /// What was told last, and the ticks since.
    told: String,
    silent: u32,
}

impl Statements {
    pub(crate) fn is_empty(&self) -> bool {
        self.watched.is_empty() && self.all == 0
    }

    fn note_all(&mut self, came: bool) {
        self.all = self.all.saturating_add_signed(if came { 1 } else { -1 });
        if came {
            let watched = self.watched.values_mut();
            watched.for_each(|statement| statement.told.clear());
        } else if self.all == 0 {
            self.watched.retain(|_, statement| statement.filters > 0);
        }
    }

    /// Where all are watched, these sessions are.
    fn watch<'a>(&mut self, sessions: impl Iterator<Item = &'a Arc<str>>) {
        for client_id in sessions {
            if self.watched.len() >= STATEMENTS_MAX {
                return;
            }
            if !self.watched.contains_key(&**client_id) {
                self.watched
                    .insert((**client_id).into(), Statement::default());
            }
        }
    }

    fn note(&mut self, client_id: &str, came: bool) {
        let is_full = self.watched.len() >= STATEMENTS_MAX;
        match self.watched.get_mut(client_id) {
            Some(statement) if came => {
                statement.filters += 1;
                statement.told.clear();
            }
            Some(statement) if statement.filters > 1 || self.all > 0 => {
                statement.filters = statement.filters.saturating_sub(1);
            }
            Some(_) => {
                self.watched.remove(client_id);
            }
            None if came && !is_full => {
                let filters = 1;
                let statement = Statement {
                    filters,
                    ..Statement::default()
                };
                self.watched.insert(client_id.into(), statement);
            }
            None => {}
        }
    }
}

impl Shard {
    /// A filter that asks for an account has come into the index, or gone.
    pub(crate) fn note_account_filter(&mut self, filter: &str, came: bool) {
        let home = &mut self.clients.home;
        if filter.strip_prefix(PREFIX) == Some(ALL) {
            home.statements.note_all(came);
            let now = home.now;
            return self.start_ticking_audit(now);
        }
        let Some(client_id) = asked_account(filter) else {
            return;
        };
        if placement::of_client(client_id, home.shards) == home.shard {
            home.statements.note(client_id, came);
            let now = home.now;
            self.start_ticking_audit(now);
        }
    }

    /// Tells the accounts that are watched.
    pub(crate) fn tell_accounts(&mut self) {
        let clients = &mut self.clients;
        let mut statements = std::mem::take(&mut clients.home.statements);
        if statements.all > 0 {
            statements.watch(clients.by_client_id.keys());
        }
        statements.watched.retain(|client_id, statement| {
            let text = clients.statement(client_id);
            statement.silent += 1;
            if text != statement.told || statement.silent >= REPEAT_TICKS {
                statement.silent = 0;
                clients.home.tell(Told::account(client_id, text.clone()));
                statement.told = text;
            }
            statement.filters > 0 || clients.by_client_id.contains_key(&**client_id)
        });
        clients.home.statements = statements;
    }
}

impl Clients {
    fn statement(&self, client_id: &str) -> String {
        let object = Object::new()
            .text("client", client_id)
            .text("lane", &lane_of(client_id).to_string());
        let session = self.by_client_id.get(client_id);
        let Some(session) = session.and_then(|id| self.sessions.get(id.index())) else {
            return object.flag("session", false).end();
        };
        let kept = session.kept.as_deref();
        let behind = kept.and_then(|kept| kept.backlog.as_deref());
        let object = object
            .flag("session", true)
            .flag("connected", session.connection.is_some())
            .number("on_disk", behind.map_or(0, |behind| behind.messages));
        let unstored = session.unstored(&self.promises.on_disk);
        session.account.write(unstored, object).end()
    }
}

/// The client whose account a subscription asks for: one, so no wildcards.
fn asked_account(filter: &str) -> Option<&str> {
    let client_id = filter.strip_prefix(PREFIX)?.strip_prefix("account/")?;
    (!client_id.contains(['+', '#'])).then_some(client_id)
}

/// What asks for all of them.
const ALL: &str = "account/#";
/// An account that does not change is told so often.
const REPEAT_TICKS: u32 = 10;
