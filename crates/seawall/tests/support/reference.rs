//! A naive engine with the engine's interface: the rig and the history runner are tested on it, with promises
//! broken on purpose.
//!
//! 1. Everything is in memory; a commit appends its changes to one file. Nothing is ever checkpointed, purged or
//!    cached.
//! 2. It never waits: a conflict is an error at once. Serializable transactions lock whole trees.
//! 3. A [`Mutant`] breaks one promise; the tests of the rig show that each is caught.
//!
//! Names are the engine's, so the same test code runs on both. There is no background work.

#![allow(dead_code)] // each test binary uses some of it

mod transaction;

pub(crate) use seawall::{Error, LockedOn, Result};

pub(crate) use seawall::Durability;
use seawall::{TreeId, TxnId};
use seawall_io::{Clock, Create, Disk, Handle, OpenHow, SyncHow, WriteHow};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

pub(crate) struct Env {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) seed: u64,
    pub(crate) background: Background,
}

#[derive(Clone, Copy)]
pub(crate) enum Background {
    Threads,
    Steps,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Task {
    Clean,
}

impl Task {
    pub(crate) const ALL: &'static [Self] = &[Self::Clean];
}

/// Steps between two commits of a burst.
pub(crate) const BETWEEN: [&[Task]; 2] = [&[Task::Clean], &[]];

/// A broken promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    None,
    /// Flushed commits are only written.
    NoSync,
    /// Recovery applies half of the last transaction.
    Half,
    /// Recovery forgets prepared transactions.
    ForgetsPrepared,
    /// A middle commit is lost, later ones are kept.
    Hole,
    /// Repeatable reads see later commits.
    NoSnapshot,
    /// Two transactions may write one row.
    NoLocks,
    /// Rolling back to a savepoint does nothing.
    NoSavepoint,
    /// Scans skip the last row.
    ShortScan,
    /// Serializable reads lock nothing.
    NoReadLocks,
    /// Write conflicts go unnoticed.
    LostUpdate,
    /// It reports something as durable that is not flushed.
    TellsEarly,
    /// A backup lacks the end of the log.
    ShortCopy,
    /// A restarted transaction keeps its earlier changes.
    KeepsChanges,
    /// A row locked by another transaction reads as if it had no committed version.
    LooksPast,
    /// An ordered commit ends the prepared transaction, but is not logged.
    OrderedUnlogged,
    /// An interrupted change stays.
    KeepsInterrupted,
    /// An interrupted scan continues.
    NotInterrupted,
}

#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) mutant: Mutant,
}

impl Default for Options {
    fn default() -> Self {
        Self { mutant: Mutant::None }
    }
}

