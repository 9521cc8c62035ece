//! Writing a dump.
//!
//! 1. Each block is written whole, with its checksum; only [`DumpWriter::finish`] writes the last block.
//! 2. After an error of the stream nothing more is written and `finish` fails, so later blocks cannot hide a
//!    gap.

use super::{
    BLOCK_BYTES, BLOCK_HEAD_BYTES, DUMP_KEY_BYTES_MAX, DUMP_VALUE_BYTES_MAX, DUMP_VERSION, DumpError, HEADER_BYTES,
    INLINE_BYTES_MAX, MAGIC, Totals, block_crc, kind,
};
use crate::format::put_varint;
use std::io::Write;

/// Writes a dump to a stream.
///
/// ```
/// use seawall::dump::{DumpReader, DumpWriter, Item};
/// let mut dump = DumpWriter::new(Vec::new())?;
/// dump.tree("users")?;
/// dump.entry(b"anna", b"1")?;
/// let bytes = dump.finish()?;
///
/// let mut dump = DumpReader::new(&bytes[..])?;
/// assert_eq!(dump.read()?, Some(Item::Tree("users")));
/// assert_eq!(dump.read()?, Some(Item::Entry { key: b"anna", value: b"1" }));
/// assert!(matches!(dump.read()?, Some(Item::TreeEnd(totals)) if totals.entries == 1));
/// assert_eq!(dump.read()?, None);
/// # Ok::<(), seawall::dump::DumpError>(())
/// ```
#[derive(Debug)]
pub struct DumpWriter<W> {
    out: W,
    /// The block being filled: head, then payload.
    block: Vec<u8>,
    /// Its kind; `None` if it is empty.
    filling: Option<u8>,
    /// Blocks written.
    ordinal: u64,
    /// Bytes written.
    at_byte: u64,
    /// The checksum over the checksums so far.
    chain: u32,
    state: State,
    name: String,
    has_key: bool,
    key: Vec<u8>,
    tree: Totals,
    all: Totals,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    InTree,
    /// Inside a large value: the number of bytes still to come.
    InValue(u64),
    Failed,
}

