//! What must not compile, and what the user is told.
//!
//! Each file in `misuse/` is one mistake; the text beside it is the compiler's whole answer, in the
//! words of the version that the workspace names as `rust-version`. After a change of wording,
//! `TRYBUILD=overwrite cargo test -p session-channels --test misuse` writes the answers anew: read
//! the difference.

#[test]
fn every_misuse_is_refused_with_these_words() {
    trybuild::TestCases::new().compile_fail("tests/misuse/*.rs");
}
