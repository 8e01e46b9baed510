//! Access rules of the configuration and the store, as rule sets for the core.
//!
//! ```text
//! `acl_file` of a listener ── acl_file ──▶ a set for its clients, first applicable role
//! `[[roles]]`              ── compile ─┐
//! roles of the store       ────────────┴─▶ a set for all clients, denials override
//! ```
//!
//! A client must be allowed by each set that is about it. Without any, everything is allowed.
//!
//! Deliberately absent: who a client is, which passwords and certificates decide.

mod acl_file;
mod explain;
mod weaknesses;

pub(crate) use acl_file::AclFile;
pub use acl_file::AclFileError;
pub use explain::{AccessRules, Expectation, ExpectationError, Explanation, Question};
pub use unbroken_broker_core::Action;
pub use weaknesses::{notes, weaknesses};

use unbroken_broker_core::{self as core, PolicyError, RuleSet};
use unbroken_mosquitto_files::Remark;

use crate::bounds::ACL_REMARKS_LOGGED;
use crate::config::{Listener, Role, RoleError};

/// Why access rules cannot be put in force.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// An access control list cannot be used.
    #[error("{0}")]
    AclFile(#[from] AclFileError),
    /// A role cannot be used.
    #[error("`roles.{index}`: {source}")]
    Role {
        /// Its position.
        index: usize,
        /// What is wrong.
        source: RoleError,
    },
    /// A role of the store cannot be used.
    #[error("a role of the store: {0}")]
    Stored(RoleError),
    /// The rules cannot be compiled.
    #[error("{0}")]
    Policy(#[from] PolicyError),
}

/// The access rules of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfigRules {
    /// A set for each listener with an access control list.
    lists: Vec<RuleSet>,
    roles: Vec<core::Role>,
    /// Hints about lines of the lists, until they are logged.
    remarks: Vec<Remark>,
}

impl ConfigRules {
    /// Reads the access control lists that the configuration names.
    pub(crate) fn read(listeners: &[Listener], roles: &[Role]) -> Result<Self, AccessError> {
        let all = listeners.iter().map(Some);
        Self::read_again(all, (listeners, roles), &Self::default())
    }

    /// The same for a broker that runs. `open`: its listeners; `None`: one is not configured any
    /// more, and keeps its list. `named`: as roles may name them, the open ones first.
    pub(crate) fn read_again<'a>(
        open: impl Iterator<Item = Option<&'a Listener>>,
        (named, roles): (&[Listener], &[Role]),
        now: &Self,
    ) -> Result<Self, AccessError> {
        let (mut lists, mut remarks) = (Vec::new(), Vec::new());
        for (number, listener) in (0..).zip(open) {
            let is_its_own = |set: &&RuleSet| set.listeners.as_deref() == Some(&[number]);
            let Some(listener) = listener else {
                lists.extend(now.lists.iter().find(is_its_own).cloned());
                continue;
            };
            if let Some(list) = listener.acl_file.as_deref().map(acl_file::read) {
                let list = list?;
                lists.push(list.rule_set(number));
                remarks.extend(list.into_remarks().into_iter().take(ACL_REMARKS_LOGGED));
            }
        }
        let role = |(index, role): (usize, &Role)| {
            let compiled = role.compile(named);
            compiled.map_err(|source| AccessError::Role { index, source })
        };
        let roles = roles.iter().enumerate().map(role);
        let roles = roles.collect::<Result<_, _>>()?;
        Ok(Self {
            lists,
            roles,
            remarks,
        })
    }

    /// Logs the hints about lines of the lists.
    #[must_use]
    pub(crate) fn log_remarks(mut self) -> Self {
        for Remark { place, text } in self.remarks.drain(..) {
            tracing::warn!(
                %place,
                detail = text,
                "a line of an access control list may not mean what it seems to"
            );
        }
        self
    }

    /// The rule sets, with roles of the store beside those of the configuration.
    pub(crate) fn sets(&self, stored: Vec<core::Role>) -> Vec<RuleSet> {
        let mut sets = self.lists.clone();
        let roles = [&*self.roles, &stored].concat();
        if !roles.is_empty() {
            sets.push(RuleSet::of(roles));
        }
        sets
    }
}

/// Hints about lines of a listener's access control list that may not mean what they seem to.
pub fn remarks(listener: &Listener) -> Result<Vec<Remark>, AclFileError> {
    match &listener.acl_file {
        Some(path) => Ok(acl_file::read(path)?.into_remarks()),
        None => Ok(Vec::new()),
    }
}
