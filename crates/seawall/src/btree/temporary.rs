//! A tree with a single owner: no latches, no log, no versions.
//!
//! 1. *One owner.* Every call has exclusive access to the tree (`&mut`), so there is no latch, no lock and no writer to
//!    name. The nodes have the format of all other trees (`node`, `edit`) and are split and merged at the same places;
//!    the pages belong to a [`Spill`].
//! 2. *Steps.* A change loads all pages that it needs before it changes the first, and makes new pages in memory:
//!    nothing can fail between two changes that belong together. A call that fails with an error of the disk may have
//!    split or merged nodes, but has changed nothing else; the tree is whole.
//! 3. A payload is that of an entry without a header: flags, then the value or its [`OverflowRef`]. The pages of a long
//!    value are chained in memory; freeing them reads nothing. They have no headers: only this tree can read them.
//! 4. *Undo.* While a savepoint exists, each change notes the key and the old payload. A long value that was replaced
//!    keeps its pages until the note is dropped. A rollback undoes the notes from last to first and drops each one when
//!    it is undone. So a rollback that an error of the disk ended can continue where it stopped.
//! 5. Merging is optional. An error that ends a merge is ignored: the next read of that page returns it again.
//!
//! ```text
//!   savepoint ──put, delete──> noted ──rollback_to──> as it was at the savepoint
//!                                └─────release──────> kept
//! ```

use super::Damaged;
use super::edit::{self, NewNode, Packed, prefix_between};
use super::entry::{OVERFLOW, OverflowRef, entry_bytes_max};
use super::merge::are_mergeable;
use super::node::{Node, key_bytes_max};
use super::search::Toward;
use super::split::{CHILD_BYTES, Cut, choose};
use crate::buffer::{Spill, SpillPlace};
use crate::error::{Error, Result};
use crate::format::{Malformed, PageId, TreeId};

/// The flags of a value that follows them in the payload.
const INLINE: u8 = 0;

/// The tree.
#[derive(Debug)]
pub struct Temporary {
    id: TreeId,
    pages: Spill,
    root: PageId,
    rows: u64,
    notes: Vec<Note>,
    /// Savepoints: their numbers, each with how many notes there were.
    savepoints: Vec<(u64, usize)>,
    last_savepoint: u64,
}

/// How to undo a change.
#[derive(Debug)]
struct Note {
    key: Vec<u8>,
    /// The payload before the change; `None` if there was no row.
    old: Option<Vec<u8>>,
}

/// A value that was found.
#[derive(Debug, Clone)]
pub enum Found {
    /// The value, copied from the leaf.
    Inline(Vec<u8>),
    /// A long value, still to be read.
    Long(OverflowRef),
}

/// Rows of a leaf.
#[derive(Debug, Default)]
pub struct Rows {
    /// The rows, in order.
    pub rows: Vec<(Vec<u8>, Found)>,
    /// All keys of the leaf are at least this.
    pub lower: Vec<u8>,
    /// All keys of the leaf are less than this; `None` is infinite.
    pub upper: Option<Vec<u8>>,
}

/// The path to a leaf: each branch and the slot taken.
type Way = Vec<(PageId, usize)>;
/// How a step begins.
type Begin = fn(&mut Spill) -> Result<()>;

fn found(payload: &[u8]) -> Result<Found, Malformed> {
    match payload.split_first() {
        Some((&INLINE, value)) => Ok(Found::Inline(value.to_vec())),
        Some((&OVERFLOW, value)) => OverflowRef::decode(value).map(Found::Long),
        _ => Err(Malformed("a payload without a value")),
    }
}

/// Makes the error for an operation that failed although it was checked before.
fn bug(page: PageId) -> impl FnOnce(Malformed) -> Error {
    move |why| Error::bad_page(page, format!("of a temporary tree: {}", why.0))
}

impl Temporary {
    /// Creates an empty tree.
    ///
    /// # Errors
    /// Only if a page is too small for a node, which no page is.
    pub fn new(id: TreeId, place: SpillPlace, page_bytes: usize, memory_bytes: u64) -> Result<Self> {
        let mut pages = Spill::new(place, page_bytes, memory_bytes);
        let root = Self::empty_leaf(id, &mut pages)?;
        Ok(Self { id, pages, root, rows: 0, notes: Vec::new(), savepoints: Vec::new(), last_savepoint: 0 })
    }

