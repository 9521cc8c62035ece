//! Cursors, which live as long as a statement or a prepared query.

use crate::lock::{Lock, WaitMode};
use crate::slice::{Enumeration, Slice, exclusive, free, hand_out, shared, store, usage};
use crate::status::{Status, call};
use crate::transaction::Transaction;
use crate::tree::Tree;
use seawall::{CursorOptions, Error, OwnedCursor, Result, Seek};

/// A cursor over a range of a tree. Each call that moves it takes the transaction as an argument.
#[derive(Debug, Default)]
pub struct Cursor {
    cursor: OwnedCursor,
    /// A copy of the key of a seek: the caller's key may be bytes that the cursor lent last.
    sought: Vec<u8>,
    /// The keys and values of `seawall_cursor_next_rows`, one after the other, and the ends of each key and value.
    rows: Vec<u8>,
    ends: Vec<(usize, usize)>,
    /// The error that the next step reports. It belongs to a row after the rows that were read.
    failed: Option<Error>,
}

/// `seawall_cursor_next_rows` reads no further row once it has this many bytes.
const ROWS_BYTES: usize = 64 << 10;
/// The bytes for rows that a released cursor keeps: a server keeps thousands of idle cursors.
const ROWS_KEPT: usize = 8 << 10;

/// One end of a range.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// The key; ignored if there is no bound.
    pub key: Slice,
    /// What the key means: a `seawall_bound_kind`.
    pub kind: u32,
}

/// What the key of a bound means.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundKind {
    /// There is no bound.
    Unbounded = 0,
    /// The key belongs to the range.
    Included = 1,
    /// The key does not belong to the range.
    Excluded = 2,
}

impl Enumeration for BoundKind {
    const NAME: &'static str = "seawall_bound_kind";
    const VALUES: &'static [Self] = &[Self::Unbounded, Self::Included, Self::Excluded];
}

impl Enumeration for SeekTo {
    const NAME: &'static str = "seawall_seek";
    const VALUES: &'static [Self] =
        &[Self::First, Self::Last, Self::AtLeast, Self::After, Self::AtMost, Self::Before, Self::Next, Self::Prev];
}

impl Bound {
    /// # Safety
    /// The key is readable.
    pub(crate) unsafe fn bound<'a>(self) -> Result<std::ops::Bound<&'a [u8]>> {
        Ok(match BoundKind::of(self.kind)? {
            BoundKind::Unbounded => std::ops::Bound::Unbounded,
            // SAFETY: as the function requires.
            BoundKind::Included => std::ops::Bound::Included(unsafe { self.key.bytes() }?),
            // SAFETY: as the function requires.
            BoundKind::Excluded => std::ops::Bound::Excluded(unsafe { self.key.bytes() }?),
        })
    }
}

/// Where a cursor moves.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekTo {
    /// The first entry of the range.
    First = 0,
    /// The last entry of the range.
    Last = 1,
    /// The first entry with this key or a larger one.
    AtLeast = 2,
    /// The first entry with a larger key.
    After = 3,
    /// The last entry with this key or a smaller one.
    AtMost = 4,
    /// The last entry with a smaller key.
    Before = 5,
    /// The entry after the cursor's position.
    Next = 6,
    /// The entry before the cursor's position.
    Prev = 7,
}

/// Makes a cursor without a tree: call `seawall_cursor_reset` first.
///
/// # Safety
/// `cursor` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_cursor_new(cursor: *mut *mut Cursor) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        unsafe { hand_out(cursor, Cursor::default()) }?;
        Ok(Status::Ok)
    })
}

/// Frees a cursor.
///
/// # Safety
/// `cursor` is null, or a handle of a cursor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_cursor_free(cursor: *mut Cursor) {
    // SAFETY: as the function requires.
    unsafe { free(cursor) };
}

/// Sets the cursor's tree, its range, the lock that it takes on each row, and how many rows will be read (`limit`, a
/// hint; 0 if unknown). The cursor keeps its allocated memory.
///
/// # Safety
/// `cursor` and `tree` are handles; the bounds are readable, and are no bytes that the cursor has lent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_cursor_reset(
    cursor: *mut Cursor,
    tree: *const Tree,
    lower: Bound,
    upper: Bound,
    lock: u32,
    wait: u32,
    wait_ms: u64,
    limit: u64,
) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let (cursor, tree) = unsafe { (exclusive(cursor)?, shared(tree)?) };
        // SAFETY: as the function requires.
        let range = unsafe { (lower.bound()?, upper.bound()?) };
        let limit = (limit != 0).then_some(limit);
        let options =
            CursorOptions { lock: Lock::of(lock)?.mode(), wait: WaitMode::of(wait)?.wait(wait_ms), limit, long: false };
        cursor.cursor.reset(&tree.0, options, range);
        cursor.failed = None;
        Ok(Status::Ok)
    })
}

/// Releases the cursor's position and snapshot until the next seek, and the memory of rows that
/// `seawall_cursor_next_rows` read.
///
/// # Safety
/// `cursor` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_cursor_release(cursor: *mut Cursor) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let cursor = unsafe { exclusive(cursor) }?;
        cursor.cursor.release();
        cursor.failed = None;
        cursor.rows.clear();
        cursor.rows.shrink_to(ROWS_KEPT);
        Ok(Status::Ok)
    })
}

