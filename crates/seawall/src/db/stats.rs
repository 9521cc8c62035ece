//! The statistics of an open database, for its user.

use super::database::Database;
use super::metrics::Stats;
pub use super::metrics::{percentile_ns, total_ns};
use super::tree::Tree;
use seawall_io::IoSnapshot;

impl Database {
    /// Returns the current statistics; empty in a forked process. Cheap enough to call once a second.
    ///
    /// ```
    /// let db = seawall::Database::in_memory()?;
    /// let tree = db.create_tree("t")?;
    /// db.transact(|tx| tx.put(&tree, b"k", b"v"))?;
    /// let stats = db.stats();
    /// assert!(stats.log.commits >= 2 && stats.txn.active == 0);
    /// # Ok::<(), seawall::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        if self.here().is_ok() { self.inner.counts.gather() } else { Stats::default() }
    }

    /// Returns the I/O by file class, operation and cause since the database was opened; empty in a forked
    /// process, and after a shutdown.
    #[must_use]
    pub fn io(&self) -> IoSnapshot {
        if self.here().is_err() {
            return IoSnapshot::default();
        }
        self.inner.engine().pool().config().stats.snapshot()
    }

    /// Returns the size of a page, bytes.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.inner.engine().pool().page_bytes() as u64
    }

    /// Returns the length of the longest key that the database takes, bytes. It depends on the page size.
    #[must_use]
    pub fn key_bytes_max(&self) -> usize {
        crate::btree::key_bytes_max(self.inner.engine().pool().page_bytes())
    }

    /// Returns the space that a tree owns, bytes, as far as the space maps have been read
    /// (`space.unread_bytes`); 0 for a tree of another database or opening, and in a forked process. Reads no
    /// page.
    #[must_use]
    pub fn tree_bytes(&self, tree: &Tree) -> u64 {
        if self.inner.engine().admit(&tree.state).is_err() {
            return 0;
        }
        let space = &self.inner.engine().space;
        u64::from(space.pages_of(tree.id())) * space.pool().page_bytes() as u64
    }
}

#[cfg(test)]
mod tests {
    use crate::{Database, TxOptions};

    #[test]
    fn the_numbers_are_those_of_what_was_done() {
        let db = Database::in_memory().unwrap();
        let before = db.stats();
        let tree = db.create_tree("t").unwrap();
        for i in 0..20u32 {
            db.transact(|tx| tx.put(&tree, &i.to_be_bytes(), b"v")).unwrap();
        }
        let mut lost = db.begin().unwrap();
        lost.put(&tree, b"x", b"y").unwrap();
        lost.rollback().unwrap();
        let mut open = db.begin().unwrap();
        open.put(&tree, b"x", b"y").unwrap();
        let mut late = db.begin().unwrap();
        let _snapshot = late.get(&tree, b"x").unwrap();
        db.transact(|tx| tx.put(&tree, b"z", b"1")).unwrap();
        late.put(&tree, b"y", b"2").unwrap();
        assert!(late.put(&tree, b"z", b"2").is_err());
        let window = db.stats().since(&before);
        assert_eq!(window.txn.commits, 22);
        assert_eq!((window.txn.conflicts, window.txn.active), (1, 2));
        assert_eq!(window.txn.begun, window.txn.commits + window.txn.rollbacks + window.txn.active);
        assert!(
            window.log.bytes > 0 && window.log.head_lsn > 0 && window.pool.frames > 0 && window.space.data_bytes > 0
        );
        assert_eq!(window.files[0].page_cache_bytes, Some(0));
        drop((open, late));
        let read_only = db.begin_with(TxOptions::default()).unwrap();
        read_only.commit().unwrap();
        assert_eq!(db.stats().since(&before).txn.commits, 22, "what wrote nothing commits nothing");
    }
}
