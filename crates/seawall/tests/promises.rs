//! The log space that a change of a row reserves is enough for the largest rows: a mini-transaction that
//! logged more than its reservation would stop the database, and in a debug build panics.

use seawall::{Database, Durability, Options};

#[test]
fn the_largest_rows_fit_what_was_promised_for_them() {
    for page_bytes in [4 << 10, 8 << 10, 16 << 10, 32 << 10] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::default().with_page_size(page_bytes).with_pool_size(16 << 20);
        let db = Database::open_with(dir.path().join("db"), options).unwrap();
        let tree = db.create_tree("t").unwrap();
        // A header, a key and a value of half a page are the largest entry.
        let key = |i: u32| [&i.to_be_bytes()[..], &[7; 100]].concat();
        let most = page_bytes as usize / 2 - 13 - key(0).len();
        let commit = |work: &dyn Fn(&mut seawall::Transaction)| {
            let mut tx = db.begin().unwrap();
            work(&mut tx);
            tx.commit_with(Durability::Deferred).unwrap();
        };
        let rows: Vec<(Vec<u8>, Vec<u8>)> = (0..100).map(|i| (key(i), vec![i as u8; most])).collect();
        for round in 0..3 {
            commit(&|tx| {
                for (key, value) in &rows {
                    tx.put(&tree, key, &value[round..]).unwrap();
                }
            });
            commit(&|tx| {
                let few = rows.iter().step_by(3);
                few.for_each(|(key, _)| assert!(tx.delete(&tree, key).unwrap()));
            });
            commit(&|tx| {
                tx.put_many(&tree, &rows).unwrap();
                for (key, _) in &rows {
                    tx.put(&tree, key, b"short").unwrap();
                }
                tx.put_many(&tree, &rows).unwrap();
            });
            let mut tx = db.begin().unwrap();
            for (key, _) in &rows {
                tx.delete(&tree, key).unwrap();
            }
            tx.rollback().unwrap();
        }
        assert_eq!(db.get(&tree, &key(5)).unwrap(), Some(rows[5].1.clone()));
        db.close().unwrap();
    }
}
