//! Tests of space on plain bytes, and on a pool over a simulated disk.

use super::*;
use crate::format::page;
use proptest::prelude::*;

fn replayed<R: Redo>(change: &R, before: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    change.encode(&mut body);
    let mut page = before.to_vec();
    redo(R::TAG, &body, &mut page).expect("what was logged can be replayed");
    page
}

fn applied<R: Redo>(change: &R, before: &[u8]) -> Vec<u8> {
    let mut page = before.to_vec();
    change.apply(&mut page);
    page
}

#[test]
fn replaying_does_what_was_done() {
    let zeroes = vec![0; page::PAGE_BYTES_MIN];
    let header = applied(&InitHeader { pages: 512 }, &zeroes);
    assert_eq!(header::verify(&header), Ok(()));
    assert_eq!(replayed(&InitHeader { pages: 512 }, &zeroes), header);
    for field in [Field::Pages, Field::NextTree, Field::CatalogRoot, Field::UndoDirectory, Field::PageBytes] {
        let change = SetHeaderField { field, value: 0xfeed_beef };
        assert_eq!(field.get(&applied(&change, &header)), 0xfeed_beef);
        assert_eq!(replayed(&change, &header), applied(&change, &header));
    }
    let map = applied(&InitMap { number: PageId(1) }, &zeroes);
    assert_eq!(replayed(&InitMap { number: PageId(1) }, &zeroes), map);
    let change = SetOwner { index: 700, count: 68, owner: TreeId(19) };
    assert_eq!(replayed(&change, &map), applied(&change, &map));
    assert_eq!(
        replayed(&MarkFreed { number: PageId(9) }, &map),
        applied(&MarkFreed { number: PageId(9) }, &zeroes),
        "it makes the page from nothing"
    );
}

proptest! {
    #[test]
    fn bad_records_are_refused(
        tag in prop_oneof![0x10u8..0x20, 0x90u8..0xa0, any::<u8>()],
        body in proptest::collection::vec(any::<u8>(), 0..24),
        kind in 0u8..9,
    ) {
        let mut page = vec![0; page::PAGE_BYTES_MIN];
        page[page::KIND] = kind;
        let before = page.clone();
        if redo(tag, &body, &mut page).is_err() {
            prop_assert_eq!(page, before);
        }
    }
}

// --- on a pool ---------------------------------------------------------------------------------------------

use super::testing::{Machine, Running, assert_sound};
use crate::buffer::MtrSize;
use rand::seq::IndexedRandom as _;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg as Dice;
use seawall_io::Op;
use seawall_sim::{Fault, SimDisk};
use std::collections::{BTreeMap, BTreeSet};

/// What an owner first writes into its page.
struct Stamp(PageId, TreeId);

impl Redo for Stamp {
    const TAG: u8 = 0x9f;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.0.to_le_bytes());
        out.extend_from_slice(&self.1.0.to_le_bytes());
    }

    fn apply(&self, page: &mut [u8]) {
        page::init(page, self.0, self.1, page::PageKind::Leaf, 0);
    }
}

fn redo_stamped(tag: u8, body: &[u8], page: &mut [u8]) -> Result<(), Malformed> {
    if tag != Stamp::TAG {
        return super::redo(tag, body, page);
    }
    let mut body = crate::format::Reader::new(body);
    let (number, tree) = (PageId(body.u32().expect("four bytes")), TreeId(body.u32().expect("four bytes")));
    Stamp(number, tree).apply(page);
    Ok(())
}

/// A space in which the ids of the trees used here are allocated.
fn create(running: &Running, pages: u32) -> Space {
    let space = Space::create(running.pool.clone(), pages).expect("room");
    for _ in 16..24 {
        let given = space.pool().retry(|| {
            let mut mtr = Mtr::begin(space.pool(), MtrSize::Small)?;
            space.new_tree_id(&mut mtr)?;
            mtr.commit();
            Ok(())
        });
        given.expect("the disk is well");
    }
    space
}

/// Pages of one batch: few enough for the frames of a small pool.
const BATCH: usize = 8;