/// Moves the cursor to an entry, and stores the entry's key and value. They stay valid until the next call with the
/// cursor returns. Returns `SEAWALL_STATUS_NOT_FOUND` if there is no such entry. With a null `value`, a long value is
/// not read.
///
/// # Safety
/// `cursor` and `tx` are handles; `key` is readable, and is ignored if `to` needs no key; `found_key` and `value` are
/// null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_cursor_seek(
    cursor: *mut Cursor,
    tx: *mut Transaction,
    to: u32,
    key: Slice,
    found_key: *mut Slice,
    value: *mut Slice,
) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let (Cursor { cursor, sought, failed, .. }, tx) = unsafe { (exclusive(cursor)?, &exclusive(tx)?.tx) };
        let failed = failed.take();
        let key = || {
            let sought = sought;
            sought.clear();
            // SAFETY: as the function requires.
            sought.extend_from_slice(unsafe { key.bytes() }?);
            Ok::<&[u8], seawall::Error>(sought)
        };
        let there = match SeekTo::of(to)? {
            SeekTo::First => cursor.seek(tx, Seek::First),
            SeekTo::Last => cursor.seek(tx, Seek::Last),
            SeekTo::AtLeast => cursor.seek(tx, Seek::AtLeast(key()?)),
            SeekTo::After => cursor.seek(tx, Seek::After(key()?)),
            SeekTo::AtMost => cursor.seek(tx, Seek::AtMost(key()?)),
            SeekTo::Before => cursor.seek(tx, Seek::Before(key()?)),
            SeekTo::Next | SeekTo::Prev if failed.is_some() => failed.map_or(Ok(false), Err),
            SeekTo::Next => cursor.next(tx),
            SeekTo::Prev => cursor.prev(tx),
        };
        if !there? {
            return Ok(Status::NotFound);
        }
        if value.is_null() {
            // SAFETY: as the function requires.
            unsafe { store(found_key, Slice::of(cursor.key())) };
        } else {
            let (at, bytes) = cursor.entry(tx)?;
            // SAFETY: as the function requires.
            unsafe { store(found_key, Slice::of(at)) };
            // SAFETY: as the function requires.
            unsafe { store(value, Slice::of(bytes)) };
        }
        Ok(Status::Ok)
    })
}

/// Moves the cursor over at most `most` of the next entries, or with `back` of the previous ones. Stores their keys and
/// values in `keys` and `values`, and their number in `count`: it is less than `most` at the end of the range, or if
/// the entries are long. Keys and values stay valid until the next call with the cursor returns. Returns
/// `SEAWALL_STATUS_NOT_FOUND` if there is no such entry. An error after the first entry is returned by the next step,
/// if that comes before a seek. A cursor that takes locks locks all these entries.
///
/// The cursor stands on the last entry only if `count` is `most` or the entries are long. At the end of the range or
/// after an error it stands on no entry: seek the last entry's key to go in the other direction or to delete it.
///
/// # Safety
/// `cursor` and `tx` are handles; `keys` and `values` have room for `most` slices; `count` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_cursor_next_rows(
    cursor: *mut Cursor,
    tx: *mut Transaction,
    back: bool,
    most: usize,
    keys: *mut Slice,
    values: *mut Slice,
    count: *mut usize,
) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let (Cursor { cursor, rows, ends, failed, .. }, tx) = unsafe { (exclusive(cursor)?, &exclusive(tx)?.tx) };
        if most == 0 || keys.is_null() || values.is_null() {
            return Err(usage("no room for the rows"));
        }
        if let Some(error) = failed.take() {
            return Err(error);
        }
        rows.clear();
        ends.clear();
        let visit = |key: &[u8], value: &[u8]| {
            rows.extend_from_slice(key);
            let key_end = rows.len();
            rows.extend_from_slice(value);
            ends.push((key_end, rows.len()));
            ends.len() < most && rows.len() < ROWS_BYTES
        };
        let moved = if back { cursor.prev_while(tx, visit) } else { cursor.next_while(tx, visit) };
        match moved {
            Err(error) if ends.is_empty() => return Err(error),
            Err(error) => *failed = Some(error),
            Ok(0) => return Ok(Status::NotFound),
            Ok(_) => {}
        }
        let mut begin = 0;
        for (at, &(key_end, end)) in ends.iter().enumerate() {
            // SAFETY: the arrays have room for `most` slices, and there are no more ends.
            unsafe {
                store(keys.add(at), Slice::of(&rows[begin..key_end]));
                store(values.add(at), Slice::of(&rows[key_end..end]));
            }
            begin = end;
        }
        // SAFETY: as the function requires.
        unsafe { store(count, ends.len()) };
        Ok(Status::Ok)
    })
}

/// Stores whether the cursor stands on a row that it has newly locked, so that `seawall_unlock_row` may release the
/// lock.
///
/// # Safety
/// `cursor` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_cursor_newly_locked(cursor: *const Cursor, newly_locked: *mut bool) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let cursor = unsafe { shared(cursor) }?;
        // SAFETY: as the function requires.
        unsafe { store(newly_locked, cursor.cursor.newly_locked()) };
        Ok(Status::Ok)
    })
}

/// Deletes the entry at the cursor's position. The cursor can continue from there. Returns `SEAWALL_STATUS_NOT_FOUND`
/// if another transaction had deleted the entry.
///
/// # Safety
/// `cursor` and `tx` are handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_cursor_delete(cursor: *mut Cursor, tx: *mut Transaction) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let (Cursor { cursor, .. }, tx) = unsafe { (exclusive(cursor)?, exclusive(tx)?) };
        if !cursor.is_on_entry() {
            return Err(usage("the cursor stands on no entry"));
        }
        Ok(if cursor.delete(&mut tx.tx)? { Status::Ok } else { Status::NotFound })
    })
}
