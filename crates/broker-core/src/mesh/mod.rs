//! What goes from one shard to another.

mod bundle;

pub(crate) use bundle::{Bundle, Bundles, is_plain};