/// Takes pages: a few one by one in one mini-transaction, many in batches.
fn take(space: &Space, tree: TreeId, near: PageId, count: usize, purpose: Purpose) -> Result<Vec<PageId>> {
    let mut reserved = space.reserve(tree, near, count, purpose)?;
    let mut taken = Vec::new();
    while !reserved.is_empty() {
        taken.extend(space.pool().retry(|| {
            let mut mtr = Mtr::begin(space.pool(), MtrSize::Small)?;
            let batch = if count <= BATCH {
                (0..count).map(|_| reserved.take(&mut mtr)).collect::<Result<Vec<_>, _>>()?
            } else {
                let batch = reserved.len().min(BATCH);
                reserved.take_many(&mut mtr, batch)?
            };
            for &(number, held) in &batch {
                mtr.run(held, &Stamp(number, tree));
            }
            mtr.commit();
            Ok(batch.into_iter().map(|(number, _)| number).collect::<Vec<_>>())
        })?);
    }
    assert_eq!(taken.len(), count);
    Ok(taken)
}

/// Takes all pages of a run.
fn take_all(space: &Space, mut run: Reserved<'_>, tree: TreeId) -> Vec<PageId> {
    let mut taken = Vec::new();
    while !run.is_empty() {
        let batch = space.pool().retry(|| {
            let mut mtr = Mtr::begin(space.pool(), MtrSize::Small)?;
            let batch = run.take_many(&mut mtr, run.len().min(BATCH))?;
            batch.iter().for_each(|&(number, held)| mtr.run(held, &Stamp(number, tree)));
            mtr.commit();
            Ok(batch)
        });
        taken.extend(batch.expect("the disk is well").into_iter().map(|(number, _)| number));
    }
    taken
}

fn in_a_row(pages: &[PageId]) -> bool {
    pages.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0)
}

#[test]
fn runs_are_pages_in_a_row_and_single_free_pages_are_none() {
    let machine = Machine::new(12, 64, redo_stamped);
    let running = machine.create();
    let space = create(&running, 2048);
    let (large, small) = (TreeId(16), TreeId(17));
    let first = take_all(&space, space.reserve_run(large, PageId::NONE, usize::MAX).expect("room"), large);
    assert!(in_a_row(&first) && first.len() == 254, "all that lies behind the map");
    let next = take_all(&space, space.reserve_run(large, first[253], 100).expect("room"), large);
    assert!(in_a_row(&next) && next.len() == 100 && next[0] > first[253]);
    // The run continues where the other ended, as long as pages are free.
    let behind = take_all(&space, space.reserve_run(large, next[99], 500).expect("room"), large);
    assert_eq!((behind[0].0, behind.len()), (next[99].0 + 1, 156));
    assert!(in_a_row(&behind));
    let whole = take_all(&space, space.reserve_run(large, behind[155], usize::MAX).expect("room"), large);
    assert!(in_a_row(&whole) && whole.len() == 256, "a whole extent of 1 MiB");
    // A small tree takes pages of a shared extent, not a wholly free extent.
    let one = take(&space, small, PageId::NONE, 1, Purpose::Grow).expect("room");
    let free_before = space.free_pages();
    let few = space.reserve_run(small, PageId::NONE, 5).expect("room");
    assert_eq!((few.len(), space.free_pages()), (5, free_before - 5));
    drop(few);
    assert_eq!(space.free_pages(), free_before, "what is not taken goes back");
    let few = take_all(&space, space.reserve_run(small, PageId::NONE, 5).expect("room"), small);
    assert!(in_a_row(&few) && few[0].0 / 256 == one[0].0 / 256, "{one:?} {few:?}");
    assert_sound(&space);
    // Every second page is free, and the disk is full: no extent has a run, although there are free pages.
    while let Ok(run) = {
        machine.fill_disk();
        space.reserve_run(large, PageId::NONE, usize::MAX)
    } {
        take_all(&space, run, large);
    }
    for &page in first.iter().step_by(2) {
        free(&space, page).expect("the disk is well");
    }
    let free_pages = space.free_pages();
    let error = space.reserve_run(large, PageId::NONE, 100).expect_err("no run");
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert_eq!(space.free_pages(), free_pages);
    take(&space, large, PageId::NONE, 20, Purpose::Grow).expect("single pages are there");
    assert_sound(&space);
}

fn free(space: &Space, page: PageId) -> Result<()> {
    space.pool().retry(|| {
        let mut mtr = Mtr::begin(space.pool(), MtrSize::Small)?;
        let held = mtr.latch(page)?;
        space.free(&mut mtr, held)?;
        mtr.commit();
        Ok(())
    })
}

