//! Runs the features.
fn main() {}
