//! Conformance tests over the traits, for stores of this crate and of others; behind the feature
//! `conformance`. Another crate names this one in its `dev-dependencies` with that feature,
//! implements [`Subject`], and gets all tests by one line:
//!
//! ```text
//! // tests/conformance.rs
//! struct OverJetStream { /* a server of its own */ }
//!
//! impl unbroken_store::conformance::Subject for OverJetStream {
//!     const KEEPS: bool = true;
//!
//!     fn open(&self) -> Box<dyn unbroken_store::Store> { /* connect */ }
//! }
//!
//! unbroken_store::conformance_tests!(over_jetstream, OverJetStream::start());
//! ```
//!
//! Each test is a function as well, so that a store that is not finished can run some of them.
//!
//! Invariants:
//! - A test knows nothing of a store but the traits and whether it keeps what was committed.
//! - Answers to random histories are compared with a reference model, which shares no code with a
//!   store.
//!
//! Deliberately absent: crashes, power cuts and damage, which depend on the store.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod histories;
mod reference;
mod suite;
#[cfg(test)]
mod tests;

use crate::{Durability, Store};

pub use self::{
    histories::{histories_match_the_reference_model, many_histories_match_the_reference_model},
    suite::{
        a_batch_is_written_whole_or_not_at_all,
        a_log_goes_on_at_a_greater_number_and_at_no_smaller_one,
        a_log_that_was_trimmed_empty_goes_on_after_a_restart, a_message_is_read_as_it_was_appended,
        a_number_that_is_not_the_next_is_refused_with_its_whole_batch,
        a_prefix_is_deleted_with_what_was_put_before_and_not_what_is_put_behind,
        a_selection_is_read_in_pieces, a_snapshot_stays_as_it_was_whatever_happens_to_the_store,
        a_value_is_set_only_if_what_is_there_is_as_expected,
        keys_are_scanned_by_prefix_in_order_and_in_pieces, keys_that_cannot_be_are_refused,
        later_batches_see_what_earlier_ones_wrote, long_topics_are_selected_too,
        messages_are_read_in_order_and_in_pieces, revisions_only_grow,
        topics_are_selected_by_name_and_by_wildcard, what_is_trimmed_counts_no_more,
        what_is_trimmed_is_not_read_and_numbers_go_on, what_was_committed_is_there_after_a_restart,
    },
};

/// A store under test. Each test makes one of its own.
pub trait Subject {
    /// What was committed is there when it is opened again.
    const KEEPS: bool;

    /// Opens it, for the first time or after it was dropped without a word.
    fn open(&self) -> Box<dyn Store>;

    /// The same, and commits are as safe as this says, if they can be. What a crash of the machine
    /// does is not seen by the tests.
    fn open_with(&self, _: Durability) -> Box<dyn Store> {
        self.open()
    }

    /// Forgets it: what is opened next is empty. For a store that [keeps](Self::KEEPS), of which a
    /// random history that failed has left something.
    fn reset(&self) {}
}

/// All tests, in a module of this name, for the [`Subject`](crate::conformance::Subject) that the
/// expression makes, once for each test. The longest one is ignored unless asked for.
#[macro_export]
macro_rules! conformance_tests {
    ($name:ident, $subject:expr) => {
        mod $name {
            #[allow(unused_imports, reason = "the expression may need nothing of it")]
            use super::*;

            $crate::conformance_tests!(@tests $subject;
                a_prefix_is_deleted_with_what_was_put_before_and_not_what_is_put_behind,
                a_message_is_read_as_it_was_appended,
                messages_are_read_in_order_and_in_pieces,
                a_number_that_is_not_the_next_is_refused_with_its_whole_batch,
                a_batch_is_written_whole_or_not_at_all,
                later_batches_see_what_earlier_ones_wrote,
                a_value_is_set_only_if_what_is_there_is_as_expected,
                revisions_only_grow,
                keys_are_scanned_by_prefix_in_order_and_in_pieces,
                keys_that_cannot_be_are_refused,
                topics_are_selected_by_name_and_by_wildcard,
                long_topics_are_selected_too,
                a_selection_is_read_in_pieces,
                what_is_trimmed_is_not_read_and_numbers_go_on,
                what_is_trimmed_counts_no_more,
                a_log_goes_on_at_a_greater_number_and_at_no_smaller_one,
                a_snapshot_stays_as_it_was_whatever_happens_to_the_store,
                what_was_committed_is_there_after_a_restart,
                a_log_that_was_trimmed_empty_goes_on_after_a_restart,
                histories_match_the_reference_model
            );

            #[test]
            #[ignore = "takes minutes: in the longer ci"]
            fn many_histories_match_the_reference_model() {
                $crate::conformance::many_histories_match_the_reference_model(
                    &$subject,
                );
            }
        }
    };
    (@tests $subject:expr; $($test:ident),+) => {
        $(
            #[test]
            fn $test() {
                $crate::conformance::$test(&$subject);
            }
        )+
    };
}
