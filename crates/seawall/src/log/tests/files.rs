//! The log's files when the system fails (no descriptor, no directory sync, no space), and the number of files.

use super::*;
use crate::log::segments::RECENT;
use seawall_io::{FlushMethod, IoError, Op, OpenHow};
use seawall_sim::{Call, Fault, FaultKind};

const EMFILE: i32 = 24;
const ENOMEM: i32 = 12;

/// Appends and flushes bodies of 30,000 bytes; checkpoints at the end of the log when `release`.
fn work(log: &Log, bodies: usize, release: bool) -> Result<()> {
    for i in 0..bodies {
        log.tend()?;
        let body = body(i, 30_000);
        let credit = loop {
            match log.try_admit(body.len())? {
                Ok(credit) => break credit,
                Err(NoRoom::Buffer) => log.make_room(body.len())?,
                Err(NoRoom::Checkpoint(lsn)) => {
                    log.flush_to(lsn)?;
                    log.release_before(lsn);
                }
            }
        };
        let reservation = log.reserve(credit, body.len());
        let end = reservation.end;
        reservation.publish(&body);
        log.flush_to(end)?;
        if release {
            log.release_before(end);
        }
    }
    Ok(())
}

fn tend_all(log: &Log) {
    while log.tend().unwrap() {}
}

#[test]
fn few_segments_are_open_however_many_there_are() {
    let machine = Machine::new(1);
    let (_process, log) = machine.create();
    let mut most = 0;
    for round in 0..60 {
        work(&log, 5, false).unwrap();
        // Not flushed: many segments have unflushed writes.
        for i in 0..20 {
            let end = append(&log, &body(i, 30_000));
            log.wait(end, Durability::Written).unwrap();
            most = most.max(log.segments.open_count());
        }
        if round % 7 == 0 {
            log.flush_to(log.head()).unwrap();
        }
        tend_all(&log);
        most = most.max(log.segments.open_count());
    }
    let (spares, live) = log.segments.numbers();
    assert!(spares.len() + live.len() >= 31, "the log is as large as it may be");
    assert!(most <= 16, "{most} segments were open at once");
}

#[test]
fn an_opening_holds_few_of_many_segments() {
    let machine = Machine::new(2);
    let (process, log) = machine.create();
    let ends: Vec<Lsn> = (0..40)
        .map(|i| {
            let end = append(&log, &body(i, 30_000));
            log.flush_to(end).unwrap();
            end
        })
        .collect();
    drop(log);
    process.crash_by(SimDisk::power_cut);
    let opens = |machine: &Machine| machine.disk.trace().entries().filter(|entry| entry.call == Call::Open).count();
    let before = opens(&machine);
    let (_process, log, bodies) = machine.reopen(FIRST_LSN, 2).unwrap();
    assert_eq!(bodies.len(), ends.len());
    assert!(log.segments.open_count() <= 6, "{}", log.segments.open_count());
    // One open to lock each segment, one to read each, and a few more.
    assert!(opens(&machine) - before <= 2 * 20 + 6, "{}", opens(&machine) - before);
}

#[test]
fn a_segment_with_its_name_that_cannot_be_opened_wedges_nothing() {
    for errno in [EMFILE, ENOMEM] {
        for recycled in [false, true] {
            let machine = Machine::new(3);
            let (_process, log) = machine.create();
            if recycled {
                work(&log, 20, true).unwrap();
            }
            let next = log.segments.numbers().1.last().unwrap() + 1;
            let path = segment_file::path_of(DIR.as_ref(), next);
            let fault = Fault::new(FaultKind::Errno(errno)).on(Op::Open).path(&path);
            machine.disk.inject(fault);
            // Background work tries again; an admission waits a little and then reports the error.
            let refused = (0..200).find_map(|_| work(&log, 1, recycled).err()).expect("this segment is needed");
            let Error::Io(e) = &refused else { panic!("{refused}") };
            assert!(e.is_not_now() && e.path == path && e.errno() == Some(errno), "{e}");
            assert!(machine.disk.seen(&path).is_some(), "it has its name");
            machine.disk.clear_faults();
            work(&log, 50, true).unwrap();
        }
    }
}

