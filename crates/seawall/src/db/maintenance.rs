//! Maintenance of one tree under load: sampled statistics, a check, prefetch, a handle by id.

use super::check::{Damage, Part, advice};
use super::database::Database;
use super::transaction::Transaction;
use super::tree::Tree;
use crate::btree::{Node, Verify};
use crate::error::{Error, Result};
use crate::format::{PageId, TreeId, TxnId};

/// The estimates of [`Database::sample_leaves`] for a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TreeSample {
    /// Leaves of the tree.
    pub leaves: f64,
    /// Leaves sampled.
    pub sampled: u64,
    /// Rows of the tree.
    pub rows: f64,
    /// Entries marked deleted that are not purged yet.
    pub deleted: f64,
}

/// A sampled leaf.
#[derive(Debug)]
pub struct LeafSample<'a> {
    node: &'a Node<'a>,
    weight: f64,
    keys: Vec<Vec<u8>>,
    deleted: usize,
}

impl<'a> LeafSample<'a> {
    fn new(node: &'a Node<'a>, weight: f64) -> Result<Self> {
        let (mut keys, mut deleted) = (Vec::new(), 0);
        for slot in 0..node.count() {
            if node.entry(slot)?.is_deleted() {
                deleted += 1;
            } else {
                keys.push(node.key(slot)?);
            }
        }
        Ok(Self { node, weight, keys, deleted })
    }

    /// Returns how many leaves of the tree this leaf represents. To estimate a sum over the tree, add value
    /// times weight over the sample.
    #[must_use]
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// Returns the keys of the leaf's rows, in order. Rows that are marked deleted are omitted; uncommitted
    /// rows are included.
    #[must_use]
    pub fn keys(&self) -> &[Vec<u8>] {
        &self.keys
    }

    /// Returns the leaf's page.
    #[must_use]
    pub fn page(&self) -> PageId {
        self.node.id()
    }

    /// Returns the number of entries marked deleted.
    #[must_use]
    pub fn deleted(&self) -> usize {
        self.deleted
    }

    /// Returns the bytes that entries, slots and fences use.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.node.used_bytes()
    }

    /// Counts the distinct prefixes of the leaf's keys. `prefix` returns the length of a key's prefix, bytes.
    /// The prefix of the leaf's first keys may also occur in the leaf before.
    pub fn distinct(&self, prefix: impl Fn(&[u8]) -> usize) -> usize {
        let cut = |key: &'_ Vec<u8>| key[..prefix(key).min(key.len())].to_vec();
        let mut prefixes: Vec<Vec<u8>> = self.keys.iter().map(cut).collect();
        // Sorted keys have sorted prefixes, if `prefix` is consistent.
        prefixes.dedup();
        prefixes.len()
    }
}

/// Leaves checked with one view: purge can proceed between two views.
const LEAVES_A_VIEW: usize = 256;

