//! Crashes everywhere: the pages hold exactly what is in the recovered log, whole mini-transactions at a
//! time.

use super::hook::Hook;
use super::*;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seawall_sim::Fault;
use std::collections::BTreeMap;

const PAGES: u32 = 60;

/// A mini-transaction, as the test remembers it: page, cell (`None`: all), value.
type Change = Vec<(u32, Option<usize>, u64)>;

#[derive(Debug, Default)]
struct History {
    /// By the LSN at which they end.
    changes: Vec<(Lsn, Change)>,
    /// The flushed position: everything up to it is acknowledged.
    acknowledged: Lsn,
}

impl History {
    /// Returns the contents of the pages after all mini-transactions that end no later than `end`.
    fn pages(&self, end: Lsn) -> BTreeMap<u32, Vec<u64>> {
        let mut pages = BTreeMap::new();
        for (_, change) in self.changes.iter().filter(|(at, _)| *at <= end) {
            for &(page, cell, value) in change {
                let cells: &mut Vec<u64> = pages.entry(page).or_default();
                match cell {
                    None => *cells = vec![value; CELLS],
                    Some(cell) => cells[cell] = value,
                }
            }
        }
        pages
    }
}

/// Does up to `steps` random operations, until one fails.
fn work(db: &Db, rng: &mut Pcg64Mcg, history: &mut History, steps: usize) -> Result<()> {
    let mut known: Vec<u32> = history.pages(Lsn(u64::MAX)).into_keys().collect();
    for _ in 0..steps {
        match rng.random_range(0..20) {
            0..4 => {
                let (page, low) = (rng.random_range(0..PAGES), rng.random_range(0..1000));
                let end = db.try_change(|mtr| {
                    let held = mtr.fresh(PageId(page))?;
                    Ok(move |mtr: &mut Mtr<'_>| mtr.run(held, &Make(made(page, low))))
                })?;
                history.changes.push((end, vec![(page, None, made(page, low))]));
                if !known.contains(&page) {
                    known.push(page);
                }
            }
            4..14 if !known.is_empty() => {
                // One to three pages at once.
                let mut pages: Vec<u32> =
                    (0..rng.random_range(1..=3)).map(|_| known[rng.random_range(0..known.len())]).collect();
                pages.sort_unstable();
                pages.dedup();
                let (at, value) = (rng.random_range(0..CELLS), rng.random());
                let end = db.try_change(|mtr| {
                    let held = pages.iter().map(|&page| mtr.latch(PageId(page))).collect::<Result<Vec<_>, _>>()?;
                    Ok(move |mtr: &mut Mtr<'_>| held.iter().for_each(|&held| mtr.run(held, &Set { cell: at, value })))
                })?;
                history.changes.push((end, pages.iter().map(|&page| (page, Some(at), value)).collect()));
            }
            14 => {
                let frames = db.frames.span();
                let from = rng.random_range(0..frames);
                db.clean_frames(from..frames.min(from + 20), usize::MAX)?;
            }
            15 => drop(db.evict(rng.random_range(1..20), true)),
            16 => drop(db.checkpoint()?),
            17 => {
                let lsn = history.changes.last().map_or(Lsn::ZERO, |(end, _)| *end);
                db.log().flush_to(lsn)?;
                history.acknowledged = lsn;
            }
            18 => {
                let first = rng.random_range(0..PAGES);
                db.prefetch(&(first..first + 6).map(PageId).collect::<Vec<_>>());
            }
            _ => {
                db.clean_step()?;
                db.log().tend()?;
            }
        }
    }
    Ok(())
}

/// Recovers, and compares with the expected contents.
fn check(machine: &Machine, history: &mut History, seed: u64) -> Db {
    let db = machine.open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert!(db.recovered >= history.acknowledged, "seed {seed}: acknowledged log is gone");
    history.changes.retain(|(end, _)| *end <= db.recovered);
    for (page, cells) in history.pages(db.recovered) {
        let found = db.pool.retry(|| {
            let page = db.pool.shared(PageId(page))?;
            Ok((0..CELLS).map(|at| cell(&page, at)).collect::<Vec<_>>())
        });
        assert_eq!(found.unwrap_or_else(|error| panic!("seed {seed}: {error}")), cells, "seed {seed}: page {page}");
    }
    db
}

fn crash_and_recover(seed: u64) -> u64 {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let methods = [
        FlushMethod::ODirect,
        FlushMethod::ODirectNoFsync,
        FlushMethod::Fsync,
        FlushMethod::ODirectDsync,
        FlushMethod::ODsync,
    ];
    let options = SimOptions { seed, ..SimOptions::default() };
    let machine = Machine { method: methods[seed as usize % 5], frames: 24, frames_max: 24, ..Machine::with(options) };
    let mut history = History::default();
    let mut db = machine.create();
    db.grow_file(PAGES).unwrap();
    for round in 0..3 {
        // The operation at which the machine crashes fails, in the middle of the work in progress.
        let number = machine.disk.trace().len() + rng.random_range(20..900);
        machine.disk.inject(Fault::eio().at_op(number));
        // The fault may hit an operation that can fail without an error here.
        drop(work(&db, &mut rng, &mut history, 400));
        if rng.random_range(0..3) == 0 {
            db.process.crash_by(SimDisk::process_crash);
        } else {
            db.process.crash_by(SimDisk::power_cut);
        }
        machine.disk.clear_faults();
        drop(db);
        db = check(&machine, &mut history, seed);
        history.acknowledged = db.recovered;
        if round == 1 {
            db.flush_all().unwrap();
        }
    }
    machine.disk.trace().hash()
}

/// Trap 20: with one thread, a seed is a run.
#[test]
fn a_seed_replays_every_operation() {
    assert_eq!(crash_and_recover(7), crash_and_recover(7));
}

#[test]
fn a_crash_anywhere_leaves_what_the_log_says() {
    // To run more seeds by hand: SEAWALL_SEEDS=1000.
    let seeds = std::env::var("SEAWALL_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(16);
    // 239, 346: a page that was away was made anew, and a checkpoint passed the log of its older changes.
    for seed in (0..seeds).chain([44, 239, 345, 346]) {
        crash_and_recover(seed);
    }
}

/// Trap 17: a page that is changed between the copy and the end of the write stays dirty.
#[test]
fn a_change_during_the_write_is_not_forgotten() {
    let machine = Machine::new(1);
    let process = machine.process();
    let hook = Hook::new(process.clone());
    let db = Arc::new(machine.create_through(hook.clone(), process).unwrap());
    db.grow_file(4).unwrap();
    db.make(0, 1);
    db.flush_all().unwrap();
    let first = db.set(0, 0, 100);
    let during = db.clone();
    hook.before_page_write(move || {
        assert!(during.checkpoint().unwrap() < first, "the write in flight holds the checkpoint");
        // The page is being written, and not latched.
        let end = during.set(0, 1, 101);
        during.log().flush_to(end).unwrap();
    });
    assert_eq!(db.clean_frames(0..64, usize::MAX).unwrap(), 1);
    assert_eq!(db.stats().dirty, 1, "changed since the copy");
    assert!(db.checkpoint().unwrap() < db.log().head(), "the second change is not home");
    assert_eq!(db.evict(100, true), 0, "nor is the page dropped");
    db.process.crash_by(SimDisk::power_cut);
    drop(db);
    let db = machine.open().unwrap();
    assert_eq!((db.get(0, 0), db.get(0, 1)), (100, 101));
}

/// No latch that others need is held across a read.
#[test]
fn pages_are_used_and_others_read_while_one_is_read() {
    let machine = Machine::new(2);
    let process = machine.process();
    let hook = Hook::new(process.clone());
    let db = Arc::new(machine.create_through(hook.clone(), process).unwrap());
    db.grow_file(40).unwrap();
    for number in 0..40 {
        db.make(number, 1);
    }
    db.drop_all();
    db.get(1, 0);
    let during = db.clone();
    hook.before_page_read(move || {
        during.set(1, 0, 5);
        assert_eq!(during.get(9, 0), made(9, 1));
        during.flush_all().unwrap();
        assert!(during.pool.shared(PageId(7)).is_err());
    });
    assert_eq!(db.get(7, 0), made(7, 1));
    assert_eq!(db.get(1, 0), 5);
}

#[test]
fn a_small_log_goes_round_without_background_work() {
    let machine = Machine { log_bytes: 1 << 20 | 256 << 10, ..Machine::new(3) };
    let db = machine.create();
    db.grow_file(30).unwrap();
    for number in 0..30 {
        db.make(number, 1);
    }
    for round in 0..4000u64 {
        db.change(|mtr| {
            let held = mtr.latch(PageId((round % 30) as u32))?;
            Ok(move |mtr: &mut Mtr<'_>| (0..40).for_each(|cell| mtr.run(held, &Set { cell, value: round })))
        });
    }
    let stats = db.stats();
    assert!(db.log().head().0 > 2 * machine.log_bytes, "round it went: {}", db.log().head());
    assert!(stats.log_waits > 0 && stats.checkpoints > 0 && stats.checkpoint_age <= machine.log_bytes, "{stats:?}");
    db.process.crash_by(SimDisk::power_cut);
    drop(db);
    machine.open().unwrap();
}

/// Writes of killed processes complete at any later time; the locks of the files hold the successor back
/// (trap 7).
#[test]
fn a_successor_waits_for_its_predecessors_writes() {
    let machine = Machine::new(4);
    let db = machine.create();
    assert!(matches!(machine.open(), Err(crate::Error::Locked { .. })), "one process at a time");
    db.process.crash_by(SimDisk::process_crash);
    drop(db);
    machine.open().unwrap();
    assert_eq!(machine.disk.late_writes(), 0);
}
