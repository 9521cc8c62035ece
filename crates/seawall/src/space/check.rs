//! A check for pages that are owned but not reachable, or reachable but not owned.
//!
//! 1. A check begins with the owners of all pages. Each layer reports every page that it reaches; an owned page that no
//!    layer has reached is lost.
//! 2. Every finding is collected: the check continues after each.
//! 3. It needs a quiet database: no owner may change during it. It keeps one bit for each page in memory, and reads the
//!    owners from the maps.

use super::Space;
use super::header::{self, Field};
use super::index::Comparison;
use crate::error::{Error, Result};
use crate::format::{PageId, TreeId};
use std::fmt;

/// An inconsistency that a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceDefect {
    /// The page.
    pub page: PageId,
    /// The inconsistency.
    pub what: String,
}

impl fmt::Display for SpaceDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {}: {}", self.page, self.what)
    }
}

/// A running check of the whole database.
#[derive(Debug)]
pub struct Check<'s> {
    space: &'s Space,
    /// The pages of the file when the check began. A later page is checked only if something refers to it.
    pages: u32,
    /// A bit for each page that something refers to.
    reached: Vec<u64>,
    findings: Vec<SpaceDefect>,
    /// Groups whose maps could not be read. Each is a finding, and its pages are not checked.
    unread: Vec<u32>,
    /// The last group that was read, and the owners of its pages; empty if its map cannot be read.
    owners: (u32, Vec<TreeId>),
}

/// Returns the position of a page's bit: the word, and the bit in it.
fn place(page: PageId) -> (usize, u64) {
    (page.0 as usize / 64, 1 << (page.0 % 64))
}

impl Check<'_> {
    /// Returns the findings so far.
    #[must_use]
    pub fn findings(&self) -> &[SpaceDefect] {
        &self.findings
    }

    /// Adds a finding.
    pub fn find(&mut self, page: PageId, what: impl Into<String>) {
        self.findings.push(SpaceDefect { page, what: what.into() });
    }

    /// Adds a read error as a finding.
    pub fn fail(&mut self, page: PageId, error: &Error) {
        self.find(page, error.to_string());
    }

    /// Reports that `tree` uses `page`. Returns whether that is consistent so far. If not, the caller must not follow
    /// the page further: that might never end.
    pub fn reach(&mut self, page: PageId, tree: TreeId) -> bool {
        if page.0 >= self.space.pages() {
            self.find(page, format!("tree {tree} refers to it, but the file ends before"));
            return false;
        }
        let (word, bit) = place(page);
        if word >= self.reached.len() {
            // The file has grown since the check began.
            self.reached.resize(word + 1, 0);
        }
        let again = self.reached[word] & bit != 0;
        self.reached[word] |= bit;
        // The owner of a page whose map cannot be read is unknown; the map has its own finding.
        let what = match self.owner(page) {
            _ if again => format!("tree {tree} refers to it, and something referred to it before"),
            Some(was) if was == tree => return true,
            None => return true,
            Some(TreeId::FREE) => format!("tree {tree} refers to it, but it is free"),
            Some(other) => format!("tree {tree} refers to it, but it belongs to tree {other}"),
        };
        self.find(page, what);
        false
    }

    fn owner(&mut self, page: PageId) -> Option<TreeId> {
        let shape = self.space.shape;
        self.read(shape.group_of(page));
        self.owners.1.get(shape.index_of(page) as usize).copied()
    }

    /// Reads the owners of a group. If that fails, adds a finding and leaves them empty.
    fn read(&mut self, group: u32) {
        if self.owners.0 == group {
            return;
        }
        self.owners.0 = group;
        let owners = &mut self.owners.1;
        owners.clear();
        if self.unread.contains(&group) {
            return;
        }
        if let Err(error) = self.space.with_owners(group, |found| owners.extend_from_slice(found)) {
            self.unread.push(group);
            self.fail(self.space.shape.map_of_group(group), &error);
        }
    }

    /// Ends the check and returns all findings: a page that is owned and was not reached is lost. `dropped`: the trees
    /// whose pages are still to be freed.
    #[must_use]
    pub fn finish(mut self, dropped: &[TreeId]) -> Vec<SpaceDefect> {
        for group in 0..self.space.shape.groups(self.pages) {
            self.read(group);
            let owners = std::mem::take(&mut self.owners.1);
            for (page, &owner) in (group * self.space.shape.group_pages..self.pages).map(PageId).zip(&owners) {
                let (word, bit) = place(page);
                let reached = self.reached[word] & bit != 0;
                if owner != TreeId::FREE && !reached && !dropped.contains(&owner) {
                    self.find(page, format!("it belongs to tree {owner}, but nothing refers to it"));
                }
            }
            self.owners = (u32::MAX, owners);
        }
        self.findings
    }
}

impl Space {
    /// Begins a check: reads and verifies the header page and all maps.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`] if the header page cannot be read. A map that cannot be read is a finding.
    pub fn check(&self) -> Result<Check<'_>> {
        let next_tree = self.pool.retry(|| {
            let header = self.pool.shared(header::PAGE)?;
            header::verify(&header).map_err(|why| Error::bad_page(header::PAGE, why))?;
            Ok(TreeId(Field::NextTree.get(&header)))
        })?;
        let pages = self.pages();
        let mut check = Check {
            space: self,
            pages,
            reached: vec![0; (pages as usize).div_ceil(64)],
            findings: Vec::new(),
            unread: Vec::new(),
            owners: (u32::MAX, Vec::new()),
        };
        // The index is compared only if it knows all maps and no page is set aside: otherwise it may differ from the
        // maps.
        let known = self.learn_all().is_ok() && self.index.lock().aside() == 0;
        let mut compared = known.then(Comparison::default);
        let (per_extent, per_group) = (self.shape.extent_pages, self.shape.group_pages / self.shape.extent_pages);
        for group in 0..self.shape.groups(pages) {
            let (first, map) = (group * self.shape.group_pages, self.shape.map_of_group(group));
            check.read(group);
            if check.unread.contains(&group) {
                compared = None;
                continue;
            }
            let owners = check.owners.1.clone();
            for (page, &owner) in (first..).map(PageId).zip(&owners) {
                if page == header::PAGE || page == map {
                    check.reach(page, TreeId::SYSTEM);
                } else if owner == TreeId::SYSTEM || owner >= next_tree {
                    check.find(page, format!("tree {owner} owns it, which cannot be: the next tree is {next_tree}"));
                }
            }
            if let Some(compared) = &mut compared {
                let index = self.index.lock();
                let extents = (group * per_group..).zip(owners.chunks_exact(per_extent as usize));
                extents.for_each(|(number, owners)| compared.extent(&index, number, owners));
            }
        }
        if let Some(what) = compared.and_then(|compared| compared.end(&self.index.lock())) {
            check.find(header::PAGE, format!("what is known in memory differs from the maps: {what}"));
        }
        Ok(check)
    }
}
