//! An index over a tree that others go on changing.
//!
//! ```text
//!   log ──a view──> scan, sort ──> build ──rounds──> caught up, nearly ──switch──> base locked ──last round──> committed
//!                                          └─^
//! ```
//!
//! 1. From before the first view every change of a row of the base is in a log, by key. The index is built from what the first view sees.
//! 2. A round goes from one view to a later one: for each key that was changed, what the earlier view sees of the row and what the later one sees tell
//!    which entries go and which come. Afterwards the index is what the later view's rows give. A key whose writer the later view does not see yet
//!    is looked at in the next round, too.
//! 3. Before the last round the base is locked: nobody has an unended change there. The index becomes visible with the commit that also gives up the
//!    lock, so that nobody changes the base in between.
//! 4. All of it is one transaction's (the index, what `switch` does, the lock) and one scratch transaction's (sorted runs that do not fit the memory), which
//!    is always rolled back. A crash before the commit leaves nothing.

use super::database::{Database, Tree};
use super::load::BuildOptions;
use super::transaction::Transaction;
use crate::error::{Error, Result};
use crate::format::TxnId;
use crate::txn::Watching;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Bound;

/// How [`Database::build_index`] works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexOptions {
    /// How full the leaves of the index are made, percent: 50 to 100.
    pub fill_percent: u32,
    /// Memory for sorting, bytes. More than it holds is written to trees that go afterwards.
    pub sort_bytes: usize,
    /// The base is locked for the last round when at most so many rows have been changed since the one before, or after as many rounds as are worth it.
    pub last_round_rows: usize,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self { fill_percent: 90, sort_bytes: 64 << 20, last_round_rows: 1000 }
    }
}

/// Rounds before the last one, at most: where writers are as fast as the rounds, no further one comes closer.
const ROUNDS_MAX: usize = 12;

/// The entries that a row has in an index.
#[derive(Debug, Default)]
pub struct IndexEntries {
    entries: Vec<Entry>,
}

type Entry = (Vec<u8>, Vec<u8>);

impl IndexEntries {
    /// Adds an entry. Its key is unique in the index: one that is not by itself ends in the row's key.
    pub fn push(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.entries.push((key.into(), value.into()));
    }
}

