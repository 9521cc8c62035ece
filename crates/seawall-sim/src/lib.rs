//! A deterministic, seeded disk with the faults of real ones, for testing storage engines.
//!
//! [`SimDisk`] implements [`seawall_io::Disk`], the seam through which the engine does all its I/O. It lives
//! in memory, never sleeps, reads no clock, starts no thread: the same seed and the same calls give the same
//! bytes, the same failures, and the same trace. Several threads may call it, but then their order is part of
//! the run: for an exact replay the runner must execute one step at a time.
//!
//! # Two views
//!
//! The disk keeps what programs *see* ([`SimDisk::seen`]: including the page cache and the device cache) and what is
//! *stable* ([`SimDisk::stable`]). The difference is pending, and a [power cut](SimDisk::power_cut) decides which part
//! of it persists:
//!
//! | pending | made stable by | a power cut may leave |
//! |---|---|---|
//! | bytes of a write | sync of the file; a durable write (`RWF_DSYNC`, `O_DSYNC`), its own sectors only | of each physical sector any version since the last stable one |
//! | written bytes beyond the old end, or in holes and unwritten extents | the same | zeroes, or the old length, though the bytes are in order |
//! | growth without data (`set_len`, `Allocate`) | `SyncHow::All`; `SyncHow::Data` if data needs it | the old length |
//! | truncation | any sync or durable write of the file | the old file, without any later write |
//! | creation, rename, removal | `sync_dir`, of both directories for a rename between two | any subset, each atomic |
//!
//! This is the least that POSIX and Linux promise, not what one file system happens to do: on ext4 the fsync of a new
//! file keeps its name, and the flush of one file empties the device's cache for all. A short direct write cuts no
//! physical sector that it covers: the block layer splits requests nowhere else (Linux, block/blk-merge.c,
//! `get_max_io_size`), and the model assumes that the blocks of the file system are no smaller. Not modelled: stale
//! contents of freed blocks, and drives that damage neighbours of a torn sector. Space is not modelled across a power
//! cut: undone removals may leave more blocks in use than the capacity, and then none are free.
//!
//! # Faults
//!
//! | legal: survive it | illegal: detect it |
//! |---|---|
//! | power cut, process crash with late writes | lying flush ([`SimDisk::lying_flush`]) |
//! | [`FaultKind::Errno`] (`EIO` and the fsync that lies the second time, `ENOSPC`, ...) | [`FaultKind::LostWrite`] |
//! | [`FaultKind::Short`], [`FaultKind::Cancelled`] | [`FaultKind::MisdirectedWrite`] |
//! | [`FaultKind::Slow`] | [`FaultKind::BitRot`] |
//!
//! ```
//! use seawall_io::{Create, Disk as _, Op, OpenHow, SyncHow, WriteHow};
//! use seawall_sim::{Fault, SimDisk, SimOptions};
//! # fn main() -> seawall_io::Result<()> {
//! let disk = SimDisk::new(SimOptions { seed: 7, ..SimOptions::default() });
//! let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
//! let file = disk.open("/db/data".as_ref(), how)?;
//! disk.sync_dir("/db".as_ref())?;
//! disk.inject(Fault::eio().on(Op::Sync).once());
//! disk.write_at(&file, 0, &[std::io::IoSlice::new(b"precious")], WriteHow::default())?;
//! assert!(disk.sync(&file, SyncHow::Data).is_err());
//! assert!(disk.sync(&file, SyncHow::Data).is_ok()); // trying again "works" ...
//! disk.power_cut();
//! assert_ne!(disk.seen("/db/data"), Some(b"precious".to_vec())); // ... and the data is gone
//! # Ok(()) }
//! ```
mod cache;
mod clock;
mod crash;
mod damage;
mod disk;
mod fault;
mod file;
mod image;
mod mapped;
mod names;
mod options;
mod pending;
mod process;
mod queue;
mod rng;
mod state;
mod trace;

/// The README's example is also a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use clock::Latency;
pub use damage::{Damage, DamagedRead};
pub use disk::SimDisk;
pub use fault::{Fault, FaultKind, FaultPlan, Legality};
pub use options::SimOptions;
pub use process::Process;
pub use trace::{Call, Tally, Trace, TraceEntry};
