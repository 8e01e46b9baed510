//! How people see a run: a live screen, lines in a pipe, a drawing.

pub(crate) mod lines;
pub(crate) mod screen;
pub(crate) mod svg;
