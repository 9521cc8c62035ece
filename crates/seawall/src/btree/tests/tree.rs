//! Whole trees against a `BTreeMap`.

use super::long::{begin_long_for, free_long, write_long};
use super::rig::{Model, Rig, log_config, new_tree, plain};
use crate::btree::search::Toward;
use crate::btree::{
    Compaction, Cursor, Dismantling, Entry, Node, OverflowRef, Seek, check, entry_bytes_max, key_bytes_max, redo,
};
use crate::buffer::{Mtr, MtrSize};
use crate::error::Error;
use crate::format::tag::{Layer, layer};
use crate::format::{PageId, TreeId, TxnId, UndoPtr, page};
use crate::log::{FIRST_LSN, LogReader, Records};
use crate::space::{self, Purpose};
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seawall_io::Op;
use seawall_sim::Fault;
use std::collections::HashMap;
use std::ops::Bound;

/// Keys of all lengths with long common prefixes.
fn strange_key(dice: &mut Pcg64Mcg, len_max: usize) -> Vec<u8> {
    let len = match dice.random_range(0..10) {
        0 => 0,
        1 => len_max,
        2 | 3 => dice.random_range(0..=len_max),
        _ => dice.random_range(1..12),
    };
    let fill = *[0u8, 0xff, b'k'].choose(dice).unwrap();
    let mut key = vec![fill; len];
    for byte in key.iter_mut().rev().take(3) {
        *byte = dice.random();
    }
    key
}

fn random_life(page_bytes: usize, frames: u64, steps: usize, seed: u64) {
    let rig = Rig::new(page_bytes, frames);
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    let mut model = Model::new();
    let key_max = key_bytes_max(page_bytes);
    for step in 0..steps {
        // In waves: the tree grows, then shrinks to almost nothing, then grows again.
        let growing = step / (steps / 4).max(1) % 2 == 0;
        if dice.random_bool(if growing { 0.8 } else { 0.2 }) {
            let key = strange_key(&mut dice, key_max);
            let room = entry_bytes_max(page_bytes) - key.len() - 13;
            let len = if dice.random_bool(0.2) { dice.random_range(0..=room) } else { dice.random_range(0..40) };
            let payload = plain(&vec![dice.random(); len]);
            rig.put(&key, &payload);
            model.insert(key, payload);
        } else {
            let probe = strange_key(&mut dice, key_max);
            let key = model.range(probe.clone()..).next().map_or(probe, |(k, _)| k.clone());
            assert_eq!(rig.delete(&key), model.remove(&key).is_some());
        }
        if dice.random_bool(0.1) {
            let probe = strange_key(&mut dice, key_max);
            assert_eq!(rig.get(&probe), model.get(&probe).cloned());
        }
    }
    rig.verify(&model);
    for key in model.keys() {
        assert!(rig.delete(key));
    }
    rig.verify(&Model::new());
    assert_eq!((rig.root_level(), rig.leaves().len()), (0, 1), "an empty tree is one leaf again");
}

#[test]
fn random_lives_in_a_tiny_pool() {
    for seed in 0..3 {
        random_life(4096, 32, 2500, seed);
    }
}

#[test]
fn random_lives_at_all_page_sizes() {
    for shift in 12..=15u32 {
        random_life(1 << shift, 128, 2500, u64::from(shift));
    }
}

#[test]
fn who_appends_or_prepends_leaves_full_pages_behind() {
    for descending in [false, true] {
        let rig = Rig::new(4096, 64);
        for i in 0..4000u64 {
            let key = if descending { u64::MAX - i } else { i };
            rig.put(&key.to_be_bytes(), &plain(b"twenty bytes of value"));
        }
        let mut leaves = rig.leaves();
        if descending {
            leaves.reverse();
        }
        // The last two are still being filled.
        leaves.truncate(leaves.len() - 2);
        let fill = leaves.iter().sum::<usize>() as f64 / (leaves.len() * 4096) as f64;
        assert!(fill > 0.9, "descending {descending}: {fill}");
        assert_eq!(rig.check().0, []);
    }
}

