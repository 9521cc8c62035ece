//! LMDB, configured after the documentation in lmdb.h.
//!
//! - Used through its C interface: lmdb.h advises to renew read transactions and cursors, and the crate heed, whose C
//!   library this is, can renew neither.
//! - It has no cache of its own: data lives in the page cache, which only a memory cgroup can bound to the
//!   pool. With data larger than the pool `MDB_NORDAHEAD` is set, as lmdb.h advises for random reads; for scans
//!   the option `MDB_NORDAHEAD=false` leaves the kernel's read-ahead on.
//! - flushed: no flag, two flushes a commit. written: `MDB_NOSYNC`, pages are written at each commit and not flushed.
//!   deferred: `MDB_WRITEMAP | MDB_MAPASYNC`, pages are changed in the map, and a thread flushes each second.
//! - One writer at a time: write transactions wait for each other when they begin, and never conflict.
//! - One read transaction and one cursor per session, reset and renewed; `MDB_NOTLS`, because a session is not a
//!   thread.
//! - A load that need not be durable begins its transaction with `MDB_NOSYNC`: only that commit is not flushed.
//! - A single table is the environment's own; several tables are named.

mod env;

use self::env::{Env, Reader, Txn};
use crate::support::{Flusher, Options, setting};
use lmdb_master_sys as sys;
use seawall_bench::store::{About, Durability, Visit, While, found};
use seawall_bench::{Error, Result, Session, Settings, Store, Tx};
use std::ffi::c_uint;
use std::sync::Arc;

const NAME: &str = "lmdb";

/// An open LMDB environment.
pub(crate) struct Lmdb {
    tables: Vec<c_uint>,
    flusher: Flusher,
    about: About,
    env: Arc<Env>,
}

impl Lmdb {
    /// Opens the environment. Options: `mapsize` (bytes), `maxreaders`, and the flags `MDB_NORDAHEAD` and
    /// `MDB_WRITEMAP` (true or false).
    pub(crate) fn open(settings: &Settings) -> Result<Self> {
        settings.make_dir(NAME)?;
        let mut options = Options::new(NAME, settings);
        // Sparse: unused space costs only addresses. Copies of pages and free pages need room beyond the
        // data.
        let default_bytes = settings.data_bytes.saturating_mul(4).max(1 << 30);
        let map_bytes: u64 = options.take("mapsize")?.unwrap_or(default_bytes);
        // Besides the threads' sessions there are sessions that load or check.
        let readers = options.take("maxreaders")?.unwrap_or_else(|| settings.threads.saturating_add(16).max(126));
        let no_readahead = options.take("MDB_NORDAHEAD")?.unwrap_or(settings.data_bytes > settings.pool_bytes);
        let deferred = settings.durability == Durability::Deferred;
        let write_map = options.take("MDB_WRITEMAP")?.unwrap_or(deferred);
        options.end()?;

        let chosen = [
            ("MDB_NOTLS", sys::MDB_NOTLS, true),
            ("MDB_NORDAHEAD", sys::MDB_NORDAHEAD, no_readahead),
            ("MDB_WRITEMAP", sys::MDB_WRITEMAP, write_map),
            ("MDB_MAPASYNC", sys::MDB_MAPASYNC, deferred && write_map),
            ("MDB_NOSYNC", sys::MDB_NOSYNC, settings.durability == Durability::Written || (deferred && !write_map)),
        ];
        let flags = chosen.iter().filter(|(_, _, on)| *on).fold(0, |flags, (_, bit, _)| flags | bit);
        let Some(dir) = settings.dir.to_str() else {
            return Err(Error::failed(NAME, format!("the path {} is not UTF-8", settings.dir.display())));
        };
        let number = |value: u64| u32::try_from(value).map_err(|error| Error::failed(NAME, error));
        // LMDB needs a multiple of the page size.
        let map_size = usize::try_from(map_bytes.next_multiple_of(4096)).map_err(|error| Error::failed(NAME, error))?;
        let env = Env::open(dir, flags, map_size, number(readers as u64)?, number(settings.tables.len() as u64)?)?;
        let txn = env.begin(0)?;
        let tables = match &settings.tables[..] {
            [_] => vec![txn.open_table(None)?],
            names => names.iter().map(|name| txn.open_table(Some(name))).collect::<Result<_>>()?,
        };
        txn.commit()?;

        let env = Arc::new(env);
        let flushed = Arc::clone(&env);
        let flusher = Flusher::new(NAME, deferred, move || flushed.sync());
        let mut shown = vec![setting("mapsize", map_size), setting("maxreaders", readers)];
        shown.extend(chosen.iter().map(|(name, _, on)| setting(name, on)));
        if deferred {
            shown.push(setting("mdb_env_sync", "each second"));
        }
        let about = About { version: env::version(), settings: shown };
        Ok(Self { tables, flusher, about, env })
    }
}

