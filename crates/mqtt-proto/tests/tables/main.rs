//! The state tables: every state against every event, each kind of state in one committed text
//! under `tests/snapshots/`. A change of the rules shows as a change of such a text, to be read and
//! then accepted as the failing test says.
//!
//! Deliberately absent: what takes more than one message at a time, such as the order of re-sending
//! and windows above 1. The reference model and the pair of peers are for that.

mod inbound;
mod machine;
mod outbound;
mod phases;

use std::path::Path;

/// Compares what the code does now with `tests/snapshots/<name>`, whose text is `recorded`.
fn compare(name: &str, found: &str, recorded: &str) {
    if found == recorded {
        return;
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, found).expect("the target directory takes files");
    // A longer word widens its column: what matters is the first line whose words differ.
    let same = found
        .lines()
        .zip(recorded.lines())
        .take_while(|(found, recorded)| found.split_whitespace().eq(recorded.split_whitespace()))
        .count();
    panic!(
        "{name} changed in line {}\nwas: {:?}\nnow: {:?}\nif that is meant: cp {} {}",
        same + 1,
        recorded.lines().nth(same),
        found.lines().nth(same),
        path.display(),
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/snapshots")
            .join(name)
            .display(),
    );
}