impl Options {
    pub(crate) fn set(&mut self, _name: &str, _value: &str) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnConflict {
    Fail,
    Latest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockWait {
    Wait,
    NoWait,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TxOptions {
    /// The engine has more options than the naive one.
    pub(crate) more: (),
    pub(crate) isolation: Isolation,
    pub(crate) on_conflict: OnConflict,
    pub(crate) durability: Option<Durability>,
    pub(crate) wait: LockWait,
}

impl Default for TxOptions {
    fn default() -> Self {
        let (isolation, on_conflict) = (Isolation::RepeatableRead, OnConflict::Fail);
        Self { isolation, on_conflict, durability: None, wait: LockWait::Wait, more: () }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Xid(pub(crate) Vec<u8>);

#[derive(Debug, Clone)]
pub(crate) struct Tree {
    id: TreeId,
}

impl Tree {
    pub(crate) fn id(&self) -> TreeId {
        self.id
    }
}

type Row = (TreeId, Vec<u8>);
type Changes = BTreeMap<Row, Option<Vec<u8>>>;
/// Commit number and value, oldest first.
type Versions = Vec<(u64, Option<Vec<u8>>)>;

struct Inner {
    options: Options,
    file: Handle,
    disk: Arc<dyn Disk>,
    end: u64,
    health: seawall::internals::error::Health,
    commits: u64,
    rows: BTreeMap<Row, Versions>,
    prepared: BTreeMap<Vec<u8>, (u64, Changes)>,
    written: BTreeMap<Row, u64>,
    read: BTreeSet<(TreeId, u64)>,
    next_tree: u32,
    next_txn: u64,
}

#[derive(Clone)]
pub(crate) struct Database(Arc<Mutex<Inner>>);

pub(crate) struct Transaction {
    db: Database,
    id: u64,
    options: TxOptions,
    /// Repeatable read: from the first read without a lock; read committed: of a statement.
    snapshot: Cell<Option<u64>>,
    changes: Changes,
    interrupt: Arc<AtomicBool>,
}

#[derive(Debug, Clone)]
pub(crate) struct Savepoint(Changes);

pub(crate) struct Commit(Option<Result<()>>);

impl Commit {
    pub(crate) fn poll(&mut self) -> Option<Result<()>> {
        self.0.clone()
    }
    pub(crate) fn wait(mut self) -> Result<()> {
        self.0.take().expect("it is done")
    }
}

const CATALOG: TreeId = TreeId::CATALOG;

impl Database {
    pub(crate) fn open_in(env: Env, path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let disk = env.disk;
        let how = OpenHow { write: true, create: Create::IfMissing, ..OpenHow::default() };
        let file = disk.open(&path.as_ref().join("log"), how)?;
        disk.lock(&file)?;
        disk.sync_dir(path.as_ref())?;
        let mut bytes = vec![0; disk.len(&file)? as usize];
        let mut have = 0;
        while have < bytes.len() {
            have += disk.read_at(&file, have as u64, &mut bytes[have..])?;
        }
        let (records, end) = frames(&bytes);
        disk.set_len(&file, end)?;
        disk.sync(&file, SyncHow::All)?;
        let mut inner = Inner {
            file,
            disk,
            end,
            health: seawall::internals::error::Health::default(),
            commits: 0,
            rows: BTreeMap::new(),
            prepared: BTreeMap::new(),
            written: BTreeMap::new(),
            read: BTreeSet::new(),
            next_tree: TreeId::FIRST_USER.0,
            next_txn: 1,
            options,
        };
        let count = records.len();
        for (index, (kind, xid, mut changes)) in records.into_iter().enumerate() {
            let mutant = inner.options.mutant;
            let skip = mutant == Mutant::Hole && index + 2 == count && kind == 0;
            if mutant == Mutant::Half && index + 1 == count && kind == 0 && changes.len() > 1 {
                changes.pop_last();
            }
            if !skip {
                inner.replay(kind, xid, changes);
            }
        }
        Ok(Self(Arc::new(Mutex::new(inner))))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no panic under the lock")
    }

    pub(crate) fn begin(&self) -> Result<Transaction> {
        self.begin_with(TxOptions::default())
    }

    pub(crate) fn begin_with(&self, options: TxOptions) -> Result<Transaction> {
        let mut inner = self.lock();
        inner.next_txn += 1;
        let id = inner.next_txn;
        Ok(Transaction {
            db: self.clone(),
            id,
            options,
            snapshot: Cell::new(None),
            changes: Changes::new(),
            interrupt: Arc::default(),
        })
    }

    fn ddl<T>(&self, f: impl FnOnce(&mut Transaction) -> Result<T>) -> Result<T> {
        let options = TxOptions { isolation: Isolation::ReadCommitted, ..TxOptions::default() };
        let mut tx = self.begin_with(options)?;
        let answer = f(&mut tx)?;
        tx.commit()?;
        Ok(answer)
    }

    pub(crate) fn create_tree(&self, name: &str) -> Result<Tree> {
        self.ddl(|tx| tx.open_tree(name).or_else(|_| tx.create_tree(name)))
    }
    pub(crate) fn drop_tree(&self, name: &str) -> Result<()> {
        self.ddl(|tx| tx.drop_tree(name))
    }
    pub(crate) fn rename_tree(&self, from: &str, to: &str) -> Result<()> {
        self.ddl(|tx| tx.rename_tree(from, to))
    }
    pub(crate) fn open_tree(&self, name: &str) -> Result<Tree> {
        self.begin()?.open_tree(name)
    }
    pub(crate) fn trees(&self) -> Result<Vec<String>> {
        self.begin()?.trees()
    }
    pub(crate) fn prepared(&self) -> Vec<Xid> {
        let inner = self.lock();
        let keep = inner.options.mutant != Mutant::ForgetsPrepared;
        inner.prepared.keys().filter(|_| keep).cloned().map(Xid).collect()
    }
    pub(crate) fn commit_prepared(&self, xid: &Xid) -> Result<()> {
        self.end_prepared(xid, 2)
    }
    pub(crate) fn rollback_prepared(&self, xid: &Xid) -> Result<()> {
        self.end_prepared(xid, 3)
    }

    fn end_prepared(&self, xid: &Xid, kind: u8) -> Result<()> {
        let mut inner = self.lock();
        let name = || String::from_utf8_lossy(&xid.0).into_owned();
        let id = inner.prepared.get(&xid.0).ok_or_else(|| Error::Unknown { what: "XID", name: name() })?.0;
        inner.append(kind, &xid.0, &Changes::new(), Durability::Flushed)?;
        inner.replay(kind, xid.0.clone(), Changes::new());
        inner.release(id);
        Ok(())
    }

    pub(crate) fn checkpoint(&self) -> Result<()> {
        Ok(())
    }
    pub(crate) fn step(&self) -> Result<bool> {
        Ok(false)
    }
    pub(crate) fn step_task(&self, _task: Task) -> Result<bool> {
        Ok(false)
    }
    pub(crate) fn close(self) -> Result<()> {
        let inner = self.lock();
        inner.health.check()?;
        inner.disk.sync(&inner.file, SyncHow::All)?;
        Ok(())
    }
}

impl Inner {
    fn replay(&mut self, kind: u8, xid: Vec<u8>, changes: Changes) {
        for (_, id) in changes.iter().filter(|((tree, _), _)| *tree == CATALOG) {
            let id = id.as_ref().map_or(0, |id| id_of(id).0);
            self.next_tree = self.next_tree.max(id + 1);
        }
        let changes = match kind {
            0 => changes,
            1 => {
                self.next_txn += 1;
                let id = self.next_txn;
                self.written.extend(changes.keys().cloned().map(|row| (row, id)));
                self.prepared.insert(xid, (id, changes));
                return;
            }
            _ => {
                let Some((id, changes)) = self.prepared.remove(&xid) else { return };
                self.release(id);
                if kind == 2 { changes } else { return }
            }
        };
        self.commits += 1;
        for (row, value) in changes {
            self.rows.entry(row).or_default().push((self.commits, value));
        }
    }

    fn release(&mut self, id: u64) {
        self.written.retain(|_, holder| *holder != id);
        self.read.retain(|(_, holder)| *holder != id);
    }

    fn append(&mut self, kind: u8, xid: &[u8], changes: &Changes, level: Durability) -> Result<()> {
        self.health.check()?;
        let mut body = vec![kind];
        let mut field = |bytes: &[u8]| {
            body.extend((bytes.len() as u32).to_le_bytes());
            body.extend(bytes);
        };
        field(xid);
        for ((tree, key), value) in changes {
            field(&tree.0.to_le_bytes());
            field(key);
            field(&[u8::from(value.is_some())]);
            field(value.as_deref().unwrap_or_default());
        }
        let mut frame = Vec::from((body.len() as u32).to_le_bytes());
        frame.extend(crc32c::crc32c_append(self.end as u32, &body).to_le_bytes());
        frame.extend(body);
        let mut done = 0;
        while done < frame.len() {
            let bytes = [IoSlice::new(&frame[done..])];
            match self.disk.write_at(&self.file, self.end + done as u64, &bytes, WriteHow::default()) {
                Ok(moved) => done += moved,
                Err(error) => return Err(self.unknown(error.into())),
            }
        }
        if level == Durability::Flushed && self.options.mutant != Mutant::NoSync {
            if let Err(error) = self.disk.sync(&self.file, SyncHow::Data) {
                return Err(self.unknown(error.into()));
            }
        }
        self.end += frame.len() as u64;
        Ok(())
    }

    fn unknown(&self, error: Error) -> Error {
        Error::OutcomeUnknown { cause: Arc::new(self.health.poison(error)) }
    }

    fn latest(&self, row: &Row) -> Option<&(u64, Option<Vec<u8>>)> {
        self.rows.get(row)?.last()
    }
}

pub(crate) fn pages_deferred(_db: &Database) -> u64 {
    0
}

pub(crate) fn check(_db: &Database) -> Result<Vec<String>> {
    Ok(Vec::new())
}

pub(crate) fn head(_db: &Database) -> u64 {
    0
}

pub(crate) fn grow(_db: &Database, _bytes: u64) -> Result<()> {
    Ok(())
}

pub(crate) fn set(_db: &Database, _option: &str, _value: &str) -> Result<()> {
    Ok(())
}

fn frames(bytes: &[u8]) -> (Vec<(u8, Vec<u8>, Changes)>, u64) {
    let (mut records, mut at) = (Vec::new(), 0);
    let number = |at: usize| {
        let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().expect("four bytes");
        Some(u32::from_le_bytes(four))
    };
    while let (Some(len), Some(crc)) = (number(at), number(at + 4)) {
        let Some(body) = bytes.get(at + 8..at + 8 + len as usize) else { break };
        if len == 0 || crc32c::crc32c_append(at as u32, body) != crc {
            break;
        }
        let mut fields = Vec::new();
        let mut inside = at + 9;
        while inside < at + 8 + len as usize {
            let size = number(inside).expect("the checksum holds") as usize;
            fields.push(bytes[inside + 4..inside + 4 + size].to_vec());
            inside += 4 + size;
        }
        let changes = fields[1..].chunks(4).map(|row| {
            let tree = TreeId(u32::from_le_bytes(row[0][..].try_into().expect("four bytes")));
            ((tree, row[1].clone()), (row[2] == [1]).then(|| row[3].clone()))
        });
        records.push((body[0], fields[0].clone(), changes.collect()));
        at += 8 + len as usize;
    }
    (records, at as u64)
}

fn id_of(bytes: &[u8]) -> TreeId {
    TreeId(u32::from_le_bytes(bytes.try_into().expect("an id")))
}

fn conflict(tree: TreeId, key: &[u8]) -> Error {
    let on = LockedOn::row(tree, key);
    Error::LockTimeout { holder: TxnId::NONE, on, waited_ms: 0 }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.db.lock().release(self.id);
    }
}

/// Builds a tree with the rows of another.
pub(crate) fn index(db: &Database, base: &Tree, name: &str, mut during: impl FnMut()) -> Result<Tree> {
    let rows = db.begin()?.range::<Vec<u8>>(base, ..).len();
    (0..rows).for_each(|_| during());
    db.ddl(|tx| {
        let rows: Vec<_> = tx.range::<Vec<u8>>(base, ..).collect::<Result<_>>()?;
        let tree = tx.create_tree(name)?;
        for (key, value) in rows {
            tx.put(&tree, &key, &value)?;
        }
        Ok(tree)
    })
}

/// A cursor that takes its transaction as an argument of each call.
#[derive(Default)]
pub(crate) struct OwnedCursor {
    tree: Option<Tree>,
    at: (Vec<u8>, Vec<u8>),
}

impl OwnedCursor {
    pub(crate) fn new() -> Self {
        Self::default()
    }
    fn goes(&mut self, tx: &Transaction, bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>), front: bool) -> Result<bool> {
        let tree = self.tree.as_ref().expect("it was reset");
        let mut range = tx.range::<Vec<u8>>(tree, bounds);
        let Some(found) = (if front { range.next() } else { range.next_back() }) else { return Ok(false) };
        self.at = found?;
        Ok(true)
    }
    pub(crate) fn next(&mut self, tx: &Transaction) -> Result<bool> {
        self.goes(tx, (Bound::Excluded(self.at.0.clone()), Bound::Unbounded), true)
    }
    pub(crate) fn prev(&mut self, tx: &Transaction) -> Result<bool> {
        self.goes(tx, (Bound::Unbounded, Bound::Excluded(self.at.0.clone())), false)
    }
    pub(crate) fn entry(&mut self, _tx: &Transaction) -> Result<(&[u8], &[u8])> {
        Ok((&self.at.0, &self.at.1))
    }
}

pub(crate) fn reset(cursor: &mut OwnedCursor, tree: &Tree) {
    cursor.tree = Some(tree.clone());
}

pub(crate) fn seek(cursor: &mut OwnedCursor, tx: &Transaction, key: &[u8], front: bool) -> Result<bool> {
    let (low, high) = (Bound::Included(key.to_vec()), Bound::Unbounded);
    if front { cursor.goes(tx, (low, high), true) } else { cursor.goes(tx, (high, low), false) }
}

/// Builds a tree from sorted rows.
pub(crate) fn build(tx: &mut Transaction, name: &str, rows: &[(Vec<u8>, std::sync::Arc<[u8]>)]) -> Result<Tree> {
    let tree = tx.create_tree(name)?;
    for (key, value) in rows {
        tx.put(&tree, key, value)?;
    }
    Ok(tree)
}

/// The naive engine keeps every lock.
pub(crate) fn give_back(_tx: &Transaction, _tree: &Tree, _key: &[u8]) -> bool {
    false
}

/// The latest value, which needs a row lock here; it stays locked.
pub(crate) fn look(tx: &Transaction, tree: &Tree, key: &[u8]) -> Result<(Option<Vec<u8>>, bool)> {
    Ok((tx.get_for_update(tree, key)?, false))
}

/// It never waits: only scans are interrupted.
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    pub(crate) fn of(tx: &Transaction) -> Self {
        Self(tx.interrupt.clone())
    }

    pub(crate) fn raise(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn clear(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Deletes the first or last row that it sees; returns its key, and whether it still existed.
pub(crate) fn pop(tx: &mut Transaction, tree: &Tree, front: bool) -> Result<Option<(Vec<u8>, Result<bool>)>> {
    let mut range = tx.range::<Vec<u8>>(tree, ..);
    let Some(found) = (if front { range.next() } else { range.next_back() }) else { return Ok(None) };
    let (key, _) = found?;
    let deleted = tx.delete(tree, &key);
    Ok(Some((key, deleted)))
}

/// It writes and flushes at each ordered commit.
pub(crate) const ORDERED_WITHOUT_IO: bool = false;

pub(crate) fn prepare_in_place(tx: &mut Transaction, xid: &Xid, level: Durability) -> Result<u64> {
    tx.prepare_at(xid, level).map(|()| 0)
}

pub(crate) fn commit_ordered(tx: &mut Transaction, xid: &Xid) -> Result<()> {
    if tx.db.lock().options.mutant == Mutant::OrderedUnlogged {
        let mut inner = tx.db.lock();
        let id = inner.prepared.get(&xid.0).map_or(0, |(id, _)| *id);
        inner.replay(2, xid.0.clone(), Changes::new());
        inner.release(id);
    } else {
        tx.db.commit_prepared(xid)?;
    }
    tx.restart(tx.options)
}

pub(crate) fn end_in_place(tx: Transaction, xid: &Xid, commit: bool) -> Result<()> {
    let db = tx.db.clone();
    drop(tx);
    if commit { db.commit_prepared(xid) } else { db.rollback_prepared(xid) }
}

/// It does not know which ones are held open.
pub(crate) fn prepared(db: &Database, held: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
    db.prepared().into_iter().map(|xid| xid.0).filter(|xid| !held(xid)).collect()
}

pub(crate) fn flush_log(db: &Database) -> Result<()> {
    let inner = db.lock();
    inner.health.check()?;
    if inner.options.mutant == Mutant::NoSync {
        return Ok(());
    }
    inner.disk.sync(&inner.file, SyncHow::Data).map_err(|error| inner.health.poison(error.into()))
}

pub(crate) fn flush_log_to(db: &Database, _position: u64) -> Result<()> {
    flush_log(db)
}

pub(crate) fn on_durable(db: &Database, call: impl FnOnce(bool)) -> Result<()> {
    let early = db.lock().options.mutant == Mutant::TellsEarly;
    call(early || flush_log(db).is_ok());
    Ok(())
}

pub(crate) fn lock_or_committed(tx: &Transaction, tree: &Tree, key: &[u8]) -> Result<(Option<Vec<u8>>, bool)> {
    match tx.get_for_update(tree, key) {
        Err(Error::LockTimeout { .. }) if tx.options.isolation == Isolation::ReadCommitted => {
            let inner = tx.db.lock();
            let latest = inner.latest(&(tree.id, key.into()));
            let latest = latest.filter(|_| inner.options.mutant != Mutant::LooksPast);
            Ok((latest.and_then(|(_, value)| value.clone()), false))
        }
        found => Ok((found?, true)),
    }
}

pub(crate) struct Backup {
    db: Database,
    dir: String,
}

/// Every backup is a full one.
pub(crate) fn backup_begin(db: &Database, dir: &str, _base: Option<&str>) -> Result<Backup> {
    Ok(Backup { db: db.clone(), dir: dir.into() })
}

pub(crate) fn backup_step(_backup: &mut Backup, _bytes_max: u64) -> Result<bool> {
    Ok(true)
}

pub(crate) fn backup_end(backup: Backup) -> Result<()> {
    let Backup { db, dir } = backup;
    let inner = db.lock();
    inner.health.check()?;
    // The contents of a backup are durable in the source, too.
    if let Err(error) = inner.disk.sync(&inner.file, SyncHow::Data) {
        return Err(inner.health.poison(error.into()));
    }
    let short = if inner.options.mutant == Mutant::ShortCopy { inner.end.min(1) } else { 0 };
    copy(&*inner.disk, &inner.file, inner.end - short, &dir)
}

pub(crate) fn restore(env: &Env, from: &[String], to: &str) -> Result<()> {
    let last = Path::new(from.last().expect("there is one"));
    let file = env.disk.open(&last.join("log"), OpenHow::default())?;
    copy(&*env.disk, &file, env.disk.len(&file)?, to)
}

/// Copies the file durably into another directory.
fn copy(disk: &dyn Disk, from: &Handle, bytes: u64, dir: &str) -> Result<()> {
    let mut buffer = vec![0; bytes as usize];
    let mut done = 0;
    while done < buffer.len() {
        done += disk.read_at(from, done as u64, &mut buffer[done..])?;
    }
    let how = OpenHow { write: true, create: Create::IfMissing, ..OpenHow::default() };
    let (part, whole) = (Path::new(dir).join("part"), Path::new(dir).join("log"));
    let file = disk.open(&part, how)?;
    let mut done = 0;
    while done < buffer.len() {
        match disk.write_at(&file, done as u64, &[IoSlice::new(&buffer[done..])], WriteHow::default()) {
            Err(error) if error.errno() == Some(28) => {
                return Err(Error::NoSpace { path: part, needed_bytes: buffer.len() as u64, kept_free_bytes: 0 });
            }
            written => done += written?,
        }
    }
    disk.sync(&file, SyncHow::All)?;
    // Only a complete copy gets the final name.
    disk.rename(&part, &whole)?;
    Ok(disk.sync_dir(Path::new(dir))?)
}

/// The rows of one owner, now and at the last savepoint.
#[derive(Default)]
pub(crate) struct TemporaryTree(BTreeMap<Vec<u8>, Vec<u8>>, BTreeMap<Vec<u8>, Vec<u8>>);

pub(crate) struct TemporarySavepoint;

impl TemporaryTree {
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        Ok(self.0.insert(key.into(), value.into()).is_some())
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.0.remove(key).is_some())
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(key).cloned())
    }

    pub(crate) fn savepoint(&mut self) -> Result<TemporarySavepoint> {
        self.1.clone_from(&self.0);
        Ok(TemporarySavepoint)
    }

    pub(crate) fn rollback_to(&mut self, _: &TemporarySavepoint) -> Result<()> {
        self.0.clone_from(&self.1);
        Ok(())
    }
}

pub(crate) fn temporary_tree(_db: &Database, _memory_bytes: u64) -> Result<TemporaryTree> {
    Ok(TemporaryTree::default())
}

pub(crate) fn temporary_rows(tree: &TemporaryTree) -> Result<Vec<seawall::KeyValue>> {
    Ok(tree.0.clone().into_iter().collect())
}

pub(crate) fn shut_down(db: &Database) -> Result<()> {
    db.clone().close()
}

/// There is nothing to compact.
pub(crate) fn shrink(_db: &Database, _go_on: impl FnMut(bool) -> Result<bool>) -> Result<(u64, u64, u64)> {
    Ok((0, 0, 0))
}

pub(crate) fn compact(
    _db: &Database,
    _tree: &Tree,
    _fill_percent: u32,
    _go_on: impl FnMut() -> Result<bool>,
) -> Result<u64> {
    Ok(0)
}
