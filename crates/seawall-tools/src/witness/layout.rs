//! Where each numbered write of each stream goes: pure functions, shared by the run that writes and the
//! verifier that reads.
//!
//! 1. Everything follows from the [`Description`], which the witness keeps: the expected contents are never
//!    read from the disk under test.
//! 2. A *place* (file, offset) belongs to one stream and holds one block; writes of a stream to one place have rising
//!    sequence numbers.
//! 3. File names carry the run id, so runs in one directory never touch each other's files.
//!
//! | stream | writes | to |
//! |---|---|---|
//! | 0 .. threads | overwrite in place, a quarter of them to four hot slots | `witness-RUN-scratch`, one region a thread |
//! | threads .. 2 threads | append | `witness-RUN-append-STREAM-GENERATION`, a new file every `append_blocks` |
//! | 2 threads | create, write, rename over the old one, sync the directory | `witness-RUN-name-SLOT` |
//! | 2 threads + 1, with `control` | overwrite in place through the page cache, never synced | `witness-RUN-control` |

use super::RunId;
use super::error::WitnessError;
use super::method::WriteMethod;
use super::protocol::STREAMS_MAX;
use super::sector::{Author, SECTOR_BYTES, mix};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Slots of the names stream.
const NAMES: u64 = 16;
/// Slots that take a quarter of the overwrites, so that a place has several recent versions at the time of
/// the cut.
const HOT: u64 = 4;
/// Maximum bytes of the prepared files of one run.
const PREPARED_BYTES_MAX: u64 = 64 << 30;

/// The parameters of a run, as the witness keeps them.
///
/// ```
/// use seawall_tools::witness::{Description, WriteMethod};
/// let what = Description {
///     seed: 1, boot_id: None, method: WriteMethod::default(), block_bytes: 16384, threads: 4, slots: 256,
///     append_blocks: 4096, control: true, dir: "/srv/db/scratch".into(),
/// };
/// // The witness keeps it as JSON; after the cut the verifier needs nothing else.
/// let kept = serde_json::to_vec(&what)?;
/// assert_eq!(serde_json::from_slice::<Description>(&kept)?, what);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Seed of all content and placement.
    pub seed: u64,
    /// Boot id of the machine at the start; `None` when it could not be read.
    pub boot_id: Option<String>,
    /// How writes are made durable.
    pub method: WriteMethod,
    /// Bytes of one write.
    pub block_bytes: u32,
    /// Writing threads.
    pub threads: u32,
    /// Number of places that each thread overwrites.
    pub slots: u32,
    /// Blocks in an append file before the next is created.
    pub append_blocks: u32,
    /// Whether an unsynced control stream runs in parallel.
    pub control: bool,
    /// Directory of the files.
    pub dir: PathBuf,
}

/// What a stream does.
///
/// ```
/// use seawall_tools::witness::StreamKind;
/// assert_eq!(serde_json::to_string(&StreamKind::Control)?, r#""control""#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamKind {
    /// Overwrites blocks of a preallocated file.
    Overwrite,
    /// Appends to a file.
    Append,
    /// Replaces files by rename.
    Names,
    /// Overwrites without ever syncing: expected to lose data.
    Control,
}

/// Where a write goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WriteLocation {
    pub(super) file: String,
    pub(super) offset: u64,
}

/// The layout of one run.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) run: RunId,
    pub(super) what: Description,
}

impl Layout {
    /// Checks the description, which comes from an untrusted source.
    pub(super) fn new(run: RunId, what: Description) -> Result<Self, WitnessError> {
        let bad = |option, reason: String| Err(WitnessError::BadOption { option, reason });
        let threads_max = (STREAMS_MAX - 2) / 2;
        if what.block_bytes == 0 || what.block_bytes as usize % SECTOR_BYTES != 0 || what.block_bytes > 1 << 20 {
            return bad("block size", format!("must be a multiple of {SECTOR_BYTES} bytes up to 1 MiB"));
        }
        if what.threads == 0 || what.threads > threads_max {
            return bad("threads", format!("must be 1 to {threads_max}"));
        }
        if what.slots == 0 || what.append_blocks == 0 {
            return bad("slots and append blocks", "must be at least 1".into());
        }
        let layout = Self { run, what };
        let per_thread = (u64::from(layout.what.slots) + 2 * u64::from(layout.what.append_blocks)) * layout.block();
        if per_thread * u64::from(layout.what.threads) > PREPARED_BYTES_MAX {
            return bad("threads, slots and append blocks", "together take more than 64 GiB: ask for less".into());
        }
        Ok(layout)
    }

