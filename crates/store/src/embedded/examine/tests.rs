use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use super::*;
use crate::batch::Batch;
use crate::embedded::{Embedded, Options, tree_list};
use crate::store::Store as _;

fn filled(path: &Path) -> PathBuf {
    let store = Embedded::open(path, Options::default()).unwrap();
    let mut batch = Batch::new();
    batch.put(Space::Control, vec![1], vec![7]);
    assert!(store.commit(&[batch]).unwrap()[0].is_ok());
    drop(store);
    path.join("store")
}

fn says(kind: ErrorKind) -> Result<Journals, StoreError> {
    Err(StoreError::io("making", "it", io::Error::from(kind)))
}

/// What clients publish is linked there, in a directory that may be open to everybody.
#[test]
fn a_copy_that_is_made_to_examine_a_store_is_private() {
    let temp = tempfile::tempdir().unwrap();
    let store = filled(temp.path());
    let trees = Trees::new(&store.join("engine"), Path::new(""), false);
    let at = |name: &str| temp.path().join(name);
    look(&store, &at("linked")).unwrap();
    copy_tree(&trees.path(1), &at("copied/1")).unwrap();
    assert!(tree_list::unpack(&store, &at("unpacked")).unwrap());
    for name in ["linked", "copied", "unpacked"] {
        let mode = fs::metadata(at(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{name}");
    }
}

/// Through one that was made before the next could not be, the store would be written.
#[test]
fn what_is_copied_since_no_links_can_be_made_is_not_written_through_links() {
    let temp = tempfile::tempdir().unwrap();
    let store = filled(temp.path());
    let scratch = temp.path().join("scratch");
    let trees = Trees::new(&store.join("engine"), &scratch, true);
    let original = trees.path(1).join(BEGINNING);
    fs::create_dir_all(scratch.join("1")).unwrap();
    let link = scratch.join("1").join(BEGINNING);
    fs::hard_link(&original, &link).unwrap();
    trees.open(1, "one").unwrap();
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_ne!(inode(&link), inode(&original));
    assert_eq!(fs::read(link).unwrap(), fs::read(original).unwrap());
}

#[test]
fn a_store_without_room_beside_it_is_looked_at_all_the_same() {
    let temp = tempfile::tempdir().unwrap();
    let store = filled(temp.path());
    let whole = look(&store, &temp.path().join("scratch")).unwrap();
    for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
        let skimmed = or_skimmed(&store, says(kind)).unwrap();
        assert!(skimmed.alone.is_some() && whole.alone.is_none());
        assert_eq!(skimmed.own, whole.own);
        assert_eq!(skimmed.links, whole.links);
    }
    or_skimmed(&store, says(ErrorKind::PermissionDenied)).unwrap_err();

    let damaged = |path: &Path, at: usize| {
        let before = fs::read(path).unwrap();
        let mut bytes = before.clone();
        bytes[at] ^= 1;
        fs::write(path, bytes).unwrap();
        let refused = or_skimmed(&store, says(ErrorKind::StorageFull)).unwrap_err();
        assert!(matches!(refused, StoreError::Damaged { .. }), "{refused}");
        fs::write(path, before).unwrap();
    };
    let engine = store.join("engine");
    damaged(&engine.join("0.jnl"), 20);
    damaged(&engine.join("keyspaces/1/current"), 12);
    fs::remove_file(engine.join("keyspaces/0/current")).unwrap();
    or_skimmed(&store, says(ErrorKind::StorageFull)).unwrap_err();
}

/// As a file system without hard links is; and what the engine clears away is not the store's.
#[test]
fn a_tree_is_looked_at_through_links_of_either_kind() {
    let temp = tempfile::tempdir().unwrap();
    let store = filled(temp.path());
    let stray = store.join("engine/keyspaces/1/tables/77");
    fs::write(&stray, "of no version").unwrap();
    look(&store, &temp.path().join("scratch")).unwrap();
    assert!(stray.exists());
    // Usually a file system of its own.
    let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    look(&store, elsewhere.path()).unwrap();
    assert!(stray.exists());
    let kept = elsewhere.path().join("1/current");
    let linked = fs::hard_link(store.join("format"), elsewhere.path().join("it")).is_ok();
    assert_eq!(kept.is_symlink(), !linked);
}
