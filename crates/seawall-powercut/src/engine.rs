//! The process under test: the real engine on the real disk layer, below a mounted file system.
//!
//! 1. `work` runs transactions until it is killed. It reports on standard output each transaction before its
//!    commit and after its acknowledgement, in the order in which these happened: one lock around each line.
//! 2. `look` opens the database, dumps its contents, runs the check, and ends, with a clean close or without.
//!
//! Lines of `work`: `open`; `i THREAD N ROW:VERSION...` before a commit or prepare; `a THREAD N` after its
//! acknowledgement, followed by `flushed` if the commit promises to survive a power cut, or by `nothing` if
//! the prepared transaction was rolled back; `e TEXT` for an error that ends a thread.

use crate::Result;
use crate::plan::{self, End, Op, Plan, SHARED, SHARED_ROWS};
use crate::rng::SeededRng;
use seawall::{Database, Durability, Env, Error, OnConflict, Options, Transaction, Tree, TxOptions, Xid};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The arguments of `work` and `look`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Orders {
    pub dir: PathBuf,
    pub seed: u64,
    pub threads: u64,
    /// Options of the database, by name.
    pub options: Vec<(String, String)>,
    /// A defect to plant, by name.
    pub mutant: Option<String>,
}

impl Orders {
    pub(crate) fn to_args(&self) -> Vec<String> {
        let mut args = vec![self.dir.display().to_string(), self.seed.to_string(), self.threads.to_string()];
        args.push(self.mutant.clone().unwrap_or_else(|| "-".into()));
        args.extend(self.options.iter().map(|(name, value)| format!("{name}={value}")));
        args
    }

    pub(crate) fn from_args(args: &[String]) -> Result<Self> {
        let [dir, seed, threads, mutant, options @ ..] = args else {
            return Err("work|look DIR SEED THREADS MUTANT|- NAME=VALUE...".into());
        };
        let pair = |text: &String| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(Self {
            dir: dir.into(),
            seed: seed.parse()?,
            threads: threads.parse()?,
            mutant: (mutant != "-").then(|| mutant.clone()),
            options: options.iter().map(pair).collect::<Option<_>>().ok_or("an option is NAME=VALUE")?,
        })
    }

    fn open(&self) -> Result<Database> {
        let mut options = Options::default();
        for (name, value) in &self.options {
            options.set(name, value)?;
        }
        std::fs::create_dir_all(&self.dir)?;
        std::fs::create_dir_all(options.log_dir_of(&self.dir))?;
        let env = Env::system(options.io_backend())?;
        let open = || Database::open_in(env, &self.dir, options);
        Ok(match &self.mutant {
            None => open(),
            Some(mutant) => planted(mutant, open)?,
        }?)
    }
}

/// The defects that reach the disk; the simulated disk finds the others.
#[cfg(feature = "mutants")]
pub(crate) const MUTANTS: [seawall::mutants::Mutant; 11] = {
    use seawall::mutants::Mutant;
    [
        Mutant::PageBeforeLog,
        Mutant::WrittenIsFlushed,
        Mutant::NoDoublewrite,
        Mutant::DoublewriteUnflushed,
        Mutant::DoublewriteReused,
        Mutant::CheckpointTooNew,
        Mutant::CheckpointUnflushed,
        Mutant::LosersStay,
        Mutant::DirectoryUnsynced,
        Mutant::EarlyAcknowledgement,
        Mutant::GhostTail,
    ]
};

#[cfg(feature = "mutants")]
fn planted<T>(name: &str, work: impl FnOnce() -> T) -> Result<T> {
    let mutant = seawall::mutants::Mutant::ALL.into_iter().find(|mutant| format!("{mutant:?}") == name);
    let mutant = mutant.ok_or_else(|| format!("there is no mutant {name}"))?;
    Ok(seawall::mutants::plant(Some(mutant), work))
}

#[cfg(not(feature = "mutants"))]
fn planted<T>(name: &str, _: impl FnOnce() -> T) -> Result<T> {
    Err(format!("{name}: this build has no defects to plant: build it with --features mutants").into())
}

// --- work --------------------------------------------------------------------------------------------------

struct Worker<'a> {
    db: &'a Database,
    seed: u64,
    thread: u64,
    trees: &'a [(String, Tree)],
    say: &'a (dyn Fn(&str) + Sync),
}

