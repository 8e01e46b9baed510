//! Load generator behind unbroken bench.
