//! redb, configured after its documentation on docs.rs (`Builder`, `Durability`).
//!
//! - The pool is `cache_size`.
//! - flushed: `Durability::Immediate`. deferred: `Durability::None`, and a thread that commits at `Immediate`
//!   each second, which makes all earlier commits durable. written: redb keeps unflushed data in its own
//!   memory, so it has no such level: refused.
//! - One writer at a time: transactions wait for each other when they begin, and never conflict.

use crate::support::{Flusher, Options, bounds, setting, while_true};
use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use seawall_bench::store::{About, Durability, Visit, While, found};
use seawall_bench::{Error, Result, Session, Settings, Store, Tx};
use std::fmt::Display;
use std::sync::Arc;

const NAME: &str = "redb";

type Table<'n> = TableDefinition<'n, &'static [u8], &'static [u8]>;

fn error_of(error: impl Display) -> Error {
    Error::failed(NAME, error)
}

/// An open redb.
pub(crate) struct Redb {
    db: Arc<Database>,
    tables: Vec<String>,
    durability: redb::Durability,
    flusher: Flusher,
    about: About,
}

fn begin(db: &Database, durability: redb::Durability) -> Result<WriteTransaction> {
    let mut tx = db.begin_write().map_err(error_of)?;
    tx.set_durability(durability).map_err(error_of)?;
    Ok(tx)
}

fn flush(db: &Database) -> Result<()> {
    begin(db, redb::Durability::Immediate)?.commit().map_err(error_of)
}

/// Visits the entries from `from` up to `to`, until `visit` returns false.
fn go_through(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    from: &[u8],
    to: Option<&[u8]>,
    backward: bool,
    visit: &mut While<'_>,
) -> Result<()> {
    let Some(bounds) = bounds(from, to) else { return Ok(()) };
    let entries = table.range::<&[u8]>(bounds).map_err(error_of)?.map(|entry| {
        let (key, value) = entry.map_err(error_of)?;
        Ok(visit(key.value(), value.value()))
    });
    while_true(entries, backward)
}

impl Redb {
    /// Opens the store. Option: `cache_size`, bytes.
    pub(crate) fn open(settings: &Settings) -> Result<Self> {
        let durability = match settings.durability {
            Durability::Flushed => redb::Durability::Immediate,
            Durability::Deferred => redb::Durability::None,
            Durability::Written => {
                return Err(Error::Unsupported {
                    store: NAME,
                    what: "durability written (2): it flushes (1) or keeps commits in its own memory (0)",
                });
            }
        };
        settings.make_dir(NAME)?;
        let mut options = Options::new(NAME, settings);
        let pool_bytes = usize::try_from(settings.pool_bytes).map_err(error_of)?;
        let cache_bytes = options.take("cache_size")?.unwrap_or(pool_bytes);
        options.end()?;
        let file = settings.dir.join("data.redb");
        let db = Builder::new().set_cache_size(cache_bytes).create(&file);
        let db = db.map_err(|error| error_of(format!("cannot open {}: {error}", file.display())))?;
        let db = Arc::new(db);
        let tx = begin(&db, redb::Durability::Immediate)?;
        for name in &settings.tables {
            tx.open_table(Table::new(name)).map_err(error_of)?;
        }
        tx.commit().map_err(error_of)?;
        let flushed = Arc::clone(&db);
        let flusher = Flusher::new(NAME, settings.durability == Durability::Deferred, move || flush(&flushed));
        let shown = vec![
            setting("cache_size", cache_bytes),
            setting("durability", format!("{durability:?}")),
            setting("two_phase_commit", false),
            setting("quick_repair", false),
        ];
        let about = About { version: env!("SEAWALL_PEERS_REDB").into(), settings: shown };
        Ok(Self { db, tables: settings.tables.clone(), durability, flusher, about })
    }

    fn definition(&self, table: usize) -> Table<'_> {
        Table::new(&self.tables[table])
    }
}

impl Store for Redb {
    fn about(&self) -> About {
        self.about.clone()
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Work(self)))
    }

    /// There is no background work, only unflushed commits.
    fn settle(&self) -> Result<()> {
        flush(&self.db)
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.flusher.end()?;
        flush(&self.db)
    }
}

/// The session of one thread.
struct Work<'s>(&'s Redb);

impl Work<'_> {
    fn table(&self) -> Result<redb::ReadOnlyTable<&'static [u8], &'static [u8]>> {
        let tx = self.0.db.begin_read().map_err(error_of)?;
        tx.open_table(self.0.definition(0)).map_err(error_of)
    }
}

impl Session for Work<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let table = self.table()?;
        let value = table.get(key).map_err(error_of)?;
        Ok(value.map(|value| visit(value.value())).is_some())
    }

    fn walk(&mut self, from: &[u8], to: Option<&[u8]>, visit: &mut While<'_>) -> Result<()> {
        go_through(&self.table()?, from, to, false, visit)
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], visit: &mut Visit<'_>) -> Result<u64> {
        let table = self.table()?;
        found(keys, |key| {
            let value = table.get(key).map_err(error_of)?;
            Ok(value.map(|value| visit(key, value.value())).is_some())
        })
    }

    fn transaction(&mut self, durable: bool) -> Result<Box<dyn Tx + '_>> {
        let durability = if durable { self.0.durability } else { redb::Durability::None };
        Ok(Box::new(Open { store: self.0, tx: begin(&self.0.db, durability)? }))
    }
}

/// The write transaction; when dropped, redb aborts it.
struct Open<'s> {
    store: &'s Redb,
    tx: WriteTransaction,
}

impl Open<'_> {
    fn table(&self, table: usize) -> Result<redb::Table<'_, &'static [u8], &'static [u8]>> {
        self.tx.open_table(self.store.definition(table)).map_err(error_of)
    }
}

impl Tx for Open<'_> {
    /// The only writer: the value that it reads is the latest, and stays the latest. So it serves as
    /// [`Tx::get_for_update`] too.
    fn get(&mut self, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let table = self.table(table)?;
        let value = table.get(key).map_err(error_of)?;
        Ok(value.map(|value| value.value().to_vec()))
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.table(table)?.insert(key, value).map_err(error_of)?;
        Ok(())
    }

    fn put_many(&mut self, table: usize, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut table = self.table(table)?;
        for (key, value) in rows {
            table.insert(&key[..], &value[..]).map_err(error_of)?;
        }
        Ok(())
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        self.table(table)?.remove(key).map_err(error_of)?;
        Ok(())
    }

    fn scan(&mut self, table: usize, from: &[u8], to: &[u8], backward: bool, visit: &mut While<'_>) -> Result<()> {
        go_through(&self.table(table)?, from, Some(to), backward, visit)
    }

    fn commit(self: Box<Self>) -> Result<()> {
        self.tx.commit().map_err(error_of)
    }
}