fn free_many(space: &Space, tree: TreeId, pages: &[PageId]) -> Result<()> {
    space.pool().retry(|| {
        let mut mtr = Mtr::begin(space.pool(), MtrSize::Small)?;
        space.free_many(&mut mtr, tree, pages)?;
        mtr.commit();
        Ok(())
    })
}

/// Pages and their owners, except the pages that the file itself needs.
type Model = BTreeMap<PageId, TreeId>;

fn owned(space: &Space) -> Model {
    let all = (16..24).map(TreeId);
    let mut found = Model::new();
    for tree in all {
        space
            .for_each_owned(tree, |page| {
                assert_eq!(found.insert(page, tree), None);
                assert_eq!(space.owner(page).expect("it is there"), tree);
                Ok(())
            })
            .expect("the maps are read");
    }
    found
}

/// One random change, made in the model too.
fn change(space: &Space, model: &mut Model, dice: &mut Dice) {
    let tree = TreeId(dice.random_range(16..20));
    let near = PageId(dice.random_range(0..600));
    let pages: Vec<_> = model.iter().filter(|(_, t)| **t == tree).map(|(p, _)| *p).collect();
    match dice.random_range(0..10) {
        0..=4 => {
            let count = dice.random_range(1..=BATCH);
            for page in take(space, tree, near, count, Purpose::Grow).expect("the disk is large") {
                assert_eq!(model.insert(page, tree), None, "page {page} was given twice");
            }
        }
        5 => {
            // Set aside and not taken.
            drop(space.reserve(tree, near, 20, Purpose::Grow).expect("the disk is large"));
        }
        6..=7 => {
            if let Some(&page) = pages.choose(dice) {
                free(space, page).expect("it is the tree's");
                model.remove(&page);
            }
        }
        8 => {
            let some: Vec<_> = pages.choose_multiple(dice, 9).copied().collect();
            if !some.is_empty() {
                free_many(space, tree, &some).expect("they are the tree's");
                model.retain(|page, _| !some.contains(page));
            }
        }
        _ => {
            let upto = 10;
            let done = space.free_tree_step(tree, PageId::NONE, upto).expect("the maps are read");
            assert_eq!(done, pages.is_empty());
            // In page order, from where the last sweep of the tree stopped.
            let left = owned(space);
            let gone: Vec<_> = pages.into_iter().filter(|page| !left.contains_key(page)).collect();
            assert!(gone.len() <= upto && gone.is_empty() == done);
            model.retain(|page, _| !gone.contains(page));
        }
    }
}

#[test]
fn after_a_crash_the_owners_are_those_of_a_moment_not_before_the_last_flush() {
    for seed in 0..6 {
        let machine = Machine::new(seed, 48, redo_stamped);
        let running = machine.create();
        let space = create(&running, 1);
        space.set_grow_step(1 << 20);
        running.flush_log();
        let mut dice = Dice::seed_from_u64(seed);
        let (mut model, mut states, mut flushed) = (Model::new(), vec![Model::new()], 0);
        for step in 0..60 {
            change(&space, &mut model, &mut dice);
            states.push(model.clone());
            match dice.random_range(0..12) {
                0 => assert!(space.grow_step().is_ok()),
                1..=2 => {
                    running.flush_log();
                    flushed = states.len() - 1;
                }
                3 => {
                    running.pool.flush_all().expect("the disk is well");
                    flushed = states.len() - 1;
                }
                4 => {
                    let crashed = machine.fork(seed << 32 | step);
                    crashed.disk.power_cut();
                    let again = crashed.recover().expect("it is recovered");
                    let reopened = Space::open(again.pool.clone()).expect("it opens");
                    assert_sound(&reopened);
                    let found = owned(&reopened);
                    assert!(states[flushed..].contains(&found), "seed {seed}, step {step}");
                    // The reopened file can be used.
                    take(&reopened, TreeId(23), PageId(0), 30, Purpose::Grow).expect("room");
                    assert_sound(&reopened);
                }
                _ => {}
            }
        }
        assert_sound(&space);
        assert_eq!(owned(&space), model, "seed {seed}");
        running.pool.flush_all().expect("the disk is well");
        running.process.crash_by(SimDisk::power_cut);
        let again = machine.recover().expect("it is recovered");
        let space = Space::open(again.pool.clone()).expect("it opens");
        assert_sound(&space);
        assert_eq!(owned(&space), model, "seed {seed}");
    }
}

