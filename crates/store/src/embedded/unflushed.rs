//! The blocks of a log's newest generation that the engine has in memory only: a block released in
//! time is never written to a table.
//!
//! ```text
//! messages:  ... gone | let go of | needed ...
//! blocks:             [    ][    ][    ][    ]     those in the engine's memory
//!                     ^ begins    ^ goes to
//! ```
//!
//! Invariant: no block here may be in a table. The engine switches to another memtable when one is
//! full, which the memtable's number shows.

use std::collections::VecDeque;

use fjall::{AbstractTree, Keyspace};

use crate::position::Sequence;

/// Blocks in the engine's memtable, oldest first.
#[derive(Debug, Default)]
pub(super) struct Unflushed {
    /// The number of the memtable that contains them.
    memory: Option<u64>,
    blocks: VecDeque<Block>,
    /// Released bytes of blocks in that memtable.
    released_bytes: u64,
}

/// Where a block begins, and how large it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) first: Sequence,
    pub(super) bytes: u64,
}

/// Blocks to release.
#[derive(Debug)]
pub(super) struct Releasable {
    /// Each by its first message.
    pub(super) blocks: Vec<Sequence>,
    pub(super) bytes: u64,
    /// The first message after them.
    pub(super) begins: Sequence,
}

/// The number of the memtable to which the engine writes a tree.
pub(super) fn memtable_of(tree: &Keyspace) -> u64 {
    tree.tree.active_memtable().id()
}

impl Unflushed {
    /// The blocks below `floor`, the first message that a session needs; `next` is the message
    /// after the last.
    pub(super) fn below(&self, floor: Sequence, next: Sequence, memory: u64) -> Option<Releasable> {
        if self.memory != Some(memory) {
            return None;
        }
        let ends = self.blocks.iter().skip(1).map(|block| block.first);
        let ended = self.blocks.iter().zip(ends.chain([next]));
        let mut found: Option<Releasable> = None;
        for (block, end) in ended.take_while(|(_, end)| *end <= floor) {
            let found = found.get_or_insert_with(|| Releasable {
                blocks: Vec::new(),
                bytes: 0,
                begins: end,
            });
            found.blocks.push(block.first);
            found.bytes += block.bytes;
            found.begins = end;
        }
        found
    }

    /// These blocks are gone.
    pub(super) fn forget(&mut self, release: &Releasable) {
        self.blocks.drain(..release.blocks.len());
        self.released_bytes += release.bytes;
    }

    /// Blocks that were written to this memtable.
    pub(super) fn add(&mut self, memory: u64, blocks: &[Block]) {
        if self.memory != Some(memory) {
            *self = Self {
                memory: Some(memory),
                ..Self::default()
            };
        }
        self.blocks.extend(blocks);
    }

    /// Released bytes in this memtable.
    pub(super) fn released_bytes(&self, memory: u64) -> u64 {
        if self.memory == Some(memory) {
            self.released_bytes
        } else {
            0
        }
    }
}
