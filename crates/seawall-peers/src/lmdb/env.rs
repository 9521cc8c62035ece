//! Safe owners of LMDB's objects.
//!
//! - A reference into the map borrows its transaction, and never outlives a change made by that transaction.
//! - A write transaction begins and ends on one thread, as LMDB's mutex requires: [`Txn`] is not `Send`.
//! - Cursors are closed before their transaction ends: they borrow it.
#![allow(
    unsafe_code,
    clippy::multiple_unsafe_ops_per_block,
    reason = "a foreign library; the blocks are single calls and their results"
)]

use super::NAME;
use lmdb_master_sys as sys;
use seawall_bench::{Error, Result};
use std::ffi::{CStr, CString, c_int, c_uint};
use std::marker::PhantomData;
use std::{ptr, slice};

fn check(code: c_int, what: &str) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: for any code LMDB returns a string that lives forever.
    let text = unsafe { CStr::from_ptr(sys::mdb_strerror(code)) }.to_string_lossy();
    Err(Error::failed(NAME, format!("{what}: {text} ({code})")))
}

/// The library's version.
pub(super) fn version() -> String {
    let [mut major, mut minor, mut patch] = [0; 3];
    // SAFETY: three places for the numbers; the string is static.
    unsafe { sys::mdb_version(&mut major, &mut minor, &mut patch) };
    format!("{major}.{minor}.{patch}")
}

fn val(bytes: &[u8]) -> sys::MDB_val {
    sys::MDB_val { mv_size: bytes.len(), mv_data: bytes.as_ptr().cast_mut().cast() }
}

fn empty() -> sys::MDB_val {
    sys::MDB_val { mv_size: 0, mv_data: ptr::null_mut() }
}

/// # Safety
/// LMDB filled it in, and the transaction in which it did so outlives `'t` and makes no change meanwhile.
unsafe fn lend<'t>(val: &sys::MDB_val) -> &'t [u8] {
    if val.mv_size == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(val.mv_data.cast(), val.mv_size) }
}

/// An open environment.
pub(super) struct Env(*mut sys::MDB_env);

// SAFETY: an environment may be used by any thread, and by several at a time.
unsafe impl Send for Env {}
// SAFETY: as above.
unsafe impl Sync for Env {}

impl Env {
    pub(super) fn open(dir: &str, flags: c_uint, map_bytes: usize, readers: u32, tables: u32) -> Result<Self> {
        let path = CString::new(dir).map_err(|error| Error::failed(NAME, error))?;
        let mut env = ptr::null_mut();
        // SAFETY: a place for the result.
        check(unsafe { sys::mdb_env_create(&mut env) }, "cannot make an environment")?;
        let env = Self(env);
        // SAFETY: created but not opened yet, as these three calls require.
        unsafe {
            check(sys::mdb_env_set_mapsize(env.0, map_bytes), &format!("cannot set a map of {map_bytes} bytes"))?;
            check(sys::mdb_env_set_maxreaders(env.0, readers), &format!("cannot set {readers} readers"))?;
            check(sys::mdb_env_set_maxdbs(env.0, tables), &format!("cannot set {tables} tables"))?;
        }
        // SAFETY: configured, and the path ends in NUL.
        check(unsafe { sys::mdb_env_open(env.0, path.as_ptr(), flags, 0o644) }, &format!("cannot open {dir}"))?;
        Ok(env)
    }

    /// Flushes what was committed.
    pub(super) fn sync(&self) -> Result<()> {
        // SAFETY: open.
        check(unsafe { sys::mdb_env_sync(self.0, 1) }, "cannot flush")
    }

    pub(super) fn begin(&self, flags: c_uint) -> Result<Txn<'_>> {
        let mut txn = ptr::null_mut();
        // SAFETY: open, and a place for the result.
        check(unsafe { sys::mdb_txn_begin(self.0, ptr::null_mut(), flags, &mut txn) }, "cannot begin")?;
        Ok(Txn { txn, of: PhantomData })
    }
}

impl Drop for Env {
    fn drop(&mut self) {
        // SAFETY: transactions borrowed it and are gone.
        unsafe { sys::mdb_env_close(self.0) }
    }
}

/// A transaction; it is rolled back when dropped.
pub(super) struct Txn<'e> {
    txn: *mut sys::MDB_txn,
    of: PhantomData<&'e Env>,
}

