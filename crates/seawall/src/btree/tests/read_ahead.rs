//! Scans with read-ahead: what they find, what they read, what they leave behind.

use super::rig::{Model, Rig, plain};
use crate::btree::{Cursor, Seek};
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seawall_io::Op;
use seawall_sim::{Call, Fault};
use std::ops::Bound;
use std::time::Duration;

fn reads(rig: &Rig) -> u64 {
    rig.disk.trace().tally("/db/data", Call::Read).calls
}

fn key(i: u32) -> Vec<u8> {
    i.to_be_bytes().to_vec()
}

/// A cold tree with rows of 100 bytes, so about 20 to 35 a leaf, inserted in this order.
fn cold(frames: u64, order: impl Iterator<Item = u32>) -> Rig {
    let rig = Rig::with_log(4096, frames, 64 << 20);
    for i in order {
        rig.put(&key(i), &plain(&[i as u8; 100]));
    }
    rig.pool.chill();
    rig
}

fn shuffled(rows: u32) -> impl Iterator<Item = u32> {
    // A prime that does not divide the number of rows.
    (0..rows).map(move |i| (u64::from(i) * 7919 % u64::from(rows)) as u32)
}

/// The keys of a scan within bounds, in either direction.
fn scan(rig: &Rig, low: u32, high: u32, forward: bool, prepare: impl FnOnce(&mut Cursor)) -> Vec<u32> {
    let mut cursor = Cursor::new(rig.tree);
    cursor.read_ahead().within(&Bound::Included(key(low)), &Bound::Excluded(key(high)));
    prepare(&mut cursor);
    let to = (key(low), key(high));
    let mut on = cursor.seek(&rig.pool, if forward { Seek::AtLeast(&to.0) } else { Seek::Before(&to.1) }).unwrap();
    let mut keys = Vec::new();
    while on {
        let at = u32::from_be_bytes(cursor.key().try_into().unwrap());
        if !(low..high).contains(&at) {
            break;
        }
        keys.push(at);
        on = if forward { cursor.next(&rig.pool).unwrap() } else { cursor.prev(&rig.pool).unwrap() };
    }
    if !forward {
        keys.reverse();
    }
    keys
}

#[test]
fn a_cold_scan_keeps_many_reads_in_flight_and_waits_for_few() {
    let rig = cold(400, shuffled(6000));
    rig.disk.inject(Fault::slow(Duration::from_millis(1)).on(Op::Read));
    let before = (reads(&rig), rig.pool.stats());
    for forward in [true, false] {
        assert_eq!(scan(&rig, 0, 6000, forward, |_| ()), (0..6000).collect::<Vec<_>>());
        rig.pool.finish_prefetches(true);
        rig.pool.chill();
    }
    let stats = rig.pool.stats();
    let (began, sum) =
        (stats.prefetch_reads - before.1.prefetch_reads, stats.prefetch_depth_sum - before.1.prefetch_depth_sum);
    assert!(began > 100, "{began} reads ahead");
    assert!(sum > 8 * began, "a depth of {:.1}", sum as f64 / began as f64);
    assert!(stats.misses - before.1.misses < 20, "nearly all pages came ahead: {} did not", stats.misses);
    assert_eq!((stats.prefetch_wasted, stats.prefetch_failed), (0, 0));
    assert_eq!(rig.pool.prefetchers(), 0);
}

#[test]
fn pages_in_key_order_come_many_in_a_read_upward_and_downward() {
    let rig = cold(800, 0..12000);
    for forward in [true, false] {
        let before = reads(&rig);
        let pages = rig.pool.stats().prefetched;
        assert_eq!(scan(&rig, 0, 12000, forward, |cursor| cursor.read_ahead().long()).len(), 12000);
        let (reads, pages) = (reads(&rig) - before, rig.pool.stats().prefetched - pages);
        assert!(pages > 300 && reads < pages / 5, "{pages} pages in {reads} reads");
        rig.pool.chill();
    }
}

#[test]
fn nothing_beyond_the_range_is_read() {
    let rig = cold(400, shuffled(6000));
    for (low, high, forward) in [(1000, 1700, true), (1000, 1700, false), (10, 12, true), (0, 3000, false)] {
        rig.pool.chill();
        let (leaves, mut from) = (std::cell::Cell::new(0), Some(key(low)));
        let end = key(high);
        while let Some(at) = from {
            let named = rig.tree.level1_children(&rig.pool, &at, Bound::Excluded(&end), false).unwrap();
            leaves.set(leaves.get() + named.children.len() as u64);
            from = named.beyond;
        }
        // The branches are in memory now.
        let pages = || rig.pool.stats().misses + rig.pool.stats().prefetched;
        let before = pages();
        assert_eq!(scan(&rig, low, high, forward, |_| ()).len() as u32, high - low);
        rig.pool.finish_prefetches(true);
        assert_eq!(pages() - before, leaves.get(), "{low}..{high}");
        assert_eq!(rig.pool.stats().prefetch_wasted, 0);
    }
}