/// A file of many groups, of which the opening reads two maps. Tests changes before the other maps are read, and
/// allocation from those maps afterwards.
#[test]
fn maps_that_are_read_later_say_what_those_read_early_would() {
    for seed in 0..4 {
        let machine = Machine::new(seed, 96, redo_stamped);
        let running = machine.create();
        let pages = 20_000;
        let space = create(&running, pages);
        let mut dice = Dice::seed_from_u64(seed);
        let mut model = Model::new();
        for tree in (16..20).map(TreeId) {
            for _ in 0..12 {
                let near = PageId(dice.random_range(0..pages));
                for page in take(&space, tree, near, 200, Purpose::Grow).expect("there is room") {
                    assert_eq!(model.insert(page, tree), None);
                }
            }
        }
        running.pool.flush_all().expect("the disk is well");
        drop(space);
        let space = Space::open_reading(running.pool.clone(), 1).expect("it opens");
        let unread = space.unread_pages();
        assert!(unread > u64::from(pages) / 2, "{unread}");
        for _ in 0..40 {
            change(&space, &mut model, &mut dice);
        }
        assert_eq!(owned(&space), model, "seed {seed}");
        if seed % 2 == 0 {
            // Takes more pages than the maps read so far have: the other maps are read before the file grows.
            let free = pages - model.len() as u32 - 200;
            let before = space.pages();
            for _ in 0..free / 2 / 200 {
                for page in take(&space, TreeId(22), PageId(0), 200, Purpose::Grow).expect("there is room") {
                    assert_eq!(model.insert(page, TreeId(22)), None);
                }
            }
            assert_eq!(space.pages(), before, "there was room");
            assert!(space.unread_pages() < unread);
        }
        while space.unread_pages() > 0 {
            assert!(space.grow_step().expect("the maps are read"));
            change(&space, &mut model, &mut dice);
        }
        assert_eq!(owned(&space), model, "seed {seed}");
        // The check compares what is in memory with the maps.
        assert_sound(&space);
        assert_eq!(space.free_pages(), Space::open(running.pool.clone()).expect("it opens").free_pages());
    }
}

/// A map that cannot be read is a finding, and its pages have none, even if the check is the first to read the map.
#[test]
fn a_check_that_cannot_read_maps_says_so_and_nothing_else() {
    let machine = Machine::new(1, 96, redo_stamped);
    let running = machine.create();
    let space = create(&running, 20_000);
    for near in (0..20_000).step_by(1000).map(PageId) {
        take(&space, TreeId(16), near, 8, Purpose::Grow).expect("there is room");
    }
    running.pool.flush_all().expect("the disk is well");
    running.process.crash_by(SimDisk::power_cut);
    let again = machine.recover().expect("it is recovered");
    let space = Space::open_reading(again.pool.clone(), 1).expect("it opens");
    machine.disk.inject(Fault::eio().on(Op::Read));
    let mut check = space.check().expect("the header can be read");
    check.reach(PageId(19_000), TreeId(17));
    let found = check.finish(&[TreeId(16)]);
    assert!(found.len() > 10, "{found:?}");
    for finding in found {
        assert!(finding.page == space.map_of(finding.page).unwrap() && finding.what.contains("os error"), "{finding}");
    }
}

/// Background work can make the file longer at any time.
#[test]
fn the_file_may_grow_while_a_check_looks_at_it() {
    let running = Machine::new(1, 64, redo_stamped).create();
    let space = create(&running, 256);
    let mut check = space.check().expect("the header can be read");
    let taken = take(&space, TreeId(16), PageId(0), 3000, Purpose::Grow).expect("it grows");
    assert!(check.reach(taken[2999], TreeId(16)));
    assert!(!check.reach(taken[2999], TreeId(16)), "again");
    assert!(check.finish(&[]).iter().all(|finding| finding.page.0 < 256 || finding.page == taken[2999]));
}

