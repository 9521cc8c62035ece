//! E5 and E6 through SQL: the published loads on a running MariaDB server, which its own client and sysbench drive.
//!
//! 1. A run changes only databases that it created. If databases of an earlier, killed run exist, the run is refused
//!    and does not drop them.
//! 2. The commit level is a global variable. A run saves the previous values in the table `settings_before` before the
//!    first change, and restores them at the end, also after an error or Ctrl-C.
//! 3. Every cell runs once, then every cell again, so that a drift of the machine affects all of them.

mod client;
mod text;

use crate::cell::{Experiment, Level, Pattern};
use crate::experiment::commit_levels::{COMMIT_THREADS, LOADS};
use crate::run::{LabError, Progress};
use crate::words;
use client::{Client, Job, Outcome};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Connections of the ranges of E6.
const RANGE_THREADS: [u32; 2] = [1, 16];
/// Rows of sysbench's table.
const ROWS: u64 = 200_000;
/// A row of the table of E6 with its share of the page, bytes.
const RANGE_ROW_BYTES: u64 = 230;
/// That table is at least this many times as large as the pool, so that most pages of a range are read.
const POOLS: u64 = 2;
/// Rows of one statement that fills that table.
const PIECE: u64 = 1 << 18;
/// Variables that explain the figures.
const EXPLAINING: [&str; 6] = [
    "innodb_flush_method",
    "innodb_buffer_pool_size",
    "log_bin",
    "sync_binlog",
    "seawall_pool_size",
    "seawall_log_ring_dir",
];
/// The database that holds the previous values, and the prefix of the other databases' names.
const OURS: &str = "seawall_lab";
/// The table of the variables' previous values.
const BEFORE: &str = "seawall_lab.settings_before";

/// What to measure.
///
/// ```
/// use seawall_lab::sql::SqlOptions;
/// let options = SqlOptions { rounds: 3, ..SqlOptions::new("/run/mysqld/mysqld.sock".as_ref()) };
/// assert_eq!(options.user, "root");
/// ```
#[derive(Debug, Clone)]
pub struct SqlOptions {
    /// The server's socket.
    pub socket: PathBuf,
    /// The user, who must be allowed to create databases and set global variables. A password is read from `MYSQL_PWD`.
    pub user: String,
    /// Commit levels, range prefetch, or both when empty.
    pub only: Vec<Experiment>,
    /// Rounds of each cell.
    pub rounds: u32,
    /// Time of a round.
    pub round: Duration,
    /// The most that the table of E6 may take for each engine, bytes.
    pub table_bytes_max: u64,
}

impl SqlOptions {
    /// Both experiments, in about 12 minutes.
    pub fn new(socket: &std::path::Path) -> Self {
        Self {
            socket: socket.into(),
            user: "root".into(),
            only: Vec::new(),
            rounds: 5,
            round: Duration::from_secs(3),
            table_bytes_max: 4 << 30,
        }
    }
}

type Result<T> = std::result::Result<T, LabError>;

fn failed<T>(why: impl Into<String>) -> Result<T> {
    Err(LabError::Refused(why.into()))
}

words! {
    /// An engine of the server. Its word is its name in SQL.
    pub enum Engine {
        /// InnoDB.
        #[serde(rename = "InnoDb")]
        InnoDb = "InnoDB",
        /// Seawall.
        #[serde(rename = "Seawall")]
        Seawall = "SEAWALL",
    }
}

impl Engine {
    fn database(self) -> String {
        format!("{OURS}_{}", self.word().to_lowercase())
    }

    /// The global variables of the commit level and of the pool's size.
    fn variables(self) -> [&'static str; 2] {
        match self {
            Self::InnoDb => ["innodb_flush_log_at_trx_commit", "innodb_buffer_pool_size"],
            Self::Seawall => ["seawall_durability", "seawall_pool_size"],
        }
    }
}

/// How sysbench makes a load of E5.
fn job(load: Pattern, engine: Engine) -> Job {
    let (script, arguments) = match load {
        Pattern::Tpcc => ("tpcc", vec!["--warehouses=1".into(), format!("--storage-engine={engine}")]),
        _ => {
            let script = if load == Pattern::ReadOnly { "oltp_point_select" } else { "oltp_read_write" };
            let size = format!("--table-size={ROWS}");
            (script, vec!["--tables=1".into(), size, format!("--mysql-storage-engine={engine}")])
        }
    };
    Job { script, database: engine.database(), arguments }
}