impl Database {
    /// Builds an index, a new tree, over `base`, which others go on reading and changing. `entries` gives the entries of a row; it is a function of the row
    /// alone. The index is complete and up to date when it becomes visible.
    ///
    /// When nearly all is done `switch` is called, once, with the transaction that makes the index visible: it tells the writers of the base, or keeps them
    /// out until this returns. Then the base is locked, the last changes are caught up with, and the transaction commits. **From then on
    /// whoever changes the base changes the index too.** A writer must not have decided that there is no index before it waits for the base: it
    /// reads what `switch` writes, locked, before its first change (see the example), or `switch` takes a lock of the program's that
    /// writers hold.
    ///
    /// Until then it costs a writer the copy of a key for each change, and memory the keys changed: about 100 bytes for each. Purge waits for the build as for any
    /// long reader. A transaction whose snapshot is older cannot use the index ([`Error::TreeTooNew`]).
    ///
    /// # Errors
    /// [`Error::DuplicateRow`] and [`Error::KeyExists`] when two rows have the same entry; [`Error::TreeExists`]; [`Error::LockTimeout`] when transactions that
    /// have changed the base do not end; those of `switch`, and of reading and writing. Nothing is left of the index then. [`Error::Usage`] when
    /// `entries` gives something else for the same row.
    ///
    /// ```
    /// use seawall::{Database, IndexEntries, IndexOptions, Result, Transaction, Tree};
    ///
    /// /// Users, and their index by city if there is one: the writers' side.
    /// fn put_user(tx: &mut Transaction, users: &Tree, indexes: &Tree, name: &str, city: &str) -> Result<()> {
    ///     // Locked: an index that is being made visible is waited for.
    ///     if let Some(index) = tx.get_for_share(indexes, b"users")? {
    ///         let by_city = tx.open_tree(std::str::from_utf8(&index).unwrap())?;
    ///         if let Some(old) = tx.get_for_update(users, name.as_bytes())? {
    ///             tx.delete(&by_city, &[&old[..], b"\0", name.as_bytes()].concat())?;
    ///         }
    ///         tx.put(&by_city, &[city.as_bytes(), b"\0", name.as_bytes()].concat(), b"")?;
    ///     }
    ///     tx.put(users, name.as_bytes(), city.as_bytes())
    /// }
    ///
    /// let db = Database::in_memory()?;
    /// let (users, indexes) = (db.create_tree("users")?, db.create_tree("indexes")?);
    /// db.transact(|tx| put_user(tx, &users, &indexes, "ada", "London"))?;
    /// // The same function of a row, for the rows that are there.
    /// let by_city = db.build_index(
    ///     &users,
    ///     "users by city",
    ///     IndexOptions::default(),
    ///     |name, city, index: &mut IndexEntries| index.push([city, b"\0", name].concat(), b""),
    ///     |tx| tx.put(&indexes, b"users", b"users by city"),
    /// )?;
    /// db.transact(|tx| put_user(tx, &users, &indexes, "grace", "New York"))?;
    /// let found: Vec<_> = db.begin()?.iter(&by_city).map(|entry| entry.unwrap().0).collect();
    /// assert_eq!(found, [&b"London\0ada"[..], b"New York\0grace"]);
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn build_index(
        &self,
        base: &Tree,
        name: &str,
        options: IndexOptions,
        entries: impl FnMut(&[u8], &[u8], &mut IndexEntries),
        switch: impl FnOnce(&mut Transaction) -> Result<()>,
    ) -> Result<Tree> {
        match self.begin()?.open_tree(name) {
            Ok(_) => return Err(Error::TreeExists { name: name.into() }),
            Err(Error::NoSuchTree { .. }) => {}
            Err(error) => return Err(error),
        }
        let watching = self.begin()?.txn().watch(&base.state)?;
        let mut build = Build {
            db: self,
            base,
            entries,
            row: IndexEntries::default(),
            watching,
            touched: BTreeMap::new(),
            now: self.snapshot()?,
        };
        let mut tx = self.begin()?;
        let index = build.build(&mut tx, name, options)?;
        for _ in 0..ROUNDS_MAX {
            if build.round(&mut tx, &index)? <= options.last_round_rows {
                break;
            }
        }
        switch(&mut tx)?;
        tx.txn().lock_tree(&base.state)?;
        build.round(&mut tx, &index)?;
        if let Some(key) = build.touched.keys().next() {
            let key = key.escape_ascii();
            return Err(Error::Usage(format!(
                "`switch` has changed row \"{key}\" of the tree that the index is built over"
            )));
        }
        tx.commit()?;
        Ok(index)
    }

    fn snapshot(&self) -> Result<Transaction> {
        let tx = self.begin()?;
        tx.take_snapshot()?;
        Ok(tx)
    }
}

struct Build<'b, F> {
    db: &'b Database,
    base: &'b Tree,
    entries: F,
    row: IndexEntries,
    watching: Watching,
    /// Keys that were changed and are to be looked at, and by whom.
    touched: BTreeMap<Vec<u8>, Vec<TxnId>>,
    /// What the index is of.
    now: Transaction,
}