#[test]
fn a_scan_of_ten_rows_reads_a_leaf_or_two() {
    let rig = cold(400, shuffled(6000));
    for (limited, forward) in [(true, true), (true, false), (false, true), (false, false)] {
        rig.pool.chill();
        rig.pool.retry(|| rig.tree.leaf_shared(&rig.pool, &key(0)).map(drop)).unwrap();
        let before = reads(&rig);
        let mut cursor = Cursor::new(rig.tree);
        if limited {
            cursor.read_ahead().limit(10);
            cursor.read_ahead().long();
        }
        let at = key(3000);
        assert!(cursor.seek(&rig.pool, if forward { Seek::AtLeast(&at) } else { Seek::AtMost(&at) }).unwrap());
        for _ in 0..9 {
            assert!(if forward { cursor.next(&rig.pool) } else { cursor.prev(&rig.pool) }.unwrap());
        }
        drop(cursor);
        rig.pool.finish_prefetches(true);
        // A level-1 branch, and the leaves.
        assert!(reads(&rig) - before <= 3, "{} reads", reads(&rig) - before);
    }
}

#[test]
fn a_limit_that_ends_in_the_next_leaf_asks_for_nothing_ahead() {
    let rig = cold(400, 0..6000);
    let before = rig.pool.stats().prefetched;
    let mut cursor = Cursor::new(rig.tree);
    cursor.read_ahead().limit(10);
    assert!(cursor.seek(&rig.pool, Seek::AtLeast(&key(3000))).unwrap());
    let first = cursor.leaf_page();
    // Go to the next leaf, which has all rows that are left.
    while cursor.leaf_page() == first {
        assert!(cursor.next(&rig.pool).unwrap());
    }
    assert_eq!((rig.pool.stats().prefetched, rig.pool.prefetchers()), (before, 0));
    // A limit of more than a leaf: leaves are prefetched.
    let mut cursor = Cursor::new(rig.tree);
    cursor.read_ahead().limit(1000);
    assert!(cursor.seek(&rig.pool, Seek::AtLeast(&key(1000))).unwrap());
    for _ in 0..60 {
        assert!(cursor.next(&rig.pool).unwrap());
    }
    assert!(rig.pool.stats().prefetched > before);
}

#[test]
fn a_scan_that_is_dropped_gives_everything_back() {
    let rig = cold(400, shuffled(6000));
    let free = rig.pool.stats().free;
    let mut cursor = Cursor::new(rig.tree);
    cursor.read_ahead().long();
    assert!(cursor.seek(&rig.pool, Seek::First).unwrap());
    let asked = rig.pool.stats().prefetched;
    assert!((20..=64).contains(&asked), "{asked} pages at once, as it was hinted");
    drop(cursor);
    assert_eq!(rig.pool.prefetchers(), 0);
    rig.pool.finish_prefetches(true);
    rig.pool.chill();
    let stats = rig.pool.stats();
    assert_eq!(stats.prefetched, asked, "it asked for nothing more");
    assert_eq!(stats.free, free, "every frame is back");
    assert!(stats.prefetch_wasted > 20 && stats.prefetch_wasted < asked, "unused prefetches count as waste: {stats:?}");
}

#[test]
fn reads_that_fail_ahead_are_read_again_and_only_their_readers_errors() {
    let rig = cold(400, shuffled(6000));
    rig.disk.inject(Fault::eio().on(Op::Read).path("/db/data").probability(0.3).times(60));
    // Only prefetches may fail unnoticed: a read that fails for the reader is tried until it succeeds.
    let mut keys = Vec::new();
    let mut failed = 0;
    let mut next = Some(key(0));
    while let Some(at) = next.take() {
        let mut cursor = Cursor::new(rig.tree);
        cursor.read_ahead().long();
        let mut on = cursor.seek(&rig.pool, Seek::AtLeast(&at));
        while let Ok(true) = on {
            keys.push(u32::from_be_bytes(cursor.key().try_into().unwrap()));
            on = cursor.next(&rig.pool);
        }
        if on.is_err() {
            failed += 1;
            next = Some(keys.last().map_or(key(0), |&last| key(last + 1)));
        }
    }
    assert_eq!(keys, (0..6000).collect::<Vec<_>>());
    assert!(rig.pool.stats().prefetch_failed > 0 && failed < 60, "{failed} of 60 were the reader's");
    rig.pool.health().check().unwrap();
}

#[test]
fn a_tiny_pool_is_never_used_up_by_reads_ahead() {
    let rig = cold(16, shuffled(1500));
    let mut cursors: Vec<Cursor> = (0..4).map(|_| Cursor::new(rig.tree)).collect();
    for cursor in &mut cursors {
        cursor.read_ahead().long();
        assert!(cursor.seek(&rig.pool, Seek::First).unwrap());
    }
    for i in 1..1500 {
        for cursor in &mut cursors {
            assert!(cursor.next(&rig.pool).unwrap());
            assert_eq!(cursor.key(), key(i));
        }
    }
}

