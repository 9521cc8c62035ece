//! Dirty pages that are evicted while their redo records stay in memory, and that are brought back.

use super::*;
use crate::buffer::frame::Where;
use crate::error::{Corruption, Error};
use seawall_io::{Op, OpenHow, WriteHow};
use seawall_sim::Fault;
use std::io::IoSlice;
use std::path::PathBuf;

const PAGES: u32 = 40;

fn data() -> PathBuf {
    Path::new(DIR).join(DATA_FILE)
}

/// A database of clean pages, none in memory, whose pool has already had to evict.
fn away_db(machine: &Machine) -> Db {
    let db = machine.create();
    db.grow_file(PAGES).unwrap();
    for number in 0..PAGES {
        db.make(number, 1);
    }
    db.drop_all();
    db.clean_step().unwrap();
    assert_eq!(db.stats().frames, 64 * 4 / 5, "a fifth is kept for deferred changes");
    db
}

/// Changes a cell of some pages, each to its own value, and evicts them.
fn send_away(db: &Db, pages: std::ops::Range<u32>) {
    for number in pages.clone() {
        db.set(number, 3, 1000 + u64::from(number));
    }
    let before = db.stats();
    db.pool.evict(usize::MAX, true);
    let stats = db.stats();
    assert_eq!(stats.deferred_pages - before.deferred_pages, pages.len() as u64, "{stats:?}");
    assert_eq!(stats.pages_written, before.pages_written, "nothing is written");
}

fn all_changed(db: &Db, pages: std::ops::Range<u32>) {
    for number in pages {
        assert_eq!(db.get(number, 3), 1000 + u64::from(number), "page {number}");
        assert_eq!(db.get(number, 4), made(number, 1), "page {number}");
    }
}

/// The current bytes of a page in the data file.
fn at_home(machine: &Machine, number: u32) -> Vec<u8> {
    let handle = machine.disk.open(&data(), OpenHow { write: true, ..OpenHow::default() }).unwrap();
    let mut page = vec![0; PAGE_BYTES];
    machine.disk.read_at(&handle, u64::from(number) * PAGE_BYTES as u64, &mut page).unwrap();
    page
}

fn put_home(machine: &Machine, number: u32, page: &[u8]) {
    let handle = machine.disk.open(&data(), OpenHow { write: true, ..OpenHow::default() }).unwrap();
    let offset = u64::from(number) * PAGE_BYTES as u64;
    machine.disk.write_at(&handle, offset, &[IoSlice::new(page)], WriteHow::default()).unwrap();
}

#[test]
fn a_page_leaves_dirty_and_comes_back_changed() {
    let machine = Machine::new(1);
    let db = away_db(&machine);
    send_away(&db, 0..10);
    all_changed(&db, 0..10);
    let stats = db.stats();
    assert_eq!((stats.deferred_pages, stats.pages_deferred), (0, 10));
    assert_eq!(stats.dirty, 10, "they are dirty as before");
    // And again, with more changes.
    db.set(2, 5, 77);
    db.pool.evict(usize::MAX, true);
    assert_eq!(db.stats().deferred_pages, 10);
    all_changed(&db, 0..10);
    assert_eq!(db.get(2, 5), 77);
    db.drop_all();
    assert_eq!((db.stats().deferred_pages, db.stats().deferred_bytes), (0, 0));
    assert_eq!(cell(&at_home(&machine, 2), 5), 77);
    all_changed(&db, 0..10);
}

#[test]
fn a_merge_writes_a_page_home_without_a_frame() {
    let machine = Machine::new(2);
    let db = away_db(&machine);
    send_away(&db, 5..25);
    let before = db.stats();
    db.flush_all().unwrap();
    let stats = db.stats();
    assert_eq!((stats.pages_merged, stats.deferred_pages, stats.deferred_bytes), (20, 0, 0));
    assert_eq!(stats.pages_written - before.pages_written, 20);
    assert_eq!(stats.free, before.free, "no frame was used");
    for number in 5..25 {
        assert_eq!(cell(&at_home(&machine, number), 3), 1000 + u64::from(number));
    }
    all_changed(&db, 5..25);
}

#[test]
fn no_checkpoint_passes_a_page_that_is_away_and_a_crash_loses_nothing() {
    let machine = Machine::new(3);
    let db = away_db(&machine);
    let before = db.log().head();
    send_away(&db, 0..20);
    db.log().flush_to(db.log().head()).unwrap();
    assert!(db.checkpoint().unwrap() <= before, "their changes are in the log only");
    db.process.crash_by(SimDisk::power_cut);
    drop(db);
    let db = machine.open().unwrap();
    all_changed(&db, 0..20);
}

