//! `seawall bench scan`: reads of ranges, of the whole tree, or of many keys at a time, on a tree in key order or
//! fragmented.
//!
//! 1. With `--table` the cells of docs/bench.md are measured on the same rows one after the other, and fio once for
//!    each tree.
//! 2. A run that reads through the page cache has bounded memory: otherwise the cache would hold all the data
//!    after the first scan.

use super::kv::count;
use super::{CommonArgs, ended, open};
use crate::progress::Bar;
use crate::{Ended, Outcome, Stop, answer, note, pretty, print, units};
use clap::{Args, ValueEnum};
use seawall_bench::Error;
use seawall_bench::report::number;
use seawall_bench::results::CellResult;
use seawall_bench::run::Ran;
use seawall_bench::run::data_dir::given_or_temporary;
use seawall_bench::scan::run::ScanRun;
use seawall_bench::scan::{Order, Query, Rows};

/// Default memory for the cache: ten times as much data is loaded in seconds.
const POOL_BYTES: u64 = 64 << 20;
/// Memory that a process needs besides its pool, as in the goals.
const BESIDE_POOL_BYTES: u64 = 80 << 20;
/// The ranges of `--table`.
const RANGES: [Query; 4] = [Query::Range(100), Query::Range(1000), Query::Range(30_000), Query::All];
const MULTI_GETS: [Query; 3] = [Query::MultiGet(10), Query::MultiGet(100), Query::MultiGet(1000)];
const THREADS: [usize; 4] = [1, 2, 4, 16];

