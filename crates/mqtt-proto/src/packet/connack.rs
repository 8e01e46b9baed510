//! CONNACK: the server's answer to CONNECT.

use crate::{property::Properties, reason::ReasonCode};

/// Accepts or refuses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnAck<'a> {
    /// The server holds a session for the client. Not sent in 3.1.
    pub session_present: bool,
    /// In 3.x the nearest of its return codes.
    pub reason: ReasonCode,
    /// Empty in 3.x.
    pub properties: Properties<'a>,
}