/// What a cell measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// E5: a load at a level.
    Commits(Pattern, Level),
    /// E6: ranges by this many connections.
    Ranges(u32),
}

/// A cell and its rounds.
#[derive(Debug, Clone, Serialize)]
pub struct SqlCell {
    /// The engine.
    pub engine: Engine,
    /// The work.
    pub what: What,
    /// Transactions or queries per second of each round.
    pub rates: Vec<f64>,
    /// The 99th percentile of each round, milliseconds.
    pub p99_ms: Vec<f64>,
}

/// What was measured.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SqlResults {
    /// The server's version.
    pub version: String,
    /// The version of sysbench.
    pub sysbench: String,
    /// Time of a round, seconds.
    pub round_s: f64,
    /// Variables that explain the figures, with their values.
    pub variables: Vec<(String, String)>,
    /// The cells.
    pub cells: Vec<SqlCell>,
    /// Bytes of the table of E6 for each engine; 0: not measured.
    pub table_bytes: u64,
    /// What was left out, and why.
    pub notes: Vec<String>,
    /// False: the run was interrupted, or ended with an error.
    pub complete: bool,
}

impl SqlResults {
    /// As JSON.
    ///
    /// # Panics
    /// Never: all of it can be written as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and texts")
    }

    fn rates(&self, engine: Engine, what: What) -> &[f64] {
        let found = self.cells.iter().find(|cell| cell.engine == engine && cell.what == what);
        found.map_or(&[], |cell| &cell.rates)
    }
}

/// Measures the server. After an error or Ctrl-C, returns the measurements so far together with the error.
///
/// # Errors
/// [`LabError`], when nothing could be measured.
pub fn measure(
    options: &SqlOptions,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<(SqlResults, Option<LabError>)> {
    let asked = |e| options.only.is_empty() || options.only.contains(&e);
    let [levels, ranges] = [Experiment::CommitLevels, Experiment::RangePrefetch].map(asked);
    if !levels && !ranges {
        return failed("through SQL only commit-levels (E5) and range-prefetch (E6) are measured");
    }
    let scratch = client::scratch()?;
    let client = Client { socket: &options.socket, user: &options.user, scratch: scratch.path(), stop };
    let mut run = Run::begin(options, client)?;
    let outcome = run.prepare(levels, ranges, progress).and_then(|()| run.rounds(progress));
    // Of two errors, the worse is reported: a server that stays changed.
    let changed = run.end().err().map(|error| {
        LabError::Refused(format!(
            "the server could not be left as it was ({error}): set the variables as {BEFORE} has them, and drop the \
             databases whose names begin with {OURS}"
        ))
    });
    let error = changed.or(outcome.err());
    run.results.complete = error.is_none();
    if run.results.cells.iter().all(|cell| cell.rates.is_empty()) {
        if let Some(error) = error {
            return Err(error);
        }
    }
    Ok((run.results, error))
}

struct Run<'a> {
    options: &'a SqlOptions,
    client: Client<'a>,
    engines: Vec<Engine>,
    /// Whether the table of the previous values exists.
    made: bool,
    results: SqlResults,
}

