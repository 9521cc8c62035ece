//! Samples of a tree estimate its contents; a check of one tree during writes finds damage and nothing else; trees are
//! found by their ids.

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64;
use seawall::{Background, BuildOptions, Database, Env, Error, Options, Part, Task};
use seawall_io::{Op, SystemClock};
use seawall_sim::{Fault, SimDisk, SimOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn options() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(1 << 20)
        .with_data_initial_size(1 << 20)
        .with_data_growth_step(1 << 20)
        .with_log_segment_size(256 << 10)
        .with_log_capacity(4 << 20)
        .with_log_buffer_size(1 << 20)
}

fn open(sim: &Arc<SimDisk>) -> Database {
    let clock = Arc::new(SystemClock::default());
    Database::open_in(Env { disk: sim.clone(), clock, seed: 3, background: Background::Steps }, "/db", options())
        .unwrap()
}

#[test]
fn a_sample_of_all_leaves_counts() {
    let db = open(&SimDisk::new(SimOptions::default()));
    let tree = db.create_tree("t").unwrap();
    let mut leaves = 0;
    let found = db.sample_leaves(&tree, 10, |_| leaves += 1).unwrap();
    assert_eq!((found.leaves, found.sampled, found.rows, leaves), (1.0, 1, 0.0, 1), "an empty tree has one leaf");
    db.transact(|tx| tx.put_rows(&tree, (0..3000u32).map(|i| (i.to_be_bytes(), [7; 60])))).unwrap();
    db.transact(|tx| tx.delete_range(&tree, 100u32.to_be_bytes()..150u32.to_be_bytes()).map(drop)).unwrap();
    let (mut keys, mut prefixes) = (Vec::new(), 0);
    let found = db
        .sample_leaves(&tree, 10_000, |leaf| {
            assert!((leaf.weight() - 1.0).abs() < 1e-9);
            keys.extend_from_slice(leaf.keys());
            prefixes += leaf.distinct(|_| 3);
        })
        .unwrap();
    let model: Vec<Vec<u8>> =
        (0..3000u32).filter(|i| !(100..150).contains(i)).map(|i| i.to_be_bytes().to_vec()).collect();
    assert_eq!(keys, model);
    assert_eq!((found.rows, found.deleted), (2950.0, 50.0));
    assert_eq!(found.leaves, db.fragmentation(&tree).unwrap().leaves as f64);
    assert!((12..12 + found.sampled as usize).contains(&prefixes), "12 prefixes, some in two leaves: {prefixes}");
    db.drop_tree("t").unwrap();
    assert!(matches!(db.sample_leaves(&tree, 10, |_| ()), Err(Error::TreeDropped { .. })));
}

/// A tree whose branches differ: rows that are dense in one part and long in another.
#[test]
fn a_sample_of_some_leaves_estimates_without_a_bias() {
    let db = open(&SimDisk::new(SimOptions::default()));
    let rows = (0..60_000u32).map(|i| {
        let tail = if i % 3 == 0 && i > 40_000 { 500 } else { 4 };
        ([&i.to_be_bytes()[..], &vec![b'k'; tail]].concat(), vec![1; if i < 20_000 { 0 } else { 60 }])
    });
    let tree = db.transact(|tx| tx.build_tree("t", BuildOptions::default(), rows.clone())).unwrap();
    let exact = db.sample_leaves(&tree, usize::MAX, |_| ()).unwrap();
    assert_eq!(exact.rows, 60_000.0);
    let found = db.sample_leaves(&tree, 200, |_| ()).unwrap();
    assert!(found.sampled <= 200 && found.sampled > 150, "{found:?} {exact:?}");
    assert!((found.leaves / exact.leaves - 1.0).abs() < 0.1, "{found:?} {exact:?}");
    assert!((found.rows / 60_000.0 - 1.0).abs() < 0.15, "{found:?} {exact:?}");
}

/// Leaves that were named move to the front of the file, whose end is cut off before they are read, and perhaps grows
/// again.
#[test]
fn a_file_that_shrinks_while_leaves_are_sampled_is_not_damaged() {
    for grows in [false, true] {
        shrink_while_sampling(grows);
    }
}