#[test]
fn headers_without_use_make_room_before_a_leaf_splits() {
    let rig = Rig::new(4096, 64);
    let entry = |i: u64| Entry::written(TxnId(i + 1), UndoPtr(9), b"x");
    let mut payload = Vec::new();
    let mut i = 0;
    while rig.leaves().len() == 1 && i < 300 {
        entry(i).encode_into(&mut payload);
        rig.put_at(&i.to_be_bytes(), &payload, TxnId(1000));
        i += 1;
    }
    // About 32 bytes each with a header, 20 without.
    assert!(i > 4096 / 26, "only {i} entries before the first split");
    let mut cursor = Cursor::new(rig.tree);
    assert!(cursor.seek(&rig.pool, Seek::First).unwrap());
    assert!(!cursor.entry().unwrap().unwrap().has_header());
    assert_eq!(rig.check().0, []);
}

#[test]
fn every_seek_finds_what_the_model_finds() {
    let rig = Rig::new(4096, 64);
    let mut dice = Pcg64Mcg::seed_from_u64(5);
    let mut model = Model::new();
    for _ in 0..800 {
        let key = strange_key(&mut dice, 300);
        rig.put(&key, &plain(&[1]));
        model.insert(key, plain(&[1]));
    }
    for _ in 0..150 {
        let key = strange_key(&mut dice, 300);
        rig.delete(&key);
        model.remove(&key);
    }
    let mut cursor = Cursor::new(rig.tree);
    for _ in 0..1500 {
        let mut probe = strange_key(&mut dice, 300);
        if dice.random_bool(0.5) {
            probe = model.range(probe.clone()..).next().map_or(probe, |(k, _)| k.clone());
        }
        let key = &probe[..];
        type End<'k> = Bound<&'k [u8]>;
        let range = |low: End<'_>, high: End<'_>| {
            model.range::<[u8], _>((low, high)).map(|(k, _)| k.clone()).collect::<std::collections::VecDeque<_>>()
        };
        let cases = [
            (Seek::AtLeast(key), range(Bound::Included(key), Bound::Unbounded).pop_front()),
            (Seek::After(key), range(Bound::Excluded(key), Bound::Unbounded).pop_front()),
            (Seek::AtMost(key), range(Bound::Unbounded, Bound::Included(key)).pop_back()),
            (Seek::Before(key), range(Bound::Unbounded, Bound::Excluded(key)).pop_back()),
        ];
        for (seek, expected) in cases {
            let found = cursor.seek(&rig.pool, seek).unwrap();
            assert_eq!(found.then(|| cursor.key().to_vec()), expected, "{seek:?}");
            if found {
                let key = cursor.key().to_vec();
                assert_eq!(
                    cursor.next(&rig.pool).unwrap().then(|| cursor.key().to_vec()),
                    range(Bound::Excluded(&key), Bound::Unbounded).pop_front()
                );
            }
        }
    }
}

#[test]
fn a_scan_meets_every_key_that_stays_whatever_happens_around_it() {
    for seed in 0..6 {
        let rig = Rig::new(4096, 32);
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        // Even keys stay; odd ones come and go while the scan is under way.
        for i in 0..600u32 {
            rig.put(&(2 * i).to_be_bytes(), &plain(&[7; 30]));
        }
        let upward = seed % 2 == 0;
        let mut cursor = Cursor::new(rig.tree);
        let mut on = cursor.seek(&rig.pool, if upward { Seek::First } else { Seek::Last }).unwrap();
        let mut met = Vec::new();
        while on {
            met.push(u32::from_be_bytes(cursor.key().try_into().unwrap()));
            for _ in 0..3 {
                let odd = (2 * dice.random_range(0..600u32) + 1).to_be_bytes();
                if dice.random_bool(0.5) {
                    rig.put(&odd, &plain(&vec![1; dice.random_range(0..300)]));
                } else {
                    rig.delete(&odd);
                }
            }
            on = if upward { cursor.next(&rig.pool) } else { cursor.prev(&rig.pool) }.unwrap();
        }
        assert!(met.windows(2).all(|pair| (pair[0] < pair[1]) == upward && pair[0] != pair[1]), "in order, once each");
        assert_eq!(met.iter().filter(|key| *key % 2 == 0).count(), 600);
    }
}

