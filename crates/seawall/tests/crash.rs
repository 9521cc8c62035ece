//! Simulated crashes: after any failure of power, process and disk, every acknowledged commit is there and
//! every other transaction is there completely or not at all.
//!
//! A seed is one run, the same on every machine. `SEEDS=n` runs more of them, `FROM=n` begins later; `SEED=n`
//! replays one with output. `MODE=Wild` (or `Rot`, `Faults`, `Crashes`) sets the mode of all seeds.
//!
//! ```text
//! SEEDS=10000 cargo test --release -p seawall --test crash -- --nocapture
//! SEED=17 cargo test -p seawall --test crash -- --nocapture
//! ```

mod support {
    pub(crate) mod damage;
    pub(crate) mod dice;
    pub(crate) mod dying_process;
    pub(crate) mod model;
    pub(crate) mod rig;
    pub(crate) mod tally;
    pub(crate) mod workload;
}
mod api {
    pub(crate) use seawall::{
        Background, Database, Durability, Env, Error, Isolation, LockWait, OnConflict, Options, OwnedCursor, Savepoint,
        Task, TemporarySavepoint, TemporaryTree, Transaction, Tree, TxOptions, Xid,
    };
    use seawall::{
        Backup, BackupOptions, BuildOptions, CompactOptions, CursorOptions, IndexEntries, IndexOptions,
        InterruptHandle, LockOrCommitted, LogPosition, Seek, TemporaryOptions,
    };
    use std::ops::ControlFlow;

    /// Steps between two commits of a burst; the longest ends with a checkpoint.
    pub(crate) const BETWEEN: [&[Task]; 4] = [&[Task::Log], &[Task::Log, Task::Checkpoint], &[Task::Clean], &[]];

    /// The findings of the check.
    pub(crate) fn check(db: &Database) -> Result<Vec<String>, Error> {
        Ok(db.check()?.into_iter().map(|finding| format!("{finding:?}")).collect())
    }

    /// Dirty pages that left memory without a write.
    pub(crate) fn pages_deferred(db: &Database) -> u64 {
        db.stats().pool.evictions_deferred
    }

