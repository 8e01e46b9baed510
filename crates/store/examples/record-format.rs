//! Records stores and backups of the format that is written now, for `tests/format`: as
//! `format-N.store`, `format-N-kinds.store` and `.backup` in the folder given. Once for each
//! format: what is there is not written again.

#![allow(clippy::unwrap_used, reason = "a tool for its authors")]
#![allow(dead_code, reason = "the test uses the rest")]

#[path = "../tests/format/files.rs"]
mod files;
#[path = "../tests/format/sample.rs"]
mod sample;

use std::path::{Path, PathBuf};
use std::{env, fs};

use unbroken_store::{Embedded, Store, backup};

fn main() {
    let folder = PathBuf::from(env::args_os().nth(1).expect("a folder to write to"));
    record(&folder, "", sample::fill);
    record(&folder, "-kinds", sample::fill_with_kinds);
    record(&folder, "-let-go", sample::fill_and_let_go);
    record(&folder, "-access", sample::fill_with_access);
}

fn record(folder: &Path, name: &str, fill: fn(&dyn Store)) {
    let directory = folder.join("recording");
    let store = Embedded::open(&directory, sample::options()).unwrap();
    fill(&store);
    let mut file = Vec::new();
    backup::write(&store, &mut file).unwrap();
    drop(store);
    let of_store = directory.join("store");
    let format = fs::read_to_string(of_store.join("format")).unwrap();
    let number = format.lines().next().unwrap().rsplit(' ').next().unwrap();
    let write = |ending: &str, bytes: &[u8]| {
        let path = folder.join(format!("format-{number}{name}.{ending}"));
        if !path.exists() {
            fs::write(path, bytes).unwrap();
        }
    };
    write("backup", &file);
    write("store", &files::pack(&of_store));
    fs::remove_dir_all(directory).unwrap();
}
