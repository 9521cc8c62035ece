//! SQLite in WAL mode, configured after its pages "Write-Ahead Logging", "PRAGMA Statements" and "The WITHOUT
//! ROWID Optimization".
//!
//! - One connection per session; the pool is divided among them (`cache_size`), because connections share no
//!   cache.
//! - flushed: `synchronous=FULL`, the log is flushed at each commit. written: `NORMAL`, it is written, and flushed at checkpoints.
//!   deferred: `OFF`: nothing is flushed; the loss is bounded by the kernel's write-back, not by a second.
//! - One writer at a time, which is SQLite's rule. In one process they queue at a mutex (`writer_mutex=false` leaves it to SQLite's busy
//!   handler, which sleeps and polls); a transaction that writes begins with `BEGIN IMMEDIATE`.
//! - `mmap_size` stays 0, its default: the page cache would be memory beyond the pool.

use crate::support::{Options, make_dir, setting};
use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, ErrorCode, OptionalExtension};
use seawall_bench::store::{About, Durability, Visit};
use seawall_bench::{Error, Result, Session, Settings, Store, Tx};
use std::path::PathBuf;

const NAME: &str = "sqlite";
/// Pragmas accepted as options. SQLite ignores unknown ones, so only these are passed on.
const PRAGMAS: [&str; 8] = [
    "busy_timeout",
    "cache_size",
    "journal_size_limit",
    "mmap_size",
    "page_size",
    "synchronous",
    "temp_store",
    "wal_autocheckpoint",
];

fn error_of(error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Conflict(error.to_string()),
        _ => Error::failed(NAME, error),
    }
}

/// The statements on one table.
struct Statements {
    get: String,
    put: String,
    delete: String,
    from: String,
    between: [String; 2],
}

impl Statements {
    fn new(table: &str) -> Self {
        Self {
            get: format!("SELECT v FROM {table} WHERE k = ?1"),
            put: format!("INSERT INTO {table} VALUES (?1, ?2) ON CONFLICT (k) DO UPDATE SET v = excluded.v"),
            delete: format!("DELETE FROM {table} WHERE k = ?1"),
            from: format!("SELECT k, v FROM {table} WHERE k >= ?1 ORDER BY k LIMIT ?2"),
            between: ["ASC", "DESC"]
                .map(|order| format!("SELECT k, v FROM {table} WHERE k >= ?1 AND k < ?2 ORDER BY k {order}")),
        }
    }
}

/// An open SQLite database.
pub(crate) struct Sqlite {
    file: PathBuf,
    pragmas: Vec<(String, String)>,
    synchronous: String,
    tables: Vec<Statements>,
    /// Held by the writing session, unless SQLite's own lock is used.
    writer: Option<Mutex<()>>,
    about: About,
    /// Keeps the database open between sessions, and runs the checkpoints.
    control: Mutex<Connection>,
}

impl Sqlite {
    /// Opens it. Options: `writer_mutex` (true or false) and pragmas by name.
    pub(crate) fn open(settings: &Settings) -> Result<Self> {
        make_dir(NAME, settings)?;
        let synchronous = match settings.durability {
            Durability::Flushed => "FULL",
            Durability::Written => "NORMAL",
            Durability::Deferred => "OFF",
        };
        // Negative: KiB, not pages.
        let cache_kib = settings.pool_bytes / 1024 / settings.threads.max(1) as u64;
        let mut pragmas = vec![
            // Before the journal mode: the page size is fixed when the file is created.
            setting("page_size", 4096),
            setting("journal_mode", "WAL"),
            setting("synchronous", synchronous),
            setting("cache_size", format!("-{}", cache_kib.max(64))),
            setting("mmap_size", 0),
            setting("busy_timeout", 10_000),
            setting("wal_autocheckpoint", 1000),
        ];
        let mut options = Options::new(NAME, settings);
        let writer_mutex = options.take("writer_mutex")?.unwrap_or(true);
        for name in PRAGMAS {
            let Some(value) = options.take::<String>(name)? else { continue };
            match pragmas.iter_mut().find(|(set, _)| set == name) {
                Some((_, set)) => *set = value,
                None => pragmas.push((name.to_owned(), value)),
            }
        }
        options.end()?;

        let file = settings.dir.join("data.sqlite");
        let control = connect(&file, &pragmas)?;
        let quoted: Vec<_> = settings.tables.iter().map(|name| format!("\"{}\"", name.replace('"', "\"\""))).collect();
        for table in &quoted {
            let make = format!(
                "CREATE TABLE IF NOT EXISTS {table} (k BLOB NOT NULL PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID"
            );
            control.execute_batch(&make).map_err(error_of)?;
        }
        let mut shown = pragmas.clone();
        for (name, value) in &mut shown {
            // The value in effect, which can differ from the requested one.
            let query = format!("PRAGMA {name}");
            let actual = control.query_row(&query, [], |row| row.get::<_, rusqlite::types::Value>(0));
            match actual.map_err(error_of)? {
                rusqlite::types::Value::Integer(number) => *value = number.to_string(),
                rusqlite::types::Value::Text(text) => *value = text,
                _ => {}
            }
        }
        shown.push(setting("writer_mutex", writer_mutex));
        shown.push(setting("connections", settings.threads));
        let synchronous = pragmas.iter().find(|(name, _)| name == "synchronous").map_or("FULL", |(_, value)| value);
        Ok(Self {
            file,
            synchronous: synchronous.to_owned(),
            pragmas,
            tables: quoted.iter().map(|table| Statements::new(table)).collect(),
            writer: writer_mutex.then(|| Mutex::new(())),
            about: About { version: rusqlite::version().to_owned(), settings: shown },
            control: Mutex::new(control),
        })
    }

