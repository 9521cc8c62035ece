//! RocksDB, configured after the wiki's "Setup Options and Basic Tuning" and the comments of
//! rocksdb/options.h.
//!
//! - The pool is the whole memory: two write buffers of an eighth of it (at most 64 MiB each;
//!   `db_write_buffer_size` bounds all families together), and the block cache with the rest, index and
//!   filter blocks included.
//! - flushed: `sync=true`. written: the log is written to the kernel with each commit, not flushed. deferred: `manual_wal_flush`, and a
//!   thread that flushes each second.
//! - Tables are column families, the first is `default`. Transactions need `TransactionDB`, which locks plain puts too: it is opened for
//!   several tables, or with the option `transactions=true`; else a plain database.
//! - A transaction reads from a snapshot taken at its first plain read and locks what it reads for update at its latest version.
//! - Direct I/O unless the data fits the pool: with buffered I/O the kernel's cache would be memory beyond the budget.

mod db;
mod options;
mod sys;

use self::db::{Database, LOCK_TIMEOUT_MS, Locking, View};
use self::options::{DbOptions, ReadAhead, Reading, Writing};
use crate::support::{Flusher, Options, make_dir, setting};
use seawall_bench::store::{About, Durability, Visit};
use seawall_bench::{Error, Result, Session, Settings, Store, Tx};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const NAME: &str = "rocksdb";

/// An open RocksDB.
pub(crate) struct RocksDb {
    about: About,
    flusher: Option<Flusher>,
    ahead: ReadAhead,
    writing: Writing,
    loading: Writing,
    /// Declared after its users, so that it is dropped last.
    db: Arc<Database>,
}

/// The settings of the database and of its table format. The given options come last and override.
fn configure(settings: &Settings, direct: bool, given: &[&(String, String)]) -> [Vec<(String, String)>; 2] {
    let write_buffer_bytes = (settings.pool_bytes / 8).clamp(64 << 10, 64 << 20);
    let write_buffers_bytes = 2 * write_buffer_bytes;
    let cores = std::thread::available_parallelism().map_or(2, |n| n.get().max(2));
    let mut database = vec![
        setting("create_if_missing", true),
        setting("create_missing_column_families", true),
        setting("write_buffer_size", write_buffer_bytes),
        setting("db_write_buffer_size", write_buffers_bytes),
        setting("max_write_buffer_number", 2),
        setting("level_compaction_dynamic_level_bytes", true),
        setting("compaction_pri", "kMinOverlappingRatio"),
        setting("max_background_jobs", cores),
        setting("bytes_per_sync", 1 << 20),
        setting("compression", "kLZ4Compression"),
        setting("use_direct_reads", direct),
        setting("use_direct_io_for_flush_and_compaction", direct),
        setting("manual_wal_flush", settings.durability == Durability::Deferred),
    ];
    let mut table = vec![
        setting("block_cache", settings.pool_bytes.saturating_sub(write_buffers_bytes)),
        setting("block_size", 16 << 10),
        setting("cache_index_and_filter_blocks", true),
        setting("pin_l0_filter_and_index_blocks_in_cache", true),
        setting("filter_policy", "bloomfilter:10:false"),
        setting("format_version", 5),
    ];
    for (name, value) in given {
        let (list, name) = match name.strip_prefix("table.") {
            Some(name) => (&mut table, name),
            None => (&mut database, name.as_str()),
        };
        list.retain(|(set, _)| set != name);
        list.push(setting(name, value));
    }
    [database, table]
}

fn text_of(list: &[(String, String)]) -> String {
    list.iter().map(|(name, value)| format!("{name}={value};")).collect()
}

