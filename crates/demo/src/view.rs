//! How the board is shown: live on a terminal, or line by line.

pub(crate) mod lines;
pub(crate) mod screen;