/// Runs transactions until the process is killed.
pub(crate) fn work(orders: &Orders) -> Result<()> {
    let out = Mutex::new(std::io::stdout());
    let say = |line: &str| {
        let mut out = out.lock().expect("no thread panics with it");
        if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            // The driver has ended.
            std::process::exit(1);
        }
    };
    let opened = orders.open().and_then(|db| {
        let trees: Result<Vec<_>, Error> =
            plan::TREES.iter().map(|name| Ok(((*name).to_owned(), db.create_tree(name)?))).collect();
        Ok((trees?, db))
    });
    let (trees, db) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            say(&format!("e open: {error}"));
            return Ok(());
        }
    };
    say("open");
    std::thread::scope(|scope| {
        for thread in 0..orders.threads {
            let worker = Worker { db: &db, seed: orders.seed, thread, trees: &trees, say: &say };
            scope.spawn(move || {
                if let Err(error) = worker.run() {
                    (worker.say)(&format!("e thread {thread}: {error}"));
                }
            });
        }
        let (db, say) = (&db, &say);
        let trees = &trees;
        scope.spawn(move || {
            if let Err(error) = disturb(db, trees, SeededRng::new(orders.seed ^ u64::from(std::process::id()))) {
                say(&format!("e disturber: {error}"));
            }
        });
    });
    // All threads have ended with an error: the power is off.
    std::thread::sleep(Duration::from_secs(60));
    Ok(())
}

/// Changes options at run time, takes checkpoints, compacts, and keeps a transaction open that is never
/// committed.
fn disturb(db: &Database, trees: &[(String, Tree)], mut rng: SeededRng) -> Result<(), Error> {
    const METHODS: [&str; 5] = ["fsync", "o_dsync", "o_direct", "o_direct_no_fsync", "o_direct_dsync"];
    let rows = &trees[1].1;
    let mut open = db.begin()?;
    open.put(rows, &[0xff; 20], &[1; 9_000])?;
    let often = rng.pick(&[1, 30]);
    loop {
        std::thread::sleep(Duration::from_millis(often * rng.scale(60)));
        match rng.below(10) {
            0 => db.set("log_flush_method", rng.pick(&METHODS))?,
            1 => db.set("flush_interval", rng.pick(&["5ms", "50ms", "1s"]))?,
            2 => db.set("pool_size", rng.pick(&["2M", "3M", "4M"]))?,
            3 => db.set("log_capacity", rng.pick(&["4M", "6M", "32M"]))?,
            4 => db.set("max_dirty_percent", rng.pick(&["5", "50", "90"]))?,
            5 => db.set("io_capacity", rng.pick(&["200", "2000", "20000"]))?,
            6 => db.set("max_checkpoint_age_percent", rng.pick(&["10", "50", "75"]))?,
            7 => db.set("deferred_percent_min", rng.pick(&["1", "20", "50"]))?,
            8 => db.checkpoint()?,
            _ => drop(db.compact(rows)?),
        }
    }
}

