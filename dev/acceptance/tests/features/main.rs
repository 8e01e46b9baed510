//! Runs the features in `features/` against the real binary: see the library's `features`.

use std::process::ExitCode;

fn main() -> ExitCode {
    unbroken_acceptance::features::run()
}
