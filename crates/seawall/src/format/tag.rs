//! The tags of redo records: which layer replays which body. `recovery` dispatches by their ranges.
//!
//! A record whose tag has [`INITIALISES`] set makes the whole page from its body: replaying it does not read the page
//! from disk.

/// Set in the tags of records that initialise their page.
pub const INITIALISES: u8 = 0x80;

/// Returns whether a record with this tag initialises its page.
#[must_use]
pub fn initialises(tag: u8) -> bool {
    tag & INITIALISES != 0
}

/// The layer a tag belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// `space`: tags 0x10 to 0x1f.
    Space,
    /// `btree`: tags 0x20 to 0x3f.
    Btree,
    /// `txn`: tags 0x40 to 0x4f.
    Txn,
}

/// Returns the layer that replays `tag`; `None` when no layer does.
#[must_use]
pub fn layer(tag: u8) -> Option<Layer> {
    match tag & !INITIALISES {
        0x10..=0x1f => Some(Layer::Space),
        0x20..=0x3f => Some(Layer::Btree),
        0x40..=0x4f => Some(Layer::Txn),
        _ => None,
    }
}
