//! Reading, changing, writing back, opening again.

use super::*;

#[test]
fn pages_are_made_changed_dropped_and_read_again() {
    let machine = Machine::new(1);
    let db = machine.create();
    db.grow_file(200).unwrap();
    for number in 0..200 {
        db.make(number, 7);
        db.set(number, 3, u64::from(number) + 1);
    }
    db.drop_all();
    for number in 0..200 {
        assert!(db.pool.shared(PageId(number)).is_err() || number > 100, "64 frames hold no 200 pages");
        assert_eq!((db.get(number, 3), db.get(number, 4)), (u64::from(number) + 1, made(number, 7)));
    }
    assert!(db.stats().misses >= 200 - 64, "{:?}", db.stats());
}

#[test]
fn a_clean_close_leaves_nothing_to_recover() {
    let machine = Machine::new(2);
    let db = machine.create();
    db.grow_file(10).unwrap();
    for number in 0..10 {
        db.make(number, 1);
    }
    db.note_next_txn(77);
    db.close().unwrap();
    let block = db.control().current();
    assert!(block.clean && block.checkpoint == db.log().head() && block.next_txn >= TxnId(77));
    drop(db);
    let db = machine.open().unwrap();
    assert!(db.restored.is_empty());
    assert_eq!(db.stats().misses, 0, "nothing is read before it is asked for");
    assert!(!db.control().current().clean, "it is open");
    assert_eq!(db.get(9, 0), made(9, 1));
}

#[test]
fn what_was_logged_and_not_written_is_redone() {
    let machine = Machine::new(3);
    let db = machine.create();
    db.grow_file(20).unwrap();
    for number in 0..20 {
        db.make(number, 1);
    }
    db.flush_all().unwrap();
    let mut end = Lsn::ZERO;
    for number in 0..20 {
        end = db.set(number, 5, 55);
    }
    db.log().flush_to(end).unwrap();
    db.process.crash_by(SimDisk::power_cut);
    drop(db);
    let db = machine.open().unwrap();
    for number in 0..20 {
        assert_eq!((db.get(number, 5), db.get(number, 6)), (55, made(number, 1)));
    }
}

#[test]
fn cleaning_keeps_to_its_pace_until_it_must_hurry() {
    let machine = Machine { frames: 100, ..Machine::new(4) };
    let db = machine.create();
    db.grow_file(100).unwrap();
    assert_eq!(db.clean_step().unwrap(), Progress::default(), "nothing to do");
    for number in 0..40 {
        db.make(number, 1);
    }
    assert_eq!(db.clean_step().unwrap(), Progress::default(), "44% of what may be dirty is calm");
    for number in 40..60 {
        db.make(number, 1);
    }
    // The oldest quarter first, and no page twice.
    let step = db.clean_step().unwrap();
    assert!((10..=20).contains(&step.written) && step.pause > Duration::from_millis(7) && step.more, "{step:?}");
    assert_eq!(db.stats().dirty, 60 - step.written as u64);
    for number in 0..90 {
        db.make(number, 2);
    }
    // Urgent: at the burst rate that is set now.
    db.set_io_capacity(2000, 10_000);
    let step = db.clean_step().unwrap();
    assert!(step.written > 0, "{step:?}");
    assert_eq!(step.pause, Duration::from_secs_f64(step.written as f64 / 10_000.0));
    while db.clean_step().unwrap().more {}
    assert!(db.stats().dirty < 46, "{:?}", db.stats());
}

#[test]
fn free_frames_are_made_ahead_of_need() {
    let machine = Machine { frames: 64, ..Machine::new(5) };
    let db = machine.create();
    db.grow_file(100).unwrap();
    for number in 0..64 {
        db.make(number, 1);
    }
    assert_eq!(db.stats().free, 0);
    let step = db.clean_step().unwrap();
    assert!(step.freed >= 2 && step.written > 0 && step.pause < Duration::from_millis(7), "{step:?}");
    assert!(db.stats().free >= 2);
}

/// The cost of a checkpoint depends on the number of dirty pages, not on the size of the pool.
#[test]
fn a_checkpoint_looks_at_dirty_pages_only() {
    let machine = Machine { frames: 256, ..Machine::new(21) };
    let db = machine.create();
    db.grow_file(200).unwrap();
    for number in 0..200 {
        db.make(number, 1);
    }
    db.flush_all().unwrap();
    let looked = || db.stats().dirty_looked;
    let before = looked();
    for _ in 0..100 {
        db.checkpoint().unwrap();
        db.clean_step().unwrap();
    }
    assert_eq!(looked() - before, 0, "nothing is dirty: no frame is looked at");
    for number in [3, 50, 199] {
        db.set(number, 0, 1);
    }
    let first = db.log().head();
    db.set(50, 1, 1);
    let before = looked();
    let stays = db.checkpoint().unwrap();
    assert!(stays < first && looked() - before <= 4, "{} frames for 3 dirty pages", looked() - before);
    let before = looked();
    for _ in 0..100 {
        assert_eq!(db.checkpoint().unwrap(), stays);
    }
    assert!(looked() - before <= 100, "an attempt in vain looks at the oldest page alone, {}", looked() - before);
    let before = looked();
    db.flush_all().unwrap();
    assert!(looked() - before <= 16, "{} frames to write 3 pages", looked() - before);
    assert_eq!(db.stats().dirty, 0);
    assert_eq!(db.checkpoint_lsn(), db.log().head());
}
