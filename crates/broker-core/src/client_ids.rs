//! What a listener asks of client ids: where they come from, which a user may have, and who may
//! take over a session.
//!
//! Deliberately absent: the rules of the protocol, which hold for each CONNECT
//! (`connection`).

use std::sync::Arc;

use unbroken_mqtt_proto::ReasonCode;

use crate::name_pattern::{USER, is_like_for};
use crate::reason::Fault;

/// What one listener asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientIdRules {
    /// Where a client's id comes from.
    pub source: ClientIdSource,
    /// What the id must be like: `*` stands for any characters, `{user}` for the client's user
    /// name.
    pub pattern: Option<Arc<str>>,
    /// Whether a client may take over a session of another user.
    pub takeover_by_anyone: bool,
}

/// Where a client's id comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientIdSource {
    /// From its CONNECT.
    #[default]
    Connect,
    /// It is the name of its user, whatever CONNECT says.
    User,
}

impl ClientIdRules {
    /// The id of a client that says this of itself. `user`: the name that it will be admitted
    /// under, if it is.
    pub(crate) fn id<'a>(&self, said: &'a str, user: Option<&'a str>) -> Result<&'a str, Fault> {
        match (self.source, user) {
            (ClientIdSource::Connect, _) => Ok(said),
            (ClientIdSource::User, Some(user)) if !user.is_empty() => Ok(user),
            (ClientIdSource::User, _) => Err(Fault::new(
                ReasonCode::ClientIdentifierNotValid,
                "its listener takes client ids from user names, and it has none",
            )),
        }
    }

    /// Whether a client that was admitted under this name may have this id; `None`: the broker
    /// chooses it.
    pub(crate) fn check(&self, id: Option<&str>, user: Option<&str>) -> Result<(), Fault> {
        let wrong = |detail| Err(Fault::new(ReasonCode::ClientIdentifierNotValid, detail));
        if self.source == ClientIdSource::User && (user.is_none() || id != user) {
            return wrong(
                "its listener takes client ids from user names, and its own is not verified",
            );
        }
        match (&self.pattern, id, user) {
            (None, ..) => Ok(()),
            (Some(_), None, _) => {
                wrong("its listener says what client ids are like, and it has none")
            }
            (Some(pattern), _, None) if pattern.contains(USER) => {
                wrong("its listener binds client ids to user names, and it has none")
            }
            (Some(pattern), Some(id), user) => {
                if is_like_for(pattern, user.unwrap_or_default(), id) {
                    Ok(())
                } else {
                    wrong("its client id is not one that its listener allows its user")
                }
            }
        }
    }

    /// Whether a client of this user may take over a session of that one. What no user has begun
    /// is anybody's.
    pub(crate) fn may_take_over(&self, user: Option<&Arc<str>>, of: Option<&Arc<str>>) -> bool {
        of.is_none() || self.takeover_by_anyone || user == of
    }
}
