//! Building indexes over a tree while others change the tree.
//!
//! ```text
//!   log ──a view──> scan, sort ──> build ──rounds──> caught up, nearly ──switch──> base locked ──last round──> committed
//!                                          └─^
//! ```
//!
//! 1. A log of changes starts before the first view. It holds the key of each changed row of the base, except for
//!    changes that cannot change the row's entries. The index is built from the rows that the first view sees.
//! 2. A round goes from one view to a later one: for each changed key, the row in the earlier view and the row in the
//!    later view determine which entries are removed and added. Afterwards the index matches the rows of the later
//!    view. A key whose writer the later view does not see yet is processed again in the next round.
//! 3. Before the last round the base is locked, so no other transaction has an unfinished change there. The commit that
//!    makes the index visible also releases the lock, so no change of the base comes in between.
//! 4. Until the base is locked, the build pauses for the writers ([`Pace`]); afterwards it never pauses.
//! 5. One transaction builds the index, makes the changes of `switch` and holds the lock. One scratch transaction holds
//!    sorted runs that do not fit in memory; it is always rolled back. A crash before the commit leaves nothing.

use super::cursor::CursorOptions;
use super::database::Database;
use super::index_sort::Sort;
use super::load::BuildOptions;
use super::locking::InterruptHandle;
use super::owned_cursor::OwnedCursor;
use super::pace::Pace;
use super::transaction::Transaction;
use super::tree::Tree;
use crate::error::{Error, Result};
use crate::format::TxnId;
use crate::txn::{Seek, Watching};
use std::collections::BTreeMap;

/// Options of [`Database::build_index`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexOptions {
    /// Fill of the index's leaves, percent: 50 to 100.
    pub fill_percent: u32,
    /// Memory for sorting, bytes. Entries that do not fit are written to temporary trees.
    pub sort_bytes: usize,
    /// The last round starts, with the base locked, when at most this many rows have changed since the
    /// previous round, or when further rounds do not help.
    pub last_round_rows: usize,
    /// The share of their rate that writers of the base keep during the build, percent, at most 95. The build pauses
    /// for them as long as it can still catch up with their changes. 0: it does not pause.
    pub keep_percent: u32,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self { fill_percent: 90, sort_bytes: 64 << 20, last_round_rows: 1000, keep_percent: 88 }
    }
}

/// The limit of rounds before the last one: if writers are as fast as the rounds, further rounds do not help.
const ROUNDS_MAX: usize = 12;

/// The index entries of one row.
#[derive(Debug, Default)]
pub struct IndexEntries {
    /// Their keys and values, one after another.
    bytes: Vec<u8>,
    /// The lengths of each entry's key, value and unique part.
    lengths: Vec<[usize; 3]>,
    failed: Option<Error>,
}

/// An entry of an index that is being built.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'e> {
    pub(super) key: &'e [u8],
    pub(super) value: &'e [u8],
    /// The bytes of the key that no other entry may begin with; 0 if there is no such part.
    pub(super) unique_bytes: usize,
}

/// An entry that is added or removed. Ordered by key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct OwnedEntry {
    key: Vec<u8>,
    value: Vec<u8>,
    unique_bytes: usize,
}

impl From<Entry<'_>> for OwnedEntry {
    fn from(entry: Entry<'_>) -> Self {
        Self { key: entry.key.to_vec(), value: entry.value.to_vec(), unique_bytes: entry.unique_bytes }
    }
}

impl IndexEntries {
    /// Adds an entry. Its key must be unique in the index: append the row's key if it is not unique by
    /// itself.
    pub fn push(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.push_unique(key, 0, value);
    }

    /// Adds an entry of a unique index: no other entry's key may begin with the first `prefix_bytes` bytes of `key`, as
    /// in [`Transaction::insert_unique_prefix`].
    ///
    /// # Panics
    /// If the key is shorter than `prefix_bytes`.
    pub fn push_unique(&mut self, key: impl AsRef<[u8]>, prefix_bytes: usize, value: impl AsRef<[u8]>) {
        let (key, value) = (key.as_ref(), value.as_ref());
        assert!(prefix_bytes <= key.len(), "a prefix of {prefix_bytes} bytes of a key of {}", key.len());
        self.lengths.push([key.len(), value.len(), prefix_bytes]);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.lengths.clear();
    }

    fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut rest = &self.bytes[..];
        self.lengths.iter().map(move |&[key_bytes, value_bytes, unique_bytes]| {
            let (entry, after) = rest.split_at(key_bytes + value_bytes);
            rest = after;
            let (key, value) = entry.split_at(key_bytes);
            Entry { key, value, unique_bytes }
        })
    }

    /// Ends the build with this error, for example because the row is invalid or the index is no longer wanted.
    pub fn fail(&mut self, error: Error) {
        self.failed.get_or_insert(error);
    }
}

impl Database {
    /// Builds an index over `base`, as a new tree, while others read and change `base`. `entries` adds the index
    /// entries of a row; they must depend on the row alone. The index is complete and up to date when it becomes
    /// visible.
    ///
    /// When the index is nearly complete, `switch` is called once, with the transaction that makes the index visible:
    /// it must notify the writers of the base, or block them until this call returns. Then the base is locked, the last
    /// changes are applied, and the transaction commits. **From then on every writer that changes the base must change
    /// the index too.** A writer must not find that there is no index and then wait for the lock on the base. Therefore
    /// a writer reads, with a lock, the row that `switch` writes, before its first change (see the example), or
    /// `switch` takes a lock of the program that writers hold.
    ///
    /// Until then each change by a writer, except [`Transaction::update_unindexed`], copies a key into the log of
    /// changed keys, which uses about 100 bytes of memory for each. While the build catches up with these changes, each
    /// takes some 200 bytes more, and each entry that changes, old or new, some 60 bytes and its key and value:
    /// `sort_bytes` does not bound this. The build holds back purge like any long reader. A transaction whose snapshot
    /// is older than the commit can change the index, but not read it ([`Error::TreeTooNew`]).
    ///
    /// # Errors
    /// [`Error::KeyExists`] if two rows have the same entry, or the same unique part of one; [`Error::TreeExists`];
    /// [`Error::LockTimeout`] if transactions that have changed the base do not end; errors of `switch`, of
    /// [`IndexEntries::fail`], and of reading and writing. [`Error::Usage`] if `entries` returns different entries for
    /// the same row. After an error nothing of the index remains.
    ///
    /// ```
    /// use seawall::{Database, IndexEntries, IndexOptions, Result, Transaction, Tree};
    ///
    /// /// Users, and their index by city if there is one: the writers' side.
    /// fn put_user(tx: &mut Transaction, users: &Tree, indexes: &Tree, name: &str, city: &str) -> Result<()> {
    ///     // The lock waits for an index that is becoming visible.
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
        mut entries: impl FnMut(&[u8], &[u8], &mut IndexEntries),
        switch: impl FnOnce(&mut Transaction) -> Result<()>,
    ) -> Result<Tree> {
        let of_row = |_: usize, key: &[u8], value: &[u8], index: &mut IndexEntries| entries(key, value, index);
        let mut built = self.index_builder(base)?.build(&[name], options, of_row, switch)?;
        Ok(built.swap_remove(0))
    }

    /// Begins to build indexes over `base`: from now on changes of `base` are logged for them. If no transaction has
    /// locks or unfinished changes in `base`, the call does not wait; otherwise it waits until all transactions that
    /// are active now have ended.
    ///
    /// # Errors
    /// [`Error::LockTimeout`] if they do not end; [`Error::TreeDropped`].
    pub fn index_builder(&self, base: &Tree) -> Result<IndexBuilder> {
        let tx = self.begin()?;
        let watching = tx.txn().watch(&base.state)?;
        Ok(IndexBuilder { db: self.clone(), base: base.clone(), watching, tx })
    }

    fn snapshot(&self) -> Result<Transaction> {
        let tx = self.begin()?;
        tx.take_snapshot()?;
        Ok(tx)
    }
}

/// Builds indexes over a tree: see [`Database::index_builder`]. Dropping it ends the logging of changes.
#[derive(Debug)]
pub struct IndexBuilder {
    db: Database,
    base: Tree,
    watching: Watching,
    tx: Transaction,
}

impl IndexBuilder {
    /// Returns a handle with which any thread can end the build: it fails with [`Error::Interrupted`] soon, in whatever
    /// step it is.
    #[must_use]
    pub fn interrupt_handle(&self) -> InterruptHandle {
        self.tx.interrupt_handle()
    }

