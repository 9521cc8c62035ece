//! A node against a `BTreeMap`, and every change against its replay.
// The results from damaged pages do not matter here, only that there are results.
#![allow(clippy::let_underscore_must_use)]

use crate::btree::edit::{self, Packed, elidable_bytes, prefix_between};
use crate::btree::entry::{DELETED, Entry, HEADER};
use crate::btree::entry_bytes_max;
use crate::btree::node::{Node, Position, key_bytes_max, separator};
use crate::btree::redo::{Append, Build, Elide, Insert, Patch, Remove, Replace, Retire, Rewrite, Truncate, redo};
use crate::btree::split::choose;
use crate::buffer::Redo;
use crate::format::edits::Difference;
use crate::format::{PageId, TreeId, TxnId, UndoPtr};
use proptest::prelude::*;
use std::collections::BTreeMap;

const ID: PageId = PageId(7);
const TREE: TreeId = TreeId(16);

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A page changed forward, and another on which the encoded records are replayed: both always have the same
/// bytes.
#[derive(Clone)]
struct Twin {
    page: Vec<u8>,
    replayed: Vec<u8>,
}

impl Twin {
    fn new(page_bytes: usize, level: u8, lower: &[u8], upper: Option<&[u8]>, entries: &Packed) -> Self {
        // The previous contents of the pages must not matter.
        let mut twin = Self { page: vec![0; page_bytes], replayed: vec![0xa5; page_bytes] };
        twin.replayed[..16].fill(0);
        twin.run(&build(level, lower, upper, entries));
        twin
    }

    fn run<R: Redo>(&mut self, change: &R) {
        change.apply(&mut self.page);
        let mut body = Vec::new();
        change.encode(&mut body);
        redo(R::TAG, &body, &mut self.replayed).unwrap();
        assert!(self.page == self.replayed, "replay differs after tag {:#x}", R::TAG);
        // A body cut short is refused, or is another valid body; it never panics.
        let mut scratch = self.page.clone();
        let _ = redo(R::TAG, &body[..body.len() / 2], &mut scratch);
        self.node().validate().unwrap();
    }

    fn node(&self) -> Node<'_> {
        Node::open(&self.page).unwrap()
    }
}

fn build<'a>(level: u8, lower: &'a [u8], upper: Option<&'a [u8]>, entries: &'a Packed) -> Build<'a> {
    Build { id: ID, tree: TREE, level, lower, upper, count: entries.count, entries: &entries.bytes }
}

fn contents(node: &Node<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    (0..node.count()).map(|slot| (node.key(slot).unwrap(), node.payload(slot).unwrap().to_vec())).collect()
}

fn page_bytes() -> impl Strategy<Value = usize> {
    (12u32..=15).prop_map(|shift| 1 << shift)
}

/// Keys with long common prefixes; some are prefixes of others.
fn key(len_max: usize) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0u8), Just(0xff), Just(b'a'), any::<u8>()];
    prop_oneof![
        3 => proptest::collection::vec(byte.clone(), 0..6),
        3 => proptest::collection::vec(any::<u8>(), 4..12),
        2 => (prop_oneof![Just(0u8), Just(0xff), Just(b'k')], 0usize..=len_max, proptest::collection::vec(byte, 0..4)).prop_map(
            move |(fill, len, tail)| {
                let mut key = vec![fill; len.saturating_sub(tail.len())];
                key.extend(tail);
                key.truncate(len_max);
                key
            }
        ),
        1 => Just(vec![0xff; len_max]),
        1 => Just(vec![0; len_max]),
    ]
}

#[derive(Debug, Clone)]
enum Op {
    Put(Vec<u8>, usize, u8),
    Delete(Vec<u8>),
    Mark(Vec<u8>, u64),
    Elide(u64),
}

