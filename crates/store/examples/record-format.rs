//! Records a store and a backup of the format that is written now, for `tests/format`: as
//! `format-N.store` and `format-N.backup` in the folder given. Once for each format.

#![allow(clippy::unwrap_used, reason = "a tool for its authors")]
#![allow(dead_code, reason = "the test uses the rest")]

#[path = "../tests/format/files.rs"]
mod files;
#[path = "../tests/format/sample.rs"]
mod sample;

use std::path::PathBuf;
use std::{env, fs};

use unbroken_store::{Embedded, backup};

fn main() {
    let folder = PathBuf::from(env::args_os().nth(1).expect("a folder to write to"));
    let directory = folder.join("recording");
    let store = Embedded::open(&directory, sample::options()).unwrap();
    sample::fill(&store);
    let mut file = Vec::new();
    backup::write(&store, &mut file).unwrap();
    drop(store);
    let of_store = directory.join("store");
    let format = fs::read_to_string(of_store.join("format")).unwrap();
    let number = format.lines().next().unwrap().rsplit(' ').next().unwrap();
    let write = |ending: &str, bytes: &[u8]| {
        let path = folder.join(format!("format-{number}.{ending}"));
        fs::write(path, bytes).unwrap();
    };
    write("backup", &file);
    write("store", &files::pack(&of_store));
    fs::remove_dir_all(directory).unwrap();
}