    /// Builds the indexes `names`, as [`Database::build_index`] builds one. For each version of a row, `entries` is
    /// called once for each index, with the index's position in `names`, before it is called for the next version. All
    /// indexes become visible together.
    ///
    /// # Errors
    /// Those of [`Database::build_index`].
    pub fn build(
        self,
        names: &[&str],
        options: IndexOptions,
        entries: impl FnMut(usize, &[u8], &[u8], &mut IndexEntries),
        switch: impl FnOnce(&mut Transaction) -> Result<()>,
    ) -> Result<Vec<Tree>> {
        let Self { db, base, watching, mut tx } = self;
        for &name in names {
            match db.begin()?.open_tree(name) {
                Ok(_) => return Err(Error::TreeExists { name: name.into() }),
                Err(Error::NoSuchTree { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if options.keep_percent > 95 {
            let why = format!("writers cannot keep {} percent of their rate: give at most 95", options.keep_percent);
            return Err(Error::Usage(why));
        }
        let engine = db.inner.engine();
        // With `Background::Steps` there are no pauses.
        let keep_percent = if engine.may_wait { options.keep_percent } else { 0 };
        let interrupt = tx.interrupt_handle();
        let mut build = Build {
            db: &db,
            base: &base,
            entries,
            row: IndexEntries::default(),
            pace: Pace::new(&*engine.clock, keep_percent, || watching.noted()).while_it(|| {
                db.inner.shutdown.admit()?;
                match interrupt.is_interrupted() {
                    true => Err(Error::Interrupted { during: "an index build", on: None }),
                    false => Ok(()),
                }
            }),
            watching: &watching,
            touched: BTreeMap::new(),
            now: db.snapshot()?,
        };
        let indexes = build.build(&mut tx, names, options)?;
        for _ in 0..ROUNDS_MAX {
            if build.round(&mut tx, &indexes, true)? <= options.last_round_rows {
                break;
            }
        }
        switch(&mut tx)?;
        tx.txn().lock_tree(&base.state)?;
        build.round(&mut tx, &indexes, false)?;
        if let Some(key) = build.touched.keys().next() {
            let key = key.escape_ascii();
            return Err(Error::Usage(format!(
                "`switch` has changed row \"{key}\" of the tree that the index is built over"
            )));
        }
        tx.commit()?;
        Ok(indexes)
    }
}

struct Build<'b, F> {
    db: &'b Database,
    base: &'b Tree,
    entries: F,
    row: IndexEntries,
    watching: &'b Watching,
    pace: Pace<'b>,
    /// Changed keys to process, each with the transactions that changed it.
    touched: BTreeMap<Vec<u8>, Vec<TxnId>>,
    /// The view that the indexes match.
    now: Transaction,
}

impl<F: FnMut(usize, &[u8], &[u8], &mut IndexEntries)> Build<'_, F> {
    /// Sets `self.row` to the entries of a row in one of the indexes.
    fn look_at(&mut self, index: usize, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.row.clear();
        if let Some(value) = value {
            (self.entries)(index, key, value, &mut self.row);
        }
        self.row.failed.take().map_or(Ok(()), Err)
    }

    /// Returns the entries of a row in one of the indexes.
    fn of(&mut self, index: usize, key: &[u8], value: Option<&[u8]>) -> Result<Vec<OwnedEntry>> {
        self.look_at(index, key, value)?;
        Ok(self.row.iter().map(OwnedEntry::from).collect())
    }

    /// Takes the logged changes.
    fn collect(&mut self) {
        for (writer, key) in self.watching.drain() {
            let writers = self.touched.entry(key).or_default();
            if !writers.contains(&writer) {
                writers.push(writer);
            }
        }
    }

    /// Builds the indexes from the first view.
    fn build(&mut self, tx: &mut Transaction, names: &[&str], options: IndexOptions) -> Result<Vec<Tree>> {
        let layout = BuildOptions { fill_percent: options.fill_percent };
        let mut scratch = self.db.begin()?;
        let sort_bytes = options.sort_bytes / names.len().max(1);
        let mut sorts: Vec<Sort> = (0..names.len()).map(|index| Sort::new(index, sort_bytes)).collect();
        let mut cursor = OwnedCursor::new();
        cursor.reset(self.base, CursorOptions { long: true, ..CursorOptions::default() }, ..);
        let mut rows = 0usize;
        let mut there = cursor.seek(&self.now, Seek::First)?;
        while there {
            let (key, value) = cursor.entry(&self.now)?;
            for (index, sort) in sorts.iter_mut().enumerate() {
                self.look_at(index, key, Some(value))?;
                for entry in self.row.iter() {
                    sort.push(&mut scratch, entry, &mut self.pace)?;
                }
            }
            self.pace.step();
            self.pace.check()?;
            rows += 1;
            if rows % COLLECT_ROWS == 0 {
                self.collect();
            }
            there = cursor.next(&self.now)?;
        }
        self.collect();
        let sorted = names.iter().zip(sorts);
        let built = sorted.map(|(name, sort)| sort.finish(&mut scratch, tx, name, layout, &mut self.pace));
        let indexes = built.collect::<Result<_>>()?;
        scratch.rollback()?;
        Ok(indexes)
    }

    /// Brings the indexes up to a current view; returns the number of rows processed.
    fn round(&mut self, tx: &mut Transaction, indexes: &[Tree], paced: bool) -> Result<usize> {
        let next = self.db.snapshot()?;
        // After taking the view, so that all changes that the view sees are in the log.
        self.collect();
        let touched = std::mem::take(&mut self.touched);
        let looked = touched.len();
        let (mut go, mut come) = (vec![Vec::new(); indexes.len()], vec![Vec::new(); indexes.len()]);
        let touched: Vec<(Vec<u8>, Vec<TxnId>)> = touched.into_iter().collect();
        let keys: Vec<&[u8]> = touched.iter().map(|(key, _)| &key[..]).collect();
        let base = self.base;
        next.txn().visit(&base.state, &keys, |at| {
            let (key, writers) = &touched[at];
            let (before, after) = (self.now.get(base, key)?, next.get(base, key)?);
            if before != after {
                // All indexes of one version of the row, then all of the other, as `IndexBuilder::build` promises.
                let (mut old, mut new) = (Vec::new(), Vec::new());
                for (value, entries) in [(before, &mut old), (after, &mut new)] {
                    for index in 0..indexes.len() {
                        entries.push(self.of(index, key, value.as_deref())?);
                    }
                }
                for (index, (mut old, mut new)) in old.into_iter().zip(new).enumerate() {
                    // Most changes of a row leave its entries in most indexes as they are.
                    if old != new {
                        go[index].append(&mut old);
                        come[index].append(&mut new);
                    }
                }
            }
            let unseen = writers.iter().copied().filter(|&writer| !next.txn().sees(writer));
            let unseen: Vec<TxnId> = unseen.collect();
            if !unseen.is_empty() {
                self.touched.insert(key.clone(), unseen);
            }
            if paced {
                self.pace.caught_up(ROUND_PART);
                self.pace.check()?;
            }
            Ok(())
        })?;
        let part = ROUND_PART / indexes.len().max(1) as f64;
        for ((index, mut go), mut come) in indexes.iter().zip(go).zip(come) {
            go.sort_unstable();
            come.sort_unstable();
            for OwnedEntry { key, .. } in &go {
                if !tx.delete(index, key)? {
                    return Err(Error::Usage(format!(
                        "an entry \"{}\" of a row is not in its index: the function gives different entries for the \
                         same row",
                        key.escape_ascii()
                    )));
                }
                if paced {
                    self.pace.caught_up(part);
                    self.pace.check()?;
                }
            }
            for entry in &come {
                match entry.unique_bytes {
                    0 => tx.insert(index, &entry.key, &entry.value)?,
                    prefix => tx.insert_unique_prefix(index, prefix, &entry.key, &entry.value)?,
                }
                if paced {
                    self.pace.caught_up(part);
                    self.pace.check()?;
                }
            }
        }
        self.now = next;
        Ok(looked)
    }
}

/// The share of each of the three steps of catching up with a change: reading it, removing old entries, adding new
/// ones.
const ROUND_PART: f64 = 1.0 / 3.0;
/// Rows between two collections of the log.
const COLLECT_ROWS: usize = 4096;
