//! Benchmarks of Unbroken beside its peers, interleaved in one run.
