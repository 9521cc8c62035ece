//! Safe owners of WiredTiger's connection, sessions and cursors, over the shim.
//!
//! - A cursor belongs to its session and a session to its connection; each holds its owner, so that the
//!   connection is closed last.
//! - Sessions and cursors are used by one thread at a time: they are not `Sync`, and every method of a cursor takes it exclusively.
//! - What a cursor lends is valid until the cursor is used again, which needs the cursor exclusively.
#![allow(
    unsafe_code,
    clippy::multiple_unsafe_ops_per_block,
    reason = "a foreign library; the blocks are single calls and their results"
)]

use super::NAME;
use seawall_bench::{Error, Result};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::rc::Rc;
use std::sync::Arc;
use std::{ptr, slice};

mod sys {
    use std::ffi::{c_char, c_int, c_void};

    #[repr(C)]
    pub(super) struct Connection {
        _private: [u8; 0],
    }

    #[repr(C)]
    pub(super) struct Session {
        _private: [u8; 0],
    }

    #[repr(C)]
    pub(super) struct Cursor {
        _private: [u8; 0],
    }

    pub(super) const ROLLBACK: c_int = -31800;
    pub(super) const NOTFOUND: c_int = -31803;

    unsafe extern "C" {
        pub(super) fn wiredtiger_version(major: *mut c_int, minor: *mut c_int, patch: *mut c_int) -> *const c_char;
        pub(super) fn wiredtiger_strerror(code: c_int) -> *const c_char;
        pub(super) fn sw_take_message(out: *mut c_char, size: usize) -> usize;
        pub(super) fn sw_open(dir: *const c_char, config: *const c_char, connection: *mut *mut Connection) -> c_int;
        pub(super) fn sw_close(connection: *mut Connection) -> c_int;
        pub(super) fn sw_session(connection: *mut Connection, session: *mut *mut Session) -> c_int;
        pub(super) fn sw_session_close(session: *mut Session) -> c_int;
        pub(super) fn sw_create(session: *mut Session, uri: *const c_char, config: *const c_char) -> c_int;
        pub(super) fn sw_checkpoint(session: *mut Session) -> c_int;
        pub(super) fn sw_log_flush(session: *mut Session) -> c_int;
        pub(super) fn sw_begin(session: *mut Session) -> c_int;
        pub(super) fn sw_commit(session: *mut Session, config: *const c_char) -> c_int;
        pub(super) fn sw_rollback(session: *mut Session) -> c_int;
        pub(super) fn sw_cursor(session: *mut Session, uri: *const c_char, cursor: *mut *mut Cursor) -> c_int;
        pub(super) fn sw_get(
            cursor: *mut Cursor,
            key: *const c_void,
            key_len: usize,
            value: *mut *const c_void,
            value_len: *mut usize,
        ) -> c_int;
        pub(super) fn sw_reserve(cursor: *mut Cursor, key: *const c_void, key_len: usize) -> c_int;
        pub(super) fn sw_put(
            cursor: *mut Cursor,
            key: *const c_void,
            key_len: usize,
            value: *const c_void,
            value_len: usize,
        ) -> c_int;
        pub(super) fn sw_remove(cursor: *mut Cursor, key: *const c_void, key_len: usize) -> c_int;
        pub(super) fn sw_seek(cursor: *mut Cursor, key: *const c_void, key_len: usize, exact: *mut c_int) -> c_int;
        pub(super) fn sw_step(cursor: *mut Cursor, backward: c_int) -> c_int;
        pub(super) fn sw_entry(
            cursor: *mut Cursor,
            key: *mut *const c_void,
            key_len: *mut usize,
            value: *mut *const c_void,
            value_len: *mut usize,
        ) -> c_int;
        pub(super) fn sw_reset(cursor: *mut Cursor) -> c_int;
    }
}

fn check(code: c_int, what: &str) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let mut message = [0u8; 512];
    // SAFETY: the buffer has the stated length; the code's text lives forever.
    let (len, text) = unsafe {
        (
            sys::sw_take_message(message.as_mut_ptr().cast(), message.len()),
            CStr::from_ptr(sys::wiredtiger_strerror(code)),
        )
    };
    let said = String::from_utf8_lossy(&message[..len]);
    let text = format!("{what}: {} ({code}) {said}", text.to_string_lossy());
    Err(if code == sys::ROLLBACK { Error::Conflict(text) } else { Error::failed(NAME, text.trim_end()) })
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|error| Error::failed(NAME, error))
}

