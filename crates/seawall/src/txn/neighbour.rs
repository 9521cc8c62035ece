//! The neighbours of a key in the live tree, for locking reads and for the versions of single keys.

use super::dead::Sight;
use super::dead::{Beyond, For, stretch};
use super::locking::SCAN;
use super::scan::DEAD_MIN;
use super::transaction::Txn;
use super::trees::TreeState;
use super::version::{Image, Reader, Stored};
use crate::btree::{Entry, Node, ReadAhead, Seek};
use crate::error::{Result, Stop};
use crate::format::TxnId;
use std::ops::Bound;
use std::sync::Arc;

impl Txn {
    /// The next key beyond `from` in the live tree, whatever its version. Read under the latch: no leaf is
    /// copied.
    pub(super) fn neighbour(
        &self,
        tree: &Arc<TreeState>,
        from: &Bound<Vec<u8>>,
        forward: bool,
    ) -> Result<Option<Vec<u8>>> {
        self.neighbour_ahead(tree, from, forward, None, None)
    }

    /// The next key beyond `from` that is not dead for a locking read. A scan passes its prefetch, and the
    /// number of rows it has reached in its leaf.
    pub(super) fn next_alive(
        &self,
        tree: &Arc<TreeState>,
        from: &Bound<Vec<u8>>,
        forward: bool,
        scan: Option<(&mut ReadAhead, &mut usize)>,
    ) -> Result<Option<Vec<u8>>> {
        self.neighbour_ahead(tree, from, forward, scan, Some(self.locking_sight()))
    }

    /// Skips the entries of a latched leaf that are dead for a locking read. Forward, `slot` is the first
    /// entry to check; backward, it is the slot after it. Returns the slot where the search ended, in the
    /// same sense. `joins`: the search began at the end of a known run, which is extended.
    pub(super) fn pass_dead(
        &self,
        tree: &Arc<TreeState>,
        node: &Node<'_>,
        slot: usize,
        (forward, joins): (bool, bool),
    ) -> Result<usize> {
        let mut at = slot;
        if forward {
            while at < node.count() && self.is_dead(&node.entry(at)?) {
                at += 1;
            }
        } else {
            while at > 0 && self.is_dead(&node.entry(at - 1)?) {
                at -= 1;
            }
        }
        // At the end of a leaf a shorter run is recorded, too: otherwise gaps would separate the runs of adjacent
        // leaves.
        let at_end = if forward { at == node.count() } else { at == 0 };
        if at.abs_diff(slot) >= DEAD_MIN || (at_end && at != slot) {
            let me = self.id();
            let is_dead = |entry: &Entry<'_>| self.is_dead(entry).then_some(me != TxnId::NONE && entry.writer == me);
            let slots = at.min(slot)..at.max(slot);
            let (lo, hi, own) = stretch(node, slots, !joins, is_dead)?;
            if own {
                self.note_dead_in(tree);
            }
            // The deleters have ended, or are this transaction: a snapshot taken from now on sees those that
            // have ended.
            let serves = if own { For::OnlyLocking(me) } else { For::Views(self.engine.active.next_serial()) };
            tree.dead.add(lo, hi, serves);
        }
        Ok(at)
    }

    /// The next key beyond `from`; with a `sight`, the next that is not dead.
    fn neighbour_ahead(
        &self,
        tree: &Arc<TreeState>,
        from: &Bound<Vec<u8>>,
        forward: bool,
        mut scan: Option<(&mut ReadAhead, &mut usize)>,
        sight: Option<Sight>,
    ) -> Result<Option<Vec<u8>>> {
        enum Met {
            Key(Vec<u8>),
            Edge(Vec<u8>),
            End,
        }
        let pool = self.engine.pool();
        let mut edge: Option<Vec<u8>> = None;
        loop {
            self.go_on(SCAN)?;
            if let Some(sight) = sight {
                let here = match &edge {
                    Some(edge) if forward => Bound::Included(&edge[..]),
                    Some(edge) => Bound::Excluded(&edge[..]),
                    None => from.as_ref().map(|key| &key[..]),
                };
                match tree.dead.beyond(here, forward, sight) {
                    Some(Beyond::End) => return Ok(None),
                    Some(Beyond::Key(key)) => edge = Some(key),
                    None => {}
                }
            }
            let to = match (&edge, from, forward) {
                (Some(edge), _, true) => Seek::AtLeast(edge),
                (Some(edge), _, false) => Seek::Before(edge),
                (None, Bound::Unbounded, true) => Seek::First,
                (None, Bound::Unbounded, false) => Seek::Last,
                (None, Bound::Included(key), true) => Seek::AtLeast(key),
                (None, Bound::Excluded(key), true) => Seek::After(key),
                (None, Bound::Included(key), false) => Seek::AtMost(key),
                (None, Bound::Excluded(key), false) => Seek::Before(key),
            };
            let (leaf, leaf_rows, met) = pool.retry(|| {
                let page = to.leaf(&tree.at, pool)?;
                let node = Node::open(&page)?;
                let slot = to.slot(&node)?;
                let slot =
                    if sight.is_some() { self.pass_dead(tree, &node, slot, (forward, edge.is_some()))? } else { slot };
                let met = match (forward, slot) {
                    (true, _) if slot < node.count() => Met::Key(node.key(slot)?),
                    (true, _) => node.upper().map_or(Met::End, |upper| Met::Edge(upper.to_vec())),
                    (false, 0) if node.lower().is_empty() => Met::End,
                    (false, 0) => Met::Edge(node.lower().to_vec()),
                    (false, _) => Met::Key(node.key(slot - 1)?),
                };
                Ok((page.id(), node.count(), met))
            })?;
            if let Some((ahead, rows)) = &mut scan {
                if edge.is_some() {
                    ahead.came_to(pool, leaf);
                } else {
                    ahead.sought(leaf);
                }
                if let Met::Edge(next) = &met {
                    let rows = std::mem::take(*rows);
                    ahead.leave(pool, &tree.at, forward, next, rows, leaf_rows);
                }
            }
            match met {
                Met::Key(key) => return Ok(Some(key)),
                Met::End => return Ok(None),
                Met::Edge(next) => edge = Some(next),
            }
        }
    }

    /// The version of `key` that `reader` sees, as stored.
    pub(super) fn stored_version(
        &self,
        tree: &Arc<TreeState>,
        key: &[u8],
        reader: Reader<'_>,
    ) -> Result<Option<Stored>> {
        let engine = &*self.engine;
        engine.pool().retry(|| -> Result<_, Stop> {
            let leaf = tree.at.leaf_shared(engine.pool(), key)?;
            let node = Node::open(&leaf)?;
            let position = node.search(key)?;
            if !position.found {
                return Ok(None);
            }
            let entry: Entry<'_> = node.entry(position.slot)?;
            if !reader.sees_entry(&entry) {
                let image = Image::of(&entry);
                return engine.older_version(leaf, image, reader);
            }
            if entry.is_deleted() {
                return Ok(None);
            }
            Ok(Some(Stored::of(entry.flags, entry.value)?))
        })
    }
}
