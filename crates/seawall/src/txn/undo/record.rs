//! An undo record, and its encoding.
//!
//! 1. A record has all data needed to undo one change, or the insertions in one range, and to tell whether a change
//!    is still there (writer and pointer).
//! 2. The longest record, with the longest key and the longest value that a leaf keeps inline, fits a page of
//!    every size.

use crate::btree::OVERFLOW;
use crate::format::{Malformed, PageId, Reader, TreeId, TxnId, UndoPtr, edits, put_bytes, put_u48, put_varint};

/// Bytes of a record before its body: length `u16`, kind `u8`, the transaction's previous record `u48`.
pub(super) const RECORD_HEAD: usize = 9;

/// Bytes of a `Begin` or `Commit` record.
pub(super) const END_RECORD: usize = RECORD_HEAD + 6;

/// The longest XID, bytes.
pub const XID_BYTES_MAX: usize = 256;

/// The state of an entry before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Previous {
    /// The entry's flags, as the leaf had them.
    pub flags: u8,
    /// Its writer; [`TxnId::NONE`] if every snapshot saw it.
    pub writer: TxnId,
    /// The record that undoes that version.
    pub undo: UndoPtr,
}

/// An entry's value before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldValue<'a> {
    /// The value as the leaf had it: inline, or a reference to overflow pages.
    Whole(&'a [u8]),
    /// Edits ([`edits`]) that turn the value after the change back into this one. Both are inline.
    Edits(&'a [u8]),
}

impl<'a> OldValue<'a> {
    /// Appends the value to `out`; `after` is the value after the change.
    ///
    /// # Errors
    /// If the edits do not fit `after`.
    pub fn put(self, after: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        match self {
            Self::Whole(value) => {
                out.extend_from_slice(value);
                Ok(())
            }
            Self::Edits(changes) => edits::apply(after, changes, out),
        }
    }

    fn stored(self) -> &'a [u8] {
        match self {
            Self::Whole(bytes) | Self::Edits(bytes) => bytes,
        }
    }
}

/// One undo record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndoRecord<'a> {
    /// The transaction's first record.
    Begin {
        /// The transaction.
        txn: TxnId,
    },
    /// The transaction's last record: the transaction is committed.
    Commit {
        /// The transaction.
        txn: TxnId,
    },
    /// The transaction can be committed after a crash, and is rolled back only on request.
    Prepared {
        /// The name by which its coordinator knows it.
        xid: &'a [u8],
    },
    /// The key did not exist, not even marked as deleted.
    Insert {
        /// The tree.
        tree: TreeId,
        /// Its root page.
        root: PageId,
        /// The key.
        key: &'a [u8],
    },
    /// Keys of a range that did not exist: those whose entries have the transaction as their writer and point to this
    /// record.
    InsertRange {
        /// The tree.
        tree: TreeId,
        /// Its root page.
        root: PageId,
        /// The least key of the range.
        low: &'a [u8],
        /// The least key above it; `None` if it has no end.
        high: Option<&'a [u8]>,
    },
    /// The entry had another version.
    Update {
        /// The tree.
        tree: TreeId,
        /// Its root page.
        root: PageId,
        /// The key.
        key: &'a [u8],
        /// That version.
        previous: Previous,
        /// Its value.
        value: OldValue<'a>,
    },
    /// The entry had no delete mark. Its value is still in the leaf, until the key is inserted again.
    Delete {
        /// The tree.
        tree: TreeId,
        /// Its root page.
        root: PageId,
        /// The key.
        key: &'a [u8],
        /// The version before the deletion.
        previous: Previous,
        /// The reference to the overflow pages of its value, for purge to free; empty for an inline value.
        overflow: &'a [u8],
    },
    /// A long value is being written, or was: rollback frees it.
    OverflowWritten {
        /// The tree.
        tree: TreeId,
        /// Its first page.
        head: PageId,
    },
    /// The tree did not exist.
    CreateTree {
        /// The tree.
        tree: TreeId,
        /// Its root page.
        root: PageId,
    },
    /// The tree is dropped: purge frees it.
    DropTree {
        /// The tree.
        tree: TreeId,
        /// Its root page.
        root: PageId,
    },
}