#[test]
fn many_threads_each_with_its_keys() {
    const THREADS: u32 = 4;
    let rig = Rig::new(4096, 48);
    let done = std::sync::atomic::AtomicBool::new(false);
    let shards: Vec<Model> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let rig = &rig;
                scope.spawn(move || {
                    let mut dice = Pcg64Mcg::seed_from_u64(thread.into());
                    let mut model = Model::new();
                    for step in 0..900 {
                        // Neighbours in the tree belong to different threads.
                        let key = (dice.random_range(0..400u32) * THREADS + thread).to_be_bytes().to_vec();
                        if dice.random_bool(if step < 500 { 0.75 } else { 0.25 }) {
                            let payload = plain(&vec![thread as u8; dice.random_range(0..200)]);
                            rig.put(&key, &payload);
                            model.insert(key, payload);
                        } else {
                            assert_eq!(rig.delete(&key), model.remove(&key).is_some());
                        }
                        let probe = (dice.random_range(0..400u32) * THREADS + thread).to_be_bytes();
                        assert_eq!(rig.get(&probe).as_ref(), model.get(&probe[..]));
                    }
                    model
                })
            })
            .collect();
        let scanner = scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                for (all, _) in [(rig.forward(), 0), (rig.backward(), 1)] {
                    assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order, once each");
                }
            }
        });
        let shards = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        scanner.join().unwrap();
        shards
    });
    rig.verify(&shards.into_iter().flatten().collect());
}

/// Every mini-transaction, replayed on copies of the pages, gives the bytes in the pool; and after each of
/// them the tree is whole.
#[test]
fn the_log_alone_makes_the_same_pages_and_any_part_of_it_a_whole_tree() {
    let rig = Rig::with_log(4096, 1024, 64 << 20);
    let mut dice = Pcg64Mcg::seed_from_u64(3);
    let mut model = Model::new();
    for step in 0..1500 {
        if dice.random_bool(if step < 900 { 0.8 } else { 0.2 }) {
            let key = strange_key(&mut dice, 819);
            let payload = plain(&vec![3; dice.random_range(0..100)]);
            rig.put(&key, &payload);
            model.insert(key, payload);
        } else if let Some(key) = model.keys().nth(dice.random_range(0..model.len().max(1))).cloned() {
            rig.delete(&key);
            model.remove(&key);
        }
    }
    let written = write_long(&rig, &vec![5; 100_000]);
    free_long(&rig, written);
    rig.verify(&model);
    rig.pool.log().flush_to(rig.pool.log().head()).unwrap();
    let mut live = HashMap::new();
    let mut ids = vec![PageId(0), PageId(1)];
    let visit = |page| {
        ids.push(page);
        Ok(())
    };
    rig.space.for_each_owned(rig.tree.id, visit).unwrap();
    for id in ids {
        live.insert(id, rig.pool.retry(|| Ok(rig.pool.shared(id)?.to_vec())).unwrap());
    }
    let (root, disk) = (rig.tree.root, rig.disk.clone());
    drop(rig);

    let mut pages: HashMap<PageId, Vec<u8>> = HashMap::new();
    let process = std::sync::Arc::new(seawall_sim::Process::new(&disk));
    let mut reader = LogReader::open(process, &log_config(64 << 20), FIRST_LSN, 1).unwrap();
    let mut frames = 0;
    while let Some(frame) = reader.next().unwrap() {
        let end = frame.end;
        for record in Records::new(frame.body) {
            let record = record.unwrap();
            let bytes = pages.entry(record.page).or_insert_with(|| vec![0; 4096]);
            match layer(record.tag) {
                Some(Layer::Space) => space::redo(record.tag, record.body, bytes).unwrap(),
                Some(Layer::Btree) => redo(record.tag, record.body, bytes).unwrap(),
                other => panic!("{other:?}"),
            }
            page::set_u64(bytes, page::LSN, end.0);
        }
        frames += 1;
        if frames % 50 == 0 && pages.contains_key(&root) {
            whole(&pages, root, &[], None);
        }
    }
    assert!(frames > 1500);
    for (id, held) in &live {
        assert!(held[page::NUMBER..] == pages[id][page::NUMBER..], "page {id}");
    }
}

