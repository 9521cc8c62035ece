//! SQLite in WAL mode, configured after its pages "Write-Ahead Logging", "PRAGMA Statements" and "The WITHOUT
//! ROWID Optimization".
//!
//! - One connection writes, as SQLite has one writer at a time: threads queue for it at a mutex. Each session
//!   has a connection of its own for reads.
//! - Connections share no cache. The writer's cache is as large as the pool, and the readers' together too:
//!   a workload that mixes both has more memory than other stores.
//! - flushed: `synchronous=FULL`, the log is flushed at each commit. written: `NORMAL`, it is written, and
//!   flushed at checkpoints. deferred: `OFF`: nothing is flushed; the loss is bounded by the kernel's
//!   write-back, not by a second.
//! - `mmap_size` stays 0, its default: the page cache would be memory beyond the pool.

use crate::support::{Options, setting};
use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Params};
use seawall_bench::store::{About, Durability, Visit, While};
use seawall_bench::{Error, Result, Session, Settings, Store, Tx};
use std::path::PathBuf;

const NAME: &str = "sqlite";

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
            from: format!("SELECT k, v FROM {table} WHERE k >= ?1 ORDER BY k"),
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
    about: About,
    /// Keeps the database open between sessions, and runs the checkpoints.
    writer: Mutex<Writer>,
}

/// The connection that writes.
struct Writer {
    connection: Connection,
    /// Whether its `synchronous` is that of the settings, not that of a load.
    synced: bool,
}

impl Sqlite {
    /// Opens the store. Options: pragmas by name.
    pub(crate) fn open(settings: &Settings) -> Result<Self> {
        settings.make_dir(NAME)?;
        let synchronous = match settings.durability {
            Durability::Flushed => "FULL",
            Durability::Written => "NORMAL",
            Durability::Deferred => "OFF",
        };
        // A negative `cache_size` is in KiB, not pages.
        let cache = |bytes: u64| format!("-{}", (bytes / 1024).max(64));
        let (mut writer_cache, reader_cache) =
            (cache(settings.pool_bytes), cache(settings.pool_bytes / settings.threads.max(1) as u64));
        let (mut options, mut pragmas) = (Options::new(NAME, settings), Vec::new());
        // The pragmas accepted as options, with what they are otherwise; SQLite would ignore others.
        for (name, default) in [
            ("page_size", Some("4096")),
            ("synchronous", Some(synchronous)),
            ("cache_size", Some(&*reader_cache)),
            ("mmap_size", Some("0")),
            ("busy_timeout", Some("10000")),
            ("wal_autocheckpoint", Some("1000")),
            ("journal_size_limit", None),
            ("temp_store", None),
        ] {
            let given = options.take::<String>(name)?;
            if name == "cache_size" {
                writer_cache = given.clone().unwrap_or(writer_cache);
            }
            pragmas.extend(given.or(default.map(str::to_owned)).map(|value| (name.to_owned(), value)));
        }
        options.end()?;
        // After the page size, which is fixed when the file is created.
        pragmas.insert(1, setting("journal_mode", "WAL"));

        let file = settings.dir.join("data.sqlite");
        let connection = connect(&file, &pragmas)?;
        connection.pragma_update(None, "cache_size", &writer_cache).map_err(error_of)?;
        let quoted: Vec<_> = settings.tables.iter().map(|name| format!("\"{}\"", name.replace('"', "\"\""))).collect();
        for table in &quoted {
            let make = format!(
                "CREATE TABLE IF NOT EXISTS {table} (k BLOB NOT NULL PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID"
            );
            connection.execute_batch(&make).map_err(error_of)?;
        }
        let mut shown = pragmas.clone();
        for (name, value) in &mut shown {
            // The value in effect, which can differ from the requested one.
            let query = format!("PRAGMA {name}");
            let actual = connection.query_row(&query, [], |row| row.get::<_, rusqlite::types::Value>(0));
            match actual.map_err(error_of)? {
                rusqlite::types::Value::Integer(number) => *value = number.to_string(),
                rusqlite::types::Value::Text(text) => *value = text,
                _ => {}
            }
        }
        let connections = format!("1 writer, {} readers of cache_size {reader_cache}", settings.threads);
        shown.push(setting("connections", connections));
        let synchronous = pragmas.iter().find(|(name, _)| name == "synchronous").map_or("FULL", |(_, value)| value);
        Ok(Self {
            file,
            synchronous: synchronous.to_owned(),
            pragmas,
            tables: quoted.iter().map(|table| Statements::new(table)).collect(),
            about: About { version: rusqlite::version().to_owned(), settings: shown },
            writer: Mutex::new(Writer { connection, synced: true }),
        })
    }

