//! RocksDB, configured after the wiki's "Setup Options and Basic Tuning", "WAL Performance", "Asynchronous IO"
//! and the comments of rocksdb/options.h.
//!
//! - The pool is the whole memory: two write buffers of an eighth of it (at most 64 MiB each;
//!   `db_write_buffer_size` bounds all families together), and the block cache with the rest, index and
//!   filter blocks included.
//! - flushed: `sync=true`, with recycled log files. written: the log is written to the kernel with each
//!   commit, not flushed. deferred: `manual_wal_flush`, and a thread that flushes each second.
//! - Tables are column families, the first is `default`. Transactions need `TransactionDB`, which locks plain
//!   puts too: it is opened for several tables, or with the option `transactions=true`; else a plain database.
//! - A transaction reads from a snapshot taken at its first plain read and locks what it reads for update at
//!   its latest version.
//! - Direct I/O unless the data fits the pool: with buffered I/O the kernel's cache would be memory beyond
//!   the budget. The build has io_uring, which `async_io` and `MultiGet` need.

use crate::support::{Flusher, Options, setting, until_idle};
use rocksdb::{
    BoundColumnFamily, DBAccess, DBRawIteratorWithThreadMode, DBWithThreadMode, ErrorKind, MultiThreaded, ReadOptions,
    SnapshotWithThreadMode, Transaction, TransactionDBOptions, TransactionOptions, WriteBatchWithTransaction,
    WriteOptions,
};
use seawall_bench::store::{About, Durability, Visit, While};
use seawall_bench::{Error, Result, Session, Settings, Store, Tx};
use std::path::Path;
use std::sync::Arc;

const NAME: &str = "rocksdb";
/// Lock time-out of transactions.
const LOCK_TIMEOUT_MS: i64 = 1000;

type Plain = DBWithThreadMode<MultiThreaded>;
type TransactionDb = rocksdb::TransactionDB<MultiThreaded>;
type Family<'s> = Arc<BoundColumnFamily<'s>>;

fn error_of(error: rocksdb::Error) -> Error {
    match error.kind() {
        // A deadlock or a changed key, a lock that took too long, a snapshot that is too old.
        ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::TryAgain => Error::Conflict(error.to_string()),
        _ => Error::failed(NAME, error),
    }
}

enum Handle {
    Plain(Plain),
    Transactions(TransactionDb),
}

/// Calls the same method of either kind of database.
macro_rules! either {
    ($handle:expr, $db:ident => $call:expr) => {
        match $handle {
            Handle::Plain($db) => $call,
            Handle::Transactions($db) => $call,
        }
    };
}

/// An open RocksDB.
pub(crate) struct RocksDb {
    about: About,
    flusher: Flusher,
    /// Options of scans: `readahead_size`, where 0 leaves it to RocksDB, and `async_io`.
    ahead: (usize, bool),
    tables: Vec<String>,
    sync: bool,
    /// Log files are recycled: RocksDB then refuses writes that bypass the log.
    recycles: bool,
    handle: Arc<Handle>,
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
        setting("recycle_log_file_num", if settings.durability == Durability::Flushed { 4 } else { 0 }),
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

/// The options file that RocksDB wrote when it opened: `name=value` lines with its version and the options in
/// effect, which RocksDB may have changed.
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
    /// Opens the store. Options: `transactions` and `direct` (true or false), `readahead_size` (bytes, for scans),
    /// `async_io` (true or false), any of RocksDB's options by their own names, and with the prefix `table.` those of
    /// the block-based table format.
    pub(crate) fn open(settings: &Settings) -> Result<Self> {
        settings.make_dir(NAME)?;
        let mut options = Options::new(NAME, settings);
        let transactions = options.take("transactions")?.unwrap_or(settings.tables.len() > 1);
        let direct = options.take("direct")?.unwrap_or(settings.data_bytes > settings.pool_bytes);
        let ahead: (usize, bool) =
            (options.take("readahead_size")?.unwrap_or(0), options.take("async_io")?.unwrap_or(false));
        let [database, table] = configure(settings, direct, &options.rest());
        let text = format!("{}block_based_table_factory={{{}}};", text_of(&database), text_of(&table));
        let parsed = rocksdb::Options::default().get_options_from_string(&text).map_err(error_of)?;
        let tables: Vec<String> =
            std::iter::once("default".to_owned()).chain(settings.tables.iter().skip(1).cloned()).collect();
        let families = tables.iter().map(|name| rocksdb::ColumnFamilyDescriptor::new(name, parsed.clone()));
        let handle = if transactions {
            let mut locks = TransactionDBOptions::default();
            locks.set_txn_lock_timeout(LOCK_TIMEOUT_MS);
            locks.set_default_lock_timeout(LOCK_TIMEOUT_MS);
            TransactionDb::open_cf_descriptors(&parsed, &locks, &settings.dir, families).map(Handle::Transactions)
        } else {
            Plain::open_cf_descriptors(&parsed, &settings.dir, families).map(Handle::Plain)
        };
        let handle = Arc::new(handle.map_err(|error| match error_of(error) {
            Error::Conflict(what) => Error::failed(NAME, what),
            error => error,
        })?);

        let sync = settings.durability == Durability::Flushed;
        let mut shown = vec![setting("WriteOptions.sync", sync), setting("TransactionDB", transactions)];
        shown.push(setting("ReadOptions.async_io", ahead.1));
        shown.push(setting("ReadOptions.readahead_size", ahead.0));
        if transactions {
            shown.push(setting("deadlock_detect", true));
            shown.push(setting("transaction_lock_timeout", LOCK_TIMEOUT_MS));
        }
        let file = options_file_in(&settings.dir)?;
        let actual = |name: &str, given: &str| option_in(&file, name).unwrap_or(given).to_owned();
        shown.extend(database.iter().map(|(name, value)| setting(name, actual(name, value))));
        shown.extend(table.iter().map(|(name, value)| setting(&format!("table.{name}"), actual(name, value))));
        let flushed = Arc::clone(&handle);
        let flusher = Flusher::new(NAME, settings.durability == Durability::Deferred, move || {
            either!(&*flushed, db => db.flush_wal(true)).map_err(error_of)
        });
        let about = About { version: option_in(&file, "rocksdb_version").unwrap_or("unknown").into(), settings: shown };
        let recycles = option_in(&file, "recycle_log_file_num").is_some_and(|number| number != "0");
        Ok(Self { about, flusher, ahead, tables, sync, recycles, handle })
    }

