//! A real process under load, on real files, killed with SIGKILL at a random moment; the database is then
//! opened and verified.
//!
//! 1. Acknowledged commits are there as promised: at `Flushed` and `Written` all of them, at `Deferred` all
//!    but those of the last flush interval.
//! 2. An unacknowledged transaction is there completely or not at all, over two trees and long values; money
//!    is neither created nor lost.
//! 3. `check` finds no damage.
//!
//! The workload is this file too: the test starts itself again as the victim. It sends acknowledgements
//! through a pipe, which survives it. Three rounds by default; `make kill9 ROUNDS=100` for more.
//! `SEAWALL_KILL9_SEED` repeats the moments of the kills, though not what they hit.

use seawall::{Database, Durability, Error, OnConflict, Options, Transaction, Tree, TxOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const DIR: &str = "SEAWALL_KILL9_DIR";
const RING: &str = "SEAWALL_KILL9_RING";
const THREADS: u64 = 6;
const LEVELS: [Durability; 3] = [Durability::Flushed, Durability::Written, Durability::Deferred];
const INTERVAL: Duration = Duration::from_millis(100);
/// How late the flush of an idle log may be on an overloaded machine.
const LATE: Duration = Duration::from_secs(2);
/// Entries of a transaction, and transactions whose entries are kept.
const ENTRIES: u64 = 4;
const KEPT: u64 = 12;
const ACCOUNTS: u64 = 40;

fn options(ring_dir: &str) -> Options {
    // In memory that needs no disk, a ring in which more is unwritten than recovery holds at a time.
    let more = if ring_dir.starts_with("/dev/shm") { 8 } else { 1 };
    Options::default()
        .with_page_size(4096)
        .with_pool_size(512 << 10)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(256 << 10)
        .with_log_capacity(more * (2 << 20))
        .with_log_buffer_size(more * (1 << 20))
        .with_flush_interval(INTERVAL)
        .with_log_ring_dir(ring_dir.into())
}

fn level(thread: u64) -> Durability {
    LEVELS[thread as usize % LEVELS.len()]
}

fn key(parts: [u64; 3]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.to_be_bytes()).collect()
}

/// Every eleventh transaction has a value of several pages.
fn value([thread, n, j]: [u64; 3]) -> Vec<u8> {
    let len = if j == 0 && n % 11 == 0 { 15_000 } else { 40 + (n * 7 + j * 13) % 200 };
    (0..len).map(|i| (i ^ n ^ (thread << 4) ^ j) as u8).collect()
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

struct Trees {
    entries: Tree,
    counters: Tree,
    accounts: Tree,
}

impl Trees {
    fn of(db: &Database) -> seawall::Result<Self> {
        let trees = Self {
            entries: db.create_tree("entries")?,
            counters: db.create_tree("counters")?,
            accounts: db.create_tree("accounts")?,
        };
        if db.begin()?.iter(&trees.accounts).next().is_none() {
            db.transact(|tx| {
                (0..ACCOUNTS).try_for_each(|a| tx.put(&trees.accounts, &a.to_be_bytes(), &1000u64.to_le_bytes()))
            })?;
        }
        Ok(trees)
    }

    fn counter(&self, tx: &Transaction, thread: u64) -> seawall::Result<u64> {
        Ok(tx.get(&self.counters, &thread.to_be_bytes())?.map_or(0, |bytes| number(&bytes)))
    }
}

// --- the victim ----------------------------------------------------------------------------------------

/// Not a test: the process that is killed.
#[test]
#[ignore = "the workload of the other test"]
fn victim() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let ring_dir = std::env::var(RING).unwrap();
    let db = Database::open_with(Path::new(&dir), options(&ring_dir)).unwrap();
    let trees = Trees::of(&db).unwrap();
    // Never committed: none of it may ever be seen.
    let mut open = db.begin().unwrap();
    open.put(&trees.entries, &key([u64::MAX, 0, 0]), &[1; 9_000]).unwrap();
    let out = Mutex::new(std::io::stdout());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, trees, out) = (&db, &trees, &out);
            scope.spawn(move || {
                let mut n = trees.counter(&db.begin().unwrap(), thread).unwrap();
                let mut dice = n * THREADS + thread + 1;
                let started = Instant::now();
                // Without a kill it ends by itself.
                while started.elapsed() < Duration::from_secs(60) {
                    match transaction(db, trees, thread, n + 1, &mut dice) {
                        Ok(()) => n += 1,
                        Err(Error::Deadlock { .. } | Error::WriteConflict { .. } | Error::LockTimeout { .. }) => {
                            continue;
                        }
                        Err(error) => panic!("{error}"),
                    }
                    let mut out = out.lock().unwrap();
                    let line = format!("ack {thread} {n}\n");
                    // The pipe is closed: the other process has ended.
                    if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
                        std::process::exit(1);
                    }
                }
            });
        }
    });
}