fn bytes_of(bytes: &[u8]) -> *const c_void {
    bytes.as_ptr().cast()
}

/// # Safety
/// WiredTiger returned it, and it lives as long as `'c`.
unsafe fn lend<'c>(data: *const c_void, len: usize) -> &'c [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(data.cast(), len) }
}

/// The library's version.
pub(super) fn version() -> String {
    let [mut major, mut minor, mut patch] = [0; 3];
    // SAFETY: three places for the numbers; the string is static.
    unsafe { sys::wiredtiger_version(&mut major, &mut minor, &mut patch) };
    format!("{major}.{minor}.{patch}")
}

/// An open database.
pub(super) struct Connection(*mut sys::Connection);

// SAFETY: a connection may be used by any thread, and by several at a time.
unsafe impl Send for Connection {}
// SAFETY: as above.
unsafe impl Sync for Connection {}

impl Connection {
    pub(super) fn open(dir: &str, config: &str) -> Result<Self> {
        let (c_dir, c_config) = (c_string(dir)?, c_string(config)?);
        let mut connection = ptr::null_mut();
        // SAFETY: texts that end in NUL, and a place for the result.
        let code = unsafe { sys::sw_open(c_dir.as_ptr(), c_config.as_ptr(), &mut connection) };
        check(code, &format!("cannot open {dir}")).map(|()| Self(connection))
    }

    /// Writes a checkpoint and closes.
    pub(super) fn close(self) -> Result<()> {
        let connection = self.0;
        std::mem::forget(self);
        // SAFETY: live, and not used again; sessions hold it and are gone.
        check(unsafe { sys::sw_close(connection) }, "cannot close")
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: live, ours; sessions hold it and are gone. A drop cannot report an error.
        unsafe { sys::sw_close(self.0) };
    }
}

/// The session of one thread.
pub(super) struct Session {
    session: *mut sys::Session,
    _of: Arc<Connection>,
}

// SAFETY: a session may move between threads while one thread uses it at a time, which not being `Sync`
// ensures.
unsafe impl Send for Session {}

impl Session {
    pub(super) fn new(connection: &Arc<Connection>) -> Result<Self> {
        let mut session = ptr::null_mut();
        // SAFETY: live, and a place for the result.
        check(unsafe { sys::sw_session(connection.0, &mut session) }, "cannot open a session")?;
        Ok(Self { session, _of: Arc::clone(connection) })
    }

    /// Creates a table unless it exists.
    pub(super) fn create(&self, uri: &str, config: &str) -> Result<()> {
        let (c_uri, c_config) = (c_string(uri)?, c_string(config)?);
        // SAFETY: live, texts that end in NUL.
        let code = unsafe { sys::sw_create(self.session, c_uri.as_ptr(), c_config.as_ptr()) };
        check(code, &format!("cannot make {uri}"))
    }

    pub(super) fn checkpoint(&self) -> Result<()> {
        // SAFETY: live.
        check(unsafe { sys::sw_checkpoint(self.session) }, "cannot write a checkpoint")
    }

    pub(super) fn log_flush(&self) -> Result<()> {
        // SAFETY: live.
        check(unsafe { sys::sw_log_flush(self.session) }, "cannot flush the log")
    }

    pub(super) fn begin(&self) -> Result<()> {
        // SAFETY: live.
        check(unsafe { sys::sw_begin(self.session) }, "cannot begin")
    }

    /// Ends the transaction, even when it fails. `sync`: as the connection was configured; else without a
    /// sync.
    pub(super) fn commit(&self, sync: bool) -> Result<()> {
        let config: *const c_char = if sync { ptr::null() } else { c"sync=off".as_ptr() };
        // SAFETY: live; no text, or one that ends in NUL.
        check(unsafe { sys::sw_commit(self.session, config) }, "cannot commit")
    }

    pub(super) fn rollback(&self) -> Result<()> {
        // SAFETY: live.
        check(unsafe { sys::sw_rollback(self.session) }, "cannot roll back")
    }

