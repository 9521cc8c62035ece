//! `seawall load DIR`: loads all trees of a dump, or some.
//!
//! 1. Without `--merge`, one transaction builds all trees: after a failure, Ctrl-C or a kill, none of them is
//!    there. A database that the load created stays, empty, and the load can be repeated.
//! 2. With `--merge`, rows go into existing trees, in batches. A load that fails reports what is committed, and can
//!    be repeated.
//! 3. The checksum of a block is verified before the block is used.

use super::input::Input;
use super::notation::escape;
use super::{DatabaseArgs, STDIN, file_name, is_database};
use crate::{Ended, Failed, Outcome, Stop, cannot, interrupted, note, units};
use seawall::dump::{DumpReader, Item, Totals};
use seawall::{BuildOptions, Database, Error, Transaction, Tree};
use seawall_io::Op;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Trees of the dump to load; all if none is named
    trees: Vec<String>,
    /// File with the dump; `-` is standard input
    #[arg(long = "in", short, default_value = "-")]
    input: PathBuf,
    /// Load into existing trees, in batches, and replace entries with the same key
    ///
    /// Without this option, a tree that exists is an error, and the load is all or nothing.
    #[arg(long)]
    merge: bool,
    /// With `--merge`: commit after each batch of this many bytes, with K, M or G
    #[arg(long, default_value = "4M", value_parser = units::size, requires = "merge")]
    batch: u64,
}

/// Opens a file, or standard input. Reads of standard input fail once `stop` is set.
pub(super) fn open_input<'s>(path: &Path, stop: &'s Stop) -> Result<Box<dyn Read + 's>, Failed> {
    if path == Path::new("-") {
        return Ok(Box::new(Input { stop }));
    }
    Ok(Box::new(File::open(path).map_err(cannot("read", path))?))
}

pub(crate) fn load(args: &LoadArgs, stop: &Stop) -> Outcome {
    // Before the database is created.
    let reader = match DumpReader::new(open_input(&args.input, stop)?) {
        Err(_) if stop.is_set() => return interrupted("interrupted: nothing was loaded"),
        begun => begun.map_err(|e| e.of_file(file_name(&args.input, STDIN), Op::Read))?,
    };
    let mut dump = Dump { reader, args, stop };
    let made = !is_database(&args.database.dir)?;
    let db = args.database.open_or_make()?;
    if made {
        note(format_args!("made a database in {}", args.database.dir.display()));
        args.database.note_log_dir();
    }
    if args.merge {
        return merge(db, &mut dump);
    }
    let loaded = whole(&db, &mut dump);
    let closed = db.close();
    if loaded.is_err() && made {
        note(format_args!("an empty database stays in {}: load into it again", args.database.dir.display()));
    }
    if loaded.is_err() && stop.is_set() {
        closed?;
        return interrupted("interrupted: nothing was loaded");
    }
    let totals = loaded?;
    closed?;
    note(format_args!("{} trees loaded: {}", totals.trees, entries(&totals)));
    Ok(Ended::Well)
}

fn bytes(totals: &Totals) -> u64 {
    totals.key_bytes + totals.value_bytes
}

fn entries(totals: &Totals) -> String {
    format!("{} entries ({})", totals.entries, units::bytes(bytes(totals)))
}

fn count(totals: &mut Totals, key: &[u8], value: &[u8]) {
    totals.entries += 1;
    totals.key_bytes += key.len() as u64;
    totals.value_bytes += value.len() as u64;
}

/// The dump as it is read.
struct Dump<'a> {
    reader: DumpReader<Box<dyn Read + 'a>>,
    args: &'a LoadArgs,
    stop: &'a Stop,
}