fn op() -> impl Strategy<Value = Op> {
    // Lengths are per mille of the largest.
    prop_oneof![
        8 => (key(1000), prop_oneof![4 => 0usize..60, 1 => 0usize..=1000], any::<u8>()).prop_map(|(k, len, b)| Op::Put(k, len, b)),
        3 => key(1000).prop_map(Op::Delete),
        1 => (key(1000), 1u64..50).prop_map(|(k, w)| Op::Mark(k, w)),
        1 => (0u64..50).prop_map(Op::Elide),
    ]
}

/// Rows and keys of about the greatest length.
fn long_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (key(9000), prop_oneof![2 => 0usize..=1000, 3 => 900usize..=1000, 1 => Just(1000)], any::<u8>())
            .prop_map(|(k, len, b)| Op::Put(k, len, b)),
        2 => (key(9000), 0usize..100, any::<u8>()).prop_map(|(k, len, b)| Op::Put(k, len, b)),
        1 => key(9000).prop_map(Op::Delete),
    ]
}

fn payload(value_len: usize, byte: u8) -> Vec<u8> {
    // Two values differ in parts.
    let value: Vec<u8> = (0..value_len).map(|at| if at % 40 == 0 { byte } else { 7 }).collect();
    let mut payload = Vec::new();
    let entry = if byte % 2 == 0 {
        Entry::written(TxnId(u64::from(byte % 50) + 1), UndoPtr(9), &value)
    } else {
        Entry { flags: 0, writer: TxnId::NONE, undo: UndoPtr::NONE, value: &value }
    };
    entry.encode_into(&mut payload);
    payload
}

/// Runs `op` on both; what does not fit is left out of both.
fn step(twin: &mut Twin, model: &mut Model, op: &Op, prefix: &[u8]) {
    let page_bytes = twin.page.len();
    let full = |key: &[u8]| {
        let mut whole = prefix.to_vec();
        whole.extend_from_slice(key);
        whole.truncate(key_bytes_max(page_bytes));
        whole
    };
    match op {
        Op::Put(key, mille, byte) => {
            let key = full(key);
            if !twin.node().covers(&key) {
                return;
            }
            let payload = payload((entry_bytes_max(page_bytes) - key.len() - 13) * mille / 1000, *byte);
            let at = twin.node().search(&key).unwrap();
            assert_eq!(at.found, model.contains_key(&key));
            if !twin.node().fits(at, key.len(), payload.len()).unwrap() {
                return;
            }
            if at.found {
                let (old, new) = (&model[&key], Entry::decode(&payload).unwrap());
                let difference = Difference::find(Entry::decode(old).unwrap().value, new.value);
                if let Some(difference) = difference.filter(|_| new.has_header()) {
                    let (header, mut changes) = (Entry::header_bytes(new.flags, new.writer, new.undo), Vec::new());
                    difference.forward(new.value, &mut changes);
                    twin.run(&Rewrite::new(at.slot, header, &changes));
                } else {
                    twin.run(&Replace::new(at.slot, &payload));
                }
            } else {
                let prefix_len = twin.node().prefix_len();
                twin.run(&Insert::new(at.slot, prefix_len, &key, &payload));
            }
            model.insert(key, payload);
        }
        Op::Delete(key) => {
            let key = full(key);
            // Usually a key that exists.
            let Some(key) = model.range(key..).next().or_else(|| model.iter().next()).map(|(k, _)| k.clone()) else {
                return;
            };
            let at = twin.node().search(&key).unwrap();
            assert!(at.found);
            twin.run(&Remove::new(at.slot));
            model.remove(&key);
        }
        Op::Mark(key, writer) => {
            let key = full(key);
            let Some((key, payload)) = model.range_mut(key..).next() else { return };
            let at = twin.node().search(key).unwrap();
            if twin.node().entry(at.slot).unwrap().has_header() {
                let header = Entry::header_bytes(HEADER | DELETED, TxnId(*writer), UndoPtr(77));
                twin.run(&Patch::new(at.slot, 0, &header));
                payload[..13].copy_from_slice(&header);
            }
        }
        Op::Elide(horizon) => {
            let before = twin.node().free_bytes();
            let gain = elidable_bytes(&twin.node(), TxnId(*horizon)).unwrap();
            twin.run(&Elide { horizon: TxnId(*horizon) });
            assert_eq!(twin.node().free_bytes(), before + gain);
            for payload in model.values_mut() {
                let old = payload.clone();
                let entry = Entry::decode(&old).unwrap();
                if entry.is_elidable(TxnId(*horizon)) {
                    Entry { flags: entry.flags & !HEADER, ..entry }.encode_into(payload);
                }
            }
        }
    }
}

