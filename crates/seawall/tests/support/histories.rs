//! Random concurrent transactions on real threads, recorded for the checker.
//!
//! 1. Every value is a list of elements, each unique in the history; an append reads the list and writes it
//!    back longer.
//! 2. At levels whose writes act on the latest version an append reads with a lock; at the others the engine
//!    must notice the conflict.
//! 3. Stamps come from one counter: taken before a transaction begins, before each operation, and after a commit has
//!    returned.
//!
//! The seed determines what the threads do, but not how they interleave. A history that fails is printed
//! completely.

use crate::api::{self, Database, Durability, Error, Interrupt, Isolation, OnConflict, Transaction, Tree, TxOptions};
use crate::support::checker::{History, Level, Op, Txn, What};
use crate::support::dice::Dice;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The size of the load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) threads: u64,
    /// Per thread.
    pub(crate) txns: u64,
    /// Keys in use at the same time; they are replaced by others regularly.
    pub(crate) keys: u64,
    /// Padding bytes after every list.
    pub(crate) padding: usize,
}

struct Clock {
    stamp: AtomicU64,
    element: AtomicU64,
    begun: AtomicU64,
    /// Of the current transaction of each thread.
    interrupts: Vec<Mutex<Option<Interrupt>>>,
}

impl Clock {
    fn stamp(&self) -> u64 {
        self.stamp.fetch_add(1, Ordering::SeqCst)
    }
}

fn options(level: Level, dice: &mut Dice) -> TxOptions {
    let (isolation, on_conflict) = match level {
        Level::ReadCommitted => (Isolation::ReadCommitted, OnConflict::Latest),
        Level::RepeatableLatest => (Isolation::RepeatableRead, OnConflict::Latest),
        Level::RepeatableFail => (Isolation::RepeatableRead, OnConflict::Fail),
        Level::Serializable => (Isolation::Serializable, OnConflict::Fail),
    };
    let durability = dice.weighted(&[(4, None), (1, Some(Durability::Written)), (1, Some(Durability::Deferred))]);
    TxOptions { isolation, on_conflict, durability, ..TxOptions::default() }
}

fn name(key: u64) -> Vec<u8> {
    format!("key-{key:06}").into_bytes()
}

fn list(bytes: Option<&[u8]>) -> Vec<u64> {
    let Some(bytes) = bytes else { return Vec::new() };
    let word = |at: usize| u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().expect("eight bytes"));
    (1..=word(0) as usize).map(word).collect()
}

fn bytes(list: &[u64], padding: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(list.len() * 8 + 8 + padding);
    bytes.extend((list.len() as u64).to_le_bytes());
    bytes.extend(list.iter().flat_map(|element| element.to_le_bytes()));
    bytes.resize(bytes.len() + padding, 0xaa);
    bytes
}

/// Errors after which a transaction is rolled back and abandoned.
fn gives_way(error: &Error) -> bool {
    matches!(
        error,
        Error::Deadlock { .. } | Error::WriteConflict { .. } | Error::LockTimeout { .. } | Error::Interrupted { .. }
    )
}

struct Client<'a> {
    tree: &'a Tree,
    thread: usize,
    clock: &'a Clock,
    level: Level,
    load: Load,
    dice: Dice,
    ops: Vec<Op>,
    statement: u64,
}