    /// Compacts until `go_on` returns false or fails; returns how many leaves it moved.
    pub(crate) fn compact(
        db: &Database,
        tree: &Tree,
        fill_percent: u32,
        mut go_on: impl FnMut() -> Result<bool, Error>,
    ) -> Result<u64, Error> {
        let (options, mut failed) = (CompactOptions { fill_percent, ..CompactOptions::default() }, None);
        let done = db.compact_with(tree, options, |_| match go_on() {
            Ok(true) => ControlFlow::Continue(()),
            Ok(false) => ControlFlow::Break(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })?;
        failed.map_or(Ok(done.done.moved), Err)
    }

    /// Moves pages down and truncates the file until `go_on` returns false or fails; returns pages moved,
    /// rows written again, and bytes released. The argument of `go_on` tells whether rows were written again.
    pub(crate) fn shrink(
        db: &Database,
        mut go_on: impl FnMut(bool) -> Result<bool, Error>,
    ) -> Result<(u64, u64, u64), Error> {
        let mut failed = None;
        let done = db.shrink_with(|done| match go_on(done.rewritten > 0) {
            Ok(true) => ControlFlow::Continue(()),
            Ok(false) => ControlFlow::Break(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })?;
        let bytes = done.before_bytes.saturating_sub(done.after_bytes);
        failed.map_or(Ok((done.done.moved, done.done.rewritten, bytes)), Err)
    }

    /// Releases the lock of a row that was just read with a lock; false if the lock was not new.
    pub(crate) fn give_back(tx: &Transaction, tree: &Tree, key: &[u8]) -> bool {
        tx.unlock_row(tree, key).expect("the tree is this database's")
    }

    /// Deletes the first or last row that it sees; returns its key, and whether it still existed.
    pub(crate) fn pop(tx: &mut Transaction, tree: &Tree, front: bool) -> Result<Option<Popped>, Error> {
        let mut cursor = tx.cursor_mut(tree, CursorOptions::default());
        if !cursor.seek(if front { Seek::First } else { Seek::Last })? {
            return Ok(None);
        }
        let key = cursor.key().to_vec();
        Ok(Some((key, cursor.delete())))
    }

    /// Builds a tree from sorted rows.
    pub(crate) fn build(
        tx: &mut Transaction,
        name: &str,
        rows: &[(Vec<u8>, std::sync::Arc<[u8]>)],
    ) -> Result<Tree, Error> {
        let rows = rows.iter().map(|(key, value)| (key, value));
        tx.build_tree(name, BuildOptions::default(), rows)
    }

    /// Builds a tree with the rows of another: an index of the simplest kind.
    pub(crate) fn index(db: &Database, base: &Tree, name: &str, mut during: impl FnMut()) -> Result<Tree, Error> {
        let options = IndexOptions { sort_bytes: 20_000, ..IndexOptions::default() };
        let entries = |key: &[u8], value: &[u8], index: &mut IndexEntries| {
            during();
            index.push(key, value);
        };
        db.build_index(base, name, options, entries, |_| Ok(()))
    }

    /// Resets a cursor, which may come from another transaction or tree.
    pub(crate) fn reset(cursor: &mut OwnedCursor, tree: &Tree) {
        cursor.reset(tree, CursorOptions::default(), ..);
    }

    /// The first entry at or after `key`, or the last one at or before it.
    pub(crate) fn seek(cursor: &mut OwnedCursor, tx: &Transaction, key: &[u8], front: bool) -> Result<bool, Error> {
        cursor.seek(tx, if front { Seek::AtLeast(key) } else { Seek::AtMost(key) })
    }

    /// The key of a row that was found, and whether it still existed for the deletion.
    pub(crate) type Popped = (Vec<u8>, Result<bool, Error>);

    /// An ordered commit does no I/O.
    pub(crate) const ORDERED_WITHOUT_IO: bool = true;

    /// Prepares, and keeps the transaction open; returns the position in the log where the preparation ends.
    pub(crate) fn prepare_in_place(tx: &mut Transaction, xid: &Xid, level: Durability) -> Result<u64, Error> {
        tx.prepare_in_place(xid, level).map(LogPosition::as_u64)
    }

    pub(crate) fn commit_ordered(tx: &mut Transaction, _xid: &Xid) -> Result<(), Error> {
        tx.commit_ordered().map(drop)
    }

    /// Ends a transaction prepared in place like any other transaction.
    pub(crate) fn end_in_place(tx: Transaction, _xid: &Xid, commit: bool) -> Result<(), Error> {
        if commit { tx.commit_with(Durability::Flushed) } else { tx.rollback() }
    }

    /// The prepared transactions without an open object: those held open are not listed.
    pub(crate) fn prepared(db: &Database, _held: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        db.prepared().into_iter().map(|xid| xid.0).collect()
    }

    pub(crate) fn flush_log(db: &Database) -> Result<(), Error> {
        db.flush_log().map(drop)
    }

    pub(crate) fn flush_log_to(db: &Database, position: u64) -> Result<(), Error> {
        db.flush_log_to(LogPosition::from_u64(position))
    }

    /// Registers `call`: it is called when the whole current log is durable (true), or never will be.
    pub(crate) fn on_durable(db: &Database, call: impl FnOnce(bool) + Send + 'static) -> Result<(), Error> {
        db.on_durable(db.log_position(), move |durable| call(durable.is_ok()))
    }

    /// The row, and whether it is locked now; else its committed version.
    pub(crate) fn lock_or_committed(
        tx: &Transaction,
        tree: &Tree,
        key: &[u8],
    ) -> Result<(Option<Vec<u8>>, bool), Error> {
        Ok(match tx.lock_or_committed(tree, key)? {
            LockOrCommitted::Locked(row) => (row.value, true),
            LockOrCommitted::Committed(value) => (value, false),
        })
    }

    pub(crate) fn backup_begin(db: &Database, dir: &str, base: Option<&str>) -> Result<Backup, Error> {
        let incremental_from = base.map(Into::into);
        db.backup_begin(dir, &BackupOptions { rate: 0, incremental_from, ..BackupOptions::default() })
    }

    /// Returns whether all pages are copied.
    pub(crate) fn backup_step(backup: &mut Backup, bytes_max: u64) -> Result<bool, Error> {
        Ok(backup.step(bytes_max)?.done)
    }

    pub(crate) fn backup_end(backup: Backup) -> Result<(), Error> {
        backup.end().map(drop)
    }

    pub(crate) fn restore(env: &Env, from: &[String], to: &str) -> Result<(), Error> {
        Database::restore_in(env, from, to).map(drop)
    }

    /// How other threads interrupt a transaction.
    pub(crate) struct Interrupt(InterruptHandle);

    impl Interrupt {
        pub(crate) fn of(tx: &Transaction) -> Self {
            Self(tx.interrupt_handle())
        }

        pub(crate) fn raise(&self) {
            self.0.interrupt();
        }

        pub(crate) fn clear(&self) {
            self.0.clear();
        }
    }

    pub(crate) fn temporary_tree(db: &Database, memory_bytes: u64) -> Result<TemporaryTree, Error> {
        db.temporary_tree(TemporaryOptions { memory_bytes })
    }

    /// All rows of a temporary tree that is whole.
    pub(crate) fn temporary_rows(tree: &TemporaryTree) -> Result<Vec<seawall::KeyValue>, Error> {
        let wrong = tree.check()?;
        assert!(wrong.is_empty(), "a temporary tree is damaged: {wrong:?}");
        tree.range(..)?.collect()
    }

    /// Shuts the database down while another handle exists, which is then unusable.
    pub(crate) fn shut_down(db: &Database) -> Result<(), Error> {
        let other = db.clone();
        db.shutdown()?;
        for refused in [other.begin().map(drop), db.flush_log().map(drop), other.create_tree("late").map(drop)] {
            assert!(matches!(refused, Err(Error::ShutDown)), "it is shut down: {refused:?}");
        }
        Ok(())
    }

    /// The end of the log.
    pub(crate) fn head(db: &Database) -> u64 {
        db.stats().log.head_lsn
    }

    pub(crate) fn grow(db: &Database, bytes: u64) -> Result<(), Error> {
        db.grow(bytes).map(drop)
    }

    pub(crate) fn set(db: &Database, option: &str, value: &str) -> Result<(), Error> {
        db.set(option, value)
    }
}

use api::Options;
use seawall::mutants::{Mutant, plant};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::dice::Choice;
use support::rig::{Mode, Size, run};
use support::tally::Tally;

/// A seed that takes longer is considered hung.
const HANGS_AFTER: Duration = Duration::from_secs(300);

fn mode(seed: u64) -> Mode {
    if let Ok(name) = std::env::var("MODE") {
        let all = [Mode::Crashes, Mode::Faults, Mode::Rot, Mode::Wild];
        let of_name = all.into_iter().find(|mode| format!("{mode:?}") == name);
        return of_name.unwrap_or_else(|| panic!("MODE={name}: one of {all:?}"));
    }
    match seed % 10 {
        7 => Mode::Faults,
        8 => Mode::Rot,
        9 if seed % 20 == 9 => Mode::Wild,
        9 => Mode::Faults,
        _ => Mode::Crashes,
    }
}

/// The weight of compactions among the operations.
fn compactions(seed: u64) -> u64 {
    number("COMPACTIONS").unwrap_or(if Choice::Compactions.of(seed) % 4 == 1 { 40 } else { 2 })
}

/// The weight of bursts of deferred commits.
fn bursts(seed: u64) -> u64 {
    number("BURSTS").unwrap_or(if Choice::Bursts.of(seed) % 3 == 2 { 8 } else { 0 })
}

fn size(seed: u64, compactions: u64) -> Size {
    let (rounds, steps) = if cfg!(debug_assertions) { (4, 2000) } else { (6, 6000) };
    // Seeds older than compactions are older than bursts.
    let bursts = if compactions == 0 { 0 } else { bursts(seed) };
    let newer = compactions != 0 && number("NEWER") != Some(0);
    let wider = newer && number("WIDER") != Some(0);
    Size { rounds, steps, compactions, bursts, kept: compactions == 0, newer, wider }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

fn one(seed: u64, compactions: u64, aloud: bool) -> Result<(Tally, u64), String> {
    let answer =
        catch_unwind(AssertUnwindSafe(|| run(seed, mode(seed), size(seed, compactions), &Options::default(), aloud)));
    answer.unwrap_or_else(|_| Err(format!("seed {seed}: the engine panics, see above")))
}

/// The number of seeds from `from` on until a defect is found, and its symptom.
fn until_found(mutant: Mutant, from: u64, at_most: u64) -> Option<(u64, String)> {
    (0..at_most).find_map(|nth| {
        // Some mutants show only on a disk that rots: only such seeds count.
        let rots = matches!(mutant, Mutant::PageUnchecked | Mutant::UnprovenEnd);
        let seed = if rots { (from + nth) * 10 + 8 } else { from + nth };
        let answer = plant(Some(mutant), || one(seed, compactions(seed), false));
        answer.err().map(|why| (nth + 1, symptom(&why)))
    })
}

/// The kind of failure, without details.
fn symptom(why: &str) -> String {
    let line = why.lines().next().unwrap_or_default();
    let known = [
        ("the engine panics", "a panic"),
        ("after the opening: lost", "an acknowledged commit is lost"),
        ("after the opening: no prefix", "after an opening the contents are of no moment"),
        ("it does not open", "the database does not open"),
        ("check finds", "`check` finds damage"),
        ("unexpected error", "an operation fails for no reason"),
        ("unexpected:", "an operation fails for no reason"),
    ];
    let found = known.iter().find(|(text, _)| line.contains(text));
    found.map_or_else(|| "a read or a lock answers wrongly".into(), |(_, symptom)| (*symptom).into())
}

/// The mutants that few seeds find; the others are for `make mutants`.
#[test]
fn some_mutants_are_found() {
    for mutant in [
        Mutant::LosersStay,
        Mutant::EarlyAcknowledgement,
        Mutant::PurgeEarly,
        Mutant::RevivedPurged,
        Mutant::GhostTail,
        Mutant::DeferredCutOff,
        Mutant::DeferredTwice,
        Mutant::DeferredBackward,
    ] {
        assert!(until_found(mutant, 0, 300).is_some(), "{mutant:?} is not found");
    }
}

/// The feature is on only in this crate's tests: no other build can reach a defect.
#[test]
fn only_tests_can_plant_mutants() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for crate_dir in std::fs::read_dir(root).unwrap() {
        let manifest = crate_dir.unwrap().path().join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).unwrap();
        let manifest: toml::Table = text.parse().unwrap_or_else(|e| panic!("{}: {e}", manifest.display()));
        let on = |value: &toml::Value| value.get("features").is_some_and(|all| all.to_string().contains("mutants"));
        let name = manifest["package"]["name"].as_str().unwrap();
        for section in ["dependencies", "build-dependencies"] {
            let table = manifest.get(section).and_then(toml::Value::as_table);
            for (dependency, value) in table.into_iter().flatten() {
                assert!(!on(value), "{name} turns the mutants of {dependency} on in ordinary builds");
            }
        }
        let default = manifest.get("features").and_then(|features| features.get("default"));
        assert!(!default.is_some_and(|default| default.to_string().contains("mutants")), "{name} has them by default");
    }
}

/// Every mutant, from several first seeds: the number of seeds needed. `make mutants`.
#[test]
#[ignore = "takes minutes in a release build: make mutants"]
fn every_mutant_is_found() {
    let (from, at_most) = (number("FROM").unwrap_or(0), number("SEEDS").unwrap_or(1000));
    let beginnings = number("BEGINNINGS").unwrap_or(5);
    let wanted = std::env::var("MUTANT").ok();
    let mutants: Vec<Mutant> = Mutant::ALL
        .into_iter()
        .filter(|mutant| wanted.as_ref().is_none_or(|wanted| format!("{mutant:?}") == *wanted))
        .collect();
    let jobs: Vec<(usize, u64)> = (0..mutants.len()).flat_map(|m| (0..beginnings).map(move |b| (m, b))).collect();
    let (next, found) = (AtomicU64::new(0), Mutex::new(vec![Vec::new(); mutants.len()]));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((mutant, nth)) = jobs.get(next.fetch_add(1, Ordering::SeqCst) as usize) {
                    let one = until_found(mutants[*mutant], from + nth * at_most, at_most);
                    if wanted.is_some() {
                        println!("{:?} from {}: {one:?}", mutants[*mutant], from + nth * at_most);
                    }
                    found.lock().unwrap()[*mutant].push(one);
                }
            });
        }
    });
    println!("| mutant | seeds until it is found, median | at most | what shows it most often |\n|---|---|---|---|");
    let mut missed = Vec::new();
    for (mutant, mut runs) in mutants.iter().zip(found.into_inner().unwrap()) {
        runs.sort_by_key(|run| run.as_ref().map_or(u64::MAX, |(seeds, _)| *seeds));
        let seeds = |run: &Option<(u64, String)>| run.as_ref().map_or("-".into(), |(seeds, _)| seeds.to_string());
        let mut symptoms: Vec<(usize, &String)> = Vec::new();
        for (_, symptom) in runs.iter().flatten() {
            match symptoms.iter_mut().find(|(_, known)| *known == symptom) {
                Some((times, _)) => *times += 1,
                None => symptoms.push((1, symptom)),
            }
        }
        let most = symptoms.iter().max_by_key(|(times, _)| *times).map_or("", |(_, symptom)| symptom);
        println!("| `{mutant:?}` | {} | {} | {most} |", seeds(&runs[runs.len() / 2]), seeds(&runs[runs.len() - 1]));
        if runs.iter().any(Option::is_none) {
            missed.push(mutant);
        }
    }
    assert!(missed.is_empty(), "not found within {at_most} seeds from every beginning: {missed:?}");
}

