//! Retained messages: found by topic or by filter, and what sessions still wait to be sent of them.

mod index;
mod queries;
#[cfg(test)]
mod reference;

pub(crate) use index::RetainedIndex;
pub(crate) use queries::{Asked, RetainedScan, Scans};