#[test]
fn a_dropped_tree_is_freed_in_pieces_whatever_comes_between() {
    let machine = Machine::new(1, 64, redo_stamped);
    let running = machine.create();
    let space = create(&running, 2000);
    let (mut mine, mut other) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..40 {
        mine.extend(take(&space, TreeId(16), PageId(0), 30, Purpose::Grow).expect("room"));
        other.extend(take(&space, TreeId(17), PageId(0), 3, Purpose::Grow).expect("room"));
    }
    let free_before = space.free_pages();
    for _ in 0..5 {
        assert!(!space.free_tree_step(TreeId(16), PageId::NONE, 50).expect("the maps are read"));
    }
    assert_eq!(space.free_pages(), free_before + 250);
    running.flush_log();
    running.process.crash_by(SimDisk::power_cut);
    let again = machine.recover().expect("it is recovered");
    let space = Space::open(again.pool.clone()).expect("it opens");
    let mut steps = 0;
    while !space.free_tree_step(TreeId(16), PageId::NONE, 100).expect("the maps are read") {
        steps += 1;
    }
    assert_eq!(steps, (1200 - 250usize).div_ceil(100) + usize::from(space.shape.groups(space.pages()) > 2));
    assert!(space.free_tree_step(TreeId(16), PageId::NONE, 100).expect("the maps are read"), "again does no harm");
    assert_eq!(owned(&space).keys().copied().collect::<BTreeSet<_>>(), other);
    assert_eq!(space.free_pages(), free_before + 1200);
    assert_sound(&space);
    assert!(space.free_tree_step(TreeId::UNDO, PageId::NONE, 1).is_err());
}

#[test]
fn a_full_disk_leaves_a_reserve_for_rollback_and_everything_as_it_was() {
    let machine = Machine::new(3, 48, redo_stamped);
    let running = machine.create();
    let space = create(&running, 700);
    machine.fill_disk();
    let mut taken = BTreeSet::new();
    let error = loop {
        match take(&space, TreeId(16), PageId(0), 5, Purpose::Grow) {
            Ok(pages) => taken.extend(pages),
            Err(error) => break error,
        }
        assert!(taken.len() < 4000, "the disk is full some time");
    };
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    let (pages, left) = (space.pages(), space.free_pages());
    assert!(left >= space.kept_for_rollback() && left < space.kept_for_rollback() + 5, "{left} pages are left");
    assert!(take(&space, TreeId(16), PageId(0), 5, Purpose::Grow).is_err());
    assert!(matches!(space.grow_step(), Err(Error::NoSpace { .. })));
    assert_eq!((space.pages(), space.free_pages()), (pages, left));
    assert_sound(&space);
    // Rollback can take every free page, and no more.
    let rest = take(&space, TreeId(16), PageId(0), left as usize, Purpose::Undo).expect("the reserve is for this");
    assert!(take(&space, TreeId(16), PageId(0), 1, Purpose::Undo).is_err());
    assert_sound(&space);
    free_many(&space, TreeId(16), &rest).expect("they are its own");
    assert_eq!(space.free_pages(), left);
    assert_sound(&space);
}

