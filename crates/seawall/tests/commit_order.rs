//! Random histories with commits in flight: one thread, many transactions, a crash at any operation of the disk.
//!
//! 1. Every transaction that writes puts a row of its own: the rows of a snapshot, or of the next opening, show which
//!    commits it sees. *Decided* are the commits in the order of their records in the log.
//! 2. A read under a lock finds the last decided value, and waits only for a transaction that is not decided.
//! 3. A snapshot sees all acknowledged commits, with each commit those that it depends on (they touched the same row
//!    before, one of them wrote), and each row as the last of them left it. The view of a transaction also sees those
//!    that it has met under locks.
//! 4. After a crash the first so many of the decided commits are there, among them those that were acknowledged as
//!    flushed, and those that an acknowledged transaction depends on.

use seawall::{
    Background, Commit, Database, Durability, Env, Error, Isolation, LockMode, OnConflict, Options, Task, Transaction,
    Tree, TxOptions,
};
use seawall_sim::{SimDisk, SimOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[allow(dead_code)] // each test uses a part of it
mod support {
    pub(crate) mod dice;
    pub(crate) mod dying_process;
}
use support::dice::Dice;
use support::dying_process::{DyingProcess, End};

const KEYS: u8 = 5;

/// What a transaction has done to the rows.
#[derive(Debug, Clone, Default)]
struct Deeds {
    stamp: u64,
    /// It has put its own row.
    signed: bool,
    /// Locked or written.
    touched: BTreeMap<u8, LockMode>,
    writes: BTreeMap<u8, Option<u64>>,
    /// Requests that failed, and changes without effect: some leave a lock.
    asked: BTreeSet<u8>,
}

impl Deeds {
    fn depends_on(&self, other: &Self) -> bool {
        self.touched.iter().any(|(key, mode)| other.touched.get(key).is_some_and(|held| exclude(*mode, *held)))
    }

    fn touch(&mut self, key: u8, mode: LockMode) {
        let held = self.touched.entry(key).or_insert(mode);
        if mode == LockMode::Exclusive {
            *held = mode;
        }
    }
}

fn exclude(a: LockMode, b: LockMode) -> bool {
    a == LockMode::Exclusive || b == LockMode::Exclusive
}

struct Open {
    tx: Transaction,
    options: TxOptions,
    deeds: Deeds,
    /// At repeatable read, it has taken its snapshot.
    has_snapshot: bool,
}

struct Decided {
    deeds: Deeds,
    level: Durability,
    acknowledged: bool,
}

/// The rows of a reader: the stamps of the commits that it sees, and the values.
type Rows = (BTreeSet<u64>, BTreeMap<u8, u64>);

struct World {
    process: Arc<DyingProcess>,
    db: Database,
    tree: Tree,
    dice: Dice,
    stamp: u64,
    open: Vec<Open>,
    pending: Vec<(usize, Commit)>,
    decided: Vec<Decided>,
    /// The least level whose commits survive the end of the process.
    lasting: Durability,
    /// The first so many decided commits survive.
    survive: usize,
    /// Steps in which a transaction met a commit in flight.
    followed: u64,
    /// What happened, shown when the test fails.
    log: Vec<String>,
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.log.join("\n"));
        }
    }
}

fn open(process: &Arc<DyingProcess>, disk: &Arc<SimDisk>) -> seawall::Result<Database> {
    let env = Env { disk: process.clone(), clock: disk.clone(), seed: 1, background: Background::Steps };
    let options = Options::default()
        .with_page_size(4096)
        .with_pool_size(1 << 20)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(128 << 10)
        .with_log_capacity(2 << 20)
        .with_log_buffer_size(1 << 20);
    Database::open_in(env, "/db", options)
}

fn rows(entries: impl Iterator<Item = seawall::Result<(Vec<u8>, Vec<u8>)>>) -> seawall::Result<Rows> {
    let (mut stamps, mut values) = (BTreeSet::new(), BTreeMap::new());
    for entry in entries {
        let (key, value) = entry?;
        if let Ok(stamp) = <[u8; 8]>::try_from(&key[1..]) {
            stamps.insert(u64::from_be_bytes(stamp));
        } else {
            values.insert(key[0], u64::from_be_bytes(value.try_into().unwrap()));
        }
    }
    Ok((stamps, values))
}

