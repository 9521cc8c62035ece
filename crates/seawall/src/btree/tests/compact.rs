//! Compactions against a `BTreeMap`: after each step the tree is whole and holds the same entries.

use super::long::{begin_long_for, write_long};
use super::rig::{Model, Rig, apply, log_config, plain};
use crate::btree::{
    Compaction, Cursor, Entry, Fragmentation, Node, OVERFLOW, Seek, entry_bytes_max, key_bytes_max, read_overflow_into,
};
use crate::error::Error;
use crate::format::{PageId, TreeId, TxnId, UndoPtr, page};
use crate::log::{FIRST_LSN, LogReader, Records};
use crate::space::Purpose;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seawall_io::Op;
use seawall_sim::Fault;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

const FILL: u32 = 90;

fn fragmentation(rig: &Rig) -> Fragmentation {
    rig.tree.fragmentation(&rig.pool).unwrap()
}

/// Compacts the whole tree, step by step.
fn compact(rig: &Rig) -> crate::btree::Moved {
    let mut compaction = Compaction::new(rig.tree, &rig.space, FILL);
    while compaction.step(TxnId::NONE).unwrap() {}
    compaction.moved()
}

/// Fills the tree in random order.
fn shuffled(rig: &Rig, rows: u32, value_bytes: usize, seed: u64) -> Model {
    let mut keys: Vec<u32> = (0..rows).collect();
    keys.shuffle(&mut Pcg64Mcg::seed_from_u64(seed));
    let mut model = Model::new();
    for key in keys {
        let payload = plain(&vec![key as u8; value_bytes]);
        rig.put(&key.to_be_bytes(), &payload);
        model.insert(key.to_be_bytes().to_vec(), payload);
    }
    model
}

#[test]
fn leaves_come_into_order_and_become_fewer() {
    for page_bytes in [4096, 8192, 16384, 32768] {
        let rig = Rig::with_log(page_bytes, 256, 64 << 20);
        let model = shuffled(&rig, page_bytes as u32 * 3 / 2, 60, 1);
        let before = fragmentation(&rig);
        assert!(before.share() > 0.5, "{page_bytes}: {before:?}");
        let moved = compact(&rig);
        let after = fragmentation(&rig);
        assert!(after.share() < 0.04, "{page_bytes}: {after:?}");
        assert!(after.fill_percent >= 80 && after.leaves < before.leaves, "{page_bytes}: {before:?} {after:?}");
        assert_eq!(before.leaves - after.leaves, moved.freed - moved.written);
        rig.verify(&model);
        // Leaves that are in order and full stay.
        let again = compact(&rig);
        assert!(again.written * 10 < moved.written, "{page_bytes}: {moved:?}, then {again:?}");
        rig.verify(&model);
    }
}

#[test]
fn what_was_filled_in_order_stays() {
    let rig = Rig::with_log(4096, 256, 64 << 20);
    for i in 0..20_000u32 {
        rig.put(&i.to_be_bytes(), &plain(&[1; 60]));
    }
    let before = fragmentation(&rig);
    assert!(before.share() < 0.05, "{before:?}");
    let moved = compact(&rig);
    assert!(moved.written * 10 < before.leaves && moved.looked + 2 >= before.leaves, "{before:?} {moved:?}");
}

#[test]
fn no_leaf_is_read_to_tell_their_order_and_few_to_tell_their_fill() {
    let rig = Rig::with_log(4096, 64, 64 << 20);
    shuffled(&rig, 20_000, 60, 2);
    let read = || rig.pool.stats().misses + rig.pool.stats().prefetched;
    let before = read();
    let found = fragmentation(&rig);
    let reads = read() - before;
    assert!(found.leaves > 300 && found.sampled >= 16 && found.sampled <= 32, "{found:?}");
    assert!(reads <= found.branches + 2 + 32, "{reads} pages read for {found:?}");
}

#[test]
fn a_tree_of_one_leaf_and_an_empty_one_are_left_alone() {
    let rig = Rig::new(4096, 64);
    for rows in [0u32, 3] {
        for i in 0..rows {
            rig.put(&i.to_be_bytes(), &plain(b"v"));
        }
        let moved = compact(&rig);
        assert_eq!((moved.written, moved.freed), (0, 0));
        let found = fragmentation(&rig);
        assert_eq!((found.leaves, found.apart, found.branches, found.sampled), (1, 0, 0, 1));
    }
}

