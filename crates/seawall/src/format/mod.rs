//! The on-disk formats. Nothing here does I/O.
//!
//! Integers are little-endian. A format is written once, as offsets beside the code that uses them; FORMAT.md
//! links here.

mod bytes;
pub mod control;
pub mod edits;
mod ids;
pub mod page;
pub mod tag;

pub use bytes::{Malformed, Reader, put_bytes, put_u48, put_varint};
pub use ids::{Lsn, PageId, TreeId, TxnId, UndoPtr};

/// One version number for all formats together. A newer program opens an older file, or says exactly what to do.
pub const FORMAT_VERSION: u32 = 6;

/// The oldest version that can be opened. Each later version only added to the format. Version 4 added long values of
/// one page, entries of more than a quarter of a page, and keys of more than a fifth; version 5 added undo records of
/// ranges; version 6 added edits of values. So opening a database rewrites nothing. It first writes a control block
/// with its own version, before anything else.
pub const FORMAT_VERSION_MIN: u32 = 3;