#[test]
fn the_tree_may_change_under_a_scan() {
    for seed in 0..6 {
        let rig = cold(120, shuffled(3000));
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let forward = dice.random();
        let mut cursor = Cursor::new(rig.tree);
        if dice.random() {
            cursor.read_ahead().long();
        }
        let mut on = cursor.seek(&rig.pool, if forward { Seek::First } else { Seek::Last }).unwrap();
        // Multiples of 3 stay; the others go, or get neighbours, and leaves merge and split.
        let mut kept = Vec::new();
        while on {
            let at = u32::from_be_bytes(cursor.key()[..4].try_into().unwrap());
            if cursor.key().len() == 4 && at % 3 == 0 {
                kept.push(at);
            }
            if dice.random_ratio(1, 25) {
                let from = dice.random_range(0..3000);
                let grow = dice.random();
                for i in from..(from + dice.random_range(1..120)).min(3000) {
                    if grow {
                        rig.put(&[&key(i)[..], b"x"].concat(), &plain(&[1; 90]));
                    } else if i % 3 != 0 {
                        rig.delete(&key(i));
                        rig.delete(&[&key(i)[..], b"x"].concat());
                    }
                }
            }
            on = if forward { cursor.next(&rig.pool).unwrap() } else { cursor.prev(&rig.pool).unwrap() };
        }
        if !forward {
            kept.reverse();
        }
        assert_eq!(kept, (0..3000).step_by(3).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(rig.check().0, []);
    }
}

#[test]
fn an_estimate_reads_few_leaves_and_none_that_it_need_not() {
    // Skewed: small rows, then large ones, then only what deletes have left.
    let rig = Rig::with_log(4096, 2000, 64 << 20);
    for i in shuffled(9000) {
        let len = if i < 3000 { 10 } else { 150 };
        rig.put(&key(i), &plain(&vec![1; len]));
    }
    for i in 6000..9000 {
        if i % 5 != 0 {
            rig.delete(&key(i));
        }
    }
    let rows = |low: u32, high: u32| (low..high).filter(|i| *i < 6000 || i % 5 == 0).count() as u64;
    let mut dice = Pcg64Mcg::seed_from_u64(5);
    for round in 0..100 {
        rig.pool.chill();
        let low = dice.random_range(0..8900);
        let high = dice.random_range(low..=9000);
        // The caller of an estimate has the branches in memory: read them.
        let mut from = Some(key(low));
        while let Some(at) = from {
            from = rig.tree.level1_children(&rig.pool, &at, Bound::Excluded(&key(high)), false).unwrap().beyond;
        }
        let before = reads(&rig);
        let found = rig.tree.estimate(&rig.pool, &key(low), Bound::Excluded(&key(high))).unwrap();
        rig.pool.finish_prefetches(true);
        assert!(reads(&rig) - before <= 8, "round {round}: {} leaves read", reads(&rig) - before);
        let rows = rows(low, high);
        assert!(
            found.entries <= 2 * rows + 40 && rows <= 2 * found.entries + 40,
            "round {round}: {low}..{high} has {rows}, {found:?}"
        );
        let again = reads(&rig);
        rig.tree.estimate(&rig.pool, &key(low), Bound::Excluded(&key(high))).unwrap();
        assert_eq!(reads(&rig), again, "what it looked at is in memory");
    }
    let small = Rig::new(4096, 64);
    for i in 0..7 {
        small.put(&key(i), &plain(b"v"));
    }
    let found = small.tree.estimate(&small.pool, &key(2), Bound::Included(&key(5))).unwrap();
    assert_eq!((found.entries, found.leaves), (4, 1));
    // If there are few leaves, all are counted: an ascending tree ends with a full one.
    for i in 7..300 {
        small.put(&key(i), &plain(&[1; 50]));
    }
    let found = small.tree.estimate(&small.pool, &key(2), Bound::Unbounded).unwrap();
    assert_eq!(found.entries, 298);
    assert!((5..10).contains(&found.leaves), "{found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    #[test]
    fn looking_ahead_changes_no_result(
        seed in any::<u64>(),
        depth in 0u32..64,
        total in 0u32..64,
        frames in prop_oneof![Just(16u64), Just(40), Just(200)],
    ) {
        let rig = Rig::new(4096, frames);
        rig.pool.set_prefetch_depths(depth, total);
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let mut model = Model::new();
        for _ in 0..dice.random_range(1..800) {
            let (at, value) = (key(dice.random_range(0..2000)), plain(&vec![7; dice.random_range(0..200)]));
            rig.put(&at, &value);
            model.insert(at, value);
        }
        for _ in 0..6 {
            rig.pool.chill();
            let low = dice.random_range(0..2000);
            let high = dice.random_range(low..=2000);
            let long: bool = dice.random();
            let rows = dice.random_bool(0.3).then(|| dice.random_range(0..100u64));
            let found = scan(&rig, low, high, dice.random(), |cursor| {
                if long {
                    cursor.read_ahead().long();
                }
                if let Some(rows) = rows {
                    cursor.read_ahead().limit(rows);
                }
            });
            let expected: Vec<u32> =
                model.range(key(low)..key(high)).map(|(k, _)| u32::from_be_bytes(k[..].try_into().unwrap())).collect();
            prop_assert_eq!(found, expected);
        }
        prop_assert_eq!(rig.check().0, []);
        prop_assert_eq!(rig.pool.prefetchers(), 0);
    }
}