fn shrink_while_sampling(grows: bool) {
    let sim = SimDisk::new(SimOptions { seed: 6, ..SimOptions::default() });
    let options = options().with_pool_size(256 << 10).with_prefetch_depth(0);
    let clock = Arc::new(SystemClock::default());
    let env = Env { disk: sim, clock, seed: 3, background: Background::Steps };
    let db = Database::open_in(env, "/db", options).unwrap();
    let (first, tree) = (db.create_tree("first").unwrap(), db.create_tree("t").unwrap());
    for row in 0..4_000u32 {
        db.transact(|tx| tx.put(if row < 2_000 { &first } else { &tree }, &row.to_be_bytes(), &[7; 500])).unwrap();
    }
    drop(first);
    db.drop_tree("first").unwrap();
    while db.step().unwrap() {}
    let (mut leaves, mut shrunk) = (0, false);
    let found = db.sample_leaves(&tree, usize::MAX, |_| {
        leaves += 1;
        if !std::mem::replace(&mut shrunk, true) {
            let before = db.stats().space.data_bytes;
            db.shrink().unwrap();
            assert!(db.stats().space.data_bytes < before);
            if grows {
                db.grow(before).unwrap();
            }
        }
    });
    found.unwrap();
    assert!(leaves >= 1);
    assert_eq!(db.check().unwrap(), []);
}

#[test]
fn a_check_of_one_tree_finds_each_damaged_page_and_goes_on_behind_it() {
    let sim = SimDisk::new(SimOptions { seed: 4, ..SimOptions::default() });
    let db = open(&sim);
    let tree = db.create_tree("t").unwrap();
    for i in 0..1500u32 {
        let len = if i % 100 == 50 { 9000 } else { 100 };
        db.transact(|tx| tx.put(&tree, &i.to_be_bytes(), &vec![7; len])).unwrap();
    }
    assert_eq!(db.check_tree(&tree).unwrap(), []);
    let other = db.create_tree("other").unwrap();
    let before = db.check().unwrap();
    assert_eq!(before, []);
    let pages = |db: &Database| {
        let mut pages = Vec::new();
        db.sample_leaves(&tree, usize::MAX, |leaf| pages.push(leaf.page())).unwrap();
        pages
    };
    let leaves = pages(&db);
    drop(tree);
    db.close().unwrap();
    let damaged: BTreeSet<_> = leaves.iter().skip(3).step_by(9).copied().collect();
    for page in &damaged {
        sim.flip_bit("/db/data", u64::from(page.0) * 4096 + 3_001, 5).unwrap();
    }
    let db = open(&sim);
    let tree = db.open_tree("t").unwrap();
    let found = db.check_tree(&tree).unwrap();
    let pages: BTreeSet<_> = found.iter().map(|finding| finding.page).collect();
    assert_eq!(pages, damaged, "{found:#?}");
    assert!(found.iter().all(|finding| finding.part == Part::Tree && finding.tree.as_deref() == Some("t")));
    drop(other);
    let other = db.open_tree("other").unwrap();
    assert_eq!(db.check_tree(&other).unwrap(), []);
}

#[test]
fn a_check_of_one_tree_beside_writers_finds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open_with(dir.path(), options()).unwrap();
    let tree = db.create_tree("t").unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (db, tree, stop) = (&db, &tree, &stop);
            scope.spawn(move || {
                let mut dice = Pcg64::seed_from_u64(thread);
                while !stop.load(Ordering::Relaxed) {
                    let mut tx = db.begin().unwrap();
                    for _ in 0..20 {
                        // Splits, merges, long values that come and go.
                        let key = [&[thread as u8][..], &dice.random_range(0..3000u32).to_be_bytes()].concat();
                        match dice.random_range(0..5) {
                            0 | 1 => drop(tx.delete(tree, &key).unwrap()),
                            2 => tx.put(tree, &key, &vec![3; dice.random_range(0..9000)]).unwrap(),
                            _ => tx.put(tree, &key, &vec![2; dice.random_range(0..200)]).unwrap(),
                        }
                    }
                    if dice.random_range(0..3) == 0 { tx.rollback().unwrap() } else { tx.commit().unwrap() }
                }
            });
        }
        for _ in 0..15 {
            let found = db.check_tree(&tree);
            if !found.as_ref().is_ok_and(Vec::is_empty) {
                stop.store(true, Ordering::Relaxed);
            }
            assert_eq!(found.unwrap(), []);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(db.check().unwrap(), []);
    db.drop_tree("t").unwrap();
    assert!(matches!(db.check_tree(&tree), Err(Error::TreeDropped { .. })));
}

#[test]
fn trees_are_found_by_their_ids() {
    let db = open(&SimDisk::new(SimOptions::default()));
    let (a, b) = (db.create_tree("a").unwrap(), db.create_tree("b").unwrap());
    let old = db.begin().unwrap();
    old.take_snapshot().unwrap();
    let mut tx = db.begin().unwrap();
    let own = tx.create_tree("own").unwrap();
    assert_eq!(tx.open_tree_by_id(own.id()).unwrap().name(), "own");
    assert!(matches!(db.open_tree_by_id(own.id()), Err(Error::Unknown { .. })), "it is not committed");
    tx.rename_tree("a", "c").unwrap();
    tx.drop_tree("b").unwrap();
    tx.commit().unwrap();
    assert_eq!(db.open_tree_by_id(a.id()).unwrap().name(), "c");
    assert_eq!(old.open_tree_by_id(a.id()).unwrap().name(), "a", "as the snapshot has it");
    assert!(matches!(db.open_tree_by_id(b.id()), Err(Error::Unknown { .. })));
    assert_eq!(old.open_tree_by_id(b.id()).unwrap().name(), "b");
}