    /// Moves the whole log into the database file, flushed.
    fn checkpoint(&self) -> Result<()> {
        let writer = self.writer(true)?;
        let set = |level: &str| writer.connection.pragma_update(None, "synchronous", level).map_err(error_of);
        set("FULL")?;
        let row = writer.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        set(&self.synchronous)?;
        match row.map_err(error_of)? {
            0 => Ok(()),
            _ => Err(Error::failed(NAME, "the checkpoint did not finish: a session is in a transaction")),
        }
    }

    /// The writing connection; `synced`: its commits are as durable as the settings say.
    fn writer(&self, synced: bool) -> Result<MutexGuard<'_, Writer>> {
        let mut writer = self.writer.lock();
        if writer.synced != synced {
            let level = if synced { &self.synchronous } else { "OFF" };
            writer.connection.pragma_update(None, "synchronous", level).map_err(error_of)?;
            writer.synced = synced;
        }
        Ok(writer)
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
        Ok(Box::new(Work { store: self, connection }))
    }

    fn settle(&self) -> Result<()> {
        self.checkpoint()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.checkpoint()?;
        self.writer.into_inner().connection.close().map_err(|(_, error)| error_of(error))
    }
}

fn run(connection: &Connection, sql: &str, parameters: impl Params) -> Result<()> {
    let mut statement = connection.prepare_cached(sql).map_err(error_of)?;
    statement.execute(parameters).map_err(error_of)?;
    Ok(())
}

/// Visits the rows that `sql` finds, until `visit` returns false.
fn go_through(connection: &Connection, sql: &str, parameters: impl Params, visit: &mut While<'_>) -> Result<()> {
    let mut statement = connection.prepare_cached(sql).map_err(error_of)?;
    let mut found = statement.query(parameters).map_err(error_of)?;
    while let Some(row) = found.next().map_err(error_of)? {
        if !visit(blob(row, 0)?, blob(row, 1)?) {
            break;
        }
    }
    Ok(())
}

/// One thread's session.
struct Work<'s> {
    store: &'s Sqlite,
    /// For reads.
    connection: Connection,
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
    run(connection, &statements.put, [key, value])
}

impl Session for Work<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(&self.connection, &self.store.tables[0], key, visit)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        put(&self.store.writer(true)?.connection, &self.store.tables[0], key, value)
    }

    fn walk(&mut self, from: &[u8], to: Option<&[u8]>, visit: &mut While<'_>) -> Result<()> {
        let statements = &self.store.tables[0];
        match to {
            Some(to) => go_through(&self.connection, &statements.between[0], [from, to], visit),
            None => go_through(&self.connection, &statements.from, [from], visit),
        }
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], visit: &mut Visit<'_>) -> Result<u64> {
        run(&self.connection, "BEGIN", [])?;
        let found = self.gets(keys, visit);
        run(&self.connection, "COMMIT", [])?;
        found
    }

    fn transaction(&mut self, durable: bool) -> Result<Box<dyn Tx + '_>> {
        let writer = self.store.writer(durable)?;
        run(&writer.connection, "BEGIN IMMEDIATE", [])?;
        Ok(Box::new(Writing { tables: &self.store.tables, writer, over: false }))
    }
}

/// A transaction of the writing connection.
struct Writing<'s> {
    tables: &'s [Statements],
    /// Released after the rollback in drop.
    writer: MutexGuard<'s, Writer>,
    over: bool,
}

impl Tx for Writing<'_> {
    /// The only writer: the value that it reads is the latest, and stays the latest. So it serves as
    /// [`Tx::get_for_update`] too.
    fn get(&mut self, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        let statements = &self.tables[table];
        get(&self.writer.connection, statements, key, &mut |value| found = Some(value.to_vec()))?;
        Ok(found)
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        put(&self.writer.connection, &self.tables[table], key, value)
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        run(&self.writer.connection, &self.tables[table].delete, [key])
    }

    fn scan(&mut self, table: usize, from: &[u8], to: &[u8], backward: bool, visit: &mut While<'_>) -> Result<()> {
        let sql = &self.tables[table].between[usize::from(backward)];
        go_through(&self.writer.connection, sql, [from, to], visit)
    }

    fn commit(mut self: Box<Self>) -> Result<()> {
        run(&self.writer.connection, "COMMIT", [])?;
        self.over = true;
        Ok(())
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if !self.over {
            // A drop cannot report an error; SQLite rolls back by itself after most of them.
            drop(run(&self.writer.connection, "ROLLBACK", []));
        }
    }
}