impl World {
    /// The value that the commits which `sees` tells leave in a row.
    fn value(&self, key: u8, sees: impl Fn(&Decided) -> bool) -> Option<u64> {
        let seen = self.decided.iter().rev().filter(|decided| sees(decided));
        seen.filter_map(|decided| decided.deeds.writes.get(&key)).next().copied().flatten()
    }

    /// Whether another transaction that is not decided keeps `at` from the row, and whether it may.
    fn is_taken(&self, at: usize, key: u8, mode: LockMode) -> (bool, bool) {
        let others = || self.open.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, open)| &open.deeds);
        let keeps = |deeds: &Deeds| deeds.touched.get(&key).is_some_and(|held| exclude(*held, mode));
        let may = |deeds: &Deeds| deeds.touched.contains_key(&key) || deeds.asked.contains(&key);
        (others().any(keeps), others().any(may))
    }

    /// Checks what a reader sees; `met`: what it has touched before it took its view.
    fn check(&self, (stamps, values): &Rows, met: &Deeds) {
        let sees = |decided: &Decided| stamps.contains(&decided.deeds.stamp);
        for (at, decided) in self.decided.iter().enumerate() {
            let needed = decided.acknowledged || met.depends_on(&decided.deeds);
            assert!(!needed || sees(decided), "{} is not seen", decided.deeds.stamp);
            for before in self.decided[..at].iter().filter(|_| sees(decided)) {
                let depends = decided.deeds.depends_on(&before.deeds);
                assert!(!depends || sees(before), "{} is seen without {}", decided.deeds.stamp, before.deeds.stamp);
            }
        }
        for key in 0..KEYS {
            let expected = met.writes.get(&key).copied().unwrap_or_else(|| self.value(key, sees));
            assert_eq!(values.get(&key).copied(), expected, "row {key}, seen are {stamps:?}");
        }
    }

    /// Checks what the next opening finds.
    fn check_survivors(&self, (stamps, values): &Rows) {
        let there = stamps.len();
        assert!(self.survive <= there, "{} commits had to survive, {there} are there", self.survive);
        let first: BTreeSet<u64> = self.decided[..there].iter().map(|decided| decided.deeds.stamp).collect();
        assert_eq!(*stamps, first, "a commit is there without an earlier one");
        for key in 0..KEYS {
            assert_eq!(
                values.get(&key).copied(),
                self.value(key, |one| stamps.contains(&one.deeds.stamp)),
                "row {key}"
            );
        }
    }

    fn begin(&mut self) -> seawall::Result<()> {
        let isolation = self.dice.pick(&[Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable]);
        let on_conflict = self.dice.pick(&[OnConflict::Latest, OnConflict::Latest, OnConflict::Fail]);
        let level =
            self.dice.weighted(&[(5, Durability::Flushed), (3, Durability::Written), (1, Durability::Deferred)]);
        let options = TxOptions { isolation, on_conflict, durability: Some(level), ..TxOptions::default() };
        let tx = self.db.begin_with(options)?;
        self.stamp += 1;
        let deeds = Deeds { stamp: self.stamp, ..Deeds::default() };
        self.open.push(Open { tx, options, deeds, has_snapshot: false });
        Ok(())
    }

    /// A read under a lock, or a change, of one row.
    fn touch(&mut self, at: usize) -> seawall::Result<()> {
        let key = self.dice.below(u64::from(KEYS)) as u8;
        let what = self.dice.below(5);
        let is_read = what < 2;
        let mode = if what == 0 { LockMode::Shared } else { LockMode::Exclusive };
        let (taken, may_be_taken) = self.is_taken(at, key, mode);
        let own = self.open[at].deeds.writes.get(&key).copied();
        let latest = own.unwrap_or_else(|| self.value(key, |_| true));
        let in_flight = |(number, _): &(usize, Commit)| self.decided[*number].deeds.touched.contains_key(&key);
        let meets = own.is_none() && self.pending.iter().any(in_flight);
        let stamp = self.stamp + 1;
        let (Open { tx, deeds, options, .. }, tree) = (&mut self.open[at], &self.tree);
        // It may have a snapshot that would conflict, or have given an answer that no lock keeps true: then it waits
        // for commits in flight.
        let strict = options.on_conflict == OnConflict::Fail || !deeds.asked.is_empty();
        if !deeds.signed && !is_read {
            deeds.signed = true;
            tx.put(tree, &[b"#", &deeds.stamp.to_be_bytes()[..]].concat(), b"")?;
        }
        let answer = match what {
            0 => tx.get_for_share(tree, &[key]).map(|found| (true, found, None)),
            1 => tx.get_for_update(tree, &[key]).map(|found| (true, found, None)),
            2 => tx.delete(tree, &[key]).map(|there| (there, None, Some(None))),
            3 => tx.update(tree, &[key], &stamp.to_be_bytes()).map(|there| (there, None, Some(Some(stamp)))),
            _ => tx.put(tree, &[key], &stamp.to_be_bytes()).map(|()| (true, None, Some(Some(stamp)))),
        };
        self.log.push(format!("T{} {options:?} {what} row {key}: {answer:?}", deeds.stamp));
        let (done, found, left) = match answer {
            Err(Error::LockTimeout { .. } | Error::WriteConflict { .. }) if may_be_taken || strict => {
                deeds.asked.insert(key);
                return Ok(());
            }
            answer => answer?,
        };
        if !done {
            deeds.asked.insert(key);
            assert!(strict || may_be_taken || latest.is_none(), "it is there");
            if options.isolation == Isolation::Serializable {
                // Its answer has to stay true.
                deeds.touch(key, LockMode::Shared);
            }
            return Ok(());
        }
        assert!(!taken, "another transaction has the row");
        if is_read {
            let found = found.map(|value| u64::from_be_bytes(value.try_into().unwrap()));
            assert_eq!(found, latest, "row {key} under a lock");
        }
        deeds.touch(key, mode);
        if let Some(left) = left {
            deeds.writes.insert(key, left);
            self.stamp = stamp;
        }
        self.followed += u64::from(meets);
        Ok(())
    }

    /// The view of an open transaction.
    fn look(&mut self, at: usize) -> seawall::Result<()> {
        let open = &mut self.open[at];
        let isolation = open.options.isolation;
        if isolation == Isolation::Serializable
            || std::mem::replace(&mut open.has_snapshot, isolation != Isolation::ReadCommitted)
        {
            return Ok(());
        }
        let mut seen = rows(open.tx.iter(&self.tree))?;
        seen.0.remove(&open.deeds.stamp);
        let met = open.deeds.clone();
        self.log.push(format!("T{} sees {seen:?}", met.stamp));
        // With conflicts as failures it may have got the snapshot earlier, from a change without effect. If the log has
        // failed, it does not see those that it follows, and cannot commit.
        let is_new = isolation == Isolation::ReadCommitted || self.open[at].options.on_conflict == OnConflict::Latest;
        if is_new && !self.process.is_dead() {
            self.check(&seen, &met);
        }
        Ok(())
    }

    fn decide(&mut self, deeds: &Deeds, level: Durability) -> Option<usize> {
        deeds.signed.then(|| {
            self.decided.push(Decided { deeds: deeds.clone(), level, acknowledged: false });
            self.decided.len() - 1
        })
    }

    fn acknowledge(&mut self, number: Option<usize>, deeds: &Deeds, level: Durability) {
        let before = number.unwrap_or(self.decided.len());
        let lasts = |decided: &Decided| decided.level >= self.lasting;
        let met = self.decided[..before].iter().rposition(|decided| lasts(decided) && deeds.depends_on(&decided.deeds));
        self.survive = self.survive.max(met.map_or(0, |met| met + 1));
        if let Some(number) = number {
            self.decided[number].acknowledged = true;
            if level >= self.lasting {
                self.survive = self.survive.max(number + 1);
            }
        }
    }

    fn commit(&mut self, at: usize) -> seawall::Result<()> {
        let Open { tx, options, deeds, .. } = self.open.swap_remove(at);
        let level = options.durability.unwrap();
        let number = self.decide(&deeds, level);
        self.log.push(format!("T{} commits at {level:?}, number {number:?}", deeds.stamp));
        // One in flight that does not wait for the log keeps its locks.
        if level != Durability::Deferred && self.dice.percent(70) {
            let commit = tx.commit_start()?;
            match number {
                Some(number) => self.pending.push((number, commit)),
                None => {
                    commit.wait()?;
                    self.acknowledge(None, &deeds, level);
                }
            }
            return Ok(());
        }
        tx.commit()?;
        self.acknowledge(number, &deeds, level);
        Ok(())
    }

    fn finish(&mut self) -> seawall::Result<()> {
        let at = self.dice.index(self.pending.len());
        let (number, mut commit) = self.pending.swap_remove(at);
        if self.dice.percent(50) {
            match commit.poll() {
                None => {
                    self.pending.push((number, commit));
                    return Ok(());
                }
                Some(done) => done?,
            }
        } else {
            commit.wait()?;
        }
        let (deeds, level) = (self.decided[number].deeds.clone(), self.decided[number].level);
        self.log.push(format!("T{} has committed", deeds.stamp));
        self.acknowledge(Some(number), &deeds, level);
        Ok(())
    }

    fn step(&mut self) -> seawall::Result<()> {
        let at = self.dice.index(self.open.len());
        match self.dice.below(20) {
            _ if self.open.is_empty() => self.begin(),
            0 | 1 if self.open.len() < 6 => self.begin(),
            2..=10 => self.touch(at),
            11 => self.look(at),
            12..=14 => self.commit(at),
            15 => {
                self.log.push(format!("T{} rolls back", self.open[at].deeds.stamp));
                self.open.swap_remove(at).tx.rollback()
            }
            16 | 17 if !self.pending.is_empty() => self.finish(),
            18 => {
                let seen = rows(self.db.begin()?.iter(&self.tree))?;
                self.log.push(format!("a snapshot sees {seen:?}"));
                self.check(&seen, &Deeds::default());
                Ok(())
            }
            _ => self.db.step_task(self.dice.pick(Task::ALL)).map(drop),
        }
    }
}

