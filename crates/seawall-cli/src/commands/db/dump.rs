//! `seawall dump|load DIR`: all trees, or some, as one portable stream (docs/dump.md).
//!
//! - A dump is one moment of the database: one snapshot for all trees.
//! - A failed dump leaves no usable dump: its file is removed, and on a pipe it has no end block, which
//!   `load` notices.
//! - With `--skip-damaged` it dumps the rest: standard error names each missing range of keys, and the exit
//!   code is 1.
//! - `load` commits in batches. It compares a block's checksum before it loads from the block; a failed load
//!   reports what is committed.

use super::entries::{shown, trees_of};
use super::input::Input;
use super::{Place, is_database};
use crate::{Ended, Outcome, note, units};
use clap::Args;
use seawall::dump::{DumpError, DumpOptions, DumpReader, Dumped, Item, Totals};
use seawall::{Database, Error, Transaction, Tree};
use seawall_io::Op;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, IsTerminal as _, Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    place: Place,
    /// Only these trees; all when none is named
    trees: Vec<String>,
    /// A new file to write; `-` is standard output
    #[arg(long, short, default_value = "-")]
    out: PathBuf,
    /// Leave out damaged parts and name them, instead of failing; exit code 1 then
    #[arg(long)]
    skip_damaged: bool,
}

pub(crate) fn dump(args: &DumpArgs, stop: &AtomicBool) -> Outcome {
    let to_stdout = args.out == Path::new("-");
    if to_stdout && std::io::stdout().is_terminal() {
        return Err("a dump is no text: send it into a file or a pipe, or name a file with --out".into());
    }
    let db = args.place.open_to_read()?;
    // Before the output file is created.
    trees_of(&db, &args.trees)?;
    let dumped = if to_stdout {
        write(&db, std::io::stdout().lock(), args, stop)
    } else {
        let cannot = |e: std::io::Error| format!("cannot write {}: {e}", args.out.display());
        let file = OpenOptions::new().write(true).create_new(true).open(&args.out).map_err(cannot)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let written = write(&db, &mut out, args, stop);
        let kept = written.and_then(|dumped| {
            let file = out.into_inner().map_err(|e| cannot(e.into_error()))?;
            file.sync_all().map_err(cannot)?;
            Ok(dumped)
        });
        if kept.is_err() {
            // An incomplete file must not be taken for a dump.
            std::fs::remove_file(&args.out).map_err(cannot)?;
        }
        kept
    };
    let Dumped { totals, skipped } = match dumped {
        Err(_) if stop.load(Ordering::Relaxed) => return Ok(Ended::Interrupted),
        dumped => dumped?,
    };
    note(format_args!("{} trees written to {}", totals.trees, shown(&args.out)));
    for lost in &skipped {
        note(format_args!("{lost}"));
    }
    db.close()?;
    if skipped.is_empty() {
        return Ok(Ended::Well);
    }
    note(format_args!("ranges of keys left out: {}; everything else is in the dump", skipped.len()));
    Ok(Ended::Short)
}

type Failed = Box<dyn std::error::Error>;