impl Txn<'_> {
    /// The table's number, which stays valid after the transaction is committed.
    ///
    /// Without a name: the environment's own table, which needs no lookup.
    pub(super) fn open_table(&self, name: Option<&str>) -> Result<c_uint> {
        let c_name = name.map(CString::new).transpose().map_err(|error| Error::failed(NAME, error))?;
        let pointer = c_name.as_ref().map_or(ptr::null(), |name| name.as_ptr());
        let mut table = 0;
        // SAFETY: live, a name that ends in NUL or none, a place for the result.
        let code = unsafe { sys::mdb_dbi_open(self.txn, pointer, sys::MDB_CREATE, &mut table) };
        check(code, &format!("cannot open table {}", name.unwrap_or("(main)"))).map(|()| table)
    }

    pub(super) fn get(&self, table: c_uint, key: &[u8]) -> Result<Option<&[u8]>> {
        let mut value = empty();
        // SAFETY: live; the key is read during the call.
        let code = unsafe { sys::mdb_get(self.txn, table, &mut val(key), &mut value) };
        if code == sys::MDB_NOTFOUND {
            return Ok(None);
        }
        check(code, "cannot get")?;
        // SAFETY: in the map until the transaction ends or makes a change, and a change takes it exclusively.
        Ok(Some(unsafe { lend(&value) }))
    }

    pub(super) fn put(&mut self, table: c_uint, key: &[u8], value: &[u8]) -> Result<()> {
        // SAFETY: live; key and value are copied.
        check(unsafe { sys::mdb_put(self.txn, table, &mut val(key), &mut val(value), 0) }, "cannot put")
    }

    /// Puts the row after all others; returns false, and does nothing, if it would not be the last.
    pub(super) fn append(&mut self, table: c_uint, key: &[u8], value: &[u8]) -> Result<bool> {
        // SAFETY: live; key and value are copied.
        let code = unsafe { sys::mdb_put(self.txn, table, &mut val(key), &mut val(value), sys::MDB_APPEND) };
        if code == sys::MDB_KEYEXIST {
            return Ok(false);
        }
        check(code, "cannot append").map(|()| true)
    }

    pub(super) fn delete(&mut self, table: c_uint, key: &[u8]) -> Result<()> {
        // SAFETY: live; the key is read during the call.
        let code = unsafe { sys::mdb_del(self.txn, table, &mut val(key), ptr::null_mut()) };
        if code == sys::MDB_NOTFOUND { Ok(()) } else { check(code, "cannot delete") }
    }

    pub(super) fn cursor(&self, table: c_uint) -> Result<Cursor<'_>> {
        let mut cursor = ptr::null_mut();
        // SAFETY: live, and a place for the result.
        check(unsafe { sys::mdb_cursor_open(self.txn, table, &mut cursor) }, "cannot open a cursor")?;
        Ok(Cursor { cursor, kept: false, of: PhantomData })
    }

    pub(super) fn commit(self) -> Result<()> {
        let txn = self.txn;
        // A commit ends the transaction, even when it fails.
        std::mem::forget(self);
        // SAFETY: live, and not used again.
        check(unsafe { sys::mdb_txn_commit(txn) }, "cannot commit")
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        // SAFETY: ours, once.
        unsafe { sys::mdb_txn_abort(self.txn) }
    }
}

/// A read transaction between its uses: it keeps its slot among the readers and its cursor, but not its
/// snapshot.
pub(super) struct Reader<'e> {
    txn: Txn<'e>,
    /// Null before its first use.
    cursor: *mut sys::MDB_cursor,
}

impl<'e> Reader<'e> {
    pub(super) fn new(env: &'e Env) -> Result<Self> {
        let txn = env.begin(sys::MDB_RDONLY)?;
        // SAFETY: live and only read; [`Reader::read`] is the only way to use it again.
        unsafe { sys::mdb_txn_reset(txn.txn) };
        Ok(Self { txn, cursor: ptr::null_mut() })
    }

    /// Calls `read` with the transaction, which has a snapshot of the latest commit meanwhile.
    pub(super) fn read<T>(&mut self, read: impl FnOnce(&Txn<'e>) -> Result<T>) -> Result<T> {
        renewed(&self.txn, read)
    }

    /// The same with the cursor that is kept from one use to the next; it always belongs to the same table.
    pub(super) fn walk<T>(&mut self, table: c_uint, walk: impl FnOnce(&mut Cursor<'_>) -> Result<T>) -> Result<T> {
        let cursor = &mut self.cursor;
        renewed(&self.txn, |txn| {
            if cursor.is_null() {
                // SAFETY: live, and a place for the result.
                check(unsafe { sys::mdb_cursor_open(txn.txn, table, cursor) }, "cannot open a cursor")?;
            } else {
                // SAFETY: a live transaction that only reads, and a cursor of one.
                check(unsafe { sys::mdb_cursor_renew(txn.txn, *cursor) }, "cannot renew a cursor")?;
            }
            walk(&mut Cursor { cursor: *cursor, kept: true, of: PhantomData })
        })
    }
}

/// Must not be called within itself: the end of the inner call would end the reads of the outer one.
fn renewed<'e, T>(txn: &Txn<'e>, read: impl FnOnce(&Txn<'e>) -> Result<T>) -> Result<T> {
    // SAFETY: reset, as required.
    check(unsafe { sys::mdb_txn_renew(txn.txn) }, "cannot renew a read transaction")?;
    let done = read(txn);
    // SAFETY: renewed; all borrowed reads have ended.
    unsafe { sys::mdb_txn_reset(txn.txn) };
    done
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        if !self.cursor.is_null() {
            // SAFETY: ours, once; its transaction ends after this.
            unsafe { sys::mdb_cursor_close(self.cursor) }
        }
    }
}

/// A position in a table.
pub(super) struct Cursor<'t> {
    cursor: *mut sys::MDB_cursor,
    /// The cursor belongs to a [`Reader`] and is closed with it.
    kept: bool,
    of: PhantomData<&'t ()>,
}

impl<'t> Cursor<'t> {
    /// Moves the cursor; returns `None` when there is no entry.
    pub(super) fn go(&mut self, operation: c_uint, from: &[u8]) -> Result<Option<(&'t [u8], &'t [u8])>> {
        // LMDB has no empty keys.
        let first = operation == sys::MDB_SET_RANGE && from.is_empty();
        let operation = if first { sys::MDB_FIRST } else { operation };
        let (mut key, mut value) = (val(from), empty());
        // SAFETY: live; a key that is given is read during the call.
        let code = unsafe { sys::mdb_cursor_get(self.cursor, &mut key, &mut value, operation) };
        if code == sys::MDB_NOTFOUND {
            return Ok(None);
        }
        check(code, "cannot move a cursor")?;
        // SAFETY: in the map until the transaction ends or makes a change, and the cursor borrows it.
        Ok(Some(unsafe { (lend(&key), lend(&value)) }))
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        if !self.kept {
            // SAFETY: ours, once, before its transaction ends.
            unsafe { sys::mdb_cursor_close(self.cursor) }
        }
    }
}
