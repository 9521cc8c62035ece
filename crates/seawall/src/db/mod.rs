//! The public database API: opening, transactions, cursors, options, statistics, compaction, backups,
//! background work.

mod background;
mod backup;
mod calibrate;
mod check;
mod compact;
mod counts;
mod cursor;
mod database;
pub mod dump;
mod durable;
mod handle;
mod index;
mod index_sort;
mod inner;
mod key_range;
pub mod keys;
mod load;
mod locking;
mod maintenance;
mod marker;
mod memory;
pub mod metrics;
mod open;
pub mod options;
mod outside;
mod owned_cursor;
mod pace;
mod prepared;
pub mod publish;
mod ranges;
mod read_only;
mod reconfigure;
mod restart;
mod shrink;
mod shutdown;
mod small;
pub mod stats;
mod temporary;
mod transaction;
mod tree;

pub use background::{Background, Task};
pub use backup::{Backup, BackupAnswer, BackupFile, BackupOptions, BackupProgress, BackupReport, Restored};
pub use check::{Damage, Part, check_pages};
pub use compact::{CompactOptions, CompactProgress, Compacted};
pub use cursor::{Cursor, CursorMut, CursorOptions, KeyValue, LockMode, Position, RangeIter};
pub use database::Database;
pub use durable::LogPosition;
pub use index::{IndexBuilder, IndexEntries, IndexOptions};
pub use key_range::KeyRange;
pub use load::{BuildOptions, TreeBuilder};
pub use locking::InterruptHandle;
pub use maintenance::{LeafSample, TreeSample};
pub use marker::CREATING_FILE;
pub use metrics::Stats;
pub use open::Env;
pub use options::{
    Change as OptionChange, ControlSocketChoice, DamagedPages, FlushChoice, MemoryLimit, OptionInfo, Options,
    Preallocate, Source, TornPages, Warning,
};
pub use owned_cursor::OwnedCursor;
pub use prepared::{XID_BYTES_MAX, Xid};
pub use publish::Published;
pub use ranges::{MultiRangeIter, RangeEstimate, RangeOrder};
pub use shrink::{ShrinkProgress, Shrunk};
pub use temporary::{TemporaryOptions, TemporaryRangeIter, TemporarySavepoint, TemporaryTree};
pub use transaction::{Commit, Savepoint, Transaction};
pub use tree::Tree;