#[test]
fn no_descriptor_for_anything_new_stops_no_commit_that_was_admitted() {
    let machine = Machine::new(4);
    let (_process, log) = machine.create();
    work(&log, 8, true).unwrap();
    tend_all(&log);
    machine.disk.inject(Fault::new(FaultKind::Errno(EMFILE)).on(Op::Open));
    let mut ends = Vec::new();
    let refused = loop {
        drop(log.tend());
        match log.try_admit(30_000) {
            Ok(Ok(credit)) => {
                let reservation = log.reserve(credit, 30_000);
                ends.push(reservation.end);
                reservation.publish(&body(1, 30_000)[..30_000]);
            }
            Ok(Err(no_room)) => panic!("{no_room:?}"),
            Err(e) => break e,
        }
    };
    assert!(matches!(&refused, Error::Io(e) if e.is_not_now()), "{refused}");
    assert!(ends.len() >= 4, "two segments are ready ahead: {ends:?}");
    for end in ends {
        log.flush_to(end).unwrap();
    }
    machine.disk.clear_faults();
    work(&log, 50, true).unwrap();
}

/// Works until the database is poisoned; the first error is the sync of the log's directory, and it stays.
fn poisoned_by_directory(machine: &Machine, log: &Log, mut step: impl FnMut(&Log) -> Result<()>) {
    let is_dir = |e: &IoError| e.op == Op::Sync && e.path == std::path::Path::new(DIR);
    let error = (0..400).find_map(|_| step(log).err()).expect("the directory is synced");
    let Error::Poisoned { first_error } = &error else { panic!("{error}") };
    assert!(matches!(&**first_error, Error::Io(e) if is_dir(e)), "{first_error}");
    machine.disk.clear_faults();
    // The database stays poisoned although the directory's next sync succeeds.
    machine.disk.sync_dir(DIR.as_ref()).unwrap();
    for _ in 0..3 {
        assert!(matches!(log.tend(), Err(Error::Poisoned { .. })));
        assert!(matches!(work(log, 1, true), Err(Error::Poisoned { .. })));
    }
}

/// A fault of the sync of the log's directory only: syncs of files have their own paths.
fn fail_directory(machine: &Machine) {
    machine.disk.inject(Fault::eio().on(Op::Sync).exactly(DIR));
}

#[test]
fn a_failed_sync_of_the_directory_poisons_the_caller() {
    // A new file gets its name.
    let machine = Machine::new(5);
    let (_process, log) = machine.create();
    fail_directory(&machine);
    poisoned_by_directory(&machine, &log, |log| work(log, 1, false));
    // A used file gets its next name.
    let machine = Machine::new(6);
    let (_process, log) = machine.create();
    work(&log, 30, true).unwrap();
    tend_all(&log);
    fail_directory(&machine);
    poisoned_by_directory(&machine, &log, |log| work(log, 1, true));
    // Files are removed.
    let machine = Machine::new(7);
    let (_process, log) = machine.create();
    work(&log, 100, false).unwrap();
    tend_all(&log);
    log.flush_to(log.head()).unwrap();
    log.release_before(log.head());
    tend_all(&log);
    log.set_capacity(segments::SEGMENTS_MIN * machine.segment_bytes + 4 * MTR_BYTES_MAX as u64).unwrap();
    fail_directory(&machine);
    poisoned_by_directory(&machine, &log, |log| log.tend().map(drop));
}

#[test]
fn a_name_that_a_failed_sync_lost_is_not_relied_on() {
    for seed in 0..20 {
        let machine = Machine::new(seed);
        let (process, log) = machine.create();
        work(&log, 4, true).unwrap();
        fail_directory(&machine);
        let mut kept = 0;
        while let Ok(()) = work(&log, 1, false) {
            kept += 1;
        }
        machine.disk.clear_faults();
        drop(work(&log, 10, false));
        drop(log);
        process.crash_by(SimDisk::power_cut);
        let (_, _log, bodies) = machine.reopen(FIRST_LSN, 2).unwrap();
        assert_eq!(bodies.len(), 4 + kept, "seed {seed}: what was acknowledged is there");
    }
}

