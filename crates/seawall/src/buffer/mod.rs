//! The buffer pool. DESIGN.md, "Buffer", says how it works; docs/invariants.md has its numbered rules
//! of latching.
//!
//! - `config`, `pool`: what it is made of. `frame`: the protocol by which frames change hands. `arena`, `translate`,
//!   `guard`: its memory, its map, the guards on it.
//! - `loads`, `read`, `evict`: pages into memory and out of it. `prefetch`, `prefetcher`: pages before they are
//!   needed. `mtr`: changes.
//! - `deferred`: dirty pages that left memory as their redo records.
//! - `dirty`, `cleaner`, `clean`, `doublewrite`, `restore`, `checkpoint`, `control`: pages and positions onto the disk.
//! - `spill`: pages that are in no pool and no data file, of temporary trees.
//!
//! 1. Latched code never does I/O: it returns what it needs ([`crate::error::Stop`]), releases its latches,
//!    and starts over ([`Pool::retry`]).
//! 2. A page is written only when its log is flushed; a checkpoint is no later than the oldest change that is
//!    not written.
//! 3. A failed read is the reader's error. A failed write concerns every thread: it poisons the database.

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
pub use lend::lend;
pub use mtr::{LatchedPage, MTR_BYTES_SMALL, Mtr, MtrSize};
pub use pool::{DATA_FILE, Pool};
pub use prefetcher::Prefetcher;
pub use spill::{Spill, SpillPlace, is_spilled, remove_leftovers};

/// A change of one page that can be replayed.
///
/// The forward path and recovery run the same `apply`. Everything that can fail is checked before: `apply`
/// never fails on a page in the state for which the record was made.
pub trait Redo {
    /// Its tag, from the range of its layer (`format::tag`).
    const TAG: u8;
    /// Appends the body.
    fn encode(&self, out: &mut Vec<u8>);
    /// Changes the page. Never touches the checksum or the LSN.
    fn apply(&self, page: &mut [u8]);
}