#[test]
fn leaves_that_were_asked_for_are_there() {
    let sim = SimDisk::new(SimOptions::default());
    let db = open(&sim);
    let rows = (0..20_000u32).map(|i| (i.to_be_bytes(), [7; 100]));
    db.transact(|tx| tx.build_tree("t", BuildOptions::default(), rows.clone())).unwrap();
    db.close().unwrap();
    let db = open(&sim);
    let tree = db.open_tree("t").unwrap();
    let keys: Vec<[u8; 4]> = [19_000u32, 5, 9000, 9001, 12_000, 5].map(u32::to_be_bytes).into();
    let tx = db.begin().unwrap();
    assert_eq!(tx.prefetch(&tree, &keys).unwrap(), 4, "two of them are neighbours, one is asked for twice");
    let before = db.stats().pool;
    for key in &keys {
        assert_eq!(tx.get(&tree, key).unwrap(), Some(vec![7; 100]));
    }
    let after = db.stats().pool;
    assert_eq!(after.misses, before.misses, "no leaf had to be read: {before:?} {after:?}");
    assert!(after.prefetched - before.prefetched <= 4, "{before:?} {after:?}");
    assert_eq!(tx.prefetch::<[u8; 4]>(&tree, &[]).unwrap(), 0);
}

/// Pages that old versions need are damaged: purge skips these versions, and frees what the others no longer need.
#[test]
fn purge_passes_what_cannot_be_read() {
    let sim = SimDisk::new(SimOptions { seed: 5, ..SimOptions::default() });
    let db = open(&sim);
    let tree = db.create_tree("t").unwrap();
    let other = db.create_tree("other").unwrap();
    let lengths = [3_500, 30_000];
    for (key, len) in (0..).zip(lengths) {
        db.transact(|tx| tx.put(&tree, &[key], &vec![0xD0 + key; len])).unwrap();
    }
    db.transact(|tx| tx.put_rows(&other, (0..200u32).map(|i| (i.to_be_bytes(), vec![1; 6_000])))).unwrap();
    db.close().unwrap();
    let db = open(&sim);
    let (tree, other) = (db.open_tree("t").unwrap(), db.open_tree("other").unwrap());
    db.transact(|tx| tx.put(&tree, &[0], b"short")).unwrap();
    db.transact(|tx| tx.delete(&tree, &[1]).map(drop)).unwrap();
    db.transact(|tx| tx.delete_range::<&[u8]>(&other, ..).map(drop)).unwrap();
    assert!(db.stats().purge.history > 0);
    let mut other_leaves = Vec::new();
    db.sample_leaves(&other, usize::MAX, |one| other_leaves.push(one.page().0)).unwrap();
    assert!(other_leaves.len() > 1);
    drop((tree, other));
    db.close().unwrap();
    let data = sim.seen("/db/data").unwrap();
    let first_of = |byte: u8| data.chunks(4096).position(|page| page.iter().filter(|&&one| one == byte).count() > 3000);
    let head = u64::try_from(first_of(0xD0).unwrap()).unwrap();
    // The list of a long value's pages is written before them.
    let list = u64::try_from(first_of(0xD1).unwrap()).unwrap() - 1;
    for page in [head, list, u64::from(other_leaves[1])] {
        sim.flip_bit("/db/data", page * 4096 + 100, 5).unwrap();
    }
    let db = open(&sim);
    let found: BTreeSet<u64> = db.check().unwrap().iter().map(|finding| u64::from(finding.page.0)).collect();
    assert!(
        [head, list].iter().any(|page| found.contains(page)) && found.contains(&u64::from(other_leaves[1])),
        "{found:?}"
    );
    let before = db.stats().space.free_bytes;
    while db.step_task(Task::Purge).unwrap() {}
    let stats = db.stats();
    assert_eq!(stats.purge.history, 0);
    assert!(stats.space.free_bytes > before + 100 * 2 * 4096, "{before} {}", stats.space.free_bytes);
    // And the tree that was not damaged is as it was.
    let tree = db.open_tree("t").unwrap();
    assert_eq!(db.get(&tree, &[0]).unwrap().as_deref(), Some(&b"short"[..]));
    assert_eq!(db.get(&tree, &[1]).unwrap(), None);
    db.transact(|tx| tx.put(&tree, &[1], b"again")).unwrap();
    db.close().unwrap();
}