#[test]
fn the_log_returns_to_its_need() {
    let machine = Machine::new(8);
    let (_process, log) = machine.create();
    let files = |log: &Log| {
        let (spares, live) = log.segments.numbers();
        spares.len() + live.len()
    };
    // A peak: nothing is released until the log is full.
    work(&log, 80, false).unwrap();
    tend_all(&log);
    let peak = files(&log);
    assert!(peak >= 31, "{peak}");
    // Little use: the files stay while the peak is recent, and then go.
    let quiet = |log: &Log| {
        for _ in 0..10 {
            work(log, 2, true).unwrap();
            tend_all(log);
        }
    };
    quiet(&log);
    machine.clock.advance(RECENT);
    quiet(&log);
    assert_eq!(files(&log), peak, "the peak was within the last two periods");
    machine.clock.advance(RECENT);
    quiet(&log);
    let after = files(&log);
    assert!(after <= 6, "{after}");
    let removed = log.stats().segments_removed;
    assert_eq!(removed as usize, peak - after);
    // With steady use the log makes and removes no file.
    machine.clock.advance(RECENT);
    quiet(&log);
    machine.clock.advance(RECENT);
    quiet(&log);
    assert_eq!((files(&log), log.stats().segments_removed), (after, removed));
    // The next peak makes the files again.
    work(&log, 80, false).unwrap();
    assert!(files(&log) >= 31);
}

#[test]
fn the_reserve_is_for_what_the_log_cannot_do_without() {
    let reserve = 1 << 20;
    // The disk has space for the first files, and the reserve allows no more.
    let machine = Machine::with(SimOptions { capacity_bytes: reserve / 2, ..SimOptions::default() });
    let process = Arc::new(Process::new(&machine.disk));
    let config = LogConfig { reserve_bytes: reserve, ..machine.config(1) };
    let log = Log::create(process, config, Arc::default()).unwrap();
    work(&log, 40, true).unwrap();
    let files = |log: &Log| log.segments.numbers().0.len() + log.segments.numbers().1.len();
    let least = segments::files_min(machine.segment_bytes) as usize;
    assert!(least > 3 && files(&log) <= least);
    // The log rotates among these files, and the error for a mini-transaction that does not fit names the option.
    let mut admitted = Vec::new();
    let refused = loop {
        match log.try_admit(30_000) {
            Ok(Ok(credit)) => admitted.push(credit),
            Ok(Err(no_room)) => panic!("{no_room:?}"),
            Err(e) => break e.to_string(),
        }
    };
    assert!(refused.contains("and leave 1048576 free (option log_space_reserve)"), "{refused}");
    assert_eq!(files(&log), least);
    drop(admitted);
    // Without the reserve there is space for more files.
    log.set_space_reserve(0);
    work(&log, 13, false).unwrap();
    assert!(files(&log) > least);
}

#[test]
fn what_is_flushed_into_blocks_that_are_only_allocated_survives() {
    for method in [FlushMethod::ODirect, FlushMethod::ODirectDsync, FlushMethod::ODirectNoFsync] {
        let machine = Machine::new(45);
        let process = Arc::new(Process::new(&machine.disk));
        let config = LogConfig { written: false, method, ..machine.config(1) };
        let log = Log::create(process.clone(), config, Arc::default()).unwrap();
        work(&log, 60, false).unwrap();
        tend_all(&log);
        assert!(log.stats().segments_made > 3);
        process.crash_by(SimDisk::power_cut);
        drop(log);
        assert_eq!(machine.reopen(FIRST_LSN, 2).unwrap().2.len(), 60);
    }
}

/// A flush that fails leaves its pages in the page cache, clean, and the kernel may drop them at any time.
#[test]
fn what_only_the_page_cache_has_is_not_read() {
    let machine = Machine { method: FlushMethod::Fsync, ..Machine::new(46) };
    let (process, log) = machine.create();
    work(&log, 1, false).unwrap();
    tend_all(&log);
    let end = append(&log, &body(1, 20_000));
    machine.disk.inject(Fault::eio().on(Op::Sync).path(DIR).once());
    assert!(log.flush_to(end).is_err());
    drop(log);
    process.crash_by(SimDisk::process_crash);
    let read = || machine.read(Arc::new(Process::new(&machine.disk)), FIRST_LSN, 1).unwrap().0;
    let first = read();
    for path in machine.disk.list(DIR.as_ref()).unwrap() {
        let file = machine.disk.open(&path, OpenHow::default()).unwrap();
        machine.disk.drop_cache(&file, 0, 0).unwrap();
    }
    assert_eq!(first, read());
}

