//! What goes from one shard to another.

mod barriers;
mod bundle;
mod message;
mod numbers;

pub(crate) use barriers::Barriers;
pub(crate) use bundle::{Bundle, Bundles, is_plain};
pub use message::ShardMessage;
pub(crate) use message::{Awaited, MeshMessage};
pub(crate) use numbers::{MessageNumbers, OutOfOrder};
