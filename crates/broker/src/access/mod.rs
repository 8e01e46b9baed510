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
    /// Hints about lines of the lists.
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

    /// Logs the hints about lines of the lists: as warnings those that were not given `before`.
    #[must_use]
    pub(crate) fn log_remarks(self, before: Option<&Self>) -> Self {
        let before = before.map_or(&[][..], |before| &before.remarks);
        for remark in &self.remarks {
            let Remark { place, text } = remark;
            if before.contains(remark) {
                tracing::info!(%place, detail = text, "{DOUBTFUL_LINE}");
            } else {
                tracing::warn!(%place, detail = text, "{DOUBTFUL_LINE}");
            }
        }
        self
    }

    /// Whether the rules are the same, wherever they stand.
    pub(crate) fn has_rules_of(&self, other: &Self) -> bool {
        (&self.lists, &self.roles) == (&other.lists, &other.roles)
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

const DOUBTFUL_LINE: &str = "a line of an access control list may not mean what it seems to";

/// Hints about lines of a listener's access control list that may not mean what they seem to.
pub fn remarks(listener: &Listener) -> Result<Vec<Remark>, AclFileError> {
    match &listener.acl_file {
        Some(path) => Ok(acl_file::read(path)?.into_remarks()),
        None => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use unbroken_mosquitto_files::Place;

    use super::*;
    use crate::log::tests::log_of;

    #[test]
    fn a_remark_is_a_warning_once() {
        let rules = |lines: &[u32]| ConfigRules {
            remarks: lines.iter().map(|line| remark(*line)).collect(),
            ..ConfigRules::default()
        };
        let start = rules(&[1]);
        let warnings = |log: &str| (log.matches(" WARN ").count(), log.matches(" INFO ").count());
        let log = log_of(|| drop(start.clone().log_remarks(None)));
        assert_eq!(warnings(&log), (1, 0), "{log}");
        let log = log_of(|| drop(rules(&[1, 2]).log_remarks(Some(&start))));
        assert_eq!(warnings(&log), (1, 1), "{log}");
        assert!(start.has_rules_of(&rules(&[2])));
    }

    fn remark(line: u32) -> Remark {
        Remark {
            place: Place {
                file: "acl".into(),
                line,
                column: 1,
            },
            text: "words".to_owned(),
        }
    }
}