fn replay(seed: u64) -> String {
    let release = if cfg!(debug_assertions) { "" } else { "--release " };
    format!("replay: SEED={seed} cargo test {release}-p seawall --test crash no_acknowledged -- --nocapture")
}

#[test]
fn no_acknowledged_commit_is_lost() {
    if let Some(seed) = number("SEED") {
        let (tally, _) = one(seed, compactions(seed), true).unwrap_or_else(|why| panic!("{why}\n{}", replay(seed)));
        println!("seed {seed} passes: {tally:?}");
        return;
    }
    let (from, seeds) = (number("FROM").unwrap_or(0), number("SEEDS").unwrap_or(300));
    println!("FROM={from} SEEDS={seeds}");
    let (next, failed, total) = (AtomicU64::new(from), AtomicBool::new(false), Mutex::new(Tally::default()));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let begun = Instant::now();
    let failures: Mutex<Vec<(u64, String)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while !failed.load(Ordering::SeqCst) {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= from + seeds {
                        return;
                    }
                    let done = AtomicBool::new(false);
                    let answer = std::thread::scope(|inner| {
                        let watch = inner.spawn(|| {
                            let began = Instant::now();
                            while !done.load(Ordering::SeqCst) {
                                std::thread::park_timeout(Duration::from_secs(1));
                                if began.elapsed() > HANGS_AFTER {
                                    eprintln!("seed {seed} hangs\n{}", replay(seed));
                                    std::process::abort();
                                }
                            }
                        });
                        let answer = one(seed, compactions(seed), false);
                        done.store(true, Ordering::SeqCst);
                        watch.thread().unpark();
                        answer
                    });
                    match answer {
                        Ok((tally, _)) => total.lock().unwrap().add(tally),
                        Err(why) => {
                            failed.store(true, Ordering::SeqCst);
                            failures.lock().unwrap().push((seed, why));
                        }
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    if let Some((seed, why)) = failures.into_iter().next() {
        panic!("{why}\n{}", replay(seed));
    }
    let (took, tally) = (begun.elapsed(), total.into_inner().unwrap());
    println!("{seeds} seeds in {took:.1?}: {:.1} seeds per second; {tally:#?}", seeds as f64 / took.as_secs_f64());
}

/// The commit that fixed each failure describes it. The seeds are older than compactions, and run without
/// them. Release builds take more steps a seed than debug ones.
#[test]
fn seeds_that_failed_once_pass() {
    const SEEDS: [u64; 13] = [19, 90, 164, 178, 267, 299, 307, 500, 1777, 3297, 3877, 4097, 6827];
    for seed in SEEDS {
        one(seed, 0, false).unwrap_or_else(|why| panic!("{why}\nCOMPACTIONS=0 {}", replay(seed)));
    }
    // With everything that the rig did before interrupts and increments.
    const LATER: [(u64, Mode); 7] = [
        (500_104, Mode::Faults),
        (500_127, Mode::Faults),
        (502_177, Mode::Faults),
        (505_077, Mode::Faults),
        (2_026_112_203_698, Mode::Rot),
        (2_026_112_220_102, Mode::Crashes),
        (1_420_148, Mode::Rot),
    ];
    for (seed, mode) in LATER {
        let size = Size { newer: false, wider: false, ..size(seed, compactions(seed)) };
        run(seed, mode, size, &Options::default(), false)
            .unwrap_or_else(|why| panic!("{why}\nNEWER=0 MODE={mode:?} {}", replay(seed)));
    }
    // With everything that the rig did before large pages and unique prefixes.
    const NEWER: [(u64, Mode); 7] = [
        (2_026_112_239_729, Mode::Wild),
        (555_013_872, Mode::Crashes),
        (1_193_007_217, Mode::Faults),
        (91_501_189, Mode::Wild),
        (991_123_132, Mode::Crashes),
        (95_001_797, Mode::Faults),
        (7_711_882_218_217, Mode::Faults),
    ];
    for (seed, mode) in NEWER {
        let size = Size { wider: false, ..size(seed, compactions(seed)) };
        run(seed, mode, size, &Options::default(), false)
            .unwrap_or_else(|why| panic!("{why}\nWIDER=0 MODE={mode:?} {}", replay(seed)));
    }
    // A short write cut a page that the simulated device writes whole, and the process died before the rest.
    let latest = 182_911_800_407;
    one(latest, compactions(latest), false).unwrap_or_else(|why| panic!("{why}\n{}", replay(latest)));
}

/// Runs again in this process, on a thread with another number: a run depends neither on earlier work of the
/// process nor on its thread.
#[test]
fn a_seed_is_one_run() {
    for seed in (0..20).chain(400_000..400_010) {
        let once = || one(seed, compactions(seed), false).unwrap_or_else(|why| panic!("{why}\n{}", replay(seed)));
        let (_, first) = once();
        let (_, second) = std::thread::scope(|scope| scope.spawn(once).join().unwrap());
        assert_eq!(first, second, "seed {seed} asks something else of the disk the second time");
    }
}