#[test]
fn rows_that_fit_one_leaf_end_in_the_root() {
    let rig = Rig::new(4096, 64);
    let mut model = shuffled(&rig, 300, 100, 3);
    let mut i = 0;
    model.retain(|key, _| {
        i += 1;
        // Removed without merging, as when a writer skips the merge.
        let keep = i % 20 == 0;
        if !keep {
            remove_only(&rig, key);
        }
        keep
    });
    assert!(rig.root_level() > 0);
    compact(&rig);
    assert_eq!((rig.root_level(), rig.leaves().len()), (0, 1));
    rig.verify(&model);
}

fn remove_only(rig: &Rig, key: &[u8]) {
    rig.pool
        .retry(|| {
            let mut mtr = crate::buffer::Mtr::begin(&rig.pool, crate::buffer::MtrSize::Small)?;
            let leaf = rig.tree.leaf_for_change(&rig.pool, &mut mtr, key)?;
            let at = Node::open(mtr.page(leaf))?.search(key)?;
            assert!(at.found);
            mtr.run(leaf, &crate::btree::Remove::new(at.slot));
            mtr.commit();
            Ok(())
        })
        .unwrap();
}

#[test]
fn emptied_leaves_are_merged_away_and_branches_with_them() {
    let rig = Rig::new(4096, 64);
    let mut model = Model::new();
    let mut dice = Pcg64Mcg::seed_from_u64(4);
    for _ in 0..2000 {
        // Fences are long: few fit a branch.
        let key = [&[b'k'; 300][..], &dice.random::<[u8; 300]>()].concat();
        rig.put(&key, &plain(b"v"));
        model.insert(key, plain(b"v"));
    }
    assert!(rig.root_level() > 1);
    model.keys().for_each(|key| remove_only(&rig, key));
    let before = rig.leaves().len();
    compact(&rig);
    assert!(rig.leaves().len() * 10 < before, "{:?} of {before}", rig.leaves());
    // The first compaction left one leaf per branch; these are now under one branch.
    compact(&rig);
    assert!(rig.leaves().len() <= 5, "{:?}", rig.leaves());
    rig.verify(&Model::new());
}

#[test]
fn headers_without_use_go_and_others_stay() {
    let rig = Rig::new(4096, 64);
    let mut keys: Vec<u32> = (0..3000).collect();
    keys.shuffle(&mut Pcg64Mcg::seed_from_u64(5));
    let mut payload = Vec::new();
    for &key in &keys {
        Entry::written(TxnId(u64::from(key % 2) * 100 + 1), UndoPtr(9), b"value").encode_into(&mut payload);
        rig.put(&key.to_be_bytes(), &payload);
    }
    let mut compaction = Compaction::new(rig.tree, &rig.space, FILL);
    while compaction.step(TxnId(50)).unwrap() {}
    let (mut cursor, mut bare) = (Cursor::new(rig.tree), 0);
    let mut on = cursor.seek(&rig.pool, Seek::First).unwrap();
    while on {
        let (key, entry) = (cursor.key().to_vec(), cursor.entry().unwrap().unwrap());
        let young = u32::from_be_bytes(key.try_into().unwrap()) % 2 == 1;
        assert!(entry.has_header() || !young);
        assert!(!young || (entry.writer, entry.undo) == (TxnId(101), UndoPtr(9)));
        assert_eq!(entry.value, b"value");
        bare += u32::from(!entry.has_header());
        on = cursor.next(&rig.pool).unwrap();
    }
    assert!(bare > 1300, "{bare}");
    assert_eq!(rig.check().0, []);
}

