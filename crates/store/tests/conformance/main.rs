//! What every store must do, as one set of tests over the traits, run on each.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod histories;
mod suite;
mod twin;

use std::cell::RefCell;

use unbroken_store::{Durability, Embedded, Memory, Options, Store};

/// A store under test.
trait Subject {
    /// Opens it, for the first time or after it was dropped without a word.
    fn open(&self) -> Box<dyn Store>;

    /// The same, and commits are as safe as this says, if they can be.
    fn open_with(&self, _: Durability) -> Box<dyn Store> {
        self.open()
    }

    /// What was committed is there when it is opened again.
    const KEEPS: bool;

    /// Forgets it: what is opened next is empty.
    fn reset(&self) {}
}

struct InMemory;

impl Subject for InMemory {
    const KEEPS: bool = false;

    fn open(&self) -> Box<dyn Store> {
        Box::new(Memory::new())
    }
}

/// In a directory of its own, with generations of so many bytes.
struct OnDisk {
    directory: RefCell<tempfile::TempDir>,
    generation_bytes: u64,
}

impl OnDisk {
    fn new(generation_bytes: u64) -> Self {
        Self {
            directory: RefCell::new(tempfile::tempdir().unwrap()),
            generation_bytes,
        }
    }
}

impl Subject for OnDisk {
    const KEEPS: bool = true;

    fn open(&self) -> Box<dyn Store> {
        // What a crash of the machine does is not seen here, and syncing takes long.
        self.open_with(Durability::Off)
    }

    fn open_with(&self, durability: Durability) -> Box<dyn Store> {
        let mut options = Options::default();
        options.durability = durability;
        options.generation_bytes = self.generation_bytes;
        Box::new(Embedded::open(self.directory.borrow().path(), options).unwrap())
    }

    fn reset(&self) {
        self.directory.replace(tempfile::tempdir().unwrap());
    }
}

macro_rules! conformance {
    ($name:ident, $subject:expr) => {
        mod $name {
            use super::*;

            conformance!(@tests $subject;
                a_message_is_read_as_it_was_appended,
                messages_are_read_in_order_and_in_pieces,
                a_number_that_is_not_the_next_is_refused_with_its_whole_batch,
                a_batch_is_written_whole_or_not_at_all,
                later_batches_see_what_earlier_ones_wrote,
                a_value_is_set_only_if_what_is_there_is_as_expected,
                revisions_only_grow,
                keys_are_scanned_by_prefix_in_order_and_in_pieces,
                keys_that_cannot_be_are_refused,
                a_prefix_is_deleted_with_what_was_put_before_and_not_what_is_put_behind,
                topics_are_selected_by_name_and_by_wildcard,
                long_topics_are_selected_too,
                a_selection_is_read_in_pieces,
                what_is_trimmed_is_not_read_and_numbers_go_on,
                what_is_trimmed_counts_no_more,
                a_log_goes_on_at_a_greater_number_and_at_no_smaller_one,
                a_snapshot_stays_as_it_was_whatever_happens_to_the_store,
                what_was_committed_is_there_after_a_restart,
                a_log_that_was_trimmed_empty_goes_on_after_a_restart,
                histories_are_the_same_as_those_of_the_naive_twin
            );

            #[test]
            #[ignore = "takes minutes: in the longer ci"]
            fn many_histories_are_the_same_as_those_of_the_naive_twin() {
                histories::many_histories_are_the_same_as_those_of_the_naive_twin(&$subject);
            }
        }
    };
    (@tests $subject:expr; $($test:ident),+) => {
        $(
            #[test]
            fn $test() {
                suite::$test(&$subject);
            }
        )+
    };
}

conformance!(in_memory, InMemory);
conformance!(embedded, OnDisk::new(unbroken_store::GENERATION_BYTES));
conformance!(embedded_in_small_generations, OnDisk::new(400));