    fn writing(&self, sync: bool, log: bool) -> WriteOptions {
        let mut options = WriteOptions::default();
        options.set_sync(sync && self.sync);
        options.disable_wal(!log);
        options
    }

    fn scanning(&self) -> ReadOptions {
        let (mut options, (bytes, asynchronous)) = (ReadOptions::default(), self.ahead);
        options.set_readahead_size(bytes);
        options.set_async_io(asynchronous);
        options
    }

    fn families(&self) -> Result<Vec<Family<'_>>> {
        let family = |name: &String| {
            let found = either!(&*self.handle, db => db.cf_handle(name));
            found.ok_or_else(|| Error::failed(NAME, format!("the column family {name:?} is not open")))
        };
        self.tables.iter().map(family).collect()
    }

    /// Flushes the write buffers of all families, and waits.
    fn flush(&self) -> Result<()> {
        for family in self.families()? {
            either!(&*self.handle, db => db.flush_cf(&family)).map_err(error_of)?;
        }
        Ok(())
    }

    fn property(&self, name: &str) -> Result<u64> {
        let value = either!(&*self.handle, db => db.property_int_value(name)).map_err(error_of)?;
        value.ok_or_else(|| Error::failed(NAME, format!("it has no property {name}")))
    }

    /// The files below level 0 of the default family, as text: it changes when a compaction has ended.
    fn compacted_files(&self) -> String {
        let all = either!(&*self.handle, db => db.property_value("rocksdb.sstables")).ok().flatten();
        let all = all.unwrap_or_default();
        let below = all.split_once("--- level 1 ").map_or("", |(_, below)| below);
        // The headings have the number of the version, which changes with each flush too.
        below.lines().filter(|line| !line.contains("version#")).collect()
    }
}

impl Store for RocksDb {
    fn about(&self) -> About {
        self.about.clone()
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Work {
            store: self,
            families: self.families()?,
            latest: ReadOptions::default(),
            writing: self.writing(true, true),
            loading: self.writing(false, self.recycles),
        }))
    }

    fn steady(&self) -> Box<dyn Fn() -> bool + Sync + '_> {
        let before = self.compacted_files();
        Box::new(move || self.compacted_files() != before)
    }

    /// Flushes the write buffers and waits for compaction. The "pending" property covers the default family
    /// only. For the others, compaction is over when none has run for a while, because a due compaction
    /// starts at once when the threads are idle.
    fn settle(&self) -> Result<()> {
        self.flush()?;
        let names = ["rocksdb.num-running-compactions", "rocksdb.num-running-flushes", "rocksdb.compaction-pending"];
        until_idle(|| names.iter().map(|name| self.property(name)).sum())
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.flusher.end()?;
        either!(&*self.handle, db => db.flush_wal(true)).map_err(error_of)?;
        // Loads may bypass the log.
        self.flush()
    }
}

/// The session of one thread.
struct Work<'s> {
    store: &'s RocksDb,
    families: Vec<Family<'s>>,
    latest: ReadOptions,
    writing: WriteOptions,
    loading: WriteOptions,
}

/// Visits what `rows` finds from `from` on, or backward from its upper bound, until `visit` returns false.
fn go_through<D: DBAccess>(
    mut rows: DBRawIteratorWithThreadMode<'_, D>,
    from: &[u8],
    backward: bool,
    visit: &mut While<'_>,
) -> Result<()> {
    if backward {
        rows.seek_to_last();
    } else {
        rows.seek(from);
    }
    while let Some((key, value)) = rows.item() {
        if !visit(key, value) {
            break;
        }
        if backward {
            rows.prev();
        } else {
            rows.next();
        }
    }
    rows.status().map_err(error_of)
}

