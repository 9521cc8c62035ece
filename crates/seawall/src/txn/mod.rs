//! Transactions: visibility, locks, undo and purge.

mod build;
mod catalog;
mod dead;
mod engine;
mod locking;
pub mod locks;
mod many;
mod owned;
mod prepared;
mod purge;
mod read;
mod restart;
mod rollback;
mod rowlog;
mod scan;
mod transaction;
mod trees;
pub mod undo;
mod unique;
mod version;
pub mod views;
mod write;

pub use crate::btree::Seek;
pub use crate::counted::{Ref, Refs};
pub use build::Building;
pub use catalog::TREE_NAME_BYTES_MAX;
pub use engine::{Engine, Instance};
pub use locks::{
    DeadlockInfo, Interrupt, LockConfig, LockTable, Mode, OnWait, Party, TransactionInfo, WaitInfo, Wanted,
};
pub use owned::OwnedScan;
pub use prepared::Names;
pub use purge::Purge;
pub use read::{LockOrCommitted, LockedRow};
pub use rowlog::{Noted, RowLog, Watching};
pub use scan::{Scan, ScanLock};
pub use transaction::{Access, Committing, Isolation, LockWait, OnConflict, SavepointAt, TxOptions, Txn, Unfinished};
pub use trees::{CatalogRow, Readable, TreeState, Trees};
pub use undo::{OpenState, OpenStream, UndoStore};
pub use views::ActiveSet;
pub use write::{Change, VALUE_BYTES_MAX};
