//! AUTH: a step of an enhanced authentication. 5.0 only.

use crate::{property::Properties, reason::ReasonCode};

/// One step of an authentication exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auth<'a> {
    /// `Success`, `ContinueAuthentication` or `ReAuthenticate`.
    pub reason: ReasonCode,
    /// With the method, always.
    pub properties: Properties<'a>,
}