/// A read that fails once does not cost the space of a dropped tree.
#[test]
fn a_dropped_tree_is_freed_although_a_read_failed() {
    let first = SimDisk::new(SimOptions { seed: 8, ..SimOptions::default() });
    let db = open(&first);
    let (tree, other) = (db.create_tree("t").unwrap(), db.create_tree("other").unwrap());
    db.transact(|tx| tx.put_rows(&tree, (0..4000u32).map(|i| (i.to_be_bytes(), [1; 1000])))).unwrap();
    db.transact(|tx| tx.put_rows(&other, (0..4000u32).map(|i| (i.to_be_bytes(), [1; 1000])))).unwrap();
    drop((tree, other));
    db.close().unwrap();
    for nth in 1..16 {
        let sim = first.fork(nth);
        let db = open(&sim);
        db.drop_tree("t").unwrap();
        // The maps leave the pool.
        db.checkpoint().unwrap();
        assert_eq!(db.begin().unwrap().iter(&db.open_tree("other").unwrap()).count(), 4000);
        sim.inject(Fault::eio().on(Op::Read).path("/db/data").nth(nth).once());
        for _ in 0..10_000 {
            if matches!(db.step_task(Task::Purge), Ok(false)) {
                break;
            }
        }
        sim.clear_faults();
        assert_eq!(db.check().unwrap(), [], "read {nth}");
        let free = db.stats().space.free_bytes;
        assert!(free > 4_000_000, "read {nth}: {free} bytes are free");
    }
}

/// A rollback needs the leaves of its rows, and not the neighbours that they could be merged with.
#[test]
fn a_rollback_does_without_a_damaged_neighbour() {
    let sim = SimDisk::new(SimOptions { seed: 6, ..SimOptions::default() });
    let db = open(&sim);
    let tree = db.create_tree("t").unwrap();
    db.transact(|tx| tx.put_rows(&tree, (0..100u8).map(|i| ([i], [i; 300])))).unwrap();
    let mut leaves = BTreeMap::new();
    db.sample_leaves(&tree, usize::MAX, |leaf| leaves.extend([(leaf.keys()[0][0], leaf.page().0)])).unwrap();
    let (second, damaged) = leaves.into_iter().nth(1).unwrap();
    // The first leaf keeps one row; the second is too full to take it.
    db.transact(|tx| tx.delete_range(&tree, &[1u8][..]..&[second][..]).map(drop)).unwrap();
    while db.step().unwrap() {}
    drop(tree);
    db.close().unwrap();
    sim.flip_bit("/db/data", u64::from(damaged) * 4096 + 100, 5).unwrap();
    let db = open(&sim);
    let tree = db.open_tree("t").unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&tree, &[1], b"one").unwrap();
    tx.rollback().unwrap();
    assert_eq!(db.get(&tree, &[1]).unwrap(), None);
    assert_eq!(db.get(&tree, &[0]).unwrap().unwrap(), [0; 300]);
    db.get(&tree, &[second + 3]).unwrap_err();
}

/// The last page of a transaction's undo log is evicted and comes back with older contents, because the disk lost a
/// write. Records would be written over those that are missing; it is reported, and the database goes on.
#[test]
fn a_lost_write_of_an_undo_page_is_found_by_its_transaction() {
    let sim = SimDisk::new(SimOptions { seed: 7, ..SimOptions::default() });
    let db = open(&sim);
    let tree = db.create_tree("t").unwrap();
    let other = db.create_tree("other").unwrap();
    db.transact(|tx| tx.put(&tree, b"row", &[0xD0; 100])).unwrap();
    db.transact(|tx| tx.put_rows(&other, (0..2_000u32).map(|i| (i.to_be_bytes(), [7; 1_000])))).unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&tree, b"row", &[0xD1; 100]).unwrap();
    db.checkpoint().unwrap();
    let old = sim.seen("/db/data").unwrap();
    tx.put(&tree, b"second row", b"x").unwrap();
    db.checkpoint().unwrap();
    let new = sim.seen("/db/data").unwrap();
    // Only the undo log still has the former value.
    let at = new.chunks(4096).position(|page| page.windows(50).any(|part| part == [0xD0; 50])).unwrap() * 4096;
    for byte in at..at + 4096 {
        for bit in (0..8).filter(|bit| ((old[byte] ^ new[byte]) >> bit) & 1 == 1) {
            sim.flip_bit("/db/data", byte as u64, bit).unwrap();
        }
    }
    for key in (0..2_000u32).chain(0..2_000) {
        assert!(db.get(&other, &key.to_be_bytes()).unwrap().is_some());
    }
    let error = tx.put(&tree, b"third row", b"x").unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    assert!(matches!(tx.rollback().unwrap_err(), Error::Corrupt(_)));
    db.transact(|tx| tx.put(&other, b"row", b"x")).unwrap();
}