#[test]
fn a_page_made_anew_does_not_get_what_it_lacked_before() {
    let machine = Machine::new(4);
    let db = away_db(&machine);
    send_away(&db, 0..4);
    db.make(1, 9);
    assert_eq!(db.stats().deferred_pages, 3);
    db.drop_all();
    assert_eq!(db.get(1, 3), made(1, 9));
    assert_eq!(cell(&at_home(&machine, 0), 3), 1000);
}

#[test]
fn a_prefetch_brings_pages_back() {
    let machine = Machine::new(5);
    let db = away_db(&machine);
    send_away(&db, 0..10);
    let before = db.stats();
    for pages in [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]] {
        db.prefetch(&pages.map(PageId));
        db.finish_prefetches(true);
    }
    all_changed(&db, 0..10);
    let stats = db.stats();
    assert_eq!((stats.deferred_pages, stats.misses), (0, before.misses), "{stats:?}");
}

/// The change that made a page anew is lost with the log's tail; the older change, which was acknowledged, is not.
#[test]
fn a_page_made_anew_holds_back_the_checkpoint_for_what_it_lacked() {
    let machine = Machine::new(10);
    let db = away_db(&machine);
    send_away(&db, 0..4);
    db.log().flush_to(db.log().head()).unwrap();
    let flushed = db.log().head();
    db.make(1, 9);
    assert!(db.checkpoint().unwrap() < flushed);
    assert_eq!(db.stats().dirty, 1);
    db.process.crash_by(SimDisk::power_cut);
    drop(db);
    let db = machine.open().unwrap();
    if db.recovered == flushed {
        all_changed(&db, 0..4);
    } else {
        assert_eq!(db.get(1, 3), made(1, 9));
    }
}

/// The device returns an older copy of the page than was written: no record is applied to it.
#[test]
fn a_lost_write_is_found() {
    let machine = Machine::new(6);
    let db = away_db(&machine);
    let old = at_home(&machine, 2);
    db.set(2, 1, 5);
    db.drop_all();
    let new = at_home(&machine, 2);
    send_away(&db, 2..3);
    put_home(&machine, 2, &old);
    let error = db.load(PageId(2)).unwrap_err().to_string();
    assert!(error.contains("page 2") && error.contains("LSN"), "{error}");
    let error = db.flush_all().unwrap_err().to_string();
    assert!(error.contains("page 2") && error.contains("LSN"), "{error}");
    put_home(&machine, 2, &new);
    db.health().check().unwrap();
    assert_eq!((db.get(2, 1), db.get(2, 3)), (5, 1002));
}

/// Neighbours are read together, and each by itself if that fails. A page that cannot be read keeps its records, and
/// the other pages of its batch are written home.
#[test]
fn a_failed_read_keeps_the_records() {
    let machine = Machine::new(7);
    let db = away_db(&machine);
    send_away(&db, 0..10);
    machine.disk.inject(Fault::eio().on(Op::Read).path(data()).once());
    db.flush_all().unwrap();
    all_changed(&db, 0..10);

    send_away(&db, 0..10);
    machine.disk.inject(Fault::eio().on(Op::Read).path(data()).times(2));
    assert!(matches!(db.flush_all().unwrap_err(), Error::Io(_)));
    assert_eq!(db.stats().deferred_pages, 1);
    db.flush_all().unwrap();
    assert_eq!(db.stats().deferred_pages, 0);
    all_changed(&db, 0..10);
    // Permanent damage: each attempt reports it, and no checkpoint passes it.

    send_away(&db, 20..25);
    machine.disk.inject(Fault::bit_rot().on(Op::Read).path(data()).once());
    for _ in 0..2 {
        match db.flush_all().unwrap_err() {
            Error::Corrupt(found) => assert!(matches!(*found, Corruption::ChecksumMismatch { .. }), "{found}"),
            other => panic!("{other}"),
        }
        assert_eq!(db.stats().deferred_pages, 1);
        assert!(db.checkpoint().unwrap() < db.log().head());
    }
}

