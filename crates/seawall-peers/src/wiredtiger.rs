//! WiredTiger, configured after its pages "Commit-level durability", "Cache and eviction tuning" and
//! "Checkpoint-level durability".
//!
//! - The pool is `cache_size`. Files also go through the page cache, which only a memory cgroup can bound.
//!   Its documentation advises against `direct_io` in general: it is an option.
//! - flushed: `transaction_sync=(enabled=true,method=fsync)`, commits of several threads share a flush. written: `method=none`, the log is
//!   written at each commit. deferred: `enabled=false`, and a thread that flushes the log each second.
//! - Snapshot isolation; a row that another transaction changed meanwhile is a conflict. `get_for_update`
//!   reserves the row.
//! - A checkpoint each minute or 2 GB of log.

mod handle;

use self::handle::{Connection, Cursor, version};
use crate::support::{Flusher, make_dir, setting};
use seawall_bench::store::{About, Durability, Visit};
use seawall_bench::{Error, Result, Session, Settings, Store, Tx};
use std::rc::Rc;
use std::sync::Arc;

const NAME: &str = "wiredtiger";

/// An open WiredTiger database.
pub(crate) struct WiredTiger {
    /// URIs.
    tables: Vec<String>,
    flusher: Option<Flusher>,
    about: About,
    connection: Arc<Connection>,
}

fn text_of(list: &[(String, String)]) -> String {
    list.iter().map(|(name, value)| format!("{name}={value},")).collect()
}

impl WiredTiger {
    /// Opens it. Options: those of `wiredtiger_open` by their own names, and with the prefix `table.` those
    /// of `WT_SESSION::create`.
    pub(crate) fn open(settings: &Settings) -> Result<Self> {
        make_dir(NAME, settings)?;
        let sync = match settings.durability {
            Durability::Flushed => "(enabled=true,method=fsync)",
            Durability::Written => "(enabled=true,method=none)",
            Durability::Deferred => "(enabled=false)",
        };
        let mut database = vec![
            setting("create", true),
            // WiredTiger accepts no less than 1 MB.
            setting("cache_size", settings.pool_bytes.max(1 << 20)),
            setting("log", "(enabled=true)"),
            setting("transaction_sync", sync),
            setting("checkpoint", "(wait=60,log_size=2GB)"),
            // Beside those of the threads: its own, and those that load or check.
            setting("session_max", settings.threads.saturating_add(64)),
        ];
        let mut table = vec![setting("key_format", "u"), setting("value_format", "u")];
        for (name, value) in &settings.options {
            let (list, name) = match name.strip_prefix("table.") {
                Some(name) => (&mut table, name),
                None => (&mut database, name.as_str()),
            };
            list.retain(|(set, _)| set != name);
            list.push(setting(name, value));
        }
        let Some(dir) = settings.dir.to_str() else {
            return Err(Error::failed(NAME, format!("the path {} is not UTF-8", settings.dir.display())));
        };
        let connection = Arc::new(Connection::open(dir, &text_of(&database))?);
        let session = handle::Session::new(&connection)?;
        let tables: Vec<_> = settings.tables.iter().map(|name| format!("table:{name}")).collect();
        for uri in &tables {
            session.create(uri, &text_of(&table))?;
        }
        let flusher =
            (settings.durability == Durability::Deferred).then(|| Flusher::start(move || session.log_flush()));
        let mut shown = database;
        shown.extend(table.into_iter().map(|(name, value)| (format!("table.{name}"), value)));
        shown.push(setting("isolation", "snapshot"));
        Ok(Self { tables, flusher, about: About { version: version(), settings: shown }, connection })
    }
}

impl Store for WiredTiger {
    fn about(&self) -> About {
        self.about.clone()
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let session = Rc::new(handle::Session::new(&self.connection)?);
        let cursors = self.tables.iter().map(|uri| session.cursor(uri)).collect::<Result<_>>()?;
        Ok(Box::new(Work { cursors, session, value: Vec::new() }))
    }

    fn settle(&self) -> Result<()> {
        handle::Session::new(&self.connection)?.checkpoint()
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.flusher.take().map_or(Ok(()), |flusher| flusher.end(NAME))?;
        match Arc::try_unwrap(self.connection) {
            Ok(connection) => connection.close(),
            Err(_shared) => Err(Error::failed(NAME, "cannot close: a session is still open")),
        }
    }
}

/// The session of one thread.
struct Work {
    /// One for each table.
    cursors: Vec<Cursor>,
    session: Rc<handle::Session>,
    value: Vec<u8>,
}