#[test]
fn long_values_stay_where_they_are() {
    let rig = Rig::new(4096, 64);
    let mut keys: Vec<u32> = (0..800).collect();
    keys.shuffle(&mut Pcg64Mcg::seed_from_u64(6));
    let mut heads = HashMap::new();
    for &key in &keys {
        if key % 40 == 0 {
            let reference = write_long(&rig, &vec![key as u8; 20_000]);
            rig.put(&key.to_be_bytes(), &[&[OVERFLOW][..], &reference.encode()].concat());
            heads.insert(key, reference);
        } else {
            rig.put(&key.to_be_bytes(), &plain(&[1; 100]));
        }
    }
    assert!(compact(&rig).written > 0);
    for (key, reference) in heads {
        let payload = rig.get(&key.to_be_bytes()).unwrap();
        assert_eq!(Entry::decode(&payload).unwrap().overflow(), Ok(Some(reference)));
        let mut value = Vec::new();
        read_overflow_into(&rig.pool, rig.tree.id, reference, &mut value).unwrap();
        assert!(value.len() == 20_000 && value.iter().all(|&byte| byte == key as u8));
    }
    assert_eq!(rig.check().0, []);
}

fn strange_key(dice: &mut Pcg64Mcg, len_max: usize) -> Vec<u8> {
    let len = match dice.random_range(0..10) {
        0 => 0,
        1 => len_max,
        2 | 3 => dice.random_range(0..=len_max),
        _ => dice.random_range(1..12),
    };
    let mut key = vec![*[0u8, 0xff, b'k'].choose(dice).unwrap(); len];
    for byte in key.iter_mut().rev().take(3) {
        *byte = dice.random();
    }
    key
}

/// Steps of compactions among random changes with keys of all lengths; many compactions are abandoned.
#[test]
fn random_lives_with_compactions() {
    for (seed, page_bytes, frames) in [(0, 4096, 16), (1, 4096, 32), (2, 4096, 256), (3, 8192, 64), (4, 16384, 256)] {
        let rig = Rig::with_log(page_bytes, frames, 64 << 20);
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let mut model = Model::new();
        let mut compaction: Option<Compaction<'_>> = None;
        let mut steps = 0;
        for step in 0..4000 {
            let growing = step / 1000 % 2 == 0;
            if dice.random_bool(if growing { 0.8 } else { 0.25 }) {
                let key = strange_key(&mut dice, key_bytes_max(page_bytes));
                let room = entry_bytes_max(page_bytes) - key.len() - 13;
                let len = if dice.random_bool(0.2) { dice.random_range(0..=room) } else { dice.random_range(0..40) };
                let payload = plain(&vec![dice.random(); len]);
                rig.put(&key, &payload);
                model.insert(key, payload);
            } else {
                let probe = strange_key(&mut dice, key_bytes_max(page_bytes));
                let key = model.range(probe.clone()..).next().map_or(probe, |(k, _)| k.clone());
                if dice.random_bool(0.5) {
                    assert_eq!(rig.delete(&key), model.remove(&key).is_some());
                } else if model.remove(&key).is_some() {
                    remove_only(&rig, &key);
                }
            }
            if compaction.is_none() && dice.random_bool(0.02) {
                compaction = Some(Compaction::new(rig.tree, &rig.space, *[50, 75, 90, 100].choose(&mut dice).unwrap()));
            }
            if let Some(under_way) = compaction.as_mut().filter(|_| dice.random_bool(0.3)) {
                steps += 1;
                if !under_way.step(TxnId::NONE).unwrap() || dice.random_bool(0.02) {
                    compaction = None;
                }
            }
            if step % 500 == 0 {
                assert_eq!(rig.check().0, [], "seed {seed}, step {step}");
            }
        }
        drop(compaction);
        assert!(steps > 200, "{steps}");
        rig.verify(&model);
        compact(&rig);
        rig.verify(&model);
        model.keys().for_each(|key| assert!(rig.delete(key)));
        rig.verify(&Model::new());
    }
}