impl<'a> Run<'a> {
    /// Reads the server's engines and the variables that explain the figures. Nothing is created on the server.
    fn begin(options: &'a SqlOptions, client: Client<'a>) -> Result<Self> {
        let version = client.value("select version()")?;
        if !version.contains("MariaDB") {
            return failed(format!("the server is {version}; only MariaDB is measured through SQL"));
        }
        let left = format!("select schema_name from information_schema.schemata where schema_name like '{OURS}%'");
        if let Some(database) = client.query(&left)?.into_iter().flatten().next() {
            return failed(format!(
                "the database {database} exists, of an earlier run that was killed: set the variables as its table \
                 {BEFORE} has them, if it has rows, and drop the databases whose names begin with {OURS}"
            ));
        }
        let sysbench = client.sysbench_version()?;
        let offered =
            client.query("select engine from information_schema.engines where support in ('YES', 'DEFAULT')")?;
        let offers = |engine: &Engine| offered.iter().flatten().any(|name| name.eq_ignore_ascii_case(engine.word()));
        let engines: Vec<Engine> = Engine::ALL.into_iter().filter(offers).collect();
        let variables = format!("show global variables where variable_name in ('{}')", EXPLAINING.join("', '"));
        let pairs = client.query(&variables)?.into_iter();
        let variables = pairs.filter_map(|row| Some((row.first()?.clone(), row.get(1)?.clone()))).collect();
        let mut notes = Vec::new();
        if !engines.contains(&Engine::Seawall) {
            notes.push("the server has no engine SEAWALL: only InnoDB was measured".to_owned());
        }
        let round_s = whole_seconds(options.round) as f64;
        let results = SqlResults { version, sysbench, round_s, variables, notes, ..SqlResults::default() };
        Ok(Self { options, client, engines, made: false, results })
    }

    /// Creates the databases and their rows, and lists the cells.
    fn prepare(&mut self, levels: bool, ranges: bool, progress: &mut dyn Progress) -> Result<()> {
        let rows = if ranges { self.range_rows()? } else { 0 };
        self.results.table_bytes = rows * RANGE_ROW_BYTES;
        progress.begin("making the tables", self.engines.len() as u64);
        let columns = "name varchar(64) primary key, value varchar(64)";
        self.client.query(&format!("create database {OURS}; create table {BEFORE} ({columns}) engine=InnoDB"))?;
        self.made = true;
        for (at, engine) in self.engines.clone().into_iter().enumerate() {
            progress.at(at as u64, engine.word());
            let [variable, _] = engine.variables();
            self.client.query(&format!(
                "insert into {BEFORE} values ('{variable}', @@global.{variable}); create database {}",
                engine.database()
            ))?;
            let mut work = Vec::new();
            if levels {
                // Both of sysbench's own loads use one table.
                for (load, verb) in
                    [(Pattern::Transactional, "prepare"), (Pattern::Tpcc, "create"), (Pattern::Tpcc, "prepare")]
                {
                    self.client.sysbench(&job(load, engine), verb, 1, Duration::ZERO)?;
                }
                let of = |load| Level::ALL.map(|level| What::Commits(load, level));
                work.extend(LOADS.into_iter().flat_map(of));
            }
            if rows > 0 {
                self.make_ranges(engine, rows)?;
                work.extend(RANGE_THREADS.map(What::Ranges));
            }
            let cell = |what| SqlCell { engine, what, rates: Vec::new(), p99_ms: Vec::new() };
            self.results.cells.extend(work.into_iter().map(cell));
        }
        Ok(())
    }

    /// Rows of the table of E6, a power of two; 0 and a note when it would be too large.
    fn range_rows(&mut self) -> Result<u64> {
        let mut pool = 0;
        for engine in &self.engines {
            let [_, variable] = engine.variables();
            pool = pool.max(bytes(&self.client.value(&format!("select @@global.{variable}"))?));
        }
        let rows = (POOLS * pool / RANGE_ROW_BYTES).max(100_000).next_power_of_two();
        let needed = rows * RANGE_ROW_BYTES;
        if needed <= self.options.table_bytes_max {
            return Ok(rows);
        }
        let [pool, needed, most] = [pool, needed, self.options.table_bytes_max].map(|bytes| bytes >> 20);
        self.results.notes.push(format!(
            "E6 was not measured: beside a pool of {pool} MiB its table needs {needed} MiB for each engine, and --size \
             allows {most} MiB"
        ));
        Ok(0)
    }

    /// Inserts rows in an order in which neighbours go to different pages: `seq` is mixed by two odd factors and a
    /// shift, which permutes the numbers below a power of two.
    fn make_ranges(&self, engine: Engine, rows: u64) -> Result<()> {
        let database = engine.database();
        let columns = "id int primary key, k int not null, pad char(180) not null";
        self.client.query(&format!("create table {database}.fragmented ({columns}) charset latin1 engine={engine}"))?;
        let (mask, shift) = (rows - 1, rows.trailing_zeros() / 2);
        let once = format!("(seq * 40503 & {mask})");
        let id = format!("(({once} ^ ({once} >> {shift})) * 40507 & {mask})");
        for from in (0..rows).step_by(usize::try_from(PIECE).expect("small")) {
            let to = (from + PIECE).min(rows) - 1;
            let row = format!("{id} + 1, seq, repeat(char(97 + seq % 26), 180)");
            let rows = format!("select {row} from {OURS}.seq_{from}_to_{to}");
            self.client.query(&format!("insert into {database}.fragmented {rows}"))?;
        }
        self.client.query(&format!("analyze table {database}.fragmented")).map(drop)
    }

