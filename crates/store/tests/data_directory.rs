//! Where the directory of a store may be, and how it may be named: nothing is made beside it, and
//! it stays the same directory whatever happens to the store in it, since it may be a mount point.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::fs;
use std::io::Cursor;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use unbroken_store::quarantine::{OnCorruption, mark, open};
use unbroken_store::{Batch, Embedded, Kv, Options, Space, Store, StoreError, backup};

/// A directory as a volume is: there before the store is, and alone in its parent.
struct Volume {
    temp: tempfile::TempDir,
    inode: u64,
}

impl Volume {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("volume");
        fs::create_dir(&path).unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        Self { temp, inode }
    }

    fn path(&self) -> PathBuf {
        self.temp.path().join("volume")
    }

    /// The names that somebody may give it.
    fn names(&self) -> [PathBuf; 4] {
        let with = |ending: &str| {
            let mut name = self.path().into_os_string();
            name.push(ending);
            PathBuf::from(name)
        };
        let link = self.temp.path().join("link");
        if !link.exists() {
            symlink("volume", &link).unwrap();
        }
        [with(""), with("/"), with("/."), link]
    }

    /// It is the same directory, and there is nothing but it and the link.
    fn stays(&self) {
        assert_eq!(fs::metadata(self.path()).unwrap().ino(), self.inode);
        let entries = fs::read_dir(self.temp.path()).unwrap();
        let mut names: Vec<OsString> = entries.map(|it| it.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["link", "volume"]);
    }
}

fn fill(store: &Embedded) {
    let mut batch = Batch::new();
    batch.put(Space::Control, b"kept".to_vec(), vec![7]);
    assert!(store.commit(&[batch]).unwrap()[0].is_ok());
}

fn is_filled(store: &Embedded) {
    let found = store.get(Space::Control, b"kept").unwrap();
    assert_eq!(found.unwrap().bytes, [7]);
}

fn restore(path: &Path) -> Result<(), backup::BackupError> {
    let temp = tempfile::tempdir().unwrap();
    let store = Embedded::open(temp.path(), Options::default()).unwrap();
    fill(&store);
    let mut file = Vec::new();
    backup::write(&store, &mut file).unwrap();
    backup::restore(&mut Cursor::new(file), path, Options::default()).map(drop)
}

#[test]
fn a_backup_is_restored_into_a_directory_however_it_is_named() {
    for which in 0..4 {
        let volume = Volume::new();
        let name = &volume.names()[which];
        restore(name).unwrap();
        volume.stays();
        is_filled(&Embedded::open(name, Options::default()).unwrap());
    }
}

#[test]
fn a_damaged_store_is_set_aside_within_its_directory_however_that_is_named() {
    for which in 0..4 {
        let volume = Volume::new();
        let name = &volume.names()[which];
        fill(&Embedded::open(name, Options::default()).unwrap());
        // Without what the engine has set aside, copies take no time.
        let journal = volume.path().join("store/engine/0.jnl");
        let bytes = fs::read(&journal).unwrap();
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        fs::write(&journal, &bytes[..used]).unwrap();
        mark(name, &StoreError::damaged("it", "met while it was in use")).unwrap();
        let (store, quarantined) =
            open(name, Options::default(), OnCorruption::Quarantine).unwrap();
        let set_aside = quarantined.unwrap().set_aside;
        assert!(set_aside.starts_with(name), "{}", set_aside.display());
        assert!(set_aside.join("damage.txt").is_file());
        is_filled(&store);
        volume.stays();
        drop(store);
        let again = open(name, Options::default(), OnCorruption::Refuse).unwrap();
        is_filled(&again.0);
        assert_eq!(again.1, None);
    }
}

/// As a first start leaves it that is killed while the engine makes its files, which are not opened
/// then: the journal is there, and what says that all is made is not.
#[test]
fn a_store_that_was_not_made_to_its_end_is_made_anew() {
    let volume = Volume::new();
    let store = Embedded::open(&volume.path(), Options::default()).unwrap();
    drop(store);
    let part = |name: &str| volume.path().join(name);
    fs::remove_file(part("store/engine/version")).unwrap();
    fs::rename(part("store"), part("making")).unwrap();
    let store = Embedded::open(&volume.path(), Options::default()).unwrap();
    assert!(!part("making").exists());
    fill(&store);
    drop(store);
    is_filled(&Embedded::open(&volume.path(), Options::default()).unwrap());
}

#[test]
fn files_of_a_new_file_system_are_no_obstacle() {
    let volume = Volume::new();
    volume.names();
    fs::create_dir(volume.path().join("lost+found")).unwrap();
    restore(&volume.path()).unwrap();
    volume.stays();
    is_filled(&Embedded::open(&volume.path(), Options::default()).unwrap());
}
