//! Backups of a real process under load, which is killed with SIGKILL at a random moment; each backup
//! reported as finished is restored.
//!
//! 1. A backup contains every transaction acknowledged before its end was requested, and none that began after its end
//!    was reported. Of each writer's transactions it has a prefix.
//! 2. A transaction is there completely or not at all, over two trees and long values; money is neither created nor
//!    lost. `check` finds no damage.
//! 3. An unfinished backup is refused. The source opens, and has every acknowledged transaction.
//!
//! The workload is this file too: the test starts itself again as the victim, which reports through a pipe.
//! `ROUNDS=20` sets the number of rounds.

use seawall::{BackupOptions, Database, Error, OnConflict, Options, Tree, TxOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const DIR: &str = "SEAWALL_BACKUP_KILL9_DIR";
const THREADS: u64 = 4;
const ACCOUNTS: u64 = 40;
const BALANCE: u64 = 1000;
/// Transactions whose rows are kept.
const KEPT: u64 = 300;

fn options() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(512 << 10)
        .with_data_initial_size(1 << 20)
        .with_data_growth_step(1 << 20)
        .with_log_segment_size(256 << 10)
        .with_log_capacity(2 << 20)
        .with_log_buffer_size(1 << 20)
}

fn key(thread: u64, n: u64) -> Vec<u8> {
    [thread.to_be_bytes(), n.to_be_bytes()].concat()
}

/// Every eleventh value takes several pages.
fn value(thread: u64, n: u64) -> Vec<u8> {
    let len = if n % 11 == 0 { 15_000 } else { 100 + n * 7 % 400 };
    (0..len).map(|i| (i ^ n ^ (thread << 4)) as u8).collect()
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

// --- the victim ----------------------------------------------------------------------------------------

/// Not a test: the process that is killed.
#[test]
#[ignore = "the workload of the other test"]
fn victim() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let dir = Path::new(&dir);
    let db = Database::open_with(dir.join("db"), options()).unwrap();
    let [rows, counters, accounts] = ["rows", "counters", "accounts"].map(|name| db.create_tree(name).unwrap());
    if db.begin().unwrap().iter(&accounts).next().is_none() {
        db.transact(|tx| (0..ACCOUNTS).try_for_each(|a| tx.put(&accounts, &a.to_be_bytes(), &BALANCE.to_le_bytes())))
            .unwrap();
    }
    // Never committed: it must be in no backup.
    let mut open = db.begin().unwrap();
    open.put(&rows, &key(u64::MAX, 0), &[1; 9_000]).unwrap();
    let out = Mutex::new(std::io::stdout());
    let say = |line: String| {
        let mut out = out.lock().unwrap();
        // The pipe is closed: the other process has ended.
        if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            std::process::exit(1);
        }
    };
    let started = Instant::now();
    let goes_on = || started.elapsed() < Duration::from_secs(60);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, rows, counters, accounts, say) = (&db, &rows, &counters, &accounts, &say);
            scope.spawn(move || {
                let mut n = db.get(counters, &thread.to_be_bytes()).unwrap().map_or(0, |bytes| number(&bytes));
                let mut dice = n * THREADS + thread + 1;
                while goes_on() {
                    match transaction(db, [rows, counters, accounts], thread, n + 1, &mut dice) {
                        Ok(()) => n += 1,
                        Err(error) if error.is_retryable() || matches!(error, Error::LockTimeout { .. }) => continue,
                        Err(error) => panic!("{error}"),
                    }
                    say(format!("ack {thread} {n}"));
                }
            });
        }
        // A tree is created and dropped, and files are compacted.
        scope.spawn(|| {
            for n in 0u64.. {
                if !goes_on() {
                    break;
                }
                let tree = db.create_tree("passing").unwrap();
                db.transact(|tx| (0..200 + n % 100).try_for_each(|i| tx.put(&tree, &i.to_be_bytes(), &[n as u8; 500])))
                    .unwrap();
                db.checkpoint().unwrap();
                db.compact(&rows).unwrap();
                db.drop_tree("passing").unwrap();
                db.shrink().unwrap();
            }
        });
        let first = std::fs::read_dir(dir).unwrap().count();
        let mut last = None;
        for nth in first.. {
            if !goes_on() {
                break;
            }
            let to = dir.join(format!("backup-{nth}"));
            let options = BackupOptions { rate: 32 << 20, incremental_from: last.clone(), ..BackupOptions::default() };
            let mut backup = db.backup_begin(&to, &options).unwrap();
            while !backup.step(256 << 10).unwrap().done {}
            say(format!("ending {nth} {}", u64::from(last.is_some())));
            backup.end().unwrap();
            say(format!("ended {nth}"));
            // Every third backup is full again.
            last = (nth % 3 != 0).then_some(to);
        }
    });
}

