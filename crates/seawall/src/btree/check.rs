//! Checks that a tree is whole.
//!
//! 1. A finding does not end the check: only the pages below the damaged page are skipped.
//! 2. Each page is reported once to the caller, which compares the pages with the space maps; a page that is
//!    reached twice is a finding.
//! 3. The tree must not change meanwhile: a split between parent and child would look like damage.

use super::entry::{Entry, OverflowRef};
use super::overflow;
use super::{Node, Tree};
use crate::buffer::{Pool, Prefetcher};
use crate::error::{Error, Result, Stop};
use crate::format::page::{self, PageKind};
use crate::format::{PageId, TreeId};
use std::collections::HashSet;
use std::fmt;

/// A defect of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeDefect {
    /// The tree.
    pub tree: TreeId,
    /// The page.
    pub page: PageId,
    /// The evidence.
    pub why: String,
}

impl fmt::Display for TreeDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tree {}, page {}: {}", self.tree, self.page, self.why)
    }
}

/// A node still to be checked, and what its parent says of it.
#[derive(Debug)]
struct Todo {
    id: PageId,
    level: Option<u8>,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

struct Walk<'a, F, G> {
    tree: Tree,
    pool: &'a Pool,
    reached: F,
    each: G,
    seen: HashSet<PageId>,
    findings: Vec<TreeDefect>,
    page: Vec<u8>,
    /// The next nodes, for prefetching.
    prefetcher: Prefetcher,
}

/// Checks every page of a tree: order in and across nodes, fences, levels, owners, long values. Calls
/// `reached` for each page, and `each` for each entry, with its leaf and its slot. Ends early once `ended` is true. The
/// tree must not change meanwhile; no latch may be held. Returns no findings if the tree is whole.
pub fn check(
    tree: Tree,
    pool: &Pool,
    ended: impl Fn() -> bool,
    reached: impl FnMut(PageId, PageKind),
    each: impl FnMut(&Node<'_>, usize, &Entry<'_>) -> Result<()>,
) -> Vec<TreeDefect> {
    let (seen, findings, page, prefetcher) = (HashSet::new(), Vec::new(), Vec::new(), Prefetcher::default().sure());
    let mut walk = Walk { tree, pool, reached, each, seen, findings, page, prefetcher };
    let mut todo = vec![Todo { id: tree.root, level: None, lower: Vec::new(), upper: None }];
    while let Some(next) = todo.pop().filter(|_| !ended()) {
        if let Err(why) = walk.node(&next, &mut todo) {
            walk.found(next.id, &why);
        }
    }
    walk.findings
}