/// The kinds of records, as stored.
pub(super) mod kind {
    pub(crate) const BEGIN: u8 = 1;
    pub(crate) const COMMIT: u8 = 2;
    pub(crate) const PREPARED: u8 = 3;
    pub(crate) const INSERT: u8 = 4;
    pub(crate) const UPDATE: u8 = 5;
    pub(crate) const DELETE: u8 = 6;
    pub(crate) const OVERFLOW_WRITTEN: u8 = 7;
    pub(crate) const CREATE_TREE: u8 = 8;
    pub(crate) const DROP_TREE: u8 = 9;
    pub(crate) const INSERT_RANGE: u8 = 10;
    pub(crate) const UPDATE_BY_EDITS: u8 = 11;
}

impl<'a> UndoRecord<'a> {
    /// Returns the tree that the recorded change is in.
    pub fn tree(&self) -> Option<TreeId> {
        match *self {
            Self::Begin { .. } | Self::Commit { .. } | Self::Prepared { .. } => None,
            Self::Insert { tree, .. }
            | Self::InsertRange { tree, .. }
            | Self::Update { tree, .. }
            | Self::Delete { tree, .. }
            | Self::OverflowWritten { tree, .. }
            | Self::CreateTree { tree, .. }
            | Self::DropTree { tree, .. } => Some(tree),
        }
    }