impl Worker<'_> {
    fn tree(&self, tx: &Transaction, name: &str) -> Result<Tree, Error> {
        match self.trees.iter().find(|(known, _)| known == name) {
            Some((_, tree)) => Ok(tree.clone()),
            None => tx.open_tree(name),
        }
    }

    fn run(&self) -> Result<(), Error> {
        let counter = {
            let tx = self.db.begin()?;
            tx.get(&self.tree(&tx, plan::COUNTERS)?, &plan::counter_key(self.thread))?
        };
        let mut n = counter.as_deref().map_or(0, number) + 1;
        let started = Instant::now();
        // The thread ends by itself if the driver does not kill the process.
        while started.elapsed() < Duration::from_secs(120) {
            let plan = plan::plan(self.seed, self.thread, n);
            match self.transaction(n, &plan) {
                Ok(()) => n += 1,
                Err(Error::Deadlock { .. } | Error::WriteConflict { .. } | Error::LockTimeout { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn transaction(&self, n: u64, plan: &Plan) -> Result<(), Error> {
        let (db, thread) = (self.db, self.thread);
        let options = TxOptions { on_conflict: OnConflict::Latest, ..TxOptions::default() };
        let mut tx = db.begin_with(options)?;
        let mut intent = format!("i {thread} {n}");
        let shared = self.tree(&tx, SHARED)?;
        for row in &plan.shared {
            let old = tx.get_for_update(&shared, &row.to_be_bytes())?;
            let version = old.as_deref().map_or(0, number) + 1;
            tx.put(&shared, &row.to_be_bytes(), &shared_value(version, thread, n))?;
            intent += &format!(" {row}:{version}");
        }
        for op in &plan.ops {
            match op {
                Op::Put { tree, key, value } => {
                    let tree = self.tree(&tx, tree)?;
                    tx.put(&tree, key, value)?;
                }
                Op::Delete { tree, key } => {
                    let tree = self.tree(&tx, tree)?;
                    tx.delete(&tree, key)?;
                }
                Op::Create { tree } => drop(tx.create_tree(tree)?),
                Op::Drop { tree } => tx.drop_tree(tree)?,
            }
        }
        if plan.junk {
            let before = tx.savepoint();
            let rows = self.tree(&tx, plan::ROWS)?;
            tx.put(&rows, &[&thread.to_be_bytes()[..], b"junk"].concat(), &[9; 6_000])?;
            tx.rollback_to(&before)?;
        }
        let counters = self.tree(&tx, plan::COUNTERS)?;
        tx.put(&counters, &plan::counter_key(thread), &n.to_le_bytes())?;
        (self.say)(&intent);
        let promise = match plan.end {
            End::Commit(level) => {
                tx.commit_with(level)?;
                if level == Durability::Flushed { " flushed" } else { "" }
            }
            End::Prepared => {
                let xid = Xid(plan::xid(thread, n).into_bytes());
                tx.prepare(&xid)?;
                db.commit_prepared(&xid)?;
                " flushed"
            }
            End::TakenBack => {
                let xid = Xid(plan::xid(thread, n).into_bytes());
                tx.prepare(&xid)?;
                db.rollback_prepared(&xid)?;
                " nothing"
            }
        };
        (self.say)(&format!("a {thread} {n}{promise}"));
        Ok(())
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}

pub(crate) fn shared_value(version: u64, thread: u64, n: u64) -> Vec<u8> {
    [version, thread, n].iter().flat_map(|part| part.to_le_bytes()).collect()
}

pub(crate) fn shared_rows() -> std::ops::Range<u64> {
    0..SHARED_ROWS
}

// --- look --------------------------------------------------------------------------------------------------

/// The items of a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    Prepared(String),
    Tree(String),
    Row(Vec<u8>, Vec<u8>),
    Finding(String),
    /// The dump is complete.
    End,
}

fn write_item(out: &mut impl std::io::Write, item: &Item) -> std::io::Result<()> {
    let (tag, fields): (u8, [&[u8]; 2]) = match item {
        Item::Prepared(xid) => (0, [xid.as_bytes(), &[]]),
        Item::Tree(name) => (1, [name.as_bytes(), &[]]),
        Item::Row(key, value) => (2, [key, value]),
        Item::Finding(text) => (3, [text.as_bytes(), &[]]),
        Item::End => (4, [&[], &[]]),
    };
    out.write_all(&[tag])?;
    for field in fields {
        out.write_all(&(field.len() as u32).to_le_bytes())?;
        out.write_all(field)?;
    }
    Ok(())
}

/// Reads a dump; returns `None` if it is truncated.
pub(crate) fn read_items(mut bytes: &[u8]) -> Option<Vec<Item>> {
    let mut items = Vec::new();
    while let [tag, rest @ ..] = bytes {
        bytes = rest;
        let mut field = || {
            let (len, rest) = bytes.split_first_chunk()?;
            let (field, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            bytes = rest;
            Some(field.to_vec())
        };
        let (first, second) = (field()?, field()?);
        let text = |bytes| String::from_utf8(bytes).ok();
        items.push(match tag {
            0 => Item::Prepared(text(first)?),
            1 => Item::Tree(text(first)?),
            2 => Item::Row(first, second),
            3 => Item::Finding(text(first)?),
            4 => Item::End,
            _ => return None,
        });
    }
    (items.last() == Some(&Item::End)).then_some(items)
}

/// Opens the database, dumps it into `dump`, and checks it. Commits or rolls back prepared transactions as
/// their plans say.
pub(crate) fn look(orders: &Orders, dump: &Path, close: bool) -> Result<()> {
    let db = orders.open()?;
    let mut out = std::io::BufWriter::new(std::fs::File::create(dump)?);
    for xid in db.prepared() {
        let name = String::from_utf8_lossy(&xid.0).into_owned();
        let planned = plan::xid_of(&name).map(|(thread, n)| plan::plan(orders.seed, thread, n).end);
        match planned {
            Some(End::Prepared) => db.commit_prepared(&xid)?,
            _ => db.rollback_prepared(&xid)?,
        }
        write_item(&mut out, &Item::Prepared(name))?;
    }
    for name in db.trees()? {
        let tx = db.begin()?;
        let tree = tx.open_tree(&name)?;
        write_item(&mut out, &Item::Tree(name))?;
        for row in tx.iter(&tree) {
            let (key, value) = row?;
            write_item(&mut out, &Item::Row(key, value))?;
        }
    }
    for finding in db.check()? {
        write_item(&mut out, &Item::Finding(format!("{finding:?}")))?;
    }
    write_item(&mut out, &Item::End)?;
    out.into_inner()?.sync_all()?;
    if close {
        db.close()?;
    } else {
        // Like a kill: the next opening recovers again.
        std::process::exit(0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_is_read_back_and_a_cut_one_is_not() {
        let items = vec![
            Item::Prepared("1.2".into()),
            Item::Tree("rows".into()),
            Item::Row(vec![1, 2], vec![3; 300]),
            Item::Finding("x".into()),
            Item::End,
        ];
        let mut bytes = Vec::new();
        items.iter().for_each(|item| write_item(&mut bytes, item).unwrap());
        assert_eq!(read_items(&bytes), Some(items));
        for len in 0..bytes.len() {
            assert_eq!(read_items(&bytes[..len]), None, "{len}");
        }
    }

    #[test]
    fn orders_survive_a_command_line() {
        let orders = Orders {
            dir: "/x".into(),
            seed: 5,
            threads: 3,
            options: vec![("page_size".into(), "4K".into())],
            mutant: None,
        };
        assert_eq!(Orders::from_args(&orders.to_args()).unwrap(), orders);
    }
}
