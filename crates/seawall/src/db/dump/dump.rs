//! Dumping a database.
//!
//! 1. A dump is consistent: one snapshot for all trees.
//! 2. A dump reports everything that it skips: each range of keys with its page. It contains everything that
//!    it does not report.
//! 3. After damage it continues at the end key of the damaged page, which its parent stores; an unreadable
//!    row in an intact leaf is skipped alone. So each failure makes progress.

use super::{DumpError, DumpWriter, Totals};
use crate::btree::Reach;
use crate::db::{Database, Transaction, Tree};
use crate::error::{Corruption, Error};
use crate::format::PageId;
use std::fmt;
use std::io::Write;
use std::ops::ControlFlow;

/// Which trees are dumped, and how damage is handled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DumpOptions {
    /// The names of the trees; all trees if empty.
    pub trees: Vec<String>,
    /// Skip and report damaged or unreadable data; otherwise it ends the dump.
    pub skip_damaged: bool,
}

/// The result of a dump: complete except for the reported ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dumped {
    /// The contents of the dump.
    pub totals: Totals,
    /// The skipped ranges, tree by tree in key order. Empty without `skip_damaged`.
    pub skipped: Vec<Skipped>,
}

/// A range of keys that is missing from a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The name of the tree.
    pub tree: String,
    /// The first key that may be missing.
    pub from: Vec<u8>,
    /// The first key after the missing range; `None` for the end of the tree.
    pub to: Option<Vec<u8>>,
    /// The damaged page, if the evidence names one.
    pub page: Option<PageId>,
    /// The evidence.
    pub why: String,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tree {:?}: ", self.tree)?;
        match &self.to {
            Some(to) if *to == successor(&self.from) => write!(f, "key \"{}\"", self.from.escape_ascii())?,
            Some(to) => write!(f, "keys from \"{}\" to before \"{}\"", self.from.escape_ascii(), to.escape_ascii())?,
            None => write!(f, "keys from \"{}\" to the end", self.from.escape_ascii())?,
        }
        match self.page {
            Some(page) => write!(f, " left out, page {page}: {}", self.why),
            None => write!(f, " left out: {}", self.why),
        }
    }
}

impl Database {
    /// Writes all trees to `out`, as they are at this moment, while others read and write. FORMAT.md describes
    /// the format, which [`DumpReader`](super::DumpReader) and `seawall load` read. The caller must make the
    /// file durable.
    ///
    /// # Errors
    /// [`DumpError::Io`] of `out`; [`DumpError::Database`]. The output then has no end block, and every reader
    /// refuses it.
    ///
    /// ```
    /// use seawall::dump::{DumpReader, Item};
    /// # let db = seawall::Database::in_memory()?;
    /// let users = db.create_tree("users")?;
    /// db.transact(|tx| tx.put(&users, b"ada", b"1815"))?;
    /// let mut file = Vec::new();
    /// assert_eq!(db.dump(&mut file)?.totals.entries, 1);
    /// let mut dump = DumpReader::new(&file[..])?;
    /// assert_eq!(dump.read()?, Some(Item::Tree("users")));
    /// assert_eq!(dump.read()?, Some(Item::Entry { key: b"ada", value: b"1815" }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dump<W: Write>(&self, out: W) -> Result<Dumped, DumpError> {
        let done = self.dump_with(out, &DumpOptions::default(), |_| ControlFlow::Continue(()))?;
        done.ok_or_else(|| DumpError::Misuse("a dump that is not stopped has an end".into()))
    }

    /// Like [`Database::dump`], with options. `go_on` is called after each entry with the totals so far;
    /// `Break` ends the dump. The result is then `None`, and the output has no end block.
    ///
    /// # Errors
    /// Those of [`Database::dump`]; [`Error::NoSuchTree`] in [`DumpError::Database`]. With `skip_damaged`, damage
    /// is an error only if it hides the list of trees.
    ///
    /// ```
    /// use seawall::dump::DumpOptions;
    /// # let db = seawall::Database::in_memory()?;
    /// # db.create_tree("users")?;
    /// let options = DumpOptions { trees: vec!["users".into()], skip_damaged: true };
    /// let mut file = Vec::new();
    /// let done = db.dump_with(&mut file, &options, |_| std::ops::ControlFlow::Continue(()))?;
    /// for lost in &done.expect("not broken off").skipped {
    ///     eprintln!("{lost}");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dump_with<W: Write>(
        &self,
        out: W,
        options: &DumpOptions,
        go_on: impl FnMut(&Totals) -> ControlFlow<()>,
    ) -> Result<Option<Dumped>, DumpError> {
        let tx = self.begin()?;
        tx.take_snapshot()?;
        let mut names = tx.trees()?;
        if let Some(name) = options.trees.iter().find(|name| !names.contains(name)) {
            return Err(Error::NoSuchTree { name: name.clone() }.into());
        }
        names.retain(|name| options.trees.is_empty() || options.trees.contains(name));
        let writer = DumpWriter::new(out)?;
        let mut dumping =
            Dumping { db: self, tx: &tx, writer, go_on, skip: options.skip_damaged, done: Dumped::default() };
        for name in &names {
            if dumping.tree(name)?.is_break() {
                return Ok(None);
            }
        }
        let Dumping { writer, mut done, .. } = dumping;
        writer.finish()?;
        done.totals.trees = names.len() as u64;
        Ok(Some(done))
    }
}

