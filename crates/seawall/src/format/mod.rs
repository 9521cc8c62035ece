//! What is on disk, and nothing that reads or writes it.
//!
//! Integers are little-endian. A format is written once, as offsets beside the code that uses them; FORMAT.md
//! links here.

mod bytes;
pub mod control;
mod ids;
pub mod page;
pub mod tag;

pub use bytes::{Malformed, Reader, put_bytes, put_u48, put_varint};
pub use ids::{Lsn, PageId, TreeId, TxnId, UndoPtr};

/// The version of all formats together. A newer program opens an older file or says exactly what to do.
pub const FORMAT_VERSION: u32 = 4;

/// The oldest version that is opened. Files of version 3 have nothing that version 4 added: long values of
/// one page, entries of more than a quarter of a page, keys of more than a fifth. So nothing is rewritten;
/// the first control block that an opening writes says version 4, before anything else is written.
pub const FORMAT_VERSION_MIN: u32 = 3;
