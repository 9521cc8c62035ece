//! Trees.

use crate::slice::{free, hand_out, text};
use crate::status::Status;
use crate::transaction::{Transaction, with};
use std::ffi::c_char;

/// A tree: an ordered map of keys to values.
#[derive(Debug)]
pub struct Tree(pub(crate) seawall::Tree);

/// Makes a tree. Other transactions see it after this transaction has committed.
///
/// # Safety
/// `tx` is a handle of a transaction; `name` is a text; `tree` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_create_tree(
    tx: *mut Transaction,
    name: *const c_char,
    tree: *mut *mut Tree,
) -> Status {
    let create = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let made = tx.tx.create_tree(unsafe { text(name) }?)?;
        // SAFETY: as the function requires.
        unsafe { hand_out(tree, Tree(made)) }?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, create) }
}

/// Opens a tree. Returns `SEAWALL_STATUS_NOT_FOUND` if no tree has this name.
///
/// # Safety
/// `tx` is a handle of a transaction; `name` is a text; `tree` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_open_tree(tx: *mut Transaction, name: *const c_char, tree: *mut *mut Tree) -> Status {
    let open = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let opened = tx.tx.open_tree(unsafe { text(name) }?)?;
        // SAFETY: as the function requires.
        unsafe { hand_out(tree, Tree(opened)) }?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, open) }
}

/// Drops a tree. Returns `SEAWALL_STATUS_NOT_FOUND` if no tree has this name.
///
/// # Safety
/// `tx` is a handle of a transaction; the other arguments are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_drop_tree(tx: *mut Transaction, name: *const c_char) -> Status {
    let run = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let name = unsafe { text(name) }?;
        tx.tx.drop_tree(name)?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Renames a tree.
///
/// # Safety
/// `tx` is a handle of a transaction; the other arguments are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_rename_tree(tx: *mut Transaction, from: *const c_char, to: *const c_char) -> Status {
    let run = |tx: &mut Transaction| {
        // SAFETY: as the function requires.
        let (from, to) = unsafe { (text(from)?, text(to)?) };
        tx.tx.rename_tree(from, to)?;
        Ok(Status::Ok)
    };
    // SAFETY: as the function requires.
    unsafe { with(tx, run) }
}

/// Frees the handle of a tree.
///
/// # Safety
/// `tree` is null, or a handle that no call uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_tree_free(tree: *mut Tree) {
    // SAFETY: as the function requires.
    unsafe { free(tree) };
}