fn write<W: Write>(db: &Database, out: W, args: &DumpArgs, stop: &AtomicBool) -> Result<Dumped, Failed> {
    let options = DumpOptions { trees: args.trees.clone(), skip_damaged: args.skip_damaged };
    let dumped = db.dump_with(out, &options, |_| {
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    match dumped {
        Ok(Some(dumped)) => Ok(dumped),
        Ok(None) => Err("interrupted".into()),
        Err(DumpError::Database(error)) if error.is_damage() && !args.skip_damaged => {
            Err(format!("{error}. With --skip-damaged the rest is dumped").into())
        }
        Err(error) => Err(error.of_file(&args.out, Op::Write).into()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    place: Place,
    /// Only these trees of the dump; all when none is named
    trees: Vec<String>,
    /// The dump; `-` is standard input
    #[arg(long = "in", short, default_value = "-")]
    input: PathBuf,
    /// Load into trees that exist, over entries with the same key; else such a tree is an error
    #[arg(long)]
    merge: bool,
    /// Commit whenever this many bytes were loaded, with K, M or G
    #[arg(long, default_value = "4M", value_parser = units::size)]
    batch: u64,
}

pub(crate) fn load(args: &LoadArgs, stop: &AtomicBool) -> Outcome {
    let from_stdin = args.input == Path::new("-");
    let input: Box<dyn Read + '_> = if from_stdin {
        Box::new(Input::new(stop)?)
    } else {
        Box::new(File::open(&args.input).map_err(|e| format!("cannot read {}: {e}", args.input.display()))?)
    };
    // Before the database is created.
    let mut reader = match DumpReader::new(input) {
        Err(_) if stop.load(Ordering::Relaxed) => {
            note(format_args!("interrupted: nothing was loaded"));
            return Ok(Ended::Interrupted);
        }
        begun => begun.map_err(|e| e.of_file(&args.input, Op::Read))?,
    };
    let made = !is_database(&args.place.dir);
    let db = args.place.open_or_make()?;
    if made {
        note(format_args!("made a database in {}", args.place.dir.display()));
    }
    let mut loading = Loading {
        db: &db,
        args,
        tx: None,
        batch_bytes: 0,
        open: Totals::default(),
        done: Totals::default(),
        last: None,
    };
    let loaded = loading.run(&mut reader, stop);
    let Loading { done, last, .. } = loading;
    let place = last.map_or_else(String::new, |(tree, key)| format!(", the last of them {key:?} of tree {tree:?}"));
    let said =
        format!("{} entries ({}) are committed{place}", done.entries, units::bytes(done.key_bytes + done.value_bytes));
    match loaded {
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
            let again = "With --merge the same or a whole dump can be loaded over them";
            Err(format!("{error}. The load ended early: {said}. {again}").into())
        }
    }
}

struct Loading<'a> {
    db: &'a Database,
    args: &'a LoadArgs,
    tx: Option<Transaction>,
    batch_bytes: u64,
    /// Totals of the open transaction.
    open: Totals,
    /// Committed totals.
    done: Totals,
    /// The last committed key, with its tree.
    last: Option<(String, String)>,
}

impl Loading<'_> {
    /// Returns whether it reached the end.
    fn run<R: Read>(&mut self, reader: &mut DumpReader<R>, stop: &AtomicBool) -> Result<bool, Failed> {
        let mut missing: Vec<&String> = self.args.trees.iter().collect();
        let mut tree: Option<Tree> = None;
        let (mut long, mut key) = (Vec::new(), Vec::new());
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let item = match reader.read() {
                // Reading standard input was stopped.
                Err(_) if stop.load(Ordering::Relaxed) => return Ok(false),
                item => item.map_err(|e| e.of_file(&self.args.input, Op::Read))?,
            };
            let value_bytes = match item {
                None => break,
                Some(Item::Tree(name)) => {
                    let wanted = self.args.trees.is_empty() || self.args.trees.iter().any(|tree| tree == name);
                    missing.retain(|tree| *tree != name);
                    let name = name.to_owned();
                    tree = if wanted { Some(self.begin(&name)?) } else { None };
                    continue;
                }
                Some(Item::TreeEnd(_)) => {
                    if tree.is_some() {
                        self.open.trees += 1;
                        self.commit(tree.as_ref(), &key)?;
                    }
                    continue;
                }
                Some(Item::Entry { key: entry, value }) => {
                    key.clear();
                    key.extend_from_slice(entry);
                    let Some(tree) = &tree else { continue };
                    self.put(tree, entry, value)?;
                    value.len() as u64
                }
                Some(Item::Large { key: entry, value_bytes }) => {
                    key.clear();
                    key.extend_from_slice(entry);
                    long.clear();
                    match reader.value(&mut long) {
                        Err(_) if stop.load(Ordering::Relaxed) => return Ok(false),
                        read => read.map_err(|e| e.of_file(&self.args.input, Op::Read))?,
                    }
                    let Some(tree) = &tree else { continue };
                    self.put(tree, &key, &long)?;
                    value_bytes
                }
                // `value` has consumed them all.
                Some(Item::Piece(_)) => continue,
            };
            self.open.entries += 1;
            self.open.key_bytes += key.len() as u64;
            self.open.value_bytes += value_bytes;
            self.batch_bytes += key.len() as u64 + value_bytes;
            if self.batch_bytes >= self.args.batch {
                self.commit(tree.as_ref(), &key)?;
            }
        }
        self.commit(None, &[])?;
        match missing.first() {
            None => Ok(true),
            Some(name) => Err(Error::NoSuchTree { name: (*name).clone() }.into()),
        }
    }

    fn begin(&mut self, name: &str) -> seawall::Result<Tree> {
        if self.args.merge {
            return self.db.create_tree(name);
        }
        self.db.transact(|tx| tx.create_tree(name))
    }

    fn put(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> seawall::Result<()> {
        let tx = match &mut self.tx {
            Some(tx) => tx,
            none => none.insert(self.db.begin()?),
        };
        if self.args.merge { tx.put(tree, key, value) } else { tx.insert(tree, key, value) }
    }

    fn commit(&mut self, tree: Option<&Tree>, key: &[u8]) -> seawall::Result<()> {
        if let Some(tx) = self.tx.take() {
            tx.commit()?;
            if let Some(tree) = tree {
                self.last = Some((tree.name().to_owned(), super::escape(key)));
            }
        }
        self.done.trees += self.open.trees;
        self.done.entries += self.open.entries;
        self.done.key_bytes += self.open.key_bytes;
        self.done.value_bytes += self.open.value_bytes;
        self.open = Totals::default();
        self.batch_bytes = 0;
        Ok(())
    }
}
