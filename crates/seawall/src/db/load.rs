//! Loading: a new tree from sorted rows, and many rows into an existing tree.
//!
//! 1. A built tree becomes visible, complete, at its transaction's commit; until then only that transaction
//!    can use it. A rollback, a rollback to an earlier savepoint or a crash frees its pages.
//! 2. Rows are consumed in order; only those that are about to be written are kept in memory.

use super::transaction::Transaction;
use super::tree::Tree;
use crate::error::{Error, Result};
use crate::format::TreeId;
use crate::txn::{Building, Readable};

/// How [`Transaction::build_tree`] lays out a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildOptions {
    /// Fill of the leaves, percent: 50 to 100. The first row inserted into a full leaf splits it, and a
    /// changed row grows by 12 bytes; so use 100 only for trees that are only read or appended to.
    pub fill_percent: u32,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self { fill_percent: 90 }
    }
}

/// Rows in one batch of [`Transaction::put_rows`], ...
const ROWS_AT_ONCE: usize = 1024;
/// ... or bytes in one batch.
const BYTES_AT_ONCE: usize = 1 << 20;

impl Transaction {
    /// Builds a tree from rows that are sorted by key, as bytes. This is much faster than inserts: each page is
    /// written once, full; rows have no headers, and one undo record undoes all of them. Long values are
    /// allowed.
    ///
    /// Only this transaction can use the tree until it commits. A transaction whose snapshot is older than
    /// that commit can change the tree, but its reads get [`Error::TreeTooNew`]; with
    /// [`OnConflict::Fail`](crate::OnConflict::Fail) its changes do, too.
    ///
    /// # Errors
    /// [`Error::RowsOutOfOrder`] and [`Error::DuplicateRow`], with the index of the row; [`Error::Usage`] for
    /// invalid options; [`Error::TreeExists`], and those of [`Transaction::insert`]. After any of them the
    /// transaction is unchanged and can go on.
    ///
    /// ```
    /// use seawall::{BuildOptions, Error};
    /// # let db = seawall::Database::in_memory()?;
    /// let mut tx = db.begin()?;
    /// let rows = (0..10_000u32).map(|i| (i.to_be_bytes(), format!("row {i}")));
    /// let tree = tx.build_tree("numbers", BuildOptions::default(), rows)?;
    /// assert_eq!(tx.get(&tree, &77u32.to_be_bytes())?.as_deref(), Some(&b"row 77"[..]));
    /// tx.commit()?;
    ///
    /// let mut tx = db.begin()?;
    /// let unsorted = tx.build_tree("other", BuildOptions::default(), [("a", ""), ("c", ""), ("b", "")]);
    /// assert!(matches!(unsorted, Err(Error::RowsOutOfOrder { index: 2 })));
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn build_tree<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        name: &str,
        options: BuildOptions,
        rows: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Tree> {
        let mut builder = self.tree_builder(name, options)?;
        for (key, value) in rows {
            builder.push(key.as_ref(), value.as_ref())?;
        }
        builder.finish()
    }