/// Pages with many changes are written, not deferred; so are all pages when the share is used up or is 0.
#[test]
fn lists_keep_within_their_share() {
    let machine = Machine::new(8);
    let db = away_db(&machine);
    for round in 0..200 {
        db.set(0, round % 4, round as u64);
    }
    assert_eq!(db.pool.evict(usize::MAX, true), 0, "its list is too long");
    assert_eq!(db.stats().deferred_bytes, 0);
    let most = 13 * PAGE_BYTES as u64;
    let mut stayed = 0;
    for round in 0..400_u32 {
        db.set(round * 7 % PAGES, 6, u64::from(round));
        db.pool.evict(usize::MAX, true);
        stayed = stayed.max(db.stats().deferred_pages);
        assert!(db.stats().deferred_bytes <= most);
    }
    assert!(stayed > 5);
    db.set_deferred_percent(0, 0);
    while db.clean_step().unwrap().more {}
    let stats = db.stats();
    assert_eq!((stats.deferred_pages, stats.deferred_bytes, stats.frames), (0, 0, 64));
    db.set(3, 6, 9);
    assert_eq!(db.pool.evict(usize::MAX, true), 0);
    assert_eq!(db.get(3, 6), 9);
}

/// A write that fails poisons. Pages of its batch that were already written are read as they are in the data file.
#[test]
fn after_a_failed_merge_pages_that_are_home_are_readable() {
    let machine = Machine::new(9);
    let db = away_db(&machine);
    // The pages are not adjacent, so that each is a separate write.
    for number in [0, 4, 8] {
        db.set(number, 3, 1000 + u64::from(number));
    }
    db.pool.evict(usize::MAX, true);
    machine.disk.inject(Fault::eio().on(Op::Write).path(data()).nth(2).once());
    db.flush_all().unwrap_err();
    db.health().check().unwrap_err();
    for number in [0, 4, 8] {
        assert_eq!(db.get(number, 3), 1000 + u64::from(number), "page {number}");
    }
}

/// A reader or a prefetch that panics while it applies changes loses none, and no thread waits for its pages.
#[test]
fn a_panic_while_changes_are_applied_loses_none() {
    let machine = Machine::new(11);
    let db = away_db(&machine);
    send_away(&db, 0..5);
    let free = db.stats().free;
    let panics = |work: &dyn Fn()| {
        PANICS.set(true);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        PANICS.set(false);
        assert!(caught.is_err(), "it was planted");
    };
    panics(&|| drop(db.load(PageId(0))));
    panics(&|| {
        db.prefetch(&[0, 1, 2, 3, 4].map(PageId));
        db.finish_prefetches(true);
    });
    let stats = db.stats();
    assert_eq!((stats.deferred_pages, stats.free), (5, free), "{stats:?}");
    assert_eq!(db.loads.prefetches.pages(), 0, "none is on its way");
    // Of three reads, those that were not reached can still be finished.
    panics(&|| {
        db.prefetch(&[0, 2, 4].map(PageId));
        db.finish_prefetches(true);
    });
    assert_eq!(db.loads.prefetches.pages(), 2);
    assert_eq!(db.finish_prefetches(true), 2);
    assert_eq!(db.loads.prefetches.pages(), 0);
    all_changed(&db, 0..5);
}

#[test]
fn a_page_that_was_brought_back_in_vain_counts_as_wasted() {
    let machine = Machine::new(14);
    let db = away_db(&machine);
    send_away(&db, 0..5);
    db.prefetch(&[0, 1, 2, 3, 4].map(PageId));
    db.finish_prefetches(true);
    let before = db.stats().prefetch_wasted;
    db.pool.evict(usize::MAX, true);
    assert_eq!(db.stats().prefetch_wasted - before, 5);
}

/// When the share grows, frames whose page is in use cannot be retired: the rest of cleaning does not wait for them.
#[test]
fn a_frame_that_cannot_go_does_not_stop_cleaning() {
    let machine = Machine::new(12);
    let db = away_db(&machine);
    // The number of frames with a share of 40%.
    let limit = 64 * 6 / 10;
    for number in 0..PAGES {
        db.get(number, 0);
    }
    let frame = |number| match db.map.get(PageId(number)) {
        Where::In(frame) => frame,
        other => panic!("{other:?}"),
    };
    let in_use = (0..PAGES).find(|&number| frame(number) >= limit).unwrap();
    let pin = db.load(PageId(in_use)).unwrap();
    let aged = (0..PAGES).find(|&number| frame(number) < limit).unwrap();
    db.set(aged, 3, 7);
    // Makes both pages WHOLE, so that neither can be evicted with a list.
    for value in 0..200 {
        db.set(aged, 3, value);
        db.set(in_use, 3, value);
    }
    db.set_deferred_percent(40, 40);
    let mut round = 0;
    while db.stats().checkpoint_age < machine.log_bytes * 6 / 10 {
        round += 1;
        db.set(in_use, 3, round);
    }
    for _ in 0..50 {
        round += 1;
        db.set(in_use, 3, round);
        db.clean_step().unwrap();
    }
    assert!(db.frames.dirt(frame(aged)).is_clean(), "the oldest page is home");
    drop(pin);
    while db.clean_step().unwrap().more {}
    assert_eq!(db.stats().frames, u64::from(limit));
}

