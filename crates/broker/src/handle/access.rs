//! The access rules in force, and the users of the store: those of the start, and their changes.
//!
//! ```text
//! configuration ─ reload ──────┐
//! program ─────── set_access ──┼─▶ rules ─▶ Policy ─▶ every shard
//! command ─────── change ──────┘     │
//!                   └─ store         └─▶ users, for the authenticators
//! ```
//!
//! Invariants:
//! - All shards get the policies in one order.
//! - A change of a command is on disk before it is in force. If the disk is late, it is in force,
//!   and the command learns that it is not known to be on disk.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use unbroken_broker_core::{Clients, Policy, PolicyError, RuleSet};
use unbroken_store::Batch;
use unbroken_store::access::{Banned, Record};

use super::{HandleError, ReloadError, Requests};
use crate::access::{AccessError, AccessRules, ConfigRules, Explanation, Question};
use crate::authenticator::StoredUsers;
use crate::bans::Bans;
use crate::bounds::CHANGE_TIMEOUT;
use crate::config::{Listener, Network, Role};
use crate::request::Request;
use crate::stored_access::{Change, ChangeError, Edit, StoredAccess};

/// The number of the policy that a broker starts with.
const FIRST_POLICY: u64 = 1;

/// What clients may do, and which users the store has.
#[derive(Debug)]
pub(crate) struct AccessInForce {
    /// Held while the shards are given a policy, so that all get them in one order.
    rules: Mutex<Rules>,
    users: Arc<StoredUsers>,
    bans: Arc<Bans>,
    disk: Mutex<Place>,
}

/// Where the rules come from. A client must be allowed by each set.
#[derive(Debug)]
struct Rules {
    /// The number of the policy.
    generation: u64,
    of_config: ConfigRules,
    of_program: Vec<RuleSet>,
    stored: StoredAccess,
}

/// Where changes are stored.
#[derive(Debug)]
enum Place {
    Memory,
    Disk(Box<dyn WriteBatch>),
    /// There was a disk, and its threads end.
    Ended,
}

/// Writes to the store while the broker runs.
pub(crate) trait WriteBatch: Send + Sync + std::fmt::Debug {
    /// Has a batch written; `done` is called when it is on disk, and dropped if it will not be.
    fn write(&self, batch: Batch, done: Sender<()>);
}

