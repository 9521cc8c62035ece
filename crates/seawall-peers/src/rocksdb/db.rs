//! Safe owners of RocksDB's database, transactions, snapshots and iterators.
//!
//! - Each object is destroyed once, by its owner's drop, and never while an object created from it is alive:
//!   what is created from a [`Database`] borrows it.
//! - RocksDB uses the pointer of a key or value during the call only.
#![allow(
    unsafe_code,
    clippy::multiple_unsafe_ops_per_block,
    reason = "a foreign library; the blocks are single calls and their results"
)]

use super::NAME;
use super::options::{DbOptions, Reading, Writing, c_string, chars, error_of, outcome};
use super::sys::*;
use seawall_bench::{Error, Result};
use std::ffi::CStr;
use std::marker::PhantomData;
use std::ptr;
use std::slice;

/// A value that RocksDB pins in place for the caller.
pub(super) struct Pinned(*mut PinnableSlice);

impl Pinned {
    fn new(slice: *mut PinnableSlice) -> Option<Self> {
        if slice.is_null() { None } else { Some(Self(slice)) }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        let mut len = 0;
        // SAFETY: the bytes live as long as the slice.
        unsafe { slice::from_raw_parts(rocksdb_pinnableslice_value(self.0, &mut len).cast(), len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: ours, once.
        unsafe { rocksdb_pinnableslice_destroy(self.0) }
    }
}

enum Handle {
    Plain(*mut Db),
    Transactions(*mut TransactionDb),
}

/// An open database with its column families.
pub(super) struct Database {
    handle: Handle,
    families: Vec<*mut ColumnFamily>,
}

// SAFETY: RocksDB's database and column family handles may be used by any thread, and by several at a time.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

/// Lock time-out of the transaction database, milliseconds.
pub(super) const LOCK_TIMEOUT_MS: i64 = 1000;

impl Database {
    /// Opens or creates it; the first family is `default`.
    pub(super) fn open(dir: &str, options: &DbOptions, families: &[&str], transactions: bool) -> Result<Self> {
        let dir = c_string(dir)?;
        let names = families.iter().map(|name| c_string(name)).collect::<Result<Vec<_>>>()?;
        let names: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let all_options: Vec<_> = families.iter().map(|_| options.0.cast_const()).collect();
        let count = i32::try_from(families.len()).map_err(|error| Error::failed(NAME, error))?;
        let (names, all_options) = (names.as_ptr(), all_options.as_ptr());
        let mut families = vec![ptr::null_mut(); families.len()];
        let out = families.as_mut_ptr();
        let handle = if transactions {
            // SAFETY: created here, set, used for the call, destroyed once; the arrays are `count` long and
            // outlive the call.
            outcome(|errors| unsafe {
                let locks = rocksdb_transactiondb_options_create();
                rocksdb_transactiondb_options_set_transaction_lock_timeout(locks, LOCK_TIMEOUT_MS);
                rocksdb_transactiondb_options_set_default_lock_timeout(locks, LOCK_TIMEOUT_MS);
                let dir = dir.as_ptr();
                let db = rocksdb_transactiondb_open_column_families(
                    options.0,
                    locks,
                    dir,
                    count,
                    names,
                    all_options,
                    out,
                    errors,
                );
                rocksdb_transactiondb_options_destroy(locks);
                Handle::Transactions(db)
            })?
        } else {
            // SAFETY: the arrays are `count` long and outlive the call.
            outcome(|errors| unsafe {
                let dir = dir.as_ptr();
                Handle::Plain(rocksdb_open_column_families(options.0, dir, count, names, all_options, out, errors))
            })?
        };
        Ok(Self { handle, families })
    }

    pub(super) fn get(&self, reading: &Reading, family: usize, key: &[u8]) -> Result<Option<Pinned>> {
        let (options, family) = (reading.options, self.families[family]);
        // SAFETY: all live; the key is read during the call.
        outcome(|errors| unsafe {
            match self.handle {
                Handle::Plain(db) => rocksdb_get_pinned_cf(db, options, family, chars(key), key.len(), errors),
                Handle::Transactions(db) => {
                    rocksdb_transactiondb_get_pinned_cf(db, options, family, chars(key), key.len(), errors)
                }
            }
        })
        .map(Pinned::new)
    }

    /// The values of `keys` in their order; `None` when this kind of database lacks the call.
    pub(super) fn multi_get(
        &self,
        reading: &Reading,
        family: usize,
        keys: &[Vec<u8>],
    ) -> Option<Result<Vec<Option<Pinned>>>> {
        let Handle::Plain(db) = self.handle else { return None };
        let (pointers, lens): (Vec<_>, Vec<_>) = keys.iter().map(|key| (chars(key), key.len())).unzip();
        let mut values = vec![ptr::null_mut(); keys.len()];
        let mut messages = vec![ptr::null_mut(); keys.len()];
        // SAFETY: the four arrays are as long as `keys`, and what they point to outlives the call.
        unsafe {
            let (options, family) = (reading.options, self.families[family]);
            let (keys, lens) = (pointers.as_ptr(), lens.as_ptr());
            let (values, messages) = (values.as_mut_ptr(), messages.as_mut_ptr());
            rocksdb_batched_multi_get_cf(db, options, family, pointers.len(), keys, lens, values, messages, false);
        }
        let values = values.into_iter().map(Pinned::new).collect();
        let errors: Vec<_> = messages.into_iter().filter(|message| !message.is_null()).map(error_of).collect();
        Some(errors.into_iter().next().map_or(Ok(values), Err))
    }

    pub(super) fn put(&self, writing: &Writing, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        let (options, family) = (writing.0, self.families[family]);
        let (k, v) = (chars(key), chars(value));
        // SAFETY: all live; key and value are read during the call.
        outcome(|errors| unsafe {
            match self.handle {
                Handle::Plain(db) => rocksdb_put_cf(db, options, family, k, key.len(), v, value.len(), errors),
                Handle::Transactions(db) => {
                    rocksdb_transactiondb_put_cf(db, options, family, k, key.len(), v, value.len(), errors);
                }
            }
        })
    }

    /// Writes `rows` as one batch.
    pub(super) fn write(&self, writing: &Writing, family: usize, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        // SAFETY: the batch is created and destroyed here and copies what it is given.
        outcome(|errors| unsafe {
            let batch = rocksdb_writebatch_create();
            for (key, value) in rows {
                let family = self.families[family];
                rocksdb_writebatch_put_cf(batch, family, chars(key), key.len(), chars(value), value.len());
            }
            match self.handle {
                Handle::Plain(db) => rocksdb_write(db, writing.0, batch, errors),
                Handle::Transactions(db) => rocksdb_transactiondb_write(db, writing.0, batch, errors),
            }
            rocksdb_writebatch_destroy(batch);
        })
    }

    pub(super) fn cursor(&self, reading: &Reading, family: usize) -> Cursor<'_> {
        // SAFETY: live handles; the cursor borrows the database.
        let iterator = unsafe {
            match self.handle {
                Handle::Plain(db) => rocksdb_create_iterator_cf(db, reading.options, self.families[family]),
                Handle::Transactions(db) => {
                    rocksdb_transactiondb_create_iterator_cf(db, reading.options, self.families[family])
                }
            }
        };
        Cursor { iterator, of: PhantomData }
    }

    /// Flushes the write buffers of all families, and waits.
    pub(super) fn flush(&self) -> Result<()> {
        for &family in &self.families {
            // SAFETY: the options are created and destroyed here; the handles are live.
            outcome(|errors| unsafe {
                let options = rocksdb_flushoptions_create();
                rocksdb_flushoptions_set_wait(options, 1);
                match self.handle {
                    Handle::Plain(db) => rocksdb_flush_cf(db, options, family, errors),
                    Handle::Transactions(db) => rocksdb_transactiondb_flush_cf(db, options, family, errors),
                }
                rocksdb_flushoptions_destroy(options);
            })?;
        }
        Ok(())
    }

    /// Writes out the log's buffer and flushes the log.
    pub(super) fn flush_log(&self) -> Result<()> {
        // SAFETY: live handles.
        outcome(|errors| unsafe {
            match self.handle {
                Handle::Plain(db) => rocksdb_flush_wal(db, 1, errors),
                Handle::Transactions(db) => rocksdb_transactiondb_flush_wal(db, 1, errors),
            }
        })
    }

    /// A numeric property of RocksDB; a property per family is that of the default family.
    pub(super) fn property(&self, name: &CStr) -> Result<u64> {
        let mut value = 0;
        // SAFETY: live handles, a name that ends in NUL, and a place for the number.
        let failed = unsafe {
            match self.handle {
                Handle::Plain(db) => rocksdb_property_int(db, name.as_ptr(), &mut value),
                Handle::Transactions(db) => rocksdb_transactiondb_property_int(db, name.as_ptr(), &mut value),
            }
        };
        if failed == 0 {
            Ok(value)
        } else {
            Err(Error::failed(NAME, format!("it has no property {}", name.to_string_lossy())))
        }
    }

    /// A view of the latest state; `None` when the database was not opened for transactions.
    pub(super) fn view(&self) -> Option<View<'_>> {
        let Handle::Transactions(db) = self.handle else { return None };
        // SAFETY: a live handle; the view borrows it.
        let snapshot = unsafe { rocksdb_transactiondb_create_snapshot(db) };
        Some(View { db, snapshot, of: PhantomData })
    }

