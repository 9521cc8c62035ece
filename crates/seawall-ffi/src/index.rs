//! Building indexes over a tree.

use crate::database::Database;
use crate::slice::{Slice, exclusive, free, hand_out, shared, text, usage};
use crate::status::{Status, call};
use crate::transaction::Interrupt;
use crate::tree::Tree;
use seawall::IndexOptions;
use std::ffi::{c_char, c_void};

/// Collects the entries of a row in an index that is being built.
#[derive(Debug)]
pub struct IndexEntries<'e>(&'e mut seawall::IndexEntries);

/// A build of indexes over a tree.
#[derive(Debug)]
pub struct IndexBuild {
    builder: Option<seawall::IndexBuilder>,
}

/// Adds the entries of one row for one of the indexes, with `seawall_index_entry`. It is called for each index in turn
/// before the next row, or the next version of the row. The same row must always give the same entries. Returning false
/// ends the build with `SEAWALL_STATUS_INTERRUPTED`.
pub type EntriesFn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        index: usize,
        key: Slice,
        value: Slice,
        entries: *mut IndexEntries<'_>,
    ) -> bool,
>;

/// Called once, when the indexes are nearly complete. Every change of the base that begins after it returns must be
/// made to the indexes too. Returning false ends the build with `SEAWALL_STATUS_INTERRUPTED`.
pub type SwitchFn = Option<unsafe extern "C" fn(context: *mut c_void) -> bool>;

/// Adds an entry. No other entry's key may begin with the first `unique_len` bytes of `key`; 0 means that there is no
/// unique part.
///
/// # Safety
/// `entries` is the argument of the running `seawall_entries_fn`; `key` and `value` are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_index_entry(
    entries: *mut IndexEntries<'_>,
    key: Slice,
    unique_len: usize,
    value: Slice,
) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let entries = unsafe { exclusive(entries)? };
        // SAFETY: as the function requires.
        let (key, value) = unsafe { (key.bytes()?, value.bytes()?) };
        if unique_len > key.len() {
            return Err(usage("an entry's unique part is longer than its key"));
        }
        entries.0.push_unique(key, unique_len, value);
        Ok(Status::Ok)
    })
}

/// Begins a build of indexes over `base`: from now on, changes of `base` are logged. Does not wait if no transaction
/// has locks or uncommitted changes in `base`; otherwise waits until all active transactions have ended.
///
/// # Safety
/// `db` and `base` are handles; `build` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_begin_index_build(
    db: *const Database,
    base: *const Tree,
    build: *mut *mut IndexBuild,
) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let (db, base) = unsafe { (shared(db)?, shared(base)?) };
        let builder = Some(db.0.index_builder(&base.0)?);
        // SAFETY: as the function requires.
        unsafe { hand_out(build, IndexBuild { builder }) }?;
        Ok(Status::Ok)
    })
}

/// Makes a handle with which any thread can end the build, in whatever step it is.
///
/// # Safety
/// `build` is a handle of a build that has not begun to run; `interrupt` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_index_build_interrupt(
    build: *const IndexBuild,
    interrupt: *mut *mut Interrupt,
) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let build = unsafe { shared(build) }?;
        let builder = build.builder.as_ref().ok_or_else(|| usage("the build has run"))?;
        // SAFETY: as the function requires.
        unsafe { hand_out(interrupt, Interrupt(builder.interrupt_handle())) }?;
        Ok(Status::Ok)
    })
}

/// Builds new trees `names` from the entries that `entries` gives for each row of the base. This thread calls `entries`
/// and `switch`. Other transactions may change the base meanwhile: the build pauses so that they keep `keep_percent`
/// (at most 95) of their rate; with 0 it does not pause. Leaves are filled to `fill_percent` (50 to 100; with 0, 90).
/// Returns `SEAWALL_STATUS_KEY_EXISTS` if two entries have the same key or unique part; `seawall_error_key` then
/// returns the key of one of them. A build can be used once.
///
/// # Safety
/// `build` is a handle; `names` are `count` texts, each with a zero byte at its end; `entries` and `switch` may be
/// called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_build_indexes(
    build: *mut IndexBuild,
    names: *const *const c_char,
    count: usize,
    fill_percent: u32,
    keep_percent: u32,
    entries: EntriesFn,
    switch: SwitchFn,
    context: *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let build = unsafe { exclusive(build)? };
        if names.is_null() {
            return Err(usage("seawall_build_indexes without names"));
        }
        // SAFETY: as the function requires.
        let names: Vec<&str> = unsafe { (0..count).map(|at| text(*names.add(at))).collect::<Result<_, _>>()? };
        let (entries, switch) =
            entries.zip(switch).ok_or_else(|| usage("seawall_build_indexes without both of its functions"))?;
        let builder = build.builder.take().ok_or_else(|| usage("a build of indexes is used once"))?;
        let stopped = || seawall::Error::Interrupted { during: "the building of an index", on: None };
        let push = |index: usize, key: &[u8], value: &[u8], to: &mut seawall::IndexEntries| {
            let mut of_row = IndexEntries(to);
            // SAFETY: as the function requires.
            if !unsafe { entries(context, index, Slice::of(key), Slice::of(value), &raw mut of_row) } {
                to.fail(stopped());
            }
        };
        // SAFETY: as the function requires.
        let switch = |_: &mut _| if unsafe { switch(context) } { Ok(()) } else { Err(stopped()) };
        let mut options = IndexOptions { keep_percent, ..IndexOptions::default() };
        if fill_percent > 0 {
            options.fill_percent = fill_percent;
        }
        builder.build(&names, options, push, switch)?;
        Ok(Status::Ok)
    })
}

/// Frees a build. Changes of the base are no longer logged.
///
/// # Safety
/// `build` is a handle or null; it is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_index_build_free(build: *mut IndexBuild) {
    // SAFETY: as the function requires.
    unsafe { free(build) };
}
