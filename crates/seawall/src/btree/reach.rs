//! Finds how far the path to a key leads in a damaged tree.
//!
//! 1. If the path to a leaf ends at a page that is damaged or unreadable, the page's parent gives the range
//!    of keys below the page: exactly those keys are lost.
//! 2. A node is trusted only if its whole page is valid. It is checked under its latch: this code runs after
//!    a failure, not in normal reads.

use super::Tree;
use crate::buffer::Pool;
use crate::error::{Error, Result, Stop};
use crate::format::PageId;

/// The end of the path to a key.
#[derive(Debug)]
pub enum Reach {
    /// An undamaged leaf.
    Leaf {
        /// The keys of its entries from the sought key on, deleted ones included.
        keys: Vec<Vec<u8>>,
        /// Where the next leaf begins; `None` for the last.
        upper: Option<Vec<u8>>,
    },
    /// A page that cannot be read or trusted.
    Lost {
        /// The page.
        page: PageId,
        /// The first key below it.
        lower: Vec<u8>,
        /// The first key after those; `None` for the end of the tree.
        upper: Option<Vec<u8>>,
        /// What is wrong with it.
        why: Error,
    },
}

/// The next page, and what its parent says of it.
#[derive(Default)]
struct Next {
    page: PageId,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

impl Tree {
    /// Follows the path to the leaf of `key`. No latch may be held.
    ///
    /// # Errors
    /// [`Error::TreeDropped`], and any other error that is not damage.
    pub fn reach(&self, pool: &Pool, key: &[u8]) -> Result<Reach> {
        let mut next = Next::default();
        let mut keys = Vec::new();
        let reached = pool.retry(|| {
            next = Next { page: self.root, ..Next::default() };
            keys.clear();
            let mut page = pool.shared(self.root)?;
            let mut node = self.open_root(&page)?;
            node.validate()?;
            while node.level() > 0 {
                let slot = node.child_slot(key)?;
                let (child, level) = (node.child(slot)?, node.level() - 1);
                next = Next { page: child, lower: node.child_lower(slot)?, upper: node.child_upper(slot)? };
                let below = pool.shared(child)?;
                page = below;
                node = self.open_child(&page, child, level)?;
                node.validate()?;
                if node.lower() != next.lower || node.upper() != next.upper.as_deref() {
                    return Err(Stop::Fail(Error::bad_page(child, "its fences are not what its parent says")));
                }
            }
            for slot in node.search(key)?.slot..node.count() {
                keys.push(node.key(slot)?);
            }
            Ok(())
        });
        let Next { page, lower, upper } = next;
        match reached {
            Ok(()) => Ok(Reach::Leaf { keys, upper }),
            Err(why) if why.is_damage() => Ok(Reach::Lost { page, lower, upper, why }),
            Err(error) => Err(error),
        }
    }
}
