//! Writes the recording of the plant's sensors that the demonstration plays.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    io::stdout().write_all(unbroken_demo::plant::record().as_bytes())
}
