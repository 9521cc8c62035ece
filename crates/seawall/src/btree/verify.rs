//! Checks that a tree is whole, while other threads change it.
//!
//! 1. A node is checked with its parent latched: fences, level and tree are what the parent says at that
//!    moment. What the page alone can show (order, heads, bounds) is checked in a copy, with no latch held.
//! 2. The check goes from leaf to leaf by their fences, so it remembers only one key, one path, and at most
//!    [`FINDINGS_MAX`] findings.
//! 3. After damage the check continues at the upper fence that the parent has for the damaged node.
//! 4. A long value is read only if a view that the caller holds sees its writer. So the value is not freed
//!    meanwhile.
//! 5. The check finds neither pages that belong to the tree but are not reached, nor pages that are sound in
//!    memory but damaged on disk. The check of the whole database finds those.

use super::check::TreeDefect;
use super::node::Node;
use super::overflow::read_overflow;
use super::{OverflowRef, Tree};
use crate::buffer::Pool;
use crate::error::{Corruption, Error, Result, Stop};
use crate::format::{Lsn, PageId, TxnId, page};
use std::ops::ControlFlow;

/// The most findings of one tree.
const FINDINGS_MAX: usize = 100;

/// State of the check of a tree.
#[derive(Debug)]
pub struct Verify {
    tree: Tree,
    /// The range of the next leaf contains this key.
    at: Vec<u8>,
    done: bool,
    leaves: u64,
    findings: Vec<TreeDefect>,
    /// Branches on the last path, already checked with these LSNs.
    way: Vec<(PageId, Lsn)>,
    copy: Vec<u8>,
}

/// The position of a descent.
#[derive(Debug, Default)]
struct Here {
    page: PageId,
    /// The upper fence that its parent has for it.
    upper: Option<Vec<u8>>,
}

impl Verify {
    /// Prepares a check of the whole tree.
    #[must_use]
    pub fn new(tree: Tree) -> Self {
        Self { tree, at: Vec::new(), done: false, leaves: 0, findings: Vec::new(), way: Vec::new(), copy: Vec::new() }
    }

    /// The findings, and the number of leaves checked.
    #[must_use]
    pub fn into_findings(self) -> (Vec<TreeDefect>, u64) {
        (self.findings, self.leaves)
    }

    /// Checks the next leaf and the unchecked branches on the path to it. Returns `false` after the last
    /// leaf. `sees` returns whether the caller's view sees a writer. No latch may be held.
    ///
    /// # Errors
    /// [`Error::TreeDropped`], [`Error::Poisoned`], [`Error::NoSpace`] and the like. Damage and unreadable
    /// pages are findings, not errors.
    pub fn step(&mut self, pool: &Pool, sees: impl Fn(TxnId) -> bool) -> Result<bool> {
        if self.done || self.findings.len() >= FINDINGS_MAX {
            return Ok(false);
        }
        let mut here = Here { page: self.tree.root, upper: None };
        let looked = loop {
            match pool.retry(|| self.descend_to(pool, &mut here)) {
                // A branch was copied: it is checked before the descent continues.
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
                self.findings.push(TreeDefect { tree: self.tree.id, page: here.page, why });
            }
            Err(error @ Error::Io(_)) => {
                self.findings.push(TreeDefect { tree: self.tree.id, page: here.page, why: error.to_string() });
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

    /// Descends to the leaf, copies it and returns `true`. If a branch on the path is new or has changed
    /// since its check, copies that branch and returns `false`.
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

    /// Checks the copy of a leaf.
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