fn transaction(db: &Database, trees: &Trees, thread: u64, n: u64, dice: &mut u64) -> seawall::Result<()> {
    let options =
        TxOptions { durability: Some(level(thread)), on_conflict: OnConflict::Latest, ..TxOptions::default() };
    let mut tx = db.begin_with(options)?;
    let (from, to) = (random(dice) % ACCOUNTS, random(dice) % ACCOUNTS);
    if from != to {
        let mut balance = |account: u64, change: i64| -> seawall::Result<()> {
            let account = account.to_be_bytes();
            let old = tx.get_for_update(&trees.accounts, &account)?.map_or(0, |bytes| number(&bytes));
            tx.put(&trees.accounts, &account, &old.wrapping_add_signed(change).to_le_bytes())
        };
        balance(from, -3)?;
        balance(to, 3)?;
    }
    for j in 0..ENTRIES {
        tx.insert(&trees.entries, &key([thread, n, j]), &value([thread, n, j]))?;
    }
    // Changes that are rolled back.
    let before = tx.savepoint();
    tx.put(&trees.entries, &key([thread, n, ENTRIES]), &[9; 5_000])?;
    tx.rollback_to(&before)?;
    if n > KEPT {
        tx.delete_range(&trees.entries, key([thread, n - KEPT, 0])..key([thread, n - KEPT + 1, 0]))?;
    }
    tx.put(&trees.counters, &thread.to_be_bytes(), &n.to_le_bytes())?;
    tx.commit()
}

// --- its watcher ---------------------------------------------------------------------------------------

/// The last acknowledgement of each thread, and the last that is older than the interval at the moment of the kill.
#[derive(Debug, Default, Clone, Copy)]
struct Acked {
    last: u64,
    settled: u64,
}

fn start(dir: &Path, ring_dir: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "victim", "--ignored", "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
        .env(RING, ring_dir)
        .stdout(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

/// Starts a victim, kills it, and returns its acknowledgements.
fn round(dir: &Path, ring_dir: &str, acks_before: u64, linger: Duration) -> [Acked; THREADS as usize] {
    let mut child = start(dir, ring_dir);
    let lines = BufReader::new(child.stdout.take().unwrap());
    let (send, acks) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in lines.lines().map_while(Result::ok) {
            let mut words = line.split(' ');
            // The line of the test harness may be unfinished when the first one comes.
            let ack = words.by_ref().any(|word| word.ends_with("ack"));
            let mut next = || words.next().and_then(|word| word.parse::<u64>().ok());
            if let (true, Some(thread), Some(n)) = (ack, next(), next()) {
                if send.send((thread, n, Instant::now())).is_err() {
                    return;
                }
            }
        }
    });
    let mut all = Vec::new();
    while (all.len() as u64) < acks_before {
        match acks.recv_timeout(Duration::from_secs(100)) {
            Ok(ack) => all.push(ack),
            Err(_) => break,
        }
    }
    std::thread::sleep(linger);
    let killed = Instant::now();
    assert!(child.try_wait().unwrap().is_none(), "the victim ended by itself after {} acknowledgements", all.len());
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    all.extend(acks.try_iter());
    let mut acked = [Acked::default(); THREADS as usize];
    for (thread, n, at) in all {
        let acked = &mut acked[thread as usize];
        acked.last = acked.last.max(n);
        if at + INTERVAL + LATE <= killed {
            acked.settled = acked.settled.max(n);
        }
    }
    acked
}

