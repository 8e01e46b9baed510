//! What goes from one shard to another.

mod barriers;
mod bundle;
mod numbers;

pub(crate) use barriers::Barriers;
pub(crate) use bundle::{Bundle, Bundles, is_plain};
pub(crate) use numbers::{LetterNumbers, OutOfOrder};
