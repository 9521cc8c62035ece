//! The control file.

use super::*;
use crate::error::{Corruption, Error};
use crate::format::FORMAT_VERSION;
use crate::format::control::{MAGIC, SLOT_BYTES, SLOT_STRIDE};
use seawall_io::{Create, Op, OpenHow, SyncHow, WriteHow};
use seawall_sim::Fault;
use std::io::IoSlice;
use std::path::PathBuf;

fn path() -> PathBuf {
    Path::new(DIR).join(CONTROL_FILE)
}

fn block() -> ControlBlock {
    ControlBlock {
        database: [9; 16],
        page_bytes: 4096,
        block_bytes: 4096,
        segment_bytes: 1 << 20,
        incarnation: 0,
        torn: Torn::Doublewrite,
        clean: true,
        checkpoint: FIRST_LSN,
        log_end: FIRST_LSN,
        next_txn: TxnId(1),
        log_incarnation: 0,
        log_buffer: 1 << 20,
    }
}

fn open(disk: &Arc<SimDisk>) -> Result<Control> {
    Control::open(Arc::new(Process::new(disk)), &path(), &Arc::default())
}

fn created(disk: &Arc<SimDisk>) -> Control {
    Control::create(Arc::new(Process::new(disk)), &path(), &Arc::default(), block()).unwrap()
}

fn overwrite(disk: &SimDisk, offset: u64, bytes: &[u8]) {
    let file = disk.open(&path(), OpenHow { write: true, create: Create::IfMissing, ..OpenHow::default() }).unwrap();
    disk.write_at(&file, offset, &[IoSlice::new(bytes)], WriteHow::default()).unwrap();
    disk.sync(&file, SyncHow::All).unwrap();
    disk.sync_dir(Path::new(DIR)).unwrap();
}

#[test]
fn what_was_written_last_is_read() {
    let disk = SimDisk::new(SimOptions::default());
    let control = created(&disk);
    assert_eq!(control.begin_incarnation(1 << 20).unwrap(), 1);
    for lsn in 0..5 {
        control.write(&ControlBlock { checkpoint: Lsn(5000 + lsn), ..control.current() }).unwrap();
        let read = open(&disk.clone_stable()).unwrap().current();
        assert_eq!((read.checkpoint, read.incarnation, read.clean), (Lsn(5000 + lsn), 1, false));
    }
}

#[test]
fn a_torn_write_leaves_the_block_before_or_the_one_after() {
    for seed in 0..60 {
        let disk = SimDisk::new(SimOptions { seed, ..SimOptions::default() });
        let process = Arc::new(Process::new(&disk));
        let control = Control::create(process.clone(), &path(), &Arc::default(), block()).unwrap();
        let mut durable = 0;
        disk.inject(Fault::eio().on([Op::Write, Op::Sync][seed as usize % 2]).nth(1 + seed / 2 % 4));
        while control.begin_incarnation(1 << 20).is_ok() {
            durable += 1;
        }
        let again = control.begin_incarnation(1 << 20).unwrap_err();
        assert!(matches!(again, Error::Io(_)), "which slot is valid is not known: {again}");
        process.crash_by(SimDisk::power_cut);
        disk.clear_faults();
        drop(control);
        let read = open(&disk).unwrap();
        assert!([durable, durable + 1].contains(&read.current().incarnation), "seed {seed}");
        // The next write does not touch the slot with the newest block.
        let before = read.current().incarnation;
        disk.inject(Fault::eio().on(Op::Write).once());
        assert!(read.begin_incarnation(1 << 20).is_err());
        drop(read);
        disk.power_cut();
        assert!([before, before + 1].contains(&open(&disk).unwrap().current().incarnation), "seed {seed}");
    }
}

#[test]
fn damage_to_one_slot_is_survived_and_to_both_is_named() {
    let disk = SimDisk::new(SimOptions::default());
    let control = created(&disk);
    control.begin_incarnation(1 << 20).unwrap();
    drop(control);
    overwrite(&disk, SLOT_STRIDE + 100, b"damage");
    assert_eq!(open(&disk).unwrap().current().incarnation, 1, "the other slot knows of the opening, too");
    overwrite(&disk, 100, b"damage");
    match open(&disk).unwrap_err() {
        Error::Corrupt(found) => match *found {
            Corruption::File { path: of, why } => assert!(of == path() && why.contains("slot 0 has checksum"), "{why}"),
            other => panic!("{other}"),
        },
        other => panic!("{other}"),
    }
}

#[test]
fn what_is_no_control_file_is_told_from_a_newer_one() {
    let disk = SimDisk::new(SimOptions::default());
    assert!(matches!(open(&disk), Err(Error::NotADatabase { .. })));
    overwrite(&disk, 0, b"something else");
    assert!(matches!(open(&disk), Err(Error::NotADatabase { .. })));
    let mut slot = vec![0; SLOT_BYTES];
    block().encode(1, &mut slot);
    page::set_u32(&mut slot, 12, FORMAT_VERSION + 1);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&MAGIC), &slot[12..]);
    page::set_u32(&mut slot, 8, crc);
    overwrite(&disk, 0, &slot);
    match open(&disk) {
        Err(Error::OtherFormat { found, supported, .. }) => {
            assert_eq!((found, supported), (FORMAT_VERSION + 1, FORMAT_VERSION));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_process_has_it_open() {
    let disk = SimDisk::new(SimOptions::default());
    let control = created(&disk);
    assert!(matches!(open(&disk), Err(Error::Locked { .. })));
    let again = Control::create(Arc::new(Process::new(&disk)), &path(), &Arc::default(), block());
    assert!(matches!(again, Err(Error::Io(e)) if e.errno() == Some(17)), "nothing is overwritten by accident");
    drop(control);
    open(&disk).unwrap();
}
