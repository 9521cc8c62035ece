//! Errors of the disk: which caller gets them, and what they change.

use super::super::config::FRAMES_MIN;
use super::hook::{At, Hook};
use super::*;
use crate::error::{Corruption, Error, Stop};
use seawall_io::{Cause, Op, OpenHow, SyncHow, WriteHow};
use seawall_sim::{Call, Fault};
use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

fn data() -> PathBuf {
    Path::new(DIR).join(DATA_FILE)
}

/// A database of ten clean pages, none in memory.
fn ten_pages(machine: &Machine) -> Db {
    let db = machine.create();
    db.grow_file(10).unwrap();
    for number in 0..10 {
        db.make(number, 1);
    }
    db.drop_all();
    db
}

#[test]
fn a_failed_read_is_the_readers_and_leaves_nothing_behind() {
    let machine = Machine::new(1);
    let db = ten_pages(&machine);
    let free = db.stats().free;
    machine.disk.inject(Fault::eio().on(Op::Read).path(data()).once());
    match db.load(PageId(7)).unwrap_err() {
        Error::Io(e) => assert_eq!((e.errno(), e.offset, &e.path), (Some(5), Some(7 * PAGE_BYTES as u64), &data())),
        other => panic!("{other}"),
    }
    assert_eq!(db.stats().free, free, "its frame is free again");
    db.health().check().unwrap();
    assert_eq!(db.get(7, 0), made(7, 1), "asked again, it is read");
}

#[test]
fn damage_is_named() {
    let machine = Machine::new(2);
    let db = ten_pages(&machine);
    machine.disk.inject(Fault::bit_rot().on(Op::Read).path(data()).once());
    let corruption = |error: Error| match error {
        Error::Corrupt(found) => *found,
        other => panic!("{other}"),
    };
    let found = corruption(db.load(PageId(3)).unwrap_err());
    assert!(matches!(&found, Corruption::ChecksumMismatch { page: PageId(3), path, .. } if *path == data()), "{found}");
    let found = corruption(db.load(PageId(10)).unwrap_err());
    assert!(matches!(&found, Corruption::File { why, .. } if why.contains("page 10")), "{found}");
    assert!(matches!(corruption(db.load(PageId(u32::MAX)).unwrap_err()), Corruption::File { .. }));
    // Page 5 is written in the place of page 4.
    let handle = machine.disk.open(&data(), OpenHow { write: true, ..OpenHow::default() }).unwrap();
    let mut page = vec![0; PAGE_BYTES];
    machine.disk.read_at(&handle, 5 * PAGE_BYTES as u64, &mut page).unwrap();
    let place = |page: &[u8], number: u64| {
        let slices = [IoSlice::new(page)];
        machine.disk.write_at(&handle, number * PAGE_BYTES as u64, &slices, WriteHow::default()).unwrap();
        machine.disk.sync(&handle, SyncHow::All).unwrap();
    };
    place(&page, 4);
    let found = corruption(db.load(PageId(4)).unwrap_err());
    assert!(matches!(found, Corruption::Misdirected { page: PageId(4), found: PageId(5), .. }), "{found}");
    // A page with an LSN beyond the log's head.
    let beyond = Lsn(db.log().head().0 + 1);
    page::set_u64(&mut page, page::LSN, beyond.0);
    page::seal(&mut page, PageId(5));
    place(&page, 5);
    let found = corruption(db.load(PageId(5)).unwrap_err());
    assert!(
        matches!(found, Corruption::LogBehindPage { page: PageId(5), page_lsn, .. } if page_lsn == beyond),
        "{found}"
    );
    db.health().check().unwrap();
}