/// Verifies all promises; returns the last transaction of each thread.
fn verify(dir: &Path, before: &[u64], acked: &[Acked]) -> Vec<u64> {
    let db = Database::open_with(dir, options("")).unwrap();
    let trees = Trees::of(&db).unwrap();
    let tx = db.begin().unwrap();
    let mut at = Vec::new();
    for thread in 0..THREADS {
        let (acked, before) = (acked[thread as usize], before[thread as usize]);
        let n = trees.counter(&tx, thread).unwrap();
        let promised = if level(thread) == Durability::Deferred { acked.settled } else { acked.last };
        assert!(n >= promised.max(before), "{:?}: {n} of {acked:?} are there, {before} were before", level(thread));
        assert!(n <= acked.last.max(before) + 1, "thread {thread}: {n} are there, but {acked:?}, {before} before");
        let found: Vec<_> = tx
            .range(&trees.entries, key([thread, 0, 0])..key([thread + 1, 0, 0]))
            .map(|entry| entry.unwrap())
            .collect();
        let expected = (n.saturating_sub(KEPT) + 1..=n).flat_map(|n| (0..ENTRIES).map(move |j| [thread, n, j]));
        let expected: Vec<_> = expected.map(|parts| (key(parts), value(parts))).collect();
        assert!(found == expected, "thread {thread}: {} entries of {} at {n}", found.len(), expected.len());
        at.push(n);
    }
    assert_eq!(tx.get(&trees.entries, &key([u64::MAX, 0, 0])).unwrap(), None, "what was never committed");
    let money: u64 = tx.iter(&trees.accounts).map(|entry| number(&entry.unwrap().1)).fold(0, u64::wrapping_add);
    assert_eq!(money, ACCOUNTS * 1000, "money was made or lost");
    drop(tx);
    assert_eq!(db.check().unwrap(), []);
    drop(trees);
    db.close().unwrap();
    at
}

#[test]
fn a_killed_process_keeps_its_promises() {
    let number_of = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let rounds = number_of("SEAWALL_KILL9_ROUNDS").unwrap_or(3);
    let seed = number_of("SEAWALL_KILL9_SEED").unwrap_or_else(|| {
        use std::hash::{BuildHasher as _, Hasher as _};
        std::collections::hash_map::RandomState::new().build_hasher().finish()
    });
    // On the disk under the checkout: `/tmp` is often memory.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // The log's buffer in the process, and in files where the file systems take them.
    let takes = |ring_dir: &&str| {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        match Database::open_with(dir.path(), options(ring_dir)).map(Database::close) {
            Err(Error::InvalidOption { .. }) => false,
            opened => opened.unwrap().is_ok(),
        }
    };
    let ring_dirs: Vec<&str> = ["", "/dev/shm", "."].into_iter().filter(takes).collect();
    let (mut dice, mut at) = (seed, vec![0; THREADS as usize]);
    for round_number in 0..rounds {
        // Mostly soon, so that kills also hit openings, growth and recovery; sometimes late enough for the
        // interval to matter.
        let (acks, long) = (random(&mut dice) % 400, random(&mut dice) % 8 == 7);
        let linger = Duration::from_millis(random(&mut dice) % if long { 5000 } else { 100 });
        let ring_dir = ring_dirs[round_number as usize % ring_dirs.len()];
        let acked = round(dir.path(), ring_dir, acks, linger);
        let sum: u64 = acked.iter().zip(&at).map(|(acked, at)| acked.last.saturating_sub(*at)).sum();
        println!(
            "round {round_number} of seed {seed}, ring {ring_dir:?}: killed {linger:?} after {acks} acknowledgements, \
             {sum} in all"
        );
        at = verify(dir.path(), &at, &acked);
    }
}
