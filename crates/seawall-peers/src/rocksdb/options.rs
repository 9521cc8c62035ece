//! RocksDB's options as owned values, and its errors as [`Error`].
//!
//! - Options are set before any other thread can reach them, then only read; each is destroyed once, by its
//!   drop.
//! - Iteration bounds are pointers into memory that [`Reading`] owns.
#![allow(
    unsafe_code,
    clippy::multiple_unsafe_ops_per_block,
    reason = "a foreign library; the blocks are single calls and their results"
)]

use super::NAME;
use super::db::View;
use super::sys::*;
use seawall_bench::{Error, Result};
use std::ffi::{CStr, CString, c_char};
use std::ptr;

/// Calls a function that reports errors as a message.
pub(super) fn outcome<T>(call: impl FnOnce(Errors) -> T) -> Result<T> {
    let mut message = ptr::null_mut();
    let value = call(&mut message);
    if message.is_null() { Ok(value) } else { Err(error_of(message)) }
}

/// The error for a message, which is freed.
pub(super) fn error_of(message: *mut c_char) -> Error {
    // SAFETY: a C string made by malloc, ours to free, and not used again.
    let text = unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        rocksdb_free(message.cast());
        text
    };
    // How RocksDB names its states Busy (a deadlock or a changed key), TimedOut (a lock) and TryAgain.
    let conflicts = ["Resource busy", "Operation timed out", "Operation failed. Try again."];
    if conflicts.iter().any(|start| text.starts_with(start)) {
        Error::Conflict(text)
    } else {
        Error::failed(NAME, text)
    }
}

pub(super) fn chars(bytes: &[u8]) -> *const c_char {
    bytes.as_ptr().cast()
}

/// Options of the database, of its column families and of its table format, as RocksDB reads them from text.
pub(super) struct DbOptions(pub(super) *mut Options);

impl DbOptions {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let text = c_string(text)?;
        // SAFETY: no arguments; both are destroyed by the owner's drop.
        let (base, parsed) = unsafe { (Self(rocksdb_options_create()), Self(rocksdb_options_create())) };
        // SAFETY: both are live options, the text ends in NUL.
        outcome(|errors| unsafe { rocksdb_get_options_from_string(base.0, text.as_ptr(), parsed.0, errors) })?;
        Ok(parsed)
    }
}

impl Drop for DbOptions {
    fn drop(&mut self) {
        // SAFETY: ours, once.
        unsafe { rocksdb_options_destroy(self.0) }
    }
}

pub(super) fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_nul| Error::failed(NAME, format!("{text:?} holds a NUL character")))
}

/// How a write is made durable.
pub(super) struct Writing(pub(super) *mut WriteOptions);

// SAFETY: plain data, only read after it is created.
unsafe impl Send for Writing {}
// SAFETY: as above.
unsafe impl Sync for Writing {}

impl Writing {
    /// `sync`: the log is flushed before the write returns; `log`: it is logged at all.
    pub(super) fn new(sync: bool, log: bool) -> Self {
        // SAFETY: created, then set before any other thread can reach it.
        unsafe {
            let options = rocksdb_writeoptions_create();
            rocksdb_writeoptions_set_sync(options, sync.into());
            rocksdb_writeoptions_disable_WAL(options, (!log).into());
            Self(options)
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // SAFETY: ours, once.
        unsafe { rocksdb_writeoptions_destroy(self.0) }
    }
}

/// How RocksDB reads ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadAhead {
    /// `readahead_size`; 0 leaves it to RocksDB.
    pub(super) bytes: usize,
    /// `async_io`.
    pub(super) asynchronous: bool,
}

/// How a read is done: from which snapshot, between which keys.
pub(super) struct Reading {
    pub(super) options: *mut ReadOptions,
    /// Kept for as long as `options` points to them.
    bounds: [Vec<u8>; 2],
}

impl Reading {
    /// RocksDB's defaults.
    pub(super) fn new() -> Self {
        // SAFETY: no arguments; destroyed by the owner's drop.
        let options = unsafe { rocksdb_readoptions_create() };
        Self { options, bounds: [Vec::new(), Vec::new()] }
    }

    /// Reads ahead as `ahead` specifies.
    pub(super) fn ahead(ahead: ReadAhead) -> Result<Self> {
        let reading = Self::new();
        // SAFETY: just created; no other thread can reach it.
        let set = unsafe {
            rocksdb_readoptions_set_readahead_size(reading.options, ahead.bytes);
            sw_readoptions_set_async_io(reading.options, ahead.asynchronous.into())
        };
        if set == 1 {
            return Ok(reading);
        }
        Err(Error::failed(NAME, "its read options are not laid out as in 7.8, so that async_io cannot be set"))
    }

    /// The same, up to `to` (excluded).
    pub(super) fn ahead_to(ahead: ReadAhead, to: &[u8]) -> Result<Self> {
        let mut reading = Self::ahead(ahead)?;
        reading.bounds[1] = to.to_vec();
        // SAFETY: live options; the bound's heap memory stays where it is, and lives as long as they do.
        unsafe { rocksdb_readoptions_set_iterate_upper_bound(reading.options, chars(&reading.bounds[1]), to.len()) }
        Ok(reading)
    }

    /// Between `from` (included) and `to` (excluded).
    pub(super) fn between(from: &[u8], to: &[u8], snapshot: Option<&View<'_>>) -> Self {
        let bounds = [from.to_vec(), to.to_vec()];
        // SAFETY: the bounds move into the result with their heap memory where it is, and live as long as the options.
        let options = unsafe {
            let options = rocksdb_readoptions_create();
            rocksdb_readoptions_set_iterate_lower_bound(options, chars(&bounds[0]), bounds[0].len());
            rocksdb_readoptions_set_iterate_upper_bound(options, chars(&bounds[1]), bounds[1].len());
            options
        };
        let mut reading = Self { options, bounds };
        reading.set_snapshot(snapshot);
        reading
    }

    /// Reads as of `snapshot`, which must outlive the use of these options; `None`: the latest.
    pub(super) fn set_snapshot(&mut self, snapshot: Option<&View<'_>>) {
        // SAFETY: live options.
        unsafe { rocksdb_readoptions_set_snapshot(self.options, snapshot.map_or(ptr::null(), |view| view.snapshot)) }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        // SAFETY: ours, once.
        unsafe { rocksdb_readoptions_destroy(self.options) }
    }
}