    pub(super) fn block(&self) -> u64 {
        u64::from(self.what.block_bytes)
    }

    pub(super) fn streams(&self) -> u32 {
        2 * self.what.threads + 1 + u32::from(self.what.control)
    }

    pub(super) fn kind(&self, stream: u32) -> StreamKind {
        match stream {
            s if s < self.what.threads => StreamKind::Overwrite,
            s if s < 2 * self.what.threads => StreamKind::Append,
            s if s == 2 * self.what.threads => StreamKind::Names,
            _ => StreamKind::Control,
        }
    }

    /// Returns the number of places that a stream has at one time.
    pub(super) fn slots(&self, stream: u32) -> u64 {
        match self.kind(stream) {
            StreamKind::Overwrite | StreamKind::Control => u64::from(self.what.slots),
            // The current file and the one before it.
            StreamKind::Append => 2 * u64::from(self.what.append_blocks),
            StreamKind::Names => NAMES,
        }
    }

    /// Returns which of its stream's places a write goes to; `sequence` is at least 1.
    pub(super) fn slot(&self, stream: u32, sequence: u64) -> u64 {
        let slots = self.slots(stream);
        match self.kind(stream) {
            StreamKind::Overwrite | StreamKind::Control => {
                let draw = mix(self.what.seed ^ mix(u64::from(stream) ^ mix(sequence)));
                let hot = if draw & 3 == 0 { HOT.min(slots) } else { slots };
                (draw >> 2) % hot
            }
            StreamKind::Append | StreamKind::Names => (sequence - 1) % slots,
        }
    }

    /// Returns the number of the append file that a write goes to.
    pub(super) fn generation(&self, sequence: u64) -> u64 {
        (sequence - 1) / u64::from(self.what.append_blocks)
    }

    /// Returns where a stream's slot is; `sequence` matters only to append streams.
    pub(super) fn place(&self, stream: u32, slot: u64, sequence: u64) -> WriteLocation {
        match self.kind(stream) {
            StreamKind::Overwrite => WriteLocation {
                file: self.file("scratch"),
                offset: (u64::from(stream) * u64::from(self.what.slots) + slot) * self.block(),
            },
            StreamKind::Control => WriteLocation { file: self.file("control"), offset: slot * self.block() },
            StreamKind::Append => WriteLocation {
                file: self.append_file(stream, self.generation(sequence)),
                offset: (sequence - 1) % u64::from(self.what.append_blocks) * self.block(),
            },
            StreamKind::Names => WriteLocation { file: self.file(&format!("name-{slot}")), offset: 0 },
        }
    }

    pub(super) fn append_file(&self, stream: u32, generation: u64) -> String {
        self.file(&format!("append-{stream}-{generation}"))
    }

    pub(super) fn file(&self, what: &str) -> String {
        format!("{}{what}", Self::prefix(self.run))
    }

    /// Returns the common prefix of the names of all files of a run.
    pub(super) fn prefix(run: RunId) -> String {
        format!("witness-{run}-")
    }

    pub(super) fn author(&self, stream: u32) -> Author {
        Author { run: self.run, seed: self.what.seed, stream }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn no_two_streams_share_a_place_and_one_place_has_one_slot() {
        let what = Description {
            seed: 3,
            boot_id: None,
            method: WriteMethod::DirectFdatasync,
            block_bytes: 4096,
            threads: 3,
            slots: 5,
            append_blocks: 7,
            control: true,
            dir: "/x".into(),
        };
        let layout = Layout::new(RunId(1), what.clone()).unwrap();
        let mut owner = HashMap::new();
        for stream in 0..layout.streams() {
            for sequence in 1..100 {
                let slot = layout.slot(stream, sequence);
                assert!(slot < layout.slots(stream));
                let place = layout.place(stream, slot, sequence);
                let known = owner.entry((place.file, place.offset)).or_insert((stream, slot));
                assert_eq!(*known, (stream, slot));
            }
        }
        for broken in [
            Description { block_bytes: 100, ..what.clone() },
            Description { threads: 0, ..what.clone() },
            Description { threads: u32::MAX, ..what.clone() },
            Description { slots: 0, ..what.clone() },
            Description { slots: u32::MAX, append_blocks: u32::MAX, block_bytes: 1 << 20, ..what },
        ] {
            assert!(Layout::new(RunId(1), broken).is_err());
        }
    }
}
