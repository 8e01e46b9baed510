//! Whether the maker of a request may still have what was begun for it: a stream outlives the check
//! of its request.

use std::time::Instant;

use super::guard::Proof;
use super::{Identity, Role};
use crate::time::now_ms;

/// Of one caller, for what needs a role.
#[derive(Debug)]
pub(crate) struct Standing {
    identity: Identity,
    proof: Proof,
    needed: Role,
}

impl Standing {
    pub(crate) fn new(identity: Identity, proof: Proof, needed: Role) -> Self {
        Self {
            identity,
            proof,
            needed,
        }
    }

    /// False once the caller has signed out, the token was revoked or has expired, the account was
    /// removed, or its role is too low.
    pub(crate) fn holds(&self) -> bool {
        let book = self.identity.store().book();
        let role = match &self.proof {
            Proof::Session(session) => {
                let is_good = self.identity.0.sessions.has(session, Instant::now());
                let account = book.account(&session.account).filter(|_| is_good);
                account.map(|account| account.role)
            }
            Proof::Token(shown) => book.token(&shown.digest, now_ms()).map(|it| it.role),
            Proof::Socket => Some(Role::Admin),
            Proof::Nothing => Some(Role::Viewer),
        };
        role.is_some_and(|role| role >= self.needed)
    }
}
