//! The stores Seawall is measured against, behind the same trait as Seawall itself: [`seawall_bench::Store`].
//!
//! - One file per store; each documents how durabilities map to the store's settings and which of the store's
//!   own documents it follows. docs/bench.md describes the same for readers.
//! - Every store gets one memory budget, [`Settings::pool_bytes`], and shows all settings that matter by its
//!   own names.
//! - A durability that a store lacks is refused, not replaced by a weaker one.
//! - Each comes from its crate; RocksDB, LMDB and SQLite are built from the sources in theirs.
//! - The crate `rocksdb` has the Apache 2.0 licence alone. It is part of this benchmark only: nothing that
//!   Seawall's own crates or a plugin link.

mod fjall;
mod lmdb;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sqlite;
mod support;
#[cfg(test)]
mod tests;

use seawall_bench::{Result, Settings, Store};

/// The names that [`open`] takes.
pub const NAMES: &[&str] = &[
    "lmdb",
    "sqlite",
    "redb",
    "fjall",
    #[cfg(feature = "rocksdb")]
    "rocksdb",
];

/// Opens the store of that name; `None` when it is not one of [`NAMES`].
pub fn open(name: &str, settings: &Settings) -> Option<Result<Box<dyn Store>>> {
    fn boxed<S: Store + 'static>(store: Result<S>) -> Result<Box<dyn Store>> {
        Ok(Box::new(store?))
    }
    Some(match name {
        #[cfg(feature = "rocksdb")]
        "rocksdb" => boxed(rocksdb::RocksDb::open(settings)),
        "lmdb" => boxed(lmdb::Lmdb::open(settings)),
        "sqlite" => boxed(sqlite::Sqlite::open(settings)),
        "redb" => boxed(redb::Redb::open(settings)),
        "fjall" => boxed(fjall::Fjall::open(settings)),
        _ => return None,
    })
}
