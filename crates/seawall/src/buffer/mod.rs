//! The buffer pool. DESIGN.md, "Buffer", describes it; docs/invariants.md has the numbered rules of latching. A page's
//! *home* is its place in the data file: to write a page home is to write it there.
//!
//! - `config`, `pool`: its configuration and its parts. `frame`: the protocol by which frames change hands. `arena`,
//!   `translate`, `guard`: its memory, the map from pages to frames, the guards on frames.
//! - `loads`, `read`, `evict`: reading pages into memory and evicting them. `prefetch`, `prefetcher`: reading pages
//!   before they are needed. `mtr`: changes.
//! - `deferred`: dirty pages that were evicted and whose redo records stay in memory.
//! - `dirty`, `cleaner`, `clean`, `doublewrite`, `restore`, `checkpoint`, `control`: writing pages and positions to the
//!   disk.
//! - `spill`: pages of temporary trees, which are in no pool and no data file.
//!
//! 1. Latched code never does I/O: it releases its latches, returns what it needs ([`crate::error::Stop`]), and is run
//!    again ([`Pool::retry`]).
//! 2. A page is written only when its log is flushed; a checkpoint is no later than the oldest change that is
//!    not written.
//! 3. A failed read is an error of the reader only. A failed write poisons the database for all threads.

mod arena;
mod bravo;
mod checkpoint;
mod clean;
mod cleaner;
mod config;
mod control;
mod deferred;
mod dirty;
mod doublewrite;
mod evict;
mod frame;
mod guard;
mod lend;
mod loads;
#[cfg(test)]
mod model;
mod mtr;
mod pool;
mod prefetch;
mod prefetcher;
mod read;
mod restore;
pub(crate) mod role;
mod spill;
mod stats;
mod sync;
#[cfg(test)]
mod tests;
mod translate;
mod unfinished;

pub use clean::Progress;
#[cfg(test)]
pub use config::ApplyRecord;
pub use config::PoolConfig;
pub use control::{CONTROL_FILE, Control};
pub use doublewrite::DOUBLEWRITE_FILE;
pub use guard::{KeptPin, PageRead};
pub use lend::{lend, may_latch};
pub use mtr::{LatchedPage, MTR_BYTES_SMALL, Mtr, MtrSize};
pub use pool::{DATA_FILE, Pool};
pub use prefetcher::Prefetcher;
pub use spill::{Spill, SpillPlace, is_spilled, remove_leftovers};

/// A change of one page that can be replayed.
///
/// The forward path and recovery run the same `apply`. Everything that can fail is checked before it: `apply` never
/// fails on a page in the state for which the record was made.
pub trait Redo {
    /// The record's tag, from the range of its layer (`format::tag`).
    const TAG: u8;
    /// Appends the body.
    fn encode(&self, out: &mut Vec<u8>);
    /// Changes the page. Does not touch the checksum or the LSN.
    fn apply(&self, page: &mut [u8]);
}