/// Why a change was not made, or is not known to be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeAccessError {
    /// It cannot be.
    #[error("{0}")]
    Change(#[from] ChangeError),
    /// With it the rules could not be compiled.
    #[error("{0}")]
    Access(#[from] AccessError),
    /// The store has failed, or the broker ends.
    #[error("nothing is changed: the broker is ending, or its store has failed")]
    NotStored,
    /// It is in force.
    #[error("the change is in force, but not known to be on disk yet; check again later")]
    Late,
    /// A shard did not answer.
    #[error("the change is stored, but not known to be in force: {0}")]
    Shards(#[from] HandleError),
}

impl Default for AccessInForce {
    fn default() -> Self {
        Self::new(Rules {
            generation: FIRST_POLICY,
            of_config: ConfigRules::default(),
            of_program: Vec::new(),
            stored: StoredAccess::default(),
        })
    }
}

impl AccessInForce {
    /// What a broker starts with; reads the access control lists of the listeners.
    pub(crate) fn start(
        (listeners, roles): (&[Listener], &[Role]),
        of_program: Vec<RuleSet>,
        stored: StoredAccess,
    ) -> Result<Self, AccessError> {
        Ok(Self::new(Rules {
            generation: FIRST_POLICY,
            of_config: ConfigRules::read(listeners, roles)?.log_remarks(None),
            of_program,
            stored,
        }))
    }

    fn new(rules: Rules) -> Self {
        let (users, bans) = (StoredUsers::default(), Bans::default());
        for (name, user) in rules.stored.users() {
            users.set(name, &user.hash);
        }
        for (banned, ban) in rules.stored.bans() {
            bans.set(banned, ban);
        }
        Self {
            rules: Mutex::new(rules),
            users: Arc::new(users),
            bans: Arc::new(bans),
            disk: Mutex::new(Place::Memory),
        }
    }

    /// The users of the store, for listeners.
    pub(crate) const fn users(&self) -> &Arc<StoredUsers> {
        &self.users
    }

    /// Who may not connect.
    pub(crate) const fn bans(&self) -> &Arc<Bans> {
        &self.bans
    }

    /// Changes are written by this from now on.
    pub(crate) fn set_disk(&self, disk: Box<dyn WriteBatch>) {
        *self.place() = Place::Disk(disk);
    }

    /// No change is made any more.
    pub(crate) fn end_disk(&self) {
        *self.place() = Place::Ended;
    }

    /// The policy in force; `None`: there are no rules.
    pub(crate) fn policy(&self) -> Result<Option<Arc<Policy>>, AccessError> {
        self.lock().policy()
    }

    /// The rules of the program that embeds the broker are others.
    pub(super) fn set_of_program(
        &self,
        of_program: Vec<RuleSet>,
        requests: &Requests,
        timeout: Duration,
    ) -> Result<(), ReloadError> {
        let mut rules = self.lock();
        let before = std::mem::replace(&mut rules.of_program, of_program);
        let policy = rules.policy_with(&[]);
        let sent = policy
            .map_err(reload_error)
            .and_then(|policy| Ok(send(policy.as_ref(), requests, timeout)?));
        match sent {
            // A busy shard puts them in force when it comes to it; without room none has got them.
            Ok(()) | Err(ReloadError::Handle(HandleError::Timeout(_))) => rules.generation += 1,
            Err(_) => rules.of_program = before,
        }
        sent
    }

    /// Those of the configuration may be others; `read` makes them of those in force. `send` gives
    /// the policy to the shards, if it is another one; without room there all stays as it was.
    pub(super) fn set_of_config(
        &self,
        read: impl FnOnce(&ConfigRules) -> Result<ConfigRules, AccessError>,
        send: impl FnOnce(Option<Option<Arc<Policy>>>) -> Result<(), HandleError>,
    ) -> Result<(), ReloadError> {
        let mut rules = self.lock();
        let of_config = read(&rules.of_config)?.log_remarks(Some(&rules.of_config));
        if rules.of_config.has_rules_of(&of_config) {
            rules.of_config = of_config; // the remarks may be others
            return Ok(send(None)?);
        }
        let before = std::mem::replace(&mut rules.of_config, of_config);
        let policy = rules.policy_with(&[]);
        let sent = policy
            .map_err(reload_error)
            .and_then(|policy| Ok(send(Some(policy))?));
        match sent {
            Ok(()) => rules.generation += 1,
            Err(_) => rules.of_config = before,
        }
        sent
    }

    /// Looks at the users, roles and bans of the store.
    pub(super) fn look<T>(&self, look: impl FnOnce(&StoredAccess) -> T) -> T {
        look(&self.lock().stored)
    }

    /// What the rules in force say of a question.
    pub(super) fn explain(
        &self,
        question: &Question,
        listeners: &[Listener],
    ) -> Result<Explanation, AccessError> {
        let rules = self.lock();
        let roles = rules.stored.core_roles().map_err(AccessError::Stored)?;
        let mut sets = rules.of_config.sets(roles);
        sets.extend(rules.of_program.iter().cloned());
        drop(rules);
        Ok(AccessRules::compile(sets, listeners)?.explain(question))
    }

    /// Makes a change that a command asks for. Returns when it is on disk and in force.
    pub(crate) fn change(
        &self,
        change: &Change,
        requests: &Requests,
    ) -> Result<(), ChangeAccessError> {
        let mut rules = self.lock();
        let edits = match rules.stored.plan(change) {
            Err(_) if self.lift(change) => Vec::new(),
            planned => planned?,
        };
        let policy = if edits.iter().any(Edit::is_of_role) {
            Some(rules.policy_with(&edits)?)
        } else {
            None
        };
        let stored = self.write(Edit::batch(&edits));
        if matches!(stored, Err(ChangeAccessError::NotStored)) {
            return stored;
        }
        tracing::info!(%change, "users, roles or bans changed by a command");
        rules.stored.apply(&edits);
        self.apply(&edits);
        if let Some(policy) = policy {
            rules.generation += 1;
            send(policy.as_ref(), requests, CHANGE_TIMEOUT)?;
        }
        if let Some(clients) = edits.iter().find_map(banned_by) {
            let answers = requests.ask_all(CHANGE_TIMEOUT, |answer| Request::Ban {
                clients: clients.clone(),
                answer,
            });
            answers?;
        }
        stored
    }

    /// Removes automatic bans, if the change is about some.
    fn lift(&self, change: &Change) -> bool {
        let network = match change {
            Change::Unban { target } => target.network(),
            _ => None,
        };
        network.is_some_and(|network| self.bans.lift(network))
    }

    /// Returns when it is on disk, or will not be, or takes too long.
    fn write(&self, batch: Batch) -> Result<(), ChangeAccessError> {
        let (done, written) = channel();
        match &*self.place() {
            Place::Memory => return Ok(()),
            Place::Disk(disk) => disk.write(batch, done),
            Place::Ended => return Err(ChangeAccessError::NotStored),
        }
        written
            .recv_timeout(CHANGE_TIMEOUT)
            .map_err(|error| match error {
                RecvTimeoutError::Timeout => ChangeAccessError::Late,
                RecvTimeoutError::Disconnected => ChangeAccessError::NotStored,
            })
    }

    fn apply(&self, edits: &[Edit]) {
        for edit in edits {
            match edit {
                Edit::Put(Record::User(name, user)) => self.users.set(name, &user.hash),
                Edit::RemoveUser(name) => self.users.remove(name),
                Edit::Put(Record::Ban(banned, ban)) => self.bans.set(banned, ban),
                Edit::RemoveBan(banned) => self.bans.remove(banned),
                Edit::Put(Record::Role(..)) | Edit::RemoveRole(_) => {}
            }
        }
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rules {
    fn policy(&self) -> Result<Option<Arc<Policy>>, AccessError> {
        let roles = self.stored.core_roles();
        let sets = self.of_config.sets(roles.map_err(AccessError::Stored)?);
        self.compile(self.generation, sets).map_err(Into::into)
    }

    /// The next policy, once these edits are made.
    fn policy_with(&self, edits: &[Edit]) -> Result<Option<Arc<Policy>>, AccessError> {
        let roles = self.stored.core_roles_with(edits);
        let sets = self.of_config.sets(roles.map_err(AccessError::Stored)?);
        self.compile(self.generation + 1, sets).map_err(Into::into)
    }

    fn compile(
        &self,
        generation: u64,
        mut sets: Vec<RuleSet>,
    ) -> Result<Option<Arc<Policy>>, PolicyError> {
        sets.extend(self.of_program.iter().cloned());
        if sets.is_empty() {
            return Ok(None);
        }
        Ok(Some(Arc::new(Policy::compile(generation, sets)?)))
    }
}

fn reload_error(error: AccessError) -> ReloadError {
    match error {
        AccessError::Policy(error) => error.into(),
        other => other.into(),
    }
}

/// Whose connections end by this edit.
fn banned_by(edit: &Edit) -> Option<Clients> {
    let Edit::Put(Record::Ban(banned, _)) = edit else {
        return None;
    };
    Some(match banned {
        Banned::Client(name) => Clients::WithId(name.as_str().into()),
        Banned::User(name) => Clients::OfUser(name.as_str().into()),
        Banned::Address(text) => {
            let (address, bits) = text.parse::<Network>().ok()?.prefix();
            Clients::From(address, bits)
        }
    })
}

fn send(
    policy: Option<&Arc<Policy>>,
    requests: &Requests,
    timeout: Duration,
) -> Result<(), HandleError> {
    let answers = requests.ask_all(timeout, |answer| Request::SetAccess {
        policy: policy.cloned(),
        answer,
    });
    answers.map(drop)
}
