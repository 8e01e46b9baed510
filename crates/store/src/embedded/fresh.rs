//! What of the newest generation of a log the engine has in memory only: what is let go of in time
//! is never written to a table.
//!
//! ```text
//! messages:  ... gone | let go of | needed ...
//! blocks:             [    ][    ][    ][    ]     those in the engine's memory
//!                     ^ begins    ^ goes to
//! ```
//!
//! Invariant: no block is here that may be in a table. The engine begins another memory when one is
//! full, and by its number that is noticed.

use std::collections::VecDeque;

use fjall::{AbstractTree, Keyspace};

use crate::position::Sequence;

/// Blocks that lie in the engine's memory, oldest first.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    /// The number of the memory in which they lie.
    memory: Option<u64>,
    blocks: VecDeque<Block>,
    /// Bytes of blocks in that memory which are let go of.
    gone_bytes: u64,
}

/// Where a block begins, and how large it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) first: Sequence,
    pub(super) bytes: u64,
}

/// Blocks that can be let go of.
#[derive(Debug)]
pub(super) struct LetGo {
    /// Each by its first message.
    pub(super) blocks: Vec<Sequence>,
    pub(super) bytes: u64,
    /// The first message behind them.
    pub(super) begins: Sequence,
}

/// The number of the memory to which the engine writes what is in a tree.
pub(super) fn memory_of(tree: &Keyspace) -> u64 {
    tree.tree.active_memtable().id()
}

impl Fresh {
    /// What nobody needs of it, where `floor` is the first message that somebody does, and `next`
    /// the one behind the last.
    pub(super) fn below(&self, floor: Sequence, next: Sequence, memory: u64) -> Option<LetGo> {
        if self.memory != Some(memory) {
            return None;
        }
        let ends = self.blocks.iter().skip(1).map(|block| block.first);
        let ended = self.blocks.iter().zip(ends.chain([next]));
        let mut found: Option<LetGo> = None;
        for (block, end) in ended.take_while(|(_, end)| *end <= floor) {
            let found = found.get_or_insert_with(|| LetGo {
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

    /// That is gone.
    pub(super) fn forget(&mut self, let_go: &LetGo) {
        self.blocks.drain(..let_go.blocks.len());
        self.gone_bytes += let_go.bytes;
    }

    /// Blocks that were written when this was the memory.
    pub(super) fn add(&mut self, memory: u64, blocks: &[Block]) {
        if self.memory != Some(memory) {
            *self = Self {
                memory: Some(memory),
                ..Self::default()
            };
        }
        self.blocks.extend(blocks);
    }

    /// Bytes in the engine's memory which are let go of.
    pub(super) fn gone_bytes(&self, memory: u64) -> u64 {
        if self.memory == Some(memory) {
            self.gone_bytes
        } else {
            0
        }
    }
}