/// The next fill removes a file that a failed fill left behind because it could not be removed either.
#[test]
fn a_file_that_a_failed_fill_leaves_does_not_stop_the_next() {
    let machine = Machine::new(43);
    let (_process, log) = machine.create();
    work(&log, 10, false).unwrap();
    tend_all(&log);
    // Both the rename to the final name and the removal fail.
    machine.disk.inject(Fault::eio().on(Op::Directory).named("redo.????????????????.filling").times(2));
    let failed = (0..).map(|_| work(&log, 1, false)).find(Result::is_err).unwrap();
    assert!(matches!(failed, Err(Error::Io(_))), "{failed:?}");
    let left = machine.disk.list(DIR.as_ref()).unwrap();
    assert!(left.iter().any(|path| path.extension().is_some_and(|end| end == "filling")), "{left:?}");
    work(&log, 30, false).unwrap();
}

/// While a backup holds no log before the checkpoint, breaking its hold would free nothing on a full disk.
#[test]
fn a_full_disk_breaks_no_hold_without_files() {
    let machine = Machine::new(44);
    let (_process, log) = machine.create();
    let log = Arc::new(log);
    work(&log, 10, true).unwrap();
    machine.disk.inject(Fault::enospc().on(Op::Grow));
    let hold = log.hold(u64::MAX).unwrap();
    let failed = (0..).map(|_| work(&log, 1, false)).find(Result::is_err).unwrap();
    assert!(matches!(failed, Err(Error::NoSpace { .. })), "{failed:?}");
    hold.check().unwrap();
    // Once the hold has files, it is broken and the files are used.
    log.flush_to(log.head()).unwrap();
    log.release_before(log.head());
    hold.check().unwrap();
    let broken = (0..30).find_map(|_| work(&log, 1, true).and_then(|()| hold.check()).err());
    assert!(matches!(broken, Some(Error::BackupTooSlow { disk_full: true, .. })), "{broken:?}");
}

/// The files of a hold make way at once, also while a file is being made, whose next step is not due yet.
#[test]
fn a_log_that_makes_a_file_gives_way() {
    let mut machine = Machine::new(46);
    machine.segment_bytes = 4 << 20;
    machine.buffer_bytes = 32 << 20;
    let (_process, log) = machine.create();
    let log = Arc::new(log);
    let hold = log.hold(u64::MAX).unwrap();
    work(&log, 700, false).unwrap();
    log.release_before(log.head());
    hold.check().unwrap();
    // What was used lately is not kept for what comes.
    for _ in 0..3 {
        machine.clock.advance(RECENT);
        tend_all(&log);
    }
    let is_filling = || {
        let files = machine.disk.list(DIR.as_ref()).unwrap();
        files.iter().any(|path| path.extension().is_some_and(|end| end == "filling"))
    };
    for _ in 0..500 {
        work(&log, 1, false).unwrap();
        tend_all(&log);
        if is_filling() {
            break;
        }
    }
    assert!(is_filling(), "its next step is not due");
    hold.check().unwrap();
    assert!(log.give_way());
    assert!(matches!(hold.check(), Err(Error::BackupTooSlow { disk_full: true, .. })));
}

/// A mini-transaction that a full disk refused is admitted when there is space again, even with the smallest segments.
#[test]
fn space_that_is_free_again_is_found() {
    let machine = Machine::new(45);
    let (_process, log) = machine.create();
    work(&log, 6, false).unwrap();
    log.flush_to(log.head()).unwrap();
    log.release_before(log.head());
    machine.disk.inject(Fault::enospc().on(Op::Grow));
    let large = MTR_BYTES_MAX;
    assert!(matches!(log.try_admit(large), Err(Error::NoSpace { .. })));
    machine.disk.clear_faults();
    machine.clock.advance(Duration::from_secs(2));
    tend_all(&log);
    append(&log, &body(1, large - 100));
}

