//! Seawall.

use crate::slow_disk::SlowDisk;
use crate::store::{About, Durability, Error, Result, Session, Settings, Store, Tx, Visit, While};
use seawall::{
    BackupOptions, Cursor, CursorOptions, Database, Env, Isolation, OnConflict, Options, OwnedCursor, Seek,
    Transaction, Tree, TxOptions,
};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

const NAME: &str = "seawall";

impl From<seawall::Error> for Error {
    fn from(error: seawall::Error) -> Self {
        match error {
            seawall::Error::Deadlock { .. }
            | seawall::Error::LockTimeout { .. }
            | seawall::Error::WriteConflict { .. } => Self::Conflict(error.to_string()),
            error => Self::failed(NAME, error),
        }
    }
}

/// An open Seawall database.
#[derive(Debug)]
pub struct Seawall {
    db: Database,
    trees: Vec<Tree>,
    durability: Durability,
}

impl Seawall {
    /// Opens the database.
    ///
    /// # Errors
    /// Those of opening and of unknown options.
    pub fn open(settings: &Settings) -> Result<Self> {
        let mut options = Options::default().with_pool_size(settings.pool_bytes).with_durability(settings.durability);
        for (name, value) in &settings.options {
            options.set(name, value)?;
        }
        let db = if settings.flush_delay.is_zero() {
            Database::open_with(&settings.dir, options)?
        } else {
            settings.make_dir(NAME)?;
            let mut env = Env::system(options.io_backend())?;
            env.disk = Arc::new(SlowDisk::new(env.disk, settings.flush_delay));
            Database::open_in(env, &settings.dir, options)?
        };
        let trees = settings.tables.iter().map(|name| db.create_tree(name)).collect::<seawall::Result<_>>()?;
        Ok(Self { db, trees, durability: settings.durability })
    }

    /// The database: for workloads of Seawall only.
    pub fn database(&self) -> &Database {
        &self.db
    }
}

impl Store for Seawall {
    fn about(&self) -> About {
        let shown = [
            "pool_size",
            "durability",
            "page_size",
            "log_capacity",
            "log_flush_method",
            "data_flush_method",
            "torn_page_protection",
            "prefetch_depth",
        ];
        let options = self.db.options();
        let settings = shown.map(|name| (name.to_owned(), options.get(name).unwrap_or_default())).into();
        About { version: env!("CARGO_PKG_VERSION").into(), settings }
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let (tx, cursor) = (self.db.begin()?, OwnedCursor::new());
        Ok(Box::new(Work { store: self, tx, cursor }))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let pool = self.db.stats().pool;
        vec![
            ("prefetched", pool.prefetched),
            ("prefetch_wasted", pool.prefetch_wasted),
            ("prefetch_reads", pool.prefetch_reads),
            ("prefetch_depth_sum", pool.prefetch_depth_sum),
            ("prefetch_waits", pool.prefetch_waits),
        ]
    }

    /// True when the log has wrapped twice: the cleaner then writes pages at the rate at which changes reuse the log.
    fn steady(&self) -> Box<dyn Fn() -> bool + Sync + '_> {
        let head = || self.db.stats().log.head_lsn;
        let end = head() + 2 * self.db.options().log_capacity();
        Box::new(move || head() >= end)
    }

    fn settle(&self) -> Result<()> {
        Ok(self.db.checkpoint()?)
    }

    fn back_up(&self, to: &Path, go_on: &mut dyn FnMut(u64) -> bool) -> Result<()> {
        let (page_bytes, mut told) = (self.db.options().page_size(), 0);
        self.db.backup_to_with(to, &BackupOptions::default(), |progress| {
            let read = progress.pages_read * page_bytes + progress.log_bytes;
            let more = read - std::mem::replace(&mut told, read);
            if go_on(more) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self.trees);
        Ok(self.db.close()?)
    }
}

/// The session of one thread.
struct Work<'s> {
    store: &'s Seawall,
    /// Reused from one scan to the next: each commits in place, so that none sees the snapshot of another.
    tx: Transaction,
    cursor: OwnedCursor,
}

impl Work<'_> {
    /// A transaction for a single change, which needs no snapshot beyond its statement.
    fn single(&self) -> Result<Transaction> {
        Ok(self.store.db.begin_with(TxOptions { isolation: Isolation::ReadCommitted, ..TxOptions::default() })?)
    }

    fn tree(&self) -> &Tree {
        &self.store.trees[0]
    }
}

