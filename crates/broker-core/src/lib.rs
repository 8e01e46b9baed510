//! One shard of the Unbroken broker as a value: inputs in, outputs out. No I/O, no clock.