fn whole(pages: &HashMap<PageId, Vec<u8>>, id: PageId, lower: &[u8], upper: Option<&[u8]>) {
    let node = Node::open(&pages[&id]).unwrap();
    node.validate().unwrap();
    assert_eq!((node.lower(), node.upper()), (lower, upper));
    if !node.is_leaf() {
        for slot in 0..node.count() {
            let (lower, upper) = (node.child_lower(slot).unwrap(), node.child_upper(slot).unwrap());
            assert_eq!(page::level(&pages[&node.child(slot).unwrap()]), node.level() - 1);
            whole(pages, node.child(slot).unwrap(), &lower, upper.as_deref());
        }
    }
}

#[test]
fn branches_name_exactly_the_leaves_of_a_range_and_estimates_come_close() {
    let rig = Rig::new(4096, 256);
    let mut keys: Vec<u32> = (0..6000).collect();
    keys.shuffle(&mut Pcg64Mcg::seed_from_u64(1));
    for key in &keys {
        rig.put(&key.to_be_bytes(), &plain(&[0; 20]));
    }
    assert!(rig.root_level() >= 1);
    let mut dice = Pcg64Mcg::seed_from_u64(2);
    for round in 0..200 {
        let (a, b) = (dice.random_range(0..6000u32), dice.random_range(0..6000u32));
        let (low, high) = if round % 5 == 0 { (a, a + b % 40) } else { (a.min(b), a.max(b)) };
        let (low_key, high_key) = (low.to_be_bytes(), high.to_be_bytes());
        let (bound, entries) = match round % 3 {
            0 => (Bound::Included(&high_key[..]), u64::from(high.min(5999) - low + 1)),
            1 => (Bound::Excluded(&high_key[..]), u64::from(high.min(6000) - low)),
            _ => (Bound::Unbounded, u64::from(6000 - low)),
        };
        let mut expected = Vec::new();
        let mut at = Some(low_key.to_vec());
        while let Some(key) = at {
            let inside = match bound {
                Bound::Included(high) => &key[..] <= high,
                Bound::Excluded(high) => &key[..] < high,
                Bound::Unbounded => true,
            };
            if !inside {
                break;
            }
            at = rig
                .pool
                .retry(|| {
                    let leaf = rig.tree.leaf_shared(&rig.pool, &key)?;
                    let node = Node::open(&leaf)?;
                    expected.push(node.id());
                    Ok(node.upper().map(<[u8]>::to_vec))
                })
                .unwrap();
        }
        let mut upward = Vec::new();
        let mut from = Some(low_key.to_vec());
        while let Some(low) = from {
            let mut level1 = rig.tree.level1_children(&rig.pool, &low, bound, false).unwrap();
            upward.append(&mut level1.children);
            from = level1.beyond;
        }
        assert_eq!(upward, expected);
        let mut downward = Vec::new();
        let mut to = Some(None);
        while let Some(end) = to {
            let end: Option<Vec<u8>> = end;
            let high = end.as_deref().map_or(bound, Bound::Excluded);
            let level1 = rig.tree.level1_children(&rig.pool, &low_key, high, true).unwrap();
            downward.extend(level1.children.into_iter().rev());
            to = level1.beyond.map(Some);
        }
        downward.reverse();
        assert_eq!(downward, expected);

        let estimate = rig.tree.estimate(&rig.pool, &low_key, bound).unwrap();
        if expected.len() <= 2 {
            assert_eq!(estimate.entries, entries, "{low}..{high}");
        }
        let off = estimate.entries.abs_diff(entries) as f64;
        assert!(off <= 0.35 * entries as f64 + 60.0, "{low}..{high}: {estimate:?} for {entries}");
        let off = estimate.leaves.abs_diff(expected.len() as u64) as f64;
        assert!(off <= 0.35 * expected.len() as f64 + 2.0, "{low}..{high}: {estimate:?} for {}", expected.len());
    }
    let nothing = rig.tree.estimate(&rig.pool, b"b", Bound::Excluded(b"a")).unwrap();
    assert_eq!((nothing.entries, nothing.leaves), (0, 0));
}

