//! Prefetching.

use super::*;
use seawall_io::Op;
use seawall_sim::Fault;

fn forty_pages(machine: &Machine) -> Db {
    let db = machine.create();
    db.grow_file(40).unwrap();
    for number in 0..40 {
        db.make(number, 1);
    }
    db.drop_all();
    db
}

fn pages(numbers: impl IntoIterator<Item = u32>) -> Vec<PageId> {
    numbers.into_iter().map(PageId).collect()
}

#[test]
fn what_was_prefetched_is_not_read_again() {
    let machine = Machine { frames_max: 512, ..Machine::new(1) };
    let db = forty_pages(&machine);
    let reads = || machine.disk.trace().tally(Path::new(DIR).join(DATA_FILE), seawall_sim::Call::Read).calls;
    let (before, misses) = (reads(), db.stats().misses);
    db.prefetch(&pages([3, 4, 5, 20, 21, 3, 900, u32::MAX]));
    for number in [5, 3, 4, 20, 21] {
        assert_eq!(db.get(number, 0), made(number, 1));
    }
    assert_eq!((reads() - before, db.stats().misses), (2, misses), "two runs, and no demand read");
    assert_eq!((db.stats().prefetched, db.stats().prefetch_failed), (5, 0));
    db.prefetch(&pages([3, 4, 5]));
    assert_eq!(db.stats().prefetched, 5, "they are there");
}

#[test]
fn background_work_finishes_prefetches_without_a_reader() {
    let machine = Machine::new(2);
    let db = forty_pages(&machine);
    db.prefetch(&pages(0..8));
    assert!(db.pool.shared(PageId(3)).is_err(), "on its way");
    while machine.disk.drive(true) > 0 {}
    db.clean_step().unwrap();
    assert_eq!(cell(&db.pool.shared(PageId(3)).unwrap(), 0), made(3, 1));
}

/// Trap 8.
#[test]
fn the_thread_that_asked_may_end() {
    let machine = Machine::new(3);
    let db = forty_pages(&machine);
    machine.disk.inject(Fault::cancelled().on(Op::Read));
    let pool = db.pool.clone();
    std::thread::spawn(move || pool.prefetch(&pages(0..8))).join().unwrap();
    machine.disk.clear_faults();
    for number in 0..8 {
        assert_eq!(db.get(number, 0), made(number, 1));
    }
    db.health().check().unwrap();
}

#[test]
fn a_failed_prefetch_is_no_error() {
    let machine = Machine::new(4);
    let db = forty_pages(&machine);
    let free = db.stats().free;
    machine.disk.inject(Fault::eio().on(Op::Read).once());
    db.prefetch(&pages(0..8));
    db.finish_prefetches(true);
    assert_eq!((db.stats().prefetch_failed, db.stats().free), (8, free), "its frames are free again");
    assert_eq!(db.get(3, 0), made(3, 1));
    db.health().check().unwrap();
    // Pages that were never written fail their checks, and are dropped without an error.
    db.grow_file(60).unwrap();
    db.prefetch(&pages(39..50));
    db.finish_prefetches(true);
    assert_eq!(db.get(39, 0), made(39, 1));
    assert_eq!(db.stats().prefetch_failed, 8 + db.stats().prefetched - 8 - 1);
}

#[test]
fn prefetching_takes_no_more_than_its_share_and_nothing_that_is_needed() {
    let machine = Machine { frames: 16, frames_max: 16, ..Machine::new(5) };
    let db = forty_pages(&machine);
    db.prefetch(&pages(0..40));
    assert_eq!(db.stats().prefetched, 2, "an eighth of the pool in flight");
    let pins: Vec<_> = (20..35).map(|number| db.load(PageId(number)).unwrap()).collect();
    db.prefetch(&pages(0..40));
    db.finish_prefetches(true);
    for (pin, number) in pins.iter().zip(20..) {
        assert_eq!(pin.id(), PageId(number));
        assert!(db.pool.shared(PageId(number)).is_ok());
    }
}

#[test]
fn a_scan_does_not_displace_what_is_used() {
    let machine = Machine { frames: 32, ..Machine::new(6) };
    let db = machine.create();
    db.grow_file(400).unwrap();
    for number in 0..400 {
        db.make(number, 1);
    }
    db.drop_all();
    let hot: Vec<u32> = (0..8).collect();
    for &number in hot.iter().chain(&hot) {
        db.get(number, 0);
    }
    let misses = db.stats().misses;
    for number in 100..400 {
        db.prefetch(&pages([number]));
        db.get(number, 0);
        db.get(hot[number as usize % hot.len()], 0);
    }
    assert_eq!(db.stats().misses, misses, "the hot pages stayed, and the scanned ones were prefetched");
}
