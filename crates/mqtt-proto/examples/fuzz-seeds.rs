//! Writes the golden packets as seeds for the fuzz target `decode`, one file each, into the folder
//! given or `dev/fuzz/corpus/decode`.

#![allow(clippy::print_stdout, reason = "a tool that says what it did")]
#![allow(
    clippy::unwrap_used,
    reason = "a tool for developers, shared with tests"
)]

use std::{env, fs, io, path::PathBuf};

use unbroken_mqtt_proto::Version;

#[allow(dead_code, reason = "a seed has no expectation")]
#[path = "../tests/support/golden.rs"]
mod golden;

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).map_or_else(
        || {
            PathBuf::from(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../dev/fuzz/corpus/decode"
            ))
        },
        PathBuf::from,
    );
    fs::create_dir_all(&folder)?;
    let rows = golden::golden();
    for (number, row) in rows.iter().enumerate() {
        let version = Version::ALL
            .iter()
            .position(|&version| version == row.version);
        let mut seed = vec![u8::try_from(version.unwrap_or_default()).unwrap_or_default()];
        seed.extend_from_slice(&row.bytes);
        fs::write(folder.join(format!("golden-{number:04}")), seed)?;
    }
    println!(
        "{} seeds in {}",
        rows.len(),
        folder.canonicalize()?.display()
    );
    Ok(())
}