struct Dumping<'a, W, F> {
    db: &'a Database,
    tx: &'a Transaction,
    writer: DumpWriter<W>,
    go_on: F,
    skip: bool,
    done: Dumped,
}

/// Whether the dump was stopped.
type Going = Result<ControlFlow<()>, DumpError>;

impl<W: Write, F: FnMut(&Totals) -> ControlFlow<()>> Dumping<'_, W, F> {
    fn tree(&mut self, name: &str) -> Going {
        self.writer.tree(name)?;
        let tree = match self.tx.open_tree(name) {
            Ok(tree) => tree,
            Err(why) => {
                self.leave_out(name, Vec::new(), None, None, why)?;
                return Ok(ControlFlow::Continue(()));
            }
        };
        // The first key that is not yet processed.
        let mut at = Some(Vec::new());
        while let Some(from) = at.take() {
            let mut next = from;
            for entry in self.tx.range(&tree, next.clone()..).long() {
                match entry {
                    Ok((key, value)) => {
                        if self.entry(&key, &value)?.is_break() {
                            return Ok(ControlFlow::Break(()));
                        }
                        next = successor(&key);
                    }
                    Err(why) if self.skip && why.is_damage() => {
                        at = Some(next);
                        break;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            let Some(from) = at.take() else { break };
            match self.around(&tree, &from)? {
                ControlFlow::Continue(next) => at = next,
                ControlFlow::Break(()) => return Ok(ControlFlow::Break(())),
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn entry(&mut self, key: &[u8], value: &[u8]) -> Going {
        self.writer.entry(key, value)?;
        self.done.totals.count(key.len(), value.len() as u64);
        Ok((self.go_on)(&self.done.totals))
    }

    /// Reports the damage at `from`, and returns the key where the dump continues; `None` at the tree's end.
    fn around(&mut self, tree: &Tree, from: &[u8]) -> Result<ControlFlow<(), Option<Vec<u8>>>, DumpError> {
        let reach = tree.state.at.reach(self.db.inner.engine().pool(), from)?;
        let upper = match reach {
            Reach::Lost { page, lower, upper, why } => {
                self.leave_out(tree.name(), lower.max(from.to_vec()), upper.clone(), Some(page), why)?;
                upper
            }
            // The leaf is intact: the row, an older version of it, or its long value could not be read; or
            // the leaf is readable again.
            Reach::Leaf { keys, upper } => {
                for key in keys {
                    match self.tx.get(tree, &key) {
                        Ok(Some(value)) => {
                            if self.entry(&key, &value)?.is_break() {
                                return Ok(ControlFlow::Break(()));
                            }
                        }
                        Ok(None) => {}
                        Err(why) => {
                            let behind = successor(&key);
                            self.leave_out(tree.name(), key, Some(behind), None, why)?;
                        }
                    }
                }
                upper
            }
        };
        Ok(ControlFlow::Continue(upper.filter(|upper| upper.as_slice() > from)))
    }

    fn leave_out(
        &mut self,
        tree: &str,
        from: Vec<u8>,
        to: Option<Vec<u8>>,
        page: Option<PageId>,
        why: Error,
    ) -> Result<(), DumpError> {
        if !self.skip || !why.is_damage() {
            return Err(why.into());
        }
        let page = page.or_else(|| self.page_of(&why));
        let why = match why {
            Error::Corrupt(corruption) => match *corruption {
                // The page is named once.
                Corruption::Page { why, .. } => why,
                other => other.to_string(),
            },
            other => other.to_string(),
        };
        self.done.skipped.push(Skipped { tree: tree.to_owned(), from, to, page, why });
        Ok(())
    }

    fn page_of(&self, why: &Error) -> Option<PageId> {
        match why {
            Error::Corrupt(corruption) => corruption.page(),
            Error::Io(error) => {
                let page_bytes = self.db.inner.engine().pool().page_bytes() as u64;
                error.offset.and_then(|at| u32::try_from(at / page_bytes).ok()).map(PageId)
            }
            _ => None,
        }
    }
}

/// Returns the smallest key after this one.
fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
