//! What is written together: whole or not at all.

use std::fmt;

use crate::position::{LogId, Sequence};
use crate::record::MessageBytes;

/// Changes that are on disk together or not at all. One batch is one promise of the broker: a
/// message, its publisher's marker and its retained copy; a settled position and the end of its
/// delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    operations: Vec<Operation>,
    bytes: usize,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A message at the end of a log.
    Append {
        /// The log.
        log: LogId,
        /// Its number there, given by the owner of the log: one more than that of the last.
        sequence: Sequence,
        /// The message.
        message: MessageBytes,
    },
    /// A value in place of the one before.
    Put {
        /// Where.
        space: Space,
        /// Its key, at most [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX) bytes and at least one.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
        /// What must be there.
        expect: Expect,
    },
    /// No value any more.
    Delete {
        /// Where.
        space: Space,
        /// Its key.
        key: Vec<u8>,
        /// What must be there.
        expect: Expect,
    },
    /// No value any more at any key that begins so, of those that were there before this change.
    DeleteAll {
        /// Where.
        space: Space,
        /// What they begin with; not empty.
        prefix: Vec<u8>,
    },
}

/// A family of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// Sessions, in the keys and values of [`crate::session`].
    Sessions,
    /// Retained messages: the topic is the key, a [`MessageBytes`] the value.
    Retained,
    /// Wills that wait for their delay.
    Wills,
    /// Lanes of the audit and their ledgers, in the keys and values of [`crate::lane`].
    Lanes,
    /// What the broker knows of itself.
    Control,
}

/// How old a value is: greater than that of every value written before, in the whole store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// What must be at a key for its batch to be written: compare and set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expect {
    /// Whatever is there.
    #[default]
    Anything,
    /// Nothing.
    Absent,
    /// The value of this revision.
    Revision(Revision),
}

impl Batch {
    /// Nothing yet. Committing it does nothing, after all that was asked before.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a message at the end of a log.
    pub fn append(&mut self, log: LogId, sequence: Sequence, message: MessageBytes) -> &mut Self {
        self.push(Operation::Append {
            log,
            sequence,
            message,
        })
    }

    /// Sets a value, whatever was there.
    pub fn put(&mut self, space: Space, key: Vec<u8>, value: Vec<u8>) -> &mut Self {
        self.put_if(space, key, value, Expect::Anything)
    }

    /// Sets a value if what is there is as expected; otherwise nothing of the batch happens.
    pub fn put_if(
        &mut self,
        space: Space,
        key: Vec<u8>,
        value: Vec<u8>,
        expect: Expect,
    ) -> &mut Self {
        self.push(Operation::Put {
            space,
            key,
            value,
            expect,
        })
    }

    /// Removes a value, if there is one.
    pub fn delete(&mut self, space: Space, key: Vec<u8>) -> &mut Self {
        self.delete_if(space, key, Expect::Anything)
    }

    /// Removes a value if what is there is as expected; otherwise nothing of the batch happens.
    pub fn delete_if(&mut self, space: Space, key: Vec<u8>, expect: Expect) -> &mut Self {
        self.push(Operation::Delete { space, key, expect })
    }

    /// Removes all values at keys that begin so.
    pub fn delete_all(&mut self, space: Space, prefix: Vec<u8>) -> &mut Self {
        self.push(Operation::DeleteAll { space, prefix })
    }

    /// Adds any change.
    pub fn push(&mut self, operation: Operation) -> &mut Self {
        self.bytes += operation.bytes();
        if self.operations.is_empty() {
            self.operations.reserve_exact(1); // most have one, and many wait
        }
        self.operations.push(operation);
        self
    }

    /// Adds all changes of another.
    pub fn extend(&mut self, other: Self) -> &mut Self {
        self.bytes += other.bytes;
        self.operations.extend(other.operations);
        self
    }

    /// The changes, in the order in which they were added.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Keys, values and messages in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// There is no change in it.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }
}

impl Expect {
    /// Whether the value of this revision, or no value, is as expected.
    pub(crate) fn allows(self, found: Option<Revision>) -> bool {
        match self {
            Self::Anything => true,
            Self::Absent => found.is_none(),
            Self::Revision(revision) => found == Some(revision),
        }
    }
}

impl Operation {
    fn bytes(&self) -> usize {
        match self {
            Self::Append { message, .. } => message.as_bytes().len(),
            Self::Put { key, value, .. } => key.len() + value.len(),
            Self::Delete { key, .. } => key.len(),
            Self::DeleteAll { prefix, .. } => prefix.len(),
        }
    }
}

impl Space {
    /// Every space.
    pub const ALL: [Self; 5] = [
        Self::Sessions,
        Self::Retained,
        Self::Wills,
        Self::Lanes,
        Self::Control,
    ];

    /// Its name, on disk and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Retained => "retained",
            Self::Wills => "wills",
            Self::Lanes => "lanes",
            Self::Control => "control",
        }
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
