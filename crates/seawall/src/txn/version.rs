//! The version of an entry that a view sees.
//!
//! 1. An entry is seen when it has no header, when its writer is the reader itself, or when the view sees its writer.
//!    Its undo pointer is then never followed: the record that it points to may be gone.
//! 2. An entry that is not seen is undone in a copy, record by record, until a version is seen. A view pins
//!    every record it can need: purge keeps a transaction's records while some view does not see the
//!    transaction.
//! 3. Records of a transaction that is still active can be cut by its rollback. They are read under the
//!    leaf's latch: rollback latches the leaf exclusively in the same mini-transaction. Records of ended
//!    transactions stay while the view lives, and are read without the leaf's latch.

use super::engine::Engine;
use super::undo::UndoRecord;
use super::views::{OldestView, View};
use crate::btree::{DELETED, Entry, HEADER, OVERFLOW, OverflowRef};
use crate::buffer::PageRead;
use crate::error::{Error, Stop};
use crate::format::{Malformed, TreeId, TxnId, UndoPtr};
use std::collections::HashSet;

/// A reader: its transaction and its view.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'v> {
    /// Its own id, 0 before its first write.
    pub me: TxnId,
    /// Its view of other transactions.
    pub view: &'v View,
}

impl Reader<'_> {
    /// Whether it sees what `writer` wrote.
    pub fn sees(&self, writer: TxnId) -> bool {
        writer == TxnId::NONE || writer == self.me || self.view.sees(writer)
    }

    /// Whether it sees the latest version of this entry.
    pub fn sees_entry(&self, entry: &Entry<'_>) -> bool {
        entry.flags & HEADER == 0 || self.sees(entry.writer)
    }
}

/// An entry's value as stored: inline, or a reference to its overflow pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    /// The bytes.
    Inline(Vec<u8>),
    /// The reference to the bytes.
    Overflow(OverflowRef),
}

impl Stored {
    /// Decodes an entry's flags and value bytes.
    ///
    /// # Errors
    /// If the reference does not decode.
    pub fn of(flags: u8, value: &[u8]) -> Result<Self, Error> {
        if flags & OVERFLOW == 0 {
            return Ok(Self::Inline(value.to_vec()));
        }
        OverflowRef::decode(value).map(Self::Overflow).map_err(|why| Error::Usage(why.to_string()))
    }
}

/// A copy of an entry that is undone step by step.
#[derive(Debug)]
pub struct Image {
    flags: u8,
    writer: TxnId,
    undo: UndoPtr,
    value: Vec<u8>,
    /// The buffer for the value before.
    before: Vec<u8>,
}

impl Image {
    /// A copy of `entry`.
    pub fn of(entry: &Entry<'_>) -> Self {
        let (value, before) = (entry.value.to_vec(), Vec::new());
        Self { flags: entry.flags, writer: entry.writer, undo: entry.undo, value, before }
    }
}

impl Engine {
    /// The version that `reader` sees of an entry of `leaf` whose latest version it does not see; `None` if
    /// it sees no such key.
    pub fn older_version(&self, leaf: PageRead<'_>, entry: Image, reader: Reader<'_>) -> Result<Option<Stored>, Stop> {
        let mut image = entry;
        let mut leaf = Some(leaf);
        let mut _pinned = None;
        loop {
            if leaf.is_some() && !self.active.is_active(image.writer) {
                leaf = None;
            }
            let stepped = self.undo.read(image.undo, |record| take_back(&mut image, record));
            match stepped {
                // The rest of the chain is stable: the page is loaded with no latch held.
                Err(Stop::Load(page)) if leaf.is_none() => _pinned = Some(self.space.pool().load(page)?),
                Err(stop) => return Err(stop),
                Ok(Err(why)) => return Err(Error::bad_page(image.undo.page(), why).into()),
                Ok(Ok(false)) => return Ok(None),
                Ok(Ok(true)) if image.flags & HEADER != 0 && !reader.sees(image.writer) => {}
                Ok(Ok(true)) if image.flags & DELETED != 0 => return Ok(None),
                Ok(Ok(true)) => return Ok(Some(Stored::of(image.flags, &image.value)?)),
            }
        }
    }

    /// Checks that each version of an entry that a view may need can be made. Purge must not run meanwhile; a rollback
    /// of the entry's writer may look like damage. No latch may be held.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`]; with the position of the undo record.
    pub fn check_versions(
        &self,
        (tree, key): (TreeId, &[u8]),
        entry: &Entry<'_>,
        oldest: &OldestView,
    ) -> Result<(), (UndoPtr, Error)> {
        let (mut image, mut passed) = (Image::of(entry), HashSet::new());
        while image.flags & HEADER != 0 && image.writer != TxnId::NONE && !oldest.sees(image.writer) {
            let at = image.undo;
            let bad = |why: &str| (at, Error::bad_page(at.page(), why));
            if !passed.insert(at) {
                return Err(bad("an entry's versions run in a circle"));
            }
            let record = match self.undo.record_of(at) {
                Ok(Some((record, _))) => record,
                Ok(None) => return Err(bad("an entry's undo pointer leads to no change")),
                Err(error) => return Err((at, error)),
            };
            if !record.get().is_of(tree, key) {
                return Err(bad("an entry's undo pointer leads to a record that is not of its row"));
            }
            match take_back(&mut image, record.get()) {
                Ok(true) => {}
                Ok(false) => break,
                Err(why) => return Err(bad(why)),
            }
        }
        Ok(())
    }
}

/// Undoes one change of `image`; `false` if that was its insertion.
fn take_back(image: &mut Image, record: UndoRecord<'_>) -> Result<bool, &'static str> {
    match record {
        UndoRecord::Insert { .. } | UndoRecord::InsertRange { .. } => Ok(false),
        UndoRecord::Update { previous, value, .. } => {
            image.before.clear();
            // After an error, the image still names this record.
            value.put(&image.value, &mut image.before).map_err(|Malformed(why)| why)?;
            std::mem::swap(&mut image.value, &mut image.before);
            (image.flags, image.writer, image.undo) = (previous.flags, previous.writer, previous.undo);
            Ok(true)
        }
        UndoRecord::Delete { previous, .. } => {
            (image.flags, image.writer, image.undo) = (previous.flags, previous.writer, previous.undo);
            Ok(true)
        }
        _ => Err("an entry's undo pointer leads to a record that is not of a row"),
    }
}