/// A crash may come after any mini-transaction: each prefix of the log makes a whole tree with all entries.
#[test]
fn the_log_up_to_any_step_makes_a_whole_tree_with_all_entries() {
    let rig = Rig::with_log(4096, 1024, 64 << 20);
    let model = shuffled(&rig, 9000, 60, 7);
    let from = rig.pool.log().head();
    assert!(compact(&rig).written > 100);
    rig.pool.log().flush_to(rig.pool.log().head()).unwrap();
    let (root, disk) = (rig.tree.root, rig.disk.clone());
    drop(rig);

    let mut pages: HashMap<PageId, Vec<u8>> = HashMap::new();
    let process = std::sync::Arc::new(seawall_sim::Process::new(&disk));
    let mut reader = LogReader::open(process, &log_config(64 << 20), FIRST_LSN, 1).unwrap();
    let mut looked = 0;
    while let Some(frame) = reader.next().unwrap() {
        let (start, end) = (frame.start, frame.end);
        for record in Records::new(frame.body) {
            let record = record.unwrap();
            let bytes = pages.entry(record.page).or_insert_with(|| vec![0; 4096]);
            apply(record.tag, record.body, bytes).unwrap();
            page::set_u64(bytes, page::LSN, end.0);
        }
        if start >= from {
            looked += 1;
            let mut found = Model::new();
            entries(&pages, root, &[], None, &mut found);
            assert!(found == model, "after {start:?}");
        }
    }
    assert!(looked > 10, "{looked}");
}

fn entries(pages: &HashMap<PageId, Vec<u8>>, id: PageId, lower: &[u8], upper: Option<&[u8]>, found: &mut Model) {
    let node = Node::open(&pages[&id]).unwrap();
    node.validate().unwrap();
    assert_eq!((node.lower(), node.upper()), (lower, upper));
    for slot in 0..node.count() {
        if node.is_leaf() {
            found.insert(node.key(slot).unwrap(), node.payload(slot).unwrap().to_vec());
        } else {
            let (lower, upper) = (node.child_lower(slot).unwrap(), node.child_upper(slot).unwrap());
            entries(pages, node.child(slot).unwrap(), &lower, upper.as_deref(), found);
        }
    }
}

#[test]
fn a_scan_over_leaves_that_move_meets_every_key_once_in_order() {
    for seed in 0..6u64 {
        let rig = Rig::new(4096, 48);
        let rows = 4000;
        shuffled(&rig, rows, 60, seed);
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let upward = seed % 2 == 0;
        let mut compaction = Compaction::new(rig.tree, &rig.space, FILL);
        let mut cursor = Cursor::new(rig.tree);
        if seed % 3 == 0 {
            cursor.read_ahead().long();
        }
        let mut on = cursor.seek(&rig.pool, if upward { Seek::First } else { Seek::Last }).unwrap();
        let mut met = Vec::new();
        while on {
            met.push(u32::from_be_bytes(cursor.key().try_into().unwrap()));
            if dice.random_bool(0.02) && !compaction.step(TxnId::NONE).unwrap() {
                compaction = Compaction::new(rig.tree, &rig.space, FILL);
            }
            on = if upward { cursor.next(&rig.pool) } else { cursor.prev(&rig.pool) }.unwrap();
        }
        if !upward {
            met.reverse();
        }
        assert!(met.iter().copied().eq(0..rows), "seed {seed}");
    }
}

#[test]
fn writers_and_scanners_race_compactions() {
    const THREADS: u32 = 3;
    let rig = Rig::with_log(4096, 96, 32 << 20);
    // Keys that stay, between those that come and go.
    for i in 0..600u32 {
        rig.put(&(i * 4 + 3).to_be_bytes(), &plain(&[9; 60]));
    }
    let done = AtomicBool::new(false);
    let shards: Vec<Model> = std::thread::scope(|scope| {
        let (rig, done) = (&rig, &done);
        let writer = |thread: u32| {
            let mut dice = Pcg64Mcg::seed_from_u64(thread.into());
            let mut model = Model::new();
            for step in 0..1200 {
                let key = (dice.random_range(0..600u32) * 4 + thread).to_be_bytes().to_vec();
                if dice.random_bool(if step < 800 { 0.75 } else { 0.25 }) {
                    let payload = plain(&vec![thread as u8; dice.random_range(0..300)]);
                    rig.put(&key, &payload);
                    model.insert(key, payload);
                } else {
                    assert_eq!(rig.delete(&key), model.remove(&key).is_some());
                }
                let probe = (dice.random_range(0..600u32) * 4 + thread).to_be_bytes();
                assert_eq!(rig.get(&probe).as_ref(), model.get(&probe[..]));
            }
            model
        };
        let writers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || writer(thread))).collect();
        let scanner = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for all in [rig.forward(), rig.backward()] {
                    assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order, once each");
                    assert_eq!(all.iter().filter(|(key, _)| key[3] % 4 == 3).count(), 600);
                }
            }
        });
        let compactor = scope.spawn(|| {
            let mut moved = 0;
            while !done.load(Ordering::Relaxed) {
                for fill in [50, 100] {
                    let mut compaction = Compaction::new(rig.tree, &rig.space, fill);
                    while compaction.step(TxnId::NONE).unwrap() {}
                    moved += compaction.moved().written;
                }
            }
            moved
        });
        let shards = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        done.store(true, Ordering::Relaxed);
        scanner.join().unwrap();
        assert!(compactor.join().unwrap() > 0);
        shards
    });
    let mut model: Model = shards.into_iter().flatten().collect();
    model.extend((0..600u32).map(|i| ((i * 4 + 3).to_be_bytes().to_vec(), plain(&[9; 60]))));
    rig.verify(&model);
}