impl Database {
    /// Samples about `count` leaves spread evenly over a tree, for statistics: the number of rows, distinct
    /// prefixes of keys (rows per value of an index's first columns), fill. Reads only these leaves and the
    /// branches above them, or all leaves if the tree has no more than `count`. No latch is held while `visit`
    /// runs. The tree may change during the call, and uncommitted rows are counted.
    ///
    /// # Errors
    /// [`Error::TreeDropped`]; read errors.
    ///
    /// ```
    /// # let db = seawall::Database::in_memory()?;
    /// let tree = db.create_tree("t")?;
    /// // 100 groups of 50 rows.
    /// db.transact(|tx| tx.put_rows(&tree, (0..5000u32).map(|i| ([(i / 50).to_be_bytes(), i.to_be_bytes()].concat(), []))))?;
    /// let mut groups = 0.0;
    /// let found = db.sample_leaves(&tree, 20, |leaf| groups += leaf.weight() * leaf.distinct(|_| 4) as f64)?;
    /// let rows_per_group = found.rows / groups;
    /// assert!((4500.0..5500.0).contains(&found.rows) && (30.0..60.0).contains(&rows_per_group));
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn sample_leaves(
        &self,
        tree: &Tree,
        count: usize,
        mut visit: impl FnMut(&LeafSample<'_>),
    ) -> Result<TreeSample> {
        let engine = self.inner.engine();
        engine.admit(&tree.state)?;
        let view = engine.active.view();
        tree.state.stands(TxnId::NONE, &view)?;
        let mut found = TreeSample::default();
        found.leaves = tree.state.at.sample_leaves(engine.pool(), count, |node, weight| {
            let leaf = LeafSample::new(node, weight)?;
            found.sampled += 1;
            found.rows += weight * leaf.keys.len() as f64;
            found.deleted += weight * leaf.deleted as f64;
            visit(&leaf);
            Ok(())
        })?;
        Ok(found)
    }

    /// Verifies one tree while others read and change it: order in and across its nodes, fences, long values.
    /// Returns an empty list if it finds no damage, and at most 100 findings. Reads the whole tree, but uses
    /// the memory of a few pages, whatever the tree's size.
    ///
    /// [`Database::check`] finds more: pages that the tree owns but that cannot be reached, and damage on the
    /// disk to pages that are in memory.
    ///
    /// # Errors
    /// [`Error::TreeDropped`], also if the tree is dropped during the check; [`Error::Poisoned`]. Damage is a
    /// finding, not an error.
    ///
    /// ```
    /// # let db = seawall::Database::in_memory()?;
    /// let tree = db.create_tree("t")?;
    /// db.transact(|tx| tx.put_rows(&tree, (0..5000u32).map(|i| (i.to_be_bytes(), [7; 100]))))?;
    /// assert!(db.check_tree(&tree)?.is_empty());
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn check_tree(&self, tree: &Tree) -> Result<Vec<Damage>> {
        let engine = self.inner.engine();
        engine.admit(&tree.state)?;
        let mut verify = Verify::new(tree.state.at);
        let mut more = true;
        while more {
            let view = engine.active.view();
            tree.state.stands(TxnId::NONE, &view)?;
            for _ in 0..LEAVES_A_VIEW {
                engine.health().check_for_reads()?;
                more = verify.step(engine.pool(), |writer| view.sees(writer))?;
                if !more {
                    break;
                }
            }
        }
        let finding = |found: crate::btree::TreeDefect| Damage {
            part: Part::Tree,
            page: found.page,
            tree: Some(tree.name().to_owned()),
            what: found.why,
            advice: advice(Part::Tree),
        };
        Ok(verify.into_findings().0.into_iter().map(finding).collect())
    }

    /// Opens a tree by its id ([`Tree::id`]), which a rename does not change.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such tree, or it is not committed.
    ///
    /// ```
    /// # let db = seawall::Database::in_memory()?;
    /// let id = db.create_tree("users")?.id();
    /// db.rename_tree("users", "people")?;
    /// assert_eq!(db.open_tree_by_id(id)?.name(), "people");
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn open_tree_by_id(&self, id: TreeId) -> Result<Tree> {
        self.begin()?.open_tree_by_id(id)
    }
}

impl Transaction {
    /// Opens the tree with this id, as this transaction sees it. Scans the names of all trees, so keep the
    /// handle.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn open_tree_by_id(&self, id: TreeId) -> Result<Tree> {
        self.txn().here()?;
        let found = self.txn().tree_by_id(id)?;
        let (name, state) = found.ok_or_else(|| Error::Unknown { what: "tree id", name: id.to_string() })?;
        Ok(Tree::new(state, &name))
    }

    /// Requests the leaves of keys that will be read soon, and returns the number of leaves that were not in
    /// memory. It does not wait for leaves, but reads missing branch pages, in parallel. This is a hint: a
    /// thread that needs a leaf before it arrives waits for it. `prefetch_depth` and the pool limit how many
    /// leaves are requested; the first keys (in key order) come first.
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    ///
    /// ```
    /// # let db = seawall::Database::in_memory()?;
    /// # let orders = db.create_tree("orders")?;
    /// # let (keys, tx) = ([b"a", b"b"], db.begin()?);
    /// tx.prefetch(&orders, &keys)?;
    /// // ... other work, while the leaves are read ...
    /// for key in &keys {
    ///     tx.get(&orders, *key)?;
    /// }
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn prefetch<K: AsRef<[u8]>>(&self, tree: &Tree, keys: &[K]) -> Result<usize> {
        self.txn().admit(&tree.state)?;
        let mut sorted: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        sorted.sort_unstable();
        let mut leaves = self.txn().leaves_of(&tree.state, &sorted)?;
        let pool = self.txn().pool();
        leaves.dedup();
        leaves.retain(|&leaf| leaf != PageId::NONE && !pool.is_resident(leaf));
        pool.prefetch(&leaves);
        Ok(leaves.len())
    }
}
