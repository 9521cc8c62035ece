//! The stores Seawall is measured against, behind the same trait as Seawall itself: [`seawall_bench::Store`].
//!
//! - One file per store; each documents how durabilities map to the store's settings and which of the store's
//!   own documents it follows. docs/peers.md describes the same for readers.
//! - Every store gets one memory budget, [`Settings::pool_bytes`], and shows all settings that matter by its
//!   own names.
//! - A durability that a store lacks is refused, not replaced by a weaker one.
//! - RocksDB, LMDB, SQLite and WiredTiger are the system's libraries, linked; redb and fjall are crates.

mod fjall;
mod lmdb;
mod redb;
mod rocksdb;
mod sqlite;
mod support;
#[cfg(test)]
mod tests;
mod wiredtiger;

use seawall_bench::{Result, Settings, Store};

/// The names that [`open`] takes.
pub const NAMES: [&str; 6] = ["rocksdb", "lmdb", "sqlite", "wiredtiger", "redb", "fjall"];

/// Opens the store of that name; `None` when it is not one of [`NAMES`].
#[must_use]
pub fn open(name: &str, settings: &Settings) -> Option<Result<Box<dyn Store>>> {
    fn boxed<S: Store + 'static>(store: Result<S>) -> Result<Box<dyn Store>> {
        Ok(Box::new(store?))
    }
    Some(match name {
        "rocksdb" => boxed(rocksdb::RocksDb::open(settings)),
        "lmdb" => boxed(lmdb::Lmdb::open(settings)),
        "sqlite" => boxed(sqlite::Sqlite::open(settings)),
        "wiredtiger" => boxed(wiredtiger::WiredTiger::open(settings)),
        "redb" => boxed(redb::Redb::open(settings)),
        "fjall" => boxed(fjall::Fjall::open(settings)),
        _ => return None,
    })
}