    /// A transaction that has not begun; `None` when the database was not opened for transactions.
    pub(super) fn transaction(&self) -> Option<Locking<'_>> {
        let Handle::Transactions(db) = self.handle else { return None };
        Some(Locking { db, tx: ptr::null_mut(), families: &self.families })
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: everything created from it borrowed it and is gone. Families go before the database.
        unsafe {
            for &family in &self.families {
                rocksdb_column_family_handle_destroy(family);
            }
            match self.handle {
                Handle::Plain(db) => rocksdb_close(db),
                Handle::Transactions(db) => rocksdb_transactiondb_close(db),
            }
        }
    }
}

/// A snapshot of a database.
pub(super) struct View<'d> {
    db: *mut TransactionDb,
    pub(super) snapshot: *const Snapshot,
    of: PhantomData<&'d Database>,
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        // SAFETY: ours, once.
        unsafe { rocksdb_transactiondb_release_snapshot(self.db, self.snapshot) }
    }
}

/// A transaction object, reused for the next transaction, as RocksDB advises.
pub(super) struct Locking<'d> {
    db: *mut TransactionDb,
    /// Null before the first begin.
    tx: *mut Transaction,
    families: &'d [*mut ColumnFamily],
}

impl Locking<'_> {
    pub(super) fn begin(&mut self, writing: &Writing) {
        // SAFETY: the old transaction is ours and over, or null; the options are copied.
        unsafe {
            let options = rocksdb_transaction_options_create();
            rocksdb_transaction_options_set_deadlock_detect(options, 1);
            self.tx = rocksdb_transaction_begin(self.db, writing.0, options, self.tx);
            rocksdb_transaction_options_destroy(options);
        }
    }

    pub(super) fn get(&self, reading: &Reading, family: usize, key: &[u8]) -> Result<Option<Pinned>> {
        let (options, family) = (reading.options, self.families[family]);
        // SAFETY: begun, live, and the key is read during the call.
        outcome(|errors| unsafe {
            rocksdb_transaction_get_pinned_cf(self.tx, options, family, chars(key), key.len(), errors)
        })
        .map(Pinned::new)
    }

    /// The latest value, locked exclusively.
    pub(super) fn get_for_update(&self, latest: &Reading, family: usize, key: &[u8]) -> Result<Option<Pinned>> {
        let (options, family, key_len) = (latest.options, self.families[family], key.len());
        // SAFETY: begun, live, and the key is read during the call.
        outcome(|errors| unsafe {
            rocksdb_transaction_get_pinned_for_update_cf(self.tx, options, family, chars(key), key_len, 1, errors)
        })
        .map(Pinned::new)
    }

    pub(super) fn put(&self, family: usize, key: &[u8], value: &[u8]) -> Result<()> {
        let (k, v, family) = (chars(key), chars(value), self.families[family]);
        // SAFETY: begun, live, and key and value are copied.
        outcome(|errors| unsafe {
            rocksdb_transaction_put_cf(self.tx, family, k, key.len(), v, value.len(), errors);
        })
    }

    pub(super) fn delete(&self, family: usize, key: &[u8]) -> Result<()> {
        let family = self.families[family];
        // SAFETY: begun, live, and the key is copied.
        outcome(|errors| unsafe { rocksdb_transaction_delete_cf(self.tx, family, chars(key), key.len(), errors) })
    }

    /// Over the database and the transaction's own changes.
    pub(super) fn cursor(&self, reading: &Reading, family: usize) -> Cursor<'_> {
        // SAFETY: begun and live; the cursor borrows the transaction.
        let iterator =
            unsafe { rocksdb_transaction_create_iterator_cf(self.tx, reading.options, self.families[family]) };
        Cursor { iterator, of: PhantomData }
    }

    pub(super) fn commit(&self) -> Result<()> {
        // SAFETY: begun and live.
        outcome(|errors| unsafe { rocksdb_transaction_commit(self.tx, errors) })
    }

    pub(super) fn rollback(&self) -> Result<()> {
        // SAFETY: begun and live.
        outcome(|errors| unsafe { rocksdb_transaction_rollback(self.tx, errors) })
    }
}

