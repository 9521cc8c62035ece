//! fjall with optimistic transactions, configured after its documentation on docs.rs (`OptimisticTxDatabase`,
//! `PersistMode`, `DatabaseBuilder`).
//!
//! - The pool is the whole memory: two memtables of an eighth of it (at most 64 MiB each) per keyspace, and
//!   the block cache with the rest.
//! - flushed: `PersistMode::SyncData` at each commit (fdatasync, which its documentation names for ACID transactions).
//!   written: `PersistMode::Buffer`. deferred: `manual_journal_persist`, and a thread that persists each second.
//! - A transaction whose reads another transaction changed meanwhile fails at its commit: a conflict.

use crate::support::{Flusher, Options, bounds, setting, until_idle, while_true};
use fjall::{KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, PersistMode, Readable};
use seawall_bench::store::{About, Durability, Visit, While, found};
use seawall_bench::{Error, Result, Session, Settings, Store, Tx};
use std::fmt::Display;

const NAME: &str = "fjall";

fn error_of(error: impl Display) -> Error {
    Error::failed(NAME, error)
}

/// An open fjall.
pub(crate) struct Fjall {
    db: OptimisticTxDatabase,
    tables: Vec<OptimisticTxKeyspace>,
    persist: Option<PersistMode>,
    flusher: Flusher,
    about: About,
}

impl Fjall {
    /// Opens the store. Options: `cache_size` and `max_memtable_size` (bytes), `worker_threads`.
    pub(crate) fn open(settings: &Settings) -> Result<Self> {
        settings.make_dir(NAME)?;
        let mut options = Options::new(NAME, settings);
        let default_bytes = (settings.pool_bytes / 8).clamp(1 << 20, 64 << 20);
        let memtable_bytes: u64 = options.take("max_memtable_size")?.unwrap_or(default_bytes);
        let keyspaces = settings.tables.len() as u64;
        // Small tables fill no memtable: with more than four keyspaces, all memtables together get a quarter
        // of the pool.
        let memtables_bytes = (2 * memtable_bytes * keyspaces).min(settings.pool_bytes / 4);
        let default_bytes = settings.pool_bytes.saturating_sub(memtables_bytes);
        let cache_bytes = options.take("cache_size")?.unwrap_or(default_bytes);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let workers = options.take("worker_threads")?.unwrap_or(cores.min(4));
        options.end()?;
        if workers == 0 {
            return Err(error_of("option worker_threads: 0 is not understood: at least 1 is needed"));
        }
        let persist = match settings.durability {
            Durability::Flushed => Some(PersistMode::SyncData),
            Durability::Written => Some(PersistMode::Buffer),
            Durability::Deferred => None,
        };
        let db = OptimisticTxDatabase::builder(settings.dir.join("data"))
            .cache_size(cache_bytes)
            .worker_threads(workers)
            .manual_journal_persist(persist.is_none())
            .open()
            .map_err(|error| error_of(format!("cannot open {}: {error}", settings.dir.display())))?;
        let table = |name: &String| {
            db.keyspace(name, || {
                KeyspaceCreateOptions::default()
                    .max_memtable_size(memtable_bytes)
                    .manual_journal_persist(persist.is_none())
            })
        };
        let tables = settings.tables.iter().map(table).collect::<fjall::Result<_>>().map_err(error_of)?;
        let flushed = db.clone();
        let flusher =
            Flusher::new(NAME, persist.is_none(), move || flushed.persist(PersistMode::SyncData).map_err(error_of));
        let mode = persist.map_or_else(|| "manual, SyncData each second".to_owned(), |mode| format!("{mode:?}"));
        let shown = vec![
            setting("cache_size", cache_bytes),
            setting("max_memtable_size", memtable_bytes),
            setting("worker_threads", workers),
            setting("PersistMode", mode),
            setting("data_block_compression", "default (LZ4 below the first levels)"),
        ];
        let about = About { version: env!("SEAWALL_PEERS_FJALL").into(), settings: shown };
        Ok(Self { db, tables, persist, flusher, about })
    }
}

/// Visits the entries from `from` up to `to`, until `visit` returns false.
fn go_through(
    db: &impl Readable,
    table: &OptimisticTxKeyspace,
    from: &[u8],
    to: Option<&[u8]>,
    backward: bool,
    visit: &mut While<'_>,
) -> Result<()> {
    let Some(bounds) = bounds(from, to) else { return Ok(()) };
    let entries = db.range::<&[u8], _>(table, bounds).map(|entry| {
        let (key, value) = entry.into_inner().map_err(error_of)?;
        Ok(visit(&key, &value))
    });
    while_true(entries, backward)
}

impl Store for Fjall {
    fn about(&self) -> About {
        self.about.clone()
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Work(self)))
    }

    fn steady(&self) -> Box<dyn Fn() -> bool + Sync + '_> {
        let before = self.db.inner().compactions_completed();
        Box::new(move || self.db.inner().compactions_completed() > before)
    }

    /// Flushes the memtables and waits until no compaction has run for a while.
    fn settle(&self) -> Result<()> {
        for table in &self.tables {
            table.inner().rotate_memtable_and_wait().map_err(error_of)?;
        }
        let db = self.db.inner();
        until_idle(|| Ok((db.outstanding_flushes() + db.active_compactions()) as u64))
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.flusher.end()?;
        self.db.persist(PersistMode::SyncAll).map_err(error_of)
    }
}

/// The session of one thread.
struct Work<'s>(&'s Fjall);

impl Session for Work<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.0.tables[0].get(key).map_err(error_of)?;
        Ok(value.map(|value| visit(&value)).is_some())
    }

    fn walk(&mut self, from: &[u8], to: Option<&[u8]>, visit: &mut While<'_>) -> Result<()> {
        go_through(&self.0.db.read_tx(), &self.0.tables[0], from, to, false, visit)
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], visit: &mut Visit<'_>) -> Result<u64> {
        let snapshot = self.0.db.read_tx();
        found(keys, |key| {
            let value = snapshot.get(&self.0.tables[0], key).map_err(error_of)?;
            Ok(value.map(|value| visit(key, &value)).is_some())
        })
    }

    fn transaction(&mut self, durable: bool) -> Result<Box<dyn Tx + '_>> {
        let persist = if durable { self.0.persist } else { None };
        let tx = self.0.db.write_tx().map_err(error_of)?.durability(persist);
        Ok(Box::new(Open { tables: &self.0.tables, tx }))
    }
}

/// A transaction; when dropped, fjall discards it.
struct Open<'s> {
    tables: &'s [OptimisticTxKeyspace],
    tx: fjall::OptimisticWriteTx,
}

impl Tx for Open<'_> {
    /// Takes no lock, but records the read: if another transaction changes the row meanwhile, the commit is a conflict.
    /// So it serves as [`Tx::get_for_update`] too.
    fn get(&mut self, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.tx.get(&self.tables[table], key).map_err(error_of)?.map(|value| value.to_vec()))
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.tx.insert(&self.tables[table], key, value);
        Ok(())
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        self.tx.remove(&self.tables[table], key);
        Ok(())
    }

    fn scan(&mut self, table: usize, from: &[u8], to: &[u8], backward: bool, visit: &mut While<'_>) -> Result<()> {
        go_through(&self.tx, &self.tables[table], from, Some(to), backward, visit)
    }

    fn commit(self: Box<Self>) -> Result<()> {
        self.tx.commit().map_err(error_of)?.map_err(|conflict| Error::Conflict(conflict.to_string()))
    }
}