    /// Moves the whole log into the database file, flushed.
    fn checkpoint(&self) -> Result<()> {
        let control = self.control.lock();
        let set = |level: &str| control.pragma_update(None, "synchronous", level).map_err(error_of);
        set("FULL")?;
        let row = control.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        set(&self.synchronous)?;
        match row.map_err(error_of)? {
            0 => Ok(()),
            _ => Err(Error::failed(NAME, "the checkpoint did not finish: a session is in a transaction")),
        }
    }
}

fn connect(file: &std::path::Path, pragmas: &[(String, String)]) -> Result<Connection> {
    let failed = |error: rusqlite::Error| Error::failed(NAME, format!("cannot open {}: {error}", file.display()));
    let connection = Connection::open(file).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(128);
    for (name, value) in pragmas {
        // Some return a row and some do not.
        connection.pragma_update_and_check(None, name, value, |_| Ok(())).optional().map_err(failed)?;
    }
    Ok(connection)
}

impl Store for Sqlite {
    fn about(&self) -> About {
        self.about.clone()
    }

    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let connection = connect(&self.file, &self.pragmas)?;
        Ok(Box::new(Work { store: self, connection, synced: true, value: Vec::new() }))
    }

    fn settle(&self) -> Result<()> {
        self.checkpoint()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.checkpoint()?;
        self.control.into_inner().close().map_err(|(_, error)| error_of(error))
    }
}

/// One thread's connection.
struct Work<'s> {
    store: &'s Sqlite,
    connection: Connection,
    /// Whether the connection's `synchronous` is that of the settings, not that of a load.
    synced: bool,
    value: Vec<u8>,
}

impl<'s> Work<'s> {
    fn turn(&self) -> Option<MutexGuard<'s, ()>> {
        self.store.writer.as_ref().map(Mutex::lock)
    }

    fn run(&self, sql: &str) -> Result<()> {
        let mut statement = self.connection.prepare_cached(sql).map_err(error_of)?;
        statement.execute([]).map_err(error_of)?;
        Ok(())
    }

    fn begin_writing(&mut self) -> Result<Writing<'_>> {
        self.sync_as_set(true)?;
        let turn = self.turn();
        self.run("BEGIN IMMEDIATE")?;
        Ok(Writing { work: self, over: false, _turn: turn })
    }

    fn sync_as_set(&mut self, synced: bool) -> Result<()> {
        if self.synced != synced {
            let level = if synced { &self.store.synchronous } else { "OFF" };
            self.connection.pragma_update(None, "synchronous", level).map_err(error_of)?;
            self.synced = synced;
        }
        Ok(())
    }
}

fn get(connection: &Connection, statements: &Statements, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
    let mut statement = connection.prepare_cached(&statements.get).map_err(error_of)?;
    let mut rows = statement.query([key]).map_err(error_of)?;
    let Some(row) = rows.next().map_err(error_of)? else { return Ok(false) };
    visit(blob(row, 0)?);
    Ok(true)
}

fn blob<'r>(row: &'r rusqlite::Row<'_>, column: usize) -> Result<&'r [u8]> {
    let value = row.get_ref(column).map_err(error_of)?;
    value.as_blob().map_err(|error| Error::failed(NAME, error))
}

fn put(connection: &Connection, statements: &Statements, key: &[u8], value: &[u8]) -> Result<()> {
    let mut statement = connection.prepare_cached(&statements.put).map_err(error_of)?;
    statement.execute([key, value]).map_err(error_of)?;
    Ok(())
}

