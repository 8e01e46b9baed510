//! Access rules of the configuration, as rule sets for the core.
//!
//! ```text
//! `acl_file` of a listener ── acl_file ──▶ a set for its clients, first applicable role
//! `[[roles]]`              ── compile ───▶ a set for all clients, denials override
//! ```
//!
//! A client must be allowed by each set that is about it. Without any, everything is allowed.
//!
//! Deliberately absent: who a client is, which passwords and certificates decide.

mod acl_file;
mod explain;
mod weaknesses;

#[cfg(feature = "fuzzing")]
pub(crate) use acl_file::AclFile;
pub use acl_file::AclFileError;
pub use explain::{AccessRules, Expectation, ExpectationError, Explanation, Question};
pub use unbroken_broker_core::Action;
pub use weaknesses::weaknesses;

use unbroken_broker_core::{PolicyError, RuleSet};
use unbroken_mosquitto_files::Remark;

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
    /// The rules cannot be compiled.
    #[error("{0}")]
    Policy(#[from] PolicyError),
}

/// The rule sets of a configuration; reads its access control lists.
pub(crate) fn rule_sets(
    listeners: &[Listener],
    roles: &[Role],
) -> Result<Vec<RuleSet>, AccessError> {
    let mut sets = Vec::new();
    for (number, listener) in (0..).zip(listeners) {
        sets.extend(list_set(number, listener)?);
    }
    sets.extend(role_set(listeners, roles)?);
    Ok(sets)
}

/// The rule set of the access control list of this listener, if it has one; reads it.
pub(crate) fn list_set(number: u16, listener: &Listener) -> Result<Option<RuleSet>, AclFileError> {
    let list = listener.acl_file.as_deref().map(acl_file::read);
    Ok(list.transpose()?.map(|list| list.rule_set(number)))
}

/// The rule set of the roles, if there are any. `listeners`: in the order in which they are
/// numbered.
pub(crate) fn role_set(
    listeners: &[Listener],
    roles: &[Role],
) -> Result<Option<RuleSet>, AccessError> {
    let role = |(index, role): (usize, &Role)| {
        let compiled = role.compile(listeners);
        compiled.map_err(|source| AccessError::Role { index, source })
    };
    let roles: Vec<_> = roles
        .iter()
        .enumerate()
        .map(role)
        .collect::<Result<_, _>>()?;
    Ok((!roles.is_empty()).then(|| RuleSet::of(roles)))
}

/// Hints about lines of a listener's access control list that may not mean what they seem to.
pub fn remarks(listener: &Listener) -> Result<Vec<Remark>, AclFileError> {
    match &listener.acl_file {
        Some(path) => Ok(acl_file::read(path)?.into_remarks()),
        None => Ok(Vec::new()),
    }
}
