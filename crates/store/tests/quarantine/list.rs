//! The engine's list of trees, and its copy.

use super::*;

/// Names and settings of all trees are in it, some KiB.
#[test]
fn a_bad_block_in_the_list_of_trees_costs_nothing_that_is_in_them() {
    let pristine = Damaged::new();
    let opened = Embedded::open(&pristine.path(), options()).unwrap();
    let session = session::key(
        "kept",
        Part::Subscription {
            filter: "plant/#",
            era: 0,
        },
    );
    let head = Head {
        client_id: "kept".to_owned(),
        expiry_s: NonZeroU32::MAX,
        offline_since_ms: None,
        user: None,
        mount: None,
    };
    let mut batch = Batch::new();
    batch
        .put(
            Space::Sessions,
            session::key("kept", Part::Head),
            head.encode(),
        )
        .put(
            Space::Sessions,
            session.clone(),
            subscription(&[], false).encode(),
        )
        .put(Space::Retained, key(7), message(7).into_bytes());
    assert!(opened.commit(&[batch]).unwrap()[0].is_ok());
    drop(opened);
    pristine.trim_journal();
    let mut noticed = 0;
    for part in 0..=8 {
        let temp = tempfile::tempdir().unwrap();
        let store = Damaged { temp };
        copy(&pristine.path(), &store.path());
        if part == 8 {
            store.damage_names();
        } else {
            for table in store.list() {
                let mut bytes = fs::read(&table).unwrap();
                let at = bytes.len() * part / 8 + 30;
                bytes[at] ^= 1;
                fs::write(table, bytes).unwrap();
            }
        }
        let (opened, quarantined) = store.open();
        let all: Vec<_> = (1..=COUNT).collect();
        assert_eq!(
            contents(&opened).unwrap(),
            (all.clone(), all),
            "part {part}"
        );
        assert!(opened.get(Space::Sessions, &session).unwrap().is_some());
        assert!(opened.get(Space::Retained, &key(7)).unwrap().is_some());
        if let Some(quarantined) = quarantined {
            noticed += 1;
            let [lost] = &quarantined.salvaged.lost[..] else {
                panic!("part {part}: {quarantined}");
            };
            assert!(lost.contains("was read from its copy"), "{lost}");
            assert!(lost.contains("keyspaces/0"), "{lost}");
        }
    }
    assert!(noticed > 5, "{noticed}");
}

/// As a run without room for another copy leaves it.
#[test]
fn an_old_copy_of_the_list_gives_what_it_names_and_the_rest_is_reported() {
    let temp = tempfile::tempdir().unwrap();
    let store = Damaged { temp };
    let mut options = options();
    options.generation_bytes = 2_000;
    let opened = Embedded::open(&store.path(), options).unwrap();
    write(&opened, 1..=COUNT / 2);
    let named = opened.generations(LOG);
    drop(opened);
    let old = fs::read(store.list_copy()).unwrap();
    let opened = Embedded::open(&store.path(), options).unwrap();
    write(&opened, COUNT / 2 + 1..=COUNT);
    assert!(opened.trim(LOG, named[1]).unwrap());
    let unnamed = opened.generations(LOG)[named.len() - 1];
    drop(opened);
    store.trim_journal();
    assert!(fs::read(store.list_copy()).unwrap() != old);
    fs::write(store.list_copy(), old).unwrap();
    store.damage_names();
    let (opened, quarantined) = store.open();
    let quarantined = quarantined.unwrap();
    let (messages, keys) = contents(&opened).unwrap();
    let kept: Vec<_> = (named[1].0..unnamed.0).collect();
    assert_eq!(messages, kept, "{quarantined}");
    assert_eq!(keys, (1..=COUNT).collect::<Vec<_>>());
    assert!(opened.bounds(LOG).unwrap().next.0 > COUNT);
    let lost = &quarantined.salvaged.lost;
    // Trees 1 to 6 are not of a log.
    let tree = 6 + named.len() + 1;
    let words = format!("the engine's tree {tree}, all of it: the copy of the list does not name");
    assert!(
        lost.iter().any(|it| it.starts_with(&words)),
        "{words}: {lost:?}"
    );
    let words = format!("tree log.{LOG}.");
    assert!(!lost.iter().any(|it| it.contains(&words)), "{lost:?}");
}

