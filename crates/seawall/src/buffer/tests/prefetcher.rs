//! Prefetchers: how many pages they request, and how they share the device.

use super::*;
use crate::buffer::Prefetcher;
use seawall_io::Op;
use seawall_sim::Fault;
use std::time::Duration;

fn cold(frames: u64, pages: u32) -> (Machine, Db) {
    let machine = Machine { frames, frames_max: 4096, ..Machine::new(1) };
    let db = machine.create();
    db.grow_file(pages).unwrap();
    for number in 0..pages {
        db.make(number, 1);
    }
    db.drop_all();
    (machine, db)
}

/// Every seventh page from `first` on, so that none are contiguous.
fn apart(first: u32, pages: u32) -> Vec<PageId> {
    (0..pages).step_by(7).map(|i| PageId(first + i)).collect()
}

fn read(db: &Db, prefetcher: &mut Prefetcher, page: PageId) {
    prefetcher.next_is_due(&db.pool, usize::MAX);
    assert_eq!(db.get(page.0, 0), made(page.0, 1));
    prefetcher.came_to(page);
}

#[test]
fn the_window_opens_while_the_reader_waits_and_closes_when_it_need_not() {
    let (machine, db) = cold(1024, 1400);
    machine.disk.inject(Fault::slow(Duration::from_millis(2)).on(Op::Read));
    let pages = apart(0, 1400);
    let mut prefetcher = Prefetcher::default();
    prefetcher.name(pages.iter().copied());
    for &page in &pages[..6] {
        read(&db, &mut prefetcher, page);
    }
    assert!(db.stats().prefetched <= 6 + 12, "it has not shown that it goes on: {}", db.stats().prefetched);
    for &page in &pages[6..] {
        read(&db, &mut prefetcher, page);
    }
    let stats = db.stats();
    assert_eq!(stats.prefetched + stats.misses, 200);
    assert!(stats.prefetch_depth_sum > 8 * stats.prefetch_reads, "{stats:?}");
    assert!(stats.prefetch_waits > 5, "{stats:?}");
    assert_eq!(db.prefetchers(), 0, "at its end it shares no more");
}

#[test]
fn no_more_is_asked_for_than_the_reader_wants() {
    let (_machine, db) = cold(1024, 1400);
    let mut prefetcher = Prefetcher::of(apart(0, 1400));
    prefetcher.next_is_due(&db.pool, 3);
    assert_eq!(db.stats().prefetched, 3);
    prefetcher.next_is_due(&db.pool, 0);
    assert_eq!(db.stats().prefetched, 3);
    drop(prefetcher);
    db.finish_prefetches(true);
    db.drop_all();
    assert_eq!(db.stats().prefetch_wasted, 3);
}

#[test]
fn a_depth_of_none_asks_for_nothing_and_a_depth_of_one_for_one() {
    let (machine, db) = cold(1024, 1400);
    machine.disk.inject(Fault::slow(Duration::from_millis(2)).on(Op::Read));
    db.pool.set_prefetch_depths(0, 0);
    let pages = apart(0, 1400);
    let mut prefetcher = Prefetcher::of(pages.iter().copied());
    for &page in &pages[..20] {
        read(&db, &mut prefetcher, page);
    }
    assert_eq!((db.stats().prefetched, db.stats().misses), (0, 20));
    db.pool.set_prefetch_depths(1, 1);
    for &page in &pages[20..] {
        read(&db, &mut prefetcher, page);
    }
    let stats = db.stats();
    assert!(stats.prefetched > 0);
    assert_eq!(stats.prefetch_depth_sum, stats.prefetch_reads, "one at a time");
}

#[test]
fn a_window_that_is_fixed_stays() {
    let (machine, db) = cold(1024, 1400);
    machine.disk.inject(Fault::slow(Duration::from_millis(2)).on(Op::Read));
    let pages = apart(0, 1400);
    for window in [8, 16] {
        db.drop_all();
        db.pool.set_prefetch_window(window);
        let before = db.stats();
        let mut prefetcher = Prefetcher::default();
        prefetcher.name(pages.iter().copied());
        prefetcher.next_is_due(&db.pool, usize::MAX);
        assert_eq!(db.stats().prefetched - before.prefetched, u64::from(window), "from the first page on");
        for (n, &page) in pages.iter().enumerate() {
            read(&db, &mut prefetcher, page);
            let ahead = db.stats().prefetched - before.prefetched;
            assert!(ahead <= n as u64 + 1 + u64::from(window), "{ahead} pages asked for at page {n}");
        }
        let stats = db.stats();
        assert_eq!(stats.prefetched + stats.misses - before.prefetched - before.misses, pages.len() as u64);
    }
}

#[test]
fn streams_share_the_depth_evenly() {
    let (machine, db) = cold(4096, 2000);
    machine.disk.inject(Fault::slow(Duration::from_secs(1)).on(Op::Read));
    db.pool.set_prefetch_depths(16, 16);
    let mut prefetchers: Vec<Prefetcher> = (0..4).map(|i| Prefetcher::of(apart(i, 1900))).collect();
    let mut flying = Vec::new();
    for prefetcher in &mut prefetchers {
        let before = db.stats().prefetch_reads;
        prefetcher.next_is_due(&db.pool, usize::MAX);
        flying.push(db.stats().prefetch_reads - before);
    }
    assert_eq!(flying, [16, 1, 1, 1], "the first was alone; the later ones have at least one");
    db.finish_prefetches(true);
    let mut asked = [0; 4];
    for round in 0..40 {
        for (i, prefetcher) in prefetchers.iter_mut().enumerate() {
            let before = db.stats().prefetch_reads;
            prefetcher.next_is_due(&db.pool, usize::MAX);
            prefetcher.came_to(PageId(i as u32 + 7 * round));
            asked[i] += db.stats().prefetch_reads - before;
        }
        db.finish_prefetches(true);
    }
    let (least, most) = (asked.iter().min().unwrap(), asked.iter().max().unwrap());
    assert!(*least > 30 && *most <= 3 * least, "no prefetcher gets less than a third of another: {asked:?}");
}

#[test]
fn falling_pages_are_one_read() {
    let (machine, db) = cold(1024, 400);
    let reads = || machine.disk.trace().tally(Path::new(DIR).join(DATA_FILE), seawall_sim::Call::Read).calls;
    let before = reads();
    let pages: Vec<PageId> = (100..110).rev().chain([200, 201, 199]).map(PageId).collect();
    db.prefetch(&pages);
    for &page in &pages {
        assert_eq!(db.get(page.0, 0), made(page.0, 1));
    }
    assert_eq!((reads() - before, db.stats().misses), (3, 0), "ten downward, two upward, one apart");
}

#[test]
fn a_page_is_warm_after_its_second_use_and_no_sooner() {
    let (_machine, db) = cold(64, 400);
    db.prefetch(&[PageId(7), PageId(9)]);
    // Waiting for a page in flight does not count as a use of it.
    assert_eq!(db.get(7, 0), made(7, 1));
    assert_eq!(db.get(9, 0), made(9, 1));
    assert_eq!(db.get(9, 0), made(9, 1));
    let misses = db.stats().misses;
    db.pool.evict(1, true);
    assert!(db.pool.shared(PageId(9)).is_ok(), "used twice: it gets a second chance");
    assert!(db.pool.shared(PageId(7)).is_err(), "used once");
    assert_eq!((db.stats().misses, db.stats().prefetch_wasted), (misses, 0));
}