#[test]
fn a_full_disk_stops_it_and_harms_nothing() {
    let rig = Rig::with_log(4096, 64, 64 << 20);
    let model = shuffled(&rig, 20_000, 60, 8);
    rig.disk.inject(Fault::enospc().on(Op::Grow).path("/db/data"));
    // Another tree has all wholly free extents.
    let mut others = Vec::new();
    while let Ok(run) = rig.space.reserve_run(TreeId(99), PageId::NONE, usize::MAX) {
        others.push(run);
    }
    let mut compaction = Compaction::new(rig.tree, &rig.space, FILL);
    let error = loop {
        match compaction.step(TxnId::NONE) {
            Ok(more) => assert!(more, "there is no room for all of it"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert!(matches!(compaction.step(TxnId::NONE), Err(Error::NoSpace { .. })));
    rig.verify(&model);
    // The reserve for rollback is still there.
    drop((compaction, others));
    drop(begin_long_for(&rig, Purpose::Undo));
    rig.disk.clear_faults();
    compact(&rig);
    assert!(fragmentation(&rig).share() < 0.04);
    let findings = rig.check().0;
    assert_eq!(findings, []);
}

#[test]
fn a_page_that_cannot_be_read_stops_a_step_and_harms_nothing() {
    let rig = Rig::with_log(4096, 32, 64 << 20);
    let model = shuffled(&rig, 4000, 60, 9);
    rig.disk.inject(Fault::eio().on(Op::Read).probability(0.3));
    let (mut compaction, mut failures) = (Compaction::new(rig.tree, &rig.space, FILL), 0);
    loop {
        match compaction.step(TxnId::NONE) {
            Ok(true) => {}
            Ok(false) => break,
            Err(Error::Io(_)) => failures += 1,
            Err(other) => panic!("{other}"),
        }
    }
    rig.disk.clear_faults();
    drop(compaction);
    assert!(failures > 0);
    assert!(fragmentation(&rig).share() < 0.2, "{:?}", fragmentation(&rig));
    rig.verify(&model);
}

#[test]
fn compactions_again_and_again_beside_splits_reuse_what_they_freed() {
    let rig = Rig::with_log(4096, 256, 64 << 20);
    let mut dice = Pcg64Mcg::seed_from_u64(1);
    let mut model = shuffled(&rig, 3000, 60, 1);
    for round in 0..20 {
        let mut compaction = Compaction::new(rig.tree, &rig.space, if round % 2 == 0 { 50 } else { 100 });
        while compaction.step(TxnId::NONE).unwrap() {
            for _ in 0..20 {
                let key = dice.random_range(0..4000u32).to_be_bytes();
                if dice.random_bool(0.6) {
                    let payload = plain(&vec![1; dice.random_range(0..300)]);
                    rig.put(&key, &payload);
                    model.insert(key.to_vec(), payload);
                } else {
                    assert_eq!(rig.delete(&key), model.remove(&key[..]).is_some());
                }
            }
        }
    }
    rig.verify(&model);
    let (pages, own) = (rig.space.pages(), rig.space.pages_of(rig.tree.id));
    assert!(own < 256 && pages <= 8 * 256, "{own} of {pages} pages");
}