impl Work {
    fn begin(&mut self) -> Result<Open<'_>> {
        self.session.begin()?;
        Ok(Open { cursors: &mut self.cursors, session: &self.session, over: false })
    }
}

/// The latest value of `key`, reserved for the transaction.
fn get_for_update<'c>(cursor: &'c mut Cursor, key: &[u8]) -> Result<Option<&'c [u8]>> {
    if cursor.reserve(key)? { cursor.get(key) } else { Ok(None) }
}

impl Session for Work {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let cursor = &mut self.cursors[0];
        let value = cursor.get(key)?;
        let there = value.is_some();
        if let Some(value) = value {
            visit(value);
        }
        cursor.reset()?;
        Ok(there)
    }

    /// WiredTiger itself retries after a conflict, where one change is the whole transaction.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.cursors[0].put(key, value)
    }

    fn read_modify_write(&mut self, key: &[u8], change: &mut dyn FnMut(&mut Vec<u8>)) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.value);
        buffer.clear();
        let tx = self.begin()?;
        buffer.extend_from_slice(get_for_update(&mut tx.cursors[0], key)?.unwrap_or_default());
        change(&mut buffer);
        tx.cursors[0].put(key, &buffer)?;
        tx.commit(true)?;
        self.value = buffer;
        Ok(())
    }

    fn load(&mut self, rows: &[(Vec<u8>, Vec<u8>)], durable: bool) -> Result<()> {
        let tx = self.begin()?;
        for (key, value) in rows {
            tx.cursors[0].put(key, value)?;
        }
        tx.commit(durable)
    }

    fn scan(&mut self, from: &[u8], rows: u64, visit: &mut Visit<'_>) -> Result<u64> {
        let cursor = &mut self.cursors[0];
        let mut seen = 0;
        let mut there = rows > 0 && if from.is_empty() { cursor.step(false)? } else { cursor.seek(from, false)? };
        while there {
            let (key, value) = cursor.entry()?;
            visit(key, value);
            seen += 1;
            there = seen < rows && cursor.step(false)?;
        }
        cursor.reset()?;
        Ok(seen)
    }

    fn range(&mut self, from: &[u8], to: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<u64> {
        let cursor = &mut self.cursors[0];
        let mut seen = 0;
        let mut there = if from.is_empty() { cursor.step(false)? } else { cursor.seek(from, false)? };
        while there {
            let (key, value) = cursor.entry()?;
            if to.is_some_and(|to| key >= to) {
                break;
            }
            visit(key, value);
            seen += 1;
            there = cursor.step(false)?;
        }
        cursor.reset()?;
        Ok(seen)
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], visit: &mut Visit<'_>) -> Result<u64> {
        let tx = self.begin()?;
        let mut found = 0;
        for key in keys {
            let Some(value) = tx.cursors[0].get(key)? else { continue };
            visit(key, value);
            found += 1;
        }
        tx.commit(true)?;
        Ok(found)
    }

    fn begin(&mut self) -> Result<Box<dyn Tx + '_>> {
        Ok(Box::new(Work::begin(self)?))
    }
}

/// The session's transaction; its cursors are reset when it ends.
struct Open<'s> {
    cursors: &'s mut [Cursor],
    session: &'s handle::Session,
    over: bool,
}

impl Open<'_> {
    fn commit(mut self, sync: bool) -> Result<()> {
        self.over = true;
        self.session.commit(sync)
    }
}

impl Tx for Open<'_> {
    fn get(&mut self, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.cursors[table].get(key)?.map(<[u8]>::to_vec))
    }

    fn get_for_update(&mut self, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(get_for_update(&mut self.cursors[table], key)?.map(<[u8]>::to_vec))
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.cursors[table].put(key, value)
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        self.cursors[table].remove(key)
    }

    fn scan(
        &mut self,
        table: usize,
        from: &[u8],
        to: &[u8],
        backward: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let cursor = &mut self.cursors[table];
        let mut there = cursor.seek(if backward { to } else { from }, backward)?;
        while there {
            let (key, value) = cursor.entry()?;
            if key < from || key >= to || !visit(key, value) {
                break;
            }
            there = cursor.step(backward)?;
        }
        cursor.reset()
    }

    fn commit(self: Box<Self>) -> Result<()> {
        Open::commit(*self, true)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.over {
            // A drop cannot report an error.
            drop(self.session.rollback());
        }
    }
}
