//! Rows by key.

use crate::cursor::Bound;
use crate::lock::{Lock, WaitMode};
use crate::slice::{Enumeration, Slice, shared, store, usage};
use crate::status::{Status, remember};
use crate::transaction::{Transaction, with};
use crate::tree::Tree;
use seawall::{LockOrCommitted, Readable, Result};

fn found(found: bool) -> Status {
    if found { Status::Ok } else { Status::NotFound }
}

impl Transaction {
    /// Keeps a value, and stores a slice of it for the caller.
    ///
    /// # Safety
    /// `value` is null or writable.
    unsafe fn lend(&mut self, read: Option<Vec<u8>>, value: *mut Slice) -> Status {
        let Some(read) = read else { return Status::NotFound };
        self.lent = read;
        // SAFETY: as the function requires.
        unsafe { store(value, Slice::of(&self.lent)) };
        Status::Ok
    }
}

/// Inserts a row. Returns `SEAWALL_STATUS_KEY_EXISTS` if the key exists.
///
/// # Safety
/// `tx` is a handle of a transaction; the other arguments are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_insert(tx: *mut Transaction, tree: *const Tree, key: Slice, value: Slice) -> Status {
    let run = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (tree, key, value) = unsafe { (shared(tree)?, key.bytes()?, value.bytes()?) };
        tx.tx.insert(&tree.0, key, value)?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Inserts a row, or replaces it.
///
/// # Safety
/// `tx` is a handle of a transaction; the other arguments are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_put(tx: *mut Transaction, tree: *const Tree, key: Slice, value: Slice) -> Status {
    let run = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (tree, key, value) = unsafe { (shared(tree)?, key.bytes()?, value.bytes()?) };
        tx.tx.put(&tree.0, key, value)?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Inserts an entry of a unique index. Returns `SEAWALL_STATUS_KEY_EXISTS` if an entry exists whose key begins with the
/// first `prefix_len` bytes of `key`.
///
/// # Safety
/// `tx` is a handle of a transaction; the other arguments are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_insert_unique(
    tx: *mut Transaction,
    tree: *const Tree,
    key: Slice,
    prefix_len: usize,
    value: Slice,
) -> Status {
    let run = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (tree, key, value) = unsafe { (shared(tree)?, key.bytes()?, value.bytes()?) };
        tx.tx.insert_unique_prefix(&tree.0, prefix_len, key, value)?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Replaces a row. Returns `SEAWALL_STATUS_NOT_FOUND` if there is none. Without `indexed`, the change must leave the
/// row's entries unchanged in all indexes that are being built over the tree (`seawall_begin_index_build`): the build
/// does not read the row again.
///
/// # Safety
/// `tx` and `tree` are handles; `key` and `value` are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_update(
    tx: *mut Transaction,
    tree: *const Tree,
    key: Slice,
    value: Slice,
    indexed: bool,
) -> Status {
    let update = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (tree, key, value) = unsafe { (shared(tree)?, key.bytes()?, value.bytes()?) };
        let tx = &mut tx.tx;
        let there = if indexed { tx.update(&tree.0, key, value) } else { tx.update_unindexed(&tree.0, key, value) };
        Ok(found(there?))
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, update) }
}

/// Deletes a row. Returns `SEAWALL_STATUS_NOT_FOUND` if there is none.
///
/// # Safety
/// `tx` and `tree` are handles; `key` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_delete(tx: *mut Transaction, tree: *const Tree, key: Slice) -> Status {
    let delete = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (tree, key) = unsafe { (shared(tree)?, key.bytes()?) };
        Ok(found(tx.tx.delete(&tree.0, key)?))
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, delete) }
}

/// Reads a row of the snapshot. Returns `SEAWALL_STATUS_NOT_FOUND` if there is none.
///
/// # Safety
/// `tx` and `tree` are handles; `key` is readable; `value` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_get(tx: *mut Transaction, tree: *const Tree, key: Slice, value: *mut Slice) -> Status {
    let get = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (tree, key) = unsafe { (shared(tree)?, key.bytes()?) };
        let mut before = std::mem::take(&mut tx.lent);
        // The key may be the value that was lent last.
        let is_key = before.as_ptr_range().contains(&key.as_ptr());
        let mut lent = if is_key { Vec::new() } else { std::mem::take(&mut before) };
        lent.clear();
        let there = tx.tx.get_with(&tree.0, key, |read| lent.extend_from_slice(read))?;
        // SAFETY: as the function requires.
        Ok(unsafe { tx.lend(there.map(|()| lent), value) })
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, get) }
}

/// Locks a row, whether it exists or not, and reads its latest version. Returns `SEAWALL_STATUS_NOT_FOUND` if it does
/// not exist. Stores in `newly_locked` whether `seawall_unlock_row` may release the lock.
///
/// # Safety
/// `tx` and `tree` are handles; `key` is readable; `value` and `newly_locked` are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_lock_row(
    tx: *mut Transaction,
    tree: *const Tree,
    key: Slice,
    lock: u32,
    wait: u32,
    wait_ms: u64,
    value: *mut Slice,
    newly_locked: *mut bool,
) -> Status {
    let lock_row = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (tree, key) = unsafe { (shared(tree)?, key.bytes()?) };
        let mode = Lock::of(lock)?.mode().ok_or_else(|| usage("seawall_lock_row without a lock: use seawall_get"))?;
        let row = tx.tx.lock_row(&tree.0, key, mode, WaitMode::of(wait)?.wait(wait_ms))?;
        // SAFETY: as the function requires.
        unsafe { store(newly_locked, row.newly_locked) };
        // SAFETY: as the function requires.
        Ok(unsafe { tx.lend(row.value, value) })
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, lock_row) }
}