impl Store for Lmdb {
    fn about(&self) -> About {
        self.about.clone()
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Work { store: self, reader: Reader::new(&self.env)? }))
    }

    /// There is no background work, only unflushed commits.
    fn settle(&self) -> Result<()> {
        self.env.sync()
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.flusher.end()?;
        self.env.sync()
    }
}

/// The session of one thread.
struct Work<'s> {
    store: &'s Lmdb,
    reader: Reader<'s>,
}

impl Session for Work<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.reader.read(|txn| Ok(txn.get(self.store.tables[0], key)?.map(visit).is_some()))
    }

    fn walk(&mut self, from: &[u8], to: Option<&[u8]>, visit: &mut While<'_>) -> Result<()> {
        self.reader.walk(self.store.tables[0], |cursor| {
            let mut entry = cursor.go(sys::MDB_SET_RANGE, from)?;
            while let Some((key, value)) = entry.filter(|(key, _)| to.is_none_or(|to| *key < to)) {
                entry = if visit(key, value) { cursor.go(sys::MDB_NEXT, &[])? } else { None };
            }
            Ok(())
        })
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], visit: &mut Visit<'_>) -> Result<u64> {
        let table = self.store.tables[0];
        self.reader.read(|txn| found(keys, |key| Ok(txn.get(table, key)?.map(|value| visit(key, value)).is_some())))
    }

    fn transaction(&mut self, durable: bool) -> Result<Box<dyn Tx + '_>> {
        let txn = self.store.env.begin(if durable { 0 } else { sys::MDB_NOSYNC })?;
        Ok(Box::new(Open { tables: &self.store.tables, txn }))
    }
}

/// The write transaction; it is rolled back when dropped.
struct Open<'s> {
    tables: &'s [c_uint],
    txn: Txn<'s>,
}

impl Tx for Open<'_> {
    /// The only writer: the value that it reads is the latest, and stays the latest. So it serves as
    /// [`Tx::get_for_update`] too.
    fn get(&mut self, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.txn.get(self.tables[table], key)?.map(<[u8]>::to_vec))
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.put(self.tables[table], key, value)
    }

    /// Appends rows as long as each comes after all others, which fills pages instead of halving them; puts the
    /// remaining rows.
    fn put_many(&mut self, table: usize, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let (table, mut ascending) = (self.tables[table], true);
        for (key, value) in rows {
            ascending = ascending && self.txn.append(table, key, value)?;
            if !ascending {
                self.txn.put(table, key, value)?;
            }
        }
        Ok(())
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        self.txn.delete(self.tables[table], key)
    }

    fn scan(&mut self, table: usize, from: &[u8], to: &[u8], backward: bool, visit: &mut While<'_>) -> Result<()> {
        let mut cursor = self.txn.cursor(self.tables[table])?;
        let mut entry = if !backward {
            cursor.go(sys::MDB_SET_RANGE, from)?
        } else if cursor.go(sys::MDB_SET_RANGE, to)?.is_some() {
            cursor.go(sys::MDB_PREV, &[])?
        } else {
            cursor.go(sys::MDB_LAST, &[])?
        };
        while let Some((key, value)) = entry {
            if key < from || key >= to || !visit(key, value) {
                break;
            }
            entry = cursor.go(if backward { sys::MDB_PREV } else { sys::MDB_NEXT }, &[])?;
        }
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<()> {
        self.txn.commit()
    }
}
