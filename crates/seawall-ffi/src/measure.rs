//! Counting, sampling, checking and compacting whole trees.

use crate::cursor::Bound;
use crate::database::Database;
use crate::slice::{Slice, exclusive, shared, store, usage};
use crate::status::{Status, call, remember};
use crate::transaction::Transaction;
use crate::tree::Tree;
use seawall::CompactOptions;
use std::ffi::{CString, c_char, c_void};
use std::ops::ControlFlow;

/// Counts the rows of a range that the transaction sees. Reads no values.
///
/// # Safety
/// `tx` and `tree` are handles; the bounds are readable; `rows` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_count(
    tx: *mut Transaction,
    tree: *const Tree,
    lower: Bound,
    upper: Bound,
    rows: *mut u64,
) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let (tx, tree) = unsafe { (exclusive(tx)?, shared(tree)?) };
        // SAFETY: as the function requires.
        let range = unsafe { (lower.bound()?, upper.bound()?) };
        let counted = tx.tx.count(&tree.0, range)?;
        // SAFETY: as the function requires.
        unsafe { store(rows, counted) };
        Ok(Status::Ok)
    })
}

/// Stores the bytes of a tree's pages.
///
/// # Safety
/// `db` and `tree` are handles; `bytes` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_tree_bytes(db: *const Database, tree: *const Tree, bytes: *mut u64) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let (db, tree) = unsafe { (shared(db)?, shared(tree)?) };
        // SAFETY: as the function requires.
        unsafe { store(bytes, db.0.tree_bytes(&tree.0)) };
        Ok(Status::Ok)
    })
}

/// Returns the length of the part of an index key that holds its first `parts` columns.
pub type PrefixFn = Option<unsafe extern "C" fn(context: *mut c_void, key: Slice, parts: u32) -> usize>;

/// Estimates from about `leaves` leaves how many rows a tree has, and how many different values the first 1, 2, ...
/// `parts` columns of its keys have. Meanwhile this thread calls `prefix`.
///
/// # Safety
/// `db` and `tree` are handles; `rows` is null or writable; `distinct` is null or has space for `parts` numbers;
/// `prefix` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_sample(
    db: *const Database,
    tree: *const Tree,
    leaves: usize,
    parts: u32,
    prefix: PrefixFn,
    context: *mut c_void,
    rows: *mut f64,
    distinct: *mut f64,
) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let (db, tree) = unsafe { (shared(db)?, shared(tree)?) };
        let prefix = prefix.ok_or_else(|| usage("seawall_sample without a function"))?;
        // Counts neighbours in a leaf that differ, so that a value that fills many leaves is not counted in each.
        let mut changes = vec![1.0; parts as usize];
        // Also counts the values that were seen, as a lower bound: if there are few values, they seldom change inside a
        // leaf. `last` is the last key that was seen.
        let (mut seen, mut last) = (vec![0; parts as usize], None::<Vec<u8>>);
        let sample = db.0.sample_leaves(&tree.0, leaves, |leaf| {
            for (parts, (changes, seen)) in (1..).zip(changes.iter_mut().zip(&mut seen)) {
                // SAFETY: as the function requires.
                let len = |key: &[u8]| unsafe { prefix(context, Slice::of(key), parts) }.min(key.len());
                let here = leaf.distinct(len);
                *changes += leaf.weight() * here.saturating_sub(1) as f64;
                let again = last.as_ref().zip(leaf.keys().first()).is_some_and(|(a, b)| a[..len(a)] == b[..len(b)]);
                *seen += here - usize::from(again);
            }
            last = leaf.keys().last().cloned().or(last.take());
        })?;
        // SAFETY: as the function requires.
        unsafe { store(rows, sample.rows) };
        for (at, (changes, seen)) in changes.iter().zip(seen).enumerate().filter(|_| !distinct.is_null()) {
            // SAFETY: there is space for `parts` of them.
            unsafe { store(distinct.wrapping_add(at), changes.max(seen as f64).min(sample.rows)) };
        }
        Ok(Status::Ok)
    })
}

/// Called with the text of a finding; the text ends with a zero byte.
pub type FindingFn = Option<unsafe extern "C" fn(context: *mut c_void, text: *const c_char)>;

/// Verifies a tree's nodes and long values while others use the tree. If it finds damage, it calls `finding` for each
/// defect, at most 100 times, and returns `SEAWALL_STATUS_CORRUPT`.
///
/// # Safety
/// `db` and `tree` are handles; `finding` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_check_tree(
    db: *const Database,
    tree: *const Tree,
    finding: FindingFn,
    context: *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let (db, tree) = unsafe { (shared(db)?, shared(tree)?) };
        let finding = finding.ok_or_else(|| usage("seawall_check_tree without a function"))?;
        let damage = db.0.check_tree(&tree.0)?;
        for damage in &damage {
            let text = CString::new(damage.to_string().replace('\0', "?")).unwrap_or_default();
            // SAFETY: as the function requires.
            unsafe { finding(context, text.as_ptr()) };
        }
        if damage.is_empty() {
            return Ok(Status::Ok);
        }
        remember("the tree is damaged: the findings say where. Restore it from a backup, or dump what can be read");
        Ok(Status::Corrupt)
    })
}

/// Called between the steps of a compaction, with the number of leaves processed (`done`) and the number of leaves that
/// the tree had at the beginning (`leaves`). Returning false ends the compaction.
pub type CompactFn = Option<unsafe extern "C" fn(context: *mut c_void, done: u64, leaves: u64) -> bool>;

/// Brings a tree's leaves into key order in the file and fills them to `fill_percent` (50 to 100; with 0, 90), while
/// others use the tree. Returns `SEAWALL_STATUS_INTERRUPTED` if `go_on` ended it; what was done until then stays.
///
/// # Safety
/// `db` and `tree` are handles; `go_on` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_compact_tree(
    db: *const Database,
    tree: *const Tree,
    fill_percent: u32,
    go_on: CompactFn,
    context: *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let (db, tree) = unsafe { (shared(db)?, shared(tree)?) };
        let go_on = go_on.ok_or_else(|| usage("seawall_compact_tree without a function"))?;
        let mut options = CompactOptions::default();
        if fill_percent > 0 {
            options.fill_percent = fill_percent;
        }
        let compacted = db.0.compact_with(&tree.0, options, |progress| {
            // SAFETY: as the function requires.
            match unsafe { go_on(context, progress.looked, progress.leaves) } {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        if !compacted.broken_off {
            return Ok(Status::Ok);
        }
        remember("the compaction was ended by its caller; what is done stays");
        Ok(Status::Interrupted)
    })
}

/// Returns the length of the longest key that the database accepts, bytes; 0 if `db` is null.
///
/// # Safety
/// `db` is a handle or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_key_bytes_max(db: *const Database) -> usize {
    // SAFETY: as the function requires.
    unsafe { shared(db) }.map_or(0, |db| db.0.key_bytes_max())
}
