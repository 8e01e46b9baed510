//! What outlives the broker: a log of messages and small values, behind two traits.
//!
//! - [`Log`]: messages in the order in which a shard took them in, one log for each shard. A queue
//!   of a session is no copy but a range of a log, read with [`Log::read_matching`].
//! - [`Kv`]: everything else in small keys: sessions ([`session`]), retained messages, wills,
//!   lanes.
//! - [`Store`]: both, and the one way to write: a [`Batch`] over log and keys, whole or not at all.
//!
//! [`Store::snapshot`] is a [`View`] of one moment, and [`backup`] the file that one is written to.
//!
//! What lies in it is versioned, and read strictly: [`MessageRecord`] and the values of
//! [`session`], [`lane`] and [`access`].
//!
//! What every store must do is in `conformance`, a module behind the feature of that name: a crate
//! with a store of its own runs the same tests on it, by one line.
//!
//! Invariants:
//! - A batch whose commit was answered with success survives what the store's durability says; a
//!   reader sees a batch whole or not at all, and never before that.
//! - An error of a commit is final: nothing is acknowledged any more.
//! - Nothing read from a disk panics; what does not read is [`StoreError::Damaged`], with its
//!   place.
//!
//! Deliberately absent: MQTT's rules (who gets what is the broker's), async, and a way to change a
//! message in a log.

#![forbid(unsafe_code)]

pub mod access;
pub mod backup;
mod batch;
mod codec;
mod committer;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod data_directory;
mod embedded;
pub mod errand;
mod error;
pub mod expected_deliveries;
mod faulty;
mod file_system;
pub mod hand_over;
pub mod lane;
mod memory;
pub mod moves;
mod position;
pub mod quarantine;
mod record;
mod selection;
pub mod session;
mod stats;
mod store;
pub mod store_health;
mod values;

pub use self::{
    batch::{Batch, Expect, Operation, Revision, Space},
    codec::RecordError,
    committer::{
        Answer, COMMIT_BYTES_MAX, Committer, Full, QUEUE_BATCHES_MAX, QUEUE_BYTES_MAX, Refusal,
    },
    embedded::{
        Durability, Embedded, FreeSpace, GENERATION_BYTES, Looked, Options, SYNC_EVERY,
        whole_in_journal,
    },
    error::{Conflict, StoreError},
    faulty::{Fault, Faulty, On},
    memory::Memory,
    position::{LogId, Position, Sequence},
    record::{LaneMark, MessageBytes, MessageRecord},
    selection::{Matcher, Selection},
    stats::{CommitStats, CommitTimes},
    store::{
        Bounds, Chunk, Committed, Entry, KEY_BYTES_MAX, KeptBytes, Kv, Log, Page, Pair, Store,
        Value, View,
    },
    values::{ValueKind, check_value},
};