    /// Returns whether it is the record of a change of this row.
    pub fn is_of(&self, tree: TreeId, key: &[u8]) -> bool {
        self.tree() == Some(tree)
            && match *self {
                Self::InsertRange { low, high, .. } => low <= key && high.is_none_or(|high| key < high),
                Self::Insert { key: row, .. } | Self::Update { key: row, .. } | Self::Delete { key: row, .. } => {
                    row == key
                }
                _ => false,
            }
    }

    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Begin { .. } => kind::BEGIN,
            Self::Commit { .. } => kind::COMMIT,
            Self::Prepared { .. } => kind::PREPARED,
            Self::Insert { .. } => kind::INSERT,
            Self::InsertRange { .. } => kind::INSERT_RANGE,
            Self::Update { value: OldValue::Whole(_), .. } => kind::UPDATE,
            Self::Update { value: OldValue::Edits(_), .. } => kind::UPDATE_BY_EDITS,
            Self::Delete { .. } => kind::DELETE,
            Self::OverflowWritten { .. } => kind::OVERFLOW_WRITTEN,
            Self::CreateTree { .. } => kind::CREATE_TREE,
            Self::DropTree { .. } => kind::DROP_TREE,
        }
    }

    /// Returns the most bytes that the record takes in an undo page, for [`super::UndoStore::ensure_room`].
    #[must_use]
    pub fn room_max(&self) -> usize {
        let (key, value) = match self {
            Self::Insert { key, .. } | Self::Prepared { xid: key } => (key.len(), 0),
            Self::InsertRange { low, high, .. } => (low.len(), high.map_or(0, <[u8]>::len)),
            Self::Update { key, value, .. } => (key.len(), value.stored().len()),
            Self::Delete { key, overflow, .. } => (key.len(), overflow.len()),
            _ => (0, 0),
        };
        // Three numbers of at most 5 bytes, one length of at most 3 (pages have at most 32 KiB), flags, and
        // two numbers of 6 bytes.
        RECORD_HEAD + 15 + 3 + 1 + 12 + key + value
    }

    /// Returns the most bytes of the undo record of a change of one row. Before the change the row had at
    /// most `row_bytes` bytes, with its key of `key_bytes` bytes and the header of its entry.
    #[must_use]
    pub fn room_for_row(key_bytes: usize, row_bytes: usize) -> usize {
        RECORD_HEAD + 15 + 3 + 1 + 12 + if row_bytes > key_bytes { row_bytes } else { key_bytes }
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let put_target = |out: &mut Vec<u8>, tree: TreeId, page: PageId| {
            put_varint(out, u64::from(tree.0));
            put_varint(out, u64::from(page.0));
        };
        let put_previous = |out: &mut Vec<u8>, previous: Previous| {
            out.push(previous.flags);
            put_u48(out, previous.writer.0);
            put_u48(out, previous.undo.0);
        };
        match *self {
            Self::Begin { txn } | Self::Commit { txn } => put_u48(out, txn.0),
            Self::Prepared { xid } => out.extend_from_slice(xid),
            Self::Insert { tree, root, key } => {
                put_target(out, tree, root);
                out.extend_from_slice(key);
            }
            Self::InsertRange { tree, root, low, high } => {
                put_target(out, tree, root);
                out.push(u8::from(high.is_some()));
                put_bytes(out, low);
                out.extend_from_slice(high.unwrap_or_default());
            }
            Self::Update { tree, root, key, previous, value } => {
                put_target(out, tree, root);
                put_bytes(out, key);
                put_previous(out, previous);
                out.extend_from_slice(value.stored());
            }
            Self::Delete { tree, root, key, previous, overflow } => {
                put_target(out, tree, root);
                put_previous(out, previous);
                put_bytes(out, overflow);
                out.extend_from_slice(key);
            }
            Self::OverflowWritten { tree, head: page }
            | Self::CreateTree { tree, root: page }
            | Self::DropTree { tree, root: page } => put_target(out, tree, page),
        }
    }

    /// Decodes the record of this kind and body.
    ///
    /// # Errors
    /// If there is no such record.
    pub fn decode(kind: u8, body: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Reader::new(body);
        let body = &mut body;
        Ok(match kind {
            kind::BEGIN => Self::Begin { txn: last_txn(body)? },
            kind::COMMIT => Self::Commit { txn: last_txn(body)? },
            kind::PREPARED => Self::Prepared { xid: body.rest() },
            kind::INSERT => {
                let (tree, root) = target(body)?;
                Self::Insert { tree, root, key: body.rest() }
            }
            kind::INSERT_RANGE => {
                let (tree, root) = target(body)?;
                let (ends, low, high) = (body.u8()?, body.bytes()?, body.rest());
                if ends > 1 || (ends == 0 && !high.is_empty()) {
                    return Err(Malformed("an insertion range with an unknown kind of end"));
                }
                Self::InsertRange { tree, root, low, high: (ends == 1).then_some(high) }
            }
            kind::UPDATE | kind::UPDATE_BY_EDITS => {
                let (tree, root) = target(body)?;
                let (key, previous, value) = (body.bytes()?, previous(body)?, body.rest());
                if kind == kind::UPDATE_BY_EDITS && previous.flags & OVERFLOW != 0 {
                    return Err(Malformed("edits of a long value"));
                }
                let value = if kind == kind::UPDATE { OldValue::Whole(value) } else { OldValue::Edits(value) };
                Self::Update { tree, root, key, previous, value }
            }
            kind::DELETE => {
                let (tree, root) = target(body)?;
                Self::Delete { tree, root, previous: previous(body)?, overflow: body.bytes()?, key: body.rest() }
            }
            kind::OVERFLOW_WRITTEN => {
                let (tree, head) = last_target(body)?;
                Self::OverflowWritten { tree, head }
            }
            kind::CREATE_TREE => {
                let (tree, root) = last_target(body)?;
                Self::CreateTree { tree, root }
            }
            kind::DROP_TREE => {
                let (tree, root) = last_target(body)?;
                Self::DropTree { tree, root }
            }
            _ => return Err(Malformed("no undo record has this kind")),
        })
    }
}

fn u32_of(body: &mut Reader<'_>) -> Result<u32, Malformed> {
    u32::try_from(body.varint()?).ok().ok_or(Malformed("a number of more than 32 bits"))
}

fn target(body: &mut Reader<'_>) -> Result<(TreeId, PageId), Malformed> {
    Ok((TreeId(u32_of(body)?), PageId(u32_of(body)?)))
}

fn previous(body: &mut Reader<'_>) -> Result<Previous, Malformed> {
    Ok(Previous { flags: body.u8()?, writer: TxnId(body.u48()?), undo: UndoPtr(body.u48()?) })
}