impl Session for Work<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(&self.connection, &self.store.tables[0], key, visit)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.sync_as_set(true)?;
        let _turn = self.turn();
        put(&self.connection, &self.store.tables[0], key, value)
    }

    fn read_modify_write(&mut self, key: &[u8], change: &mut dyn FnMut(&mut Vec<u8>)) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.value);
        buffer.clear();
        let tx = self.begin_writing()?;
        let (connection, statements) = (&tx.work.connection, &tx.work.store.tables[0]);
        get(connection, statements, key, &mut |value| buffer.extend_from_slice(value))?;
        change(&mut buffer);
        put(connection, statements, key, &buffer)?;
        tx.commit()?;
        self.value = buffer;
        Ok(())
    }

    fn load(&mut self, rows: &[(Vec<u8>, Vec<u8>)], durable: bool) -> Result<()> {
        self.sync_as_set(durable)?;
        let turn = self.turn();
        self.run("BEGIN IMMEDIATE")?;
        let tx = Writing { work: self, over: false, _turn: turn };
        for (key, value) in rows {
            put(&tx.work.connection, &tx.work.store.tables[0], key, value)?;
        }
        tx.commit()
    }

    fn scan(&mut self, from: &[u8], rows: u64, visit: &mut Visit<'_>) -> Result<u64> {
        let limit = i64::try_from(rows).unwrap_or(i64::MAX);
        let mut statement = self.connection.prepare_cached(&self.store.tables[0].from).map_err(error_of)?;
        let mut found = statement.query((from, limit)).map_err(error_of)?;
        let mut seen = 0;
        while let Some(row) = found.next().map_err(error_of)? {
            visit(blob(row, 0)?, blob(row, 1)?);
            seen += 1;
        }
        Ok(seen)
    }

    fn range(&mut self, from: &[u8], to: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<u64> {
        let statements = &self.store.tables[0];
        let text = if to.is_some() { &statements.between[0] } else { &statements.from };
        let mut statement = self.connection.prepare_cached(text).map_err(error_of)?;
        let found = match to {
            Some(to) => statement.query((from, to)),
            None => statement.query((from, i64::MAX)),
        };
        let (mut found, mut seen) = (found.map_err(error_of)?, 0);
        while let Some(row) = found.next().map_err(error_of)? {
            visit(blob(row, 0)?, blob(row, 1)?);
            seen += 1;
        }
        Ok(seen)
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], visit: &mut Visit<'_>) -> Result<u64> {
        self.run("BEGIN")?;
        let mut found = 0;
        let mut outcome = Ok(());
        for key in keys {
            let statements = &self.store.tables[0];
            match get(&self.connection, statements, key, &mut |value| visit(key, value)) {
                Ok(there) => found += u64::from(there),
                Err(error) => outcome = Err(error),
            }
        }
        self.run("COMMIT")?;
        outcome.map(|()| found)
    }

    fn begin(&mut self) -> Result<Box<dyn Tx + '_>> {
        Ok(Box::new(self.begin_writing()?))
    }
}

/// A transaction that may write.
struct Writing<'s> {
    work: &'s Work<'s>,
    over: bool,
    /// Released after the rollback in drop.
    _turn: Option<MutexGuard<'s, ()>>,
}

impl Writing<'_> {
    fn commit(mut self) -> Result<()> {
        self.work.run("COMMIT")?;
        self.over = true;
        Ok(())
    }
}

impl Tx for Writing<'_> {
    fn get(&mut self, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        let statements = &self.work.store.tables[table];
        get(&self.work.connection, statements, key, &mut |value| found = Some(value.to_vec()))?;
        Ok(found)
    }

    /// The only writer: what it reads is the latest version and stays the latest.
    fn get_for_update(&mut self, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get(table, key)
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        put(&self.work.connection, &self.work.store.tables[table], key, value)
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        let sql = &self.work.store.tables[table].delete;
        let mut statement = self.work.connection.prepare_cached(sql).map_err(error_of)?;
        statement.execute([key]).map_err(error_of)?;
        Ok(())
    }

    fn scan(
        &mut self,
        table: usize,
        from: &[u8],
        to: &[u8],
        backward: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let sql = &self.work.store.tables[table].between[usize::from(backward)];
        let mut statement = self.work.connection.prepare_cached(sql).map_err(error_of)?;
        let mut found = statement.query([from, to]).map_err(error_of)?;
        while let Some(row) = found.next().map_err(error_of)? {
            if !visit(blob(row, 0)?, blob(row, 1)?) {
                break;
            }
        }
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<()> {
        Writing::commit(*self)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if !self.over {
            // A drop cannot report an error; SQLite rolls back by itself after most of them.
            drop(self.work.run("ROLLBACK"));
        }
    }
}