    fn empty_leaf(id: TreeId, pages: &mut Spill) -> Result<PageId> {
        let page = pages.make();
        let leaf = NewNode { id: page, tree: id, level: 0, lower: &[], upper: None, count: 0, entries: &[] };
        edit::build(pages.seen_mut(page), &leaf).map_err(bug(page))?;
        Ok(page)
    }

    /// Its id.
    pub fn id(&self) -> TreeId {
        self.id
    }

    /// The number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Its pages.
    pub fn pages(&self) -> &Spill {
        &self.pages
    }

    // --- reading ---------------------------------------------------------------------------------------

    /// Loads the pages on the path to a leaf.
    fn descend(&mut self, toward: Toward<'_>) -> Result<(Way, PageId)> {
        let (mut way, mut at) = (Way::new(), self.root);
        loop {
            let node = Node::open(self.pages.page(at)?)?;
            if node.is_leaf() {
                return Ok((way, at));
            }
            let slot = toward.child_slot(&node)?;
            let child = node.child(slot)?;
            way.push((at, slot));
            at = child;
        }
    }

    fn leaf(&self, page: PageId) -> Result<Node<'_>, Damaged> {
        Node::open(self.pages.seen(page))
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Found>> {
        self.pages.begin_step()?;
        let (_, leaf) = self.descend(Toward::Key(key))?;
        let node = self.leaf(leaf)?;
        let at = node.search_inside(key)?;
        if !at.found {
            return Ok(None);
        }
        found(node.payload(at.slot)?).map(Some).map_err(bug(leaf))
    }

