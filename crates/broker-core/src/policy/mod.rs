//! What clients may do: the compiled rules, and the four points at which they are asked.
//!
//! ```text
//! connect    behind authentication, before a session is taken over; with the topic of the will
//! publish    each PUBLISH and each will; a topic alias is resolved before
//! subscribe  each filter of a SUBSCRIBE; a shared one by the filter behind its group
//! receive    each session of a route when the route is made; each message that has waited when it
//!            leaves; the members of a group when one is chosen
//! ```
//!
//! A [`Policy`] is compiled once and shared by all shards. [`AccessControl`] is one shard's: the
//! policy in force and a bounded table of recent verdicts. A [`Subject`] is what the rules need to
//! know of one client, computed when it connects and again when the policy is replaced.
//!
//! Invariants:
//! - Without a policy everything is allowed but what the broker keeps for itself (`$SYS`,
//!   `$audit`), and nothing is looked up.
//! - Each rule set that is about a client must allow what it does; without one everything is
//!   allowed.
//! - In a set by [`Combining::DenyOverrides`] a denial beats any permission, and what no rule
//!   allows is denied.
//! - A [`Ceiling`] holds whatever other rules allow: of a role for all that its clients do, of a
//!   rule for what it is about.
//! - A verdict is found only by the policy, the roles and the names it was made for: never by
//!   another client's. It is not kept with a route, except for the receivers in it, and these are
//!   judged again when the policy or a session's subject changes.
//! - A session with a connection has a subject of the policy in force. So what leaves is judged.
//!
//! Deliberately absent: files and syntax (the driver compiles its configuration into [`RuleSet`]s),
//! passwords, rates and quotas.

mod access;
mod claims;
mod identity;
mod mount;
mod role;
mod rules;
mod table;
mod tree;
mod verdict;

#[cfg(test)]
mod reference;

pub(crate) use access::{AccessControl, is_reserved};
pub use claims::{Claims, TooManyClaims};
pub use identity::{Grant, Identity, Peer};
pub(crate) use mount::{Mount, SIGNED_TOPIC, TooLong, signed_topic};
pub use mount::{MountError, MountPoint, MountPointError};
pub(crate) use role::lies_in;
pub use role::{Combining, Member, Role, Rule, RuleSet};
pub(crate) use rules::Subject;
pub use rules::{Decision, Policy, PolicyError};
pub use verdict::{Action, Actions, Ceiling, Denial, Effect, Verdict};
