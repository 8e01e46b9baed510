//! Trees and tables that are damaged or missing.

use super::*;

#[test]
fn a_tree_whose_beginning_is_missing_is_noticed_and_nothing_is_cleared_away() {
    let pristine = Damaged::new();
    let trees = pristine.path().join("store/engine/keyspaces");
    let trees = fs::read_dir(trees).unwrap().map(|it| it.unwrap().path());
    let trees: Vec<_> = trees.map(|it| it.file_name().unwrap().to_owned()).collect();
    assert!(trees.len() > 8);
    for tree in trees {
        let store = pristine.copy();
        let of_tree = store.path().join("store/engine/keyspaces").join(&tree);
        fs::remove_file(of_tree.join("current")).unwrap();
        store.is_refused_and_left(&format!("keyspaces/{}", tree.display()));
        let (opened, quarantined) = store.is_set_aside_as_it_was();
        let most = numbers(&opened).len().max(keys(&opened).len());
        assert_eq!(most as u64, COUNT, "{}: {quarantined}", tree.display());
    }
}

/// The engine believes what a version says, and removes the tables that it does not name.
#[test]
fn a_bit_in_what_says_which_tables_there_are_is_noticed() {
    let pristine = Damaged::new();
    let of_tree = |store: &Damaged| store.path().join("store/engine/keyspaces/0");
    let current = fs::read(of_tree(&pristine).join("current")).unwrap();
    let id = u64::from_le_bytes(current[..8].try_into().unwrap());
    let version = |store: &Damaged| of_tree(store).join(format!("v{id}"));
    let bytes = fs::read(version(&pristine)).unwrap();
    for at in (0..bytes.len()).step_by(9) {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        fs::write(version(&pristine), &bytes).unwrap();
        pristine.is_refused_and_left("keyspaces/0");
    }
}

#[test]
fn a_list_of_trees_that_lost_the_newest_is_noticed_before_it_is_removed() {
    let temp = tempfile::tempdir().unwrap();
    let store = Damaged { temp };
    let opened = Embedded::open(&store.path(), options()).unwrap();
    write(&opened, 1..=3);
    let list = store.path().join("store/engine/keyspaces/0");
    let before = files(&list);
    write(&opened, 4..=COUNT);
    drop(opened);
    trim(&store.journal(0));
    fs::remove_dir_all(&list).unwrap();
    for (name, bytes) in before {
        let path = list.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    store.is_refused_and_left("keyspaces/0");
}

/// It was being made when the power was cut, and the next start made another in its place.
#[test]
fn a_tree_that_was_made_again_is_no_damage() {
    let temp = tempfile::tempdir().unwrap();
    let store = Damaged { temp };
    let opened = Embedded::open(&store.path(), options()).unwrap();
    let witness = store.path().join("store/acknowledged");
    let early = fs::read(&witness).unwrap();
    let end = used(&store.journal(0));
    write(&opened, 1..=1);
    drop(opened);
    fs::write(&witness, early).unwrap();
    let mut bytes = fs::read(store.journal(0)).unwrap();
    bytes.truncate(end);
    fs::write(store.journal(0), &bytes).unwrap();
    let trees = store.path().join("store/engine/keyspaces");
    fs::remove_file(trees.join("7/current")).unwrap();
    let (opened, _) = open(&store.path(), options(), OnCorruption::Refuse).unwrap();
    write(&opened, 1..=3);
    drop(opened);
    assert!(trees.join("8/current").exists() && !trees.join("7").exists());
    let (opened, _) = open(&store.path(), options(), OnCorruption::Refuse).unwrap();
    assert_eq!(numbers(&opened), [1, 2, 3]);
}

/// A start does not read that far; whoever wants to know asks for it.
#[test]
fn a_byte_deep_in_a_table_is_found_with_its_file_by_who_reads_them_all() {
    let store = Damaged::in_tables();
    // The newest generation is read by a start, and this is then not the newest.
    let mut options = options();
    options.generation_bytes = 1;
    let opened = Embedded::open(&store.path(), options).unwrap();
    let next = opened.bounds(LOG).unwrap().next.0;
    write(&opened, next..=next);
    drop(opened);
    trim(&store.journal(0));
    assert_eq!(store.damage(), Vec::<String>::new());
    let tables = store.tables();
    let log = tables.last().unwrap();
    assert!(tables.len() > 1, "{tables:?}");
    for table in &tables {
        let whole = fs::read(table).unwrap();
        let parts = (1..8).map(|part| whole.len() * part / 8);
        for at in parts.chain([whole.len() - 1]) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(table, bytes).unwrap();
            let damage = store.damage();
            // What says where the blocks are keeps its tree from opening.
            let tree = table.ancestors().nth(2).unwrap().display().to_string();
            assert!(damage.iter().all(|it| it.starts_with(&tree)), "{damage:?}");
            let words = format!("{} is damaged: it is a table of ", table.display());
            let named = damage.iter().filter(|it| it.contains("/tables/"));
            let named: Vec<_> = named.collect();
            let is_it = named.len() == 1 && named[0].starts_with(&words);
            assert!(is_it, "byte {at} of {}: {damage:?}", table.display());
        }
        fs::remove_file(table).unwrap();
        assert!(!store.damage().is_empty(), "{}", table.display());
        fs::write(table, whole).unwrap();
    }
    // It is the start that does not see it.
    let mut bytes = fs::read(log).unwrap();
    let part = bytes.len() / 8;
    bytes[part] ^= 1;
    fs::write(log, bytes).unwrap();
    let damage = store.damage();
    assert!(
        damage.len() == 1 && damage[0].contains("log."),
        "{damage:?}"
    );
    open(&store.path(), Options::default(), OnCorruption::Refuse).unwrap();
}