/// With the smallest segments, too.
#[test]
fn the_files_that_are_made_beforehand_hold_the_largest_entry() {
    let machine = Machine::new(47);
    let (_process, log) = machine.create();
    log.make_least().unwrap();
    machine.disk.inject(Fault::enospc().on(Op::Grow));
    work(&log, 60, true).unwrap();
    log.flush_to(log.head()).unwrap();
    log.release_before(log.head());
    let admitted = (0..20).any(|_| {
        machine.clock.advance(Duration::from_secs(1));
        // Where it is now, the largest entry may need another file: one that the log reaches by going on.
        work(&log, 1, true).unwrap();
        log.flush_to(log.head()).unwrap();
        log.release_before(log.head());
        log.try_admit(MTR_BYTES_MAX).is_ok_and(|admitted| admitted.is_ok())
    });
    assert!(admitted);
}

/// Space that other threads were promised and have not used yet does not count as a full disk.
#[test]
fn room_that_others_hold_is_waited_for() {
    let capacity = (64 << 10) + 4 * MTR_BYTES_MAX as u64;
    let machine = Machine { buffer_bytes: 16 * MTR_BYTES_MAX, ..Machine::new(40) };
    let (_process, log) = machine.create();
    log.set_capacity(capacity).unwrap();
    let held: Vec<_> = (0..3).map(|_| log.try_admit(MTR_BYTES_MAX).unwrap().unwrap()).collect();
    match log.try_admit(MTR_BYTES_MAX) {
        Ok(Err(NoRoom::Checkpoint(lsn))) => assert!(lsn <= log.head()),
        other => panic!("{other:?}"),
    }
    drop(held);
    assert!(log.try_admit(MTR_BYTES_MAX).unwrap().is_ok());
}

/// Background work makes files for promised log, which can lie far beyond what is written.
#[test]
fn few_segments_are_open_while_nothing_is_written() {
    let machine = Machine { buffer_bytes: 16 << 20, ..Machine::new(42) };
    let (_process, log) = machine.create();
    let mut most = 0;
    for i in 0..100 {
        append(&log, &body(i, 60_000));
        tend_all(&log);
        most = most.max(log.segments.open_count());
    }
    assert!(most <= 26, "{most} segments were open at once");
}

/// The flush method is changed for all segments or, after an error, for none.
#[test]
fn a_method_that_cannot_be_set_is_not_in_effect() {
    let machine = Machine::new(41);
    let (_process, log) = machine.create();
    work(&log, 5, false).unwrap();
    assert!(log.segments.open_count() > 1);
    machine.disk.inject(Fault::new(FaultKind::Errno(EMFILE)).on(Op::Open).nth(2).once());
    let error = log.set_method(FlushMethod::Fsync).unwrap_err();
    assert!(matches!(&error, Error::Io(e) if e.errno() == Some(EMFILE)), "{error}");
    let before = log.head().0 / machine.segment_bytes;
    while log.head().0 / machine.segment_bytes < before + 4 {
        work(&log, 1, true).unwrap();
        assert_eq!(log.mode().requested, FlushMethod::ODirect, "at {}", log.head());
    }
    log.set_method(FlushMethod::Fsync).unwrap();
    work(&log, 9, true).unwrap();
    assert_eq!(log.mode().requested, FlushMethod::Fsync);
}

/// What a segment lost while it was changed back counts, not why the change was refused.
#[test]
fn a_flush_that_fails_while_a_method_is_changed_back_poisons() {
    let machine = Machine::new(42);
    let (_process, log) = machine.create();
    work(&log, 5, false).unwrap();
    machine.disk.inject(Fault::new(FaultKind::Errno(EMFILE)).on(Op::Open).nth(2).once());
    // Changing the first segment does the first flush.
    machine.disk.inject(Fault::eio().on(Op::Sync).nth(2).once());
    assert!(matches!(log.set_method(FlushMethod::Fsync), Err(Error::Poisoned { .. })));
}
