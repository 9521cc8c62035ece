//! Counts and checks of whole trees.

use crate::cursor::Bound;
use crate::database::Database;
use crate::slice::{exclusive, shared, store};
use crate::status::{Status, call};
use crate::transaction::{Transaction, Tree};

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

/// The bytes of a tree's pages.
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
