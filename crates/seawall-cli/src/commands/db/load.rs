//! `seawall load DIR`: all trees of a dump, or some.
//!
//! 1. Without `--merge` everything is loaded in one transaction of built trees: after a failure, Ctrl-C or a
//!    kill nothing of it is there; a database that the load made stays, empty, and takes the load again.
//! 2. With `--merge` rows go into trees that exist, in batches. A load that fails says what is committed, and
//!    can be repeated.
//! 3. A block's checksum is compared before the block is used.

use super::input::Input;
use super::notation::escape;
use super::{DatabaseArgs, file_name, is_database};
use crate::{Ended, Failed, Outcome, note, units};
use clap::Args;
use seawall::dump::{DumpReader, Item, Totals};
use seawall::{BuildOptions, Database, Error, Transaction, Tree};
use seawall_io::Op;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Only these trees of the dump; all when none is named
    trees: Vec<String>,
    /// The dump; `-` is standard input
    #[arg(long = "in", short, default_value = "-")]
    input: PathBuf,
    /// Load into trees that exist, over entries with the same key, in batches; else such a tree is an error,
    /// and a load is whole or nothing
    #[arg(long)]
    merge: bool,
    /// With --merge, commit whenever this many bytes were loaded, with K, M or G
    #[arg(long, default_value = "4M", value_parser = units::size, requires = "merge")]
    batch: u64,
}

/// Opens a file, or standard input, which ends when `stop` is set.
pub(super) fn open_input<'s>(path: &Path, stop: &'s AtomicBool) -> Result<Box<dyn Read + 's>, Failed> {
    if path == Path::new("-") {
        return Ok(Box::new(Input::new(stop)?));
    }
    Ok(Box::new(File::open(path).map_err(|e| format!("cannot read {}: {e}", file_name(path)))?))
}

pub(crate) fn load(args: &LoadArgs, stop: &AtomicBool) -> Outcome {
    // Before the database is created.
    let mut dump = match DumpReader::new(open_input(&args.input, stop)?) {
        Err(_) if stop.load(Ordering::Relaxed) => {
            note(format_args!("interrupted: nothing was loaded"));
            return Ok(Ended::Interrupted);
        }
        begun => Dump { reader: begun.map_err(|e| e.of_file(&args.input, Op::Read))?, args, stop },
    };
    let made = !is_database(&args.database.dir);
    let db = args.database.open_or_make()?;
    if made {
        note(format_args!("made a database in {}", args.database.dir.display()));
    }
    if args.merge {
        return merge(db, &mut dump);
    }
    let loaded = whole(&db, &mut dump);
    let closed = db.close();
    if !matches!(loaded, Ok(Some(_))) && made {
        note(format_args!("an empty database stays in {}: load into it again", args.database.dir.display()));
    }
    let loaded = loaded?;
    closed?;
    if let Some(totals) = loaded {
        note(format_args!("{} trees loaded: {}", totals.trees, entries(&totals)));
        return Ok(Ended::Well);
    }
    note(format_args!("interrupted: nothing was loaded"));
    Ok(Ended::Interrupted)
}

fn entries(totals: &Totals) -> String {
    format!("{} entries ({})", totals.entries, units::bytes(totals.key_bytes + totals.value_bytes))
}

fn add(totals: &mut Totals, more: &Totals) {
    totals.trees += more.trees;
    totals.entries += more.entries;
    totals.key_bytes += more.key_bytes;
    totals.value_bytes += more.value_bytes;
}

/// The dump as it is read. `None` where an interrupt ended it.
struct Dump<'a> {
    reader: DumpReader<Box<dyn Read + 'a>>,
    args: &'a LoadArgs,
    stop: &'a AtomicBool,
}

impl Dump<'_> {
    /// The name of the next tree, and whether it is to be loaded; no name at the end.
    fn tree(&mut self) -> Result<Option<Option<(String, bool)>>, Failed> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match self.reader.read() {
            Err(_) if self.stop.load(Ordering::Relaxed) => Ok(None),
            Err(e) => Err(e.of_file(&self.args.input, Op::Read).into()),
            Ok(Some(Item::Tree(name))) => {
                let wanted = self.args.trees.is_empty() || self.args.trees.iter().any(|tree| tree == name);
                Ok(Some(Some((name.to_owned(), wanted))))
            }
            Ok(_) => Ok(Some(None)),
        }
    }

    /// Calls `f` with every row of the tree.
    fn rows(&mut self, mut f: impl FnMut(&[u8], &[u8]) -> seawall::Result<()>) -> Result<Option<Totals>, Failed> {
        let (mut key, mut long) = (Vec::new(), Vec::new());
        let mut totals = Totals { trees: 1, ..Totals::default() };
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let item = match self.reader.read() {
                Err(_) if self.stop.load(Ordering::Relaxed) => return Ok(None),
                item => item.map_err(|e| e.of_file(&self.args.input, Op::Read))?,
            };
            let (key_bytes, value_bytes) = match item {
                Some(Item::Entry { key, value }) => {
                    f(key, value)?;
                    (key.len(), value.len())
                }
                Some(Item::Large { key: of, .. }) => {
                    key.clear();
                    key.extend_from_slice(of);
                    long.clear();
                    match self.reader.value(&mut long) {
                        Err(_) if self.stop.load(Ordering::Relaxed) => return Ok(None),
                        read => read.map_err(|e| e.of_file(&self.args.input, Op::Read))?,
                    }
                    f(&key, &long)?;
                    (key.len(), long.len())
                }
                // `value` has consumed the pieces; a dump has its end behind the end of a tree.
                Some(Item::Piece(_) | Item::Tree(_)) => continue,
                Some(Item::TreeEnd(_)) | None => return Ok(Some(totals)),
            };
            totals.entries += 1;
            totals.key_bytes += key_bytes as u64;
            totals.value_bytes += value_bytes as u64;
        }
    }

    /// Fails if a tree that was asked for was not among `seen`.
    fn all_found(&self, seen: &BTreeSet<String>) -> Result<(), Failed> {
        match self.args.trees.iter().find(|tree| !seen.contains(*tree)) {
            None => Ok(()),
            Some(name) => Err(Error::NoSuchTree { name: name.clone() }.into()),
        }
    }
}

