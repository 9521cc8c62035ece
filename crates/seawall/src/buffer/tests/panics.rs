//! Panics in the middle of I/O: the event that other threads wait for still happens, or the database reports that it
//! never will.

use super::hook::{At, Hook};
use super::*;
use crate::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

/// A database of twenty pages, written home, and the hook to its disk.
fn hooked(machine: &Machine) -> (Db, Arc<Hook>) {
    let process = machine.process();
    let hook = Hook::new(process.clone());
    let db = machine.create_through(hook.clone(), process).unwrap();
    db.grow_file(20).unwrap();
    for number in 0..20 {
        db.make(number, 1);
    }
    db.drop_all();
    (db, hook)
}

/// Returns the message with which `work` panics.
fn panic_of(work: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(work)).expect_err("it panics");
    panic.downcast_ref::<&str>().map_or_else(|| "another".to_owned(), |text| (*text).to_owned())
}

#[test]
fn a_panic_while_pages_are_written_poisons() {
    let planted = [
        (At::SubmitWrite, "writing pages home"),
        (At::Write(DOUBLEWRITE_FILE), "writing pages home"),
        (At::Write(CONTROL_FILE), "writing a checkpoint"),
        (At::Sync(DATA_FILE), "flushing the data file"),
    ];
    for (at, what) in planted {
        let machine = Machine::new(1);
        let (db, hook) = hooked(&machine);
        let before = db.checkpoint_lsn();
        let end = db.set(4, 0, 44);
        db.log().flush_to(end).unwrap();
        hook.before(at, || panic!("planted"));
        assert_eq!(panic_of(|| drop(db.flush_all())), "planted", "{at:?}");
        let first = db.health().first_error().expect("poisoned").to_string();
        assert!(first.contains(what) && first.contains("panicked"), "{at:?}: {first}");
        // A thread that needs log space or a clean page gets the error and does not wait.
        assert!(matches!(db.make_log_room(db.log().head()), Err(Error::Poisoned { .. })), "{at:?}");
        assert!(matches!(Mtr::begin(&db, MtrSize::Small), Err(Error::Poisoned { .. })), "{at:?}");
        assert!(db.flush_all().is_err() && db.checkpoint().is_err() && db.clean_step().is_err() && db.close().is_err());
        assert_eq!(db.checkpoint_lsn(), before, "{at:?}");
        assert_eq!(db.get(4, 0), 44, "reading goes on");
        db.process.crash_by(SimDisk::power_cut);
        drop(db);
        assert_eq!(machine.open().unwrap().get(4, 0), 44, "{at:?}");
    }
}

#[test]
fn a_panic_while_the_file_grows_poisons() {
    let machine = Machine::new(2);
    let (db, hook) = hooked(&machine);
    hook.before(At::Sync(DATA_FILE), || panic!("planted"));
    assert_eq!(panic_of(|| drop(db.grow_file(40))), "planted");
    assert!(matches!(db.grow_file(40), Err(Error::Poisoned { .. })), "its new length may not be durable");
}

#[test]
fn a_page_whose_reader_panicked_is_read_by_those_who_waited() {
    let machine = Machine::new(3);
    let (db, hook) = hooked(&machine);
    let free = db.stats().free;
    let (tell, told) = mpsc::channel();
    let waiter = std::thread::spawn({
        let pool = db.pool.clone();
        move || {
            told.recv().unwrap();
            // The reader is still in its read when this begins: this thread waits for it, or comes just after.
            pool.retry(|| Ok(cell(&pool.shared(PageId(7))?, 0))).unwrap()
        }
    });
    hook.before_page_read(move || {
        tell.send(()).unwrap();
        panic!("planted");
    });
    assert_eq!(panic_of(|| drop(db.load(PageId(7)))), "planted");
    assert_eq!(waiter.join().unwrap(), made(7, 1));
    assert_eq!(db.stats().free, free - 1, "the page takes one frame, and the reader's is free again");
    assert_eq!(db.get(7, 0), made(7, 1));
    db.health().check().unwrap();
}

#[test]
fn pages_whose_prefetcher_panicked_are_read_by_those_who_need_them() {
    let machine = Machine::new(4);
    let (db, hook) = hooked(&machine);
    hook.before(At::SubmitRead, || panic!("planted"));
    let ahead: Vec<PageId> = [3, 4, 5, 11].map(PageId).into();
    assert_eq!(panic_of(|| db.prefetch(&ahead)), "planted");
    assert_eq!(db.loads.prefetches.pages(), 0, "none is on its way");
    for number in 0..20 {
        assert_eq!(db.get(number, 0), made(number, 1));
    }
    db.prefetch(&ahead);
    db.health().check().unwrap();
}