/// The options file that RocksDB wrote when it opened: `name=value` lines with its version, which its C
/// interface does not report, and the options in effect: RocksDB overrules some of the given ones.
fn options_file_in(dir: &Path) -> Result<String> {
    let failed = |error| Error::failed(NAME, format!("cannot read the options files in {}: {error}", dir.display()));
    let mut newest = None;
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("OPTIONS-")?.parse::<u64>().ok());
        newest = newest.max(number.map(|number| (number, name)));
    }
    let Some((_, name)) = newest else {
        return Err(Error::failed(NAME, format!("there is no options file in {}", dir.display())));
    };
    std::fs::read_to_string(dir.join(name)).map_err(failed)
}

/// The first value of `name` in such a file: that of the database, or of its default family.
fn option_in<'f>(file: &'f str, name: &str) -> Option<&'f str> {
    file.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='))
}

impl RocksDb {
    /// Opens it. Options: `transactions` and `direct` (true or false), `readahead_size` (bytes, for scans),
    /// `async_io` (true or false), any of RocksDB's options by their own names, and with the prefix `table.`
    /// those of the block-based table format.
    pub(crate) fn open(settings: &Settings) -> Result<Self> {
        make_dir(NAME, settings)?;
        let mut options = Options::new(NAME, settings);
        let transactions = options.take("transactions")?.unwrap_or(settings.tables.len() > 1);
        let direct = options.take("direct")?.unwrap_or(settings.data_bytes > settings.pool_bytes);
        let ahead = ReadAhead {
            bytes: options.take("readahead_size")?.unwrap_or(0),
            asynchronous: options.take("async_io")?.unwrap_or(false),
        };
        let [database, table] = configure(settings, direct, &options.rest());
        let text = format!("{}block_based_table_factory={{{}}};", text_of(&database), text_of(&table));
        let Some(dir) = settings.dir.to_str() else {
            return Err(Error::failed(NAME, format!("the path {} is not UTF-8", settings.dir.display())));
        };
        let mut families = vec!["default"];
        families.extend(settings.tables.iter().skip(1).map(String::as_str));
        let db = Arc::new(Database::open(dir, &DbOptions::parse(&text)?, &families, transactions)?);

        let sync = settings.durability == Durability::Flushed;
        let mut shown = vec![setting("WriteOptions.sync", sync), setting("TransactionDB", transactions)];
        shown.push(setting("ReadOptions.async_io", ahead.asynchronous));
        shown.push(setting("ReadOptions.readahead_size", ahead.bytes));
        if transactions {
            shown.push(setting("deadlock_detect", true));
            shown.push(setting("transaction_lock_timeout", LOCK_TIMEOUT_MS));
        }
        let file = options_file_in(&settings.dir)?;
        let actual = |name: &str, given: &str| option_in(&file, name).unwrap_or(given).to_owned();
        shown.extend(database.iter().map(|(name, value)| setting(name, actual(name, value))));
        shown.extend(table.iter().map(|(name, value)| setting(&format!("table.{name}"), actual(name, value))));
        let flusher = (settings.durability == Durability::Deferred).then(|| {
            let db = Arc::clone(&db);
            Flusher::start(move || db.flush_log())
        });
        let about = About { version: option_in(&file, "rocksdb_version").unwrap_or("unknown").into(), settings: shown };
        let (writing, loading) = (Writing::new(sync, true), Writing::new(false, false));
        Ok(Self { about, flusher, ahead, writing, loading, db })
    }
}

impl Store for RocksDb {
    fn about(&self) -> About {
        self.about.clone()
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let (latest, scanning) = (Reading::new(), Reading::ahead(self.ahead)?);
        let locking = self.db.transaction();
        Ok(Box::new(Work { store: self, latest, scanning, locking, value: Vec::new() }))
    }

