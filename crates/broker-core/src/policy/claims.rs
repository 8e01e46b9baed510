//! What an authenticator vouches for beside a user's name: roles, and named values.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::limits::CLAIM_BYTES_MAX;

/// Roles and values of one client, from a token or a service that has authenticated it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Claims {
    /// In order, each once.
    roles: Vec<Arc<str>>,
    values: BTreeMap<Box<str>, Box<str>>,
    /// Bytes of all of it.
    bytes: usize,
}

/// More is claimed than the broker remembers of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it claims more than {CLAIM_BYTES_MAX} bytes of roles, names and values")]
pub struct TooManyClaims;

impl Claims {
    /// Takes roles and named values. All of it must fit: a rule that denies must not be evaded by a
    /// claim that was left out.
    pub fn new(
        mut roles: Vec<Arc<str>>,
        values: BTreeMap<Box<str>, Box<str>>,
    ) -> Result<Self, TooManyClaims> {
        roles.sort_unstable();
        roles.dedup();
        // What each of them costs beside its text counts too.
        let of_roles = roles.iter().map(|role| role.len() + size_of::<Arc<str>>());
        let of_values = values
            .iter()
            .map(|(name, value)| name.len() + value.len() + 2 * size_of::<Box<str>>());
        let bytes = of_roles.chain(of_values).sum();
        if bytes > CLAIM_BYTES_MAX {
            return Err(TooManyClaims);
        }
        Ok(Self {
            roles,
            values,
            bytes,
        })
    }

    /// Bytes that they keep from the allocator.
    pub(crate) const fn memory(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.roles.is_empty() && self.values.is_empty()
    }

    /// The roles, in order.
    pub fn roles(&self) -> impl Iterator<Item = &str> {
        self.roles.iter().map(|role| &**role)
    }

    /// Whether the client has this role.
    pub(super) fn has_role(&self, role: &str) -> bool {
        self.roles.binary_search_by(|it| (**it).cmp(role)).is_ok()
    }

    /// The named values, in the order of their names.
    pub fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        let values = self.values.iter();
        values.map(|(name, value)| (&**name, &**value))
    }

    /// A named value.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|value| &**value)
    }

    /// What rules with these placeholders need to know of it; `None`: nothing.
    pub(super) fn named<'a>(
        &self,
        roles: bool,
        values: impl Iterator<Item = &'a str>,
    ) -> Option<Self> {
        let value = |name: &str| self.values.get_key_value(name);
        let values = values.filter_map(value);
        let named = Self {
            roles: if roles {
                self.roles.clone()
            } else {
                Vec::new()
            },
            values: values.map(|(k, v)| (k.clone(), v.clone())).collect(),
            bytes: 0, // they are counted with the connection
        };
        (!named.is_empty()).then_some(named)
    }
}
