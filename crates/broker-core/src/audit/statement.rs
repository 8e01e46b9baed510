//! The account of one session, published to subscribers of `$audit/account/<client id>`, or of
//! `$audit/account/#` for all accounts.
//!
//! The shard of the client looks at it once a second while any shard has such a subscription. It
//! publishes the account if it has changed, and every ten seconds for later subscribers. When the
//! session has ended it publishes that, once if only all accounts are subscribed to.
//!
//! Invariants: an account that is not watched costs nothing; at most [`STATEMENTS_MAX`] of a shard
//! are watched, others are not published.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::Audit;
use super::json::Object;
use super::lane::lane_of;
use super::ledger::Ledger;
use super::watch::{PREFIX, Report};
use crate::limits::STATEMENTS_MAX;
use crate::placement;

/// Accounts of this shard that are watched, by client.
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
    /// What was published last, and the ticks since.
    published: String,
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
            watched.for_each(|statement| statement.published.clear());
        } else if self.all == 0 {
            self.watched.retain(|_, statement| statement.filters > 0);
        }
    }

    /// Where all are watched, this session is. Answers whether there may be room for more.
    fn watch(&mut self, client_id: &Arc<str>) -> bool {
        if self.watched.len() >= STATEMENTS_MAX {
            return false;
        }
        if !self.watched.contains_key(&**client_id) {
            let client_id = (**client_id).into();
            self.watched.insert(client_id, Statement::default());
        }
        true
    }

    fn note(&mut self, client_id: &str, came: bool) {
        let is_full = self.watched.len() >= STATEMENTS_MAX;
        match self.watched.get_mut(client_id) {
            Some(statement) if came => {
                statement.filters += 1;
                statement.published.clear();
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

impl Audit {
    /// A filter that asks for an account has come into the index, or gone.
    pub(super) fn note_account_filter(&mut self, filter: &str, came: bool) {
        let statements = &mut self.watch.statements;
        if filter.strip_prefix(PREFIX) == Some(ALL) {
            statements.note_all(came);
        } else if let Some(client_id) = asked_account(filter)
            && placement::of_client(client_id, self.shards) == self.shard
        {
            statements.note(client_id, came);
        }
    }

    /// Whether the accounts of all sessions are watched.
    pub(crate) fn watches_all_accounts(&self) -> bool {
        self.watch.statements.all > 0
    }

    /// Where all are watched, this one is. Answers whether there may be room for more.
    pub(crate) fn watch_account(&mut self, client_id: &Arc<str>) -> bool {
        self.watch.statements.watch(client_id)
    }

    /// The client behind this one whose account is watched, or the first.
    pub(crate) fn next_account(&self, after: Option<&str>) -> Option<Box<str>> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let watched = &self.watch.statements.watched;
        let mut watched = watched.range::<str, _>((after, Bound::Unbounded));
        watched.next().map(|(client_id, _)| client_id.clone())
    }

    /// Reports an account that is watched, if it has changed or was not reported for long.
    pub(crate) fn report_account(&mut self, client_id: &str, text: String, has_session: bool) {
        let watched = &mut self.watch.statements.watched;
        let Some(statement) = watched.get_mut(client_id) else {
            return;
        };
        statement.silent += 1;
        let is_due = text != statement.published || statement.silent >= REPEAT_TICKS;
        if is_due {
            statement.silent = 0;
            statement.published.clone_from(&text);
        }
        if statement.filters == 0 && !has_session {
            watched.remove(client_id);
        }
        if is_due {
            self.watch.report(Report::account(client_id, text));
        }
    }
}

/// The account of a client that has no session.
pub(crate) fn no_account(client_id: &str) -> String {
    head(client_id).flag("session", false).end()
}

/// The account of a client's session. `on_disk`: messages that wait there and not in memory;
/// `unstored`: deliveries accepted that are not known to be on disk.
pub(crate) fn account(
    client_id: &str,
    ledger: &Ledger,
    is_connected: bool,
    on_disk: u64,
    unstored: u64,
) -> String {
    let object = head(client_id)
        .flag("session", true)
        .flag("connected", is_connected)
        .number("on_disk", on_disk);
    ledger.account().write(unstored, object).end()
}

fn head(client_id: &str) -> Object {
    Object::new()
        .text("client", client_id)
        .text("lane", &lane_of(client_id).to_string())
}

/// The client whose account a subscription asks for: one, so no wildcards.
fn asked_account(filter: &str) -> Option<&str> {
    let client_id = filter.strip_prefix(PREFIX)?.strip_prefix("account/")?;
    (!client_id.contains(['+', '#'])).then_some(client_id)
}

/// What asks for all of them.
const ALL: &str = "account/#";
/// An account that does not change is published so often.
const REPEAT_TICKS: u32 = 10;