    /// Flushes the write buffers and waits for compaction. The "pending" property covers the default family
    /// only. For the others, compaction is over when none has run for a while, because a due compaction
    /// starts at once when the threads are idle.
    fn settle(&self) -> Result<()> {
        self.db.flush()?;
        let mut idle = 0;
        while idle < 10 {
            std::thread::sleep(Duration::from_millis(20));
            let mut busy = 0;
            for name in
                [c"rocksdb.num-running-compactions", c"rocksdb.num-running-flushes", c"rocksdb.compaction-pending"]
            {
                busy += self.db.property(name)?;
            }
            idle = if busy == 0 { idle + 1 } else { 0 };
        }
        Ok(())
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.flusher.take().map_or(Ok(()), |flusher| flusher.end(NAME))?;
        self.db.flush_log()?;
        // Loads bypass the log.
        self.db.flush()
    }
}

/// The session of one thread.
struct Work<'s> {
    store: &'s RocksDb,
    latest: Reading,
    scanning: Reading,
    /// Set when the database was opened for transactions.
    locking: Option<Locking<'s>>,
    value: Vec<u8>,
}

impl Session for Work<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.store.db.get(&self.latest, 0, key)?;
        if let Some(value) = &value {
            visit(value.bytes());
        }
        Ok(value.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.db.put(&self.store.writing, 0, key, value)
    }

    fn read_modify_write(&mut self, key: &[u8], change: &mut dyn FnMut(&mut Vec<u8>)) -> Result<()> {
        let Some(tx) = &mut self.locking else {
            return Err(Error::Unsupported { store: NAME, what: "read-modify-write without --set transactions=true" });
        };
        tx.begin(&self.store.writing);
        let changed = tx.get_for_update(&self.latest, 0, key).and_then(|old| {
            self.value.clear();
            self.value.extend_from_slice(old.as_ref().map_or(&[], |old| old.bytes()));
            change(&mut self.value);
            tx.put(0, key, &self.value)?;
            tx.commit()
        });
        if changed.is_err() {
            tx.rollback()?;
        }
        changed
    }

    fn load(&mut self, rows: &[(Vec<u8>, Vec<u8>)], durable: bool) -> Result<()> {
        let store = self.store;
        store.db.write(if durable { &store.writing } else { &store.loading }, 0, rows)
    }

    fn scan(&mut self, from: &[u8], rows: u64, visit: &mut Visit<'_>) -> Result<u64> {
        let mut cursor = self.store.db.cursor(&self.scanning, 0);
        cursor.seek(from);
        for seen in 0..rows {
            let Some((key, value)) = cursor.entry()? else { return Ok(seen) };
            visit(key, value);
            cursor.step(false);
        }
        Ok(rows)
    }

    fn range(&mut self, from: &[u8], to: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<u64> {
        // Given the end, RocksDB does not read ahead beyond it.
        let bounded = to.map(|to| Reading::ahead_to(self.store.ahead, to)).transpose()?;
        let mut cursor = self.store.db.cursor(bounded.as_ref().unwrap_or(&self.scanning), 0);
        cursor.seek(from);
        let mut seen = 0;
        while let Some((key, value)) = cursor.entry()? {
            visit(key, value);
            seen += 1;
            cursor.step(false);
        }
        Ok(seen)
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], visit: &mut Visit<'_>) -> Result<u64> {
        let mut found = 0;
        match self.store.db.multi_get(&self.scanning, 0, keys) {
            Some(values) => {
                for (key, value) in keys.iter().zip(values?) {
                    let Some(value) = value else { continue };
                    visit(key, value.bytes());
                    found += 1;
                }
            }
            None => {
                for key in keys {
                    found += u64::from(self.get(key, &mut |value| visit(key, value))?);
                }
            }
        }
        Ok(found)
    }

    fn begin(&mut self) -> Result<Box<dyn Tx + '_>> {
        let Some(locking) = &mut self.locking else {
            return Err(Error::Unsupported { store: NAME, what: "transactions without --set transactions=true" });
        };
        locking.begin(&self.store.writing);
        self.latest.set_snapshot(None);
        Ok(Box::new(Open {
            view: None,
            reading: Reading::new(),
            latest: &self.latest,
            tx: locking,
            db: &self.store.db,
            over: false,
        }))
    }
}