impl<F: FnMut(PageId, PageKind), G: FnMut(&Node<'_>, usize, &Entry<'_>) -> Result<()>> Walk<'_, F, G> {
    fn found(&mut self, page: PageId, why: &Error) {
        // The finding names the page already.
        let why = match why {
            Error::Corrupt(corruption) => match &**corruption {
                crate::Corruption::Page { why, .. } => why.clone(),
                other => other.to_string(),
            },
            other => other.to_string(),
        };
        self.findings.push(TreeDefect { tree: self.tree.id, page, why });
    }

    /// Reports a page; `false` if it was reached before.
    fn reach(&mut self, id: PageId, kind: PageKind) -> bool {
        let first = self.seen.insert(id);
        if first {
            (self.reached)(id, kind);
        } else {
            self.found(id, &Error::bad_page(id, "it is reached twice"));
        }
        first
    }

    fn node(&mut self, expected: &Todo, todo: &mut Vec<Todo>) -> Result<()> {
        let (pool, copy, id) = (self.pool, &mut self.page, expected.id);
        self.prefetcher.next_is_due(pool, usize::MAX);
        pool.retry(|| {
            let held = pool.shared(id)?;
            copy.resize(held.len(), 0);
            copy.copy_from_slice(&held);
            Ok::<_, Stop>(())
        })?;
        self.prefetcher.came_to(id);
        let copy = std::mem::take(&mut self.page);
        let result = self.node_copy(&copy, expected, todo);
        self.page = copy;
        result
    }

    fn node_copy(&mut self, copy: &[u8], expected: &Todo, todo: &mut Vec<Todo>) -> Result<()> {
        let id = expected.id;
        let node = match expected.level {
            None => self.tree.open_root(copy)?,
            Some(level) => self.tree.open_child(copy, id, level)?,
        };
        if !self.reach(id, if node.is_leaf() { PageKind::Leaf } else { PageKind::Branch }) {
            return Ok(());
        }
        if page::number(copy) != id {
            return Err(Error::bad_page(id, format!("it calls itself page {}", page::number(copy))));
        }
        if node.lower() != expected.lower || node.upper() != expected.upper.as_deref() {
            self.found(id, &Error::bad_page(id, "its fences are not what its parent says"));
        }
        node.validate()?;
        if node.is_leaf() {
            for slot in 0..node.count() {
                let entry = node.entry(slot)?;
                let reference = entry.overflow().map_err(|why| node.damaged(why.0))?;
                if let Some(reference) = reference {
                    self.long_value(reference);
                }
                (self.each)(&node, slot, &entry)?;
            }
            return Ok(());
        }
        let first = todo.len();
        for slot in 0..node.count() {
            todo.push(Todo {
                id: node.child(slot)?,
                level: Some(node.level() - 1),
                lower: node.child_lower(slot)?,
                upper: node.child_upper(slot)?,
            });
        }
        // Nodes are taken from the end, so reversing puts them in key order. They are prefetched in that
        // order.
        todo[first..].reverse();
        if node.level() == 1 {
            self.prefetcher.name(todo[first..].iter().rev().map(|child| child.id));
            // After them, the branch that names the next ones.
            self.prefetcher.name(todo[..first].last().map(|sibling| sibling.id));
        }
        Ok(())
    }

    fn long_value(&mut self, reference: OverflowRef) {
        let (mut len, mut unread) = (0, false);
        let mut list_id = Some(reference.head);
        match overflow::one_page_len(self.pool, self.tree.id, reference.head) {
            Err(why) => return self.found(reference.head, &why),
            Ok(None) => {}
            Ok(Some(bytes)) => {
                if !self.reach(reference.head, PageKind::Overflow) {
                    return;
                }
                (len, list_id) = (bytes, None);
            }
        }
        while let Some(id) = list_id {
            match overflow::read_list(self.pool, self.tree.id, id) {
                Err(why) => return self.found(id, &why),
                Ok((pages, next)) => {
                    if !self.reach(id, PageKind::Overflow) {
                        return;
                    }
                    let mut ahead = Prefetcher::of(pages.iter().chain(&next).copied());
                    for page_id in pages {
                        ahead.next_is_due(self.pool, usize::MAX);
                        ahead.came_to(page_id);
                        match self.data_len(page_id) {
                            Ok(bytes) if self.reach(page_id, PageKind::Overflow) => len += bytes,
                            Ok(_) => {}
                            // An unreadable page says nothing about the value's length.
                            Err(why) => {
                                self.found(page_id, &why);
                                unread = true;
                            }
                        }
                    }
                    list_id = next;
                }
            }
        }
        if !unread && len != u64::from(reference.len) {
            let why = format!("a long value of {} bytes has {len} bytes in its pages", reference.len);
            self.found(reference.head, &Error::bad_page(reference.head, why));
        }
    }

    fn data_len(&self, id: PageId) -> Result<u64> {
        self.pool.retry(|| {
            let held = self.pool.shared(id)?;
            Ok(overflow::data(&held, id, self.tree.id)?.len() as u64)
        })
    }
}

/// Calls `reached` for every page of a long value that an undo record names, but no leaf (yet). No latch may
/// be held.
///
/// # Errors
/// Those of reading; [`Error::Corrupt`] at the first page that is not part of a long value.
pub fn check_overflow(pool: &Pool, tree: TreeId, head: PageId, mut reached: impl FnMut(PageId)) -> Result<()> {
    if overflow::one_page_len(pool, tree, head)?.is_some() {
        reached(head);
        return Ok(());
    }
    let mut seen = HashSet::new();
    let mut list_id = Some(head);
    while let Some(id) = list_id {
        let (pages, next) = overflow::read_list(pool, tree, id)?;
        for page in std::iter::once(id).chain(pages) {
            if !seen.insert(page) {
                return Err(Error::bad_page(page, "a long value refers to it twice"));
            }
            reached(page);
        }
        list_id = next;
    }
    Ok(())
}
