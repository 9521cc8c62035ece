//! The used part of RocksDB's C interface (rocksdb/c.h, version 7.8): declarations only, without logic.

#![allow(unsafe_code, reason = "declarations of a foreign library")]
use std::ffi::{c_char, c_int, c_uchar, c_void};

macro_rules! opaque {
    ($($name:ident)*) => {
        $(
            #[repr(C)]
            pub(super) struct $name {
                _private: [u8; 0],
            }
        )*
    };
}

opaque! {
    Db TransactionDb Transaction ColumnFamily Options WriteOptions ReadOptions FlushOptions TransactionDbOptions
    TransactionOptions WriteBatch PinnableSlice Iterator Snapshot
}

/// Where a function that fails leaves a message, allocated with malloc.
pub(super) type Errors = *mut *mut c_char;

// The shim beside this file.
unsafe extern "C" {
    /// Returns 0 if the library's read options do not have the layout that the shim expects.
    pub(super) fn sw_readoptions_set_async_io(options: *mut ReadOptions, asynchronous: c_uchar) -> c_int;
}

#[link(name = "rocksdb")]
unsafe extern "C" {
    pub(super) fn rocksdb_free(memory: *mut c_void);

    pub(super) fn rocksdb_options_create() -> *mut Options;
    pub(super) fn rocksdb_options_destroy(options: *mut Options);
    pub(super) fn rocksdb_get_options_from_string(
        base: *const Options,
        text: *const c_char,
        new: *mut Options,
        errors: Errors,
    );
    pub(super) fn rocksdb_writeoptions_create() -> *mut WriteOptions;
    pub(super) fn rocksdb_writeoptions_destroy(options: *mut WriteOptions);
    pub(super) fn rocksdb_writeoptions_set_sync(options: *mut WriteOptions, sync: c_uchar);
    pub(super) fn rocksdb_writeoptions_disable_WAL(options: *mut WriteOptions, disable: c_int);
    pub(super) fn rocksdb_readoptions_create() -> *mut ReadOptions;
    pub(super) fn rocksdb_readoptions_destroy(options: *mut ReadOptions);
    pub(super) fn rocksdb_readoptions_set_snapshot(options: *mut ReadOptions, snapshot: *const Snapshot);
    pub(super) fn rocksdb_readoptions_set_readahead_size(options: *mut ReadOptions, bytes: usize);
    pub(super) fn rocksdb_readoptions_set_iterate_lower_bound(
        options: *mut ReadOptions,
        key: *const c_char,
        len: usize,
    );
    pub(super) fn rocksdb_readoptions_set_iterate_upper_bound(
        options: *mut ReadOptions,
        key: *const c_char,
        len: usize,
    );
    pub(super) fn rocksdb_flushoptions_create() -> *mut FlushOptions;
    pub(super) fn rocksdb_flushoptions_destroy(options: *mut FlushOptions);
    pub(super) fn rocksdb_flushoptions_set_wait(options: *mut FlushOptions, wait: c_uchar);
    pub(super) fn rocksdb_transactiondb_options_create() -> *mut TransactionDbOptions;
    pub(super) fn rocksdb_transactiondb_options_destroy(options: *mut TransactionDbOptions);
    pub(super) fn rocksdb_transactiondb_options_set_transaction_lock_timeout(
        options: *mut TransactionDbOptions,
        ms: i64,
    );
    pub(super) fn rocksdb_transactiondb_options_set_default_lock_timeout(options: *mut TransactionDbOptions, ms: i64);
    pub(super) fn rocksdb_transaction_options_create() -> *mut TransactionOptions;
    pub(super) fn rocksdb_transaction_options_destroy(options: *mut TransactionOptions);
    pub(super) fn rocksdb_transaction_options_set_deadlock_detect(options: *mut TransactionOptions, on: c_uchar);

    pub(super) fn rocksdb_open_column_families(
        options: *const Options,
        dir: *const c_char,
        count: c_int,
        names: *const *const c_char,
        family_options: *const *const Options,
        families: *mut *mut ColumnFamily,
        errors: Errors,
    ) -> *mut Db;
    pub(super) fn rocksdb_transactiondb_open_column_families(
        options: *const Options,
        transaction_options: *const TransactionDbOptions,
        dir: *const c_char,
        count: c_int,
        names: *const *const c_char,
        family_options: *const *const Options,
        families: *mut *mut ColumnFamily,
        errors: Errors,
    ) -> *mut TransactionDb;
    pub(super) fn rocksdb_column_family_handle_destroy(family: *mut ColumnFamily);
    pub(super) fn rocksdb_close(db: *mut Db);
    pub(super) fn rocksdb_transactiondb_close(db: *mut TransactionDb);
    pub(super) fn rocksdb_flush_cf(
        db: *mut Db,
        options: *const FlushOptions,
        family: *mut ColumnFamily,
        errors: Errors,
    );
    pub(super) fn rocksdb_transactiondb_flush_cf(
        db: *mut TransactionDb,
        options: *const FlushOptions,
        family: *mut ColumnFamily,
        errors: Errors,
    );
    pub(super) fn rocksdb_flush_wal(db: *mut Db, sync: c_uchar, errors: Errors);
    pub(super) fn rocksdb_transactiondb_flush_wal(db: *mut TransactionDb, sync: c_uchar, errors: Errors);
    pub(super) fn rocksdb_property_int(db: *mut Db, name: *const c_char, value: *mut u64) -> c_int;
    pub(super) fn rocksdb_transactiondb_property_int(
        db: *mut TransactionDb,
        name: *const c_char,
        value: *mut u64,
    ) -> c_int;

    pub(super) fn rocksdb_put_cf(
        db: *mut Db,
        options: *const WriteOptions,
        family: *mut ColumnFamily,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        errors: Errors,
    );
    pub(super) fn rocksdb_transactiondb_put_cf(
        db: *mut TransactionDb,
        options: *const WriteOptions,
        family: *mut ColumnFamily,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        errors: Errors,
    );
    pub(super) fn rocksdb_write(db: *mut Db, options: *const WriteOptions, batch: *mut WriteBatch, errors: Errors);
    pub(super) fn rocksdb_transactiondb_write(
        db: *mut TransactionDb,
        options: *const WriteOptions,
        batch: *mut WriteBatch,
        errors: Errors,
    );
    pub(super) fn rocksdb_get_pinned_cf(
        db: *mut Db,
        options: *const ReadOptions,
        family: *mut ColumnFamily,
        key: *const c_char,
        key_len: usize,
        errors: Errors,
    ) -> *mut PinnableSlice;
    pub(super) fn rocksdb_transactiondb_get_pinned_cf(
        db: *mut TransactionDb,
        options: *const ReadOptions,
        family: *mut ColumnFamily,
        key: *const c_char,
        key_len: usize,
        errors: Errors,
    ) -> *mut PinnableSlice;
    pub(super) fn rocksdb_batched_multi_get_cf(
        db: *mut Db,
        options: *const ReadOptions,
        family: *mut ColumnFamily,
        count: usize,
        keys: *const *const c_char,
        key_lens: *const usize,
        values: *mut *mut PinnableSlice,
        errors: *mut *mut c_char,
        sorted: bool,
    );
    pub(super) fn rocksdb_pinnableslice_value(slice: *const PinnableSlice, len: *mut usize) -> *const c_char;
    pub(super) fn rocksdb_pinnableslice_destroy(slice: *mut PinnableSlice);

    pub(super) fn rocksdb_writebatch_create() -> *mut WriteBatch;
    pub(super) fn rocksdb_writebatch_destroy(batch: *mut WriteBatch);
    pub(super) fn rocksdb_writebatch_put_cf(
        batch: *mut WriteBatch,
        family: *mut ColumnFamily,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
    );

    pub(super) fn rocksdb_create_iterator_cf(
        db: *mut Db,
        options: *const ReadOptions,
        family: *mut ColumnFamily,
    ) -> *mut Iterator;
    pub(super) fn rocksdb_transactiondb_create_iterator_cf(
        db: *mut TransactionDb,
        options: *const ReadOptions,
        family: *mut ColumnFamily,
    ) -> *mut Iterator;
    pub(super) fn rocksdb_transaction_create_iterator_cf(
        tx: *mut Transaction,
        options: *const ReadOptions,
        family: *mut ColumnFamily,
    ) -> *mut Iterator;
    pub(super) fn rocksdb_iter_destroy(iterator: *mut Iterator);
    pub(super) fn rocksdb_iter_valid(iterator: *const Iterator) -> c_uchar;
    pub(super) fn rocksdb_iter_seek(iterator: *mut Iterator, key: *const c_char, len: usize);
    pub(super) fn rocksdb_iter_seek_to_last(iterator: *mut Iterator);
    pub(super) fn rocksdb_iter_next(iterator: *mut Iterator);
    pub(super) fn rocksdb_iter_prev(iterator: *mut Iterator);
    pub(super) fn rocksdb_iter_key(iterator: *const Iterator, len: *mut usize) -> *const c_char;
    pub(super) fn rocksdb_iter_value(iterator: *const Iterator, len: *mut usize) -> *const c_char;
    pub(super) fn rocksdb_iter_get_error(iterator: *const Iterator, errors: Errors);

    pub(super) fn rocksdb_transactiondb_create_snapshot(db: *mut TransactionDb) -> *const Snapshot;
    pub(super) fn rocksdb_transactiondb_release_snapshot(db: *mut TransactionDb, snapshot: *const Snapshot);
    pub(super) fn rocksdb_transaction_begin(
        db: *mut TransactionDb,
        write_options: *const WriteOptions,
        options: *const TransactionOptions,
        old: *mut Transaction,
    ) -> *mut Transaction;
    pub(super) fn rocksdb_transaction_commit(tx: *mut Transaction, errors: Errors);
    pub(super) fn rocksdb_transaction_rollback(tx: *mut Transaction, errors: Errors);
    pub(super) fn rocksdb_transaction_destroy(tx: *mut Transaction);
    pub(super) fn rocksdb_transaction_get_pinned_cf(
        tx: *mut Transaction,
        options: *const ReadOptions,
        family: *mut ColumnFamily,
        key: *const c_char,
        key_len: usize,
        errors: Errors,
    ) -> *mut PinnableSlice;
    pub(super) fn rocksdb_transaction_get_pinned_for_update_cf(
        tx: *mut Transaction,
        options: *const ReadOptions,
        family: *mut ColumnFamily,
        key: *const c_char,
        key_len: usize,
        exclusive: c_uchar,
        errors: Errors,
    ) -> *mut PinnableSlice;
    pub(super) fn rocksdb_transaction_put_cf(
        tx: *mut Transaction,
        family: *mut ColumnFamily,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        errors: Errors,
    );
    pub(super) fn rocksdb_transaction_delete_cf(
        tx: *mut Transaction,
        family: *mut ColumnFamily,
        key: *const c_char,
        key_len: usize,
        errors: Errors,
    );
}
