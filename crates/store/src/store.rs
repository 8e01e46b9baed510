//! The two traits to read by, and the way to write to both at once.
//!
//! They are cut so that an embedded engine and a cluster of NATS servers with JetStream can both
//! implement them: a log is a stream with one subject for each topic, a space is a family of
//! subjects of which the last message counts, a commit is an atomic publish with expected
//! sequences. So they are synchronous and name no file. What of them JetStream keeps by itself, and
//! what it keeps only with a store on the node's disk that follows its streams, is in ADR 17.
//!
//! One committer calls [`Store::commit`] and [`Store::sync`]; any number of readers call the rest.

use std::ops::Range;

use crate::batch::{Batch, Revision, Space};
use crate::error::{Conflict, StoreError};
use crate::position::{LogId, Sequence};
use crate::record::MessageBytes;
use crate::selection::Selection;

/// The longest key: what the engines can hold.
pub const KEY_BYTES_MAX: usize = 65_535;

/// Messages in the order in which they were taken in.
pub trait Log {
    /// The logs that there are, in ascending order.
    fn logs(&self) -> Result<Vec<LogId>, StoreError>;

    /// What is in a log; an unknown one is empty.
    fn bounds(&self, log: LogId) -> Result<Bounds, StoreError>;

    /// Numbers from [`Bounds::first`] on that no message has, since the log
    /// [went on](Store::go_on_at) behind them, in ascending order. Costs a look at each part of the
    /// log.
    fn left_out(&self, log: LogId) -> Result<Vec<Range<Sequence>>, StoreError>;

    /// The messages of a range, from its beginning on, up to about `bytes_max` bytes of messages:
    /// at least one if there is one, and no more once they are reached. What is below
    /// [`Bounds::first`] is left out.
    fn read(
        &self,
        log: LogId,
        range: Range<Sequence>,
        bytes_max: usize,
    ) -> Result<Chunk, StoreError>;

    /// As [`read`](Self::read), but only the messages whose topic is selected. It costs what is
    /// selected, not what lies between, and looks at a bounded part of the log each time: the
    /// answer may be empty and yet not be the last.
    fn read_matching(
        &self,
        log: LogId,
        range: Range<Sequence>,
        wanted: &Selection,
        bytes_max: usize,
    ) -> Result<Chunk, StoreError>;
}

/// Small values under keys, in several [`Space`]s.
pub trait Kv {
    /// The value at a key.
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Value>, StoreError>;

    /// Keys that begin with `prefix`, in the order of their bytes, those after `after` if that is
    /// given, up to about `bytes_max` bytes of keys and values: at least one if there is one.
    fn scan(
        &self,
        space: Space,
        prefix: &[u8],
        after: Option<&[u8]>,
        bytes_max: usize,
    ) -> Result<Page, StoreError>;
}

/// Both, to read: a store as it is, or as it was at one moment.
pub trait View: Log + Kv + Send + Sync {}

impl<T: Log + Kv + Send + Sync + ?Sized> View for T {}

/// Both, and the one way to write.
pub trait Store: View {
    /// Writes batches in this order, each whole or not at all, and answers for each whether it was
    /// written. When this returns, what was written is as safe as the store was opened to make it.
    ///
    /// An error is final: which of the batches are on disk is not known, and every later commit
    /// answers [`StoreError::Dead`]. Reading goes on as far as it can.
    fn commit(&self, batches: &[Batch]) -> Result<Vec<Result<Committed, Conflict>>, StoreError>;

    /// Makes everything committed survive a power cut, where commits alone do not. An error is
    /// final.
    fn sync(&self) -> Result<(), StoreError>;

    /// The next message of this log has this number; nothing happens if it would have this one or
    /// a greater one anyway. What is left out is never there. For a store that takes over what
    /// another had. An error is final.
    fn go_on_at(&self, log: LogId, next: Sequence) -> Result<(), StoreError>;

    /// Nobody needs what is below this number: it may go, at once, later, or partly, and is not
    /// read any more. Sequences go on as if it were there. At most one part of the log is freed at
    /// a time, since that takes long: true if one was, and there may be another.
    fn trim(&self, log: LogId, below: Sequence) -> Result<bool, StoreError>;

    /// Everything as it is now, whatever is written, trimmed or removed later. It is made at once;
    /// as long as it lives, what it shows takes its place on disk.
    fn snapshot(&self) -> Result<Box<dyn View + '_>, StoreError>;

    /// Bytes on disk, or in memory if there is no disk; about.
    fn size_bytes(&self) -> Result<u64, StoreError>;

    /// Data that is stored for sessions, and grows and shrinks with them: what a limit may count.
    fn kept_bytes(&self) -> Result<KeptBytes, StoreError>;
}

/// Bytes of what is kept, about. On disk there is more: journals, and what was trimmed of a part of
/// a log that is not gone yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptBytes {
    /// Of the messages that were not trimmed.
    pub messages: u64,
    /// Of values.
    pub values: u64,
    /// Of both together, what letting go of messages takes off no disk: values, and what is in the
    /// newest generation of a log.
    pub staying: u64,
}

/// What is in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The first message that can still be read; equal to `next` if there is none.
    pub first: Sequence,
    /// The number that the next message will have.
    pub next: Sequence,
}

/// Part of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Messages in ascending order.
    pub entries: Vec<Entry>,
    /// Everything that was asked for below this number is in `entries` or was answered before: go
    /// on from here. The end of the range, or of the log, is reached when it is that.
    pub next: Sequence,
}

/// A message in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number.
    pub sequence: Sequence,
    /// The message.
    pub message: MessageBytes,
}

/// A value and its age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// When it was written, among all others.
    pub revision: Revision,
    /// The value.
    pub bytes: Vec<u8>,
}

/// A key and what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The key, whole.
    pub key: Vec<u8>,
    /// The value.
    pub value: Value,
}

/// Part of a space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Keys in ascending order.
    pub pairs: Vec<Pair>,
    /// There are more: ask again after the last.
    pub more: bool,
}

/// A batch was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The revision of the first of its operations; each further one has one more.
    pub revision: Revision,
}

impl KeptBytes {
    /// Of everything.
    pub const fn sum(self) -> u64 {
        self.messages.saturating_add(self.values)
    }
}

impl Chunk {
    /// Nothing, and go on from here.
    pub fn empty(next: Sequence) -> Self {
        Self {
            entries: Vec::new(),
            next,
        }
    }
}

impl Bounds {
    /// A log without messages.
    pub const EMPTY: Self = Self {
        first: Sequence::FIRST,
        next: Sequence::FIRST,
    };
}
