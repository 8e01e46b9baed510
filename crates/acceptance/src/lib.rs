//! Acceptance features run against the real binary.
