//! What can go wrong with an audited line.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use unbroken_merkle_log::ledger::StateError;
use unbroken_merkle_log::{LaneId, ParentsError};
use unbroken_mqtt_proto::{EncodeError, TopicError};

use crate::{PublishError, SubscribeError, Version};

/// Why a spool cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SpoolError {
    /// The system says no.
    #[error("cannot {doing} the spool {path}: {source}", path = .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system says.
        source: Arc<io::Error>,
    },
    /// Another process has it.
    #[error("the spool {path} is in use: two publishers cannot continue one lane", path = .0.display())]
    InUse(PathBuf),
    /// Something in its middle is not what was written. A torn end is no damage.
    #[error(
        "the spool {path} is damaged at byte {at}: {what}. Move it away to begin a new epoch; what it held is then unproven",
        path = .path.display()
    )]
    Damaged {
        /// Where it is.
        path: PathBuf,
        /// From where on.
        at: u64,
        /// What is wrong.
        what: String,
    },
    /// Its messages are not acknowledged, and it is as large as it may be.
    #[error(
        "the spool {path} holds {bytes} bytes, and {max} are the most: wait until the broker has acknowledged, or raise spool_bytes_max",
        path = .path.display()
    )]
    Full {
        /// Where it is.
        path: PathBuf,
        /// Its size with the message.
        bytes: u64,
        /// The limit.
        max: u64,
    },
}

/// Why a publisher or subscriber cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The client's version of MQTT has no user properties, so no message can carry its number.
    #[error(
        "the audit needs MQTT 5.0 and this client speaks {0}, which cannot carry a message's \
         number: connect with version 5.0 (Options::version)"
    )]
    Version(Version),
    /// The spool cannot be used.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// A filter was refused.
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
    /// The prefix or a filter makes no topic.
    #[error("{text:?} makes no topic of the audit: {source}")]
    Topic {
        /// As it would be.
        text: String,
        /// Why not.
        source: TopicError,
    },
    /// A saved ledger is none.
    #[error("cannot go on from what was saved: {0}")]
    State(#[from] StateError),
}

/// Why a message was not published, or is not known to have been.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AuditError {
    /// It has a user property that only the audit may set.
    #[error("the message has a user property {0:?}, which the audit sets: name yours otherwise")]
    Reserved(String),
    /// The spool could not take it. It was not sent. If the spool failed, the publisher has ended.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The broker did not take it. It has its number, and receivers will ask for it. Or the client
    /// has ended, and the publisher with it.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// Its property does not fit a packet.
    #[error("the message cannot carry its property: {0}")]
    Encode(#[from] EncodeError),
    /// As many messages as may wait for their numbers do.
    #[error("{0} messages wait for their numbers, the most that may: try later or wait with send")]
    Full(usize),
    /// The publisher has ended, and no error ended it: it was closed or left.
    #[error("the publisher has ended: it was closed or left")]
    Ended,
    /// The publisher has ended without a word.
    #[error(
        "the publisher's task has panicked, which is a defect: standard error has what it said; \
         with a spool the next start goes on where this one was"
    )]
    Panicked,
}

/// Why a processor could not go on.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The output was not published.
    #[error(transparent)]
    Publish(#[from] AuditError),
    /// The inputs make no parents.
    #[error("these inputs make no batch: {0}")]
    Parents(#[from] ParentsError),
    /// As many parts as a property cannot count, or of a part.
    #[error(
        "{parts} parts of message {number} of lane {lane}: 1 to 255, and a part is not split again"
    )]
    Parts {
        /// How many.
        parts: usize,
        /// Of which lane.
        lane: LaneId,
        /// Of which message.
        number: u64,
    },
    /// Nothing was given.
    #[error("no input: an output is made of at least one")]
    NoInput,
    /// Nothing more comes.
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
}