impl<W: Write> DumpWriter<W> {
    /// Begins a dump.
    ///
    /// # Errors
    /// [`DumpError::Io`].
    pub fn new(out: W) -> Result<Self, DumpError> {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&DUMP_VERSION.to_le_bytes());
        let crc = crc32c::crc32c(&header[..16]);
        header[16..].copy_from_slice(&crc.to_le_bytes());
        let mut writer = Self {
            out,
            block: Vec::with_capacity(BLOCK_BYTES + INLINE_BYTES_MAX),
            filling: None,
            ordinal: 0,
            at_byte: 0,
            chain: crc32c::crc32c(&crc.to_le_bytes()),
            state: State::Start,
            name: String::new(),
            has_key: false,
            key: Vec::new(),
            tree: Totals::default(),
            all: Totals::default(),
        };
        writer.put(&header)?;
        Ok(writer)
    }

    /// Ends the current tree and begins the next. Names must ascend by their bytes.
    ///
    /// # Errors
    /// [`DumpError::Misuse`] for a name out of order or too long, or inside a value; [`DumpError::Io`].
    pub fn tree(&mut self, name: &str) -> Result<(), DumpError> {
        if name.len() > DUMP_KEY_BYTES_MAX {
            return Err(misuse(format!("a tree's name of {} bytes is too long for a dump", name.len())));
        }
        self.end_tree()?;
        if self.all.trees > 0 && name <= self.name.as_str() {
            return Err(misuse(format!("tree {name:?} does not come after tree {:?}", self.name)));
        }
        name.clone_into(&mut self.name);
        self.has_key = false;
        self.tree = Totals { trees: 1, ..Totals::default() };
        self.state = State::InTree;
        self.begin(kind::TREE)?;
        self.block.extend_from_slice(name.as_bytes());
        Ok(())
    }

    /// Writes one entry. Keys must ascend.
    ///
    /// # Errors
    /// [`DumpError::Misuse`] for a key out of order, a key or value that is too long, or no tree;
    /// [`DumpError::Io`].
    pub fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<(), DumpError> {
        if value.len() > INLINE_BYTES_MAX {
            self.large(key, value.len() as u64)?;
            return self.piece(value);
        }
        self.take_key(key, value.len() as u64)?;
        if self.filling != Some(kind::ENTRIES) || self.block.len() - BLOCK_HEAD_BYTES >= BLOCK_BYTES {
            self.begin(kind::ENTRIES)?;
        }
        put_varint(&mut self.block, key.len() as u64);
        self.block.extend_from_slice(key);
        put_varint(&mut self.block, value.len() as u64);
        self.block.extend_from_slice(value);
        Ok(())
    }

    /// Begins an entry whose value of `value_bytes` follows in pieces.
    ///
    /// # Errors
    /// Those of [`DumpWriter::entry`].
    pub fn large(&mut self, key: &[u8], value_bytes: u64) -> Result<(), DumpError> {
        self.take_key(key, value_bytes)?;
        self.begin(kind::LARGE)?;
        self.block.extend_from_slice(&value_bytes.to_le_bytes());
        self.block.extend_from_slice(key);
        if value_bytes > 0 {
            self.state = State::InValue(value_bytes);
        }
        Ok(())
    }

    /// Writes the next bytes of a large value, in pieces of any size.
    ///
    /// # Errors
    /// [`DumpError::Misuse`] if they exceed the announced length; [`DumpError::Io`].
    pub fn piece(&mut self, mut bytes: &[u8]) -> Result<(), DumpError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let State::InValue(mut left) = self.state else {
            return Err(misuse("a piece of a value, but no large value was begun"));
        };
        if bytes.len() as u64 > left {
            return Err(misuse(format!("{} bytes of a value of which {left} are left", bytes.len())));
        }
        while !bytes.is_empty() {
            if self.filling != Some(kind::PIECE) || self.block.len() - BLOCK_HEAD_BYTES >= BLOCK_BYTES {
                self.begin(kind::PIECE)?;
            }
            let room = BLOCK_BYTES + BLOCK_HEAD_BYTES - self.block.len();
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            self.block.extend_from_slice(now);
            left -= now.len() as u64;
            bytes = rest;
        }
        self.state = if left == 0 { State::InTree } else { State::InValue(left) };
        Ok(())
    }

    /// Ends the dump, flushes the stream and returns it. The caller must make the file durable.
    ///
    /// # Errors
    /// [`DumpError::Misuse`] inside a value or after an error; [`DumpError::Io`].
    pub fn finish(mut self) -> Result<W, DumpError> {
        self.end_tree()?;
        self.begin(kind::END)?;
        self.block.extend_from_slice(&self.all.encode());
        self.block.extend_from_slice(&self.chain.to_le_bytes());
        self.send()?;
        let at_byte = self.at_byte;
        self.out.flush().map_err(|source| DumpError::Io { at_byte, source })?;
        Ok(self.out)
    }

    /// Returns the totals so far, without the current tree.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.all
    }

    fn take_key(&mut self, key: &[u8], value_bytes: u64) -> Result<(), DumpError> {
        match self.state {
            State::InTree => {}
            State::Start => return Err(misuse("an entry, but no tree was begun")),
            State::InValue(left) => {
                return Err(misuse(format!("an entry, but {left} bytes of a value are still to come")));
            }
            State::Failed => return Err(failed()),
        }
        if key.len() > DUMP_KEY_BYTES_MAX || value_bytes > DUMP_VALUE_BYTES_MAX {
            return Err(misuse(format!(
                "a key of {} bytes with a value of {value_bytes} is too long for a dump",
                key.len()
            )));
        }
        if self.has_key && key <= self.key.as_slice() {
            return Err(misuse(format!(
                "key \"{}\" does not come after key \"{}\"",
                key.escape_ascii(),
                self.key.escape_ascii()
            )));
        }
        self.has_key = true;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.tree.count(key.len(), value_bytes);
        Ok(())
    }

    fn end_tree(&mut self) -> Result<(), DumpError> {
        match self.state {
            State::Start => Ok(()),
            State::InTree => {
                self.begin(kind::TREE_END)?;
                self.block.extend_from_slice(&self.tree.encode());
                self.all.add(&self.tree);
                self.state = State::Start;
                Ok(())
            }
            State::InValue(left) => Err(misuse(format!("{left} bytes of a value are still to come"))),
            State::Failed => Err(failed()),
        }
    }

    /// Writes out the current block and begins another.
    fn begin(&mut self, kind: u8) -> Result<(), DumpError> {
        self.send()?;
        self.filling = Some(kind);
        self.block.push(kind);
        self.block.extend_from_slice(&[0; 4]);
        Ok(())
    }

    fn send(&mut self) -> Result<(), DumpError> {
        if self.filling.take().is_none() {
            return Ok(());
        }
        let len = u32::try_from(self.block.len() - BLOCK_HEAD_BYTES).expect("a block is at most 1 MiB");
        self.block[1..BLOCK_HEAD_BYTES].copy_from_slice(&len.to_le_bytes());
        let crc = block_crc(self.ordinal, &self.block).to_le_bytes();
        self.block.extend_from_slice(&crc);
        self.chain = crc32c::crc32c_append(self.chain, &crc);
        self.ordinal += 1;
        let block = std::mem::take(&mut self.block);
        let sent = self.put(&block);
        self.block = block;
        self.block.clear();
        sent
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), DumpError> {
        if let Err(source) = self.out.write_all(bytes) {
            self.state = State::Failed;
            return Err(DumpError::Io { at_byte: self.at_byte, source });
        }
        self.at_byte += bytes.len() as u64;
        Ok(())
    }
}

fn misuse(why: impl Into<String>) -> DumpError {
    DumpError::Misuse(why.into())
}

fn failed() -> DumpError {
    misuse("the dump failed before: begin a new one")
}