    fn rounds(&mut self, progress: &mut dyn Progress) -> Result<()> {
        let cells = self.results.cells.len();
        progress.begin("measuring", u64::from(self.options.rounds) * cells as u64);
        for round in 0..self.options.rounds as usize {
            for turn in 0..cells {
                // Backwards every second round: no cell always follows the same one.
                let at = if round % 2 == 1 { cells - 1 - turn } else { turn };
                let SqlCell { engine, what, .. } = self.results.cells[at];
                progress.at((round * cells + turn) as u64, &format!("{engine}, {}", text::name(what)));
                let outcome = self.cell(engine, what)?;
                let cell = &mut self.results.cells[at];
                cell.rates.push(outcome.rate);
                cell.p99_ms.push(outcome.p99_ms);
            }
        }
        Ok(())
    }

    fn cell(&self, engine: Engine, what: What) -> Result<Outcome> {
        let (job, threads) = match what {
            What::Commits(load, level) => {
                let [variable, _] = engine.variables();
                let value = if engine == Engine::InnoDb { level.number().to_string() } else { level.to_string() };
                self.client.set(variable, &value)?;
                (job(load, engine), COMMIT_THREADS)
            }
            What::Ranges(threads) => {
                let arguments = vec![format!("--rows={}", self.results.table_bytes / RANGE_ROW_BYTES)];
                (Job { script: "cold", database: engine.database(), arguments }, threads)
            }
        };
        self.client.sysbench(&job, "run", threads, self.options.round)
    }

    /// Restores the variables and drops the databases, also when the run stops early.
    fn end(&mut self) -> Result<()> {
        // Even when the run is stopping.
        let client = Client { stop: &AtomicBool::new(false), ..self.client };
        // If the previous values cannot be read, the databases stay for the operator.
        let kept = format!("select name, value from {BEFORE}");
        let rows = if self.made { client.query(&kept)? } else { Vec::new() };
        for row in &rows {
            if let [name, value] = row.as_slice() {
                client.set(name, value)?;
            }
        }
        for engine in &self.engines {
            client.query(&format!("drop database if exists {}", engine.database()))?;
        }
        client.query(&format!("drop database if exists {OURS}")).map(drop)
    }
}

/// sysbench takes whole seconds.
fn whole_seconds(time: Duration) -> u64 {
    time.as_millis().div_ceil(1000) as u64
}

/// A size as a variable shows it: bytes, or with K, M, G or T.
fn bytes(text: &str) -> u64 {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = text[digits.len()..].chars().next().map(|c| c.to_ascii_uppercase());
    let power = unit.and_then(|unit| " KMGT".find(unit)).unwrap_or(0);
    digits.parse::<u64>().unwrap_or(0) << (10 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_variables() {
        let texts = ["134217728", "128M", "1G", "2MiB", "64K", "nothing"];
        assert_eq!(texts.map(bytes), [128 << 20, 128 << 20, 1 << 30, 2 << 20, 64 << 10, 0]);
    }

    /// The SQL expression of make_ranges() in Rust.
    #[test]
    fn ids_are_a_permutation_that_scatters_neighbours() {
        let rows: u64 = 1 << 12;
        let (mask, shift) = (rows - 1, rows.trailing_zeros() / 2);
        let id = |seq: u64| {
            let once = (seq * 40503) & mask;
            ((once ^ (once >> shift)) * 40507) & mask
        };
        let mut all: Vec<u64> = (0..rows).map(id).collect();
        let near = all.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 64).count();
        assert!(near < 300, "{near} neighbours go to one page");
        all.sort_unstable();
        assert!(all.into_iter().eq(0..rows));
    }
}
