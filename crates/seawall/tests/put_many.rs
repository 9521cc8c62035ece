//! Many rows put at once equal the same rows put one after the other: for the writing transaction, for older
//! snapshots, after a rollback and a reopening.

use proptest::collection::vec;
use proptest::prelude::*;
use seawall::{Database, Isolation, OnConflict, Options, Tree, TxOptions};
use std::collections::BTreeMap;

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Few keys of several lengths, values from empty to long ones on pages of their own.
fn rows() -> impl Strategy<Value = Rows> {
    let key = (0u16..400, 0usize..3).prop_map(|(n, tail)| [&n.to_be_bytes()[..], &vec![b'k'; tail * 40]].concat());
    let value = (any::<u8>(), prop_oneof![8 => 0usize..120, 2 => 120usize..900, 1 => 2000usize..9000])
        .prop_map(|(byte, len)| vec![byte; len]);
    vec((key, value), 0..150)
}

fn contents(db: &Database, tree: &Tree) -> BTreeMap<Vec<u8>, Vec<u8>> {
    db.begin().unwrap().iter(tree).collect::<seawall::Result<_>>().unwrap()
}

fn small() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(1 << 20)
        .with_log_segment_size(1 << 20)
        .with_log_capacity(8 << 20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn rows_put_at_once_are_rows_put_in_turn(batches in vec((rows(), any::<bool>(), 0u8..3), 1..8)) {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open_with(dir.path(), small()).unwrap();
        let tree = db.create_tree("t").unwrap();
        let mut model = BTreeMap::new();
        for (rows, keep, isolation) in batches {
            let isolation = [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable][usize::from(isolation)];
            let before = db.begin().unwrap();
            before.take_snapshot().unwrap();
            let mut tx = db.begin_with(TxOptions { isolation, ..TxOptions::default() }).unwrap();
            // One part alone, the next over it in the same transaction.
            let (one, two) = rows.split_at(rows.len() / 2);
            tx.put_many(&tree, one).unwrap();
            let savepoint = tx.savepoint();
            tx.put_many(&tree, two).unwrap();
            if !keep {
                tx.rollback_to(&savepoint).unwrap();
            }
            let kept = if keep { &rows[..] } else { one };
            let mut after: BTreeMap<_, _> = model.clone();
            after.extend(kept.iter().cloned());
            let seen: BTreeMap<_, _> = tx.iter(&tree).collect::<seawall::Result<_>>().unwrap();
            prop_assert_eq!(&seen, &after, "its own changes are seen");
            tx.commit().unwrap();
            let old: BTreeMap<_, _> = before.iter(&tree).collect::<seawall::Result<_>>().unwrap();
            prop_assert_eq!(&old, &model, "an older snapshot sees none of them");
            model = after;
        }
        prop_assert_eq!(&contents(&db, &tree), &model);
        prop_assert_eq!(db.check().unwrap(), []);
        drop(tree);
        db.close().unwrap();
        let db = Database::open_with(dir.path(), small()).unwrap();
        prop_assert_eq!(&contents(&db, &db.open_tree("t").unwrap()), &model);
    }
}

#[test]
fn a_row_that_another_holds_stops_the_run_before_it() {
    let db = Database::in_memory().unwrap();
    let tree = db.create_tree("t").unwrap();
    let rows: Rows = (0..50u8).map(|i| (vec![i], vec![i; 10])).collect();
    db.transact(|tx| tx.put_many(&tree, &rows)).unwrap();
    let mut holder = db.begin().unwrap();
    holder.put(&tree, &[20], b"held").unwrap();
    let options =
        TxOptions { wait: seawall::LockWait::NoWait, on_conflict: OnConflict::Latest, ..TxOptions::default() };
    let mut tx = db.begin_with(options).unwrap();
    let new: Rows = (0..50u8).map(|i| (vec![i], b"new".to_vec())).collect();
    assert!(matches!(tx.put_many(&tree, &new), Err(seawall::Error::LockTimeout { .. })));
    // Rows before the failing one are changed in this transaction, later ones are not.
    assert_eq!(tx.get(&tree, &[19]).unwrap().as_deref(), Some(&b"new"[..]));
    assert_eq!(tx.get(&tree, &[21]).unwrap(), Some(vec![21; 10]));
    tx.rollback().unwrap();
    holder.rollback().unwrap();
    assert_eq!(contents(&db, &tree), rows.into_iter().collect());
}