#[test]
fn threads_never_get_the_same_page() {
    let machine = Machine::new(5, 128, redo_stamped);
    let running = machine.create();
    let space = create(&running, 1);
    space.set_grow_step(1 << 20);
    let taken: Vec<Vec<PageId>> = std::thread::scope(|scope| {
        let space = &space;
        let workers: Vec<_> = (16..20)
            .map(|tree| {
                scope.spawn(move || {
                    let (tree, mut dice) = (TreeId(tree), Dice::seed_from_u64(u64::from(tree)));
                    let mut mine = Vec::new();
                    for _ in 0..60 {
                        let near = mine.last().copied().unwrap_or_default();
                        mine.extend(take(space, tree, near, dice.random_range(1..9), Purpose::Grow).expect("room"));
                        if dice.random_bool(0.4) {
                            free(space, mine.swap_remove(dice.random_range(0..mine.len()))).expect("its own");
                        }
                        if dice.random_bool(0.2) && mine.len() > 4 {
                            free_many(space, tree, &mine.split_off(mine.len() - 4)).expect("its own");
                        }
                        if dice.random_bool(0.1) {
                            assert!(space.grow_step().is_ok());
                        }
                    }
                    mine
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    });
    let mut model = Model::new();
    for (tree, pages) in (16..).zip(taken) {
        for page in pages {
            assert_eq!(model.insert(page, TreeId(tree)), None);
        }
    }
    assert_eq!(owned(&space), model);
    assert_sound(&space);
}

#[test]
fn tree_ids_are_given_once_and_fields_are_kept() {
    let machine = Machine::new(6, 32, redo_stamped);
    let running = machine.create();
    let space = Space::create(running.pool.clone(), 1).expect("room");
    assert_eq!(
        (space.catalog_root().expect("read"), space.undo_directory().expect("read")),
        (PageId::NONE, PageId::NONE)
    );
    let new = |space: &Space, commit: bool| {
        space.pool().retry(|| {
            let mut mtr = Mtr::begin(space.pool(), MtrSize::Small)?;
            let tree = space.new_tree_id(&mut mtr)?;
            space.set_catalog_root(&mut mtr, PageId(tree.0 * 10))?;
            space.set_undo_directory(&mut mtr, PageId(tree.0 * 100))?;
            assert!(commit);
            mtr.commit();
            Ok(tree)
        })
    };
    assert_eq!(new(&space, true).expect("an id"), TreeId::FIRST_USER);
    assert_eq!(new(&space, true).expect("an id"), TreeId(17));
    running.flush_log();
    running.process.crash_by(SimDisk::power_cut);
    let again = machine.recover().expect("it is recovered");
    let space = Space::open(again.pool.clone()).expect("it opens");
    assert_eq!(new(&space, true).expect("an id"), TreeId(18));
    assert_eq!(
        (space.catalog_root().expect("read"), space.undo_directory().expect("read")),
        (PageId(180), PageId(1800))
    );
}

#[test]
fn misuse_and_damage_are_errors_that_change_nothing() {
    let machine = Machine::new(7, 32, redo_stamped);
    let space = create(&machine.create(), 1);
    let mine = take(&space, TreeId(16), PageId(0), 3, Purpose::Grow).expect("room");
    let before = owned(&space);
    assert!(free_many(&space, TreeId(17), &mine).is_err(), "another's");
    assert!(free_many(&space, TreeId(16), &[mine[0], mine[0]]).is_err(), "twice");
    assert!(free_many(&space, TreeId(16), &[mine[0], PageId(1)]).is_err(), "a map");
    assert!(free_many(&space, TreeId(16), &[PageId(1 << 30)]).is_err(), "no such page");
    assert!(free(&space, PageId(0)).is_err(), "the header");
    assert!(space.owner(PageId(1 << 30)).is_err());
    let mut reserved = space.reserve(TreeId(16), PageId(0), 1, Purpose::Grow).expect("room");
    let more = space.pool().retry(|| {
        let mut mtr = Mtr::begin(space.pool(), MtrSize::Small)?;
        reserved.take_many(&mut mtr, 2)
    });
    assert!(more.is_err());
    drop(reserved);
    assert_eq!(owned(&space), before);
    assert!(space.pool().health().check().is_ok());
    assert_sound(&space);
    let mut check = space.check().expect("the header can be read");
    assert!(check.reach(mine[0], TreeId(16)));
    assert!(
        !check.reach(mine[0], TreeId(16)) && !check.reach(mine[1], TreeId(17)) && !check.reach(PageId(99), TreeId(16))
    );
    assert_eq!(check.finish(&[]).len(), 4, "three wrong references and a page that nothing refers to");
}

#[test]
fn an_owner_beyond_the_end_of_the_file_is_damage() {
    let machine = Machine::new(8, 32, redo_stamped);
    let space = create(&machine.create(), 1);
    assert!(space.pages() < space.shape.group_pages, "the group goes on behind the file");
    assert!(Space::open(space.pool().clone()).is_ok());
    let change = super::map::SetOwner { index: space.pages() as u16 + 56, count: 1, owner: TreeId(17) };
    let damaged = space.pool().retry(|| {
        let mut mtr = Mtr::begin(space.pool(), MtrSize::Small)?;
        let map = mtr.latch(PageId(1))?;
        mtr.run(map, &change);
        mtr.commit();
        Ok(())
    });
    damaged.expect("the map is there");
    assert!(matches!(Space::open(space.pool().clone()), Err(Error::Corrupt(_))));
}

#[test]
fn a_crash_between_growing_and_saying_so_loses_nothing() {
    let machine = Machine::new(11, 48, redo_stamped);
    let running = machine.create();
    let space = create(&running, 1);
    let pages = space.pages();
    running.flush_log();
    running.pool.grow_file(pages + 3 * space.shape.extent_pages).expect("room");
    running.process.crash_by(SimDisk::power_cut);
    let again = machine.recover().expect("it is recovered");
    let space = Space::open(again.pool.clone()).expect("it opens");
    assert_eq!(space.pages(), pages);
    assert!(again.pool.file_pages() > pages);
    // Another group begins in pages that the file already has: its map is created as in any other.
    let taken = take(&space, TreeId(16), PageId(0), 600, Purpose::Grow).expect("room");
    assert!(space.shape.groups(space.pages()) > 1);
    assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), 600);
    assert_sound(&space);
    again.flush_log();
    again.process.crash_by(SimDisk::power_cut);
    let last = machine.recover().expect("it is recovered");
    let space = Space::open(last.pool.clone()).expect("it opens");
    assert_eq!(owned(&space).len(), 600);
    assert_sound(&space);
}

#[test]
fn growth_keeps_ahead_of_what_is_used_up() {
    let machine = Machine::new(12, 48, redo_stamped);
    let running = machine.create();
    let space = create(&running, 1);
    space.set_grow_step(4 << 20);
    while space.grow_step().expect("room") {}
    let quiet = space.pages();
    assert!(!space.grow_step().expect("room"), "nothing was used up");
    take(&space, TreeId(16), PageId(0), 300, Purpose::Grow).expect("room");
    assert!(space.grow_step().expect("room"));
    assert!(space.free_pages() >= 1024, "four steps like the last, as far as one step of growth goes");
    assert!(space.pages() > quiet);
    let pages = space.pages();
    take(&space, TreeId(16), PageId(0), 300, Purpose::Grow).expect("room");
    assert_eq!(space.pages(), pages, "it was there already");
}

/// After growth and another cut, the header may have the same value again, while log written in between names pages of
/// the tail.
#[test]
fn the_file_is_shortened_only_behind_its_last_cut() {
    let machine = Machine::new(77, 96, redo_stamped);
    let running = machine.create();
    let (space, pool) = (create(&running, 2048), &running.pool);
    assert!(space.cut_tail().unwrap(), "the tail is free");
    pool.flush_all().unwrap();
    let pages = space.pages();
    space.grow_for(1, pages).unwrap();
    assert!(space.pages() > pages);
    assert!(space.cut_tail().unwrap(), "nothing was claimed");
    assert_eq!(space.pages(), pages);
    assert!(!space.shorten().unwrap(), "recovery may still need the pages");
    // What grows before the checkpoint stays, and does not keep the rest.
    space.grow_for(1, pages).unwrap();
    let grown = space.pages();
    assert!(grown > pages && grown < pool.file_pages());
    pool.flush_all().unwrap();
    assert!(space.shorten().unwrap());
    assert_eq!(pool.file_pages(), grown);
    assert!(space.cut_tail().unwrap());
    pool.flush_all().unwrap();
    assert!(space.shorten().unwrap());
    assert_eq!(pool.file_pages(), pages);
    // Pages that were cut off have no owners, and are not damage.
    space.with_owners(space.shape.groups(pages), |_| panic!("there is no such group")).unwrap();
    assert!(space.is_free(PageId(pages + 1)).unwrap() && !space.is_owner(TreeId(7), PageId(pages + 1)).unwrap());
}

/// A fence that an allocation has lifted is not taken for another shrink's, nor does it lift that one.
#[test]
fn a_fence_that_was_lifted_leaves_the_next_one() {
    let machine = Machine::new(79, 96, redo_stamped);
    let running = machine.create();
    let space = create(&running, 2048);
    let first = space.fence().expect("most of the file is free");
    while first.stands() {
        take(&space, TreeId(16), PageId(0), 8, Purpose::Grow).expect("room");
    }
    let second = space.fence().expect("more than is needed is free");
    assert!(!first.stands());
    drop(first);
    assert!(second.stands());
}

/// What others claim below the fence counts against all free pages, also those above the fence, which a cut takes.
#[test]
fn a_cut_leaves_the_reserve_for_rollback() {
    let machine = Machine::new(78, 96, redo_stamped);
    let running = machine.create();
    let space = create(&running, 2048);
    let fence = space.fence().expect("most of the file is free");
    while fence.stands() {
        take(&space, TreeId(16), PageId(0), 8, Purpose::Grow).expect("room");
    }
    drop(fence);
    space.cut_tail().unwrap();
    let left = space.free_pages();
    assert!(left >= space.kept_for_rollback(), "{left} pages are left");
}
