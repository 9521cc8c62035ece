//! A dump: all trees of a database as one portable stream. The format is described in FORMAT.md.
//!
//! 1. A dump does not depend on page size, byte order or version of the database it was made from.
//! 2. Without its last block a dump is incomplete, and reading it fails with [`DumpError::Truncated`]: an
//!    incomplete dump never looks complete.
//! 3. Any changed, lost, duplicated or exchanged block is found before its contents are returned.
//! 4. Memory is bounded by one block, on both sides. Each length is compared with its limit before use.
//! 5. Trees come in order of their names, entries in order of their keys, so that a load can append.

#[allow(clippy::module_inception, reason = "the module is the format, this is what makes one")]
mod dump;
mod read;
mod write;

pub use dump::{DumpOptions, Dumped, Skipped};
pub use read::{DumpReader, Item};
pub use write::DumpWriter;

use crate::error::{Corruption, Error};
use seawall_io::{IoError, IoErrorKind, Op};
use std::fmt;
use std::path::Path;

/// The version of the format that is written, and the newest that is read.
pub const DUMP_VERSION: u32 = 1;
/// The longest name of a tree or key, bytes.
pub const DUMP_KEY_BYTES_MAX: usize = 64 << 10;
/// The longest value, bytes.
pub const DUMP_VALUE_BYTES_MAX: u64 = 1 << 30;

/// A high bit and a line end: transfers that strip or translate bytes break it.
const MAGIC: [u8; 8] = *b"\x89SWDUMP\n";
/// Magic, version u32, flags u32 (0), CRC-32C of these.
const HEADER_BYTES: usize = 20;
/// Kind u8, length u32.
const BLOCK_HEAD_BYTES: usize = 5;
/// The longest payload a reader takes, bytes.
const BLOCK_BYTES_MAX: usize = 1 << 20;
/// The payload size at which a writer begins a new block, bytes.
const BLOCK_BYTES: usize = 256 << 10;
/// Longer values are written in pieces, bytes.
const INLINE_BYTES_MAX: usize = 64 << 10;

// An entry joins a block that is not yet full: the longest one must still fit.
const _: () = assert!(BLOCK_BYTES + DUMP_KEY_BYTES_MAX + INLINE_BYTES_MAX + 20 <= BLOCK_BYTES_MAX);

mod kind {
    pub(super) const TREE: u8 = 1;
    pub(super) const ENTRIES: u8 = 2;
    pub(super) const LARGE: u8 = 3;
    pub(super) const PIECE: u8 = 4;
    pub(super) const TREE_END: u8 = 5;
    pub(super) const END: u8 = 6;
}

/// The checksum of a block: it includes the block's place in the stream, so that an exchanged, duplicated or
/// lost block is found.
fn block_crc(ordinal: u64, head_and_payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&ordinal.to_le_bytes()), head_and_payload)
}

/// The counts of one tree, or of a dump.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Totals {
    /// Trees.
    pub trees: u64,
    /// Entries.
    pub entries: u64,
    /// Bytes of keys.
    pub key_bytes: u64,
    /// Bytes of values.
    pub value_bytes: u64,
}

impl Totals {
    fn add(&mut self, other: &Self) {
        // These count bytes that were all processed, so they cannot reach 2^64.
        self.trees += other.trees;
        self.entries += other.entries;
        self.key_bytes += other.key_bytes;
        self.value_bytes += other.value_bytes;
    }

    fn count(&mut self, key_bytes: usize, value_bytes: u64) {
        self.entries += 1;
        self.key_bytes += key_bytes as u64;
        self.value_bytes += value_bytes;
    }

    fn encode(&self) -> [u8; 32] {
        let mut out = [0; 32];
        for (at, field) in [self.trees, self.entries, self.key_bytes, self.value_bytes].into_iter().enumerate() {
            out[at * 8..][..8].copy_from_slice(&field.to_le_bytes());
        }
        out
    }
}

/// Why a dump cannot be read or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum DumpError {
    /// The underlying stream failed.
    Io {
        /// Where, bytes from the beginning.
        at_byte: u64,
        /// What failed.
        source: std::io::Error,
    },
    /// The stream does not begin with a dump's header.
    NotADump,
    /// A newer program wrote it.
    NewerVersion {
        /// Its version.
        found: u32,
        /// The newest this program reads.
        supported: u32,
    },
    /// The dump ends too early.
    Truncated {
        /// Where it ends, bytes from the beginning.
        at_byte: u64,
    },
    /// Its bytes have changed since they were written.
    Damaged {
        /// Where, bytes from the beginning: the block, or the entry in it.
        at_byte: u64,
        /// The evidence.
        why: String,
    },
    /// The database could not be read. If the cause is damage, [`DumpOptions::skip_damaged`] dumps the rest.
    Database(Error),
    /// Incorrect use of the interface.
    Misuse(String),
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { at_byte, source } => write!(f, "at byte {at_byte} of the dump: {source}"),
            Self::NotADump => f.write_str(
                "this is not a dump: it does not begin with the eight bytes of one. Was it \
                 compressed, or transferred as text?",
            ),
            Self::NewerVersion { found, supported } => write!(
                f,
                "the dump has version {found}, and this program \
                 reads up to {supported}: load it with a newer Seawall"
            ),
            Self::Truncated { at_byte } => write!(
                f,
                "the dump ends at byte {at_byte} without being complete: the \
                 rest of it is missing. Dump or copy it again"
            ),
            Self::Damaged { at_byte, why } => write!(
                f,
                "the dump is damaged at byte {at_byte}: {why}. Dump or copy \
                 it again"
            ),
            Self::Database(error) => write!(f, "{error}"),
            Self::Misuse(inner) => write!(f, "{inner}"),
        }
    }
}

impl std::error::Error for DumpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Database(error) => Some(error),
            _ => None,
        }
    }
}

impl From<Error> for DumpError {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl DumpError {
    /// Converts this to the engine's error for a dump in the file at `path`.
    #[must_use]
    pub fn of_file(self, path: &Path, op: Op) -> Error {
        match self {
            Self::Io { at_byte, source } => match source.raw_os_error() {
                Some(errno) => Error::Io(IoError { offset: Some(at_byte), ..IoError::os(op, path, errno) }),
                None if source.kind() == std::io::ErrorKind::WriteZero => {
                    Error::Io(IoError { offset: Some(at_byte), ..IoError::new(op, path, IoErrorKind::NoProgress) })
                }
                None => Error::Usage(format!("{}: at byte {at_byte}: {source}", path.display())),
            },
            Self::Misuse(why) => Error::Usage(why),
            Self::Database(error) => error,
            Self::NewerVersion { found, supported } => Error::OtherFormat { path: path.into(), found, supported },
            other @ (Self::NotADump | Self::Truncated { .. } | Self::Damaged { .. }) => {
                Corruption::File { path: path.into(), why: other.to_string() }.into()
            }
        }
    }
}

#[cfg(test)]
mod tests;