/// Runs one history. Returns how many steps met a commit in flight.
fn history(seed: u64) -> u64 {
    let mut dice = Dice::new(seed);
    let disk = SimDisk::new(SimOptions { seed, ..SimOptions::default() });
    let how = dice.pick(&[End::PowerCut, End::Killed]);
    let process = DyingProcess::tearing(&disk, how, None, true);
    let db = open(&process, &disk).unwrap();
    let tree = db.create_tree("t").unwrap();
    let dies_after = dice.below(60);
    let steps = 50 + dice.below(200);
    let mut world = World {
        process,
        db,
        tree,
        dice,
        stamp: 0,
        open: Vec::new(),
        pending: Vec::new(),
        decided: Vec::new(),
        lasting: if how == End::Killed { Durability::Written } else { Durability::Flushed },
        survive: 0,
        followed: 0,
        log: vec![format!("seed {seed}")],
    };
    world.process.dies_after(dies_after);
    for _ in 0..steps {
        if let Err(error) = world.step() {
            assert!(world.process.is_dead(), "seed {seed}: {error}");
            break;
        }
    }
    world.process.dies_now();
    world.open.clear();
    world.pending.clear();
    let db = open(&DyingProcess::new(&disk, how, None), &disk).unwrap();
    let found = rows(db.begin().unwrap().iter(&db.open_tree("t").unwrap())).unwrap();
    world.check_survivors(&found);
    world.followed
}

#[test]
fn commits_in_flight_are_seen_and_survive_in_order() {
    let seeds = std::env::var("SEEDS").map_or(300, |seeds| seeds.parse().unwrap());
    let from = std::env::var("FROM").map_or(0, |from| from.parse().unwrap());
    let followed: u64 = (from..from + seeds).map(history).sum();
    assert!(followed > seeds, "{followed} steps met a commit in flight: too few for {seeds} histories");
}