#[test]
fn a_failed_page_write_poisons_and_no_checkpoint_passes_it() {
    for (op, path) in [(Op::Write, data()), (Op::Write, Path::new(DIR).join(DOUBLEWRITE_FILE)), (Op::Sync, data())] {
        let machine = Machine::new(3);
        let db = ten_pages(&machine);
        let before = db.checkpoint_lsn();
        let end = db.set(4, 0, 44);
        db.log().flush_to(end).unwrap();
        machine.disk.inject(Fault::eio().on(op).path(&path).once());
        let error = db.flush_all().unwrap_err();
        assert!(matches!(error, Error::Poisoned { .. }), "{error}");
        assert!(db.flush_all().is_err() && db.checkpoint().is_err() && db.clean_step().is_err() && db.close().is_err());
        assert!(matches!(Mtr::begin(&db, MtrSize::Small), Err(Error::Poisoned { .. })));
        assert_eq!(db.checkpoint_lsn(), before);
        assert_eq!(db.get(4, 0), 44, "reading goes on");
        db.process.crash_by(SimDisk::power_cut);
        drop(db);
        assert_eq!(machine.open().unwrap().get(4, 0), 44, "{op} of {}", path.display());
    }
}

/// Trap 10: "written" is not "flushed".
#[test]
fn no_page_is_written_before_its_log_is_flushed() {
    let machine = Machine::new(4);
    let db = ten_pages(&machine);
    let writes = || machine.disk.trace().tally(data(), Call::Write).calls;
    let doublewrites = || machine.disk.trace().tally(Path::new(DIR).join(DOUBLEWRITE_FILE), Call::Write).calls;
    let end = db.set(4, 0, 44);
    db.log().wait(end, crate::log::Durability::Written).unwrap();
    assert!(db.log().written() >= end && db.log().durable() < end, "written and not flushed");
    let before = (writes(), doublewrites());
    machine.disk.inject(Fault::eio().on(Op::Sync));
    assert!(db.flush_all().is_err());
    assert_eq!((writes(), doublewrites()), before, "the log could not be flushed: nothing was written");
    assert!(db.log().durable() < end);
    db.health().check().unwrap_err();
}

#[test]
fn a_full_disk_refuses_growth_and_nothing_else() {
    let machine = Machine::new(5);
    let db = ten_pages(&machine);
    machine.disk.inject(Fault::enospc().on(Op::Grow).once());
    match db.grow_file(1000).unwrap_err() {
        Error::NoSpace { path, needed_bytes, .. } => {
            assert_eq!((path, needed_bytes), (data(), 990 * PAGE_BYTES as u64));
        }
        other => panic!("{other}"),
    }
    assert_eq!(db.file_pages(), 10);
    db.set(4, 0, 44);
    db.grow_file(1000).unwrap();
    assert_eq!(db.file_pages(), 1000);
    db.grow_file(20).unwrap();
    assert_eq!(db.file_pages(), 1000, "never shorter");
}

