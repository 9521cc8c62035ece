//! Increments on backups of files that were put back since.
//!
//! 1. An increment has only the pages that changed since its base. On a base with changes that the database's files
//!    never had, the restored database would mix two histories: it is refused.

use seawall::{BackupOptions, Database, Error, Options};
use std::collections::BTreeMap;
use std::path::Path;

fn open(dir: &Path) -> Database {
    let options = Options::default()
        .with_pool_size(1 << 20)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(256 << 10)
        .with_log_capacity(2 << 20)
        .with_log_buffer_size(1 << 20);
    Database::open_with(dir, options).unwrap()
}

fn since(base: &Path) -> BackupOptions {
    BackupOptions { incremental_from: Some(base.into()), ..BackupOptions::default() }
}

/// Writes rows with keys from `keys`, and `mark` in their values.
fn write(db: &Database, keys: std::ops::Range<u32>, mark: u8) {
    let tree = db.create_tree("t").or_else(|_| db.open_tree("t")).unwrap();
    for key in keys {
        db.transact(|tx| tx.put(&tree, &key.to_be_bytes(), &[mark; 300])).unwrap();
    }
}

fn contents(db: &Database) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let tree = db.open_tree("t").unwrap();
    db.begin().unwrap().iter(&tree).map(Result::unwrap).collect()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn an_increment_on_a_backup_of_abandoned_files_is_refused() {
    for over in [false, true] {
        abandons(over);
    }
}

/// `over`: the files are put back over the abandoned ones, of which the record of backups stays.
fn abandons(over: bool) {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let db = open(&at("db"));
    write(&db, 0..2000, 1);
    db.backup_to(at("full"), &BackupOptions::default()).unwrap();
    write(&db, 0..200, 2);
    db.close().unwrap();
    copy(&at("db"), &at("kept"));
    // These changes, and the backup that has them, are abandoned.
    let db = open(&at("db"));
    write(&db, 500..800, 3);
    let abandoned = db.backup_to(at("abandoned"), &since(&at("full"))).unwrap();
    db.close().unwrap();
    let record = std::fs::read(at("db").join("backup.history")).unwrap();
    std::fs::remove_dir_all(at("db")).unwrap();
    copy(&at("kept"), &at("db"));
    if over {
        std::fs::write(at("db").join("backup.history"), record).unwrap();
    }
    // As many openings as then, and more log.
    let db = open(&at("db"));
    write(&db, 1000..1900, 4);
    assert!(db.stats().log.head_lsn > abandoned.end, "the database has passed the abandoned backup's end");
    let error = db.backup_to(at("next"), &since(&at("abandoned"))).unwrap_err();
    assert!(matches!(error, Error::BadBackup { .. }) && error.to_string().contains("no record"), "{error}");
    // The full backup is older than the files that were put back: an increment on it is whole.
    db.backup_to(at("next"), &since(&at("full"))).unwrap();
    let expected = contents(&db);
    Database::restore(&[at("full"), at("next")], at("restored")).unwrap();
    assert!(contents(&open(&at("restored"))) == expected);
}

#[test]
fn the_record_of_backups_keeps_those_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let db = open(&at("db"));
    write(&db, 0..10, 1);
    let unused = db.backup_to(at("unused"), &BackupOptions::default()).unwrap();
    write(&db, 0..10, 2);
    let full = db.backup_to(at("full"), &BackupOptions::default()).unwrap();
    assert!(unused.end < full.end);
    for nth in 0..128 {
        write(&db, 0..1, nth as u8);
        db.backup_to(at("one"), &since(&at("full"))).unwrap();
        std::fs::remove_dir_all(at("one")).unwrap();
    }
    let error = db.backup_to(at("one"), &since(&at("unused"))).unwrap_err();
    assert!(error.to_string().contains("no record"), "{error}");
    // A closed database still knows the base, and a torn write of the record costs at most that.
    db.close().unwrap();
    let db = open(&at("db"));
    db.backup_to(at("one"), &since(&at("full"))).unwrap();
    db.close().unwrap();
    std::fs::write(at("db").join("backup.history"), [7; 100]).unwrap();
    let db = open(&at("db"));
    let error = db.backup_to(at("two"), &since(&at("full"))).unwrap_err();
    assert!(error.to_string().contains("Take a full backup"), "{error}");
}
