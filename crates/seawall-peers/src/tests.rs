//! Every store passes the conformance check at every durability it offers.

#[path = "../../seawall-bench/tests/common/conformance.rs"]
mod conformance;

use seawall_bench::store::Durability;
use seawall_bench::{Error, Settings, Store};
use std::path::Path;
use std::time::Duration;

pub(crate) fn settings(dir: &Path) -> Settings {
    Settings {
        dir: dir.join("db"),
        pool_bytes: 16 << 20,
        durability: Durability::Flushed,
        tables: vec!["a".into(), "b".into()],
        threads: 4,
        options: Vec::new(),
        flush_delay: Duration::ZERO,
        data_bytes: 1 << 20,
    }
}

fn open(name: &str, settings: &Settings) -> seawall_bench::Result<Box<dyn Store>> {
    crate::open(name, settings).unwrap()
}

fn conforms(name: &str) {
    std::thread::scope(|scope| {
        for durability in [Durability::Flushed, Durability::Written, Durability::Deferred] {
            if (name, durability) == ("redb", Durability::Written) {
                continue;
            }
            // In parallel, because some stores take a second to close.
            scope.spawn(move || {
                let dir = tempfile::tempdir().unwrap();
                let settings = Settings { durability, ..settings(dir.path()) };
                conformance::check(&|| open(name, &settings));
            });
        }
    });
}

#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb_does_what_a_store_must() {
    conforms("rocksdb");
}

#[test]
fn sqlite_does_what_a_store_must() {
    conforms("sqlite");
}

#[test]
fn lmdb_does_what_a_store_must() {
    conforms("lmdb");
}

#[test]
fn redb_does_what_a_store_must() {
    conforms("redb");
}

#[test]
fn fjall_does_what_a_store_must() {
    conforms("fjall");
}

#[test]
fn redb_refuses_the_level_it_does_not_have() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { durability: Durability::Written, ..settings(dir.path()) };
    assert!(matches!(open("redb", &settings).err(), Some(Error::Unsupported { store: "redb", .. })));
}

#[test]
fn options_that_do_not_exist_are_refused_by_name() {
    for name in crate::NAMES {
        let dir = tempfile::tempdir().unwrap();
        let options = vec![("no_such_option".to_owned(), "1".to_owned())];
        let settings = Settings { options, ..settings(dir.path()) };
        let error = open(name, &settings).err().unwrap().to_string();
        assert!(error.contains("no_such_option"), "{name}: {error}");
    }
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    for name in crate::NAMES {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("db"), b"a file").unwrap();
        let error = open(name, &settings(dir.path())).err().unwrap().to_string();
        assert!(error.contains(dir.path().to_str().unwrap()), "{name}: {error}");
    }
}

/// Threads load and read at the same time; afterwards all rows are there, in order.
#[test]
fn several_sessions_write_and_read_at_once() {
    for name in crate::NAMES {
        let dir = tempfile::tempdir().unwrap();
        let store = open(name, &settings(dir.path())).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let store = &store;
                scope.spawn(move || {
                    let mut session = store.session().unwrap();
                    let rows: Vec<_> = (0..200u8).map(|i| (vec![thread, i], vec![i; 300])).collect();
                    session.load(&rows[..150], false).unwrap();
                    session.load(&rows[150..190], true).unwrap();
                    for (key, value) in &rows[190..] {
                        session.put(key, value).unwrap();
                    }
                    for (key, value) in &rows {
                        let mut same = false;
                        assert!(session.get(key, &mut |bytes| same = bytes == value).unwrap() && same, "{name}");
                    }
                });
            }
        });
        let mut last = Vec::new();
        let visit = &mut |key: &[u8], _: &[u8]| {
            assert!(last < key.to_vec(), "{name}: in order");
            last = key.to_vec();
        };
        assert_eq!(store.session().unwrap().scan(&[], 10_000, visit).unwrap(), 800, "{name}");
        store.settle().unwrap();
        store.close().unwrap();
    }
}

/// One table, as in key-value workloads: some stores then take a shorter path.
#[test]
fn a_single_table_is_kept_over_a_close() {
    for name in crate::NAMES {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings { tables: vec!["rows".into()], ..settings(dir.path()) };
        let store = open(name, &settings).unwrap();
        let rows: Vec<_> = (0..250u8).rev().map(|i| (vec![i], vec![i; 100])).collect();
        let mut session = store.session().unwrap();
        session.load(&rows, false).unwrap();
        session.put(&[255], b"last").unwrap();
        drop(session);
        store.close().unwrap();
        let store = open(name, &settings).unwrap();
        let mut seen = 0;
        let visit = &mut |_: &[u8], _: &[u8]| seen += 1;
        assert_eq!(store.session().unwrap().scan(&[], u64::MAX, visit).unwrap(), 251, "{name}");
        assert_eq!(seen, 251, "{name}");
        store.close().unwrap();
    }
}