impl<F: FnMut(&[u8], &[u8], &mut IndexEntries)> Build<'_, F> {
    /// The entries of a row.
    fn of(&mut self, key: &[u8], value: Option<&[u8]>) -> Vec<Entry> {
        self.row.entries.clear();
        if let Some(value) = value {
            (self.entries)(key, value, &mut self.row);
        }
        std::mem::take(&mut self.row.entries)
    }

    /// Takes what was logged.
    fn collect(&mut self) {
        for (writer, key) in self.watching.drain() {
            let writers = self.touched.entry(key).or_default();
            if !writers.contains(&writer) {
                writers.push(writer);
            }
        }
    }

    /// Builds the index of the first view.
    fn build(&mut self, tx: &mut Transaction, name: &str, options: IndexOptions) -> Result<Tree> {
        let layout = BuildOptions { fill_percent: options.fill_percent };
        let mut scratch = self.db.begin()?;
        let mut sort = Sort { rows: Vec::new(), bytes: 0, runs: Vec::new(), bytes_max: options.sort_bytes };
        let mut cursor_from = Bound::Unbounded;
        loop {
            // In pieces, so that the log is looked at now and then.
            let piece: Vec<Entry> = self
                .now
                .range::<Vec<u8>>(self.base, (cursor_from, Bound::Unbounded))
                .take(PIECE_ROWS)
                .collect::<Result<_>>()?;
            for (key, value) in &piece {
                for entry in self.of(key, Some(value)) {
                    sort.push(&mut scratch, entry)?;
                }
            }
            self.collect();
            match piece.into_iter().next_back() {
                Some((last, _)) => cursor_from = Bound::Excluded(last),
                None => break,
            }
        }
        let index = sort.finish(&mut scratch, tx, name, layout)?;
        scratch.rollback()?;
        Ok(index)
    }

    /// Brings the index to a view of now; how many rows were looked at.
    fn round(&mut self, tx: &mut Transaction, index: &Tree) -> Result<usize> {
        let next = self.db.snapshot()?;
        // Behind the view: what it sees is in the log.
        self.collect();
        let touched = std::mem::take(&mut self.touched);
        let looked = touched.len();
        let (mut go, mut come) = (Vec::new(), Vec::new());
        for (key, mut writers) in touched {
            let (before, after) = (self.now.get(self.base, &key)?, next.get(self.base, &key)?);
            if before != after {
                go.append(&mut self.of(&key, before.as_deref()));
                come.append(&mut self.of(&key, after.as_deref()));
            }
            writers.retain(|&writer| !next.txn().sees(writer));
            if !writers.is_empty() {
                self.touched.insert(key, writers);
            }
        }
        go.sort_unstable();
        come.sort_unstable();
        for (key, _) in &go {
            if !tx.delete(index, key)? {
                return Err(Error::Usage(format!(
                    "an entry \"{}\" of a row is not in its index: the function gives different entries for the same row",
                    key.escape_ascii()
                )));
            }
        }
        for (key, value) in &come {
            tx.insert(index, key, value)?;
        }
        self.now = next;
        Ok(looked)
    }
}

/// Rows between two looks at the log.
const PIECE_ROWS: usize = 4096;
/// What an entry takes in memory beside its bytes.
const ENTRY_BYTES: usize = 64;

/// Sorts entries: in memory, or in trees of a scratch transaction that is rolled back.
struct Sort {
    rows: Vec<Entry>,
    bytes: usize,
    runs: Vec<Tree>,
    bytes_max: usize,
}

impl Sort {
    fn push(&mut self, scratch: &mut Transaction, entry: Entry) -> Result<()> {
        self.bytes += entry.0.len() + entry.1.len() + ENTRY_BYTES;
        self.rows.push(entry);
        if self.bytes >= self.bytes_max { self.end_run(scratch) } else { Ok(()) }
    }

    fn end_run(&mut self, scratch: &mut Transaction) -> Result<()> {
        self.rows.sort_unstable();
        // A name that no other tree has, also after a crash, while the rollback of this transaction is still due. It is logged, so it depends on
        // nothing but what is in the database. The tree is never visible.
        let name = format!("(run {} of transaction {})", self.runs.len(), scratch.txn.started()?.0);
        let rows = std::mem::take(&mut self.rows);
        self.runs.push(scratch.build_tree(&name, BuildOptions { fill_percent: 100 }, rows)?);
        self.bytes = 0;
        Ok(())
    }

    /// Builds the tree.
    fn finish(
        mut self,
        scratch: &mut Transaction,
        tx: &mut Transaction,
        name: &str,
        build: BuildOptions,
    ) -> Result<Tree> {
        if self.runs.is_empty() {
            self.rows.sort_unstable();
            return tx.build_tree(name, build, self.rows);
        }
        self.end_run(scratch)?;
        let mut runs: Vec<_> = self.runs.iter().map(|run| scratch.iter(run)).collect();
        let mut heads = BinaryHeap::new();
        for (number, run) in runs.iter_mut().enumerate() {
            heads.extend(run.next().transpose()?.map(|entry| Reverse((entry, number))));
        }
        let mut builder = tx.tree_builder(name, build)?;
        while let Some(Reverse(((key, value), number))) = heads.pop() {
            builder.push(&key, &value)?;
            heads.extend(runs[number].next().transpose()?.map(|entry| Reverse((entry, number))));
        }
        builder.finish()
    }
}