#[derive(Debug, Args)]
#[command(
    args_override_self = true,
    after_help = "Examples:\n  \
    seawall bench scan --tree fragmented --rows-per-range 30000 --duration 5s\n  \
    seawall bench scan --tree ordered --rows-per-range all --prefetch off --method buffered\n  \
    seawall bench scan --multi-get 100 --threads 4 --json\n  \
    seawall bench scan --table --duration 1s --dir /srv/bench --reuse"
)]
pub(crate) struct ScanArgs {
    /// Insertion order of the rows: ordered (by key) or fragmented (at random, so that neighbours lie apart)
    #[arg(long, value_name = "HOW", default_value = "fragmented")]
    tree: Order,
    /// Rows per range, or `all` for the whole table
    #[arg(long, value_name = "N", default_value = "30000", value_parser = range)]
    rows_per_range: Query,
    /// Instead of ranges, read this many random keys in one request
    #[arg(long, value_name = "N", conflicts_with = "rows_per_range", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    multi_get: Option<u64>,
    /// Instead of ranges, read this many random keys, one request each
    #[arg(long, value_name = "N", conflicts_with_all = ["rows_per_range", "multi_get"], value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    gets: Option<u64>,
    /// Threads that read one random key after the other beside the scans (`--threads 0`: no scans)
    #[arg(long, value_name = "N", default_value_t = 0)]
    point_readers: usize,
    /// Whether Seawall prefetches [default: on]; other stores use their own defaults
    #[arg(long, value_name = "WHETHER")]
    prefetch: Option<Prefetch>,
    /// How Seawall reads its data file [default: direct]
    #[arg(long, value_name = "HOW")]
    method: Option<Method>,
    /// Rows in the table, with K or M [default: ten times the pool]
    #[arg(long, value_name = "N", value_parser = count)]
    keys: Option<u64>,
    /// Size of a value, bytes; a key has 16
    #[arg(long, value_name = "SIZE", default_value = "184", value_parser = units::size)]
    value_size: u64,
    /// Do not run fio on the file afterwards
    #[arg(long)]
    no_fio: bool,
    /// Measure all combinations, which takes some minutes
    ///
    /// Measures both trees, all sizes, 1 to 16 threads, with and without prefetch, direct and buffered.
    #[arg(long, alias = "all", conflicts_with_all = ["tree", "rows_per_range", "multi_get", "gets", "point_readers", "prefetch", "method", "threads", "load_only", "out"])]
    table: bool,
    /// With `--table`: maximum number of threads
    #[arg(long, value_name = "N", default_value_t = 16, requires = "table")]
    threads_max: usize,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Prefetch {
    On,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Method {
    Direct,
    Buffered,
}

/// Returns the word for a value on the command line.
fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Whether a cell prefetches, and how it reads.
type Way = (Prefetch, Method);

fn range(text: &str) -> Result<Query, String> {
    if text == "all" {
        return Ok(Query::All);
    }
    count(text).map(Query::Range).map_err(|why| format!("{why}; or all"))
}

impl ScanArgs {
    fn query(&self) -> Query {
        match (self.multi_get, self.gets) {
            (Some(keys), _) => Query::MultiGet(keys),
            (_, Some(keys)) => Query::Gets(keys),
            _ => self.rows_per_range,
        }
    }

    fn scan(&self, order: Order, query: Query, threads: usize, (prefetch, method): Way) -> ScanRun {
        let common = &self.common;
        let pool = common.pool.unwrap_or(POOL_BYTES);
        let keys = self.keys.unwrap_or_else(|| Rows::keys_for(pool, self.value_size));
        let mut cell = common.cell(&query.to_string(), keys, self.value_size, 1);
        (cell.pool_bytes, cell.threads) = (pool, threads + self.point_readers);
        let ours = common.store == "seawall";
        if ours && method == Method::Buffered {
            cell.memory_limit_bytes.get_or_insert(pool + BESIDE_POOL_BYTES);
        }
        let method = ("data_flush_method", if method == Method::Direct { "o_direct" } else { "fsync" });
        let needed: &[_] = match prefetch {
            _ if !ours => &[],
            Prefetch::On => &[method],
            Prefetch::Off => &[method, ("prefetch_depth", "0")],
        };
        ScanRun { cell, order, query, readers: self.point_readers, fio: !self.no_fio, config: common.config(needed) }
    }
}

pub(crate) fn run(args: &ScanArgs, stop: &Stop) -> Outcome {
    let common = &args.common;
    if common.store == "raw" {
        return Err("raw is the disk's writes alone, it has no rows to scan: use another --store".into());
    }
    if common.store != "seawall" && (args.prefetch.is_some() || args.method.is_some()) {
        let hint = format!("give {} options of its own with --set (docs/bench.md)", common.store);
        return Err(format!("--prefetch and --method are about Seawall: {hint}").into());
    }
    if args.table {
        return table(args, stop);
    }
    let way = (args.prefetch.unwrap_or(Prefetch::On), args.method.unwrap_or(Method::Direct));
    let scan = args.scan(args.tree, args.query(), common.threads, way);
    scan.check()?;
    common.check()?;
    let ran = measured(&scan, args, stop)?;
    common.end(ran)
}

/// Runs a cell.
fn measured(scan: &ScanRun, args: &ScanArgs, stop: &Stop) -> Result<Ran, Error> {
    scan.run(&|settings| open(&args.common.store, settings), &mut Bar::new(), stop)
}

/// One line of the table.
const HEADING: &str = "tree       query          threads  prefetch  method      queries/s       rows/s  reads/s   \
    MB/s  depth  ahead  waste  fairness";

/// Measures all cells on rows that are created once for each tree.
fn table(args: &ScanArgs, stop: &Stop) -> Outcome {
    let common = &args.common;
    common.check()?;
    let (parent, temporary) = given_or_temporary(common.dir.as_deref())?;
    let mut results = Vec::new();
    if !common.json {
        print(format!("{HEADING}\n"))?;
    }
    for order in [Order::Ordered, Order::Fragmented] {
        let dir = parent.join(order.word());
        let keys = args.scan(order, Query::All, 1, WAYS[3]).cell.keys;
        let cells = cells(&common.store, keys, args.threads_max);
        let last = cells.len() - 1;
        for (at, (query, threads, way)) in cells.into_iter().enumerate() {
            let mut scan = args.scan(order, query, threads, way);
            (scan.config.dir, scan.fio) = (Some(dir.clone()), at == last && !args.no_fio);
            // The first cell of a tree creates it.
            scan.config.reuse = at > 0 || common.reuse || temporary.is_some();
            let ran = match measured(&scan, args, stop) {
                Ok(ran) => ran,
                Err(Error::Interrupted) => return Err(Error::Interrupted.into()),
                Err(why) if scan.cell.memory_limit_bytes.is_some() && common.memory_limit.is_none() => {
                    note(format_args!("{order}, {query}, {}: left out: {why}", word(&way.1)));
                    continue;
                }
                Err(why) => return Err(why.into()),
            };
            if let Some(result) = ran.result.filter(|_| ran.error.is_none()) {
                if !common.json {
                    print(line(&result, order, threads, way))?;
                }
                results.push(result);
            }
            if !matches!(ended(ran.error)?, Ended::Well) {
                return Ok(Ended::Interrupted);
            }
        }
    }
    if common.json { answer(pretty(&results)?) } else { Ok(Ended::Well) }
}

/// The ways in which Seawall reads; other stores have only one way.
const WAYS: [Way; 4] = [
    (Prefetch::Off, Method::Buffered),
    (Prefetch::On, Method::Buffered),
    (Prefetch::Off, Method::Direct),
    (Prefetch::On, Method::Direct),
];

/// Returns query, threads and way of each cell; fio runs after the last one.
fn cells(store: &str, keys: u64, threads_max: usize) -> Vec<(Query, usize, Way)> {
    let ways = if store == "seawall" { &WAYS[..] } else { &WAYS[3..] };
    let mut cells = Vec::new();
    for query in RANGES.into_iter().chain(MULTI_GETS).filter(|query| query.rows(keys) <= keys) {
        for threads in THREADS.into_iter().filter(|&threads| threads == 1 || threads <= threads_max) {
            cells.extend(ways.iter().map(|&way| (query, threads, way)));
        }
    }
    cells
}

fn line(result: &CellResult, order: Order, threads: usize, (prefetch, method): Way) -> String {
    let figure = |name: &str| result.extra.get(name).and_then(serde_json::Value::as_f64);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let show = |figure: Option<f64>| or_dash(figure.map(number));
    let fixed = |name: &str, digits: usize| or_dash(figure(name).map(|n| format!("{n:.digits$}")));
    let ours = result.cell.store == "seawall";
    let mut text = format!(
        "{:<10} {:<14} {threads:>7}  {:<8}  {:<8} {:>12} {:>12} {:>8} {:>6} {:>6} {:>6} {:>6} {:>9}\n",
        order.word(),
        result.cell.workload,
        or_dash(ours.then(|| word(&prefetch))),
        or_dash(ours.then(|| word(&method))),
        show(figure("queries_per_s")),
        show(figure("rows_per_s")),
        fixed("scan_device_reads_per_s", 0),
        fixed("device_read_mb_per_s", 0),
        fixed("device_queue_depth", 1),
        fixed("prefetch_depth_reached", 1),
        or_dash(figure("prefetch_waste").map(|n| format!("{:.1}%", n * 100.0))),
        fixed("fairness", 2),
    );
    let order = order.word();
    let [one, eight, many] = [1, 8, 32].map(|depth| figure(&format!("fio_random_{depth}_reads_per_s")));
    let fio = [one, eight, many, figure("fio_sequential_mb_per_s")];
    if fio.iter().any(Option::is_some) {
        let [one, eight, many, sequential] = fio.map(show);
        text += &format!(
            "{order:<10} fio on the same file: random 16K reads/s at depth 1, 8, 32: {one}, {eight}, {many}; \
             sequential 1M at depth 8: {sequential} MB/s\n"
        );
    } else if let Some(why) = result.extra.get("fio").and_then(serde_json::Value::as_str) {
        text += &format!("{order:<10} fio {why}\n");
    }
    text
}
