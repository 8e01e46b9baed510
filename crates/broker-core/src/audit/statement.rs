//! The account of one session, told to whoever subscribes to it: `$audit/account/<client id>`.
//!
//! It is looked at once a second, told if it has changed, and every ten seconds anyhow, for whoever
//! came later. The shard of the client does so while any shard has a subscription to exactly that.
//!
//! Invariants: an account that nobody watches costs nothing; at most [`STATEMENTS_MAX`] of a shard
//! are watched, one more is not told.

use std::collections::BTreeMap;

use super::json::Object;
use super::lane::lane_of;
use super::watch::{PREFIX, Told};
use crate::clients::Clients;
use crate::limits::STATEMENTS_MAX;
use crate::placement;
use crate::shard::Shard;

/// Accounts of this shard that somebody watches, by client.
#[derive(Debug, Default)]
pub(crate) struct Statements(BTreeMap<Box<str>, Statement>);

#[derive(Debug, Default)]
struct Statement {
    /// Filters in the index that ask for it.
    filters: u32,
    /// What was told last, and the ticks since.
    told: String,
    silent: u32,
}

impl Statements {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn note(&mut self, client_id: &str, came: bool) {
        let is_full = self.0.len() >= STATEMENTS_MAX;
        match self.0.get_mut(client_id) {
            Some(statement) if came => {
                statement.filters += 1;
                statement.told.clear();
            }
            Some(statement) if statement.filters > 1 => statement.filters -= 1,
            Some(_) => {
                self.0.remove(client_id);
            }
            None if came && !is_full => {
                let filters = 1;
                let statement = Statement {
                    filters,
                    ..Statement::default()
                };
                self.0.insert(client_id.into(), statement);
            }
            None => {}
        }
    }
}

impl Shard {
    /// A filter that asks for an account has come into the index, or gone.
    pub(crate) fn note_account_filter(&mut self, filter: &str, came: bool) {
        let Some(client_id) = asked_account(filter) else {
            return;
        };
        let home = &mut self.clients.home;
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
        for (client_id, statement) in &mut statements.0 {
            let text = clients.statement(client_id);
            statement.silent += 1;
            if text != statement.told || statement.silent >= REPEAT_TICKS {
                statement.silent = 0;
                clients.home.tell(Told::account(client_id, text.clone()));
                statement.told = text;
            }
        }
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

/// An account that does not change is told so often.
const REPEAT_TICKS: u32 = 10;
