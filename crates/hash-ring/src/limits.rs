//! Limits of the slot table, and with them of its memory.

/// Nodes in a slot table.
pub const NODES_MAX: usize = 1_024;
/// Slots of a table. With [`COPIES_MAX`] copies this many slots take 896 KiB.
pub const SLOTS_MAX: u32 = 65_536;
/// Copies of a slot, the primary among them.
pub const COPIES_MAX: u8 = 7;
/// The largest weight of a node; the smallest is 1.
pub const WEIGHT_MAX: u16 = 10_000;

// A position among the nodes, or none, fits in the table's two bytes.
const _: () = assert!(NODES_MAX < u16::MAX as usize);
// A score fits in 64 bits: 38 bits of a logarithm times 32 of a reciprocal, less 8.
const _: () = assert!(WEIGHT_MAX >= 1);
