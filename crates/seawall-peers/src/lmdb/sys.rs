//! The used part of LMDB's interface (lmdb.h, version 0.9): declarations only, without logic.
#![allow(unsafe_code, reason = "declarations of a foreign library")]

use std::ffi::{c_char, c_int, c_uint, c_void};

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

opaque! { Env Txn Cursor }

/// `MDB_val`: bytes in the caller's memory or in the map.
#[repr(C)]
pub(super) struct Val {
    pub(super) size: usize,
    pub(super) data: *mut c_void,
}

pub(super) const NOSYNC: c_uint = 0x1_0000;
pub(super) const RDONLY: c_uint = 0x2_0000;
pub(super) const WRITEMAP: c_uint = 0x8_0000;
pub(super) const MAPASYNC: c_uint = 0x10_0000;
pub(super) const NOTLS: c_uint = 0x20_0000;
pub(super) const NORDAHEAD: c_uint = 0x80_0000;
/// Of `mdb_dbi_open`.
pub(super) const CREATE: c_uint = 0x4_0000;
/// Of `mdb_put`.
pub(super) const APPEND: c_uint = 0x2_0000;
pub(super) const KEYEXIST: c_int = -30799;
pub(super) const NOTFOUND: c_int = -30798;
/// Operations of `mdb_cursor_get`: their places in `MDB_cursor_op`.
pub(super) const FIRST: c_int = 0;
pub(super) const LAST: c_int = 6;
pub(super) const NEXT: c_int = 8;
pub(super) const PREV: c_int = 12;
pub(super) const SET_RANGE: c_int = 17;

#[link(name = "lmdb")]
unsafe extern "C" {
    pub(super) fn mdb_version(major: *mut c_int, minor: *mut c_int, patch: *mut c_int) -> *const c_char;
    pub(super) fn mdb_strerror(code: c_int) -> *const c_char;
    pub(super) fn mdb_env_create(env: *mut *mut Env) -> c_int;
    pub(super) fn mdb_env_open(env: *mut Env, path: *const c_char, flags: c_uint, mode: c_uint) -> c_int;
    pub(super) fn mdb_env_set_flags(env: *mut Env, flags: c_uint, on: c_int) -> c_int;
    pub(super) fn mdb_env_sync(env: *mut Env, force: c_int) -> c_int;
    pub(super) fn mdb_env_close(env: *mut Env);
    pub(super) fn mdb_env_set_mapsize(env: *mut Env, bytes: usize) -> c_int;
    pub(super) fn mdb_env_set_maxreaders(env: *mut Env, readers: c_uint) -> c_int;
    pub(super) fn mdb_env_set_maxdbs(env: *mut Env, dbs: c_uint) -> c_int;
    pub(super) fn mdb_txn_begin(env: *mut Env, parent: *mut Txn, flags: c_uint, txn: *mut *mut Txn) -> c_int;
    pub(super) fn mdb_txn_commit(txn: *mut Txn) -> c_int;
    pub(super) fn mdb_txn_abort(txn: *mut Txn);
    pub(super) fn mdb_txn_reset(txn: *mut Txn);
    pub(super) fn mdb_txn_renew(txn: *mut Txn) -> c_int;
    pub(super) fn mdb_dbi_open(txn: *mut Txn, name: *const c_char, flags: c_uint, dbi: *mut c_uint) -> c_int;
    pub(super) fn mdb_get(txn: *mut Txn, dbi: c_uint, key: *mut Val, value: *mut Val) -> c_int;
    pub(super) fn mdb_put(txn: *mut Txn, dbi: c_uint, key: *mut Val, value: *mut Val, flags: c_uint) -> c_int;
    pub(super) fn mdb_del(txn: *mut Txn, dbi: c_uint, key: *mut Val, value: *mut Val) -> c_int;
    pub(super) fn mdb_cursor_open(txn: *mut Txn, dbi: c_uint, cursor: *mut *mut Cursor) -> c_int;
    pub(super) fn mdb_cursor_renew(txn: *mut Txn, cursor: *mut Cursor) -> c_int;
    pub(super) fn mdb_cursor_close(cursor: *mut Cursor);
    pub(super) fn mdb_cursor_get(cursor: *mut Cursor, key: *mut Val, value: *mut Val, operation: c_int) -> c_int;
}