/// The copy of the list names it, or does not; the store's own tree knows in both cases.
#[test]
fn the_newest_generation_is_missed_where_the_list_is_read_from_its_copy() {
    for is_named in [true, false] {
        let temp = tempfile::tempdir().unwrap();
        let store = Damaged { temp };
        let opened = Embedded::open(&store.path(), options()).unwrap();
        write(&opened, 1..=COUNT / 2);
        let before = opened.generations(LOG).len();
        drop(opened);
        let old = fs::read(store.list_copy()).unwrap();
        let opened = Embedded::open(&store.path(), options()).unwrap();
        write(&opened, COUNT / 2 + 1..=COUNT);
        let generations = opened.generations(LOG);
        assert!(generations.len() > before);
        let newest = generations[generations.len() - 1];
        drop(opened);
        store.trim_journal();
        if !is_named {
            fs::write(store.list_copy(), old).unwrap();
        }
        store.damage_names();
        // Trees 1 to 6 are not of a log.
        let tree = format!("store/engine/keyspaces/{}", 6 + generations.len());
        fs::remove_dir_all(store.path().join(tree)).unwrap();
        let (opened, quarantined) = store.open();
        let lost = quarantined.unwrap().salvaged.lost;
        let words = format!("log {LOG} from message {newest} on: all of it");
        assert!(
            lost.iter().any(|it| it.starts_with(&words)),
            "{words}: {lost:?}"
        );
        let (messages, _) = contents(&opened).unwrap();
        assert!(messages.iter().all(|number| *number < newest.0));
        assert!(opened.bounds(LOG).unwrap().next.0 > COUNT);
    }
}

#[test]
fn without_its_list_and_a_copy_of_it_nothing_is_copied_which_is_said() {
    for gone in [false, true] {
        let store = Damaged::new();
        store.damage_names();
        if gone {
            fs::remove_file(store.list_copy()).unwrap();
        } else {
            let mut bytes = fs::read(store.list_copy()).unwrap();
            flip(&mut bytes);
            fs::write(store.list_copy(), bytes).unwrap();
        }
        let (opened, quarantined) = store.open();
        assert_eq!(contents(&opened).unwrap(), (vec![], vec![]));
        let lost = quarantined.unwrap().salvaged.lost;
        assert!(lost[0].contains("keyspaces/0"), "{lost:?}");
        assert!(lost.last().unwrap().contains("everything"), "{lost:?}");
    }
}

/// A store of a version that made none, one whose copy is damaged, and one that was ended between
/// the writing of the copy and its name: the next start makes it again, and says nothing.
#[test]
fn a_copy_of_the_list_is_made_again_where_it_is_not_what_it_should_be() {
    let store = Damaged::new();
    drop(store.open());
    let whole = fs::read(store.list_copy()).unwrap();
    let new = store.path().join("store/list.new");
    let mut flipped = whole.clone();
    flip(&mut flipped);
    for (copy, beside) in [
        (None, None),
        (Some(&flipped), None),
        (Some(&flipped), Some(&whole[..40])),
        (Some(&whole), Some(&whole[..40])),
        (None, Some(&whole[..])),
    ] {
        fs::remove_file(store.list_copy()).unwrap();
        if let Some(copy) = copy {
            fs::write(store.list_copy(), copy).unwrap();
        }
        if let Some(beside) = beside {
            fs::write(&new, beside).unwrap();
        }
        let looked = Embedded::look(&store.path()).unwrap();
        assert!(looked.damage.is_empty(), "{looked:?}");
        assert_eq!(store.open().1, None);
        assert!(fs::read(store.list_copy()).unwrap() == whole);
        assert!(!new.exists());
    }
}

/// Here something stands where it would be written.
#[test]
fn a_store_that_cannot_copy_its_list_keeps_the_copy_before() {
    let temp = tempfile::tempdir().unwrap();
    let store = Damaged { temp };
    let opened = Embedded::open(&store.path(), options()).unwrap();
    write(&opened, 1..=COUNT / 2);
    drop(opened);
    let old = fs::read(store.list_copy()).unwrap();
    let opened = Embedded::open(&store.path(), options()).unwrap();
    fs::create_dir(store.path().join("store/list.new")).unwrap();
    write(&opened, COUNT / 2 + 1..=COUNT);
    drop(opened);
    assert_eq!(store.open().1, None);
    assert!(fs::read(store.list_copy()).unwrap() == old);
}

/// What was whole once is not replaced with what is not any more.
#[test]
fn a_list_that_is_damaged_while_the_store_is_open_does_not_replace_its_copy() {
    let temp = tempfile::tempdir().unwrap();
    let store = Damaged { temp };
    let opened = Embedded::open(&store.path(), options()).unwrap();
    write(&opened, 1..=COUNT / 2);
    drop(opened);
    let old = fs::read(store.list_copy()).unwrap();
    let opened = Embedded::open(&store.path(), options()).unwrap();
    store.damage_names();
    let generations = opened.generations(LOG).len();
    write(&opened, COUNT / 2 + 1..=COUNT / 2 + 30);
    assert_eq!(opened.generations(LOG).len(), generations + 1);
    drop(opened);
    store.trim_journal();
    assert!(fs::read(store.list_copy()).unwrap() == old);
}
