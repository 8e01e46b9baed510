//! A directory of small files as one file, and back.
//!
//! ```text
//! <length> <path>\n <bytes>      a file
//! / <path>\n                      a directory
//! ```

use std::fs;
use std::path::Path;

/// Leaves out the zeros that the engine sets aside.
pub(crate) fn pack(directory: &Path) -> Vec<u8> {
    let mut packed = Vec::new();
    add(directory, directory, &mut packed);
    packed
}

fn add(root: &Path, directory: &Path, packed: &mut Vec<u8>) {
    let entries = fs::read_dir(directory).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let name = path.strip_prefix(root).unwrap().to_str().unwrap();
        if path.is_dir() {
            packed.extend_from_slice(format!("/ {name}\n").as_bytes());
            add(root, &path, packed);
        } else {
            let mut bytes = fs::read(&path).unwrap();
            if path.extension().is_some_and(|ending| ending == "jnl") {
                let used = bytes.iter().rposition(|byte| *byte != 0);
                bytes.truncate(used.map_or(0, |at| at + 1));
            }
            packed.extend_from_slice(format!("{} {name}\n", bytes.len()).as_bytes());
            packed.extend_from_slice(&bytes);
        }
    }
}

pub(crate) fn unpack(mut packed: &[u8], directory: &Path) {
    while let Some(end) = packed.iter().position(|byte| *byte == b'\n') {
        let line = str::from_utf8(&packed[..end]).unwrap();
        packed = &packed[end + 1..];
        let (length, name) = line.split_once(' ').unwrap();
        if length == "/" {
            fs::create_dir_all(directory.join(name)).unwrap();
        } else {
            let (bytes, rest) = packed.split_at(length.parse().unwrap());
            fs::write(directory.join(name), bytes).unwrap();
            packed = rest;
        }
    }
}
