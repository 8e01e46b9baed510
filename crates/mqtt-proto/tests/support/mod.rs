//! What the tests of this crate share.

pub(crate) mod golden;
pub(crate) mod words;