/// A transaction over all tables.
struct Open<'s, 'd> {
    /// Reads from `view` once there is one. Declared before it, so that it is dropped first.
    reading: Reading,
    view: Option<View<'s>>,
    latest: &'s Reading,
    tx: &'s Locking<'d>,
    db: &'s Database,
    over: bool,
}

impl Open<'_, '_> {
    /// Takes the snapshot at the first plain read: transactions that only read for update need none.
    fn see(&mut self) {
        if self.view.is_none() {
            self.view = self.db.view();
            self.reading.set_snapshot(self.view.as_ref());
        }
    }
}

impl Tx for Open<'_, '_> {
    fn get(&mut self, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.see();
        Ok(self.tx.get(&self.reading, table, key)?.map(|value| value.bytes().to_vec()))
    }

    fn get_for_update(&mut self, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.tx.get_for_update(self.latest, table, key)?.map(|value| value.bytes().to_vec()))
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.tx.put(table, key, value)
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        self.tx.delete(table, key)
    }

    fn scan(
        &mut self,
        table: usize,
        from: &[u8],
        to: &[u8],
        backward: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.see();
        // Declared before the cursor, so that it is dropped after it.
        let reading = Reading::between(from, to, self.view.as_ref());
        let mut cursor = self.tx.cursor(&reading, table);
        if backward {
            cursor.seek_to_last();
        } else {
            cursor.seek(from);
        }
        while let Some((key, value)) = cursor.entry()? {
            // RocksDB does not always apply the bounds to a transaction's own changes.
            if key < from || key >= to || !visit(key, value) {
                break;
            }
            cursor.step(backward);
        }
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<()> {
        self.tx.commit()?;
        self.over = true;
        Ok(())
    }
}

impl Drop for Open<'_, '_> {
    fn drop(&mut self) {
        if !self.over {
            // A drop cannot report an error; the transaction's memory is cleaned when it begins again.
            drop(self.tx.rollback());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::settings;

    #[test]
    fn without_transactions_it_is_a_plain_database() {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = settings(dir.path());
        settings.tables.truncate(1);
        settings.options = vec![
            setting("direct", true),
            setting("table.block_size", 4096),
            setting("async_io", true),
            setting("readahead_size", 65536),
        ];
        let store = RocksDb::open(&settings).unwrap();
        assert!(store.about().version.starts_with(|c: char| c.is_ascii_digit()), "{:?}", store.about());
        assert!(store.about().settings.contains(&setting("table.block_size", 4096)));
        let mut session = store.session().unwrap();
        assert!(matches!(session.begin().err(), Some(Error::Unsupported { .. })));
        assert!(matches!(session.read_modify_write(b"k", &mut |_| ()), Err(Error::Unsupported { .. })));
        let rows: Vec<_> = (0..200u8).map(|i| (vec![i], vec![i; 100])).collect();
        session.load(&rows, false).unwrap();
        session.put(b"\xff", b"last").unwrap();
        let keys = [vec![3], vec![250], vec![7]];
        let mut seen = Vec::new();
        let visit = &mut |key: &[u8], value: &[u8]| seen.push((key.to_vec(), value.to_vec()));
        assert_eq!(session.multi_get(&keys, visit).unwrap(), 2);
        assert_eq!(seen, [rows[3].clone(), rows[7].clone()]);
        assert_eq!(session.scan(&[], 1000, &mut |_, _| ()).unwrap(), 201);
        assert_eq!(session.range(&[3], Some(&[9]), &mut |_, _| ()).unwrap(), 6);
        assert!(store.about().settings.contains(&setting("ReadOptions.async_io", true)));
        drop(session);
        Box::new(store).close().unwrap();
        let store = RocksDb::open(&settings).unwrap();
        assert_eq!(store.session().unwrap().scan(&[], 1000, &mut |_, _| ()).unwrap(), 201);
    }
}