impl Session for Work<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.store.db.get_with(self.tree(), key, visit)?.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut tx = self.single()?;
        tx.put(self.tree(), key, value)?;
        Ok(tx.commit()?)
    }

    fn read_modify_write(&mut self, key: &[u8], change: &mut dyn FnMut(&mut Vec<u8>)) -> Result<()> {
        let mut tx = self.single()?;
        let mut value = tx.get_for_update(self.tree(), key)?.unwrap_or_default();
        change(&mut value);
        tx.put(self.tree(), key, &value)?;
        Ok(tx.commit()?)
    }

    fn load(&mut self, rows: &[(Vec<u8>, Vec<u8>)], durable: bool) -> Result<()> {
        let mut tx = self.single()?;
        tx.put_many(self.tree(), rows)?;
        Ok(tx.commit_with(if durable { self.store.durability } else { Durability::Deferred })?)
    }

    fn scan(&mut self, from: &[u8], rows: u64, visit: &mut Visit<'_>) -> Result<u64> {
        let options = CursorOptions { limit: Some(rows), ..CursorOptions::default() };
        self.cursor.reset(&self.store.trees[0], options, from..);
        let (tx, mut seen) = (&self.tx, 0);
        if rows > 0 && self.cursor.seek(tx, Seek::First)? {
            let (key, value) = self.cursor.entry(tx)?;
            visit(key, value);
            seen = 1;
        }
        if seen > 0 && seen < rows {
            self.cursor.next_while(tx, |key, value| {
                visit(key, value);
                seen += 1;
                seen < rows
            })?;
        }
        self.tx.commit_in_place()?;
        Ok(seen)
    }

    fn walk(&mut self, from: &[u8], to: Option<&[u8]>, visit: &mut While<'_>) -> Result<()> {
        let tx = self.store.db.begin()?;
        // A scan to the end of the table declares itself long; a range has its end as the bound.
        let cursor = tx.cursor(self.tree(), CursorOptions { long: to.is_none(), ..CursorOptions::default() });
        let cursor = match to {
            Some(to) => cursor.within(from..to),
            None => cursor,
        };
        go_through(cursor, Seek::AtLeast(from), |key| to.is_none_or(|to| key < to), visit)
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], visit: &mut Visit<'_>) -> Result<u64> {
        let values = self.store.db.begin()?.multi_get(self.tree(), keys)?;
        let found = keys.iter().zip(values).filter_map(|(key, value)| Some((key, value?)));
        Ok(found.map(|(key, value)| visit(key, &value)).count() as u64)
    }

    fn transaction(&mut self, durable: bool) -> Result<Box<dyn Tx + '_>> {
        // The transaction acts on the latest version, as the peers' transactions do.
        let durability = (!durable).then_some(Durability::Deferred);
        let options = TxOptions { on_conflict: OnConflict::Latest, durability, ..TxOptions::default() };
        Ok(Box::new(Open { tx: self.store.db.begin_with(options)?, trees: &self.store.trees }))
    }
}

/// Visits entries from `first` on, backward from [`Seek::Before`], as long as they are `inside`. Key and value are
/// borrowed from the cursor.
fn go_through(
    mut cursor: Cursor<'_>,
    first: Seek<'_>,
    inside: impl Fn(&[u8]) -> bool,
    visit: &mut While<'_>,
) -> Result<()> {
    let backward = matches!(first, Seek::Before(_));
    let mut there = cursor.seek(first)?;
    while there {
        let (key, value) = cursor.entry()?;
        there = inside(key) && visit(key, value) && if backward { cursor.prev()? } else { cursor.next()? };
    }
    Ok(())
}

/// A transaction over all trees.
struct Open<'s> {
    tx: Transaction,
    trees: &'s [Tree],
}

impl Tx for Open<'_> {
    fn get(&mut self, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.tx.get(&self.trees[table], key)?)
    }

    fn get_for_update(&mut self, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.tx.get_for_update(&self.trees[table], key)?)
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.tx.put(&self.trees[table], key, value)?)
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        self.tx.delete(&self.trees[table], key)?;
        Ok(())
    }

    fn scan(&mut self, table: usize, from: &[u8], to: &[u8], backward: bool, visit: &mut While<'_>) -> Result<()> {
        let cursor = self.tx.cursor(&self.trees[table], CursorOptions::default());
        let first = if backward { Seek::Before(to) } else { Seek::AtLeast(from) };
        let inside = |key: &[u8]| if backward { key >= from } else { key < to };
        go_through(cursor, first, inside, visit)
    }

    fn commit(self: Box<Self>) -> Result<()> {
        Ok(self.tx.commit()?)
    }
}
