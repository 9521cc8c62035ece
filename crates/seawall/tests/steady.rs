//! In steady state a commit extends no file, and no write of the log causes a device read.
//!
//! 1. For every call the simulated disk reports its device work: bytes read to complete a block, bytes by
//!    which a file grew, blocks allocated. Nothing is measured, nothing depends on time.
//! 2. Steady state is when the log was filled ahead and recycled once; the background steps between the
//!    commits do not count.

use seawall::{Background, Database, Env, FlushChoice, Options, Task};
use seawall_io::FlushMethod;
use seawall_sim::{Call, SimDisk, SimOptions};
use std::path::Path;

#[allow(dead_code)] // each test uses a part of it
mod support {
    pub(crate) mod dying_process;
}
use support::dying_process::{DyingProcess, End};

fn options(method: FlushMethod) -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(512 << 10)
        .with_data_initial_size(8 << 20)
        .with_log_segment_size(64 << 10)
        .with_log_capacity(1200 << 10)
        .with_log_buffer_size(1 << 20)
        .with_log_flush_method(FlushChoice::Method(method))
        .with_data_flush_method(FlushChoice::Method(method))
}

fn is_log(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("redo."))
}

/// Background work, as its threads would do it between commits.
fn background(db: &Database) {
    for _ in 0..20 {
        let mut busy = false;
        for &task in Task::ALL {
            busy |= db.step_task(task).unwrap();
        }
        if !busy {
            return;
        }
    }
}

fn steady(method: FlushMethod, sector_bytes: u32) {
    let sim = SimDisk::new(SimOptions {
        seed: 11,
        sector_bytes: 512,
        physical_sector_bytes: sector_bytes,
        trace_entries_max: 300,
        ..SimOptions::default()
    });
    let env = Env {
        disk: DyingProcess::new(&sim, End::PowerCut, None),
        clock: sim.clone(),
        seed: 5,
        background: Background::Steps,
    };
    let db = Database::open_in(env, "/db", options(method)).unwrap();
    let tree = db.create_tree("t").unwrap();
    let change = |round: u32| {
        let mut tx = db.begin().unwrap();
        for i in 0..8u32 {
            let key = (round * 131 + i * 37) % 700;
            tx.put(&tree, &key.to_be_bytes(), &vec![round as u8; 60 + (i * 50) as usize]).unwrap();
        }
        tx
    };
    // Until the log has been recycled, and the tree has its size.
    let mut round = 0;
    while round < 360 {
        change(round).commit().unwrap();
        background(&db);
        round += 1;
    }
    let (mut written, mut commits) = (0u64, 0u64);
    while round < 520 {
        let tx = change(round);
        let before = sim.trace().len();
        tx.commit().unwrap();
        let trace = sim.trace();
        commits += 1;
        for entry in trace.since(before) {
            let what = format!(
                "{method:?}, sectors of {sector_bytes}: the commit's {:?} of {}",
                entry.call,
                entry.path.display()
            );
            assert_eq!(entry.grew, 0, "{what} extends the file");
            assert_eq!(entry.allocated, 0, "{what} allocates blocks");
            assert_ne!(entry.call, Call::Read, "{what} reads");
            if matches!(entry.call, Call::Write | Call::DurableWrite) {
                assert!(is_log(&entry.path), "{what} is no write of the log");
                assert_eq!(entry.device_read, 0, "{what} makes the device read");
                written += entry.len;
            }
        }
        background(&db);
        // The background too: the log is written, never read, and in steady state does not grow.
        for entry in sim.trace().since(trace.len()).filter(|entry| is_log(&entry.path)) {
            assert_eq!((entry.device_read, entry.grew), (0, 0), "{method:?}: {entry:?}");
        }
        round += 1;
    }
    assert!(written > 256 << 10, "the log of {commits} commits came round: {written} bytes");
}

#[test]
fn no_commit_extends_a_file_and_no_log_write_reads() {
    for method in FlushMethod::ALL {
        steady(method, 4096);
    }
    steady(FlushMethod::ODirect, 512);
}

/// While the database grows, background work extends the data file and the log.
#[test]
fn no_commit_extends_a_file_while_the_database_grows() {
    let sim = SimDisk::new(SimOptions { seed: 12, trace_entries_max: 300, ..SimOptions::default() });
    let env = Env {
        disk: DyingProcess::new(&sim, End::PowerCut, None),
        clock: sim.clone(),
        seed: 5,
        background: Background::Steps,
    };
    let growing = options(FlushMethod::ODirect).with_data_initial_size(1 << 20).with_data_growth_step(1 << 20);
    let db = Database::open_in(env, "/db", growing).unwrap();
    let tree = db.create_tree("t").unwrap();
    let len = |path: &str| sim.seen(path).unwrap().len();
    let at_start = len("/db/data");
    let mut extended = Vec::new();
    // Groups of 4K pages have three extents. The tree grows so far that the extents closed to it would add up
    // to more than is kept ahead.
    for key in 0..7000u32 {
        let before = sim.trace().len();
        let mut tx = db.begin().unwrap();
        tx.insert(&tree, &key.to_be_bytes(), &[7; 1000]).unwrap();
        let changed = sim.trace();
        for entry in changed.since(before).filter(|entry| entry.grew > 0) {
            let what = format!("{:?} of {} to {}", entry.call, entry.path.display(), entry.offset + entry.len);
            extended.push((key, what));
        }
        tx.commit().unwrap();
        for entry in sim.trace().since(changed.len()) {
            assert_eq!((entry.grew, entry.allocated), (0, 0), "a commit extends a file: {entry:?}");
        }
        background(&db);
    }
    assert!(len("/db/data") >= at_start + (1 << 20), "it has grown");
    // A change may have to extend a file before its commit: if the log is still so short that it has no room for the
    // largest mini-transaction, or if no contiguous extent is free. The log has its size after a seventh of the rows.
    assert!(
        extended.len() <= 12 && extended.iter().all(|&(key, _)| key < 1000),
        "changes that grew a file themselves though the background was never behind: {extended:?}"
    );
}