/// Changes fail for lack of log space only when the unreadable page itself holds back the checkpoint.
#[test]
fn an_unreadable_page_is_not_in_the_way_of_older_changes() {
    let machine = Machine::new(13);
    let db = away_db(&machine);
    for number in 20..30 {
        db.get(number, 0);
    }
    let change = |value| {
        db.try_change(|mtr| {
            let held = mtr.latch(PageId(20 + value as u32 % 10))?;
            Ok(move |mtr: &mut Mtr<'_>| mtr.run(held, &Set { cell: 3, value }))
        })
    };
    // Older changes, a twentieth of the log.
    let from = db.log().head().0;
    let mut value = 0;
    while db.log().head().0 < from + machine.log_bytes / 20 {
        value += 1;
        change(value).unwrap();
    }
    let since = db.log().head();
    db.set(0, 3, 1000);
    db.pool.evict(usize::MAX, true);
    machine.disk.inject(Fault::eio().on(Op::Read).path(data()));
    let error = loop {
        value += 1;
        if let Err(error) = change(value) {
            break error;
        }
    };
    assert!(matches!(error, Error::Io(_)), "{error}");
    assert_eq!(db.checkpoint_lsn(), since, "the log is full of what came after it");
    assert_eq!(db.stats().deferred_pages, 1);
}

/// A page that is read and evicted again without a new change would have been written once, not each time.
#[test]
fn a_write_is_spared_once() {
    let machine = Machine::new(14);
    let db = away_db(&machine);
    send_away(&db, 0..10);
    for _ in 0..5 {
        all_changed(&db, 0..10);
        db.pool.evict(usize::MAX, true);
    }
    assert_eq!(db.stats().deferred_read_again, 10);
    send_away(&db, 0..10);
    all_changed(&db, 0..10);
    assert_eq!(db.stats().deferred_read_again, 20, "once for each change");
}

/// Without a share no page has a list, not even a page in a frame.
#[test]
fn lists_of_frames_go_with_the_share() {
    let machine = Machine::new(15);
    let db = away_db(&machine);
    for number in 0..10 {
        db.set(number, 3, 1000 + u64::from(number));
    }
    assert!(db.stats().deferred_bytes > 0);
    db.set_deferred_percent(0, 0);
    while db.clean_step().unwrap().more {}
    assert_eq!(db.stats().deferred_bytes, 0);
    all_changed(&db, 0..10);
}

/// Frames get the memory of lists when the lists have given it back, not when the share falls.
#[test]
fn frames_and_lists_together_are_never_more_than_the_pool() {
    let machine = Machine::new(16);
    let db = away_db(&machine);
    let fits = |db: &Db| {
        let (frames, lists) = (u64::from(db.frames.span()), db.deferred.held_after_trim(u64::MAX));
        assert!(frames * PAGE_BYTES as u64 + lists <= db.bytes(), "{frames} frames, {lists} bytes of lists");
        lists
    };
    let settle = |percent: u32| {
        db.set_deferred_percent(percent, percent);
        for _ in 0..1000 {
            db.clean_step().unwrap();
            fits(&db);
        }
    };
    settle(40);
    for round in 0..2000_u32 {
        db.set(round * 7 % PAGES, 6, u64::from(round));
        db.pool.evict(usize::MAX, true);
        fits(&db);
    }
    let lists = fits(&db);
    assert!(lists > 64 * PAGE_BYTES as u64 / 8, "{lists} bytes of lists");
    settle(5);
    assert!(fits(&db) < lists / 4);
    assert_eq!(db.stats().frames, 64 * 95 / 100, "all that the share leaves");
    for number in 0..PAGES {
        assert_eq!(db.get(number, 4), made(number, 1), "page {number}");
    }
}