    /// Reads a long value.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn read(&mut self, value: Found) -> Result<Vec<u8>> {
        let (len, head) = match value {
            Found::Inline(value) => return Ok(value),
            Found::Long(OverflowRef { head, len }) => (len as usize, head),
        };
        let mut out = Vec::with_capacity(len);
        let mut at = Some(head);
        while let Some(page) = at {
            self.pages.begin_step()?;
            let bytes = self.pages.page(page)?;
            out.extend_from_slice(&bytes[..bytes.len().min(len - out.len())]);
            at = self.pages.next_of(page);
        }
        if out.len() == len { Ok(out) } else { Err(bug(head)(Malformed("a long value without its end"))) }
    }

    /// Returns the rows of the leaf that has the keys from `key` on or, with `below`, those just below `key`. Without a
    /// key, returns those of the first leaf or, with `below`, of the last one.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn rows_at(&mut self, key: Option<&[u8]>, below: bool) -> Result<Rows> {
        self.pages.begin_step()?;
        let toward = match (key, below) {
            (Some(key), true) => Toward::Below(key),
            (None, true) => Toward::Last,
            (key, false) => Toward::Key(key.unwrap_or_default()),
        };
        let (_, leaf) = self.descend(toward)?;
        let node = self.leaf(leaf)?;
        let mut out = Rows {
            rows: Vec::with_capacity(node.count()),
            lower: node.lower().to_vec(),
            upper: node.upper().map(<[u8]>::to_vec),
        };
        for slot in 0..node.count() {
            out.rows.push((node.key(slot)?, found(node.payload(slot)?).map_err(bug(leaf))?));
        }
        Ok(out)
    }

    // --- changing --------------------------------------------------------------------------------------

    /// Sets the value of a key. Returns whether the key existed.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`]; [`Error::NoSpace`]; those of the disk. The row is unchanged then.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.check_key(key)?;
        let payload = self.encode(key, value)?;
        match self.set(key, &payload, Spill::begin_growing) {
            Ok(old) => {
                let was_there = old.is_some();
                self.rows += u64::from(!was_there);
                self.note(key, old);
                Ok(was_there)
            }
            Err(error) => {
                self.free_long(&payload);
                Err(error)
            }
        }
    }

    /// Removes a row. Returns whether it existed.
    ///
    /// # Errors
    /// Those of the disk. The row is unchanged then.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool> {
        let Some(old) = self.remove(key)? else { return Ok(false) };
        self.rows -= 1;
        self.note(key, Some(old));
        Ok(true)
    }

    /// Removes all rows. Without a savepoint no row is visited.
    ///
    /// # Errors
    /// Those of the disk. Rows that were not removed are unchanged.
    pub fn clear(&mut self) -> Result<()> {
        if self.savepoints.is_empty() {
            self.pages.clear();
            self.root = Self::empty_leaf(self.id, &mut self.pages)?;
            self.rows = 0;
            return Ok(());
        }
        let mut below = None;
        loop {
            let Rows { rows, lower, .. } = self.rows_at(below.as_deref(), true)?;
            for (key, _) in rows {
                self.delete(&key)?;
            }
            if lower.is_empty() {
                return Ok(());
            }
            // The leaf may stay, empty, where its sibling has no room for a merge.
            below = Some(lower);
        }
    }

    fn check_key(&self, key: &[u8]) -> Result<()> {
        let max_bytes = key_bytes_max(self.pages.page_bytes());
        if key.len() > max_bytes {
            return Err(Error::KeyTooLong { len_bytes: key.len(), max_bytes });
        }
        Ok(())
    }

    /// Returns the payload for a value. Writes the pages of a long one.
    fn encode(&mut self, key: &[u8], value: &[u8]) -> Result<Vec<u8>> {
        let page_bytes = self.pages.page_bytes();
        if key.len() + 1 + value.len() <= entry_bytes_max(page_bytes) {
            let mut payload = Vec::with_capacity(1 + value.len());
            payload.push(INLINE);
            payload.extend_from_slice(value);
            return Ok(payload);
        }
        // From the last piece to the first: each page names the one after it.
        let mut next = None;
        for piece in value.chunks(page_bytes).rev() {
            if let Err(error) = self.pages.begin_growing() {
                self.free_chain(next);
                return Err(error);
            }
            let page = self.pages.make();
            self.pages.seen_mut(page)[..piece.len()].copy_from_slice(piece);
            self.pages.chain(page, next);
            next = Some(page);
        }
        let head = next.expect("a long value is not empty");
        let len = u32::try_from(value.len()).expect("the longest value has 1 GiB");
        Ok([&[OVERFLOW][..], &OverflowRef { head, len }.encode()].concat())
    }

    fn free_chain(&mut self, mut at: Option<PageId>) {
        while let Some(page) = at {
            at = self.pages.next_of(page);
            self.pages.release(page);
        }
    }

    /// Frees the pages of a payload's long value, if it has one.
    fn free_long(&mut self, payload: &[u8]) {
        if let Some(head) = long_head(payload) {
            self.free_chain(Some(head));
        }
    }

    /// Notes a change or, without a savepoint, frees what it replaced.
    fn note(&mut self, key: &[u8], old: Option<Vec<u8>>) {
        if self.savepoints.is_empty() {
            if let Some(old) = old {
                self.free_long(&old);
            }
        } else {
            self.notes.push(Note { key: key.to_vec(), old });
        }
    }

    /// Sets the payload of a key, in steps that `begin` begins. Returns the old payload.
    fn set(&mut self, key: &[u8], payload: &[u8], begin: Begin) -> Result<Option<Vec<u8>>> {
        loop {
            begin(&mut self.pages)?;
            let (way, leaf) = self.descend(Toward::Key(key))?;
            let node = self.leaf(leaf)?;
            let at = node.search_inside(key)?;
            if !node.fits(at, key.len(), payload.len())? {
                self.split(way, leaf, key)?;
                continue;
            }
            let (old, prefix_len) =
                (at.found.then(|| node.payload(at.slot)).transpose()?.map(<[u8]>::to_vec), node.prefix_len());
            let bytes = self.pages.seen_mut(leaf);
            if at.found {
                edit::replace(bytes, at.slot, payload)
            } else {
                edit::insert(bytes, at.slot, &key[prefix_len..], payload)
            }
            .map_err(bug(leaf))?;
            return Ok(old);
        }
    }

    /// Splits the lowest node of the path, from the leaf up, whose parent has room for one child more; if there is
    /// none, grows the root. All pages of the path are loaded.
    fn split(&mut self, mut way: Way, leaf: PageId, key: &[u8]) -> Result<()> {
        let mut page = leaf;
        loop {
            let Cut { at, separator } = choose(&self.leaf(page)?, key)?;
            let Some((parent, slot)) = way.pop() else { return self.grow_root() };
            let above = self.leaf(parent)?;
            if !above.fits_insert(separator.len(), CHILD_BYTES)? {
                page = parent;
                continue;
            }
            let above_prefix = above.prefix_len();
            let node = self.leaf(page)?;
            let (level, upper) = (node.level(), node.upper().map(<[u8]>::to_vec));
            let prefix_len = prefix_between(&separator, upper.as_deref());
            let packed = Packed::of(&node, at..node.count(), prefix_len, level > 0)?;
            let right = self.pages.make();
            let new = NewNode {
                id: right,
                tree: self.id,
                level,
                lower: &separator,
                upper: upper.as_deref(),
                count: packed.count,
                entries: &packed.bytes,
            };
            edit::build(self.pages.seen_mut(right), &new).map_err(bug(right))?;
            edit::truncate(self.pages.seen_mut(page), at, &separator).map_err(bug(page))?;
            let child = right.0.to_le_bytes();
            let parent_bytes = self.pages.seen_mut(parent);
            return edit::insert(parent_bytes, slot + 1, &separator[above_prefix..], &child).map_err(bug(parent));
        }
    }

    /// Puts a branch with one child above the root.
    fn grow_root(&mut self) -> Result<()> {
        let level = self.leaf(self.root)?.level() + 1;
        let mut only = Packed::default();
        only.push(&[], &self.root.0.to_le_bytes());
        let root = self.pages.make();
        let new = NewNode { id: root, tree: self.id, level, lower: &[], upper: None, count: 1, entries: &only.bytes };
        edit::build(self.pages.seen_mut(root), &new).map_err(bug(root))?;
        self.root = root;
        Ok(())
    }

    /// Removes an entry. Returns its payload.
    fn remove(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.pages.begin_step()?;
        let (way, leaf) = self.descend(Toward::Key(key))?;
        let node = self.leaf(leaf)?;
        let at = node.search_inside(key)?;
        if !at.found {
            return Ok(None);
        }
        let old = node.payload(at.slot)?.to_vec();
        edit::remove(self.pages.seen_mut(leaf), at.slot).map_err(bug(leaf))?;
        if self.leaf(leaf)?.is_underfull() && self.merge(way, leaf).is_err() {
            // (5): the row is gone, and the tree is whole.
        }
        Ok(Some(old))
    }

    /// Merges the leaf with a sibling if it is underfull, likewise its parents, and removes a root with one child.
    fn merge(&mut self, mut way: Way, leaf: PageId) -> Result<()> {
        let mut page = leaf;
        while let Some((parent, slot)) = way.pop() {
            if !self.leaf(page)?.is_underfull() {
                break;
            }
            self.merge_with_sibling(parent, slot)?;
            page = parent;
        }
        loop {
            let root = Node::open(self.pages.page(self.root)?)?;
            if root.is_leaf() || root.count() != 1 {
                return Ok(());
            }
            let child = root.child(0)?;
            let below = Node::open(self.pages.page(child)?)?;
            if !below.lower().is_empty() || below.has_upper() {
                return Err(below.damaged("the root's only child does not hold everything").into());
            }
            let gone = std::mem::replace(&mut self.root, child);
            self.pages.release(gone);
        }
    }

    /// Merges the child of `slot` with its right sibling, otherwise with the left one.
    fn merge_with_sibling(&mut self, parent: PageId, slot: usize) -> Result<()> {
        for left_slot in [Some(slot), slot.checked_sub(1)].into_iter().flatten() {
            let above = self.leaf(parent)?;
            if left_slot + 1 >= above.count() {
                continue;
            }
            let (left, right) = (above.child(left_slot)?, above.child(left_slot + 1)?);
            self.pages.page(left)?;
            self.pages.page(right)?;
            let (a, b) = (self.leaf(left)?, self.leaf(right)?);
            if a.upper() != Some(b.lower()) || a.level() != b.level() {
                return Err(b.damaged("it does not begin where its left sibling ends").into());
            }
            if !are_mergeable(&a, &b)? {
                continue;
            }
            let upper = b.upper().map(<[u8]>::to_vec);
            let packed = Packed::of(&b, 0..b.count(), prefix_between(a.lower(), upper.as_deref()), false)?;
            self.leaf(parent)?.check_heap()?;
            edit::append(self.pages.seen_mut(left), upper.as_deref(), packed.count, &packed.bytes)
                .map_err(bug(left))?;
            edit::remove(self.pages.seen_mut(parent), left_slot + 1).map_err(bug(parent))?;
            self.pages.release(right);
            return Ok(());
        }
        Ok(())
    }

    // --- savepoints ------------------------------------------------------------------------------------

    /// Sets a savepoint. Returns its number.
    pub fn savepoint(&mut self) -> u64 {
        self.last_savepoint += 1;
        self.savepoints.push((self.last_savepoint, self.notes.len()));
        self.last_savepoint
    }

    fn find(&self, savepoint: u64) -> Result<usize> {
        let at = self.savepoints.iter().position(|&(number, _)| number == savepoint);
        at.ok_or_else(|| Error::Unknown { what: "savepoint of a temporary tree", name: savepoint.to_string() })
    }

    /// Undoes all changes since the savepoint. The savepoint stays; later ones are removed.
    ///
    /// # Errors
    /// [`Error::Unknown`]; those of the disk, after which another call continues the rollback.
    pub fn rollback_to(&mut self, savepoint: u64) -> Result<()> {
        let at = self.find(savepoint)?;
        let keep = self.savepoints[at].1;
        self.savepoints.truncate(at + 1);
        while self.notes.len() > keep {
            let Note { key, old } = self.notes.pop().expect("there are more");
            let undone = match &old {
                Some(payload) => self.set(&key, payload, Spill::begin_step),
                None => self.remove(&key),
            };
            match undone {
                Ok(new) => {
                    self.rows = self.rows + u64::from(old.is_some()) - u64::from(new.is_some());
                    if let Some(new) = new {
                        self.free_long(&new);
                    }
                }
                Err(error) => {
                    self.notes.push(Note { key, old });
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Removes the savepoint and later ones. The changes since the savepoint stay.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn release(&mut self, savepoint: u64) -> Result<()> {
        let at = self.find(savepoint)?;
        self.savepoints.truncate(at);
        if self.savepoints.is_empty() {
            for note in std::mem::take(&mut self.notes) {
                if let Some(old) = note.old {
                    self.free_long(&old);
                }
            }
        }
        Ok(())
    }

    // --- checking --------------------------------------------------------------------------------------

    /// Checks each node against its parent, and the numbers of rows and pages against the counters. Returns what is
    /// wrong.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn check(&mut self) -> Result<Vec<String>> {
        let (mut wrong, mut rows, mut pages) = (Vec::new(), 0, 0);
        // The long values that notes keep.
        let kept: Vec<PageId> = self.notes.iter().filter_map(|note| long_head(note.old.as_deref()?)).collect();
        let mut heads = kept;
        let mut open = vec![(self.root, Vec::new(), None, None)];
        while let Some((page, lower, upper, level)) = open.pop() {
            self.pages.begin_step()?;
            pages += 1;
            let node = Node::open(self.pages.page(page)?)?;
            if let Err(damaged) = node.validate() {
                wrong.push(format!("page {page}: {}", damaged.why));
            }
            let same = node.lower() == lower && node.upper() == upper.as_deref() && node.id() == page;
            if !same || level.is_some_and(|level: u8| node.level() + 1 != level) {
                wrong.push(format!("page {page}: it is not what its parent says"));
            }
            for slot in 0..node.count() {
                if node.is_leaf() {
                    rows += 1;
                    heads.extend(long_head(node.payload(slot)?));
                } else {
                    open.push((
                        node.child(slot)?,
                        node.child_lower(slot)?,
                        node.child_upper(slot)?,
                        Some(node.level()),
                    ));
                }
            }
        }
        for head in heads {
            let mut at = Some(head);
            while let Some(page) = at {
                pages += 1;
                at = self.pages.next_of(page);
            }
        }
        if rows != self.rows {
            wrong.push(format!("it has {rows} rows and counts {}", self.rows));
        }
        if pages != self.pages.used_pages() {
            wrong.push(format!("{pages} pages are referred to, {} are in use", self.pages.used_pages()));
        }
        Ok(wrong)
    }
}

fn long_head(payload: &[u8]) -> Option<PageId> {
    match found(payload) {
        Ok(Found::Long(OverflowRef { head, .. })) => Some(head),
        _ => None,
    }
}
