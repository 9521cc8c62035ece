//! Hints against descents: whatever happens to the leaf that a hint names, both lead to the same leaf.

use super::rig::{Rig, TREE, plain};
use crate::btree::hint::SURE;
use crate::btree::{Compaction, LeafHints};
use crate::buffer::{Mtr, MtrSize};
use crate::format::{PageId, TxnId, page};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The leaf of a key: by hint for a read, by hint for a change, by descent.
fn leaves(rig: &Rig, key: &[u8], hints: &LeafHints) -> [PageId; 3] {
    let read =
        rig.pool.retry(|| rig.tree.leaf_shared_by(&rig.space, key, hints).map(|leaf| page::number(&leaf))).unwrap();
    let change = rig.pool.retry(|| {
        let mut mtr = Mtr::begin(&rig.pool, MtrSize::Small)?;
        let leaf = rig.tree.leaf_for_change_by(&rig.space, &mut mtr, key, hints)?;
        Ok(mtr.id(leaf))
    });
    let descent = rig.pool.retry(|| rig.tree.leaf_shared(&rig.pool, key).map(|leaf| page::number(&leaf))).unwrap();
    [read, change.unwrap(), descent]
}

#[test]
fn hints_lead_where_descents_lead_through_splits_merges_and_compactions() {
    let (mut led, mut misled) = (0, 0);
    for (seed, page_bytes, frames) in [(0, 4096, 32), (1, 4096, 256), (2, 8192, 64)] {
        let rig = Rig::with_log(page_bytes, frames, 64 << 20);
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let hints = LeafHints::default();
        let (mut near, mut compaction) = (0u32, None::<Compaction<'_>>);
        for step in 0..6000 {
            // Keys come in runs of neighbours, so that hints are tried. The tree grows and shrinks in turns,
            // so that leaves split and merge.
            near = if dice.random_bool(0.03) { dice.random_range(0..4000) } else { near + dice.random_range(0..2) };
            let key = near.to_be_bytes();
            if dice.random_bool(if step / 1500 % 2 == 0 { 0.9 } else { 0.2 }) {
                rig.put(&key, &plain(&vec![7; dice.random_range(0..200)]));
            } else if rig.delete(&key) {
                rig.tree.tidy(&rig.space, &key).unwrap();
            }
            if dice.random_bool(0.01) {
                compaction.get_or_insert_with(|| Compaction::new(rig.tree, &rig.space, 90));
            }
            if compaction.as_mut().is_some_and(|compaction| !compaction.step(TxnId::NONE).unwrap()) {
                compaction = None;
            }
            let tried = hints.likely(TREE, SURE).map(|hint| hint.page);
            let [read, change, descent] = leaves(&rig, &key, &hints);
            assert_eq!((read, change), (descent, descent), "seed {seed}, step {step}, key {near}");
            led += u32::from(tried == Some(descent));
            misled += u32::from(tried.is_some_and(|tried| tried != descent));
        }
        assert_eq!(rig.check().0, [], "seed {seed}");
    }
    assert!(led > 1000 && misled > 100, "hints were tried: {led} led to the leaf, {misled} did not");
}

#[test]
fn keys_in_no_order_try_few_hints() {
    let rig = Rig::new(4096, 256);
    for key in 0..3000u32 {
        rig.put(&key.to_be_bytes(), &plain(&[7; 60]));
    }
    let (mut dice, hints, mut tried) = (Pcg64Mcg::seed_from_u64(1), LeafHints::default(), 0);
    for _ in 0..2000 {
        let key = dice.random_range(0..3000u32).to_be_bytes();
        tried += u32::from(hints.likely(TREE, 1).is_some());
        rig.pool
            .retry(|| {
                let mut mtr = Mtr::begin(&rig.pool, MtrSize::Small)?;
                rig.tree.leaf_for_change_by(&rig.space, &mut mtr, &key, &hints).map(|_| ())
            })
            .unwrap();
    }
    assert!(tried < 200, "{tried} of 2000");
}