impl Session for Work<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = either!(&*self.store.handle, db => db.get_pinned_cf_opt(&self.families[0], key, &self.latest));
        Ok(found.map_err(error_of)?.map(|value| visit(&value)).is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        either!(&*self.store.handle, db => db.put_cf_opt(&self.families[0], key, value, &self.writing))
            .map_err(error_of)
    }

    fn load(&mut self, rows: &[(Vec<u8>, Vec<u8>)], durable: bool) -> Result<()> {
        fn batch<const T: bool>(family: &Family<'_>, rows: &[(Vec<u8>, Vec<u8>)]) -> WriteBatchWithTransaction<T> {
            let mut batch = WriteBatchWithTransaction::default();
            rows.iter().for_each(|(key, value)| batch.put_cf(family, key, value));
            batch
        }
        let writing = if durable { &self.writing } else { &self.loading };
        either!(&*self.store.handle, db => db.write_opt(batch(&self.families[0], rows), writing)).map_err(error_of)
    }

    fn walk(&mut self, from: &[u8], to: Option<&[u8]>, visit: &mut While<'_>) -> Result<()> {
        let mut options = self.store.scanning();
        // Given the end, RocksDB does not read ahead beyond it.
        to.into_iter().for_each(|to| options.set_iterate_upper_bound(to));
        either!(&*self.store.handle, db => {
            go_through(db.raw_iterator_cf_opt(&self.families[0], options), from, false, visit)
        })
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], visit: &mut Visit<'_>) -> Result<u64> {
        let mut found = 0;
        let Handle::Plain(db) = &*self.store.handle else {
            // A transaction database has no batched call.
            return self.gets(keys, visit);
        };
        let options = self.store.scanning();
        let values = db.batched_multi_get_cf_opt(&self.families[0], keys.iter().map(Vec::as_slice), false, &options);
        for (key, value) in keys.iter().zip(values) {
            let Some(value) = value.map_err(error_of)? else { continue };
            visit(key, &value);
            found += 1;
        }
        Ok(found)
    }

    fn transaction(&mut self, durable: bool) -> Result<Box<dyn Tx + '_>> {
        let Handle::Transactions(db) = &*self.store.handle else {
            return Err(Error::Unsupported { store: NAME, what: "transactions without --set transactions=true" });
        };
        // The transaction waits for locks and detects deadlocks.
        let mut options = TransactionOptions::default();
        options.set_deadlock_detect(true);
        let tx = db.transaction_opt(if durable { &self.writing } else { &self.loading }, &options);
        Ok(Box::new(Open { tx, families: &self.families, snapshot: None, handle: &self.store.handle }))
    }
}

/// A transaction over all tables; RocksDB rolls it back when it is dropped.
struct Open<'s> {
    tx: Transaction<'s, TransactionDb>,
    families: &'s [Family<'s>],
    snapshot: Option<SnapshotWithThreadMode<'s, TransactionDb>>,
    handle: &'s Handle,
}

impl Open<'_> {
    /// Reads from the snapshot of the transaction, which its first plain read takes.
    fn reading(&mut self) -> ReadOptions {
        let mut options = ReadOptions::default();
        if let (None, Handle::Transactions(db)) = (&self.snapshot, self.handle) {
            self.snapshot = Some(db.snapshot());
        }
        self.snapshot.iter().for_each(|snapshot| options.set_snapshot(snapshot));
        options
    }
}

impl Tx for Open<'_> {
    fn get(&mut self, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let reading = self.reading();
        self.tx.get_cf_opt(&self.families[table], key, &reading).map_err(error_of)
    }

    fn get_for_update(&mut self, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.tx.get_for_update_cf(&self.families[table], key, true).map_err(error_of)
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        self.tx.put_cf(&self.families[table], key, value).map_err(error_of)
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        self.tx.delete_cf(&self.families[table], key).map_err(error_of)
    }

    fn scan(&mut self, table: usize, from: &[u8], to: &[u8], backward: bool, visit: &mut While<'_>) -> Result<()> {
        let mut reading = self.reading();
        reading.set_iterate_lower_bound(from);
        reading.set_iterate_upper_bound(to);
        let rows = self.tx.raw_iterator_cf_opt(&self.families[table], reading);
        // RocksDB does not always apply the bounds to a transaction's own changes.
        go_through(rows, from, backward, &mut |key, value| key >= from && key < to && visit(key, value))
    }

    fn commit(self: Box<Self>) -> Result<()> {
        self.tx.commit().map_err(error_of)
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
        assert!(store.about().version.starts_with("11."), "{:?}", store.about());
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

    #[test]
    fn it_is_steady_when_it_has_compacted() {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = settings(dir.path());
        settings.tables.truncate(1);
        let store = RocksDb::open(&settings).unwrap();
        let steady = store.steady();
        let mut session = store.session().unwrap();
        let rows: Vec<_> = (0..200u8).map(|i| (vec![i], vec![i; 100])).collect();
        // As many files as `level0_file_num_compaction_trigger`.
        for _ in 0..4 {
            session.load(&rows, true).unwrap();
            assert!(!steady());
            store.flush().unwrap();
        }
        store.settle().unwrap();
        assert!(steady(), "{}", store.compacted_files());
    }
}