impl Dump<'_> {
    fn read(&mut self) -> Result<Option<Item<'_>>, Failed> {
        let read = self.reader.read();
        if self.stop.is_set() {
            return Err("interrupted".into());
        }
        Ok(read.map_err(|e| e.of_file(file_name(&self.args.input, STDIN), Op::Read))?)
    }

    /// Calls `load` with the name of each requested tree, and skips the others. Fails if a requested tree is
    /// missing.
    fn trees(&mut self, mut load: impl FnMut(&mut Self, &str) -> Result<(), Failed>) -> Result<(), Failed> {
        let mut missing = self.args.trees.clone();
        while let Some(Item::Tree(name)) = self.read()? {
            let name = name.to_owned();
            if self.args.trees.is_empty() || self.args.trees.contains(&name) {
                load(self, &name)?;
            } else {
                self.rows(|_, _| Ok(()))?;
            }
            missing.retain(|tree| *tree != name);
        }
        missing.into_iter().next().map_or(Ok(()), |name| Err(Error::NoSuchTree { name }.into()))
    }

    /// Calls `f` with every row of the tree.
    fn rows(&mut self, mut f: impl FnMut(&[u8], &[u8]) -> seawall::Result<()>) -> Result<(), Failed> {
        let (mut key, mut long) = (Vec::new(), Vec::new());
        loop {
            match self.read()? {
                Some(Item::Entry { key, value }) => f(key, value)?,
                Some(Item::Large { key: of, .. }) => {
                    key.clear();
                    key.extend_from_slice(of);
                    long.clear();
                    self.reader
                        .value(&mut long)
                        .map_err(|e| e.of_file(file_name(&self.args.input, STDIN), Op::Read))?;
                    f(&key, &long)?;
                }
                // `value` has consumed the pieces; a new tree begins only after the end of this one.
                Some(Item::Piece(_) | Item::Tree(_)) => {}
                Some(Item::TreeEnd(_)) | None => return Ok(()),
            }
        }
    }
}

/// Loads new trees in one transaction.
fn whole(db: &Database, dump: &mut Dump<'_>) -> Result<Totals, Failed> {
    fn nothing_loaded(error: impl std::fmt::Display) -> Failed {
        format!("{error}. Nothing was loaded").into()
    }
    let mut totals = Totals::default();
    let mut tx = db.begin()?;
    let built = dump.trees(|dump, name| {
        let mut builder = tx.tree_builder(name, BuildOptions::default())?;
        dump.rows(|key, value| {
            count(&mut totals, key, value);
            builder.push(key, value)
        })?;
        totals.trees += 1;
        Ok(builder.finish().map(drop)?)
    });
    built.map_err(nothing_loaded)?;
    tx.commit().map_err(|error| match error {
        Error::OutcomeUnknown { .. } => error.into(),
        error => nothing_loaded(error),
    })?;
    Ok(totals)
}

/// Puts rows into existing trees, in batches.
struct Batches<'a> {
    db: &'a Database,
    batch_bytes_max: u64,
    tx: Option<Transaction>,
    /// Totals including the open transaction.
    put: Totals,
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
        count(&mut self.put, key, value);
        if bytes(&self.put) - bytes(&self.done) >= self.batch_bytes_max {
            self.commit()?;
            self.last = Some((tree.name().to_owned(), escape(key)));
        }
        Ok(())
    }

    fn commit(&mut self) -> seawall::Result<()> {
        if let Some(tx) = self.tx.take() {
            tx.commit()?;
        }
        self.done = self.put;
        Ok(())
    }
}

fn merge(db: Database, dump: &mut Dump<'_>) -> Outcome {
    let (put, done, batch_bytes_max) = (Totals::default(), Totals::default(), dump.args.batch);
    let mut batches = Batches { db: &db, batch_bytes_max, tx: None, put, done, last: None };
    let merged = dump.trees(|dump, name| {
        let tree = db.create_tree(name)?;
        dump.rows(|key, value| batches.put(&tree, key, value))?;
        batches.put.trees += 1;
        Ok(batches.commit()?)
    });
    let Batches { done, last, .. } = batches;
    let at = last.map_or_else(String::new, |(tree, key)| format!(", the last batch up to {key:?} of tree {tree:?}"));
    let said = format!("{} are committed{at}", entries(&done));
    match merged {
        Ok(()) => {
            db.close()?;
            note(format_args!("{} trees loaded: {said}", done.trees));
            Ok(Ended::Well)
        }
        Err(_) if dump.stop.is_set() => interrupted(format_args!("interrupted: {said}")),
        Err(error) => {
            Err(format!("{error}. The load ended early: {said}. The same or a whole dump can be loaded over them")
                .into())
        }
    }
}