    pub(super) fn cursor(self: &Rc<Self>, uri: &str) -> Result<Cursor> {
        let c_uri = c_string(uri)?;
        let mut cursor = ptr::null_mut();
        // SAFETY: live, a text that ends in NUL, and a place for the result.
        check(unsafe { sys::sw_cursor(self.session, c_uri.as_ptr(), &mut cursor) }, &format!("cannot open {uri}"))?;
        Ok(Cursor { cursor, _of: Rc::clone(self) })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: live, ours; its cursors, which hold it, are gone. It rolls back an open transaction. A drop
        // cannot report an error.
        unsafe { sys::sw_session_close(self.session) };
    }
}

/// A position in a table. It is closed with its session.
pub(super) struct Cursor {
    cursor: *mut sys::Cursor,
    _of: Rc<Session>,
}

impl Cursor {
    /// The value of `key`, lent until the cursor is used again.
    pub(super) fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>> {
        let (mut value, mut len) = (ptr::null(), 0);
        // SAFETY: live; the key is read during the call; places for the results.
        let code = unsafe { sys::sw_get(self.cursor, bytes_of(key), key.len(), &mut value, &mut len) };
        if code == sys::NOTFOUND {
            return Ok(None);
        }
        check(code, "cannot get")?;
        // SAFETY: there until the cursor is used again, which it cannot be while this is borrowed.
        Ok(Some(unsafe { lend(value, len) }))
    }

    /// Reserves `key` for the transaction; returns false, and reserves nothing, when the key does not exist.
    pub(super) fn reserve(&mut self, key: &[u8]) -> Result<bool> {
        // SAFETY: live; the key is read during the call.
        let code = unsafe { sys::sw_reserve(self.cursor, bytes_of(key), key.len()) };
        if code == sys::NOTFOUND { Ok(false) } else { check(code, "cannot reserve").map(|()| true) }
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        // SAFETY: live; key and value are copied.
        let code = unsafe { sys::sw_put(self.cursor, bytes_of(key), key.len(), bytes_of(value), value.len()) };
        check(code, "cannot put")
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Result<()> {
        // SAFETY: live; the key is read during the call.
        let code = unsafe { sys::sw_remove(self.cursor, bytes_of(key), key.len()) };
        if code == sys::NOTFOUND { Ok(()) } else { check(code, "cannot remove") }
    }

    /// Moves to the first entry at or after `key`, or backward to the last one before it; false when there is
    /// none.
    pub(super) fn seek(&mut self, key: &[u8], backward: bool) -> Result<bool> {
        let mut exact = 0;
        // SAFETY: live; the key is read during the call; a place for the result.
        let code = unsafe { sys::sw_seek(self.cursor, bytes_of(key), key.len(), &mut exact) };
        if code == sys::NOTFOUND {
            return Ok(false);
        }
        check(code, "cannot seek")?;
        let there = if backward { exact < 0 } else { exact >= 0 };
        if there { Ok(true) } else { self.step(backward) }
    }

    /// Moves to the next or the previous entry; false when there is none.
    pub(super) fn step(&mut self, backward: bool) -> Result<bool> {
        // SAFETY: live.
        let code = unsafe { sys::sw_step(self.cursor, backward.into()) };
        if code == sys::NOTFOUND { Ok(false) } else { check(code, "cannot move a cursor").map(|()| true) }
    }

    /// The current entry, lent until the cursor is used again; the cursor must be on an entry.
    pub(super) fn entry(&mut self) -> Result<(&[u8], &[u8])> {
        let (mut key, mut key_len, mut value, mut value_len) = (ptr::null(), 0, ptr::null(), 0);
        // SAFETY: live, and places for the results.
        let code = unsafe { sys::sw_entry(self.cursor, &mut key, &mut key_len, &mut value, &mut value_len) };
        check(code, "cannot read the entry of a cursor")?;
        // SAFETY: valid until the cursor is used again, which it cannot be while this is borrowed.
        Ok(unsafe { (lend(key, key_len), lend(value, value_len)) })
    }

    /// Releases the current page, and outside a transaction the snapshot.
    pub(super) fn reset(&mut self) -> Result<()> {
        // SAFETY: live.
        check(unsafe { sys::sw_reset(self.cursor) }, "cannot reset a cursor")
    }
}
