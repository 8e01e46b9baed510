//! What a shard reads from the logs.

use std::sync::Arc;

use crate::ids::{LogId, SessionId};
use crate::message::Message;

/// A part of a log that a shard wants to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadRequest {
    /// For whom.
    pub session: SessionId,
    /// Names the request.
    pub token: u64,
    /// Which log.
    pub log: LogId,
    /// From the message after this one on.
    pub after: u64,
    /// The last one: what is behind it this shard will hear of by itself.
    pub last: u64,
    /// Only messages whose topic matches one of these; others may be in the answer too.
    pub filters: Arc<[Box<str>]>,
    /// About so many bytes of messages, at least one message if there is one.
    pub bytes_max: usize,
    /// No client waits for it: what others want to read comes first.
    pub in_background: bool,
}

/// What was read.
#[derive(Clone, Debug)]
pub struct ReadAnswer {
    /// For whom.
    pub session: SessionId,
    /// Of which request.
    pub token: u64,
    /// Which log.
    pub log: LogId,
    /// What is there, in ascending order, each with its position.
    pub messages: Vec<Arc<Message>>,
    /// All that was asked for up to here is in the answer: to the last one, unless `messages` has
    /// as much as was wanted.
    pub through: u64,
}
