//! The tests over the traits, run on each store of this crate.

use std::cell::RefCell;

use super::Subject;
use crate::{Durability, Embedded, GENERATION_BYTES, Memory, Options, Store, conformance_tests};

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
        let options = Options {
            durability,
            generation_bytes: self.generation_bytes,
        };
        Box::new(Embedded::open(self.directory.borrow().path(), options).unwrap())
    }

    fn reset(&self) {
        self.directory.replace(tempfile::tempdir().unwrap());
    }
}

conformance_tests!(in_memory, InMemory);
conformance_tests!(embedded, OnDisk::new(GENERATION_BYTES));
conformance_tests!(embedded_in_small_generations, OnDisk::new(400));