/// Loads new trees in one transaction; `None` when it was interrupted.
fn whole(db: &Database, dump: &mut Dump<'_>) -> Result<Option<Totals>, Failed> {
    let mut tx = db.begin()?;
    let totals = build(&mut tx, dump).map_err(|error| nothing_loaded(&error))?;
    if totals.is_some() {
        tx.commit().map_err(|error| match error {
            Error::OutcomeUnknown { .. } => error.into(),
            error => nothing_loaded(&error),
        })?;
    }
    Ok(totals)
}

fn nothing_loaded(error: &impl std::fmt::Display) -> Failed {
    format!("{error}. Nothing was loaded").into()
}

/// Builds the trees that are wanted.
fn build(tx: &mut Transaction, dump: &mut Dump<'_>) -> Result<Option<Totals>, Failed> {
    let (mut totals, mut seen) = (Totals::default(), BTreeSet::new());
    loop {
        let Some(next) = dump.tree()? else { return Ok(None) };
        let Some((name, wanted)) = next else { break };
        let read = if wanted {
            let mut builder = tx.tree_builder(&name, BuildOptions::default())?;
            let read = dump.rows(|key, value| builder.push(key, value))?;
            if read.is_some() {
                builder.finish()?;
            }
            read
        } else {
            dump.rows(|_, _| Ok(()))?.map(|_| Totals::default())
        };
        let Some(read) = read else { return Ok(None) };
        add(&mut totals, &read);
        seen.insert(name);
    }
    dump.all_found(&seen)?;
    Ok(Some(totals))
}

/// Rows on their way into existing trees.
struct Batches<'a> {
    db: &'a Database,
    batch_bytes_max: u64,
    tx: Option<Transaction>,
    /// Totals of the open transaction.
    open: Totals,
    /// Committed totals.
    done: Totals,
    /// The last committed key, with its tree.
    last: Option<(String, String)>,
}

impl Batches<'_> {
    fn put(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> seawall::Result<()> {
        let tx = match &mut self.tx {
            Some(tx) => tx,
            none => none.insert(self.db.begin()?),
        };
        tx.put(tree, key, value)?;
        self.open.entries += 1;
        self.open.key_bytes += key.len() as u64;
        self.open.value_bytes += value.len() as u64;
        if self.open.key_bytes + self.open.value_bytes >= self.batch_bytes_max {
            self.commit()?;
            self.last = Some((tree.name().to_owned(), escape(key)));
        }
        Ok(())
    }

    fn commit(&mut self) -> seawall::Result<()> {
        if let Some(tx) = self.tx.take() {
            tx.commit()?;
        }
        add(&mut self.done, &std::mem::take(&mut self.open));
        Ok(())
    }

    /// Whether it reached the end.
    fn run(&mut self, dump: &mut Dump<'_>) -> Result<bool, Failed> {
        let mut seen = BTreeSet::new();
        loop {
            let Some(next) = dump.tree()? else { return Ok(false) };
            let Some((name, wanted)) = next else { break };
            if wanted {
                let tree = self.db.create_tree(&name)?;
                if dump.rows(|key, value| self.put(&tree, key, value))?.is_none() {
                    return Ok(false);
                }
                self.commit()?;
                self.done.trees += 1;
            } else if dump.rows(|_, _| Ok(()))?.is_none() {
                return Ok(false);
            }
            seen.insert(name);
        }
        dump.all_found(&seen)?;
        Ok(true)
    }
}

fn merge(db: Database, dump: &mut Dump<'_>) -> Outcome {
    let batch_bytes_max = dump.args.batch;
    let mut batches =
        Batches { db: &db, batch_bytes_max, tx: None, open: Totals::default(), done: Totals::default(), last: None };
    let merged = batches.run(dump);
    let Batches { done, last, .. } = batches;
    let at = last.map_or_else(String::new, |(tree, key)| format!(", the last batch up to {key:?} of tree {tree:?}"));
    let said = format!("{} are committed{at}", entries(&done));
    match merged {
        Ok(true) => {
            db.close()?;
            note(format_args!("{} trees loaded: {said}", done.trees));
            Ok(Ended::Well)
        }
        Ok(false) => {
            note(format_args!("interrupted: {said}"));
            Ok(Ended::Interrupted)
        }
        Err(error) => {
            Err(format!("{error}. The load ended early: {said}. The same or a whole dump can be loaded over them")
                .into())
        }
    }
}