    /// Begins a [`Transaction::build_tree`] whose rows are pushed one by one, for example because their
    /// source can fail.
    ///
    /// # Errors
    /// Those of [`Transaction::create_tree`]; [`Error::Usage`] for invalid options.
    ///
    /// ```
    /// use seawall::BuildOptions;
    /// # let db = seawall::Database::in_memory()?;
    /// let mut tx = db.begin()?;
    /// let mut builder = tx.tree_builder("squares", BuildOptions { fill_percent: 100 })?;
    /// for i in 0..1000u64 {
    ///     builder.push(&i.to_be_bytes(), &(i * i).to_be_bytes())?;
    /// }
    /// let squares = builder.finish()?;
    /// assert_eq!(tx.iter(&squares).count(), 1000);
    /// tx.commit()?;
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn tree_builder(&mut self, name: &str, options: BuildOptions) -> Result<TreeBuilder<'_>> {
        self.txn().here()?;
        let percent = options.fill_percent;
        if !(50..=100).contains(&percent) {
            return Err(Error::Usage(format!("leaves are to be filled to {percent} percent: 50 to 100 are allowed")));
        }
        let begun = self.txn_mut().build_begin(name, percent);
        let building = self.noted(begun)?;
        Ok(TreeBuilder { tx: self, building: Some(building), name: name.into() })
    }

    /// Inserts many rows in the order given. The leaves of up to a thousand rows are read in parallel, even if
    /// the rows are in no order.
    ///
    /// # Errors
    /// [`Error::DuplicateRow`] with the index of the first row whose key exists, in the tree or among the
    /// rows before it; the rows before it are inserted in this transaction: use a savepoint to undo them.
    /// Otherwise those of [`Transaction::insert`].
    ///
    /// ```
    /// # let db = seawall::Database::in_memory()?;
    /// # let users = db.create_tree("users")?;
    /// let mut tx = db.begin()?;
    /// tx.insert_many(&users, [("ada", "1815"), ("grace", "1906")])?;
    /// let again = tx.insert_many(&users, [("alan", "1912"), ("ada", "1815")]);
    /// assert!(matches!(again, Err(seawall::Error::DuplicateRow { index: 1, .. })));
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn insert_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        tree: &Tree,
        rows: impl IntoIterator<Item = (K, V)>,
    ) -> Result<()> {
        self.txn().admit_change(&tree.state)?;
        let mut index = 0;
        self.in_runs(rows, |tx, rows| {
            let inserted = tx.txn_mut().insert_run(&tree.state, rows);
            let inserted = inserted.map_err(|(at, error)| match error {
                Error::KeyExists { on } => Error::DuplicateRow { index: index + at as u64, on },
                error => error,
            });
            index += rows.len() as u64;
            tx.noted(inserted)
        })
    }

    /// Inserts or overwrites the rows of an iterator, as [`Transaction::put_many`] does with a slice: in
    /// batches of a thousand rows or a MiB, each batch in key order.
    ///
    /// # Errors
    /// Those of [`Transaction::put_many`].
    ///
    /// ```
    /// # let db = seawall::Database::in_memory()?;
    /// let squares = db.create_tree("squares")?;
    /// db.transact(|tx| tx.put_rows(&squares, (0..5000u32).map(|i| (i.to_be_bytes(), (i * i).to_le_bytes()))))?;
    /// assert_eq!(db.begin()?.iter(&squares).count(), 5000);
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn put_rows<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        tree: &Tree,
        rows: impl IntoIterator<Item = (K, V)>,
    ) -> Result<()> {
        self.txn().admit_change(&tree.state)?;
        self.in_runs(rows, |tx, rows| tx.put_many(tree, rows))
    }

    /// Passes the rows to `run` in batches.
    fn in_runs<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        rows: impl IntoIterator<Item = (K, V)>,
        mut run: impl FnMut(&mut Self, &[(K, V)]) -> Result<()>,
    ) -> Result<()> {
        let (mut some, mut bytes) = (Vec::new(), 0);
        for row in rows {
            bytes += row.0.as_ref().len() + row.1.as_ref().len();
            some.push(row);
            if some.len() == ROWS_AT_ONCE || bytes >= BYTES_AT_ONCE {
                run(self, &some)?;
                some.clear();
                bytes = 0;
            }
        }
        if some.is_empty() { Ok(()) } else { run(self, &some) }
    }

    /// Returns whether this transaction can read the contents of a tree: not if the tree was created after the
    /// transaction's snapshot, or is dropped. Without a snapshot, the trees committed now count.
    ///
    /// # Errors
    /// [`Error::Usage`] for a tree of another database.
    ///
    /// ```
    /// use seawall::{BuildOptions, Error, Readable};
    /// # let db = seawall::Database::in_memory()?;
    /// let old = db.begin()?;
    /// old.take_snapshot()?;
    /// let tree = db.transact(|tx| tx.build_tree("t", BuildOptions::default(), [("a", "1")]))?;
    /// assert_eq!(old.may_read(&tree)?, Readable::CreatedLater);
    /// assert!(matches!(old.get(&tree, b"a"), Err(Error::TreeTooNew { .. })));
    /// assert_eq!(db.begin()?.may_read(&tree)?, Readable::Yes);
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn may_read(&self, tree: &Tree) -> Result<Readable> {
        self.txn().may_read(&tree.state)
    }
}

/// A tree under construction from sorted rows: [`Transaction::tree_builder`]. Dropping it without
/// [`TreeBuilder::finish`] undoes it.
#[derive(Debug)]
#[must_use = "without `finish` the tree is undone"]
pub struct TreeBuilder<'t> {
    tx: &'t mut Transaction,
    building: Option<Building>,
    name: String,
}

impl TreeBuilder<'_> {
    /// Adds a row, whose key must be greater than all keys before it.
    ///
    /// # Errors
    /// Those of [`Transaction::build_tree`]. After an error the tree can only be undone: each further row fails with
    /// [`Error::Usage`].
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let building = self.building.as_mut().expect("it is there until the end");
        let pushed = self.tx.txn_mut().build_push(building, key, value);
        self.tx.noted(pushed)
    }

    /// Returns the number of rows so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.building.as_ref().map_or(0, Building::rows)
    }

    pub(super) fn tree_id(&self) -> TreeId {
        self.building.as_ref().expect("it is there until the end").tree()
    }

    /// Writes the remaining rows. The transaction can then use the tree; others can use it after the commit.
    ///
    /// # Errors
    /// Those of [`Transaction::build_tree`].
    pub fn finish(mut self) -> Result<Tree> {
        let building = self.building.take().expect("it is there until the end");
        let finished = self.tx.txn_mut().build_finish(building);
        Ok(Tree::new(self.tx.noted(finished)?, &self.name))
    }
}

impl Drop for TreeBuilder<'_> {
    fn drop(&mut self) {
        let building = self.building.take().filter(|_| self.tx.txn().here().is_ok());
        if building.is_some_and(|building| self.tx.txn_mut().build_abandon(&building).is_err()) {
            // The transaction can only be rolled back now, and its calls report that.
        }
    }
}
