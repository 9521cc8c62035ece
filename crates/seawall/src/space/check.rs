//! Looking for pages that are owned and not reachable, or the other way round.
//!
//! 1. A check begins with the owners of all pages. Each layer reports every page it reaches; what is left over in the
//!    end is lost.
//! 2. Everything found is collected: the first finding ends nothing.
//! 3. It wants a quiet database: four bytes are held for each page, and nobody may change owners meanwhile.

use super::Space;
use super::header::{self, Field};
use crate::error::{Error, Result};
use crate::format::{PageId, TreeId};
use std::fmt;

/// Stands for the owner of a page once it was reached.
const REACHED: TreeId = TreeId(u32::MAX);

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub page: PageId,
    /// What.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {}: {}", self.page, self.what)
    }
}

/// A check of the whole database under way.
#[derive(Debug)]
pub struct Check {
    owners: Vec<TreeId>,
    findings: Vec<Finding>,
}

impl Check {
    /// What was found so far.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Notes what is wrong.
    pub fn find(&mut self, page: PageId, what: impl Into<String>) {
        self.findings.push(Finding { page, what: what.into() });
    }

    /// Notes an error of reading as a finding.
    pub fn fail(&mut self, page: PageId, error: &Error) {
        self.find(page, error.to_string());
    }

    /// `tree` uses `page`. Whether that is so far in order: if not, following the page any further makes no sense (and
    /// may never end).
    pub fn reach(&mut self, page: PageId, tree: TreeId) -> bool {
        let Some(owner) = self.owners.get_mut(page.0 as usize) else {
            self.find(page, format!("tree {tree} refers to it, but the file ends before"));
            return false;
        };
        let was = std::mem::replace(owner, REACHED);
        if was == tree {
            return true;
        }
        let what = match was {
            REACHED => format!("tree {tree} refers to it, and something referred to it before"),
            TreeId::FREE => format!("tree {tree} refers to it, but it is free"),
            other => format!("tree {tree} refers to it, but it belongs to tree {other}"),
        };
        self.find(page, what);
        false
    }

    /// Ends it: what is owned and was not reached is lost. `dropped` are the trees whose pages are still to be freed.
    #[must_use]
    pub fn finish(mut self, dropped: &[TreeId]) -> Vec<Finding> {
        for (page, owner) in (0..).zip(std::mem::take(&mut self.owners)) {
            if owner != TreeId::FREE && owner != REACHED && !dropped.contains(&owner) {
                self.find(PageId(page), format!("it belongs to tree {owner}, but nothing refers to it"));
            }
        }
        self.findings
    }
}

impl Space {
    /// Begins a check: reads the header page and all maps, and looks at them.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`] when the header page cannot be read. A map that cannot be is a finding.
    pub fn check(&self) -> Result<Check> {
        let next_tree = self.pool.retry(|| {
            let header = self.pool.shared(header::PAGE)?;
            header::verify(&header).map_err(|why| Error::bad_page(header::PAGE, why))?;
            Ok(TreeId(Field::NextTree.get(&header)))
        })?;
        let mut check = Check { owners: Vec::with_capacity(self.pages() as usize), findings: Vec::new() };
        let mut readable = true;
        for group in 0..self.shape.groups(self.pages()) {
            let first = group * self.shape.group_pages;
            let map = self.shape.map_of_group(group);
            if let Err(error) = self.with_owners(group, |owners| check.owners.extend(owners)) {
                readable = false;
                check.fail(map, &error);
                check.owners.resize((first + self.shape.group_pages).min(self.pages()) as usize, TreeId::FREE);
                continue;
            }
            for page in (first..self.pages().min(first + self.shape.group_pages)).map(PageId) {
                let (owner, system) = (check.owners[page.0 as usize], page == header::PAGE || page == map);
                if system {
                    check.reach(page, TreeId::SYSTEM);
                } else if owner == TreeId::SYSTEM || owner >= next_tree {
                    check.find(page, format!("tree {owner} owns it, which cannot be: the next tree is {next_tree}"));
                }
            }
        }
        if readable {
            let owners: Vec<_> = check.owners.iter().map(|&o| if o == REACHED { TreeId::SYSTEM } else { o }).collect();
            if let Some(what) = self.index_differs(&owners) {
                check.find(header::PAGE, format!("what is known in memory differs from the maps: {what}"));
            }
        }
        Ok(check)
    }
}