/// Releases the lock on a row if a locking read of this statement newly took it. Stores in `unlocked` whether it was
/// released. At serializable, all locks stay.
///
/// # Safety
/// `tx` and `tree` are handles; `key` is readable; `unlocked` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_unlock_row(
    tx: *mut Transaction,
    tree: *const Tree,
    key: Slice,
    unlocked: *mut bool,
) -> Status {
    let unlock = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (tree, key) = unsafe { (shared(tree)?, key.bytes()?) };
        let done = tx.tx.unlock_row(&tree.0, key)?;
        // SAFETY: as the function requires.
        unsafe { store(unlocked, done) };
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, unlock) }
}

/// Like `seawall_unlock_row`, but also at serializable: for a row that stands for something else, and whose value the
/// transaction does not use.
///
/// # Safety
/// `tx` and `tree` are handles; `key` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_release_row(tx: *mut Transaction, tree: *const Tree, key: Slice) -> Status {
    let release = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (tree, key) = unsafe { (shared(tree)?, key.bytes()?) };
        tx.tx.release_row(&tree.0, key)?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, release) }
}

/// Locks a whole tree exclusively until the transaction ends: first waits until no other transaction, prepared ones
/// included, has locks or uncommitted changes in it.
///
/// # Safety
/// `tx` and `tree` are handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_lock_tree(tx: *mut Transaction, tree: *const Tree) -> Status {
    let lock = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let tree = unsafe { shared(tree)? };
        tx.tx.lock_tree(&tree.0)?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, lock) }
}

/// A semi-consistent read, at read committed: locks the row if it is free, otherwise reads its committed version.
/// Stores in `locked` whether the row was locked. Returns `SEAWALL_STATUS_NOT_FOUND` if there is no such row.
///
/// # Safety
/// `tx` and `tree` are handles; `key` is readable; `value` and `locked` are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_lock_or_committed(
    tx: *mut Transaction,
    tree: *const Tree,
    key: Slice,
    value: *mut Slice,
    locked: *mut bool,
) -> Status {
    let lock = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (tree, key) = unsafe { (shared(tree)?, key.bytes()?) };
        let (is_locked, read) = match tx.tx.lock_or_committed(&tree.0, key)? {
            LockOrCommitted::Locked(row) => (true, row.value),
            LockOrCommitted::Committed(read) => (false, read),
        };
        // SAFETY: as the function requires.
        unsafe { store(locked, is_locked) };
        // SAFETY: as the function requires.
        Ok(unsafe { tx.lend(read, value) })
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, lock) }
}

/// Checks that the transaction's snapshot, if it has one, is not older than the tree. Returns
/// `SEAWALL_STATUS_TREE_TOO_NEW` if the tree was made later, so that the snapshot would find it empty.
///
/// # Safety
/// `tx` and `tree` are handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_may_read(tx: *mut Transaction, tree: *const Tree) -> Status {
    let may_read = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let tree = unsafe { shared(tree)? };
        let (status, why) = match tx.tx.may_read(&tree.0)? {
            Readable::Yes => return Ok(Status::Ok),
            Readable::CreatedLater => (Status::TreeTooNew, "the tree was made after the snapshot: begin anew"),
            Readable::Dropped => (Status::TreeDropped, "the tree is dropped"),
        };
        remember(why);
        Ok(status)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, may_read) }
}

/// Prefetches the pages of rows that will be read soon, without waiting for them. Stores in `absent` how many of the
/// pages are not in memory yet.
///
/// # Safety
/// `tx` and `tree` are handles; `keys` are `count` readable slices; `absent` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_prefetch(
    tx: *mut Transaction,
    tree: *const Tree,
    keys: *const Slice,
    count: usize,
    absent: *mut usize,
) -> Status {
    let prefetch = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let tree = unsafe { shared(tree)? };
        let keys = match count {
            0 => &[][..],
            _ if keys.is_null() => return Err(usage("seawall_prefetch without keys")),
            // SAFETY: as the function requires.
            _ => unsafe { std::slice::from_raw_parts(keys, count) },
        };
        // SAFETY: as the function requires.
        let keys = keys.iter().map(|key| unsafe { key.bytes() }).collect::<Result<Vec<_>>>()?;
        let pages = tx.tx.prefetch(&tree.0, &keys)?;
        // SAFETY: as the function requires.
        unsafe { store(absent, pages) };
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, prefetch) }
}

/// Estimates a range's rows and pages, mostly from branch pages.
///
/// # Safety
/// `tx` and `tree` are handles; the bounds are readable; `rows` and `pages` are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_estimate_range(
    tx: *mut Transaction,
    tree: *const Tree,
    lower: Bound,
    upper: Bound,
    rows: *mut u64,
    pages: *mut u64,
) -> Status {
    let estimate = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (tree, lower, upper) = unsafe { (shared(tree)?, lower.bound()?, upper.bound()?) };
        let range = tx.tx.estimate_range::<&[u8]>(&tree.0, (lower, upper))?;
        // SAFETY: as the function requires.
        unsafe { store(rows, range.rows) };
        // SAFETY: as the function requires.
        unsafe { store(pages, range.pages) };
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, estimate) }
}