fn matches_model(node: &Node<'_>, model: &Model) {
    let expected: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(contents(node), expected);
    for (slot, key) in model.keys().enumerate() {
        assert_eq!(node.search(key).unwrap(), Position { slot, found: true });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_leaf_is_a_sorted_map(
        page_bytes in page_bytes(),
        prefix in key(300),
        unbounded: bool,
        ops in proptest::collection::vec(op(), 1..120),
        probes in proptest::collection::vec(key(1000), 20),
    ) {
        // The fences share the prefix, or there are no fences.
        let (lower, upper) = (prefix.clone(), [&prefix[..], &[0xff; 9]].concat());
        let empty = Packed::default();
        let mut twin = if unbounded {
            Twin::new(page_bytes, 0, &[], None, &empty)
        } else {
            Twin::new(page_bytes, 0, &lower, Some(&upper), &empty)
        };
        let mut model = Model::new();
        for op in &ops {
            step(&mut twin, &mut model, op, &prefix);
        }
        matches_model(&twin.node(), &model);
        for probe in probes {
            let slot = model.range(..probe.clone()).count();
            prop_assert_eq!(twin.node().search(&probe).unwrap(), Position { slot, found: model.contains_key(&probe) });
        }
    }

    #[test]
    fn a_split_leaf_holds_the_same_and_merges_back(
        page_bytes in page_bytes(),
        prefix in key(300),
        ops in proptest::collection::vec(op(), 1..150),
        fresh in key(1000),
    ) {
        let (lower, upper) = (prefix.clone(), [&prefix[..], &[0xff; 9]].concat());
        let mut left = Twin::new(page_bytes, 0, &lower, Some(&upper), &Packed::default());
        let mut model = Model::new();
        for op in &ops {
            step(&mut left, &mut model, op, &prefix);
        }
        let mut fresh = [&prefix[..], &fresh].concat();
        fresh.truncate(key_bytes_max(page_bytes));
        prop_assume!(!model.is_empty() && left.node().covers(&fresh));
        let Ok(cut) = choose(&left.node(), &fresh) else {
            // This happens only if the leaf has no other key than this one: its entry can always grow.
            prop_assert!(model.len() == 1 && model.contains_key(&fresh));
            return Ok(());
        };
        let node = left.node();
        let packed = Packed::of(&node, cut.at..node.count(), prefix_between(&cut.separator, Some(&upper)), false).unwrap();
        let right = Twin::new(page_bytes, 0, &cut.separator, Some(&upper), &packed);
        left.run(&Truncate { keep: cut.at as u16, upper: &cut.separator });
        prop_assert!(left.node().covers(&fresh) != right.node().covers(&fresh));
        let mut all = contents(&left.node());
        all.extend(contents(&right.node()));
        let expected: Vec<_> = model.into_iter().collect();
        prop_assert_eq!(&all, &expected);

        let node = right.node();
        let packed = Packed::of(&node, 0..node.count(), prefix_between(&lower, Some(&upper)), false).unwrap();
        left.run(&Append { upper: Some(&upper), count: packed.count, entries: &packed.bytes });
        prop_assert_eq!(contents(&left.node()), expected);
    }

    /// Splits like [`crate::btree::Tree::make_room`]: until there is room, each time in the half that the key
    /// belongs to.
    #[test]
    fn splits_end_with_room_for_any_row(
        page_bytes in page_bytes(),
        prefix in key(300),
        ends in 0..3u8,
        ops in proptest::collection::vec(long_op(), 1..40),
        fresh in (key(9000), 900usize..=1000),
    ) {
        let (lower, upper) = ([prefix.clone(), vec![0; 40]].concat(), [&prefix[..], &[0xff; 40]].concat());
        // Between fences, or at either end of the tree.
        let (lower, upper) = match ends {
            0 => (lower, Some(upper)),
            1 => (lower, None),
            _ => (Vec::new(), Some(upper)),
        };
        let mut leaf = Twin::new(page_bytes, 0, &lower, upper.as_deref(), &Packed::default());
        let mut model = Model::new();
        for op in &ops {
            step(&mut leaf, &mut model, op, &prefix);
        }
        let mut key = [&prefix[..], &fresh.0].concat();
        key.truncate(key_bytes_max(page_bytes));
        prop_assume!(leaf.node().covers(&key));
        let payload = payload((entry_bytes_max(page_bytes) - key.len() - 13) * fresh.1 / 1000, 2);
        let mut steps = 0;
        loop {
            let at = leaf.node().search(&key).unwrap();
            if leaf.node().fits(at, key.len(), payload.len()).unwrap() {
                let prefix_len = leaf.node().prefix_len();
                match at.found {
                    true => leaf.run(&Replace::new(at.slot, &payload)),
                    false => leaf.run(&Insert::new(at.slot, prefix_len, &key, &payload)),
                }
                break;
            }
            let (count, had_upper, had_lower) = (leaf.node().count(), leaf.node().has_upper(), !leaf.node().lower().is_empty());
            let cut = choose(&leaf.node(), &key).unwrap();
            let upper = leaf.node().upper().map(<[u8]>::to_vec);
            let node = leaf.node();
            let packed = Packed::of(&node, cut.at..count, prefix_between(&cut.separator, upper.as_deref()), false).unwrap();
            let right = Twin::new(page_bytes, 0, &cut.separator, upper.as_deref(), &packed);
            leaf.run(&Truncate { keep: cut.at as u16, upper: &cut.separator });
            if right.node().covers(&key) {
                leaf = right;
            }
            // The half has fewer entries, or a fence where there was none.
            let node = leaf.node();
            prop_assert!(node.count() < count || node.has_upper() && !had_upper || !node.lower().is_empty() && !had_lower);
            steps += 1;
        }
        prop_assert!(steps <= model.len() + 2, "{} splits for {} entries", steps, model.len());
    }

    #[test]
    fn a_branch_of_long_separators_can_be_split_until_another_fits(
        page_bytes in page_bytes(),
        separators in proptest::collection::btree_set(key(9000).prop_map(|key| [vec![5], key].concat()), 3..12),
        prefix in 0usize..4000,
        probe in key(9000),
    ) {
        let max = key_bytes_max(page_bytes);
        let long = |key: &[u8]| {
            let mut key = [&vec![5; prefix.min(max / 2)], key].concat();
            key.truncate(max);
            key
        };
        let mut first = Packed::default();
        first.push(&[], &1u32.to_le_bytes());
        let mut branch = Twin::new(page_bytes, 2, &[], None, &first);
        let mut separators: Vec<Vec<u8>> = separators.iter().map(|key| long(key)).collect();
        separators.sort();
        separators.dedup();
        for (child, separator) in (2u32..).zip(&separators) {
            let slot = branch.node().child_slot(separator).unwrap() + 1;
            if branch.node().fits_insert(separator.len(), 4).unwrap() {
                let prefix_len = branch.node().prefix_len();
                branch.run(&Insert::new(slot, prefix_len, separator, &child.to_le_bytes()));
            }
        }
        let probe = long(&probe);
        while !branch.node().fits_insert(max, 4).unwrap() {
            let (node, count) = (branch.node(), branch.node().count());
            prop_assert!(count >= 3);
            let cut = choose(&node, &probe).unwrap();
            let upper = node.upper().map(<[u8]>::to_vec);
            let packed = Packed::of(&node, cut.at..count, prefix_between(&cut.separator, upper.as_deref()), true).unwrap();
            let right = Twin::new(page_bytes, 2, &cut.separator, upper.as_deref(), &packed);
            branch.run(&Truncate { keep: cut.at as u16, upper: &cut.separator });
            if right.node().covers(&probe) {
                branch = right;
            }
            prop_assert!(branch.node().count() < count);
        }
    }

    #[test]
    fn a_branch_leads_to_the_child_whose_range_holds_the_key(
        page_bytes in page_bytes(),
        mut separators in proptest::collection::btree_set(key(200), 1..60),
        probes in proptest::collection::vec(key(200), 30),
    ) {
        separators.remove(&Vec::new());
        let mut packed = Packed::default();
        packed.push(&[], &1u32.to_le_bytes());
        let mut twin = Twin::new(page_bytes, 3, &[], None, &packed);
        let mut used = vec![Vec::new()];
        for (i, separator) in separators.iter().enumerate() {
            if twin.node().fits_insert(separator.len(), 4).unwrap() {
                let child = (i as u32 + 2).to_le_bytes();
                let slot = twin.node().child_slot(separator).unwrap() + 1;
                twin.run(&Insert::new(slot, 0, separator, &child));
                used.push(separator.clone());
            }
        }
        for probe in &probes {
            let slot = used.iter().rposition(|s| s <= probe).unwrap();
            prop_assert_eq!(twin.node().child_slot(probe).unwrap(), slot);
            let below = used.iter().rposition(|s| s < probe).unwrap_or(0);
            prop_assert_eq!(twin.node().child_slot_below(probe).unwrap(), below);
        }
        // After a split and a merge it leads to the same children.
        if used.len() >= 2 {
            let before = contents(&twin.node());
            let cut = choose(&twin.node(), &probes[0]).unwrap();
            let node = twin.node();
            let packed = Packed::of(&node, cut.at..node.count(), prefix_between(&cut.separator, None), true).unwrap();
            let right = Twin::new(page_bytes, 3, &cut.separator, None, &packed);
            twin.run(&Truncate { keep: cut.at as u16, upper: &cut.separator });
            let packed = Packed::of(&right.node(), 0..right.node().count(), 0, false).unwrap();
            twin.run(&Append { upper: None, count: packed.count, entries: &packed.bytes });
            prop_assert_eq!(contents(&twin.node()), before);
        }
    }

    #[test]
    fn a_separator_parts_two_keys(a in key(50), b in key(50)) {
        prop_assume!(a != b);
        let (left, right) = if a < b { (a, b) } else { (b, a) };
        let parted = separator(&left, &right);
        prop_assert!(&left[..] < parted && parted <= &right[..]);
        prop_assert!(parted.len() == 1 || parted[..parted.len() - 1] <= left[..]);
    }

    #[test]
    fn a_lying_page_never_panics(
        ops in proptest::collection::vec(op(), 1..60),
        lies in proptest::collection::vec((0usize..4096, any::<u8>()), 1..12),
        header_lies: bool,
        tag in prop_oneof![0x20u8..0x40, 0xa0u8..0xc0],
        body in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..60),
    ) {
        let mut twin = Twin::new(4096, 0, &[], None, &Packed::default());
        let mut model = Model::new();
        for op in &ops {
            step(&mut twin, &mut model, op, &[]);
        }
        let mut page = twin.page.clone();
        // An arbitrary body on a valid page.
        let _ = redo(tag, &body, &mut page.clone());
        for (at, byte) in lies {
            let at = if header_lies { 20 + at % 200 } else { at };
            page[at] = byte;
        }
        let _ = redo(tag, &body, &mut page.clone());
        if let Ok(node) = Node::open(&page) {
            let _ = node.validate();
            for key in model.keys().take(20) {
                let _ = node.search(key);
                let _ = node.child_slot(key);
                let _ = node.fits_insert(key.len(), 20);
                let _ = choose(&node, key);
            }
            for slot in 0..node.count().min(50) {
                let _ = (node.key(slot), node.payload(slot), node.entry(slot), node.child(slot), node.fits_replace(slot, 99));
                for bytes in [0, 1, 300] {
                    let _ = edit::replace(&mut page.clone(), slot, &vec![1; bytes]);
                    let _ = edit::insert(&mut page.clone(), slot, &vec![1; bytes], &[]);
                }
                let _ = edit::remove(&mut page.clone(), slot);
            }
            let _ = edit::elide(&mut page.clone(), TxnId(40));
            let _ = edit::truncate(&mut page.clone(), node.count(), b"m");
            let _ = edit::append(&mut page.clone(), Some(b"zzz"), 0, &[]);
        }
    }
}