impl Drop for Locking<'_> {
    fn drop(&mut self) {
        if !self.tx.is_null() {
            // SAFETY: ours, once; this rolls back a transaction that is not over.
            unsafe { rocksdb_transaction_destroy(self.tx) }
        }
    }
}

/// A position in a family, or past its end.
pub(super) struct Cursor<'d> {
    iterator: *mut Iterator,
    of: PhantomData<&'d Database>,
}

impl Cursor<'_> {
    /// Moves to the first entry at or after `key`.
    pub(super) fn seek(&mut self, key: &[u8]) {
        // SAFETY: live; the key is read during the call.
        unsafe { rocksdb_iter_seek(self.iterator, chars(key), key.len()) }
    }

    pub(super) fn seek_to_last(&mut self) {
        // SAFETY: live.
        unsafe { rocksdb_iter_seek_to_last(self.iterator) }
    }

    /// The current entry.
    pub(super) fn entry(&self) -> Result<Option<(&[u8], &[u8])>> {
        // SAFETY: live; the bytes live until the iterator moves, which needs it exclusively.
        unsafe {
            if rocksdb_iter_valid(self.iterator) == 0 {
                return outcome(|errors| rocksdb_iter_get_error(self.iterator, errors)).map(|()| None);
            }
            let (mut key_len, mut value_len) = (0, 0);
            let key = rocksdb_iter_key(self.iterator, &mut key_len);
            let value = rocksdb_iter_value(self.iterator, &mut value_len);
            Ok(Some((slice::from_raw_parts(key.cast(), key_len), slice::from_raw_parts(value.cast(), value_len))))
        }
    }

    /// Moves to the next entry, or to the previous one; the cursor must be on an entry.
    pub(super) fn step(&mut self, backward: bool) {
        // SAFETY: live, and on an entry as RocksDB requires.
        unsafe { if backward { rocksdb_iter_prev(self.iterator) } else { rocksdb_iter_next(self.iterator) } }
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        // SAFETY: ours, once.
        unsafe { rocksdb_iter_destroy(self.iterator) }
    }
}
