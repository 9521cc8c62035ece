//! An embedded, ordered, multi-writer, MVCC, crash-safe key-value store. docs/engine.md says how it works.
//!
//! Modules import leftward only: `format <- log <- buffer <- space <- btree <- txn <- recovery <- db`; `error` and `mutants` are below them all.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[doc(hidden)]
pub mod btree;
#[doc(hidden)]
pub mod buffer;
mod counted;
mod db;
mod error;
#[doc(hidden)]
pub mod format;
#[doc(hidden)]
pub mod log;
#[cfg(not(feature = "mutants"))]
mod mutants;
#[cfg(feature = "mutants")]
#[doc(hidden)]
pub mod mutants;
#[doc(hidden)]
pub mod recovery;
#[doc(hidden)]
pub mod space;
#[doc(hidden)]
pub mod txn;

pub use btree::Fragmentation;
#[cfg(feature = "contention")]
#[doc(hidden)]
pub use counted::locks_taken;
pub use db::*;
pub use error::{Corruption, Error, Health, LockedOn, Result, Stop};
pub use format::{PageId, TreeId, TxnId};
pub use log::Durability;
pub use txn::{
    Access, DeadlockInfo, Isolation, LockOrCommitted, LockWait, LockedRow, OnConflict, Party, Readable, Seek,
    TransactionInfo, TxOptions, WaitInfo, Wanted,
};
