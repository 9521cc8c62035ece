//! Is a tree whole, while others change it?
//!
//! 1. A node is looked at with its parent latched: fences, level and tree are what the parent says at that moment. What the page alone can tell (order, heads,
//!    bounds) is looked at in a copy, with no latch held.
//! 2. It goes from leaf to leaf by their fences, so it remembers one key, one way down, and what it found: at most [`FINDINGS_MAX`].
//! 3. Behind damage it goes on at the fence that the parent has for the damaged node.
//! 4. Long values are read where a view that the caller holds sees their writer: nobody frees them meanwhile.
//! 5. What it cannot see, the check of the whole database does: pages that belong to the tree and are not reached, and pages in memory that are damaged on
//!    the disk.

use super::check::Finding;
use super::node::Node;
use super::overflow::read_overflow;
use super::{OverflowRef, Tree};
use crate::buffer::Pool;
use crate::error::{Corruption, Error, Result, Stop};
use crate::format::{Lsn, PageId, TxnId, page};
use std::ops::ControlFlow;

/// The most findings of one tree.
const FINDINGS_MAX: usize = 100;

/// Where the check of a tree stands.
#[derive(Debug)]
pub struct Verify {
    tree: Tree,
    /// The next leaf has this key.
    at: Vec<u8>,
    done: bool,
    leaves: u64,
    findings: Vec<Finding>,
    /// Branches on the last way down, which were looked at as they were then.
    way: Vec<(PageId, Lsn)>,
    copy: Vec<u8>,
}

/// Where a descent is.
#[derive(Debug, Default)]
struct Here {
    page: PageId,
    /// The upper fence that its parent has for it.
    upper: Option<Vec<u8>>,
}

impl Verify {
    /// Of the whole tree.
    #[must_use]
    pub fn new(tree: Tree) -> Self {
        Self { tree, at: Vec::new(), done: false, leaves: 0, findings: Vec::new(), way: Vec::new(), copy: Vec::new() }
    }

    /// What was found, and how many leaves were looked at.
    #[must_use]
    pub fn into_findings(self) -> (Vec<Finding>, u64) {
        (self.findings, self.leaves)
    }

    /// Looks at the next leaf and the branches on the way to it that it has not seen; false behind the last one. `sees` says whether the caller's
    /// view sees a writer. No latch may be held.
    ///
    /// # Errors
    /// [`Error::TreeDropped`], [`Error::Poisoned`], [`Error::NoSpace`] and the like: damage, and a page that cannot be read, are findings.
    pub fn step(&mut self, pool: &Pool, sees: impl Fn(TxnId) -> bool) -> Result<bool> {
        if self.done || self.findings.len() >= FINDINGS_MAX {
            return Ok(false);
        }
        let mut here = Here { page: self.tree.root, upper: None };
        let looked = loop {
            match pool.retry(|| self.descend_to(pool, &mut here)) {
                // A branch was copied, and is looked at before the way goes on.
                Ok(false) => {
                    if let Err(why) = Node::open(&self.copy).and_then(|node| node.validate()) {
                        break Err(Error::from(why));
                    }
                }
                Ok(true) => break self.leaf(pool, &sees),
                Err(error) => break Err(error),
            }
        };
        self.leaves += 1;
        match looked {
            Ok(()) => {}
            Err(Error::Corrupt(corruption)) => {
                let why = match &*corruption {
                    Corruption::Page { why, .. } => why.clone(),
                    other => other.to_string(),
                };
                self.findings.push(Finding { tree: self.tree.id, page: here.page, why });
            }
            Err(error @ Error::Io(_)) => {
                self.findings.push(Finding { tree: self.tree.id, page: here.page, why: error.to_string() });
            }
            Err(error) => return Err(error),
        }
        match here.upper {
            // Each step goes forward, whatever is damaged.
            Some(upper) if upper > self.at => self.at = upper,
            _ => self.done = true,
        }
        Ok(!self.done)
    }

    /// Goes down to the leaf and copies it: true. False when a branch on the way is another than last time: it is copied.
    fn descend_to(&mut self, pool: &Pool, here: &mut Here) -> Result<bool, Stop> {
        let tree = self.tree;
        *here = Here { page: tree.root, upper: None };
        let mut page = pool.shared(tree.root)?;
        let mut node = tree.open_root(&page)?;
        let mut depth = 0;
        while node.level() > 0 {
            let seen = (node.id(), page::lsn(&page));
            if self.way.get(depth) != Some(&seen) {
                self.way.truncate(depth);
                self.way.push(seen);
                self.take(&page);
                return Ok(false);
            }
            let slot = node.child_slot(&self.at)?;
            let (lower, upper) = (node.child_lower(slot)?, node.child_upper(slot)?);
            let (child, level) = (node.child(slot)?, node.level() - 1);
            *here = Here { page: child, upper: upper.clone() };
            let below = pool.shared(child)?;
            let found = tree.open_child(&below, child, level)?;
            if found.lower() != lower || found.upper() != upper.as_deref() {
                return Err(Error::bad_page(child, "its fences are not what its parent says").into());
            }
            page = below;
            node = tree.open_child(&page, child, level)?;
            depth += 1;
        }
        self.way.truncate(depth);
        self.take(&page);
        Ok(true)
    }

    fn take(&mut self, page: &[u8]) {
        self.copy.clear();
        self.copy.extend_from_slice(page);
    }

    /// Looks at the copy of a leaf.
    fn leaf(&self, pool: &Pool, sees: &impl Fn(TxnId) -> bool) -> Result<()> {
        let node = Node::open(&self.copy)?;
        node.validate()?;
        for slot in 0..node.count() {
            let entry = node.entry(slot)?;
            let reference = entry.overflow().map_err(|why| node.damaged(why.0))?;
            if let Some(reference) = reference.filter(|_| !entry.is_deleted() && sees(entry.writer)) {
                self.value(pool, reference)?;
            }
        }
        Ok(())
    }

    fn value(&self, pool: &Pool, reference: OverflowRef) -> Result<()> {
        let mut len = 0;
        read_overflow(pool, self.tree.id, reference, |piece| {
            len += piece.len() as u64;
            ControlFlow::Continue(())
        })?;
        if len == u64::from(reference.len) {
            return Ok(());
        }
        let why = format!("a long value of {} bytes has {len} bytes in its pages", reference.len);
        Err(Error::bad_page(reference.head, why))
    }
}