fn last_txn(body: &mut Reader<'_>) -> Result<TxnId, Malformed> {
    let txn = TxnId(body.u48()?);
    if body.is_empty() { Ok(txn) } else { Err(Malformed("bytes after an undo record")) }
}

fn last_target(body: &mut Reader<'_>) -> Result<(TreeId, PageId), Malformed> {
    let target = target(body)?;
    if body.is_empty() { Ok(target) } else { Err(Malformed("bytes after an undo record")) }
}

/// A record that was copied out of its page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedRecord {
    kind: u8,
    body: Box<[u8]>,
}

impl OwnedRecord {
    pub(super) fn new(kind: u8, body: &[u8]) -> Result<Self, Malformed> {
        UndoRecord::decode(kind, body)?;
        Ok(Self { kind, body: body.into() })
    }

    /// The record.
    #[must_use]
    pub fn get(&self) -> UndoRecord<'_> {
        UndoRecord::decode(self.kind, &self.body).expect("it was decoded when it was copied")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// A record that owns its data.
    #[derive(Debug, Clone)]
    pub(crate) struct Made(u8, u64, u32, u32, Vec<u8>, Vec<u8>, u8, u64);

    impl Made {
        pub(crate) fn record(&self) -> UndoRecord<'_> {
            let Self(kind, number, tree, page, key, value, flags, undo) = self;
            let (tree, root, txn) = (TreeId(*tree), PageId(*page), TxnId(*number));
            let previous = Previous { flags: *flags, writer: txn, undo: UndoPtr(*undo) };
            match *kind {
                kind::BEGIN => UndoRecord::Begin { txn },
                kind::COMMIT => UndoRecord::Commit { txn },
                kind::PREPARED => UndoRecord::Prepared { xid: key },
                kind::INSERT => UndoRecord::Insert { tree, root, key },
                kind::UPDATE => UndoRecord::Update { tree, root, key, previous, value: OldValue::Whole(value) },
                kind::UPDATE_BY_EDITS => {
                    let previous = Previous { flags: flags & !OVERFLOW, ..previous };
                    UndoRecord::Update { tree, root, key, previous, value: OldValue::Edits(value) }
                }
                kind::DELETE => {
                    UndoRecord::Delete { tree, root, key, previous, overflow: &value[..value.len().min(8)] }
                }
                kind::OVERFLOW_WRITTEN => UndoRecord::OverflowWritten { tree, head: root },
                kind::CREATE_TREE => UndoRecord::CreateTree { tree, root },
                kind::INSERT_RANGE => {
                    UndoRecord::InsertRange { tree, root, low: key, high: (flags % 2 == 1).then_some(&value[..]) }
                }
                _ => UndoRecord::DropTree { tree, root },
            }
        }
    }

    /// Records of changes: all kinds from `first` on.
    pub(crate) fn made(first: u8) -> impl Strategy<Value = Made> {
        let number = 0u64..1 << 48;
        let (key, value) = (vec(any::<u8>(), 0..819), vec(any::<u8>(), 0..1024));
        (first..kind::UPDATE_BY_EDITS + 1, number.clone(), any::<u32>(), any::<u32>(), key, value, any::<u8>(), number)
            .prop_map(|(kind, n, tree, page, key, value, flags, undo)| {
                Made(kind, n, tree, page, key, value, flags, undo)
            })
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(made in made(1)) {
            let (record, mut body) = (made.record(), Vec::new());
            record.encode(&mut body);
            prop_assert_eq!(UndoRecord::decode(record.kind(), &body), Ok(record));
            prop_assert!(RECORD_HEAD + body.len() <= record.room_max());
            if matches!(record, UndoRecord::Begin { .. } | UndoRecord::Commit { .. }) {
                prop_assert_eq!(RECORD_HEAD + body.len(), END_RECORD);
            }
        }

        #[test]
        fn garbage_is_refused_or_read(kind in any::<u8>(), body in vec(any::<u8>(), 0..40)) {
            if let Ok(record) = UndoRecord::decode(kind, &body) {
                prop_assert!(RECORD_HEAD + body.len() <= record.room_max() + 9, "longer forms of numbers apart");
            }
        }
    }
}