impl Client<'_> {
    fn key(&mut self) -> u64 {
        let first = self.clock.begun.load(Ordering::Relaxed) / 50;
        first + self.dice.below(self.load.keys)
    }

    fn note(&mut self, at: u64, what: What) {
        self.ops.push(Op { at, statement: self.statement, what });
    }

    fn read(&mut self, tx: &Transaction, key: u64, locking: bool) -> Result<Vec<u64>, Error> {
        let at = self.clock.stamp();
        let key_bytes = name(key);
        let found = match locking {
            false => tx.get(self.tree, &key_bytes)?,
            true if self.dice.percent(50) => tx.get_for_share(self.tree, &key_bytes)?,
            true => tx.get_for_update(self.tree, &key_bytes)?,
        };
        let found = list(found.as_deref());
        self.note(at, What::Read { key, list: found.clone(), locking });
        Ok(found)
    }

    fn append(&mut self, tx: &mut Transaction, key: u64) -> Result<(), Error> {
        let locking = matches!(self.level, Level::ReadCommitted | Level::RepeatableLatest) || self.dice.percent(20);
        let at = self.clock.stamp();
        let key_bytes = name(key);
        let found = if locking { tx.get_for_update(self.tree, &key_bytes)? } else { tx.get(self.tree, &key_bytes)? };
        let mut elements = list(found.as_deref());
        self.note(at, What::Read { key, list: elements.clone(), locking });
        let element = self.clock.element.fetch_add(1, Ordering::SeqCst);
        let at = self.clock.stamp();
        elements.push(element);
        let value = bytes(&elements, self.load.padding);
        if elements.len() == 1 && self.dice.percent(50) {
            tx.insert(self.tree, &key_bytes, &value)?;
        } else {
            tx.put(self.tree, &key_bytes, &value)?;
        }
        self.note(at, What::Append { key, element });
        Ok(())
    }

    /// One scan over some keys, in one statement.
    fn scan(&mut self, tx: &Transaction) -> Result<(), Error> {
        let from = self.key();
        let to = from + 1 + self.dice.below(self.load.keys);
        let at = self.clock.stamp();
        let mut lists: BTreeMap<u64, Vec<u64>> = (from..to).map(|key| (key, Vec::new())).collect();
        let range = tx.range::<Vec<u8>>(self.tree, name(from)..name(to));
        let rows: Vec<_> = if self.dice.percent(30) {
            range.rev().collect::<Result<_, _>>()?
        } else {
            range.collect::<Result<_, _>>()?
        };
        for (key, value) in rows {
            let key: u64 = String::from_utf8_lossy(&key[4..]).parse().expect("a key of this test");
            lists.insert(key, list(Some(&value)));
        }
        for (key, list) in lists {
            self.note(at, What::Read { key, list, locking: false });
        }
        Ok(())
    }

    fn operations(&mut self, tx: &mut Transaction) -> Result<(), Error> {
        for _ in 0..1 + self.dice.below(6) {
            self.statement += 1;
            if self.dice.percent(3) {
                let other = self.dice.index(self.clock.interrupts.len());
                let handle = self.clock.interrupts[other].lock().expect("no thread panics");
                handle.iter().for_each(Interrupt::raise);
            }
            match self.dice.below(13) {
                0..=3 => {
                    let key = self.key();
                    self.read(tx, key, false)?;
                }
                4..=7 => {
                    let key = self.key();
                    self.append(tx, key)?;
                }
                8 => self.scan(tx)?,
                9 => {
                    let key = self.key();
                    self.read(tx, key, true)?;
                }
                11 => {
                    // At read committed it sees the committed version, at the other levels the one it locked;
                    // it forgets the read if it does not keep the lock.
                    let (key, at) = (self.key(), self.clock.stamp());
                    let (found, forgotten) = api::look(tx, self.tree, &name(key))?;
                    let locking = self.level != Level::ReadCommitted;
                    if !(locking && forgotten) {
                        self.note(at, What::Read { key, list: list(found.as_deref()), locking });
                    }
                }
                10 => {
                    // A rolled back append never happened; reads in between did.
                    let savepoint = tx.savepoint();
                    let (before, key) = (self.ops.len(), self.key());
                    let answer = self.append(tx, key);
                    tx.rollback_to(&savepoint)?;
                    self.ops.truncate(before);
                    answer?;
                }
                _ => {
                    // The snapshot is as old as the statement.
                    let at = self.clock.stamp();
                    tx.begin_statement();
                    let before = self.ops.len();
                    let keys = [self.key(), self.key()];
                    let answer = keys.into_iter().try_for_each(|key| self.read(tx, key, false).map(drop));
                    self.ops[before..].iter_mut().for_each(|op| op.at = at);
                    tx.end_statement();
                    answer?;
                }
            }
            if self.dice.percent(10) {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    fn transaction(&mut self, db: &Database) -> Txn {
        self.ops.clear();
        self.clock.begun.fetch_add(1, Ordering::Relaxed);
        let options = options(self.level, &mut self.dice);
        let begin = self.clock.stamp();
        let mut tx = db.begin_with(options).expect("it begins");
        *self.clock.interrupts[self.thread].lock().expect("no thread panics") = Some(Interrupt::of(&tx));
        let mut done = self.operations(&mut tx);
        if matches!(done, Err(Error::Interrupted { .. })) && self.dice.percent(50) {
            // It continues with the rows it has.
            Interrupt::of(&tx).clear();
            done = self.operations(&mut tx);
        }
        let committed = match done {
            Ok(()) if self.dice.percent(90) => {
                tx.commit().expect("nothing fails in memory");
                Some(self.clock.stamp())
            }
            Ok(()) => {
                tx.rollback().expect("nothing fails in memory");
                None
            }
            Err(error) => {
                assert!(gives_way(&error), "{error}");
                if self.dice.percent(50) {
                    tx.rollback().expect("nothing fails in memory");
                }
                None
            }
        };
        Txn { begin, committed, ops: std::mem::take(&mut self.ops) }
    }
}

/// Runs a load at a level and records it.
pub(crate) fn record(db: &Database, level: Level, load: Load, seed: u64) -> History {
    let tree = db.create_tree("lists").expect("a tree");
    let interrupts = (0..load.threads).map(|_| Mutex::new(None)).collect();
    let clock = Clock { stamp: AtomicU64::new(1), element: AtomicU64::new(1), begun: AtomicU64::new(0), interrupts };
    let mut dice = Dice::new(seed);
    let txns = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..load.threads)
            .map(|thread| {
                let (thread, dice) = (thread as usize, dice.split());
                let (tree, clock) = (&tree, &clock);
                scope.spawn(move || {
                    let mut client = Client { tree, thread, clock, level, load, dice, ops: Vec::new(), statement: 0 };
                    (0..load.txns).map(|_| client.transaction(db)).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let tx = db.begin().expect("it begins");
    let mut last = BTreeMap::new();
    for row in tx.range::<Vec<u8>>(&tree, ..) {
        let (key, value) = row.expect("all can be read");
        last.insert(String::from_utf8_lossy(&key[4..]).parse().expect("a key of this test"), list(Some(&value)));
    }
    History { level, txns, last }
}
