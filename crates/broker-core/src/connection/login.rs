//! As whom a client is let in, and on what terms.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Enhanced;
use crate::ids::SessionId;
use crate::policy::{Ceiling, Claims, Mount};

/// As whom the client is let in.
#[derive(Debug, Default)]
pub(super) struct Login {
    /// The name the driver admitted the client under; `None` is anonymous.
    pub(super) user: Option<Arc<str>>,
    /// What the driver admitted it with beside its name, if there is more.
    pub(super) vouched: Option<Box<Vouched>>,
    /// Its enhanced authentication, if CONNECT named a method.
    pub(super) enhanced: Option<Box<Enhanced>>,
}

impl Login {
    /// Memory of what it is vouched for with, and of an exchange that is under way.
    pub(super) fn memory(&self) -> usize {
        let claims = self.vouched.as_ref().and_then(|it| it.claims.as_ref());
        let enhanced = self.enhanced.as_ref();
        claims.map_or(0, |claims| claims.memory()) + enhanced.map_or(0, |it| it.memory())
    }
}

/// What an authenticator has said of a client beside its name.
#[derive(Debug)]
pub(super) struct Vouched {
    pub(super) claims: Option<Arc<Claims>>,
    pub(super) until: Option<Instant>,
}

/// On what terms a client is let in.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) session: SessionId,
    /// One and a half times the keep alive in force.
    pub(crate) keep_alive: Option<Duration>,
    /// How many topic aliases the client may use, if it speaks 5.0.
    pub(crate) aliases_in_max: Option<u16>,
    /// How many it lets the broker use.
    pub(crate) aliases_out_max: u16,
    /// Its mount, if it has one.
    pub(crate) mount: Option<Mount>,
    /// What CONNACK says of how it may publish.
    pub(crate) announced: Ceiling,
}
