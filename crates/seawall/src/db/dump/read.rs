//! Reading a dump.
//!
//! 1. A block's checksum is verified before its contents are used.
//! 2. A checksum proves that the bytes are unchanged, not that the writer was correct: lengths, counts and
//!    order are checked as well.
//! 3. After an error nothing more is returned.

use super::{
    BLOCK_BYTES_MAX, BLOCK_HEAD_BYTES, DUMP_KEY_BYTES_MAX, DUMP_VALUE_BYTES_MAX, DUMP_VERSION, DumpError, HEADER_BYTES,
    MAGIC, Totals, block_crc, kind,
};
use crate::format::{Malformed, Reader};
use std::io::{ErrorKind, Read};

/// An item of a dump.
#[derive(Debug, PartialEq, Eq)]
pub enum Item<'r> {
    /// A tree of this name begins.
    Tree(&'r str),
    /// A complete entry.
    Entry {
        /// Its key.
        key: &'r [u8],
        /// Its value.
        value: &'r [u8],
    },
    /// An entry whose value follows in pieces.
    Large {
        /// Its key.
        key: &'r [u8],
        /// The bytes that follow in pieces.
        value_bytes: u64,
    },
    /// The next bytes of a large value; never empty.
    Piece(&'r [u8]),
    /// The end of a tree, all of which was read.
    TreeEnd(Totals),
}

/// Reads a dump from a stream, which need not be buffered.
#[derive(Debug)]
pub struct DumpReader<R> {
    input: R,
    block: Vec<u8>,
    /// The offset of the next entry in the payload of a block of entries; the payload's length if there is
    /// none.
    next_entry: usize,
    payload_bytes: usize,
    /// Where the block begins, bytes from the beginning of the dump.
    block_at: u64,
    /// Bytes read.
    at_byte: u64,
    ordinal: u64,
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
    InValue(u64),
    End,
    Failed,
}

/// Where the item just read lies in the reader's buffers.
enum Found {
    Tree,
    Entry { value: std::ops::Range<usize> },
    Large { value_bytes: u64 },
    Piece,
    TreeEnd(Totals),
    End,
}

impl<R: Read> DumpReader<R> {
    /// Begins to read a dump: reads its header.
    ///
    /// # Errors
    /// [`DumpError::NotADump`], [`DumpError::NewerVersion`], [`DumpError::Truncated`],
    /// [`DumpError::Damaged`], [`DumpError::Io`].
    pub fn new(input: R) -> Result<Self, DumpError> {
        let mut reader = Self {
            input,
            block: Vec::new(),
            next_entry: 0,
            payload_bytes: 0,
            block_at: 0,
            at_byte: 0,
            ordinal: 0,
            chain: 0,
            state: State::Start,
            name: String::new(),
            has_key: false,
            key: Vec::new(),
            tree: Totals::default(),
            all: Totals::default(),
        };
        let mut header = [0; HEADER_BYTES];
        reader.fill(&mut header[..8])?;
        if header[..8] != MAGIC {
            return Err(DumpError::NotADump);
        }
        reader.fill(&mut header[8..])?;
        let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (version, flags, crc) = (word(8), word(12), word(16));
        if crc != crc32c::crc32c(&header[..16]) {
            return Err(reader.damaged(0, "the header's checksum does not match"));
        }
        if version > DUMP_VERSION || flags != 0 {
            return Err(DumpError::NewerVersion { found: version.max(DUMP_VERSION + 1), supported: DUMP_VERSION });
        }
        if version == 0 {
            return Err(reader.damaged(8, "version 0"));
        }
        reader.chain = crc32c::crc32c(&crc.to_le_bytes());
        Ok(reader)
    }

    /// Reads the next item; returns `None` at the end of the dump, if its counts agree.
    ///
    /// # Errors
    /// [`DumpError::Truncated`], [`DumpError::Damaged`], [`DumpError::Io`]. After an error every call fails.
    pub fn read(&mut self) -> Result<Option<Item<'_>>, DumpError> {
        let found = match self.state {
            State::End => return Ok(None),
            State::Failed => return Err(DumpError::Misuse("reading this dump failed before".to_owned())),
            State::Start | State::InTree | State::InValue(_) => self.advance(),
        };
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                self.state = State::Failed;
                return Err(error);
            }
        };
        Ok(match found {
            Found::Tree => Some(Item::Tree(&self.name)),
            Found::Entry { value } => Some(Item::Entry { key: &self.key, value: &self.block[value] }),
            Found::Large { value_bytes } => Some(Item::Large { key: &self.key, value_bytes }),
            Found::Piece => Some(Item::Piece(&self.block[BLOCK_HEAD_BYTES..][..self.payload_bytes])),
            Found::TreeEnd(totals) => Some(Item::TreeEnd(totals)),
            Found::End => None,
        })
    }

    /// Reads the pieces of the large value that has just begun, and appends them; `value` grows only by bytes
    /// that were read.
    ///
    /// # Errors
    /// Those of [`DumpReader::read`].
    pub fn value(&mut self, value: &mut Vec<u8>) -> Result<(), DumpError> {
        while let State::InValue(_) = self.state {
            if let Some(Item::Piece(bytes)) = self.read()? {
                value.extend_from_slice(bytes);
            }
        }
        Ok(())
    }

    /// Returns the totals of the trees that have ended.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.all
    }

    fn advance(&mut self) -> Result<Found, DumpError> {
        if self.next_entry < self.payload_bytes {
            return self.entry();
        }
        let kind = self.next_block()?;
        let payload_bytes = self.payload_bytes;
        match (kind, self.state) {
            (kind::TREE, State::Start) => self.begin_tree(),
            (kind::ENTRIES, State::InTree) if payload_bytes > 0 => {
                self.next_entry = 0;
                self.entry()
            }
            (kind::LARGE, State::InTree) => self.large(),
            (kind::PIECE, State::InValue(left)) if payload_bytes > 0 && payload_bytes as u64 <= left => {
                let left = left - payload_bytes as u64;
                self.state = if left == 0 { State::InTree } else { State::InValue(left) };
                Ok(Found::Piece)
            }
            (kind::TREE_END, State::InTree) => {
                let counted = self.tree;
                if self.payload() != counted.encode() {
                    let why = format!(
                        "tree {:?} states another number of entries or bytes than the {} entries found",
                        self.name, counted.entries
                    );
                    return Err(self.damaged(self.block_at, why));
                }
                self.all.add(&counted);
                self.state = State::Start;
                Ok(Found::TreeEnd(counted))
            }
            (kind::END, State::Start) => self.end(),
            (kind, state) => {
                let place = match state {
                    State::Start => "between trees",
                    State::InTree => "in a tree",
                    _ => "in a large value",
                };
                Err(self.damaged(
                    self.block_at,
                    format!("a block of kind {kind} with {payload_bytes} bytes is invalid {place}"),
                ))
            }
        }
    }

    fn payload(&self) -> &[u8] {
        &self.block[BLOCK_HEAD_BYTES..][..self.payload_bytes]
    }

    fn begin_tree(&mut self) -> Result<Found, DumpError> {
        let name = match std::str::from_utf8(self.payload()) {
            Ok(name) if name.len() <= DUMP_KEY_BYTES_MAX => name.to_owned(),
            _ => return Err(self.damaged(self.block_at, "a tree's name is too long or not UTF-8")),
        };
        if self.all.trees > 0 && name <= self.name {
            return Err(self.damaged(self.block_at, format!("tree {name:?} does not come after tree {:?}", self.name)));
        }
        self.name = name;
        self.has_key = false;
        self.tree = Totals { trees: 1, ..Totals::default() };
        self.state = State::InTree;
        Ok(Found::Tree)
    }

    fn entry(&mut self) -> Result<Found, DumpError> {
        let at = self.block_at + (BLOCK_HEAD_BYTES + self.next_entry) as u64;
        // Moved out of `self` while the entry is copied from it.
        let block = std::mem::take(&mut self.block);
        let end = BLOCK_HEAD_BYTES + self.payload_bytes;
        let mut reader = Reader::new(&block[BLOCK_HEAD_BYTES + self.next_entry..end]);
        let both = |reader: &mut Reader<'_>| -> Result<(usize, usize, usize), Malformed> {
            let key_bytes = reader.bytes()?.len();
            let key_end = end - reader.rest().len();
            Ok((key_bytes, key_end, reader.bytes()?.len()))
        };
        let taken = both(&mut reader);
        let value_end = end - reader.rest().len();
        let result = match taken {
            Err(why) => Err(self.damaged(at, format!("an entry is {why}"))),
            Ok((key_bytes, key_end, value_bytes)) => {
                self.next_entry = value_end - BLOCK_HEAD_BYTES;
                self.take_key(at, &block[key_end - key_bytes..key_end], value_bytes as u64)
                    .map(|()| Found::Entry { value: value_end - value_bytes..value_end })
            }
        };
        self.block = block;
        result
    }

    fn large(&mut self) -> Result<Found, DumpError> {
        let block = std::mem::take(&mut self.block);
        let mut reader = Reader::new(&block[BLOCK_HEAD_BYTES..][..self.payload_bytes]);
        let result = match reader.u64() {
            Ok(value_bytes) if value_bytes <= DUMP_VALUE_BYTES_MAX => {
                if value_bytes > 0 {
                    self.state = State::InValue(value_bytes);
                }
                self.take_key(self.block_at, reader.rest(), value_bytes).map(|()| Found::Large { value_bytes })
            }
            Ok(value_bytes) => {
                Err(self.damaged(self.block_at, format!("a value of {value_bytes} bytes is longer than any can be")))
            }
            Err(why) => Err(self.damaged(self.block_at, format!("a large value is {why}"))),
        };
        self.block = block;
        result
    }

    fn take_key(&mut self, at: u64, key: &[u8], value_bytes: u64) -> Result<(), DumpError> {
        if key.len() > DUMP_KEY_BYTES_MAX {
            return Err(self.damaged(at, format!("a key of {} bytes is longer than any can be", key.len())));
        }
        if self.has_key && key <= self.key.as_slice() {
            return Err(
                self.damaged(at, format!("key \"{}\" does not come after the one before it", key.escape_ascii()))
            );
        }
        self.has_key = true;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.tree.count(key.len(), value_bytes);
        Ok(())
    }

    fn end(&mut self) -> Result<Found, DumpError> {
        let totals = self.all.encode();
        if self.payload().len() != totals.len() + 4 || self.payload()[..totals.len()] != totals {
            let why = format!(
                "the dump states other counts than the {} trees and {} entries found",
                self.all.trees, self.all.entries
            );
            return Err(self.damaged(self.block_at, why));
        }
        let payload = self.payload();
        let stored = u32::from_le_bytes(payload[totals.len()..].try_into().expect("four bytes are left"));
        if stored != self.chain {
            return Err(self.damaged(
                self.block_at,
                "the checksum over all blocks does not match: blocks of another dump are among them",
            ));
        }
        let mut one = [0];
        loop {
            match self.input.read(&mut one) {
                Ok(0) => break,
                Ok(_) => return Err(self.damaged(self.at_byte, "something follows the end of the dump")),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(DumpError::Io { at_byte: self.at_byte, source }),
            }
        }
        self.state = State::End;
        Ok(Found::End)
    }

    /// Reads a block and verifies its checksum; returns its kind.
    fn next_block(&mut self) -> Result<u8, DumpError> {
        self.block_at = self.at_byte;
        self.payload_bytes = 0;
        self.next_entry = 0;
        let mut head = [0; BLOCK_HEAD_BYTES];
        self.fill(&mut head)?;
        let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if len > BLOCK_BYTES_MAX {
            return Err(self.damaged(self.block_at, format!("a block of {len} bytes is longer than any can be")));
        }
        let mut block = std::mem::take(&mut self.block);
        block.clear();
        block.extend_from_slice(&head);
        block.resize(BLOCK_HEAD_BYTES + len + 4, 0);
        let filled = self.fill(&mut block[BLOCK_HEAD_BYTES..]);
        self.block = block;
        filled?;
        let (covered, crc) = self.block.split_at(BLOCK_HEAD_BYTES + len);
        let stored = u32::from_le_bytes(crc.try_into().expect("four bytes are left"));
        let computed = block_crc(self.ordinal, covered);
        if stored != computed {
            let why = format!("block {} has checksum {stored:#010x} where {computed:#010x} was computed", self.ordinal);
            return Err(self.damaged(self.block_at, why));
        }
        // The last block holds the checksum over all blocks before it, not over itself.
        if head[0] != kind::END {
            self.chain = crc32c::crc32c_append(self.chain, &stored.to_le_bytes());
        }
        self.ordinal += 1;
        self.payload_bytes = len;
        self.next_entry = len;
        Ok(head[0])
    }

    fn fill(&mut self, mut into: &mut [u8]) -> Result<(), DumpError> {
        while !into.is_empty() {
            match self.input.read(into) {
                Ok(0) => return Err(DumpError::Truncated { at_byte: self.at_byte }),
                Ok(n) => {
                    self.at_byte += n as u64;
                    into = &mut into[n..];
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(DumpError::Io { at_byte: self.at_byte, source }),
            }
        }
        Ok(())
    }

    fn damaged(&self, at_byte: u64, why: impl Into<String>) -> DumpError {
        DumpError::Damaged { at_byte, why: why.into() }
    }
}
