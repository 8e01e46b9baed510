//! Whole shards and clients under seeded random schedules.
