//! Lanes of numbered messages as RFC 9162 hash trees, so that a receiver can name each message that
//! was lost, duplicated, reordered or altered, and prove that it named them all. No I/O, no clock.
//!
//! From a message up:
//!
//! - A [`Digest`] hashes leaves and nodes and tags checkpoints; [`Hasher`] is one of the algorithms
//!   that a lane may name.
//! - A [`Property`] travels with each message: lane, epoch, sequence and the digest of them with
//!   topic and payload. The digest is the leaf.
//! - A [`CompactRange`] is the hash of any run of leaves in O(log n) memory; a [`Tree`] keeps every
//!   node, and so has the root of each of its prefixes.
//! - A [`Checkpoint`] tells how many messages a lane has issued and what their root is; a
//!   [`Directory`] which lanes a producer has open.
//! - A [`Lane`] numbers messages at their producer, and a [`ledger`] judges them at their receiver.
//! - [`Parents`] and a [`DropRecord`] say what a processor in between made of them.
//!
//! Invariants: a leaf's index is the producer's own sequence number, never the order of arrival;
//! what is written is read back the same; reading refuses everything else with what and where, and
//! allocates no more than in proportion to the input.

#![forbid(unsafe_code)]

mod checkpoint;
mod compact;
mod digest;
mod directory;
mod drop_record;
mod hash_list;
mod hasher;
mod heritage;
mod id;
mod lane;
pub mod ledger;
mod levels;
pub mod limits;
mod parents;
mod proof;
mod property;
mod reader;
mod saved;
mod thex;
mod tree;

pub use self::{
    checkpoint::{Checkpoint, CheckpointError, Detail, DetailLevel, EpochEnd, SealedCheckpoint},
    compact::{CompactRange, RangeError},
    digest::{Algorithm, Digest, Hash, Tag, message_digest},
    directory::{Directory, OpenLane, SealedDirectory},
    drop_record::{DropReason, DropRecord, DropRecordError, DropRun, SealedDropRecord},
    hasher::{Blake3, Hasher, Heritage, Key, MissingKey, Sha256, Xxh3},
    heritage::{HeritageError, HeritageTree},
    id::{Epoch, LaneId},
    lane::{Lane, LaneLimits, Repair, Resend},
    parents::{LaneParents, Parents, ParentsError},
    proof::{ConsistencyProof, InclusionProof, ProofError},
    property::{Flags, Part, Property, PropertyError},
    saved::StateError,
    thex::{ThexError, ThexTree, TigerRoot, TigerRootError, TigerTree},
    tree::Tree,
};