/// A lost write can leave a branch page as it was when it covered another range of the same tree.
#[test]
fn a_walk_down_that_an_old_branch_leads_back_ends_with_an_error() {
    let rig = Rig::new(4096, 64);
    for i in 0..3000u32 {
        rig.put(&i.to_be_bytes(), &plain(&[0; 900]));
    }
    assert!(rig.root_level() >= 2);
    let next = |low: &[u8]| rig.tree.level1_children(&rig.pool, low, Bound::Unbounded, false).unwrap().beyond.unwrap();
    let second = next(&[]);
    let down = || rig.tree.level1_children(&rig.pool, &[], Bound::Excluded(&second), true);
    assert_eq!(down().unwrap().beyond, None, "the first branch");
    let branch = |key: &[u8]| {
        rig.pool.retry(|| Ok(rig.tree.descend(&rig.pool, Toward::Key(key), 1, |_, _| ())?.unwrap().0.to_vec()))
    };
    let (mut first, now) = (branch(&[]).unwrap(), branch(&second).unwrap());
    let id = page::number(&first);
    first.copy_from_slice(&now);
    page::set_u32(&mut first, page::NUMBER, id.0);
    rig.pool.redo_page(id, false).unwrap().redo_bytes().copy_from_slice(&first);
    assert!(down().unwrap_err().is_damage());
}

/// The same, while a dropped tree is freed: its pages are then found by their owner.
#[test]
fn a_dropped_tree_with_an_old_branch_that_leads_upward_is_freed() {
    let rig = Rig::new(4096, 64);
    let tree = new_tree(&rig.space, TreeId(17));
    for i in 0..3000u32 {
        rig.put(&i.to_be_bytes(), &plain(&[0; 900]));
    }
    let free = rig.space.free_pages();
    let branch = rig.pool.retry(|| Ok(rig.tree.descend(&rig.pool, Toward::Last, 1, |_, _| ())?.unwrap().0.to_vec()));
    let id = page::number(&branch.unwrap());
    let mut old = rig.pool.retry(|| Ok(rig.pool.shared(rig.tree.root)?.to_vec())).unwrap();
    page::set_u32(&mut old, page::NUMBER, id.0);
    rig.pool.redo_page(id, false).unwrap().redo_bytes().copy_from_slice(&old);
    rig.pool
        .retry(|| {
            let mut mtr = Mtr::begin(&rig.pool, MtrSize::Small)?;
            rig.tree.retire(&mut mtr)?;
            mtr.commit();
            Ok(())
        })
        .unwrap();
    let mut dismantling = Dismantling::new(rig.tree);
    let steps = (0..10_000).take_while(|_| !dismantling.step(&rig.space).unwrap()).count();
    assert!(steps < 10_000, "it ends");
    assert!(rig.space.free_pages() > free + 700);
    assert!(rig.space.is_owner(tree.id, tree.root).unwrap());
}

#[test]
fn a_dropped_tree_says_so() {
    let rig = Rig::new(4096, 64);
    let other = new_tree(&rig.space, TreeId(17));
    rig.pool
        .retry(|| {
            let mut mtr = Mtr::begin(&rig.pool, MtrSize::Small)?;
            other.retire(&mut mtr)?;
            mtr.commit();
            Ok(())
        })
        .unwrap();
    let mut cursor = Cursor::new(other);
    let error = cursor.seek(&rig.pool, Seek::First).unwrap_err();
    assert!(matches!(error, Error::TreeDropped { tree: TreeId(17) }));
}

#[test]
fn a_check_names_every_damaged_page_and_goes_on() {
    let rig = Rig::new(4096, 64);
    for i in 0..2000u32 {
        rig.put(&i.to_be_bytes(), &plain(&[0; 20]));
    }
    assert_eq!(check(rig.tree, &rig.pool, || false, |_, _| (), |_, _, _| Ok(())), []);
    // One child is removed from its branch; another is damaged itself.
    let level1 = rig.tree.level1_children(&rig.pool, &[], Bound::Unbounded, false).unwrap();
    let (before, damaged) = (level1.children[2], level1.children[7]);
    rig.pool
        .retry(|| {
            let mut mtr = Mtr::begin(&rig.pool, MtrSize::Small)?;
            let first = rig.tree.leaf_for_change(&rig.pool, &mut mtr, &[])?;
            let key = Node::open(mtr.page(first))?.key(0)?;
            mtr.release(first);
            let parent = rig.tree.latch_on_path(&rig.pool, &mut mtr, &key, 1)?.expect("it has branches");
            let leaf = mtr.latch(damaged)?;
            mtr.run(parent, &crate::btree::Remove::new(3));
            mtr.run(leaf, &crate::btree::Patch::new(4, 0, &[0xff]));
            mtr.commit();
            Ok(())
        })
        .unwrap();
    let named: Vec<_> = check(rig.tree, &rig.pool, || false, |_, _| (), |_, _, _| Ok(()))
        .into_iter()
        .map(|finding| finding.page)
        .collect();
    assert_eq!(named, [before, damaged]);
}