#[test]
fn hints_lead_to_every_key_of_a_full_page() {
    for page_bytes in [4 << 10, 8 << 10, 16 << 10, 32 << 10] {
        for spread in [1u32, 77, 40_009] {
            let mut twin = Twin::new(page_bytes, 0, &[], None, &Packed::default());
            let mut model = Model::new();
            for i in 0u32.. {
                let key = (i.wrapping_mul(2_654_435_761) % 65_536 * spread).to_be_bytes().to_vec();
                let at = twin.node().search(&key).unwrap();
                if !twin.node().fits(at, 4, 1).unwrap() {
                    break;
                }
                if !at.found {
                    twin.run(&Insert::new(at.slot, 0, &key, &[0]));
                    model.insert(key, vec![0]);
                }
                if i == 300 {
                    break;
                }
            }
            matches_model(&twin.node(), &model);
        }
    }
}

#[test]
fn limits_are_what_the_manual_says() {
    for (page_bytes, key, entry, one_page) in [
        (4 << 10, 928, 2048, 4056),
        (8 << 10, 1952, 4096, 8152),
        (16 << 10, 4000, 8192, 16_344),
        (32 << 10, 7500, 16_384, 32_728),
    ] {
        assert_eq!((key_bytes_max(page_bytes), entry_bytes_max(page_bytes)), (key, entry));
        assert_eq!(crate::btree::one_page_value_max(page_bytes), one_page);
        // Everything that files of format 3 may hold is allowed.
        assert!(key >= (page_bytes / 5).min(3072) && entry >= page_bytes / 4);
    }
}

