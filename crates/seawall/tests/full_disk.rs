//! A database on a nearly full disk: it does what fits, refuses the rest with the reason, and deletes
//! succeed.

mod support {
    #[allow(dead_code)]
    pub(crate) mod dying_process;
}

use seawall::{Background, BuildOptions, Database, Env, Error, Options, Task, Xid};
use seawall_io::Disk;
use seawall_sim::{SimDisk, SimOptions};
use std::sync::Arc;
use support::dying_process::{DyingProcess, End};

const MIB: u64 = 1 << 20;

/// The defaults scaled down: a sixteenth of each size.
fn options() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(2 * MIB)
        .with_data_initial_size(MIB)
        .with_data_growth_step(MIB)
        .with_log_segment_size(MIB)
        .with_log_capacity(32 * MIB)
        .with_log_buffer_size(MIB)
        .with_log_space_reserve(4 * MIB)
}

fn open(sim: &Arc<SimDisk>) -> (Arc<DyingProcess>, seawall::Result<Database>) {
    open_with(sim, options())
}

fn open_with(sim: &Arc<SimDisk>, options: Options) -> (Arc<DyingProcess>, seawall::Result<Database>) {
    let disk = DyingProcess::new(sim, End::PowerCut, None);
    let clock = sim.clone();
    let env = Env { disk: disk.clone(), clock, seed: 1, background: Background::Steps };
    let db = Database::open_in(env, "/db", options);
    (disk, db)
}

fn step(db: &Database) {
    for &task in Task::ALL {
        // Growth ahead of need hits the full disk first; its failure does no harm.
        drop(db.step_task(task));
    }
    // Old versions take space until they are purged.
    while db.step_task(Task::Purge).is_ok_and(|more| more) {}
}

#[test]
fn with_little_free_space_the_log_goes_round_and_deletes_go_through() {
    // The files of a new database: data, the first log file, the doublewrite file, the control file.
    let taken = {
        let sim = SimDisk::new(SimOptions::default());
        let (_disk, db) = open(&sim);
        db.unwrap();
        SimOptions::default().capacity_bytes - sim.free_bytes("/db".as_ref()).unwrap()
    };
    for free in [2 * MIB, 4 * MIB] {
        let sim = SimDisk::new(SimOptions { capacity_bytes: taken + free, ..SimOptions::default() });
        let (disk, db) = open(&sim);
        let db = db.unwrap();
        let tree = db.create_tree("t").unwrap();
        // The first of many: less is free than the reserve, and it succeeds.
        db.transact(|tx| tx.put(&tree, b"first", b"row")).unwrap();
        let mut kept = 0u32;
        let refused = loop {
            match db.transact(|tx| tx.put(&tree, &kept.to_be_bytes(), &[5; 900])) {
                Ok(()) => kept += 1,
                Err(error) => break error,
            }
            if kept % 50 == 0 {
                step(&db);
            }
            assert!(kept < 100_000, "the disk is never full");
        };
        assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
        step(&db);
        // A megabyte of data is allocated from the start, and is used.
        assert!(kept > 300, "free {free}: only {kept} rows, then {refused}");
        // Deletes succeed and free space; in the end there was more log than its files hold: they are
        // recycled.
        let mut there = kept;
        for round in 0..2u8 {
            for i in 0..there {
                let deleted = db.transact(|tx| tx.delete(&tree, &i.to_be_bytes()));
                assert!(
                    deleted.as_ref().is_ok_and(|there| *there),
                    "free {free}, row {i} of round {round}: {deleted:?}"
                );
                if i % 50 == 0 {
                    step(&db);
                }
            }
            there = kept / 2;
            for i in 0..there {
                db.transact(|tx| tx.put(&tree, &i.to_be_bytes(), &[round; 900])).unwrap();
                step(&db);
            }
        }
        assert!(db.check().unwrap().is_empty());
        disk.dies_now();
        drop(db);
        let db = open(&sim).1.unwrap();
        let tree = db.open_tree("t").unwrap();
        assert_eq!(db.begin().unwrap().iter(&tree).count() as u32, kept / 2 + 1, "free {free}");
    }
}

/// Rows of a built tree have no headers: the first deletion in each full leaf splits it.
#[test]
fn rows_are_deleted_from_full_leaves() {
    const ROWS: u32 = 9000;
    let sim = SimDisk::new(SimOptions { capacity_bytes: 12 * MIB, ..SimOptions::default() });
    let (_disk, db) = open(&sim);
    let db = db.unwrap();
    let packed = BuildOptions { fill_percent: 100 };
    let mut tx = db.begin().unwrap();
    let tree = tx.build_tree("packed", packed, (0..ROWS).map(|i| (i.to_be_bytes(), [7; 20]))).unwrap();
    tx.commit().unwrap();
    let other = db.create_tree("other").unwrap();
    let mut filled = 0u32;
    // Until nothing that can be purged has room.
    for _ in 0..3 {
        step(&db);
        while db.transact(|tx| tx.put(&other, &filled.to_be_bytes(), &[5; 900])).is_ok() {
            filled += 1;
        }
    }
    let new = [&(ROWS / 2).to_be_bytes()[..], b"x"].concat();
    let refused = db.transact(|tx| tx.put(&tree, &new, &[1; 200])).unwrap_err();
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    for i in 0..ROWS {
        let mut tx = db.begin().unwrap();
        let deleted = tx.delete(&tree, &i.to_be_bytes());
        assert!(deleted.as_ref().is_ok_and(|there| *there), "row {i}: {deleted:?}");
        if i % 2 == 0 {
            let xid = Xid(i.to_be_bytes().to_vec());
            tx.prepare(&xid).unwrap();
            db.commit_prepared(&xid).unwrap();
        } else {
            tx.commit().unwrap();
        }
        if i % 50 == 0 {
            step(&db);
        }
    }
    step(&db);
    assert!(db.check().unwrap().is_empty());
    db.transact(|tx| tx.put(&tree, &new, &[1; 200])).unwrap();
}

#[test]
fn the_first_files_of_the_log_that_do_not_fit_are_named_at_once() {
    let sim = SimDisk::new(SimOptions { capacity_bytes: 3 * MIB, ..SimOptions::default() });
    let refused = open(&sim).1.unwrap_err();
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    assert!(refused.to_string().contains("Free space on that file system"), "{refused}");
}

/// The space of the doublewrite file is allocated at its creation, and a power cut does not release it: pages
/// can be written back on a disk that other files have filled since.
#[test]
fn room_that_was_taken_is_taken_after_a_power_cut() {
    let methods = ["fsync", "o_dsync", "o_direct", "o_direct_no_fsync", "o_direct_dsync"];
    for (seed, method) in (0..20).zip(methods.into_iter().cycle()) {
        let sim = SimDisk::new(SimOptions { seed, ..SimOptions::default() });
        let mut options = options();
        options.set("data_flush_method", method).unwrap();
        let (disk, db) = open_with(&sim, options);
        let db = db.unwrap();
        let tree = db.create_tree("t").unwrap();
        // Copies of some pages in each area: durable writes there end after space that was never written.
        for n in 0..4u32 {
            db.transact(|tx| tx.put(&tree, &n.to_be_bytes(), &[7; 3000])).unwrap();
            db.checkpoint().unwrap();
        }
        let free = || sim.free_bytes("/db".as_ref()).unwrap();
        let before = free();
        disk.dies_now();
        drop(db);
        assert_eq!(free(), before, "seed {seed}, {method}: room is given back");
    }
}