#[test]
fn an_examination_reports_all_damage_and_not_only_the_first() {
    let store = Damaged::in_tables();
    let mut bytes = fs::read(store.journal(0)).unwrap();
    bytes[20] ^= 1;
    fs::write(store.journal(0), bytes).unwrap();
    let tables = store.tables();
    for table in &tables {
        let mut bytes = fs::read(table).unwrap();
        let part = bytes.len() / 8;
        bytes[part] ^= 1;
        fs::write(table, bytes).unwrap();
    }
    let damage = store.damage();
    assert!(damage[0].contains("0.jnl"), "{damage:?}");
    for table in tables {
        let table = table.display().to_string();
        assert!(
            damage.iter().any(|found| found.contains(&table)),
            "{damage:?}"
        );
    }
}

/// Which trees there are is then known by their directories alone.
#[test]
fn an_examination_reports_all_damage_even_if_the_names_of_trees_cannot_be_read() {
    let store = Damaged::in_tables();
    let tables = store.tables();
    let [list, .., log] = &tables[..] else {
        panic!("{tables:?}");
    };
    let bytes = fs::read(list).unwrap();
    let name = Space::Sessions.name().as_bytes();
    let names = bytes.windows(name.len()).position(|at| at == name).unwrap();
    for (table, at) in [(list, names), (log, fs::read(log).unwrap().len() / 8)] {
        let mut bytes = fs::read(table).unwrap();
        bytes[at] ^= 1;
        fs::write(table, bytes).unwrap();
    }
    let damage = store.damage();
    for (table, name) in [(list, "the list of all"), (log, "tree 7")] {
        let table = table.display();
        let words = format!("{table} is damaged: it is a table of {name}, and its checksum does");
        let of_it = |found: &&String| found.starts_with(&words);
        assert_eq!(damage.iter().filter(of_it).count(), 1, "{damage:?}");
    }
}

/// As the engine leaves it that was clearing it away when the power was cut.
#[test]
fn what_is_left_of_a_tree_that_is_in_no_list_is_no_damage() {
    let store = Damaged::in_tables();
    let trees = store.path().join("store/engine/keyspaces");
    fs::create_dir(trees.join("99")).unwrap();
    fs::copy(trees.join("7/current"), trees.join("99/current")).unwrap();
    assert_eq!(store.damage(), Vec::<String>::new());
}