/// The two conditions of the proof in `split.rs`.
#[test]
fn the_longest_entry_fits_beside_the_longest_fences_and_so_do_three_children() {
    for page_bytes in [4 << 10, 8 << 10, 16 << 10, 32 << 10] {
        let max = key_bytes_max(page_bytes);
        let (lower, upper) = (vec![1; max], vec![9; max]);
        let mut leaf = Twin::new(page_bytes, 0, &lower, Some(&upper), &Packed::default());
        let key = vec![2; max];
        let longest = payload(entry_bytes_max(page_bytes) - max - 13, 2);
        assert!(leaf.node().fits_insert(key.len(), longest.len()).unwrap());
        leaf.run(&Insert::new(0, 0, &key, &longest));
        // The entry shrinks and grows again.
        leaf.run(&Replace::new(0, &payload(0, 1)));
        assert!(leaf.node().fits_replace(0, longest.len()).unwrap());
        leaf.run(&Replace::new(0, &longest));

        let mut first = Packed::default();
        first.push(&[], &1u32.to_le_bytes());
        let mut branch = Twin::new(page_bytes, 1, &lower, Some(&upper), &first);
        for child in 1..3u32 {
            assert!(branch.node().fits_insert(max, 4).unwrap());
            branch.run(&Insert::new(child as usize, 0, &vec![1 + child as u8; max], &(child + 1).to_le_bytes()));
        }
    }
}

#[test]
fn checksum_and_lsn_survive_every_record() {
    let mut page = vec![0; 4096];
    page[..4].copy_from_slice(&[1, 2, 3, 4]);
    page[8..16].copy_from_slice(&[5; 8]);
    build(0, &[], None, &Packed::default()).apply(&mut page);
    Retire.apply(&mut page);
    assert_eq!((&page[..4], &page[8..16]), (&[1, 2, 3, 4][..], &[5; 8][..]));
}
