//! Building an index over a tree.

use crate::database::Database;
use crate::slice::{Slice, exclusive, hand_out, shared, text};
use crate::status::{Status, call, usage};
use crate::transaction::Tree;
use seawall::IndexOptions;
use std::ffi::{c_char, c_void};

/// The entries of a row in an index that is being built.
#[derive(Debug)]
pub struct IndexEntries {
    entries: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Adds the entries of a row with `seawall_index_entry`. The same row must give the same entries.
pub type EntriesFn =
    Option<unsafe extern "C" fn(context: *mut c_void, key: Slice, value: Slice, entries: *mut IndexEntries)>;

/// Adds an entry.
///
/// # Safety
/// `entries` is what an `seawall_entries_fn` was given; `key` and `value` are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_index_entry(entries: *mut IndexEntries, key: Slice, value: Slice) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let entries = unsafe { exclusive(entries)? };
        // SAFETY: as the function requires.
        let (key, value) = unsafe { (key.bytes()?, value.bytes()?) };
        entries.entries.push((key.to_vec(), value.to_vec()));
        Ok(Status::Ok)
    })
}

/// Builds a new tree `name` of the entries that `entries` gives for each row of `base`; `entries` is called
/// meanwhile, by this thread. Others may change `base` meanwhile; the tree has their changes up to the call's end.
///
/// # Safety
/// `db` and `base` are handles; `name` is a text that ends with a zero byte; `index` is writable; `entries` may be
/// called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_build_index(
    db: *const Database,
    base: *const Tree,
    name: *const c_char,
    entries: EntriesFn,
    context: *mut c_void,
    index: *mut *mut Tree,
) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let (db, base, name) = unsafe { (shared(db)?, shared(base)?, text(name)?) };
        let entries = entries.ok_or_else(|| usage("seawall_build_index without a function"))?;
        let mut of_row = IndexEntries { entries: Vec::new() };
        let push = |key: &[u8], value: &[u8], index: &mut seawall::IndexEntries| {
            // SAFETY: as the function requires.
            unsafe { entries(context, Slice::of(key), Slice::of(value), &raw mut of_row) };
            of_row.entries.drain(..).for_each(|(key, value)| index.push(key, value));
        };
        let built = db.0.build_index(&base.0, name, IndexOptions::default(), push, |_| Ok(()))?;
        // SAFETY: as the function requires.
        unsafe { hand_out(index, Tree(built)) }?;
        Ok(Status::Ok)
    })
}
