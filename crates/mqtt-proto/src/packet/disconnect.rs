//! DISCONNECT: the last packet of a connection, from the client or (5.0) from the server.

use crate::{property::Properties, reason::ReasonCode};

/// Ends the connection and says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnect<'a> {
    /// `Success` in 3.x, which has no reason here.
    pub reason: ReasonCode,
    /// Empty in 3.x.
    pub properties: Properties<'a>,
}
