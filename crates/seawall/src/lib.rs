#![doc = include_str!("../README.md")]
//! # For contributors
//!
//! Modules import leftward only: `format <- log <- buffer <- space <- btree <- txn <- recovery <- db`;
//! `blocking`, `error` and `mutants` are below them all. `DESIGN.md` says how the engine works.

#![allow(unreachable_pub, reason = "`pub` in an internal module is what a layer shows to the others")]

#[cfg(any(doc, doctest))]
#[doc = include_str!("../cookbook.md")]
pub mod cookbook {}

mod blocking;
mod btree;
mod buffer;
mod counted;
mod db;
mod error;
mod format;
mod log;
#[cfg(not(feature = "mutants"))]
mod mutants;
#[cfg(feature = "mutants")]
#[doc(hidden)]
pub mod mutants;
mod recovery;
mod space;
mod spare;
mod txn;

pub use blocking::{BlockObserver, Blocking, observe_blocking};
pub use btree::Fragmentation;
pub use buffer::{CONTROL_FILE, DATA_FILE};
#[cfg(feature = "contention")]
#[doc(hidden)]
pub use counted::locks_taken;
pub use db::{
    Background, Backup, BackupAnswer, BackupFile, BackupOptions, BackupProgress, BackupReport, BuildOptions,
    CREATING_FILE, Commit, CompactOptions, CompactProgress, Compacted, ControlSocketChoice, Cursor, CursorMut,
    CursorOptions, Damage, DamagedPages, Database, Env, FlushChoice, IndexBuilder, IndexEntries, IndexOptions,
    InterruptHandle, KeyRange, KeyValue, LeafSample, LockMode, LogPosition, MemoryLimit, MultiRangeIter, OptionChange,
    OptionInfo, Options, OwnedCursor, Part, Position, Preallocate, Published, RangeEstimate, RangeIter, RangeOrder,
    Restored, Savepoint, ShrinkProgress, Shrunk, Source, Stats, Task, TemporaryOptions, TemporaryRangeIter,
    TemporarySavepoint, TemporaryTree, TornPages, Transaction, Tree, TreeBuilder, TreeSample, Warning, XID_BYTES_MAX,
    Xid, check_pages, dump, keys, metrics, options, publish, stats,
};
pub use error::{Corruption, Error, LockedOn, Result};
pub use format::{PageId, TreeId, TxnId};
pub use log::Durability;
pub use txn::{
    Access, DeadlockInfo, Isolation, LockOrCommitted, LockWait, LockedRow, OnConflict, Party, Readable, Seek,
    TransactionInfo, TxOptions, WaitInfo, Wanted,
};

/// Internals for this crate's tests and the fuzz targets. Not part of the interface.
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals {
    pub mod btree {
        pub use crate::btree::{Node, redo};
    }
    pub mod error {
        pub use crate::error::Health;
    }
    pub mod format {
        pub use crate::format::{Lsn, control, page, tag};
    }
    pub mod log {
        pub use crate::log::{LogConfig, LogReader, Record, Records, push_record};
    }
    pub mod space {
        pub use crate::space::{read_page, redo};
    }
    pub mod undo {
        pub use crate::txn::undo::{UndoRecord, begun, read_page, redo};
    }
}