fn transaction(
    db: &Database,
    [rows, counters, accounts]: [&Tree; 3],
    thread: u64,
    n: u64,
    dice: &mut u64,
) -> seawall::Result<()> {
    let mut tx = db.begin_with(TxOptions { on_conflict: OnConflict::Latest, ..TxOptions::default() })?;
    let (from, to) = (random(dice) % ACCOUNTS, random(dice) % ACCOUNTS);
    if from != to {
        for (account, change) in [(from.min(to), -3), (from.max(to), 3)] {
            let account = account.to_be_bytes();
            let old = tx.get_for_update(accounts, &account)?.map_or(0, |bytes| number(&bytes));
            tx.put(accounts, &account, &old.wrapping_add_signed(change).to_le_bytes())?;
        }
    }
    tx.put(rows, &key(thread, n), &value(thread, n))?;
    if n > KEPT {
        tx.delete(rows, &key(thread, n - KEPT))?;
    }
    tx.put(counters, &thread.to_be_bytes(), &n.to_le_bytes())?;
    tx.commit()
}

// --- the other side ------------------------------------------------------------------------------------

/// A finished backup: what was acknowledged before its end was requested, and when the end was reported.
#[derive(Debug, Clone)]
struct BackupReport {
    nth: u64,
    incremental: bool,
    before: [u64; THREADS as usize],
    after: [u64; THREADS as usize],
}

fn holds(db: &Database, least: &[u64], most: &[u64], when: &str) {
    assert_eq!(db.check().unwrap(), [], "{when}");
    let tx = db.begin().unwrap();
    let [rows, counters, accounts] = ["rows", "counters", "accounts"].map(|name| tx.open_tree(name).unwrap());
    let mut expected = Vec::new();
    for thread in 0..THREADS {
        let n = tx.get(&counters, &thread.to_be_bytes()).unwrap().map_or(0, |bytes| number(&bytes));
        let (least, most) = (least[thread as usize], most[thread as usize]);
        assert!((least..=most).contains(&n), "{when}: thread {thread} came to {n}, not {least} to {most}");
        expected.extend((n.saturating_sub(KEPT) + 1..=n).map(|n| (key(thread, n), value(thread, n))));
    }
    let found: Vec<_> = tx.iter(&rows).map(Result::unwrap).collect();
    assert!(found == expected, "{when}: {} rows, {} are expected", found.len(), expected.len());
    let money: u64 = tx.iter(&accounts).map(|row| number(&row.unwrap().1)).fold(0, u64::wrapping_add);
    assert_eq!(money, ACCOUNTS * BALANCE, "{when}");
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn backups_of_a_process_that_is_killed_restore_to_their_ends() {
    let rounds = std::env::var("ROUNDS").map_or(1, |text| text.parse().expect("a number of rounds"));
    let mut dice = std::process::id().into();
    let (mut restored, mut refused) = (0, 0);
    for round in 0..rounds {
        let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let victim = Command::new(std::env::current_exe().unwrap())
            .args(["victim", "--exact", "--ignored", "--nocapture"])
            .env(DIR, scratch.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn();
        let mut victim = Killed(victim.unwrap());
        let mut acked = [0; THREADS as usize];
        let mut ending = None;
        let mut told: Vec<BackupReport> = Vec::new();
        // Killed after this many backups, and some lines: during the next backup.
        let (backups, mut lines) = (2 + random(&mut dice) as usize % 4, random(&mut dice) % 60);
        let mut out = BufReader::new(victim.0.stdout.take().unwrap());
        let mut line = String::new();
        while out.read_line(&mut line).unwrap() > 0 {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            match words.first().copied() {
                Some("ack") => acked[number(1) as usize] = number(2),
                Some("ending") => ending = Some((number(2) == 1, acked)),
                Some("ended") => {
                    let (incremental, before) = ending.take().unwrap();
                    told.push(BackupReport { nth: number(1), incremental, before, after: acked });
                }
                _ => {}
            }
            if told.len() >= backups {
                if lines == 0 {
                    victim.0.kill().unwrap();
                    // Lines in the pipe are read to the end.
                    lines = u64::MAX;
                }
                lines = lines.saturating_sub(1);
            }
            line.clear();
        }
        drop(victim);
        let db = Database::open_with(scratch.path().join("db"), options()).unwrap();
        holds(&db, &acked, &acked.map(|n| n + 1), &format!("round {round}, the source"));
        db.close().unwrap();
        let mut chain = Vec::new();
        for BackupReport { nth, incremental, before, after } in &told {
            let dir = scratch.path().join(format!("backup-{nth}"));
            if !incremental {
                chain.clear();
            }
            chain.push(dir);
            let to = scratch.path().join(format!("restored-{nth}"));
            Database::restore(&chain, &to).unwrap();
            let db = Database::open_with(&to, options()).unwrap();
            // One transaction of each thread may be committed but not reported, or may have been in progress.
            holds(&db, before, &after.map(|n| n + 1), &format!("round {round}, backup {nth} of {told:?}"));
            db.close().unwrap();
            restored += 1;
        }
        for entry in std::fs::read_dir(scratch.path()).unwrap() {
            let dir = entry.unwrap().path();
            if dir.join("backup.unfinished").exists() && !dir.join("backup").exists() {
                let error = Database::restore(&[&dir], scratch.path().join("not")).unwrap_err();
                assert!(matches!(error, Error::UnfinishedBackup { .. }), "{error}");
                refused += 1;
            }
        }
    }
    println!("{rounds} rounds: {restored} backups restored, {refused} unfinished ones refused");
    assert!(restored >= 2 * rounds);
}