#[test]
fn a_full_disk_refuses_the_split_and_harms_nothing() {
    let rig = Rig::new(4096, 64);
    let mut model = Model::new();
    rig.disk.inject(Fault::enospc().on(Op::Grow).path("/db/data"));
    let payload = plain(&[5; 900]);
    let refused = (0..).find_map(|i: u32| {
        let error = rig.try_to_put(&i.to_be_bytes(), &payload).err();
        if error.is_none() {
            model.insert(i.to_be_bytes().to_vec(), payload.clone());
        }
        error
    });
    assert!(matches!(refused, Some(Error::NoSpace { .. })), "{refused:?}");
    // What was refused had not made the room that it needed.
    let refused = (model.len() as u32).to_be_bytes();
    assert!(matches!(rig.try_to_put(&refused, &payload), Err(Error::NoSpace { .. })));
    let mut writer = begin_long_for(&rig, Purpose::Undo);
    let error = writer.append(&rig.space, &[1; 100_000], Purpose::Grow).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    free_long(&rig, OverflowRef { head: writer.head(), len: 1 });
    rig.verify(&model);
    // Rollback still gets pages (trap 14).
    let key = u32::MAX.to_be_bytes();
    rig.tree.make_room(&rig.space, &key, payload.len(), Purpose::Undo, TxnId::NONE).unwrap();
    rig.verify(&model);
}

#[test]
fn a_page_that_cannot_be_read_is_an_error_and_can_be_read_later() {
    let rig = Rig::new(4096, 16);
    let mut model = Model::new();
    for i in 0..800u32 {
        rig.put(&i.to_be_bytes(), &plain(&[1; 100]));
        model.insert(i.to_be_bytes().to_vec(), plain(&[1; 100]));
    }
    rig.disk.inject(Fault::eio().on(Op::Read).probability(0.5));
    let mut failures = 0;
    for i in 0..800u32 {
        let key = (i * 7 % 800).to_be_bytes();
        match rig.try_to_put(&key, &plain(&[2; 300])) {
            Ok(()) => drop(model.insert(key.to_vec(), plain(&[2; 300]))),
            Err(Error::Io(_)) => failures += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(failures > 0);
    rig.disk.clear_faults();
    rig.verify(&model);
}

/// The space maps say that some leaves are not the tree's: an operation that would free them changes nothing,
/// and the database stays usable.
#[test]
fn what_another_owns_is_not_freed() {
    let rig = Rig::new(4096, 256);
    for i in 0..2000u32 {
        rig.put(&(i * 7919 % 2000).to_be_bytes(), &plain(&[1; 60]));
    }
    let rows = rig.forward();
    let refused = |error: &Error| matches!(error, Error::Corrupt(_)) && error.to_string().contains("owner");
    for i in (0..2000u32).step_by(100) {
        rig.pool
            .retry(|| {
                let id = Node::open(&rig.tree.leaf_shared(&rig.pool, &i.to_be_bytes())?)?.id();
                let mut mtr = Mtr::begin(&rig.pool, MtrSize::Small)?;
                rig.space.free_many(&mut mtr, rig.tree.id, &[id])?;
                mtr.commit();
                Ok(())
            })
            .unwrap();
    }
    let mut compaction = Compaction::new(rig.tree, &rig.space, 70);
    let compacted = loop {
        match compaction.step(TxnId(u64::MAX)) {
            Ok(true) => {}
            done => break done,
        }
    };
    assert!(compacted.as_ref().is_err_and(refused), "{compacted:?}");
    assert_eq!(rig.forward(), rows);
    let merged = (0..2000u32).find_map(|i| rig.try_delete(&i.to_be_bytes()).err());
    assert!(merged.as_ref().is_some_and(refused), "{merged:?}");
    rig.pool.health().check().unwrap();
}