#[test]
fn a_change_that_is_dropped_poisons_and_is_never_written() {
    let machine = Machine::new(6);
    let db = ten_pages(&machine);
    db.set(1, 0, 11);
    let result = db.try_change(|mtr| {
        let held = mtr.latch(PageId(1))?;
        mtr.run(held, &Set { cell: 0, value: 666 });
        Err::<fn(&mut Mtr<'_>), _>(Stop::Fail(Error::Usage("changed its mind".into())))
    });
    assert!(result.is_err());
    assert!(db.health().check().is_err());
    assert!(db.flush_all().is_err());
    db.process.crash_by(SimDisk::power_cut);
    drop(db);
    let value = machine.open().unwrap().get(1, 0);
    assert!([11, made(1, 1)].contains(&value), "{value}: the change before was never flushed");
}

#[test]
fn a_mini_transaction_without_changes_is_nothing() {
    let machine = Machine::new(7);
    let db = ten_pages(&machine);
    let head = db.log().head();
    let free = db.stats().free;
    let end = db.change(|mtr| {
        let held = mtr.latch(PageId(1))?;
        assert_eq!(mtr.latch(PageId(1))?, held, "found, not latched twice");
        mtr.release(held);
        let made = mtr.fresh(PageId(9))?;
        assert_eq!(mtr.id(made), PageId(9));
        Ok(|_: &mut Mtr<'_>| ())
    });
    assert_eq!((end, db.log().head()), (Lsn::ZERO, head));
    assert!(db.pool.shared(PageId(9)).is_err(), "a page made and not changed goes away");
    assert_eq!(db.stats().free, free - 1, "page 1 was read");
    assert_eq!(db.get(9, 0), made(9, 1), "and nothing has happened to it");
    db.health().check().unwrap();
}

#[test]
fn sizes_that_make_no_sense_are_refused() {
    let refused = |machine: &Machine| match machine.create_on(machine.process()).unwrap_err() {
        Error::InvalidOption { name, why, .. } => (name, why),
        other => panic!("{other}"),
    };
    let (name, why) = refused(&Machine { frames: FRAMES_MIN - 1, ..Machine::new(8) });
    assert!(name == "pool_size" && why.contains("16 pages"), "{why}");
    let machine = Machine::new(8);
    let db = machine.create();
    let resize = |frames: u64| db.set_bytes(frames * PAGE_BYTES as u64);
    assert!(matches!(resize(15), Err(Error::InvalidOption { .. })));
    assert!(matches!(resize(257), Err(Error::InvalidOption { .. })));
    resize(256).unwrap();
    resize(16).unwrap();
    assert_eq!(db.stats().frames, 16);
}

#[test]
fn a_pool_whose_pages_are_all_pinned_says_so() {
    let machine = Machine { frames: 16, ..Machine::new(9) };
    let db = machine.create();
    db.grow_file(40).unwrap();
    for number in 0..40 {
        db.make(number, 1);
    }
    let pins: Vec<_> = (0..16).map(|number| db.load(PageId(number)).unwrap()).collect();
    match db.load(PageId(30)).unwrap_err() {
        Error::InvalidOption { name, why, .. } => {
            assert!(name == "pool_size" && why.contains("16 pages"), "{why}");
        }
        other => panic!("{other}"),
    }
    let resized = db.set_bytes(20 * PAGE_BYTES as u64).and_then(|()| db.set_bytes(16 * PAGE_BYTES as u64));
    assert!(resized.is_ok(), "the frames that go hold none of them");
    // Pages in frames that would be retired stay pinned: the pool keeps its size.
    db.set_deferred_percent(0, 0);
    db.set_bytes(24 * PAGE_BYTES as u64).unwrap();
    let more: Vec<_> = (16..24).map(|number| db.load(PageId(number)).unwrap()).collect();
    let refused = db.set_bytes(16 * PAGE_BYTES as u64);
    assert!(matches!(&refused, Err(Error::InvalidOption { why, .. }) if why.contains("stay pinned")), "{refused:?}");
    assert_eq!((db.bytes(), db.frames()), (24 * PAGE_BYTES as u64, 24));
    drop((pins, more));
    assert_eq!(db.get(30, 0), made(30, 1));
}

/// The kernel reports a failed flush once: of two flushes of a file at the same time, the other one succeeds.
#[test]
fn no_checkpoint_rests_on_a_flush_beside_one_that_fails() {
    let machine = Machine::new(31);
    let process = machine.process();
    let hook = Hook::new(process.clone());
    let db = Arc::new(machine.create_through(hook.clone(), process).unwrap());
    db.grow_file(10).unwrap();
    let before = db.checkpoint_lsn();
    for number in 0..10 {
        db.make(number, 1);
    }
    db.clean_before(db.log().head(), Cause::Checkpoint).unwrap();
    let (other, disk, thread) = (db.clone(), machine.disk.clone(), Arc::new(Mutex::new(None)));
    let started = thread.clone();
    hook.before(At::Sync(DATA_FILE), move || {
        let (said, ended) = mpsc::channel::<()>();
        let checkpoint = move || {
            let _said = said;
            other.checkpoint()
        };
        *started.lock().unwrap() = Some(std::thread::spawn(checkpoint));
        // It must not end before this flush: that it waits is seen only by this time.
        ended.recv_timeout(Duration::from_millis(300)).unwrap_err();
        disk.inject(Fault::eio().on(Op::Sync).path(data()).once());
    });
    assert!(db.grow_file(20).is_err(), "the flush of the growth fails");
    let checkpoint = thread.lock().unwrap().take().unwrap().join().unwrap();
    assert!(matches!(checkpoint, Err(Error::Poisoned { .. })), "{checkpoint:?}");
    assert_eq!(db.checkpoint_lsn(), before);
}
